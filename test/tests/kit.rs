//! The kit itself: what it waits for comes, and it fails a test where it has to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use flatpath::framing::{LengthPrefix, Lines};
use flatpath::memory::Buffer;
use flatpath::{Context, Event, Job, Protocol, Received, Stall, WorkerScope};
use flatpath_test::{ClientState, Conditions, Fault, Faults, Requests, TestServer, each_seed};

/// What the protocol below keeps although it should not.
static KEPT: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Echoes, with a worker in between; keeps a buffer when it hears `keep`.
struct Echo;

impl Protocol for Echo {
    type ThreadState = ();
    type Session = ();
    type Job = Vec<u8>;

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input.starts_with(b"keep") {
            let kept = context.pool().take(100);
            KEPT.lock().expect("whole").extend(kept);
            return Received::Consumed;
        }
        let (consumed, on) = (0, Stall::Pipeline);
        if context.jobs_out() > 0 {
            return Received::Blocked { consumed, on };
        }
        let mut job = context.job().expect("few jobs");
        job.extend(input);
        context.dispatch(job);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => {
                if context.jobs_out() == 0 {
                    context.close_after_output();
                }
            }
            other => other.by_default(context),
        }
    }

    fn run(&self, _: &mut Vec<u8>, _: &mut WorkerScope<'_>) {}

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        context.write(&job).expect("room");
        job.clear();
        context.recycle(job);
    }

    fn retire(&self, (): &mut (), job: &mut Vec<u8>) {
        job.clear();
    }
}

fn calm() -> TestServer {
    TestServer::new(Conditions::calm(7), Echo)
}

/// The words of the panic that `act` must end in.
fn failure(act: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(act)).expect_err("it must fail");
    let text = panic.downcast_ref::<String>().cloned();
    text.or(panic.downcast_ref::<&str>().map(|text| (*text).into()))
        .expect("words")
}

#[test]
fn sim_what_is_waited_for_comes_whatever_the_kernel_does() {
    each_seed(100, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Echo);
        let client = server.connect();
        client.write(b"one\ntwo");
        assert_eq!(server.read_line(&client), "one\n");
        assert_eq!(server.read_exact(&client, 3), b"two");
        client.write(b"rest");
        let mut rest = Vec::new();
        server.run_until(|| {
            rest.extend(client.read());
            rest == b"rest"
        });
        client.shutdown_write();
        assert_eq!(server.read_to_end(&client), b"");
        assert_eq!(client.state(), ClientState::Finished);
    });
}

#[test]
fn sim_a_settled_server_has_answered_what_it_was_sent() {
    each_seed(100, |seed| {
        // Late and slow, but nothing is put off to a deadline.
        let mut conditions = Conditions::calm(seed);
        let short = Faults::mixed(seed).without_losses();
        conditions.faults = short.with(Fault::NoBuffer, 0).with(Fault::Overflow, 0);
        let mut server = TestServer::new(conditions, Echo);
        let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(&[b'x'; 5000]);
        }
        server.settle();
        let answered = clients.iter().all(|client| client.read().len() == 5000);
        assert!(answered, "seed {seed}");
    });
}

#[test]
fn what_never_comes_fails_with_the_seed_and_the_time() {
    let mut server = calm();
    server.set_wait_max(Duration::from_millis(300));
    let began = server.world().now();
    let words = failure(|| server.run_until(|| false));
    assert_eq!(
        words,
        "seed 7: the condition did not come within 300ms of simulated time"
    );
    assert!(server.world().now() - began >= Duration::from_millis(300));
}

#[test]
fn a_lost_connection_fails_a_read() {
    let mut conditions = Conditions::calm(7);
    conditions.faults = Faults::none().with(Fault::ReceiveReset, 1000);
    let mut server = TestServer::new(conditions, Echo);
    let client = server.connect();
    client.write(b"hello");
    let words = failure(|| drop(server.read_exact(&client, 5)));
    assert_eq!(words, "seed 7: the connection ended after \"\"");
    let words = failure(|| drop(server.read_to_end(&client)));
    assert_eq!(words, "seed 7: reset after 0 bytes");
}

#[test]
fn a_deadline_ends_an_idle_client_within_a_wait() {
    let mut server = calm();
    server.set_wait_max(Duration::from_secs(31));
    let client = server.connect();
    // `head_timeout`.
    assert_eq!(server.read_to_end(&client), b"");
}

#[test]
fn a_leak_fails_the_end() {
    let mut server = calm();
    let client = server.connect();
    client.write(b"keep");
    server.settle();
    let words = failure(|| server.end());
    KEPT.lock().expect("whole").clear();
    assert!(words.contains("seed 7: not given back: "), "{words}");
}

#[test]
fn a_server_that_is_dropped_is_checked_and_one_of_a_failed_test_is_not() {
    let words = failure(|| {
        let _server = calm();
        panic!("the test's own words");
    });
    assert_eq!(words, "the test's own words");
}

#[test]
fn sim_messages_are_sent_and_read_with_their_framing() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Echo);
        let mut client = server.connect_messages(LengthPrefix::u16(1000));
        for message in ["one", "", "three"] {
            client.send(message);
        }
        for message in ["one", "", "three"] {
            assert_eq!(client.read(&mut server), message.as_bytes());
        }
        client.connection().shutdown_write();
        client.read_end(&mut server);
    });
}

#[test]
fn a_message_that_is_not_as_expected_fails_with_what_came() {
    // Sends bytes to be echoed, and nothing after them.
    let said = |bytes: &[u8]| {
        let mut server = calm();
        let client = server.connect_messages(Lines::new(10));
        client.connection().write(bytes);
        client.connection().shutdown_write();
        (server, client)
    };
    let (mut server, mut client) = said(b"half");
    let words = failure(|| drop(client.read(&mut server)));
    assert_eq!(words, "the connection ended within a message: \"half\"");
    let (mut server, mut client) = said(b"");
    let words = failure(|| drop(client.read(&mut server)));
    assert_eq!(words, "the connection has ended, and a message was due");
    let (mut server, mut client) = said(b"more\n");
    let words = failure(|| client.read_end(&mut server));
    assert_eq!(words, "a message came where the end was due: \"more\"");
    let (mut server, mut client) = said(b"much too long\n");
    let words = failure(|| drop(client.read(&mut server)));
    assert_eq!(words, "the server sent a message of more than 10 bytes");
    let words = failure(|| client.send("two\nlines"));
    let why = "a message with the end of a message in it";
    assert_eq!(words, format!("the message cannot be sent: {why}"));
}

#[test]
fn a_reply_that_is_none_fails_with_the_request_and_what_came() {
    let mut server = calm();
    let words = failure(|| drop(server.get("/x").send()));
    let came = "not a status line: \"GET /x HTTP/1.1\"";
    assert!(
        words.starts_with(&format!("GET /x: {came}; received: \"GET /x")),
        "{words}"
    );
}

#[test]
fn a_reply_that_does_not_come_fails_after_the_wait() {
    let mut server = calm();
    server.set_wait_max(Duration::from_secs(5));
    // It is kept, and not echoed.
    let words = failure(|| drop(server.request("keep", "/x").send()));
    KEPT.lock().expect("whole").clear();
    assert!(
        words.contains("did not come within 5s of simulated time"),
        "{words}"
    );
}
