//! The pairing contract, clause by clause, on ends of this process and on real servers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flatpath::watch::Eventfd;
use flatpath::{DriverChoice, Running, Server};
use flatpath_echo::Echo;
use flatpath_pairing::{
    Callback, Endpoint, EventSource, Intake, Item, Pairings, Refused, RegisterError, Sender, Sink,
    Source, Token,
};
use flatpath_testkit::{drivers_here, patience, until_true};

const TOKEN: Token = Token(3);

type Notes = Arc<Mutex<Vec<&'static str>>>;

/// An end that notes what happens to it, and refuses when the test asks for it.
struct Noting {
    notes: Notes,
    names: [&'static str; 4],
    refuses: AtomicBool,
    panics: AtomicBool,
}

impl Noting {
    fn new(notes: &Notes, names: [&'static str; 4]) -> Arc<Endpoint<Noting>> {
        Arc::new(Endpoint::new(Noting {
            notes: Arc::clone(notes),
            names,
            refuses: AtomicBool::new(false),
            panics: AtomicBool::new(false),
        }))
    }

    fn note(&self, what: usize) {
        self.notes.lock().expect("whole").push(self.names[what]);
    }

    fn answer(&self) -> Result<(), Refused> {
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants");
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Refused::Declined);
        }
        Ok(())
    }
}

impl Source for Noting {
    fn connect(&self, _consumer: &dyn Sink) -> Result<(), Refused> {
        self.note(0);
        self.answer()
    }

    fn disconnect(&self) {
        self.note(1);
    }

    fn stop(&self) {
        self.note(2);
    }

    fn start(&self) {
        self.note(3);
    }
}

impl Sink for Noting {
    fn connect(&self, _producer: &dyn Source) -> Result<(), Refused> {
        self.note(0);
        self.answer()
    }

    fn disconnect(&self) {
        self.note(1);
    }

    fn stop(&self) {
        self.note(2);
    }

    fn start(&self) {
        self.note(3);
    }

    fn intake(&self) -> Option<Arc<Intake>> {
        None
    }
}

struct Bench {
    pairings: Pairings,
    notes: Notes,
    producer: Arc<Endpoint<Noting>>,
    consumer: Arc<Endpoint<Noting>>,
}

impl Bench {
    fn new() -> Bench {
        let notes = Notes::default();
        Bench {
            pairings: Pairings::new(100),
            producer: Noting::new(&notes, ["P connect", "P disconnect", "P stop", "P start"]),
            consumer: Noting::new(&notes, ["C connect", "C disconnect", "C stop", "C start"]),
            notes,
        }
    }

    fn heard(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.notes.lock().expect("whole"))
    }
}

#[test]
fn connecting_and_disconnecting_are_framed_by_stops_and_starts() {
    let bench = Bench::new();
    let _consumed = bench
        .pairings
        .consume(TOKEN, &bench.consumer)
        .expect("free");
    let mut produced = bench
        .pairings
        .produce(TOKEN, &bench.producer)
        .expect("free");
    let connected = [
        "P stop",
        "C stop",
        "P connect",
        "C connect",
        "C start",
        "P start",
    ];
    assert_eq!(bench.heard(), connected);
    assert!(produced.end());
    let parted = [
        "P stop",
        "C stop",
        "C disconnect",
        "P disconnect",
        "C start",
        "P start",
    ];
    assert_eq!(bench.heard(), parted);
    assert!(!produced.end(), "idempotent");
    assert_eq!(bench.heard(), [""; 0]);
}

#[test]
fn a_consumer_that_refuses_is_not_registered_and_the_producer_waits_on() {
    let bench = Bench::new();
    let _produced = bench
        .pairings
        .produce(TOKEN, &bench.producer)
        .expect("free");
    bench.consumer.refuses.store(true, Ordering::Relaxed);
    let refused = bench.pairings.consume(TOKEN, &bench.consumer).err();
    assert_eq!(refused, Some(RegisterError::Connect(Refused::Declined)));
    let undone = [
        "P stop",
        "C stop",
        "P connect",
        "C connect",
        "P disconnect",
        "C start",
        "P start",
    ];
    assert_eq!(bench.heard(), undone);
    assert!(!bench.consumer.is_registered() && bench.producer.is_registered());
    let figures = bench.pairings.figures();
    assert_eq!(
        (figures.waiting, figures.paired, figures.matched),
        (1, 0, 0)
    );
    bench.consumer.refuses.store(false, Ordering::Relaxed);
    let _consumed = bench
        .pairings
        .consume(TOKEN, &bench.consumer)
        .expect("fits now");
    assert!(bench.pairings.is_connected(TOKEN));
    let figures = bench.pairings.figures();
    assert_eq!(
        (figures.waiting, figures.paired, figures.matched),
        (0, 1, 1)
    );
}

