//! Code of a program that a network thread meets outside of a call to its protocol: closures that
//! are never called, states that cannot be made, a log that panics, and drops that block. None of
//! it ends or stops a network thread.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::lines::{cut, on_both};
use flatpath::access_log::{LogFormat, LogOutput, LogSink};
use flatpath::{
    Bytes, Context, DriverChoice, Error, Limits, PerThread, Protocol, Received, Running, Server,
    Stall, Successor, WorkerScope, discard, guarded, on_network_thread,
};

use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::{patience, stretched, until_true};

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new(1_u8));
    }
}

/// `h` hands over and, if it is to, aborts in the same call; anything else is answered with `x`.
struct Speaker {
    to: Successor<Other>,
    aborts: bool,
}

/// The process that takes over.
struct Other {
    state_panics: bool,
}

struct OtherState;

impl PerThread<Other> for OtherState {
    fn new(other: &Other) -> OtherState {
        if other.state_panics {
            resume_unwind(Box::new(2_u8));
        }
        OtherState
    }
}

impl Protocol for Other {
    type ThreadState = OtherState;
    type Session = ();
    type Job = ();

    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::Consumed
    }
}

impl Protocol for Speaker {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input.contains(&b'h') {
            let bomb = Bomb;
            let wish = self.to.begin(move || std::mem::forget(bomb));
            let _ = context.hand_over(wish).map_err(std::mem::forget);
            if self.aborts {
                context.abort();
            }
        } else {
            context.write(b"x").expect("there is room");
        }
        Received::Consumed
    }
}

/// Sends a word on a connection of its own: the beginning of what comes back.
pub(crate) fn ask(address: SocketAddr, word: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(patience()))?;
    client.write_all(word)?;
    let mut answer = vec![0; 16];
    let count = client.read(&mut answer)?;
    answer.truncate(count);
    Ok(answer)
}

fn address_of(running: &Running) -> SocketAddr {
    running.addresses()[0].address
}

fn survives(choice: DriverChoice, aborts: bool, state_panics: bool) {
    let to = Successor::new(Other { state_panics });
    let server = Server::new().driver(choice);
    let server = server.listen("127.0.0.1:0", Speaker { to, aborts });
    let running = server.start().expect("started");
    let address = address_of(&running);
    assert_eq!(ask(address, b"a").expect("a reply"), b"x");
    let _ = ask(address, b"h");
    assert_eq!(ask(address, b"a").ok(), Some(b"x".to_vec()));
    cut(running);
}

#[test]
fn a_hand_over_that_is_aborted_may_panic_in_its_drop() {
    on_both(|choice| survives(choice, true, false));
}

#[test]
fn a_successor_may_panic_when_its_state_is_made() {
    on_both(|choice| survives(choice, false, true));
}

/// Panics once in each place.
#[derive(Default)]
struct LoudLog {
    dropped: AtomicUsize,
}

struct LoudSink(Arc<LoudLog>);

struct LoudOutput {
    log: Arc<LoudLog>,
    panics: bool,
}

impl LogSink for LoudSink {
    fn open(&self) -> Box<dyn LogOutput> {
        Box::new(LoudOutput {
            log: Arc::clone(&self.0),
            panics: true,
        })
    }

    fn dropped(&self, lines: u64) {
        self.0.dropped.fetch_add(lines as usize, Ordering::Relaxed);
        resume_unwind(Box::new(4_u8));
    }
}

impl LogOutput for LoudOutput {
    fn write(&mut self, lines: &mut Vec<u8>) {
        if std::mem::take(&mut self.panics) {
            resume_unwind(Box::new(3_u8));
        }
        lines.clear();
    }
}

impl Drop for LoudOutput {
    fn drop(&mut self) {
        self.log.dropped.fetch_add(100, Ordering::Relaxed);
        resume_unwind(Box::new(5_u8));
    }
}

fn log_panics(choice: DriverChoice) {
    let log = Arc::new(LoudLog::default());
    let to = Successor::new(Other {
        state_panics: false,
    });
    let sink = Arc::new(LoudSink(Arc::clone(&log)));
    let server = Server::new().driver(choice).network_threads(1);
    let server = server.access_log(LogFormat::Combined, sink);
    let server = server.listen("127.0.0.1:0", Speaker { to, aborts: false });
    let running = server.start().expect("started");
    let address = address_of(&running);
    for _ in 0..3 {
        assert_eq!(ask(address, b"a").expect("a reply"), b"x");
    }
    cut(running);
    until_true("lines that may be lost are counted", || {
        log.dropped.load(Ordering::Relaxed) > 100
    });
}

#[test]
fn a_log_may_panic_wherever_it_is_called_or_dropped() {
    on_both(log_panics);
}

/// What drops wait for, and what they have seen.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    began: AtomicUsize,
    ended: AtomicUsize,
    on_network_thread: AtomicBool,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().expect("sound") = true;
        self.opened.notify_all();
    }

    fn await_begun(&self, count: usize) {
        let deadline = Instant::now() + patience();
        while self.began.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "no worker drops it");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Blocks in its drop until the gate is open.
