//! Workers: threads that run jobs and may block, and what they share with the network threads.
//!
//! A network thread puts a job in a place of the table, pushes the place's index on the queue and,
//! once per turn, wakes one idle worker. The worker pops the index, takes the job, wakes the next
//! worker, runs the job, puts it back and pushes the same index on the mailbox of the network
//! thread it came from. So the index travels; jobs move twice, and nothing is allocated.
//!
//! | may run beside | dispatch | run_next | collect |
//! |----------------|----------|----------|---------|
//! | dispatch       | yes      | yes      | yes     |
//! | run_next       | yes      | yes      | yes     |
//! | collect        | yes      | yes      | one per mailbox |
//!
//! Invariants
//! - W1: an index is owned by one side at a time: free list of its network thread, queue, a worker,
//!   mailbox. Each network thread has a range of its own, so free lists need no lock.
//! - W2: every popped job comes back to its mailbox, panicked or not, and so does the index of one
//!   that was taken back while it waited (`workers/withdrawn.rs`).
//!
//! Ordering: the queue and the mailbox publish the job (their edges); the lock around a place is
//! never contended, because of W1.
//! - Wake-up of the scaler: SE1 of `scaler.rs`.

pub mod blocking;
pub(crate) mod concurrency_limit;
pub(crate) mod free_list;
pub(crate) mod mark;
pub mod prompt;
pub(crate) mod scaler;
pub(crate) mod scope;
pub(crate) mod thread_place;
mod dispatcher;
mod in_flight;
mod job_queue;
mod reservation;
mod snapshot;
mod withdrawn;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flatpath_driver::monotonic_coarse_ns;
use flatpath_structures::lock::{Guard, Lock};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::pool::PoolHandle;
use flatpath_structures::worker_pool::{Wait, Wake, Worker, WorkerPool, WorkerPoolLimits};

use crate::admission::address_limit::{AddressKeys, Cells};
use crate::admission::answered::Answered;
use crate::admission::descriptors::{ConnectionDescriptors, DescriptorBudget};
use crate::admission::turns::ConnectionEnd;
use crate::limits::Limits;
use crate::memory::account::ServerMemory;
use crate::memory::pools::Pools;
use crate::network::mailbox::Mailbox;
use crate::observe::regions::Regions;
use crate::observe::statistics::{Count, ThreadCounters};
use crate::protocol::connection_handle::ConnectionId;
use crate::protocol::discard::{Bin, has_gathered};
use crate::server::changed_limits::{ChangedLimits, LimitChange};
use crate::server::lifecycle::{Lifecycle, ServerState};
use crate::server::options::WorkersPart;
use crate::server::sockets::{OpenSocket, SocketFile};
use crate::workers::blocking::{BlockingLimit, Home, Permit, Visitor};
use crate::workers::concurrency_limit::Listeners;
use crate::workers::mark::{JobState, Mark};
use crate::workers::scope::{Host, KeptWorkRun, WorkerScope};

pub(crate) use dispatcher::{Dispatcher, MemoryQueue};
use job_queue::JobQueue;
pub(crate) use job_queue::{Rank, Ranked};
pub(crate) use reservation::Reservation;
pub(crate) use withdrawn::Extras;
use withdrawn::{Lying, Withdrawn};

/// What the names of a server's threads begin with.
pub(crate) const DEFAULT_NAME: &str = "flatpath";