#[test]
fn an_end_that_panics_while_connecting_leaves_nothing_behind() {
    let bench = Bench::new();
    let _consumed = bench
        .pairings
        .consume(TOKEN, &bench.consumer)
        .expect("free");
    bench.producer.panics.store(true, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        bench.pairings.produce(TOKEN, &bench.producer)
    }));
    assert!(outcome.is_err());
    assert_eq!(
        bench.heard(),
        ["P stop", "C stop", "P connect", "C start", "P start"]
    );
    assert!(!bench.producer.is_registered() && !bench.pairings.is_connected(TOKEN));
    bench.producer.panics.store(false, Ordering::Relaxed);
    assert!(bench.pairings.produce(TOKEN, &bench.producer).is_ok());
}

#[test]
fn the_loser_of_a_token_does_not_evict_the_owner() {
    let bench = Bench::new();
    let _consumed = bench
        .pairings
        .consume(TOKEN, &bench.consumer)
        .expect("free");
    let _produced = bench
        .pairings
        .produce(TOKEN, &bench.producer)
        .expect("free");
    let loser = Noting::new(&bench.notes, [""; 4]);
    assert_eq!(
        bench.pairings.produce(TOKEN, &loser).err(),
        Some(RegisterError::Taken)
    );
    drop(loser);
    assert!(bench.pairings.is_connected(TOKEN));
    let twice = bench.pairings.produce(Token(4), &bench.producer).err();
    assert_eq!(twice, Some(RegisterError::RegisteredTwice));
    let empty = Noting::new(&bench.notes, [""; 4]);
    let refused = bench.pairings.produce(Token(0), &empty).err();
    assert_eq!(refused, Some(RegisterError::EmptyKey));
    assert!(bench.pairings.is_connected(TOKEN));
}

#[test]
fn without_memory_for_the_registry_nothing_is_registered() {
    let bench = Bench::new();
    bench.pairings.starve(true);
    let refused = bench.pairings.produce(TOKEN, &bench.producer).err();
    assert_eq!(refused, Some(RegisterError::NoMemory));
    assert!(!bench.producer.is_registered());
    bench.pairings.starve(false);
    assert!(bench.pairings.produce(TOKEN, &bench.producer).is_ok());
}

#[test]
fn an_end_without_an_intake_does_not_fit_a_feed() {
    let bench = Bench::new();
    let feed = Arc::new(Endpoint::new(Sender::new()));
    let _consumed = bench
        .pairings
        .consume(TOKEN, &bench.consumer)
        .expect("free");
    let refused = bench.pairings.produce(TOKEN, &feed).err();
    assert_eq!(refused, Some(RegisterError::Connect(Refused::Unfit)));
    assert!(!feed.is_registered() && !feed.send(Item::Signal(1)));
}

/// The end of a pair waits for a call that another thread makes, so that what the function uses can
/// go afterwards.
#[test]
fn ending_a_pair_waits_for_a_call_under_way() {
    let pairings = Pairings::new(100);
    let feed = Arc::new(Endpoint::new(Sender::new()));
    let (entered, is_in) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let callback = Callback::new(move |_| {
        entered.send(()).expect("the test listens");
        let waited = may_leave.lock().expect("whole").recv_timeout(patience());
        waited.expect("in time");
        over.store(true, Ordering::Release);
    });
    let consumed = pairings
        .consume(TOKEN, &Arc::new(Endpoint::new(callback)))
        .expect("free");
    let _produced = pairings.produce(TOKEN, &feed).expect("free");
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(feed.send(Item::Signal(1))));
        is_in.recv_timeout(patience()).expect("the call begins");
        let ender = scope.spawn(|| {
            drop(consumed);
            assert!(is_over.load(Ordering::Acquire), "the call had not ended");
        });
        // Long enough for an end that does not wait to be over before the call.
        std::thread::sleep(Duration::from_millis(20));
        leave.send(()).expect("the call listens");
        ender.join().expect("the end waits for the call");
    });
    assert!(!feed.send(Item::Signal(1)));
}

