//! Sending from other threads than the one that reads, to clients that read slowly or not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use flatpath_websocket::{Handler, Limits, Message, SendError, Socket, WebSocket};

use crate::client::{Peer, serve};
use crate::frames::{close, frame, frames};

/// Gives its socket away.
struct Gives(Arc<Mutex<Vec<Socket>>>);

impl Handler for Gives {
    fn opened(&mut self, socket: &Socket) {
        self.0.lock().expect("no panic").push(socket.clone());
    }

    fn message(&mut self, _: &Socket, _: Message) {}
}

/// The sockets of a server's clients, and what makes their handlers.
fn gives() -> (
    Arc<Mutex<Vec<Socket>>>,
    impl Fn() -> Gives + Send + Sync + 'static,
) {
    let sockets = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&sockets);
    (sockets, move || Gives(Arc::clone(&given)))
}

#[test]
fn sim_what_is_sent_from_outside_arrives_once_and_in_order() {
    each_seed(60, |seed| {
        let (sockets, handlers) = gives();
        let mut server = serve(Conditions::rough(seed), WebSocket::inline(), handlers);
        let peers: Vec<Peer> = (0..3).map(|_| Peer::open(&mut server)).collect();
        for round in 0..20_usize {
            let message = Message::from(format!("{round}"));
            for socket in sockets.lock().expect("no panic").iter() {
                socket.try_send(message.clone()).expect("there is room");
            }
            if round.is_multiple_of(seed as usize % 5 + 1) {
                server.turn();
            }
        }
        for peer in &peers {
            for round in 0..20 {
                assert_eq!(peer.text(&mut server), round.to_string());
            }
            peer.send(&close(1000));
            assert_eq!(peer.closed(&mut server), 1000);
        }
        for socket in sockets.lock().expect("no panic").iter() {
            let refused = socket.try_send("late");
            assert!(matches!(refused, Err(SendError::Closed(_))));
        }
    });
}

#[test]
fn sim_a_client_that_does_not_read_is_sent_no_more_than_the_bound_until_it_does() {
    each_seed(20, |seed| {
        let limits = Limits {
            queued_bytes_max: 10_000,
            ..Limits::default()
        };
        let (sockets, handlers) = gives();
        let websocket = WebSocket::inline().limits(limits);
        let mut server = serve(Conditions::rough(seed), websocket, handlers);
        let peer = Peer::open(&mut server);
        let socket = sockets.lock().expect("no panic")[0].clone();
        let message = Message::from(vec![7; 5_000]);
        let mut sent = 0;
        loop {
            match socket.try_send(message.clone()) {
                Ok(()) => sent += 1,
                Err(SendError::Full(given_back)) => {
                    assert_eq!(given_back, message);
                    server.settle();
                    if socket.queued_bytes() >= limits.queued_bytes_max {
                        break;
                    }
                }
                Err(SendError::Closed(_)) => panic!("it is open"),
            }
        }
        assert!(socket.queued_bytes() <= limits.queued_bytes_max + 5_004);
        // What it sends meanwhile is heard.
        for _ in 0..sent {
            assert_eq!(peer.frame(&mut server), (0x82, vec![7; 5_000]));
        }
        // Once the server knows that it has read.
        server.run_until(|| socket.try_send("room again").is_ok());
        assert_eq!(peer.text(&mut server), "room again");
    });
}

#[test]
fn sim_a_client_that_answers_nothing_and_reads_nothing_takes_nothing_away_from_others() {
    each_seed(20, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let echo = crate::Echo::default();
            let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
            let (deaf, other) = (Peer::open(&mut server), Peer::open(&mut server));
            let large = frame(0x82, &[1; 60_000]);
            for _ in 0..8 {
                deaf.send(&large);
            }
            server.settle();
            assert_eq!(deaf.client.state(), ClientState::Open);
            other.send(&frame(0x81, b"hello"));
            assert_eq!(other.text(&mut server), "hello");
            for _ in 0..8 {
                assert_eq!(deaf.frame(&mut server), (0x82, vec![1; 60_000]));
            }
        }
    });
}

