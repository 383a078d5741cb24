//! Jobs that have more than their place: a part of the workers, a count for their address; and
//! jobs that are withdrawn while they wait.
//!
//! A job that waits can be taken back by its network thread, at any time before a worker has it
//! ([`Dispatcher::withdraw`]). Its index travels on, as it cannot be taken out of the queue: the
//! worker that pops it finds no job, and sends it home. One that waits in the concurrency limit
//! goes home at once, as far as those before it do that were withdrawn too.
//!
//! Invariants
//! - WD1: an index whose job was withdrawn has a reservation till it is free again, so there is an
//!   index for each reservation (W1).
//! - WD2: a job is withdrawn or run: what takes it from its place, under the lock, has it. One
//!   that has run lies in its place again, and its mark says that it does not wait.

use super::dispatcher::Dispatcher;
use super::reservation::Reservation;
use super::{Rank, Shared, Task};
use crate::protocol::connection_handle::ConnectionId;
use crate::server::options::PartSize;
use crate::workers::mark::JobState;

/// What a job has that most have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras(u32);

impl Extras {
    pub(crate) const NONE: Extras = Extras(0);
    /// It is counted for its address among those that wait or run.
    pub(crate) const COUNTED: Extras = Extras(1 << 16);
    /// Workers take it after others, whatever its rank in the concurrency limit.
    const LATE: Extras = Extras(1 << 17);

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn is_counted(self) -> bool {
        self.0 & Extras::COUNTED.0 != 0
    }

    /// It is for this part of the workers, by its number of the listener's.
    pub(crate) fn within(self, part: u16) -> Extras {
        Extras((self.0 & !0xffff) | (u32::from(part) + 1))
    }

    /// It is taken after others.
    #[cfg(feature = "tls")]
    pub(crate) fn late(self) -> Extras {
        Extras(self.0 | Extras::LATE.0)
    }

    /// When workers take a job that has entered the concurrency limit with this rank.
    fn turn(self, rank: Rank) -> Rank {
        match self.0 & Extras::LATE.0 {
            0 => rank,
            _ => Rank::AfterOthers,
        }
    }

    fn part(self) -> Option<usize> {
        let part = self.0 & 0xffff;
        (part > 0).then(|| part as usize - 1)
    }
}

/// A job that waits in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lying {
    pub(super) home: ConnectionId,
    /// In the concurrency limit.
    pub(super) rank: Rank,
    /// In the workers' queue.
    pub(super) turn: Rank,
    /// Its member of the concurrency limit.
    pub(super) member: usize,
}

/// What is left in the place of a job that was withdrawn.
pub(super) struct Withdrawn {
    lying: Lying,
    /// WD1: its index is not free yet.
    _reservation: Option<Reservation>,
    /// It has entered the concurrency limit, and has to leave it.
    is_inside: bool,
}

impl Shared {
    /// The member of the concurrency limit that a job is of.
    pub(super) fn member_of(&self, home: ConnectionId, extras: Extras) -> usize {
        let listener = self.number_of(home.thread, home.listener);
        let Some(part) = extras.part() else {
            return listener;
        };
        let part = self.concurrency.member_of_part(listener, part);
        part.unwrap_or(listener)
    }

    /// What a member is called: a listener, or a part of one.
    pub(super) fn name_of_member(&self, member: usize) -> String {
        let Some((listener, part)) = self.concurrency.part_of_member(member) else {
            return format!("listener {}", self.listeners[member].name);
        };
        let listener = &self.listeners[listener];
        let part = &listener.parts[part];
        match part.size {
            PartSize::Kept => part.name.to_string(),
            PartSize::Own(_) | PartSize::Common => {
                format!("listener {}, {}", listener.name, part.name)
            }
        }
    }

    fn lying_with(&self, home: ConnectionId, task: &dyn Task) -> Lying {
        let (rank, extras) = (task.rank(), task.extras());
        Lying {
            home,
            rank,
            turn: extras.turn(rank),
            member: self.member_of(home, extras),
        }
    }

    /// What waits in a place.
    pub(super) fn lying(&self, index: u32) -> Lying {
        let place = self.place(index);
        match (&place.task, &place.withdrawn) {
            (Some(task), _) => self.lying_with(task.connection(), &**task),
            (None, Some(withdrawn)) => withdrawn.lying,
            (None, None) => unreachable!("W1: a job that waits has its place"),
        }
    }

    /// A worker has popped the index of a job that was withdrawn.
    #[cold]
    pub(super) fn send_home(&self, index: u32) {
        self.mark(index).clear();
        let mut place = self.place(index);
        let Some(withdrawn) = &mut place.withdrawn else {
            unreachable!("W1: a queued place has a job, or had one")
        };
        withdrawn.is_inside = true;
        let thread = withdrawn.lying.home.thread;
        drop(place);
        self.mailboxes[usize::from(thread)].return_job(index);
    }

