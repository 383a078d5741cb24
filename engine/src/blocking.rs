//! Limits for calls that may block for a common reason: they must not take all of the workers.
//!
//! A file system that hangs keeps every worker that asks it. Jobs that are about to ask one enter
//! its [`BlockingLimit`] first, and at most half of the workers are inside at a time. A job that
//! finds the limit full waits without a worker: it is put back where it lay ([`Entry::Parked`]) and
//! runs again from its beginning when its turn has come. Where nothing inside has moved for a
//! while, or too many wait, it is refused ([`Entry::Refused`]) and answers in its protocol's words.
//!
//! | may run beside | enter | leave (drop of [`Permit`]) | refuse_stuck |
//! |----------------|-------|----------------------------|--------------|
//! | each of them   | yes   | yes                        | yes          |
//!
//! Invariants
//! - S1: jobs wait only while the limit is full (C2 of `concurrency_limit`); one that leaves hands
//!   its place to the oldest of them.
//! - S2: a waiting job's index is in no queue, inbox or free list. It lies in its place of the
//!   table, and goes back to the queue once (see W1 of `worker`).
//! - S3: within one run a job has one place in a limit at most, and is told `Parked` once: a job
//!   that asks again while it is inside is inside, and one that has to return asks in vain.
//!
//! Ordering: everything is under one lock. A job is parked after it was put in its place, and the
//! limit is looked at again then, so that no leaving is missed.
//!
//! A job that waits here has left the limit of its listener until it is queued again.
//!
//! Cost: a lock, a reading of the clock and a small allocation to enter; the first two to leave.

mod visitor;

mod mounts;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use flatpath_structures::lock::{Guard, Lock};

use crate::concurrency_limit::ConcurrencyLimit;
use crate::episode::Episode;
use crate::worker::Rank;

pub(crate) use visitor::Visitor;

/// Of the workers, one in this many may be inside.
const WORKERS_DIVISOR: u32 = 2;

/// A concurrency limit for calls that may block for a common reason, such as one mount. A clone is
/// the same limit.
#[derive(Clone, Debug)]
pub struct BlockingLimit(Arc<Inner>);

/// Bounds on what waits for a limit.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// Jobs that wait for a place inside; more are refused.
    pub waiting_max: usize,
    /// A full limit that no job has entered or left for this time is stuck: no job waits for it.
    pub stuck_after: Duration,
}

/// Counts of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingFigures {
    /// Workers inside now.
    pub inside: u32,
    /// Jobs that wait now.
    pub waiting: usize,
    /// Jobs that had to wait, ever.
    pub waited: u64,
    /// Jobs that were refused, ever.
    pub refused: u64,
}

/// The outcome for a job that asks to enter.
#[derive(Debug)]
#[must_use]
pub enum Entry {
    /// It is inside until this is dropped.
    Entered(Permit),
    /// It has to return at once, without effect: it runs again when there is room.
    Parked,
    /// It must not ask, and should say that it is busy.
    Refused,
}

/// A job's permit to be inside, given back when dropped; of a job that has asked again, with the
/// last of them.
#[derive(Debug)]
pub struct Permit(Arc<Taken>);

/// A place that a job has.
#[derive(Debug)]
struct Taken {
    limit: BlockingLimit,
}

#[derive(Debug)]
struct Inner {
    name: String,
    limits: WaitLimits,
    state: Lock<State>,
    /// It is full.
    full: Episode,
}

#[derive(Debug)]
struct State {
    limit: ConcurrencyLimit<Parked>,
    /// Jobs that were told `Parked` and do not wait in `limit` yet.
    parking: usize,
    moved: Instant,
    waited: u64,
    refused: u64,
}

/// All jobs are of one member of the concurrency limit.
const ONLY: usize = 0;

/// Where jobs that wait for a limit lie.
pub(crate) trait Home: Send + Sync {
    fn workers_max(&self) -> u32;
    /// Queues a job again, with its place in the limit if it has one.
    fn resume(&self, index: u32, grant: Option<Permit>);
}

/// A job that waits, and where it lies.
struct Parked {
    home: Weak<dyn Home>,
    index: u32,
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Parked").field(&self.index).finish()
    }
}

