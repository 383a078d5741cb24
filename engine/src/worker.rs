//! Workers: threads that run jobs and may block, and what they share with the network threads.
//!
//! A network thread puts a job in a place of the table, pushes the place's index on the queue and,
//! once per turn, wakes one idle worker. The worker pops the index, takes the job, wakes the next
//! worker, runs the job, puts it back and pushes the same index on the inbox of the network thread
//! it came from. So the index travels; jobs move twice, and nothing is allocated.
//!
//! | may run beside | dispatch | run_next | collect |
//! |----------------|----------|----------|---------|
//! | dispatch       | yes      | yes      | yes     |
//! | run_next       | yes      | yes      | yes     |
//! | collect        | yes      | yes      | one per inbox |
//!
//! Invariants
//! - W1: an index is owned by one side at a time: free list of its network thread, queue, a worker,
//!   inbox. Each network thread has a range of its own, so free lists need no lock.
//! - W2: every popped job comes back to its inbox, panicked or not.
//!
//! Ordering: the queue and the inbox publish the job (their edges); the mutex around a place is
//! never contended, because of W1.

mod dispatcher;
mod in_flight;
mod parked;
mod reservation;

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatpath_driver::Waker;
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::queue::Queue;
use flatpath_structures::worker_pool::{Wait, Wake, Worker, WorkerPool, WorkerPoolLimits};

use crate::blocking::{Home, Inside, Share, Visitor};
use crate::connection_handle::ConnectionId;
use crate::descriptors::DescriptorBudget;
use crate::holdings::Holdings;
use crate::lifecycle::{Lifecycle, ServerState};
use crate::limits::Limits;
use crate::memory::Memory;
use crate::pools::Pools;
use crate::relief::Relief;
use crate::scaler_waker::ScalerWaker;
use crate::scope::WorkerScope;
use crate::shares::ShareRule;
use crate::statistics::Statistics;
use crate::watch_queue::WatchQueue;

pub(crate) use dispatcher::Dispatcher;
use parked::Parked;
pub(crate) use reservation::Reservation;