    fn is_withdrawn(&self, index: u32) -> bool {
        self.place(index).withdrawn.is_some()
    }
}

impl Dispatcher {
    /// As [`Dispatcher::dispatch`], for a job with extras; where it lies.
    pub(crate) fn dispatch_with(&mut self, task: Box<dyn Task>, now_ns: u64) -> u32 {
        let listener = task.connection().listener;
        let index = self.put(task, listener, JobState::Queued, now_ns);
        self.enter_lying(index, now_ns);
        index
    }

    /// Takes back a job of this connection that waits. `None`: a worker has it, or has had it.
    pub(crate) fn withdraw(&mut self, index: u32, home: ConnectionId) -> Option<Box<dyn Task>> {
        let mark = self.shared.mark(index);
        let mut place = self.shared.place(index);
        let waits = matches!(mark.read()?.state, JobState::Queued | JobState::HeldBack);
        let is_own = |task: &mut Box<dyn Task>| waits && task.connection() == home;
        let mut task = place.task.take_if(is_own)?;
        let lying = self.shared.lying_with(home, &*task);
        place.withdrawn = Some(Box::new(Withdrawn {
            lying,
            _reservation: task.take_reservation(),
            is_inside: false,
        }));
        mark.clear();
        drop(place);
        self.is_back(&*task, task.extras());
        self.free_oldest(lying.member);
        Some(task)
    }

    /// Frees the indices of jobs that were withdrawn, where they are the oldest that wait.
    fn free_oldest(&mut self, member: usize) {
        let shared = &self.shared;
        let oldest = shared
            .concurrency
            .take_oldest(member, |index| shared.is_withdrawn(index));
        for index in oldest {
            match self.is_own(index) {
                true => self.collect_withdrawn(index),
                false => {
                    let thread = self.shared.lying(index).home.thread;
                    self.shared.mailboxes[usize::from(thread)].return_job(index);
                }
            }
        }
    }

    /// An index is home whose job was withdrawn.
    #[cold]
    pub(super) fn collect_withdrawn(&mut self, index: u32) {
        let withdrawn = self.shared.place(index).withdrawn.take();
        debug_assert!(
            withdrawn.is_some(),
            "an index comes with its job, or had one"
        );
        self.free_index(index);
        if let Some(withdrawn) = withdrawn
            && withdrawn.is_inside
        {
            self.leave_as(withdrawn.lying.member);
        }
    }

