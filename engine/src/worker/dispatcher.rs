//! The dispatcher: a network thread's side of dispatch. A job goes to the workers' queue, or waits
//! here: for its listener's share of them, for its share of what may block, for memory.
//!
//! While many jobs wait or run, those of an address that has more than its share of them come after
//! others (`address_limit.rs`), wherever they wait: a crowd of one address delays the jobs of
//! another by those within its share.
//!
//! Invariants: those of the module above. A job that waits has its reservation, so what waits is
//! bounded as what is in flight.
//! - J2: a job that is counted for its address is so until `collect`, at the cells that it carries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address_limit::{AddressLimit, Cells};
use crate::discard::discard;
use crate::limits::{JOBS_PER_ADDRESS, JOBS_WEIGHED};
use crate::pools::Wanted;
use crate::shares::{ShareRule, Shares};
use crate::statistics::ThreadCounters;

use super::reservation::{Reservation, Reservations};
use super::{Shared, Task, Waiting};

/// A network thread's side of dispatch: free places, room, and whether a wake-up is due.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    counters: Arc<ThreadCounters>,
    thread: usize,
    free: Vec<u32>,
    reservations: Reservations,
    /// Which jobs may occupy workers, and those that wait for that.
    shares: Shares<Box<dyn Task>>,
    /// Jobs that found no memory, by what they want.
    without_memory: [Waiting<Box<dyn Task>>; 2],
    /// Jobs that wait here, are queued, or run.
    pending: usize,
    /// Those of them that began while many were, by address.
    by_address: AddressLimit,
    /// More jobs last than may.
    is_overdrawn: bool,
    /// Where its places begin, and how many of them were in use at some time.
    first: u32,
    places_used: u32,
    /// Jobs queued since the last flush: a wake-up is due for them.
    queued: u64,
    /// What queueing them took, where that is measured: two readings of the clock each, about
    /// 50 ns.
    queueing: Option<Duration>,
}

