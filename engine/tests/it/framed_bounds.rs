//! What framed protocols are bound by, and owe: greetings and bodies that found no room, messages
//! at work, what is left at the end. In the simulation, and on both drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::lines::choices;
use flatpath::framing::{Framed, Handler, Input, Lines, Next, Place, Reply};
use flatpath::memory::Payload;
use flatpath::{Io, NoRoom, Server};
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_testkit::{Deadline, patience};

use crate::framed_work::talk;

/// What is said to a client that has just come.
const GREETING: &str = "welcome\n";

/// Greets, answers a line with much and asks for an empty body, and answers that. What it writes
/// finds room at every third call only.
#[derive(Default)]
struct Halting(AtomicU32);

const MUCH: usize = 300_000;

impl Halting {
    fn halts(&self) -> Result<Next, NoRoom> {
        match self.0.fetch_add(1, SeqCst) % 3 {
            2 => Ok(Next::Message),
            _ => Err(NoRoom),
        }
    }
}

impl Handler for Halting {
    type Session = ();
    type Work = ();

    fn connected(&self, (): &mut (), io: &mut Io<'_>) -> Result<Next, NoRoom> {
        io.write(GREETING.as_bytes())?;
        self.halts()
    }

    fn message(&self, (): &mut (), io: &mut Io<'_>, _: &[u8]) -> Result<Next, NoRoom> {
        io.write_static(&[b'x'; MUCH]);
        self.halts().map(|_| Next::Body(0))
    }

    fn body(&self, (): &mut (), io: &mut Io<'_>, _: &Payload) -> Result<Next, NoRoom> {
        io.write(b"body\n")?;
        self.halts()
    }
}

#[test]
fn sim_a_greeting_and_an_empty_body_come_once_without_any_more_input() {
    each_seed(50, |seed| {
        let halting = Framed::new("halting", Lines::new(10), Halting::default());
        let mut server = TestServer::new(Conditions::rough(seed), halting);
        server.world().set_window_bytes(10_000);
        let client = server.connect();
        assert_eq!(server.read_line(&client), GREETING);
        client.write(b"line\n");
        server.settle();
        let owed = format!("{}body\n", "x".repeat(MUCH));
        assert!(server.read_exact(&client, owed.len()) == owed.as_bytes());
        server.settle();
        assert_eq!(client.read(), b"");
        // One that has nothing to say is greeted as well.
        let silent = server.connect();
        silent.shutdown_write();
        assert_eq!(server.read_to_end(&silent), GREETING.as_bytes());
    });
}

/// Each work has a reference to the same.
struct Counted(Arc<()>);

impl Handler for Counted {
    type Session = ();
    type Work = Arc<()>;

    fn place(&self, (): &(), _: &[u8]) -> Place<Arc<()>> {
        Place::Worker(Arc::clone(&self.0))
    }

    fn message(&self, (): &mut (), _: &mut Io<'_>, _: &[u8]) -> Result<Next, NoRoom> {
        unreachable!("all are for workers")
    }

    fn work(&self, _: &mut Arc<()>, input: &mut Input, reply: &mut Reply) -> Next {
        reply.write(input.message());
        match input.message() {
            b"end" => Next::Close,
            _ => Next::Message,
        }
    }
}

#[test]
fn sim_what_workers_bring_after_the_end_is_not_kept_by_a_client_that_stays() {
    each_seed(50, |seed| {
        let all = Arc::new(());
        let counted = Framed::new("counted", Lines::new(10), Counted(Arc::clone(&all)));
        let mut conditions = Conditions::rough(seed);
        conditions.limits.linger_timeout = Duration::from_secs(1000);
        let mut server = TestServer::new(conditions, counted.at_work_max(8));
        let client = server.connect();
        client.write(b"end\nmore\nmore\n");
        assert_eq!(server.read_exact(&client, 3), b"end");
        server.settle();
        // That of the test, and the handler's.
        assert_eq!(Arc::strong_count(&all), 2);
        assert_eq!(server.read_to_end(&client), b"");
    });
}

/// Calls that run at a time, and the most that did.
#[derive(Default)]
struct Running {
    now: AtomicU32,
    most: AtomicU32,
}

#[test]
fn both_drivers_run_as_many_messages_of_a_connection_as_may_and_no_more() {
    const AT_WORK_MAX: u32 = 3;
    for choice in choices() {
        let running = Running::default();
        // Each waits for the others that may run beside it, so that all of them have to.
        let answer = move |line: &[u8], reply: &mut Reply| {
            let now = running.now.fetch_add(1, SeqCst) + 1;
            running.most.fetch_max(now, SeqCst);
            let deadline = Deadline::default();
            while running.most.load(SeqCst) < AT_WORK_MAX {
                deadline.check("as many as may run");
                std::thread::sleep(Duration::from_millis(1));
            }
            reply.write(line);
            reply.write(format!(" {}\n", running.most.load(SeqCst) > AT_WORK_MAX).as_bytes());
            running.now.fetch_sub(1, SeqCst);
            Next::Message
        };
        let served = Framed::pooled("beside", Lines::new(100), answer).at_work_max(AT_WORK_MAX);
        let server = Server::new().driver(choice).listen("127.0.0.1:0", served);
        let server = server.start().expect("it starts");
        let said: String = (0..20).map(|number| format!("{number}\n")).collect();
        let owed: String = (0..20).map(|number| format!("{number} false\n")).collect();
        let heard = talk(server.addresses()[0].address, said.as_bytes());
        assert_eq!(heard, owed, "{choice:?}");
        server.handle().drain();
        server.wait().expect("it ends");
    }
}

/// `slow` is answered once the client has heard `end`, which came after it.
#[test]
fn both_drivers_send_replies_as_they_are_ready_and_end_after_the_last() {
    for choice in choices() {
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let answer = move |line: &[u8], reply: &mut Reply| {
            reply.write(line);
            reply.write(b"\n");
            if line == b"end" {
                return Next::Close;
            }
            let gate = gate.lock().expect("no panic");
            let opened = gate.recv_timeout(patience());
            opened.expect("the client has heard the end");
            Next::Message
        };
        let served = Framed::pooled("gated", Lines::new(10), answer).at_work_max(2);
        let server = Server::new().driver(choice);
        let server = server
            .listen("127.0.0.1:0", served.replies_as_ready())
            .start();
        let server = server.expect("it starts");
        let address = server.addresses()[0].address;
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(patience())).expect("settable");
        stream.write_all(b"slow\nend\nnever\n").expect("write");
        let mut end = [0; 4];
        stream.read_exact(&mut end).expect("the second reply");
        assert_eq!(end, *b"end\n", "{choice:?}");
        open.send(()).expect("the server runs");
        let mut heard = String::new();
        stream.read_to_string(&mut heard).expect("the rest");
        assert_eq!(heard, "slow\n", "{choice:?}");
        // The connection lingers for as long as its client is there.
        drop(stream);
        server.handle().drain();
        server.wait().expect("it ends");
    }
}
