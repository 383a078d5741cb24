//! How many workers there are, by what handlers do, with the default limits. On both drivers.

use std::io::{PipeReader, Read, Write, pipe};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::gate::{Gate, Opener, client, patience};
use crate::lines::on_both;
use flatpath_testkit::deadline::is_slow;

use flatpath::{
    Context, DriverChoice, Job, Phase, Protocol, Received, Running, Server, Stall, WorkerScope,
};

/// As many as wait for each other, or sleep.
const MANY: usize = 100;

/// Handlers that run at the same time.
#[derive(Default)]
struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtOnce {
    fn during(&self, act: impl FnOnce()) {
        // ORDER: Relaxed: counts; nothing follows from them.
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        act();
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    fn await_now(&self, count: usize) {
        let deadline = Instant::now() + patience();
        while self.now.load(Ordering::Relaxed) < count {
            let now = self.now.load(Ordering::Relaxed);
            assert!(Instant::now() < deadline, "{now} handlers run, not {count}");
            std::thread::yield_now();
        }
    }
}

/// One reply, `d`, for each byte.
///
/// | byte | handler                                       |
/// |------|-----------------------------------------------|
/// | `w`  | waits at the gate, for other threads          |
/// | `s`  | sleeps in the kernel until the pipe is closed |
/// | `c`  | computes for some microseconds                |
/// | `l`  | the same, for longer                          |
/// | `r`  | computes until it is over                     |
struct Kinds {
    gate: Gate,
    pipe: PipeReader,
    is_over: Arc<AtomicBool>,
    at_once: Arc<AtOnce>,
}

impl Protocol for Kinds {
    type ThreadState = ();
    type Session = ();
    type Job = u8;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        // Without a deadline.
        context.phase(Phase::Work);
        for (consumed, byte) in input.iter().enumerate() {
            let Some(mut job) = context.job() else {
                return Received::Blocked {
                    consumed,
                    on: Stall::Jobs,
                };
            };
            *job = *byte;
            context.dispatch(job);
        }
        Received::Consumed
    }

    fn run(&self, byte: &mut u8, _: &mut WorkerScope<'_>) {
        self.at_once.during(|| match byte {
            b'w' => self.gate.wait(),
            b's' => assert_eq!((&self.pipe).read(&mut [0]).ok(), Some(0)),
            b'r' => while !self.is_over.load(Ordering::Relaxed) {},
            b'l' => (0..50).for_each(|_| compute()),
            _ => compute(),
        });
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write(b"d").expect("room");
        context.recycle(job);
    }
}

fn compute() {
    let mut sum = 0_u64;
    let rounds = if is_slow() { 2_000 } else { 20_000 };
    for number in 0..rounds {
        sum = std::hint::black_box(sum.wrapping_mul(31) + number);
    }
}

struct Site {
    running: Running,
    gate: Gate,
    writer: Option<std::io::PipeWriter>,
    is_over: Arc<AtomicBool>,
    at_once: Arc<AtOnce>,
    client: TcpStream,
    asked: usize,
}

impl Site {
    fn new(choice: DriverChoice) -> Site {
        let (reader, writer) = pipe().expect("a pipe");
        let (gate, is_over, at_once) = (Gate::default(), Arc::default(), Arc::default());
        let protocol = Kinds {
            gate: gate.clone(),
            pipe: reader,
            is_over: Arc::clone(&is_over),
            at_once: Arc::clone(&at_once),
        };
        let server = Server::new().driver(choice).listen("127.0.0.1:0", protocol);
        let running = server.start().expect("started");
        let client = client(running.addresses()[0].address);
        Site {
            running,
            gate,
            writer: Some(writer),
            is_over,
            at_once,
            client,
            asked: 0,
        }
    }

    fn ask(&mut self, kind: u8, count: usize) {
        self.asked += count;
        self.client.write_all(&vec![kind; count]).expect("written");
    }

    /// Lets all handlers return, and reads their replies.
    fn end(mut self) {
        self.gate.open();
        drop(self.writer.take());
        // ORDER: Relaxed: it is looked at until it is seen.
        self.is_over.store(true, Ordering::Relaxed);
        let mut replies = vec![0; self.asked];
        self.client.read_exact(&mut replies).expect("all replies");
        self.running.handle().drain();
        // A hundred workers may need more time to leave than a server gives them.
        let _ = self.running.wait();
    }
}

#[test]
fn handlers_that_wait_for_each_other_all_get_workers() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        let opener = Opener(site.gate.clone());
        site.ask(b'w', MANY);
        site.gate.await_waiting(MANY);
        drop(opener);
        site.end();
    });
}

/// What computes might have the lock that the others wait for.
#[test]
fn handlers_that_wait_for_each_other_beside_one_that_computes_all_get_workers() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        let opener = Opener(site.gate.clone());
        site.ask(b'r', 1);
        site.at_once.await_now(1);
        site.ask(b'w', MANY);
        site.gate.await_waiting(MANY);
        drop(opener);
        site.end();
    });
}

/// Otherwise a few that compute for long would stop all others.
#[test]
fn a_request_is_answered_while_others_compute_without_an_end() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        let busy = processors().max(2);
        site.ask(b'r', busy);
        site.at_once.await_now(busy);
        site.ask(b'c', 1);
        let mut reply = [0];
        site.client.read_exact(&mut reply).expect("a reply");
        site.asked -= 1;
        site.end();
    });
}

#[test]
fn handlers_that_sleep_all_get_workers() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        site.ask(b's', MANY);
        site.at_once.await_now(MANY);
        site.end();
    });
}

#[test]
fn handlers_that_compute_are_no_more_at_once_than_processors() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        compute_through(&mut site);
        site.end();
    });
}

#[test]
fn what_sleeping_handlers_had_of_workers_computing_ones_do_not_keep() {
    on_both(|choice| {
        let mut site = Site::new(choice);
        site.ask(b's', MANY);
        site.at_once.await_now(MANY);
        drop(site.writer.take());
        let mut replies = [0; MANY];
        site.client.read_exact(&mut replies).expect("all replies");
        site.asked -= MANY;
        // They take over what is there for a moment.
        let deadline = Instant::now() + patience();
        loop {
            // ORDER: Relaxed: no handler runs.
            site.at_once.most.store(0, Ordering::Relaxed);
            site.ask(b'l', 200);
            let mut replies = [0; 200];
            site.client.read_exact(&mut replies).expect("all replies");
            site.asked -= 200;
            let most = site.at_once.most.load(Ordering::Relaxed);
            if most <= at_once_max() {
                break;
            }
            assert!(Instant::now() < deadline, "{most} at once");
        }
        site.end();
    });
}

/// Many times as long as it takes to start all workers for handlers that sleep.
fn compute_through(site: &mut Site) {
    const AT_A_TIME: usize = 500;
    let jobs = if is_slow() { 5_000 } else { 20_000 };
    site.ask(b'c', AT_A_TIME);
    let mut replies = [0; 100];
    for asked in (AT_A_TIME..).step_by(replies.len()) {
        site.client.read_exact(&mut replies).expect("replies");
        site.asked -= replies.len();
        if asked == jobs {
            break;
        }
        site.ask(b'c', replies.len());
    }
    let most = site.at_once.most.load(Ordering::Relaxed);
    assert!(most <= at_once_max(), "{most} handlers computed at once");
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is runnable and not seen to be so for a moment counts for one more now and then.
fn at_once_max() -> usize {
    processors().max(2) * 2 + 8
}