/// A job as the workers see it, whatever its protocol.
pub(crate) trait Task: Any + Send {
    fn run(&mut self, scope: &mut WorkerScope<'_>);
    fn panicked(&mut self);
    fn connection(&self) -> ConnectionId;
    /// When a worker is to take it.
    fn rank(&self) -> Rank {
        Rank::Next
    }
    /// Where the address that it is for is counted, as far as that is known.
    fn cells(&self) -> Cells {
        Cells::UNKNOWN
    }
    /// What it has that most have not.
    fn extras(&self) -> Extras {
        Extras::NONE
    }

    /// Takes its reservation: it goes to no worker any more.
    fn take_reservation(&mut self) -> Option<Reservation> {
        None
    }

    /// Whether few jobs last for that address beside what last for others.
    fn is_favoured(&self) -> bool {
        false
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// Where a job sits while its index travels.
#[derive(Default)]
struct Place {
    mark: Mark,
    content: Lock<Content>,
}

#[derive(Default)]
struct Content {
    task: Option<Box<dyn Task>>,
    /// In place of a job that was taken back while it waited.
    withdrawn: Option<Box<Withdrawn>>,
    /// Its place in the limit that it has waited for.
    granted: Option<Permit>,
}

/// A listener of the server, for display.
#[derive(Clone, Debug)]
pub(crate) struct ListenerName {
    pub(crate) name: &'static str,
    pub(crate) address: String,
    pub(crate) request_classes: &'static [&'static str],
    pub(crate) refusal_reasons: &'static [&'static str],
    /// Of the workers, for some of its jobs.
    pub(crate) parts: Vec<WorkersPart>,
}

#[cfg(test)]
impl ListenerName {
    /// `count` of them, for tests.
    pub(crate) fn some(count: usize) -> Vec<ListenerName> {
        let name = ListenerName {
            name: "test",
            address: "127.0.0.1:1".into(),
            request_classes: &[],
            refusal_reasons: &[],
            parts: Vec::new(),
        };
        vec![name; count]
    }
}

pub(crate) struct Shared {
    pub(crate) queue: JobQueue,
    pub(crate) worker_pool: WorkerPool,
    pub(crate) workers_min: u32,
    pub(crate) workers_max: u32,
    /// Listeners of the server, however many network threads accept for each.
    pub(crate) listeners: Box<[ListenerName]>,
    /// Of the jobs of its listeners.
    pub(crate) concurrency: Listeners,
    places: Box<[Place]>,
    places_per_thread: usize,
    /// One for each network thread.
    pub(crate) mailboxes: Box<[Mailbox]>,
    /// The memory for buffers.
    pub(crate) memory: Arc<ServerMemory>,
    /// Where each address is counted, there and in all other bounds.
    pub(crate) address_keys: AddressKeys,
    /// Addresses with connections, where datagrams are answered.
    pub(crate) answered: Option<Answered>,
    pub(crate) descriptors: DescriptorBudget,
    /// Receive memory of the network threads that run.
    pub(crate) regions: Regions,
    pub(crate) scaler: ScalerWaker,
    /// What workers are to drop.
    pub(crate) bin: Bin,
    /// What the names of its threads begin with.
    pub(crate) name: &'static str,
    /// Whether network threads measure what dispatch takes.
    pub(crate) observes_dispatch: bool,
    /// The connections that all network threads together may have.
    pub(crate) connections_max: usize,
    /// Event watches made so far, to share them out among the network threads.
    pub(crate) watches_made: AtomicUsize,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) changed_limits: ChangedLimits,
    pub(crate) started: Instant,
    /// The same by the clock, since 1970.
    pub(crate) started_at: Duration,
    /// Workers started after the first ones.
    pub(crate) workers_grown: Count,
    /// The listening sockets, while they are open.
    pub(crate) open_sockets: Vec<OpenSocket>,
    /// Files of Unix sockets among them.
    pub(crate) socket_files: Vec<Arc<SocketFile>>,
    /// Jobs taken from the queue since the start; the scaler's measure of progress.
    popped: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        threads: usize,
        listeners: Vec<ListenerName>,
        limits: &Limits,
        worker_pool: WorkerPoolLimits,
        pools: Pools,
    ) -> Shared {
        let places = threads * limits.in_flight_max;
        let capacity = u32::try_from(places).expect("threads times in_flight_max fits 32 bits");
        let parts: Vec<&[WorkersPart]> = listeners.iter().map(|it| &*it.parts).collect();
        Shared {
            queue: JobQueue::new(capacity),
            worker_pool: WorkerPool::new(worker_pool),
            workers_min: worker_pool.workers_min,
            workers_max: worker_pool.workers_max,
            concurrency: Listeners::new(worker_pool.workers_max, &parts),
            places: (0..places).map(|_| Place::default()).collect(),
            places_per_thread: limits.in_flight_max,
            mailboxes: (0..threads).map(|_| Mailbox::new(capacity)).collect(),
            memory: Arc::new(ServerMemory::new(pools, listeners.len(), threads)),
            address_keys: AddressKeys::default(),
            answered: None,
            descriptors: DescriptorBudget::default(),
            regions: Regions::default(),
            scaler: ScalerWaker::default(),
            bin: Bin::new(worker_pool.workers_max, places),
            name: DEFAULT_NAME,
            observes_dispatch: false,
            connections_max: 0,
            watches_made: AtomicUsize::new(0),
            lifecycle: Lifecycle::new(threads, limits),
            changed_limits: ChangedLimits::default(),
            workers_grown: Count::default(),
            started: Instant::now(),
            started_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            listeners: listeners.into(),
            open_sockets: Vec::new(),
            socket_files: Vec::new(),
            popped: AtomicU64::new(0),
        }
    }

    pub(crate) fn server_state(&self) -> ServerState {
        self.lifecycle.server_state()
    }

    /// Has the network thread of a connection end it for others.
    pub(crate) fn end_for_others(&self, home: ConnectionId) {
        if let Some(mailbox) = self.mailboxes.get(usize::from(home.thread)) {
            mailbox.endings.lock().push(home.key); // OURS: each thing that is held is lost once.
            mailbox.tell();
        }
    }

    /// Moves on to this state and tells every network thread. Going back does nothing.
    pub(crate) fn advance(&self, server_state: ServerState) {
        self.lifecycle.advance(server_state);
        self.tell_all();
    }

    /// Changes the limits that can change, and has every network thread take them over.
    pub(crate) fn change_limits(&self, change: LimitChange) {
        self.lifecycle.change(&change.server);
        self.changed_limits.set(change);
        self.tell_all();
    }

    /// Tells every network thread that something has changed: it takes a turn.
    pub(crate) fn tell_all(&self) {
        self.mailboxes.iter().for_each(Mailbox::tell);
    }

    fn mark(&self, index: u32) -> &Mark {
        &self.places[index as usize].mark
    }

    fn place(&self, index: u32) -> Guard<'_, Content> {
        // A place is only moved in and out of; no code that could panic runs under the lock.
        let content = &self.places[index as usize].content;
        content.lock()
    }

    /// Puts a job in its place, before its index goes anywhere.
    #[inline]
    fn put(&self, index: u32, task: Box<dyn Task>, mark: (u16, JobState), now_ns: u64) {
        self.place(index).task = Some(task);
        let (listener, state) = mark;
        self.mark(index).set(state, listener, now_ns);
    }

    /// Queues a job that has waited in its place.
    fn queue_again(&self, index: u32) {
        let Lying { home, turn, .. } = self.lying(index);
        let mark = self.mark(index);
        mark.set(JobState::Queued, home.listener, monotonic_coarse_ns());
        self.queue.push(index, turn);
    }

    /// A job of this connection leaves the limit of its listener. True: others entered instead and
    /// are queued, so that a worker is to be called for them.
    #[must_use]
    fn leave_listener(&self, home: ConnectionId) -> bool {
        let listener = self.number_of(home.thread, home.listener);
        let queues = |index| self.queue_again(index);
        self.concurrency.leave(listener, queues)
    }

    /// The same for a job of any member.
    #[must_use]
    fn leave_member(&self, member: usize) -> bool {
        self.concurrency
            .leave_any(member, |index| self.queue_again(index))
    }

    /// Logs which listeners, or parts of them, have waited for their concurrency limit for long.
    pub(crate) fn log_long_waits(&self, now_ns: u64) {
        for wait in self.concurrency.long_waits(now_ns) {
            log::warn!(
                "{}: {} workers, which is its limit, busy for a second; {} jobs of it wait, others \
                 do not",
                self.name_of_member(wait.member),
                wait.inside,
                wait.waiting
            );
        }
    }

    /// Runs the oldest queued job, if there is one, on this thread, whose number the kernel gave.
    /// Wakes the next worker before it starts.
    pub(crate) fn run_next(self: &Arc<Self>, thread: u32, took: impl FnOnce()) -> bool {
        let Some(index) = self.queue.pop(self.popped()) else {
            return false;
        };
        took();
        self.run(index, thread);
        true
    }

    /// Runs the job of an index that came from the queue, and sends it home; one that finds the
    /// limit full that it has to enter stays where it lies.
    fn run(self: &Arc<Self>, index: u32, thread: u32) {
        self.popped.fetch_add(1, Ordering::Relaxed);
        let mut place = self.place(index);
        let Some(mut task) = place.task.take() else {
            drop(place);
            return self.send_home(index);
        };
        let granted = place.granted.take();
        drop(place);
        let home = task.connection();
        let mark = self.mark(index);
        mark.runs(thread, home.listener, monotonic_coarse_ns());
        let mut scope = WorkerScope {
            pool: self.pool_for(home, &*task),
            host: self,
            home,
            visitor: Visitor::new(self.workers_max, granted),
            kept_work: KeptWorkRun::default(),
        };
        let has_run = contain(|| task.run(&mut scope)).is_some();
        let parked = scope.visitor.parked.take();
        // A place that it did not use after all goes to another job.
        drop(scope);
        if !has_run {
            self.count_panic(home);
            // A second panic inside the protocol's own error reply drops only this reply.
            contain(|| task.panicked());
        }
        mark.clear();
        self.place(index).task = Some(task);
        match parked {
            Some(limit) if has_run => return self.park(home, index, &limit),
            Some(limit) => limit.give_up(),
            None => {}
        }
        self.mailboxes[usize::from(home.thread)].return_job(index);
        if has_gathered() {
            // This worker looks there next, so that none is woken for it.
            self.bin.take_gathered();
        }
    }

    /// Where buffers for a job come from. While memory is short, an address that holds next to
    /// nothing need not take less, and one of which little lasts need not wait for the others.
    #[inline]
    fn pool_for(&self, home: ConnectionId, task: &dyn Task) -> PoolHandle<'_> {
        let pool = self.memory.pools.handle(home.thread, home.key.index);
        if self.memory.pools.counts_addresses() && self.memory.by_address.is_light(task.cells()) {
            let pool = pool.for_light_user();
            return match task.is_favoured() {
                true => pool.for_favoured_user(self.memory.pools.piece_bytes_max()),
                false => pool,
            };
        }
        pool
    }

    /// Lets a job wait for what may block. It holds no worker meanwhile, so another one of its
    /// listener may have it.
    #[cold]
    fn park(self: &Arc<Self>, home: ConnectionId, index: u32, limit: &BlockingLimit) {
        let now_ns = monotonic_coarse_ns();
        self.mark(index)
            .set(JobState::Parked, home.listener, now_ns);
        let Lying { member, .. } = self.lying(index);
        if self.leave_member(member) {
            // This worker may be one too many, and go idle.
            self.wake_worker();
        }
        limit.park(Arc::<Shared>::clone(self), index);
    }

    /// Has a worker look for the work that has been queued, or the scaler where none may.
    #[inline]
    pub(crate) fn wake_worker(&self) {
        self.called(self.worker_pool.wake_one());
    }

    /// The result of a call for a worker: where none is free, the scaler is notified.
    #[inline]
    fn called(&self, wake: Wake) {
        if matches!(wake, Wake::NoneIdle | Wake::Limited) {
            self.wake_scaler();
        }
    }

    /// Work waits and no worker may take it. One load while there is no room for another one.
    pub(crate) fn wake_scaler(&self) {
        if self.worker_pool.may_grow() {
            self.scaler.wake();
        }
    }

    /// Hands what this network thread has discarded to the workers. One load if that is nothing.
    #[inline]
    pub(crate) fn bin_gathered(&self) {
        if has_gathered() {
            self.bin.take_gathered();
            self.wake_worker();
        }
    }

    /// Whether there is something for a worker to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.bin.has_work()
    }

    /// Jobs taken from the queue so far, but for those that were queued again.
    pub(crate) fn popped(&self) -> u64 {
        self.popped.load(Ordering::Relaxed)
    }

    /// Jobs dispatched so far, once each, those included that wait for their listener.
    /// O(threads × listeners).
    pub(crate) fn dispatched(&self) -> u64 {
        let counters = self.threads().flat_map(|(_, thread)| thread.listeners());
        counters
            .map(|(_, counters)| counters.jobs_dispatched.read())
            .sum()
    }

    /// What the network threads count that have been set up, with their numbers.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (usize, &Arc<ThreadCounters>)> {
        let mailboxes = self.mailboxes.iter().enumerate();
        mailboxes.filter_map(|(thread, mailbox)| Some((thread, mailbox.counters.get()?)))
    }

    #[cold]
    fn count_panic(&self, home: ConnectionId) {
        if let Some(counters) = self.mailboxes[usize::from(home.thread)].counters.get() {
            counters.of(home.listener).handler_panics.add_from_any(1);
        }
    }
}

