//! The dispatcher: a network thread's side of dispatch. A job lies in its place from then on. Its
//! index goes to the workers' queue, or waits for that: here for memory, or in the concurrency
//! limit of its listener.
//!
//! While many jobs wait or run, those of an address that has more than its share of them come after
//! others (`admission/address_limit.rs`), wherever they wait: a crowd of one address delays the
//! jobs of another by those within its share.
//!
//! Invariants: those of the module above. A job that waits has its reservation, so what waits is
//! bounded as what is in flight.
//! - D2: a job that is counted for its address is so until `collect`, at the cells that it carries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admission::address_limit::{AddressLimit, Cells};
use crate::limits::{
    JOBS_ADDRESS_PARTS, JOBS_PER_ADDRESS, JOBS_WEIGHED, JOBS_WEIGHED_PART, OTHERS_PART,
};
use crate::memory::pools::Wanted;
use crate::observe::statistics::ThreadCounters;
use crate::protocol::discard::discard;
use crate::workers::mark::JobState;

use super::reservation::{Reservation, Reservations};
use super::withdrawn::{Extras, Lying};
use super::{Rank, Ranked, Shared, Task};

/// What jobs wait for that found no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryQueue {
    /// A short reply, for which the reserve will do.
    Small,
    /// Bulk for one that is favoured: for it half of the reserve will do.
    Favoured,
    /// Bulk.
    Large,
}