#[test]
fn sim_what_waits_in_sockets_is_within_the_budget_and_a_message_to_all_is_charged_once() {
    const BUDGET: usize = 4 << 20;
    const SOCKETS: usize = 30;
    each_seed(8, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.limits.buffer_bytes_max = BUDGET;
        let (sockets, handlers) = gives();
        let mut server = serve(conditions, WebSocket::inline(), handlers);
        let peers: Vec<Peer> = (0..SOCKETS).map(|_| Peer::open(&mut server)).collect();
        server.world().set_window_bytes(1);
        let sockets: Vec<Socket> = sockets.lock().expect("no panic").drain(..).collect();
        let bytes = [4_000, 20_000, 60_000][seed as usize % 3];
        // To all: kept once.
        let message = Message::from(vec![7; bytes]);
        let mut sent = vec![0; SOCKETS];
        for socket in &sockets {
            socket.try_send(message.clone()).expect("room");
            server.turn();
        }
        sent.fill(1);
        for _ in 0..4 {
            server.turn();
        }
        let held = server.handle().pool_statistics();
        assert!(
            held.charged_bytes < 2 * bytes + 1024,
            "seed {seed}: {held:?}"
        );
        // One for each: kept for each, while there is memory.
        let mut waiting = 0;
        for _ in 0..40 {
            for (socket, sent) in sockets.iter().zip(&mut sent) {
                if socket.try_send(Message::from(vec![7; bytes])).is_ok() {
                    *sent += 1;
                    waiting += bytes;
                }
            }
            server.advance(Duration::from_millis(2));
            for _ in 0..4 {
                server.turn();
            }
        }
        assert!(waiting <= BUDGET, "seed {seed}: {waiting} bytes wait");
        assert!(
            waiting > BUDGET / 8,
            "seed {seed}: only {waiting} bytes wait"
        );
        let held = server.handle().pool_statistics().in_use_bytes;
        assert!(held >= waiting / 2, "seed {seed}: {held} bytes are charged");
        // Whoever reads gets all of it.
        server.world().set_window_bytes(64 * 1024);
        for (peer, sent) in peers.iter().zip(sent) {
            for _ in 0..sent {
                assert_eq!(peer.frame(&mut server), (0x82, vec![7; bytes]));
            }
        }
    });
}

/// Answers each message with the same, and counts the answers that find no room: one that waited
/// would keep a worker.
struct Answers(Arc<AtomicUsize>);

impl Handler for Answers {
    fn message(&mut self, socket: &Socket, message: Message) {
        if socket.try_send(message).is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Clients flood a server with messages and do not read, and another is answered meanwhile; then
/// they read. How many answers found no room before that, and how many jobs went out while all
/// waited.
fn flood(seed: u64, buffer_bytes_max: usize, clients: usize, bytes: usize) -> (usize, u64) {
    const EACH: usize = 200_000;
    let mut conditions = Conditions::calm(seed);
    conditions.limits.buffer_bytes_max = buffer_bytes_max;
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let refused = || refused.load(Ordering::Relaxed);
    let handlers = move || Answers(Arc::clone(&count));
    let mut server = serve(conditions, WebSocket::pooled(), handlers);
    let other = Peer::open(&mut server);
    let floods: Vec<Peer> = (0..clients).map(|_| Peer::open(&mut server)).collect();
    server.world().set_window_bytes(10_000);
    let messages = EACH / bytes;
    let flood = frame(0x82, &vec![7; bytes]).repeat(messages);
    let pass = |server: &mut TestServer| {
        server.advance(Duration::from_millis(1));
        server.turn();
    };
    for peer in &floods {
        peer.send(&flood);
        (0..4).for_each(|_| pass(&mut server));
    }
    (0..400).for_each(|_| pass(&mut server));
    let unread = refused();
    other.send(&frame(0x81, b"hello"));
    assert_eq!(other.text(&mut server), "hello", "seed {seed}");
    let jobs = server.statistics().jobs_dispatched;
    (0..100).for_each(|_| pass(&mut server));
    let more = server.statistics().jobs_dispatched - jobs;
    let mut read = vec![Vec::new(); clients];
    let all = |read: &[Vec<u8>]| read.iter().map(|it| frames(it).0.len()).sum::<usize>();
    for turn in 0.. {
        let (got, refused) = (all(&read), refused());
        let is_short = server.statistics().connections_ended_for_memory > 0;
        if is_short || got + refused == clients * messages {
            break;
        }
        assert!(turn < 400, "seed {seed}: {got} answers, {refused} refused");
        for _ in 0..50 {
            pass(&mut server);
            for (flood, read) in floods.iter().zip(&mut read) {
                read.extend(flood.client.read());
            }
        }
    }
    (unread, more)
}

#[test]
fn sim_floods_of_clients_that_do_not_read_wait_without_a_worker() {
    each_seed(4, |seed| {
        for bytes in [100, 1_000, 5_000, 60_000] {
            let unread = flood(seed, 64 << 20, 4, bytes);
            assert_eq!(unread, (0, 0), "seed {seed}, {bytes} bytes");
        }
    });
}

#[test]
fn sim_floods_wait_without_a_worker_while_there_is_no_memory_for_answers() {
    each_seed(4, |seed| {
        for (clients, bytes) in [(40, 1_000), (100, 5_000)] {
            let (unread, _) = flood(seed, 2 << 20, clients, bytes);
            // Some saw the same room.
            assert!(unread < clients / 5, "seed {seed}, {bytes}: {unread}");
        }
    });
}