#[test]
fn a_callback_may_feed_its_own_producer() {
    let pairings = Pairings::new(100);
    let feed = Arc::new(Endpoint::new(Sender::new()));
    let (again, sum) = (Arc::downgrade(&feed), Arc::new(AtomicU64::new(0)));
    let total = Arc::clone(&sum);
    let callback = Callback::new(move |item| {
        let Item::Signal(count) = item else { return };
        total.fetch_add(count, Ordering::Relaxed);
        if count > 1
            && let Some(feed) = again.upgrade()
        {
            feed.send(Item::Signal(count - 1));
        }
    });
    let _consumed = pairings.consume(TOKEN, &Arc::new(Endpoint::new(callback)));
    let _produced = pairings.produce(TOKEN, &feed).expect("free");
    assert!(feed.send(Item::Signal(4)));
    assert_eq!(sum.load(Ordering::Relaxed), 4 + 3 + 2 + 1);
}

fn start(choice: DriverChoice) -> Running {
    let server = Server::new().driver(choice).network_threads(2);
    let running = server.listen("127.0.0.1:0", Echo).start();
    running.expect("started")
}

fn source(running: &Running) -> Arc<Endpoint<EventSource>> {
    let eventfd = Eventfd::new().expect("a descriptor");
    Arc::new(Endpoint::new(EventSource::new(&running.handle(), eventfd)))
}

fn counting(count: &Arc<AtomicU64>) -> Arc<Endpoint<Callback>> {
    let count = Arc::clone(count);
    Arc::new(Endpoint::new(Callback::new(move |item| {
        if let Item::Signal(signals) = item {
            count.fetch_add(signals, Ordering::Relaxed);
        }
    })))
}

#[test]
fn signals_survive_pairs_that_come_and_go() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let running = start(choice);
        let pairings = Pairings::new(100);
        let source = source(&running);
        let eventfd = Arc::clone(source.eventfd());
        let count = Arc::new(AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    eventfd.write(1).expect("room");
                    written += 1;
                    std::thread::sleep(Duration::from_micros(50));
                }
                written
            });
            for _ in 0..200 {
                let consumed = pairings.consume(TOKEN, &counting(&count)).expect("free");
                let produced = pairings.produce(TOKEN, &source).expect("free");
                std::thread::yield_now();
                drop((consumed, produced));
            }
            stop.store(true, Ordering::Relaxed);
            let written = writer.join().expect("written");
            let _consumed = pairings.consume(TOKEN, &counting(&count)).expect("free");
            let _produced = pairings.produce(TOKEN, &source).expect("free");
            until_true("every signal", || count.load(Ordering::Relaxed) == written);
        });
        running.handle().force();
        running.wait().expect("a clean end");
    }
}

#[test]
fn a_consumer_that_panics_ends_neither_the_thread_nor_the_pair() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let running = start(choice);
        let pairings = Pairings::new(100);
        let source = source(&running);
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        let callback = Callback::new(move |_| {
            assert!(
                count.fetch_add(1, Ordering::Relaxed) > 0,
                "as the test wants"
            );
        });
        let _consumed = pairings.consume(TOKEN, &Arc::new(Endpoint::new(callback)));
        let _produced = pairings.produce(TOKEN, &source).expect("free");
        for calls in 1..=3 {
            source.eventfd().write(1).expect("room");
            until_true("a call", || seen.load(Ordering::Relaxed) == calls);
        }
        assert_eq!(running.handle().figures().threads[0].signal_panics, 1);
        running.handle().force();
        running.wait().expect("a clean end");
    }
}

#[test]
fn a_source_of_a_server_that_has_ended_is_refused_and_not_registered() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let running = start(choice);
        let pairings = Pairings::new(100);
        let (early, late) = (source(&running), source(&running));
        let count = Arc::new(AtomicU64::new(0));
        let _consumed = pairings.consume(TOKEN, &counting(&count)).expect("free");
        let produced = pairings.produce(TOKEN, &early).expect("free");
        running.handle().drain();
        running.wait().expect("a clean end");
        let _other = pairings.consume(Token(4), &counting(&count)).expect("free");
        let refused = pairings.produce(Token(4), &late).err();
        assert_eq!(refused, Some(RegisterError::Connect(Refused::ShutDown)));
        assert!(!late.is_registered() && !pairings.is_connected(Token(4)));
        // The pair of before is still one, until it is ended.
        assert!(pairings.is_connected(TOKEN));
        drop(produced);
        early.eventfd().write(1).expect("room");
        assert_eq!(early.eventfd().take().expect("left"), 1);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