impl Dispatcher {
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<ThreadCounters>,
        thread: usize,
        (in_flight_max, places): (usize, usize),
        rule: &ShareRule,
    ) -> Dispatcher {
        let listeners = rule.listeners.len().max(1);
        let index = |index| u32::try_from(index).expect("checked in Shared::new");
        let first = index(thread * in_flight_max);
        let free = (first..first + index(in_flight_max)).rev().collect();
        Dispatcher {
            queueing: shared.observes_dispatch.then_some(Duration::ZERO),
            shared,
            counters,
            thread,
            free,
            first,
            places_used: 0,
            reservations: Reservations::new(in_flight_max, listeners, places),
            shares: Shares::new(rule),
            without_memory: [Waiting::new(), Waiting::new()],
            pending: 0,
            by_address: AddressLimit::new(JOBS_PER_ADDRESS, 0, 0),
            is_overdrawn: false,
            queued: 0,
        }
    }

    /// Has listeners share the workers so from now on.
    pub(crate) fn change_shares(&mut self, rule: &ShareRule) {
        self.shares.change(rule);
    }

    /// Does a part of dispatch, and adds up what it took if that is wanted.
    fn timed<R>(&mut self, act: impl FnOnce(&mut Dispatcher) -> R) -> R {
        let began = self.queueing.is_some().then(Instant::now);
        let result = act(self);
        if let (Some(began), Some(sum)) = (began, &mut self.queueing) {
            *sum += began.elapsed();
        }
        result
    }

    /// Takes one of the in-flight places for a listener, if one is left to it.
    pub(crate) fn reserve(&self, listener: u16) -> Option<Reservation> {
        if self.shared.bin.is_full() {
            return None;
        }
        self.reservations.reserve(listener)
    }

    /// Counts a reservation among those that last; false where as many do as may.
    pub(crate) fn lasts(&mut self, of: &mut Reservation, index: u32) -> bool {
        let lasts = self.reservations.lasts(of, index);
        self.is_overdrawn |= lasts && self.reservations.overdrawn() > 0;
        lasts
    }

    /// Whether more jobs may last than should: found out when one begins, until it is over.
    #[inline]
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.is_overdrawn
    }

    /// Whether it counts for which address jobs last: as many do as a quarter of those that may.
    pub(crate) fn weighs_lasting(&self) -> bool {
        self.reservations.is_weighed()
    }

    /// The address of the connection at a place is counted at `cells` from now on.
    pub(crate) fn name(&self, index: u32, cells: Cells) {
        self.reservations.name(index, cells);
    }

    /// How many jobs last beyond as many as may.
    pub(crate) fn lasting_overdrawn(&mut self) -> usize {
        let overdrawn = self.reservations.overdrawn();
        self.is_overdrawn = overdrawn > 0;
        overdrawn
    }

    /// How many jobs last for the connection at a place of the table.
    pub(crate) fn lasting_of(&self, index: u32) -> usize {
        self.reservations.lasting_of(index)
    }

    /// Whether more jobs of an address last than its share.
    pub(crate) fn lasting_exceeded_by(&self, cells: Cells) -> bool {
        self.reservations.is_exceeded_by(cells)
    }

    /// In-flight places that are left, those included that are kept for one listener.
    pub(crate) fn room(&self) -> usize {
        self.reservations.room()
    }

    /// How many more jobs may last, of those for which there is a place.
    pub(crate) fn lasting_room(&self) -> usize {
        self.room().min(self.reservations.lasting_room())
    }

    /// Queues a job of a listener, or holds it back until the listener's share allows it; the
    /// wake-up follows once, at [`Dispatcher::flush`].
    pub(crate) fn dispatch(&mut self, task: Box<dyn Task>, listener: u16, now_ns: u64) {
        self.pending += 1;
        self.offer(task, listener, now_ns);
    }

    fn offer(&mut self, task: Box<dyn Task>, listener: u16, now_ns: u64) {
        self.count_parked(listener);
        let rank = task.rank();
        match self.shares.offer(listener, task, rank, now_ns) {
            Some(task) => self.queue(task, listener, now_ns),
            None => {
                self.counters.of(listener).held_back_share.add(1);
                self.tell_held_back();
            }
        }
    }

    /// Holds a job back until there may be memory for it; see [`Dispatcher::try_memory`].
    pub(crate) fn dispatch_with_memory(
        &mut self,
        task: Box<dyn Task>,
        wanted: Wanted,
        now_ns: u64,
    ) {
        let listener = task.connection().listener;
        self.counters.of(listener).held_back_memory.add(1);
        self.pending += 1;
        let rank = task.rank();
        self.without_memory[wanted as usize].push(task, rank, now_ns);
        self.tell_held_back();
    }

    /// Says since when the oldest of what waits here has waited, to those who read figures.
    #[cold]
    fn tell_held_back(&self) {
        let fronts = self.without_memory.iter().filter_map(Waiting::oldest);
        let fronts = fronts.map(|(task, since_ns)| (task.connection().listener, *since_ns));
        let oldest = fronts.chain(self.shares.oldest());
        let oldest = oldest.min_by_key(|(_, since_ns)| *since_ns);
        self.counters.held_back.tell(oldest);
    }

    pub(crate) fn waiting_for_memory(&self) -> usize {
        self.without_memory.iter().map(Waiting::len).sum()
    }

    /// Whether any job waits here: for memory, or for its listener's share of the workers; or more
    /// last than may.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_for_memory() > 0 || self.holds_back() || self.is_overdrawn
    }

    /// Those of them that wait for so much.
    pub(crate) fn waiting_for(&self, wanted: Wanted) -> usize {
        self.without_memory[wanted as usize].len()
    }

    /// Dispatches the oldest of those that wait for so much, `jobs_max` at most.
    pub(crate) fn try_memory(&mut self, wanted: Wanted, jobs_max: usize, now_ns: u64) {
        for _ in 0..jobs_max {
            let Some(task) = self.without_memory[wanted as usize].pop(|_| true) else {
                break;
            };
            let listener = task.connection().listener;
            self.counters.of(listener).held_back_memory_over.add(1);
            self.offer(task, listener, now_ns);
            self.tell_held_back();
        }
    }

    /// Whether so many jobs wait or run that it counts for which address.
    #[inline]
    pub(crate) fn weighs_jobs(&self) -> bool {
        self.pending >= JOBS_WEIGHED
    }

    /// Counts a job that is to be dispatched for an address. True: the address has more than its
    /// share of them.
    pub(crate) fn exceeds_with(&self, cells: Cells) -> bool {
        self.by_address.change(0, cells, 0, 1);
        self.by_address.exceeds(cells, 0)
    }

    fn queue(&mut self, task: Box<dyn Task>, listener: u16, now_ns: u64) {
        self.queued += 1;
        self.counters.of(listener).jobs_dispatched.add(1);
        self.timed(|dispatcher| {
            let index = dispatcher
                .free
                .pop()
                .expect("W1: a reserved job has a place");
            dispatcher.note_used(index);
            let rank = task.rank();
            dispatcher.shared.put(index, task, listener, now_ns);
            dispatcher.shared.queue.push(index, rank);
        });
    }

    /// A place is in use: which of them readers look at. Places are taken from the first on.
    #[inline]
    fn note_used(&mut self, index: u32) {
        let used = index - self.first + 1;
        if used > self.places_used {
            self.places_used = used;
            self.counters.places_used.raise(u64::from(used));
        }
    }

    /// Wakes one idle worker if anything was dispatched since the last call.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.queued > 0 {
            self.wake_worker();
        }
    }

    fn wake_worker(&mut self) {
        self.queued = 0;
        self.timed(|dispatcher| dispatcher.shared.wake_worker());
        if let Some(sum) = &mut self.queueing {
            let sum = std::mem::take(sum);
            self.counters.dispatch_ns.add(sum.as_nanos() as u64);
        }
    }

    /// Takes back a job that came through the inbox, and queues the next that waited for its share.
    pub(crate) fn collect(&mut self, index: u32, now_ns: u64) -> Option<Box<dyn Task>> {
        let task = self.shared.place(index).task.take();
        debug_assert!(task.is_some(), "an index in the inbox brings its job");
        self.free.push(index);
        if let Some(task) = &task {
            self.pending -= 1;
            if task.is_counted() {
                self.by_address.change(0, task.cells(), 1, 0);
            }
            let listener = task.connection().listener;
            self.count_parked(listener);
            self.shares.returned(listener);
            self.let_go(now_ns);
        }
        task
    }

    #[inline]
    fn let_go(&mut self, now_ns: u64) {
        if self.holds_back() {
            self.let_out(now_ns);
        }
    }

    fn let_out(&mut self, now_ns: u64) {
        while let Some((listener, next)) = self.shares.next(now_ns) {
            self.counters.of(listener).held_back_share_over.add(1);
            self.queue(next, listener, now_ns);
        }
        self.tell_held_back();
    }

    /// One load: what is parked does not count as out.
    #[inline]
    fn count_parked(&mut self, listener: u16) {
        let parked = self.shared.inboxes[self.thread].parked.of(listener);
        self.shares.parked(listener, parked);
    }

    /// Lets jobs go out in the stead of those that have been parked since the last call.
    #[inline]
    pub(crate) fn follow_parked(&mut self, now_ns: u64) {
        if self.shared.inboxes[self.thread].parked.has_more() {
            self.count_all_parked(now_ns);
        }
    }

    fn count_all_parked(&mut self, now_ns: u64) {
        self.shared.inboxes[self.thread].parked.told();
        for listener in 0..self.reservations.listeners() {
            let number = u16::try_from(listener).expect("listeners are few");
            self.count_parked(number);
        }
        self.let_go(now_ns);
    }

    /// Whether jobs wait for their share.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.shares.waiting() > 0
    }

    /// Logs which listeners have waited for their share for long.
    pub(crate) fn log_waits(&mut self, thread: u16, now_ns: u64) {
        for (listener, waiting, out) in self.shares.overdue(now_ns) {
            let number = u16::try_from(listener).expect("listeners are few");
            let name = self
                .shared
                .lifecycle
                .listener(thread, number)
                .unwrap_or("?");
            log::warn!(
                "listener {name} has its share of the workers, {out}, busy for a second; {waiting} \
                 jobs of it wait, other listeners' do not"
            );
        }
    }

    /// The thread drains and has no connection left: what waits is for the workers to finish.
    pub(crate) fn let_all_go(&mut self, now_ns: u64) {
        self.try_memory(Wanted::Small, usize::MAX, now_ns);
        self.try_memory(Wanted::Large, usize::MAX, now_ns);
        for task in self.shares.take_all() {
            let listener = task.connection().listener;
            self.counters.of(listener).held_back_share_over.add(1);
            self.queue(task, listener, now_ns);
        }
        self.tell_held_back();
        self.flush();
    }
}

impl Drop for Dispatcher {
    /// What waits when the thread ends by force or before its time; one by one, as drops may panic.
    fn drop(&mut self) {
        let tasks = self.without_memory.iter_mut();
        tasks.flat_map(Waiting::drain).for_each(discard);
        self.shares.take_all().into_iter().for_each(discard);
    }
}
