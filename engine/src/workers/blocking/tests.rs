//! Jobs that enter, wait, are refused and leave, one by one, without worker threads.

use super::*;
use crate::limits::Limits;
use crate::memory::pools::Pools;
use crate::observe::statistics::ThreadCounters;
use crate::protocol::connection_handle::ConnectionId;
use crate::workers::scope::WorkerScope;
use crate::workers::{Dispatcher, ListenerName, Shared, Task};
use flatpath_structures::slots::Slots;
use flatpath_structures::worker_pool::WorkerPoolLimits;
use std::any::Any;
use std::sync::atomic::Ordering;

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

    /// Runs the next job, if one is queued, and has the network thread take it back.
    fn run(&mut self) -> Option<(usize, Entry)> {
        if !self.shared.run_next(0, || ()) {
            return None;
        }
        for index in self.shared.mailboxes[0].jobs() {
            drop(self.dispatcher.collect(index));
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
fn a_limit_may_have_fewer_permits_than_half_of_the_workers() {
    for inside_max in [0, 1] {
        let mut bench = bench(PATIENT);
        bench.limit = BlockingLimit::at_most(inside_max, "passwords", PATIENT);
        let first = bench.ask(0, false);
        assert!(matches!(first, Entry::Entered(_)), "{inside_max}");
        for number in 1..3 {
            assert!(matches!(bench.ask(number, false), Entry::Parked));
        }
        drop(first);
        let (number, second) = bench.run().expect("the oldest has its turn");
        assert!(number == 1 && matches!(second, Entry::Entered(_)));
        assert!(bench.run().is_none(), "one at a time");
        drop(second);
        assert_eq!(bench.run().expect("the last").0, 2);
    }
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

#[test]
fn a_job_that_enters_when_another_leaves_calls_for_a_worker() {
    let mut bench = bench(PATIENT);
    bench.shared.concurrency.set_max(0, Some(1));
    bench.dispatch(0);
    bench.dispatch(1);
    bench.dispatcher.flush();
    bench.shared.scaler.is_woken.store(false, Ordering::Relaxed);
    assert!(bench.dispatcher.holds_back());
    assert!(bench.run().is_some());
    assert!(!bench.dispatcher.holds_back());
    bench.dispatcher.flush();
    // No worker is idle here, so it is the scaler that is called.
    assert!(bench.shared.scaler.is_woken.load(Ordering::Relaxed));
}

/// The answers to one run of a job that asks `times` times, and keeps what it is given.
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
    // By the housekeeper.
    let deadline = Instant::now() + flatpath_testkit::patience();
    let (number, entry) = loop {
        assert!(Instant::now() < deadline, "no one sends it back");
        match bench.run() {
            Some(ran) => break ran,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
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
