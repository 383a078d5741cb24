//! Holders of one network thread are ended for connections of another that wait for memory: on both
//! drivers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::memory::Buffer;
use flatpath::{
    Bytes, Context, DriverChoice, Event, Limits, ListenerOptions, PerThread, Phase, Protocol,
    Received, Server,
};
use flatpath_testkit::{Client, Driver};

const THREADS: usize = 2;
/// A quarter of it is in reserve.
const BUDGET_BYTES: usize = 1024 * 1024;
/// All that is not, in smallest buffers; the answer of the one that holds takes one.
const BUFFERS: usize = 192;

/// | line    | answer                                                        |
/// |---------|---------------------------------------------------------------|
/// | `where` | the number of the network thread                              |
/// | `hold`  | `held`, and so is all memory that is not in reserve from then |
/// | other   | `ok`                                                          |
#[derive(Default)]
struct Holding {
    threads: AtomicUsize,
}

struct Number(usize);

impl PerThread<Holding> for Number {
    fn new(holding: &Holding) -> Number {
        Number(holding.threads.fetch_add(1, Ordering::Relaxed))
    }
}

impl Protocol for Holding {
    type ThreadState = Number;
    type Session = Vec<Buffer>;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: Bytes::from_static(b"full\n"),
            ..ListenerOptions::named("holding")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Received::NeedMore { consumed: 0 };
        };
        let answer = match &input[..end] {
            b"where" => format!("{}\n", context.thread.0),
            b"hold" => "held\n".into(),
            _ => "ok\n".into(),
        };
        context.write(answer.as_bytes()).expect("room for a line");
        if answer == "held\n" {
            // A holder has no deadline of its own.
            context.phase(Phase::Work);
            let pool = context.io.pool();
            context
                .session
                .extend((0..BUFFERS - 1).map_while(|_| pool.take(1)));
            let held = context.session.len();
            assert_eq!(held, BUFFERS - 1, "the test asks for what there is");
        }
        Received::NeedMore { consumed: end + 1 }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Abandoned => context.session.clear(),
            other => other.by_default(context),
        }
    }
}

fn ask(client: &mut Client, line: &[u8]) -> String {
    client.send(line);
    client.line()
}

/// A client of each network thread: the kernel chooses, so until each has one.
fn one_of_each(address: SocketAddr) -> [Client; THREADS] {
    let mut clients: [Option<Client>; THREADS] = Default::default();
    while clients.iter().any(Option::is_none) {
        let mut client = Client::connect(address);
        let thread: usize = ask(&mut client, b"where\n").parse().expect("a number");
        clients[thread] = Some(client);
    }
    clients.map(|client| client.expect("each has one"))
}

fn relieves(choice: DriverChoice) {
    // No deadline wakes a network thread meanwhile.
    let limits = Limits {
        buffer_bytes_max: BUDGET_BYTES,
        head_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        write_timeout: Duration::MAX,
        stall_timeout: Duration::MAX,
        ..Limits::default()
    };
    let server = Server::new()
        .listen("127.0.0.1:0", Holding::default())
        .network_threads(THREADS)
        .limits(limits)
        .driver(choice);
    let running = server.start().expect("it starts");
    let [mut holds, mut waits] = one_of_each(running.addresses()[0].address);
    assert_eq!(ask(&mut holds, b"hold\n"), "held");
    // By then its network thread has done what it does now and then, and sleeps until it is woken.
    std::thread::sleep(Duration::from_secs(3));
    // More than a buffer of the reserve takes.
    let mut long = [b'.'; 6000];
    waits.send(long);
    long[5999] = b'\n';
    assert_eq!(ask(&mut waits, &long), "ok");
    assert_eq!(holds.line(), "full");
    drop((holds, waits));
    running.handle().drain();
    running.wait().expect("it ends well");
}

#[test]
fn a_holder_of_another_thread_is_ended_for_one_that_waits_on_uring() {
    if Driver::Uring.is_here() {
        relieves(DriverChoice::Uring);
    }
}

#[test]
fn a_holder_of_another_thread_is_ended_for_one_that_waits_on_epoll() {
    relieves(DriverChoice::Epoll);
}