impl BlockingLimit {
    /// A limit with no job inside; `name` is what the log calls it.
    pub fn new(name: impl Into<String>, limits: WaitLimits) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            limits,
            state: Lock::new(State {
                limit: ConcurrencyLimit::alone(1),
                parking: 0,
                moved: Instant::now(),
                waited: 0,
                refused: 0,
            }),
            full: Episode::until_ended(),
        }))
    }

    /// What the log calls it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Asks for a place inside, for the job that a worker runs.
    pub(crate) fn enter_for(&self, job: &mut Visitor) -> Entry {
        // S3.
        if job.parked.is_some() {
            return Entry::Parked;
        }
        if let Some(inside) = job.place_in(self) {
            return Entry::Entered(inside);
        }
        if let Some(granted) = job.granted.take_if(|granted| granted.0.limit.is(self)) {
            return job.enters(granted);
        }
        let mut state = self.state();
        if state.enter(job.workers_max) {
            drop(state);
            return job.enters(self.permit());
        }
        let entry = if self.is_stuck(&state) || state.waiting() >= self.0.limits.waiting_max {
            state.refused += 1;
            Entry::Refused
        } else {
            state.parking += 1;
            state.waited += 1;
            job.parked = Some(self.clone());
            Entry::Parked
        };
        let inside = state.limit.inside(ONLY);
        drop(state);
        if self.0.full.begins() {
            log::warn!(
                "{}: {inside} workers are in it, which is the limit: others wait or are refused",
                self.0.name
            );
        }
        entry
    }

    /// Sends the jobs that wait for a stuck limit back to workers, which find it stuck.
    pub fn refuse_stuck(&self) {
        let mut state = self.state();
        let is_stuck = self.is_stuck(&state);
        let waiting = state.limit.take_waiting(|_| is_stuck);
        drop(state);
        for parked in waiting {
            if let Some(home) = parked.home.upgrade() {
                home.resume(parked.index, None);
            }
        }
    }

    /// What it holds and has done.
    pub fn figures(&self) -> BlockingFigures {
        let state = self.state();
        BlockingFigures {
            inside: state.limit.inside(ONLY),
            waiting: state.waiting(),
            waited: state.waited,
            refused: state.refused,
        }
    }

    /// A job that was told `Parked` lies in its place again: it waits, or has its turn at once.
    pub(crate) fn park(&self, home: Arc<dyn Home>, index: u32) {
        let mut state = self.state();
        state.parking -= 1;
        if state.enter(home.workers_max()) {
            drop(state);
            return home.resume(index, Some(self.permit()));
        }
        let home = Arc::downgrade(&home);
        state.limit.wait(ONLY, Parked { home, index }, Rank::Next);
    }

    /// A job that was told `Parked` does not wait after all.
    pub(crate) fn give_up(&self) {
        self.state().parking -= 1;
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn permit(&self) -> Permit {
        Permit(Arc::new(Taken {
            limit: self.clone(),
        }))
    }

    fn is_stuck(&self, state: &State) -> bool {
        state.moved.elapsed() >= self.0.limits.stuck_after
    }

    fn state(&self) -> Guard<'_, State> {
        // Nothing that could panic runs under the lock.
        self.0.state.lock()
    }

    /// Hands a place to the oldest job that waits (S1), or gives it up.
    fn leave(&self) {
        let mut state = self.state();
        state.moved = Instant::now();
        state.limit.leave(ONLY);
        while let Some(parked) = state.limit.next() {
            if let Some(home) = parked.home.upgrade() {
                drop(state);
                return home.resume(parked.index, Some(self.permit()));
            }
            state.limit.leave(ONLY);
        }
        let (inside, refused) = (state.limit.inside(ONLY), state.refused);
        drop(state);
        // The episode is over when none is left, so that a limit at its bound is logged once.
        if inside == 0 && self.0.full.end().is_some() {
            log::info!(
                "{}: no worker is in it any more ({refused} refused so far)",
                self.0.name
            );
        }
    }
}

impl State {
    /// A job enters, if there is a permit for it in a server with `workers_max` workers.
    fn enter(&mut self, workers_max: u32) -> bool {
        self.limit.set_max(ONLY, permits(workers_max));
        let enters = self.limit.enter(ONLY, Rank::Next);
        if enters {
            self.moved = Instant::now();
        }
        enters
    }

    fn waiting(&self) -> usize {
        self.limit.waiting() + self.parking
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.limit.leave();
    }
}