struct Slow(Arc<Gate>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.began.fetch_add(1, Ordering::Relaxed);
        let is_network = on_network_thread();
        self.0
            .on_network_thread
            .fetch_or(is_network, Ordering::Relaxed);
        let open = self.0.is_open.lock().expect("sound");
        let wait = self
            .0
            .opened
            .wait_timeout_while(open, patience(), |open| !*open);
        drop(wait.expect("sound"));
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

struct Owner(Vec<u8>, #[expect(dead_code, reason = "for its drop")] Slow);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `d` discards something slow, `b` sends bytes of a slow owner, `w` asks a worker, `x` is `x`.
struct Discarding(Arc<Gate>);

const BODY_BYTES: usize = 20_000;

impl Protocol for Discarding {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for (place, word) in input.iter().enumerate() {
            match word {
                b'd' => {
                    discard(Slow(Arc::clone(&self.0)));
                    context.write(b"d").expect("there is room");
                }
                b'b' => {
                    let owner = Owner(vec![b'b'; BODY_BYTES], Slow(Arc::clone(&self.0)));
                    let bytes = guarded(Bytes::from_owner(owner));
                    context.write_shared(bytes).expect("there is room");
                }
                b'w' => {
                    let Some(job) = context.job() else {
                        return Received::Blocked {
                            consumed: place,
                            on: Stall::Jobs,
                        };
                    };
                    context.dispatch(job);
                }
                _ => context.write(b"x").expect("there is room"),
            }
        }
        Received::Consumed
    }

    fn run(&self, _: &mut (), _: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, job: flatpath::Job<Self>) {
        context.write(b"w").expect("there is room");
        context.recycle(job);
    }
}

fn discarding(choice: DriverChoice, limits: Limits, workers: u32) -> (Running, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let server = Server::new().driver(choice).network_threads(1);
    let server = server.workers(workers..=workers).limits(limits);
    let server = server.listen("127.0.0.1:0", Discarding(Arc::clone(&gate)));
    (server.start().expect("started"), gate)
}

fn drops_stop_no_one(choice: DriverChoice) {
    let (running, gate) = discarding(choice, Limits::default(), 4);
    let address = address_of(&running);
    assert_eq!(ask(address, b"d").expect("a reply"), b"d");
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client.write_all(b"b").expect("sent");
    client.read_exact(&mut [0; BODY_BYTES]).expect("the body");
    gate.await_begun(2);
    // Two of four workers are in a drop that blocks, and another value waits.
    assert_eq!(ask(address, b"d").expect("a reply"), b"d");
    assert_eq!(
        ask(address, b"x").expect("a reply"),
        b"x",
        "the network thread"
    );
    assert_eq!(
        ask(address, b"w").expect("a reply"),
        b"w",
        "the other workers"
    );
    assert_eq!(gate.began.load(Ordering::Relaxed), 2, "half of the workers");
    assert!(!gate.on_network_thread.load(Ordering::Relaxed));
    let opener = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || {
            std::thread::sleep(Duration::from_millis(200));
            gate.open();
        }
    });
    running.handle().drain();
    running.wait().expect("the drain waits for the drops");
    assert_eq!(gate.ended.load(Ordering::Relaxed), 3);
    opener.join().expect("no panic");
}

#[test]
fn a_drop_that_blocks_stops_neither_network_thread_nor_requests_and_a_drain_waits_for_it() {
    on_both(drops_stop_no_one);
}

fn is_reported(choice: DriverChoice) {
    let limits = Limits {
        drain_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let (running, gate) = discarding(choice, limits, 2);
    assert_eq!(ask(address_of(&running), b"dd").expect("a reply"), b"dd");
    gate.await_begun(1);
    running.handle().drain();
    let Err(Error::LeftBehind { left, .. }) = running.wait() else {
        panic!("a drop that never returns is reported");
    };
    let named = left.iter().map(ToString::to_string);
    let drops = named.filter(|it| it.contains("in a drop of the program's"));
    assert_eq!(drops.count(), 1, "{left:?}");
    // Threads have less than a second to leave, which does not stretch with the deadlines of tests.
    assert!(left.len() == 1 || is_slow(), "{left:?}");
    gate.open();
}

#[test]
fn a_drop_that_outlasts_the_drain_is_reported() {
    on_both(is_reported);
}

/// More values than a bin of so few places has room for.
const FULL: usize = 1_100;

fn bin_is_bounded(choice: DriverChoice) {
    let limits = Limits {
        in_flight_max: 4,
        stall_timeout: stretched(Duration::from_millis(300)),
        // A forced end waits for a moment only, and all these drops may take longer.
        drain_timeout: patience(),
        ..Limits::default()
    };
    let (running, gate) = discarding(choice, limits, 2);
    let address = address_of(&running);
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client.write_all(&[b'd'; FULL]).expect("sent");
    client.read_exact(&mut [0; FULL]).expect("a reply to each");
    gate.await_begun(1);
    let refused = ask(address, b"w").map_or(0, |reply| reply.len());
    assert_eq!(refused, 0, "a full bin admits no job");
    assert_eq!(ask(address, b"x").expect("a reply"), b"x");
    gate.open();
    assert_eq!(
        ask(address, b"w").expect("a reply"),
        b"w",
        "there is room again"
    );
    running.handle().drain();
    running.wait().expect("all is dropped");
    assert_eq!(gate.ended.load(Ordering::Relaxed), FULL);
}

#[test]
fn a_full_bin_lets_requests_wait_and_refuses_them() {
    on_both(bin_is_bounded);
}