/// A job as the workers see it, whatever its protocol.
pub(crate) trait Task: Any + Send {
    fn run(&mut self, scope: &mut WorkerScope<'_>);
    fn panicked(&mut self);
    fn connection(&self) -> ConnectionId;
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

pub(crate) struct Inbox {
    pub(crate) arrived: Queue,
    pub(crate) waker: OnceLock<Waker>,
    pub(crate) watches: WatchQueue,
    /// Jobs of this thread that wait for a share, by listener.
    parked: Parked,
}

/// Where a job sits while its index travels.
#[derive(Default)]
struct Place {
    task: Option<Box<dyn Task>>,
    /// Where the job belongs that a worker runs now.
    running: Option<ConnectionId>,
    /// When it was dispatched, by the driver's clock.
    dispatched_ns: u64,
    /// A place in a share that it has waited for.
    granted: Option<Inside>,
}

pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) worker_pool: WorkerPool,
    pub(crate) workers_min: u32,
    pub(crate) workers_max: u32,
    /// Listeners of the server, however many network threads accept for each.
    listeners: usize,
    places: Box<[Mutex<Place>]>,
    pub(crate) inboxes: Box<[Inbox]>,
    pub(crate) pools: Pools,
    /// What addresses and listeners hold of them.
    pub(crate) holdings: Holdings,
    pub(crate) relief: Relief,
    pub(crate) statistics: Statistics,
    pub(crate) descriptors: DescriptorBudget,
    /// Receive memory of the network threads that run.
    pub(crate) memory: Memory,
    pub(crate) scaler: ScalerWaker,
    /// Whether network threads measure what dispatch takes.
    pub(crate) observes_dispatch: bool,
    /// Event watches made so far, to share them out among the network threads.
    pub(crate) watches_made: AtomicUsize,
    pub(crate) lifecycle: Lifecycle,
    /// Jobs taken from the queue since the start; the scaler's measure of progress.
    popped: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        threads: usize,
        listeners: usize,
        limits: &Limits,
        worker_pool: WorkerPoolLimits,
        pools: Pools,
    ) -> Shared {
        let places = threads * limits.in_flight_max;
        let capacity = u32::try_from(places).expect("threads times in_flight_max fits 32 bits");
        Shared {
            queue: Queue::new(capacity),
            worker_pool: WorkerPool::new(worker_pool),
            workers_min: worker_pool.workers_min,
            workers_max: worker_pool.workers_max,
            listeners,
            places: (0..places).map(|_| Mutex::default()).collect(),
            inboxes: (0..threads)
                .map(|_| Inbox {
                    arrived: Queue::new(capacity),
                    waker: OnceLock::new(),
                    watches: WatchQueue::default(),
                    parked: Parked::new(listeners),
                })
                .collect(),
            holdings: Holdings::new(pools.budget_bytes(), listeners),
            relief: Relief::new(threads),
            pools,
            statistics: Statistics::default(),
            descriptors: DescriptorBudget::default(),
            memory: Memory::default(),
            scaler: ScalerWaker::default(),
            observes_dispatch: false,
            watches_made: AtomicUsize::new(0),
            lifecycle: Lifecycle::new(threads, limits),
            popped: AtomicU64::new(0),
        }
    }

    /// How the listeners of a network thread share the workers; `wanted` as each of them wants it.
    pub(crate) fn share_rule(
        &self,
        thread: u16,
        limits: &Limits,
        wanted: &[Option<u32>],
    ) -> ShareRule {
        let default = Some(limits.workers_per_listener).filter(|most| *most > 0);
        let wanted: Vec<_> = wanted.iter().map(|most| most.or(default)).collect();
        let threads = u32::try_from(self.inboxes.len()).expect("at most 1024 were granted");
        ShareRule::of(
            self.workers_max,
            (u32::from(thread), threads),
            self.listeners,
            &wanted,
        )
    }

    pub(crate) fn server_state(&self) -> ServerState {
        self.lifecycle.server_state()
    }

    /// Moves on to this state and wakes every network thread. Going back does nothing.
    pub(crate) fn advance(&self, server_state: ServerState) {
        self.lifecycle.advance(server_state);
        for inbox in &self.inboxes {
            // Behind the fence in `Lifecycle::advance`.
            if let Some(waker) = inbox.waker.get() {
                waker.wake();
            }
        }
    }

    /// Whether jobs of this network thread have been parked since it looked.
    pub(crate) fn has_parked(&self, thread: u16) -> bool {
        self.inboxes[usize::from(thread)].parked.has_more()
    }

    fn place(&self, index: u32) -> MutexGuard<'_, Place> {
        // A place is only moved in and out of; no code that could panic runs under the lock.
        self.places[index as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a job in its place, before its index is pushed.
    #[inline]
    fn put(&self, index: u32, task: Box<dyn Task>, now_ns: u64) {
        let mut place = self.place(index);
        (place.task, place.dispatched_ns) = (Some(task), now_ns);
    }

    /// Runs the oldest queued job, if there is one. Wakes the next worker before it starts.
    pub(crate) fn run_next(self: &Arc<Self>, took: impl FnOnce()) -> bool {
        let Some(index) = self.queue.pop() else {
            return false;
        };
        took();
        self.run(index);
        true
    }

    /// Runs the job of an index that came from the queue, and sends it home; one that finds the
    /// share full that it has to enter stays where it lies.
    fn run(self: &Arc<Self>, index: u32) {
        self.popped.fetch_add(1, Ordering::Relaxed);
        let mut place = self.place(index);
        let mut task = place.task.take().expect("W1: a queued place has a job");
        let granted = place.granted.take();
        let home = task.connection();
        place.running = Some(home);
        drop(place);
        let mut scope = WorkerScope {
            pool: self.pools.handle(home.thread, home.key.index),
            descriptors: &self.descriptors,
            visitor: Visitor {
                workers_max: self.workers_max,
                granted,
                parked: None,
            },
        };
        let has_run = contain(|| task.run(&mut scope)).is_some();
        let parked = scope.visitor.parked.take();
        // A place that it did not use after all goes to another job.
        drop(scope);
        if !has_run {
            self.statistics.handler_panics.add(1);
            // A second panic inside the protocol's own error reply drops only this reply.
            contain(|| task.panicked());
        }
        let mut place = self.place(index);
        (place.task, place.running, place.dispatched_ns) = (Some(task), None, 0);
        drop(place);
        match parked {
            Some(share) if has_run => return self.park(home, index, &share),
            Some(share) => share.give_up(),
            None => {}
        }
        let inbox = &self.inboxes[usize::from(home.thread)];
        inbox.arrived.push(index);
        if let Some(waker) = inbox.waker.get() {
            waker.wake();
        }
    }

    /// Lets a job wait for a share. It holds no worker meanwhile, so its network thread may let
    /// another job of the listener go out.
    #[cold]
    fn park(self: &Arc<Self>, home: ConnectionId, index: u32, share: &Share) {
        let inbox = &self.inboxes[usize::from(home.thread)];
        inbox.parked.add(home.listener);
        share.park(Arc::<Shared>::clone(self), index);
        inbox.parked.tell();
        if let Some(waker) = inbox.waker.get() {
            waker.wake();
        }
    }

    /// Work waits and no worker is idle. One load while there is no room for another worker.
    pub(crate) fn wake_scaler(&self) {
        if self.worker_pool.may_grow() {
            self.scaler.wake();
        }
    }

    /// Jobs taken from the queue so far, but for those that were queued again.
    pub(crate) fn popped(&self) -> u64 {
        self.popped.load(Ordering::Relaxed)
    }

    /// Jobs queued so far, counted once each.
    pub(crate) fn dispatched(&self) -> u64 {
        self.statistics.dispatched.read()
    }
}