impl Host for Arc<Shared> {
    fn descriptors(
        &self,
        ConnectionId { thread, key, .. }: ConnectionId,
    ) -> ConnectionDescriptors<'_> {
        ConnectionDescriptors {
            budget: &self.descriptors,
            place: self.memory.pools.owner(thread, key.index) as usize,
        }
    }

    fn is_draining(&self) -> bool {
        self.server_state() >= ServerState::Draining
    }

    fn has_queued_jobs(&self) -> bool {
        !self.queue.is_empty()
    }

    fn end_of(&self, home: ConnectionId) -> ConnectionEnd {
        let shared = Arc::downgrade(self);
        ConnectionEnd::by(move || {
            if let Some(shared) = shared.upgrade() {
                shared.end_for_others(home);
            }
        })
    }
}

impl Home for Shared {
    fn workers_max(&self) -> u32 {
        self.workers_max
    }

    fn resume(&self, index: u32, grant: Option<Permit>) {
        self.place(index).granted = grant;
        let Lying { member, .. } = self.lying(index);
        self.concurrency.enter_beyond(member);
        self.popped.fetch_sub(1, Ordering::Relaxed);
        self.queue_again(index);
        self.wake_worker();
    }
}

impl Drop for Shared {
    /// Jobs of connections that a forced end cut off; one by one, as their drops may panic.
    fn drop(&mut self) {
        for place in &mut self.places {
            let content = place.content.get_mut();
            drop_contained(content.task.take());
        }
    }
}