    /// A job with extras is back that has run.
    #[cold]
    pub(super) fn collect_with(&mut self, task: &dyn Task, extras: Extras) {
        self.is_back(task, extras);
        self.leave_as(self.shared.member_of(task.connection(), extras));
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;

    use flatpath_structures::slots::Slots;
    use flatpath_structures::worker_pool::WorkerPoolLimits;

    use super::*;
    use crate::limits::Limits;
    use crate::memory::pools::Pools;
    use crate::observe::statistics::ThreadCounters;
    use crate::server::options::{PartSize, WorkersPart};
    use crate::workers::ListenerName;
    use crate::workers::scope::WorkerScope;

    /// Of each network thread.
    const JOBS: usize = 4;

    struct Counting {
        home: ConnectionId,
        extras: Extras,
        runs: u32,
        reservation: Option<Reservation>,
    }

    impl Task for Counting {
        fn run(&mut self, _: &mut WorkerScope<'_>) {
            self.runs += 1;
        }

        fn panicked(&mut self) {}

        fn connection(&self) -> ConnectionId {
            self.home
        }

        fn extras(&self) -> Extras {
            self.extras
        }

        fn take_reservation(&mut self) -> Option<Reservation> {
            self.reservation.take()
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
            self
        }
    }

    /// Two network threads, whose listener has a part of one worker.
    struct Bench {
        shared: Arc<Shared>,
        dispatchers: [Dispatcher; 2],
    }

    impl Bench {
        fn new() -> Bench {
            let worker_pool = WorkerPoolLimits {
                workers_min: 0,
                workers_max: 4,
                idle_ns_max: u64::MAX,
            };
            let limits = Limits {
                in_flight_max: JOBS,
                ..Limits::default()
            };
            let mut names = ListenerName::some(1);
            names[0].parts.push(WorkersPart {
                name: "one worker".into(),
                size: PartSize::Own(1),
            });
            let pools = Pools::new(8_192, 2, 4);
            let shared = Arc::new(Shared::new(2, names, &limits, worker_pool, pools));
            let dispatcher = |thread| {
                let counters = Arc::new(ThreadCounters::new("test", [0].into_iter()));
                Dispatcher::new(Arc::clone(&shared), counters, thread, (JOBS, 1))
            };
            Bench {
                dispatchers: [0, 1].map(dispatcher),
                shared,
            }
        }

        fn home(thread: usize) -> ConnectionId {
            ConnectionId {
                key: Slots::new(1).insert(()).expect("room for one"),
                thread: u16::try_from(thread).expect("small"),
                listener: 0,
            }
        }

        fn dispatch(&mut self, thread: usize, extras: Extras) -> u32 {
            let dispatcher = &mut self.dispatchers[thread];
            let reservation = dispatcher.reserve(0);
            assert!(reservation.is_some(), "there is room");
            let task = Counting {
                home: Bench::home(thread),
                extras,
                runs: 0,
                reservation,
            };
            dispatcher.dispatch_with(Box::new(task), 0)
        }

        /// Whether the job was taken back.
        fn withdraw(&mut self, thread: usize, index: u32) -> bool {
            let task = self.dispatchers[thread].withdraw(index, Bench::home(thread));
            let task = task.map(|task| task.into_any().downcast::<Counting>());
            task.is_some_and(|task| task.expect("of this bench").runs == 0)
        }

        /// Workers run what is queued.
        fn run(&self) {
            while self.shared.run_next(0, || ()) {}
        }

        /// What comes home to a thread: how often each was run.
        fn home_comes(&mut self, thread: usize) -> Vec<u32> {
            let jobs: Vec<u32> = self.shared.mailboxes[thread].jobs().collect();
            let dispatcher = &mut self.dispatchers[thread];
            let tasks = jobs.into_iter();
            let tasks = tasks.filter_map(|index| dispatcher.collect(index));
            let runs = tasks.map(|task| {
                let task = task.into_any().downcast::<Counting>();
                task.expect("of this bench").runs
            });
            runs.collect()
        }

        /// Both.
        fn run_all(&mut self, thread: usize) -> Vec<u32> {
            self.run();
            self.home_comes(thread)
        }

        fn room(&self) -> [usize; 2] {
            [0, 1].map(|thread| self.dispatchers[thread].room())
        }
    }

    #[test]
    fn a_queued_job_is_withdrawn_once_and_its_index_comes_home_through_a_worker() {
        let mut bench = Bench::new();
        let first = bench.dispatch(0, Extras::NONE);
        let second = bench.dispatch(0, Extras::NONE);
        assert!(bench.withdraw(0, first));
        assert!(!bench.withdraw(0, first), "it is gone");
        assert_eq!(bench.room(), [JOBS - 2, JOBS], "WD1");
        assert_eq!(bench.run_all(0), [1]);
        assert_eq!(bench.room(), [JOBS, JOBS]);
        assert!(!bench.withdraw(0, second), "it is home");
        // All that may be inside beside the part is free again.
        for _ in 0..3 {
            for _ in 0..JOBS - 1 {
                bench.dispatch(0, Extras::NONE);
            }
            assert_eq!(bench.run_all(0), [1; JOBS - 1]);
        }
    }

    #[test]
    fn a_job_that_has_run_or_is_of_another_connection_is_not_withdrawn() {
        let mut bench = Bench::new();
        let ran = bench.dispatch(0, Extras::NONE);
        bench.run();
        assert!(
            !bench.withdraw(0, ran),
            "it lies in its place, and is on its way home"
        );
        assert_eq!(bench.run_all(0), [1]);
        let waits = bench.dispatch(0, Extras::NONE);
        let other = ConnectionId {
            listener: 1,
            ..Bench::home(0)
        };
        assert!(bench.dispatchers[0].withdraw(waits, other).is_none());
        assert_eq!(bench.run_all(0), [1]);
    }

    #[test]
    fn what_waits_for_its_part_goes_home_at_once_where_all_before_it_are_withdrawn() {
        let mut bench = Bench::new();
        let part = Extras::NONE.within(0);
        let inside = bench.dispatch(0, part);
        let own = bench.dispatch(0, part);
        let others = bench.dispatch(1, part);
        let last = bench.dispatch(0, part);
        assert_eq!(bench.shared.concurrency.waiting(), 3);
        assert!(bench.withdraw(1, others));
        assert_eq!(
            bench.shared.concurrency.waiting(),
            3,
            "another is before it"
        );
        assert!(bench.withdraw(0, own));
        assert_eq!(bench.shared.concurrency.waiting(), 1);
        assert_eq!(bench.room(), [JOBS - 2, JOBS - 1]);
        assert!(bench.home_comes(1).is_empty(), "its index alone is home");
        assert_eq!(bench.room(), [JOBS - 2, JOBS]);
        assert!(bench.withdraw(0, inside), "no worker has it yet");
        // The last enters when the index of the first has left.
        assert!(bench.run_all(0).is_empty());
        assert_eq!(bench.run_all(0), [1]);
        assert!(!bench.withdraw(0, last));
        assert_eq!(bench.room(), [JOBS, JOBS]);
    }
}