impl Home for Shared {
    fn workers_max(&self) -> u32 {
        self.workers_max
    }

    fn resume(&self, index: u32, grant: Option<Inside>) {
        let mut place = self.place(index);
        let task = place.task.as_ref().expect("S2: a parked job lies here");
        // Before the job can come back: the queue and the inbox are the edges.
        let home = task.connection();
        let inbox = &self.inboxes[usize::from(home.thread)];
        inbox.parked.remove(home.listener);
        place.granted = grant;
        drop(place);
        self.popped.fetch_sub(1, Ordering::Relaxed);
        self.queue.push(index);
        if self.worker_pool.wake_one() == Wake::NoneIdle {
            self.wake_scaler();
        }
    }
}

impl Drop for Shared {
    /// Jobs of connections that a forced end cut off; one by one, as their drops may panic.
    fn drop(&mut self) {
        for place in &mut self.places {
            let place = place.get_mut().unwrap_or_else(PoisonError::into_inner);
            drop_contained(place.task.take());
        }
    }
}

/// The body of one worker thread: until the worker pool says stop or retire.
pub(crate) fn work(shared: &Arc<Shared>) {
    let Some(mut worker) = shared.worker_pool.register() else {
        return;
    };
    let has_work = || !shared.queue.is_empty();
    while worker.wait(has_work) == Wait::Work {
        // Another worker may have been faster; then the next wait sorts it out.
        shared.run_next(|| {
            if worker.took_work(has_work) == Some(Wake::NoneIdle) {
                shared.wake_scaler();
            }
        });
    }
    leave(shared, worker);
}

/// The end of a worker: calls the scaler if work waits that the worker did not see.
pub(crate) fn leave(shared: &Shared, worker: Worker) {
    drop(worker);
    // Room was made, and a fence passed: edge "room" of the scaler.
    if !shared.queue.is_empty() {
        shared.wake_scaler();
    }
}
