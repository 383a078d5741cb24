//! A panic of a protocol, wherever it comes from, costs the connection it happened on and nothing
//! else: every place where a protocol's code or the drops of its types run, on both drivers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::time::Duration;

use crate::discards::ask;
use crate::lines::on_both;
use flatpath::access_log::LogEnd;
use flatpath::{
    Bytes, Context, DriverChoice, Job, Limits, Protocol, Received, Server, Stall, ThreadEvent,
    WorkerScope,
};

use flatpath_testkit::patience;

/// Where the command `!` makes the protocol panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    SessionDefault,
    SessionDrop,
    Closed,
    TurnEnded,
    Inline,
    Worker,
    Retire,
    OwnerOfABody,
}

const ALL: [Where; 8] = [
    Where::SessionDefault,
    Where::SessionDrop,
    Where::Closed,
    Where::TurnEnded,
    Where::Inline,
    Where::Worker,
    Where::Retire,
    Where::OwnerOfABody,
];

/// A payload whose drop panics, with another one of its kind as the payload, twice.
struct Loud(u32);

impl Drop for Loud {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Loud(self.0 - 1)));
        }
    }
}

fn explode() -> ! {
    resume_unwind(Box::new(Loud(2)))
}

/// Answers `x` to `a`, `d` to `w` after a worker had it, and panics after `!`.
struct Fragile(Where);

/// Panics when it is dropped, if it is armed.
#[derive(Default)]
struct Fuse(bool);

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.0 {
            explode();
        }
    }
}

struct Session {
    fuse: Fuse,
    closes_badly: bool,
}