/// Wakes the thread that starts workers (`scaler.rs`).
#[derive(Debug, Default)]
pub(crate) struct ScalerWaker {
    pub(crate) is_woken: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl ScalerWaker {
    /// Work was queued and no worker was idle. One load when it has been woken already.
    pub(crate) fn wake(&self) {
        // ORDER: SE1: the caller's fence orders the push before this load.
        if !self.is_woken.load(Ordering::Relaxed) && !self.is_woken.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The body of one worker thread: until the worker pool says stop or retire.
pub(crate) fn work(shared: &Arc<Shared>) {
    let Some(mut worker) = shared.worker_pool.register() else {
        return;
    };
    let thread = flatpath_sys::process::thread_number();
    let has_work = || shared.has_work();
    while worker.wait(has_work) == Wait::Work {
        let mut took = || {
            if let Some(wake) = worker.took_work(has_work) {
                shared.called(wake);
            }
        };
        // Another worker may have been faster; then the next wait sorts it out.
        if !shared.bin.empty_one(thread, &mut took) {
            shared.run_next(thread, took);
        }
    }
    leave(shared, worker);
}

/// The end of a worker: calls the scaler if work waits that the worker did not see.
pub(crate) fn leave(shared: &Shared, worker: Worker) {
    drop(worker);
    // Room was made, and a fence passed: edge "room" of the scaler.
    if shared.has_work() {
        shared.wake_scaler();
    }
}