/// Permits of a limit in a server with `workers_max` workers: at least one, and where there are two
/// workers, one stays free.
fn permits(workers_max: u32) -> u32 {
    (workers_max / WORKERS_DIVISOR).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_handle::ConnectionId;
    use crate::limits::Limits;
    use crate::pools::Pools;
    use crate::scope::WorkerScope;
    use crate::statistics::ThreadCounters;
    use crate::worker::{Dispatcher, ListenerName, Shared, Task};
    use flatpath_structures::slots::Slots;
    use flatpath_structures::worker_pool::WorkerPoolLimits;
    use std::any::Any;

    const WORKERS_MAX: u32 = 4;
    const JOBS: usize = 8;

    /// Enters and stays inside, as a worker does that a file system keeps.
    struct Asking {
        number: usize,
        limit: BlockingLimit,
        connection: ConnectionId,
        seen: Arc<Lock<Vec<(usize, Entry)>>>,
        panics: bool,
    }

    impl Task for Asking {
        fn run(&mut self, scope: &mut WorkerScope<'_>) {
            let entry = self.limit.enter(scope);
            let is_later = matches!(entry, Entry::Parked);
            assert_eq!(scope.is_parked(), is_later);
            self.seen.lock().push((self.number, entry));
            if self.panics && is_later {
                std::panic::resume_unwind(Box::new(()));
            }
        }

        fn panicked(&mut self) {}

        fn connection(&self) -> ConnectionId {
            self.connection
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
            self
        }
    }

    struct Bench {
        shared: Arc<Shared>,
        dispatcher: Dispatcher,
        limit: BlockingLimit,
        connection: ConnectionId,
        seen: Arc<Lock<Vec<(usize, Entry)>>>,
    }

    fn counters() -> Arc<ThreadCounters> {
        Arc::new(ThreadCounters::new("simulation", [0].into_iter()))
    }

    fn bench(limits: WaitLimits) -> Bench {
        let worker_pool = WorkerPoolLimits {
            workers_min: 0,
            workers_max: WORKERS_MAX,
            idle_ns_max: u64::MAX,
        };
        let server = Limits {
            in_flight_max: JOBS,
            ..Limits::default()
        };
        let pools = Pools::new(8_192, 1, 4);
        let shared = Arc::new(Shared::new(
            1,
            ListenerName::some(1),
            &server,
            worker_pool,
            pools,
        ));
        let key = Slots::new(1).insert(()).expect("room for one");
        Bench {
            dispatcher: Dispatcher::new(Arc::clone(&shared), counters(), 0, (JOBS, 1)),
            shared,
            limit: BlockingLimit::new("a mount", limits),
            connection: ConnectionId {
                key,
                thread: 0,
                listener: 0,
            },
            seen: Arc::default(),
        }
    }

    const PATIENT: WaitLimits = WaitLimits {
        waiting_max: JOBS,
        stuck_after: Duration::from_secs(3_600),
    };

    impl Bench {
        /// Runs a new job, and gives back what it was told.
        fn ask(&mut self, number: usize, panics: bool) -> Entry {
            self.dispatcher.dispatch(
                Box::new(Asking {
                    number,
                    limit: self.limit.clone(),
                    connection: self.connection,
                    seen: Arc::clone(&self.seen),
                    panics,
                }),
                0,
                0,
            );
            self.run().expect("it is queued").1
        }

        fn dispatch(&mut self, number: usize) {
            let job = Asking {
                number,
                limit: self.limit.clone(),
                connection: self.connection,
                seen: Arc::clone(&self.seen),
                panics: false,
            };
            self.dispatcher.dispatch(Box::new(job), 0, 0);
        }

        /// Runs the next job, if one is queued.
        fn run(&mut self) -> Option<(usize, Entry)> {
            if !self.shared.run_next(0, || ()) {
                return None;
            }
            self.seen.lock().pop()
        }
    }

    #[test]
    fn a_full_limit_lets_jobs_wait_and_runs_them_in_order() {
        let mut bench = bench(PATIENT);
        let (first, second) = (bench.ask(0, false), bench.ask(1, false));
        assert!(matches!(first, Entry::Entered(_)) && matches!(second, Entry::Entered(_)));
        for number in 2..5 {
            assert!(matches!(bench.ask(number, false), Entry::Parked));
        }
        assert!(bench.run().is_none(), "none of them is queued");
        assert_eq!(bench.limit.figures().waiting, 3);
        drop(first);
        let (number, third) = bench.run().expect("the oldest has its turn");
        assert!(number == 2 && matches!(third, Entry::Entered(_)));
        assert!(
            matches!(bench.ask(5, false), Entry::Parked),
            "the newest is last"
        );
        drop((second, third));
        let next: Vec<_> = (0..2).filter_map(|_| bench.run()).collect();
        assert_eq!(
            next.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [3, 4]
        );
        drop(next);
        assert_eq!(bench.run().expect("the last").0, 5);
        let figures = bench.limit.figures();
        assert_eq!((figures.inside, figures.waiting, figures.waited), (0, 0, 4));
    }

    #[test]
    fn a_job_that_waits_does_not_count_in_the_limit_of_its_listener() {
        let mut bench = bench(PATIENT);
        bench.shared.concurrency.set_max(0, Some(3));
        let (first, second) = (bench.ask(0, false), bench.ask(1, false));
        // What a worker keeps holds it: those two have left their listener.
        bench.shared.concurrency.enter_beyond(0);
        bench.shared.concurrency.enter_beyond(0);
        bench.dispatch(2);
        bench.dispatch(3);
        assert!(bench.dispatcher.holds_back(), "three are inside");
        assert!(matches!(bench.run().expect("queued").1, Entry::Parked));
        assert!(
            !bench.dispatcher.holds_back(),
            "one of them holds no worker"
        );
        assert!(matches!(bench.run().expect("let out"), (3, Entry::Parked)));

        // Both are queued again, and count: inside are they and nothing else.
        drop((first, second));
        bench.dispatch(4);
        assert!(bench.dispatcher.holds_back(), "resumed jobs count again");
        let mut seen = Vec::new();
        while let Some((number, entry)) = bench.run() {
            drop(entry);
            seen.push(number);
        }
        assert_eq!(seen, [2, 3, 4], "none is forgotten");
    }

    /// What one run of a job is told that asks `times` times, and keeps what it is given.
    fn asked(bench: &Bench, granted: Option<Permit>, times: usize) -> (Visitor, Vec<Entry>) {
        let mut visitor = Visitor::new(WORKERS_MAX, granted);
        let entries = (0..times).map(|_| bench.limit.enter_for(&mut visitor));
        let entries = entries.collect();
        (visitor, entries)
    }

    #[test]
    fn a_job_that_asks_twice_has_one_place_and_waits_once() {
        let bench = bench(PATIENT);
        let counts = || {
            let figures = bench.limit.figures();
            (figures.inside, figures.waiting, figures.waited)
        };
        let (_, inside) = asked(&bench, None, 3);
        assert!(
            inside
                .iter()
                .all(|entry| matches!(entry, Entry::Entered(_)))
        );
        let (_, other) = asked(&bench, None, 1);
        assert_eq!(counts(), (2, 0, 0), "three questions are one place");
        let (visitor, told) = asked(&bench, None, 2);
        assert!(told.iter().all(|entry| matches!(entry, Entry::Parked)));
        assert_eq!(counts(), (2, 1, 1), "two questions wait once");
        visitor.parked.expect("it has to wait").give_up();
        assert_eq!(counts(), (2, 0, 1));
        let mut inside = inside.into_iter();
        drop(inside.next());
        assert_eq!(
            counts().0,
            2,
            "the job has its place until the last is dropped"
        );
        drop((inside, other));
        assert_eq!(counts(), (0, 0, 1));
        let (_, again) = asked(&bench, None, 2);
        drop(again);
        assert_eq!(
            counts().0,
            0,
            "a place that was granted, or taken, is left once"
        );
    }

    #[test]
    fn a_stuck_limit_refuses_jobs_that_wait_and_jobs_that_come() {
        let mut bench = bench(WaitLimits {
            stuck_after: Duration::from_millis(1),
            ..PATIENT
        });
        let inside = (bench.ask(0, false), bench.ask(1, false));
        std::thread::sleep(Duration::from_millis(2));
        assert!(matches!(bench.ask(2, false), Entry::Refused));
        drop(inside);
        assert_eq!(bench.limit.figures().inside, 0);
    }

    #[test]
    fn jobs_that_wait_for_a_stuck_limit_are_sent_back() {
        const STUCK: Duration = Duration::from_millis(1_500);
        let mut bench = bench(WaitLimits {
            stuck_after: STUCK,
            ..PATIENT
        });
        // Again until the machine was fast enough for one to wait.
        let inside = loop {
            let inside = (bench.ask(0, false), bench.ask(1, false));
            if matches!(bench.ask(2, false), Entry::Parked) {
                break inside;
            }
        };
        std::thread::sleep(STUCK);
        bench.limit.refuse_stuck();
        let (number, entry) = bench.run().expect("it runs again");
        assert!(number == 2 && matches!(entry, Entry::Refused));
        drop(inside);
    }

    #[test]
    fn too_many_do_not_wait() {
        let mut bench = bench(WaitLimits {
            waiting_max: 1,
            ..PATIENT
        });
        let _inside = (bench.ask(0, false), bench.ask(1, false));
        assert!(matches!(bench.ask(2, false), Entry::Parked));
        assert!(matches!(bench.ask(3, false), Entry::Refused));
        assert_eq!(bench.limit.figures().refused, 1);
    }

    #[test]
    fn a_job_that_panics_does_not_wait() {
        let mut bench = bench(PATIENT);
        let _inside = (bench.ask(0, false), bench.ask(1, false));
        assert!(matches!(bench.ask(2, true), Entry::Parked));
        assert_eq!(bench.limit.figures().waiting, 0);
    }
}
