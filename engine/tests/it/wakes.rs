//! Push: any thread has a connection called by its handle, while the connection is still heard.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::lines::cut;
use flatpath::access_log::LogEnd;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    ConnectionHandle, Context, DriverChoice, Event, Limits, Phase, Protocol, Received, Server,
};
use flatpath_driver::simulation::{Client, Faults, Random, each_seed};
use flatpath_testkit::{Driver, patience, until_true};

/// Many more than are called in one turn.
const CROWD: usize = 300;

/// What one client is sent when it is called: a line of it each, and how often that was.
#[derive(Default)]
struct Mailbox {
    lines: Mutex<VecDeque<u8>>,
    calls: AtomicUsize,
    /// How often another connection has woken it by what it received.
    wishes: AtomicUsize,
}

/// Input that begins so wakes the connection that was met first.
const WAKES_FIRST: [u8; 2] = *b"**";

/// Every connection has a mailbox, and says `+` when it is met and the byte that it received.
#[derive(Clone, Default)]
struct Post(Arc<Mutex<Vec<Met>>>, Arc<AtomicUsize>);

type Met = (ConnectionHandle, Arc<Mailbox>);

impl Post {
    fn met(&self) -> MutexGuard<'_, Vec<Met>> {
        self.0.lock().expect("whole")
    }

    fn send(&self, to: usize, line: u8) {
        let (handle, mailbox) = self.met()[to].clone();
        mailbox.lines.lock().expect("whole").push_back(line);
        handle.wake();
    }

    fn wishes(&self) -> usize {
        self.met()[0].1.wishes.load(Ordering::Relaxed)
    }

    fn calls(&self, of: usize) -> usize {
        self.met()[of].1.calls.load(Ordering::Relaxed)
    }

    fn closed(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

impl Protocol for Post {
    type ThreadState = ();
    type Session = Option<Arc<Mailbox>>;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if context.session.is_none() {
            let mailbox = Arc::new(Mailbox::default());
            *context.session = Some(Arc::clone(&mailbox));
            self.met().push((context.handle(), mailbox));
            context.phase(Phase::Wait);
        }
        if input.starts_with(&WAKES_FIRST) {
            self.met()[0].0.wake();
            self.met()[0].1.wishes.fetch_add(1, Ordering::Relaxed);
        }
        context.write(input).expect("room");
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Woken => {
                let mailbox = context.session.as_ref().expect("it has given its handle");
                mailbox.calls.fetch_add(1, Ordering::Relaxed);
                for line in mailbox.lines.lock().expect("whole").drain(..) {
                    context.io.write(&[line]).expect("room");
                }
            }
            other => other.by_default(context),
        }
    }

    fn closed(&self, (): &mut (), _: &mut Option<Arc<Mailbox>>, _: Option<LogEnd<'_>>) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn simulated(seed: u64, faults: Faults) -> (SimulatedServer, Post) {
    let post = Post::default();
    let mut conditions = Conditions::calm(seed);
    conditions.faults = faults;
    (SimulatedServer::new(conditions, post.clone()), post)
}

/// Turns until the server has met the client, which says `+`.
fn meet(server: &mut SimulatedServer, post: &Post) -> Client {
    let before = post.met().len();
    let client = server.connect();
    client.write(b"+");
    turn_until(server, "a client", |_| post.met().len() > before);
    client
}

fn turn_until(server: &mut SimulatedServer, what: &str, done: impl Fn(&SimulatedServer) -> bool) {
    for _ in 0..10_000 {
        if done(server) {
            return;
        }
        server.turn();
    }
    panic!("seed {}: never came: {what}", server.world().seed());
}

#[test]
fn sim_a_thousand_wakes_are_one_call() {
    let (mut server, post) = simulated(1, Faults::none());
    let _client = meet(&mut server, &post);
    for expected in 1..4 {
        (0..1000).for_each(|_| post.met()[0].0.wake());
        (0..20).for_each(|_| server.turn());
        assert_eq!(post.calls(0), expected);
    }
}

#[test]
fn sim_no_wake_is_lost_and_what_was_said_before_it_arrives_in_order() {
    each_seed(100, |seed| {
        let (mut server, post) = simulated(seed, Faults::mixed(seed).without_losses());
        let mut random = Random::new(seed);
        let clients: Vec<_> = (0..5).map(|_| meet(&mut server, &post)).collect();
        let mut expected = vec![vec![b'+']; clients.len()];
        let mut found = vec![vec![]; clients.len()];
        for line in 0..60_u8 {
            let to = random.below(clients.len());
            post.send(to, line);
            expected[to].push(line);
            (0..random.below(3)).for_each(|_| server.turn());
        }
        // Nothing else happens: a wake that was lost is never made up for.
        server.world().set_step_max(Duration::from_secs(1));
        for _ in 0..2_000 {
            server.turn();
            for (client, found) in clients.iter().zip(&mut found) {
                found.extend(client.read());
            }
        }
        assert_eq!(found, expected, "seed {seed}");
    });
}