/// A network thread's side of dispatch: free places, room, and whether a wake-up is due.
pub(crate) struct Dispatcher {
    pub(super) shared: Arc<Shared>,
    counters: Arc<ThreadCounters>,
    free: Vec<u32>,
    reservations: Reservations,
    /// Jobs that found no memory, by what they wait for.
    without_memory: [Ranked<u32>; 3],
    /// Jobs that wait or run.
    pending: usize,
    /// What it depends on by which address they are.
    weights: Weights,
    /// Those of them that began while many were, by address, of all listeners.
    by_address: AddressLimit,
    /// More jobs last than may.
    is_overdrawn: bool,
    /// Where its places begin, how many they are, and how many were in use at some time.
    first: u32,
    places: u32,
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
    ) -> Dispatcher {
        let listeners = counters.listeners().count().max(1);
        let index = |index| u32::try_from(index).expect("checked in Shared::new");
        let first = index(thread * in_flight_max);
        let free = (first..first + index(in_flight_max)).rev().collect();
        let mut dispatcher = Dispatcher {
            queueing: shared.observes_dispatch.then_some(Duration::ZERO),
            shared,
            counters,
            free,
            first,
            places: index(in_flight_max),
            places_used: 0,
            reservations: Reservations::new(in_flight_max, listeners, places),
            without_memory: [Ranked::new(), Ranked::new(), Ranked::new()],
            pending: 0,
            weights: Weights::default(),
            by_address: AddressLimit::new(JOBS_PER_ADDRESS, 0, 0),
            is_overdrawn: false,
            queued: 0,
        };
        dispatcher.update_shares();
        dispatcher
    }

    /// Looks how many workers each listener may have: at first, and when that has changed.
    pub(crate) fn update_shares(&mut self) {
        let Shared {
            concurrency,
            workers_max,
            mailboxes,
            ..
        } = &*self.shared;
        let most = (self.counters.listeners()).map(|(number, _)| concurrency.most(number));
        let most: Vec<_> = most.collect();
        self.weights = Weights::of(&most, *workers_max, mailboxes.len());
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

    /// Takes one of the in-flight places for a listener, if one is left to it beside the last ones.
    pub(crate) fn reserve(&self, listener: u16) -> Option<Reservation> {
        if self.shared.bin.is_full() {
            return None;
        }
        self.reservations.reserve(listener)
    }

    /// The same of the last ones, which are for addresses with no more than their share of the jobs
    /// that wait or run.
    #[cold]
    pub(crate) fn reserve_last(&self, listener: u16, cells: Cells) -> Option<Reservation> {
        let of_one = self.weights.of_one(listener);
        if self.shared.bin.is_full() || self.by_address.exceeds_of(of_one, cells, 1) {
            return None;
        }
        self.reservations.reserve_last(listener)
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

    /// The address of the connection at a place is counted at `cells` from now on.
    pub(crate) fn name(&self, index: u32, cells: Cells) {
        self.reservations.name(index, cells);
    }

    /// How many jobs last beyond as many as may.
    pub(crate) fn long_lived_overdrawn(&mut self) -> usize {
        let overdrawn = self.reservations.overdrawn();
        self.is_overdrawn = overdrawn > 0;
        overdrawn
    }

    /// How many jobs last for the connection at a place of the table.
    pub(crate) fn long_lived_of(&self, index: u32) -> usize {
        self.reservations.long_lived_of(index)
    }

    /// Whether more jobs of an address last than of one on average.
    pub(crate) fn long_lived_paid_by(&self, cells: Cells) -> bool {
        self.reservations.pays(cells)
    }

    /// In-flight places that are left, those included that are kept for one listener.
    pub(crate) fn room(&self) -> usize {
        self.reservations.room()
    }

    /// How many more jobs may last, of those for which there is a place.
    pub(crate) fn long_lived_room(&self) -> usize {
        self.room().min(self.reservations.long_lived_room())
    }

    /// Queues a job of a listener, or holds it back until the listener's concurrency limit allows
    /// it; the wake-up follows once, at [`Dispatcher::flush`].
    pub(crate) fn dispatch(&mut self, task: Box<dyn Task>, listener: u16, now_ns: u64) {
        let rank = task.rank();
        let index = self.put(task, listener, JobState::Queued, now_ns);
        self.enter(index, (listener, rank), now_ns);
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
        let rank = task.rank();
        let queue = match wanted {
            Wanted::Small => MemoryQueue::Small,
            Wanted::Large if task.is_favoured() => MemoryQueue::Favoured,
            Wanted::Large => MemoryQueue::Large,
        };
        let index = self.put(task, listener, JobState::HeldBack, now_ns);
        self.without_memory[queue as usize].push(index, rank);
    }

    /// Puts a job in a place, where it stays until it is collected.
    pub(super) fn put(
        &mut self,
        task: Box<dyn Task>,
        listener: u16,
        state: JobState,
        now_ns: u64,
    ) -> u32 {
        self.pending += 1;
        self.timed(|dispatcher| {
            let index = dispatcher
                .free
                .pop()
                .expect("W1: a reserved job has a place");
            dispatcher.note_used(index);
            dispatcher
                .shared
                .put(index, task, (listener, state), now_ns);
            index
        })
    }

    /// A job in its place goes to the workers' queue, or waits for its listener.
    fn enter(&mut self, index: u32, (listener, rank): (u16, Rank), now_ns: u64) {
        let counters = self.counters.of(listener);
        counters.jobs_dispatched.add(1);
        let number = self.counters.number(listener);
        let concurrency = &self.shared.concurrency;
        let enters = concurrency.enter((number, rank), (index, now_ns), || {
            counters.held_back_share.add(1);
            let mark = self.shared.mark(index);
            mark.set(JobState::HeldBack, listener, now_ns);
        });
        if enters {
            self.queued += 1;
            self.timed(|dispatcher| dispatcher.shared.queue.push(index, rank));
        }
    }

    /// The same for a job of any member of the concurrency limit.
    pub(super) fn enter_lying(&mut self, index: u32, now_ns: u64) {
        let Lying {
            home,
            rank,
            turn,
            member,
        } = self.shared.lying(index);
        let listener = home.listener;
        let counters = self.counters.of(listener);
        counters.jobs_dispatched.add(1);
        let is_part = member != self.counters.number(listener);
        let concurrency = &self.shared.concurrency;
        let enters = concurrency.enter_any((member, rank), (index, now_ns), || {
            match is_part {
                true => counters.held_back_part.add(1),
                false => counters.held_back_share.add(1),
            }
            let mark = self.shared.mark(index);
            mark.set(JobState::HeldBack, listener, now_ns);
        });
        if enters {
            self.queued += 1;
            self.timed(|dispatcher| dispatcher.shared.queue.push(index, turn));
        }
    }

    /// Whether enough jobs wait or run that they are counted by address.
    #[inline]
    pub(crate) fn counts_jobs_by_address(&self) -> bool {
        self.pending >= self.weights.weighed
    }

    /// Counts a job that is to be dispatched for an address. True: the address has more than its
    /// share of them, by what the job's listener may have.
    pub(crate) fn exceeds_with(&self, listener: u16, cells: Cells) -> bool {
        self.by_address.change(0, cells, 0, 1);
        let of_one = self.weights.of_one(listener);
        self.by_address.exceeds_of(of_one, cells, 0)
    }

    pub(crate) fn waiting_for_memory(&self) -> usize {
        self.without_memory.iter().map(Ranked::len).sum()
    }

    /// Whether any job waits: for memory, or for the concurrency limit of a listener; or more last
    /// than may.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_for_memory() > 0 || self.holds_back() || self.is_overdrawn
    }

    /// Those of them that need not wait while the reserve has memory.
    pub(crate) fn waiting_for_reserve(&self) -> usize {
        let [small, favoured, _] = &self.without_memory;
        small.len() + favoured.len()
    }

    /// When the oldest bulk of one that is favoured began to wait for memory, in nanoseconds.
    pub(crate) fn favoured_since_ns(&self) -> Option<u64> {
        let oldest = self.without_memory[MemoryQueue::Favoured as usize].fronts();
        let marks = oldest.filter_map(|index| self.shared.mark(*index).read());
        marks.map(|mark| mark.since_ms * 1_000_000).min()
    }

    /// Dispatches the oldest of those that wait so, `jobs_max` at most.
    pub(crate) fn try_memory(&mut self, queue: MemoryQueue, jobs_max: usize, now_ns: u64) {
        for _ in 0..jobs_max {
            let Some(index) = self.without_memory[queue as usize].pop(|_| true) else {
                break;
            };
            let Lying { home, .. } = self.shared.lying(index);
            let mark = self.shared.mark(index);
            mark.set(JobState::Queued, home.listener, now_ns);
            self.enter_lying(index, now_ns);
        }
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

    /// Takes back a job that came through the mailbox. It leaves the limit of its listener only
    /// now: so a turn finds no more jobs in the mailbox than a listener may have inside.
    pub(crate) fn collect(&mut self, index: u32) -> Option<Box<dyn Task>> {
        let Some(task) = self.shared.place(index).task.take() else {
            self.collect_withdrawn(index);
            return None;
        };
        self.free.push(index);
        let extras = task.extras();
        match extras.is_none() {
            true => {
                self.pending -= 1;
                self.queued += u64::from(self.shared.leave_listener(task.connection()));
            }
            false => self.collect_with(&*task, extras),
        }
        Some(task)
    }

    /// A job waits no more and runs no more.
    pub(super) fn is_back(&mut self, task: &dyn Task, extras: Extras) {
        self.pending -= 1;
        if extras.is_counted() {
            self.by_address.change(0, task.cells(), 1, 0);
        }
    }

    /// A job leaves its member of the concurrency limit.
    pub(super) fn leave_as(&mut self, member: usize) {
        self.queued += u64::from(self.shared.leave_member(member));
    }

    pub(super) fn free_index(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Whether an index is of this thread.
    pub(super) fn is_own(&self, index: u32) -> bool {
        (self.first..self.first + self.places).contains(&index)
    }

    /// Whether jobs of any network thread wait for the concurrency limit of their listener. A load.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.shared.concurrency.waiting() > 0
    }

    /// The thread drains and has no connection left: what waits is for the workers to finish.
    pub(crate) fn let_all_go(&mut self, now_ns: u64) {
        for queue in [
            MemoryQueue::Small,
            MemoryQueue::Favoured,
            MemoryQueue::Large,
        ] {
            self.try_memory(queue, usize::MAX, now_ns);
        }
        for index in self.take_held_back() {
            self.queued += 1;
            let Lying { member, .. } = self.shared.lying(index);
            self.shared.concurrency.enter_beyond(member);
            self.shared.queue_again(index);
        }
        self.flush();
    }

    /// This thread's jobs that wait for their listener.
    fn take_held_back(&self) -> Vec<u32> {
        let concurrency = &self.shared.concurrency;
        concurrency.take_waiting(|index| self.is_own(index))
    }
}

/// From how many jobs of one network thread on it counts for which address, and how many may be of
/// one before its next come after others.
///
/// A worker that a handler keeps cannot be taken back. So what an address may have is less than its
/// listener may: by an [`OTHERS_PART`] of the workers, which are free to it then, however many of
/// the address run without being counted. A listener that was bound to fewer workers than have such
/// a part is as one in a server with so few: an address may have all of them.
#[derive(Debug, Default)]
struct Weights {
    weighed: usize,
    /// By the thread's listeners.
    of_one: Box<[usize]>,
}

impl Weights {
    /// For listeners that may have these numbers of workers, as far as they leave some, on one of
    /// `threads` network threads.
    fn of(most: &[Option<u32>], workers_max: u32, threads: usize) -> Weights {
        let workers = workers_max as usize;
        let most_of = |most: Option<u32>| {
            let most = most.filter(|_| workers_max >= OTHERS_PART)?;
            Some(most.min(workers_max) as usize)
        };
        let divided = |workers: usize| (workers / threads).max(1);
        let smallest = most.iter().filter_map(|most| most_of(*most)).min();
        let weighed = smallest.map_or(JOBS_WEIGHED, |smallest| {
            JOBS_WEIGHED.min(divided(smallest / JOBS_WEIGHED_PART))
        });
        let of_one = most.iter().map(|most| {
            let Some(most) = most_of(*most) else {
                return JOBS_PER_ADDRESS;
            };
            let left = most.saturating_sub(workers / OTHERS_PART as usize);
            let bound = left.min(workers * JOBS_ADDRESS_PARTS / 16);
            JOBS_PER_ADDRESS.min(divided(bound.saturating_sub(weighed * threads)))
        });
        Weights {
            weighed,
            of_one: of_one.collect(),
        }
    }

    fn of_one(&self, listener: u16) -> usize {
        let of_one = self.of_one.get(usize::from(listener));
        of_one.copied().unwrap_or(JOBS_PER_ADDRESS)
    }
}

impl Drop for Dispatcher {
    /// What waits when the thread ends by force or before its time; one by one, as drops may panic.
    fn drop(&mut self) {
        let mut waiting = self.take_held_back();
        let without_memory = self.without_memory.iter_mut();
        waiting.extend(without_memory.flat_map(|jobs| jobs.take(|_| true)));
        for index in waiting {
            let task = self.shared.place(index).task.take();
            self.shared.mark(index).clear();
            if let Some(task) = task {
                discard(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::options::{KeptWork, WorkersPart};
    use crate::workers::concurrency_limit::Listeners;

    /// All that an address may have which come before others: what runs uncounted, and its share.
    fn of_one(weights: &Weights, listener: u16, threads: usize) -> usize {
        (weights.weighed + weights.of_one(listener)) * threads
    }

    #[test]
    fn an_address_leaves_a_sixteenth_of_the_workers_of_each_listener_to_others() {
        let kinds = [KeptWork::Handshakes, KeptWork::Passwords, KeptWork::Files];
        let kept = kinds.map(WorkersPart::kept);
        for workers in [16, 24, 96, 128, 256] {
            for (count, kinds) in [(1, 0), (1, 3), (2, 0), (2, 1), (3, 1), (5, 3)] {
                let parts = vec![&kept[..kinds]; count];
                let listeners = Listeners::new(workers, &parts);
                let most: Vec<_> = (0..count).map(|at| listeners.most(at)).collect();
                for threads in [1, 2] {
                    let weights = Weights::of(&most, workers, threads);
                    let may = of_one(&weights, 0, threads);
                    let all = most[0].expect("it was bound to none").min(workers) as usize;
                    let case =
                        format!("{may} of {all} by {threads} of {workers}: {count}, {kinds}");
                    assert!(may + workers as usize / 16 <= all, "{case}");
                    assert!(may * 2 >= all.min(128), "{case}");
                }
            }
        }
    }

    #[test]
    fn where_few_workers_may_be_had_an_address_leaves_none_and_others_are_not_bound_by_it() {
        let listeners = Listeners::new(128, &[&[], &[], &[]]);
        listeners.set_max(1, Some(15));
        listeners.set_max(2, Some(20));
        let most = [0, 1, 2].map(|at| listeners.most(at));
        assert_eq!(most, [Some(108), None, Some(20)]);
        let weights = Weights::of(&most, 128, 1);
        assert_eq!(
            weights.weighed, 5,
            "a quarter of the smallest that leaves some"
        );
        let may = [0, 1, 2].map(|at| weights.of_one(at));
        assert_eq!(may, [JOBS_PER_ADDRESS, JOBS_PER_ADDRESS, 20 - 8 - 5]);
        let few = Weights::of(&[Some(15)], 15, 1);
        let usual = (JOBS_WEIGHED, JOBS_PER_ADDRESS);
        assert_eq!((few.weighed, few.of_one(0)), usual);
    }
}