thread_local! {
    /// The next session cannot be made.
    static REFUSES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Default for Session {
    fn default() -> Session {
        if REFUSES.take() {
            explode();
        }
        Session {
            fuse: Fuse(false),
            closes_badly: false,
        }
    }
}

#[derive(Default)]
struct Work {
    explodes: bool,
    fuse: Fuse,
}

/// Shared bytes whose owner panics when they are sent.
struct Owner(Vec<u8>, #[allow(dead_code, reason = "for its drop")] Fuse);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Long enough not to be copied.
const BODY_BYTES: usize = 100_000;

impl Fragile {
    fn provoke(&self, context: &mut Context<'_, Self>) -> bool {
        match self.0 {
            Where::SessionDefault => {
                REFUSES.set(true);
                context.abort();
            }
            Where::SessionDrop => {
                context.session.fuse.0 = true;
                context.abort();
            }
            Where::Closed => {
                context.session.closes_badly = true;
                context.abort();
            }
            Where::TurnEnded => {
                *context.thread = true;
                context.abort();
            }
            Where::Inline => explode(),
            Where::Worker => return self.send(context, true, false),
            Where::Retire => {
                if !self.send(context, false, true) {
                    return false;
                }
                context.abort();
            }
            Where::OwnerOfABody => {
                let owner = Owner(vec![b'b'; BODY_BYTES], Fuse(true));
                let queued = context.write_shared(Bytes::from_owner(owner));
                queued.expect("long bytes need no room");
                context.close_after_output();
            }
        }
        true
    }

    /// False: no room, so the request is to be offered again.
    fn send(&self, context: &mut Context<'_, Self>, explodes: bool, retires_badly: bool) -> bool {
        let Some(mut job) = context.job() else {
            return false;
        };
        job.explodes = explodes;
        job.fuse.0 = retires_badly;
        context.dispatch(job);
        true
    }
}

impl Protocol for Fragile {
    type ThreadState = bool;
    type Session = Session;
    type Job = Work;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let is_taken = match input.first() {
            Some(b'!') => self.provoke(context),
            Some(b'w') => self.send(context, false, false),
            Some(_) => context.write(b"x").is_ok(),
            None => true,
        };
        if is_taken {
            return Received::Consumed;
        }
        Received::Blocked {
            consumed: 0,
            on: Stall::Jobs,
        }
    }

    fn run(&self, job: &mut Work, _: &mut WorkerScope<'_>) {
        if job.explodes {
            explode();
        }
        if job.fuse.0 {
            // The connection is gone before it comes back.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn panicked(&self, _: &mut Work) {
        explode();
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context
            .write(if job.explodes { b"p" } else { b"d" })
            .expect("room");
        context.recycle(job);
    }

    fn retire(&self, _: &mut bool, _: &mut Work) {
        // What it holds is dropped with it, and panics as well.
        explode();
    }

    fn closed(&self, _: &mut bool, session: &mut Session, _: Option<LogEnd<'_>>) {
        if session.closes_badly {
            session.fuse.0 = true;
            explode();
        }
    }

    fn thread_event(&self, ends_badly: &mut bool, event: ThreadEvent<'_>) {
        if matches!(event, ThreadEvent::TurnEnded) && std::mem::take(ends_badly) {
            explode();
        }
    }
}

/// Asks on a connection of its own, more than once where the first session may not be made.
fn ask_often(address: SocketAddr, word: &[u8]) -> Vec<u8> {
    for _ in 0..3 {
        if let Ok(answer) = ask(address, word)
            && !answer.is_empty()
        {
            return answer;
        }
    }
    panic!("no answer to {word:?}");
}

fn survives(choice: DriverChoice, place: Where) {
    let limits = Limits {
        in_flight_max: 2,
        ..Limits::default()
    };
    let server = Server::new().driver(choice).workers(1..=2).limits(limits);
    let server = server.listen("127.0.0.1:0", Fragile(place));
    let running = server.start().expect("started");
    let address = running.addresses()[0].address;
    let mut kept = TcpStream::connect(address).expect("connected");
    kept.set_read_timeout(Some(patience())).expect("set");
    let mut answer = [0];
    // More often than there are workers and places for jobs.
    for round in 0..5 {
        let provoked = ask(address, b"!");
        let expected: &[u8] = if place == Where::Worker { b"p" } else { b"" };
        if place != Where::OwnerOfABody {
            let provoked = provoked.unwrap_or_default();
            assert_eq!(provoked, expected, "{place:?}, round {round}");
        }
        assert_eq!(ask_often(address, b"a"), b"x", "{place:?}, round {round}");
        assert_eq!(ask_often(address, b"w"), b"d", "{place:?}, round {round}");
        kept.write_all(b"a").expect("written");
        kept.read_exact(&mut answer).expect("an answer");
    }
    assert!(running.handle().workers() > 0);
    drop(kept);
    running.handle().drain();
    running.wait().expect("a clean end");
}

#[test]
fn a_panic_costs_its_connection_wherever_it_comes_from() {
    on_both(|choice| {
        for place in ALL {
            survives(choice, place);
        }
    });
}

#[test]
fn a_refusal_while_jobs_retire_badly_refuses_all_the_same() {
    on_both(|choice| {
        let limits = Limits {
            in_flight_max: 1,
            stall_timeout: Duration::from_millis(1),
            linger_timeout: Duration::from_millis(10),
            ..Limits::default()
        };
        let server = Server::new().driver(choice).limits(limits);
        let running = server
            .listen("127.0.0.1:0", Fragile(Where::Retire))
            .start()
            .expect("started");
        let address = running.addresses()[0].address;
        // Its job holds the only place for a while after the connection is gone.
        for _ in 0..3 {
            assert_eq!(ask(address, b"!").unwrap_or_default(), b"");
            let _ = ask(address, b"w");
            assert_eq!(ask(address, b"a").expect("an answer"), b"x");
        }
        running.handle().drain();
        running.wait().expect("a clean end");
    });
}

/// Many sessions and jobs that panic when they are dropped are left when a forced end comes.
#[test]
fn what_a_forced_end_drops_may_panic_as_often_as_it_likes() {
    on_both(|choice| {
        let server = Server::new().driver(choice).workers(1..=1);
        let running = server
            .listen("127.0.0.1:0", Fragile(Where::Retire))
            .start()
            .expect("started");
        let address = running.addresses()[0].address;
        for _ in 0..4 {
            let _ = ask(address, b"!");
        }
        assert_eq!(ask(address, b"a").expect("an answer"), b"x");
        running.handle().force();
        // A worker may be left behind in the middle of a job.
        let _ = running.wait();
    });
}