#[test]
fn sim_a_crowd_that_is_woken_at_once_is_called_once_each() {
    let (mut server, post) = simulated(3, Faults::none());
    let clients: Vec<_> = (0..CROWD).map(|_| meet(&mut server, &post)).collect();
    (0..CROWD).for_each(|to| post.send(to, b'!'));
    turn_until(&mut server, "the last", |_| {
        (0..CROWD).all(|of| post.calls(of) > 0)
    });
    (0..50).for_each(|_| server.turn());
    assert!((0..CROWD).all(|of| post.calls(of) == 1));
    assert!(clients.iter().all(|client| client.read() == b"+!"));
}

/// Turns until the client has its byte back.
fn turns_to_echo(server: &mut SimulatedServer, client: &Client) -> usize {
    client.write(b"?");
    for turn in 1..1_000 {
        server.turn();
        if client.read() == b"?" {
            return turn;
        }
    }
    panic!("never came: the echo");
}

/// A broadcast to all does not keep others waiting: between what a client asks and its answer, a
/// few of the crowd are called.
#[test]
fn sim_one_who_asks_while_a_crowd_is_called_waits_for_a_few_of_them() {
    const CALLED_IN_A_TURN_MAX: usize = 8;
    let (mut server, post) = simulated(4, Faults::none());
    let clients: Vec<_> = (0..CROWD).map(|_| meet(&mut server, &post)).collect();
    let (asks, crowd) = clients.split_first().expect("a crowd");
    turn_until(&mut server, "its greeting", |_| asks.read() == b"+");
    let alone = turns_to_echo(&mut server, asks);
    (1..CROWD).for_each(|to| post.send(to, b'!'));
    let beside = turns_to_echo(&mut server, asks);
    let called = (1..CROWD).filter(|of| post.calls(*of) > 0).count();
    assert_eq!(beside, alone, "turns");
    assert!(
        called <= beside * CALLED_IN_A_TURN_MAX,
        "{called} in {beside}"
    );
    turn_until(&mut server, "the last", |_| {
        (1..CROWD).all(|of| post.calls(of) == 1)
    });
    turn_until(&mut server, "the last line", |_| {
        crowd.last().is_some_and(|last| last.read().ends_with(b"!"))
    });
}

/// Long input is read at the end of a turn; what it wakes is called in that turn.
#[test]
fn sim_what_long_input_wakes_is_called_in_the_same_turn() {
    const LONG: usize = 4_000;
    let (mut server, post) = simulated(6, Faults::none());
    let clients: Vec<_> = (0..2).map(|_| meet(&mut server, &post)).collect();
    (0..50).for_each(|_| server.turn());
    clients[1].write(&WAKES_FIRST.repeat(LONG / WAKES_FIRST.len()));
    turn_until(&mut server, "the long input", |_| post.wishes() > 0);
    assert_eq!(post.calls(0), 1);
}

#[test]
fn sim_the_handle_of_a_connection_that_is_gone_wakes_no_other_in_its_slot() {
    let (mut server, post) = simulated(5, Faults::none());
    let gone = meet(&mut server, &post);
    gone.shutdown_write();
    turn_until(&mut server, "the end", |_| post.closed() == 1);
    let _next = meet(&mut server, &post);
    let handles: Vec<_> = post
        .met()
        .iter()
        .map(|(handle, _)| handle.clone())
        .collect();
    assert_ne!(handles[0], handles[1]);
    handles[0].wake();
    (0..50).for_each(|_| server.turn());
    assert_eq!((post.calls(0), post.calls(1)), (0, 0));
    // Whichever comes first: the one that is here is called.
    for order in [[0, 1], [1, 0]] {
        for of in order {
            handles[of].wake();
        }
        (0..50).for_each(|_| server.turn());
    }
    assert_eq!((post.calls(0), post.calls(1)), (0, 2));
}

/// The network thread sleeps; it is woken for each line, and hears the client meanwhile.
fn a_sleeping_thread(choice: DriverChoice) {
    let post = Post::default();
    let limits = Limits {
        wait_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let server = Server::new().driver(choice).limits(limits);
    let running = server.listen("127.0.0.1:0", post.clone()).start();
    let running = running.expect("starts");
    let mut client = TcpStream::connect(running.addresses()[0].address).expect("a listener");
    client.set_read_timeout(Some(patience())).expect("a socket");
    let mut byte = [0];
    let mut next = |client: &mut TcpStream| {
        client.read_exact(&mut byte).expect("a byte in time");
        byte[0]
    };
    client.write_all(b"+").expect("sent");
    assert_eq!(next(&mut client), b'+');
    for line in 0..100 {
        if line % 10 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        post.send(0, line);
        assert_eq!(next(&mut client), line);
        client.write_all(b"?").expect("sent");
        assert_eq!(next(&mut client), b'?', "it is still received from");
    }
    client.shutdown(Shutdown::Both).expect("connected");
    until_true("its close", || post.closed() == 1);
    post.send(0, b'.');
    cut(running);
    // The server is gone, too.
    post.send(0, b'.');
}

#[test]
fn a_sleeping_thread_is_woken_and_hears_its_connection_epoll() {
    a_sleeping_thread(DriverChoice::Epoll);
}

#[test]
fn a_sleeping_thread_is_woken_and_hears_its_connection_uring() {
    if Driver::Uring.is_here() {
        a_sleeping_thread(DriverChoice::Uring);
    }
}
