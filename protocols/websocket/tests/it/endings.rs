//! How connections end: close frames of both sides, drains, deadlines, clients that vanish.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath_test::{ClientState, Conditions, each_seed};
use flatpath_websocket::{Handler, Message, Socket, WebSocket};

use crate::Echo;
use crate::client::{Peer, handshake, serve};
use crate::frames::{close, frame};

/// Longer than any deadline of the engine's defaults, in steps that deadlines allow.
const LONG: Duration = Duration::from_secs(80);

#[test]
fn sim_the_client_closes_and_is_answered_with_its_code() {
    each_seed(40, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let echo = Echo::default();
            let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
            let peer = Peer::open(&mut server);
            peer.send(&[close(4001), frame(0x81, b"too late")].concat());
            assert_eq!(peer.closed(&mut server), 4001);
            let silent = Peer::open(&mut server);
            silent.send(&frame(0x88, b""));
            assert_eq!(silent.frame(&mut server), (0x88, vec![]));
            assert_eq!(server.read_to_end(&silent.client), b"");
            server.end();
            // A client that does not close its side is waited for.
            let mut codes = echo.codes();
            codes.sort_unstable();
            assert_eq!(codes, [1005, 4001]);
        }
    });
}

/// Closes its socket when it is told to.
#[derive(Clone)]
struct Closer(Echo);

impl Handler for Closer {
    fn message(&mut self, socket: &Socket, message: Message) {
        if message.text() == Some("close") {
            socket.send("last").expect("it is open");
            socket.close(4000, "as you wish");
            socket.close(4002, "not twice");
            assert!(socket.is_closed());
            assert!(
                socket.send("after").is_err(),
                "nothing is sent after a close"
            );
        }
    }

    fn closed(&mut self, socket: &Socket, close: &flatpath_websocket::Close) {
        self.0.closed(socket, close);
    }
}

#[test]
fn sim_the_program_closes_after_what_it_has_sent_and_the_client_answers() {
    each_seed(40, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let closer = Closer(Echo::default());
            let handler = closer.clone();
            let mut server = serve(Conditions::rough(seed), websocket, move || handler.clone());
            let peer = Peer::open(&mut server);
            peer.send(&frame(0x81, b"close"));
            assert_eq!(peer.text(&mut server), "last");
            let (first, payload) = peer.frame(&mut server);
            assert_eq!((first, &payload[2..]), (0x88, &b"as you wish"[..]));
            // What crossed the close frame is dropped; the close frame counts.
            peer.send(&[frame(0x81, b"crossed"), frame(0x89, b"ping"), close(4000)].concat());
            assert_eq!(server.read_to_end(&peer.client), b"");
            server.end();
            assert_eq!(closer.0.codes(), [4000]);
        }
    });
}

#[test]
fn sim_a_client_that_does_not_answer_a_close_is_closed_at_the_deadline() {
    each_seed(10, |seed| {
        let closer = Closer(Echo::default());
        let handler = closer.clone();
        let mut server = serve(Conditions::rough(seed), WebSocket::pooled(), move || {
            handler.clone()
        });
        let peer = Peer::open(&mut server);
        peer.send(&frame(0x81, b"close"));
        assert_eq!(peer.text(&mut server), "last");
        assert_eq!(peer.frame(&mut server).0, 0x88);
        server.settle();
        assert_eq!(peer.client.state(), ClientState::Open);
        server.advance(LONG);
        assert_eq!(server.read_to_end(&peer.client), b"");
        server.end();
        assert_eq!(closer.0.codes(), [1006]);
    });
}

#[test]
fn sim_a_drain_says_1001_after_what_is_in_work() {
    each_seed(40, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let echo = Echo::default();
            let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
            let idle = Peer::open(&mut server);
            let busy = Peer::open(&mut server);
            busy.send(&frame(0x81, b"one"));
            assert_eq!(busy.text(&mut server), "one");
            server.drain();
            for peer in [&idle, &busy] {
                let (first, payload) = peer.frame(&mut server);
                assert_eq!((first, &payload[..2]), (0x88, &1001_u16.to_be_bytes()[..]));
                peer.send(&close(1001));
                assert_eq!(server.read_to_end(&peer.client), b"");
            }
            server.end();
            assert_eq!(echo.codes(), [1001, 1001]);
        }
    });
}

/// The drain begins anywhere from the arrival of the connection to the answer.
#[test]
fn sim_a_handshake_that_a_drain_overtakes_is_accepted_and_told() {
    each_seed(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let echo = Echo::default();
            let mut conditions = Conditions::rough(seed);
            // The handshake is there long before.
            conditions.limits.drain_idle_timeout = Duration::from_secs(20);
            let mut server = serve(conditions, websocket, echo.factory());
            let client = server.connect();
            client.write(handshake("").as_bytes());
            while server.statistics().connections_accepted == 0 {
                server.turn();
            }
            for _ in 0..random.u8(..12) {
                server.turn();
            }
            server.drain();
            let (peer, head) = Peer::accepted(&mut server, client);
            assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
            let (first, payload) = peer.frame(&mut server);
            assert_eq!((first, &payload[..2]), (0x88, &1001_u16.to_be_bytes()[..]));
            peer.send(&close(1001));
            assert_eq!(server.read_to_end(&peer.client), b"");
            server.end();
            assert_eq!(echo.codes(), [1001]);
        }
    });
}

#[test]
fn sim_a_silent_client_is_asked_whether_it_is_there_and_cut_off_if_not() {
    each_seed(20, |seed| {
        let echo = Echo::default();
        let mut server = serve(Conditions::rough(seed), WebSocket::pooled(), echo.factory());
        let (alive, gone) = (Peer::open(&mut server), Peer::open(&mut server));
        server.settle();
        for _ in 0..3 {
            server.advance(LONG);
            assert_eq!(alive.frame(&mut server), (0x89, vec![]));
            alive.send(&frame(0x8A, b""));
            server.settle();
        }
        assert_eq!(alive.client.state(), ClientState::Open);
        server.run_until(|| gone.client.state() != ClientState::Open);
        assert_eq!(echo.codes(), [1006], "the other is there");
    });
}

#[test]
fn sim_a_client_that_ends_its_stream_without_a_word_has_broken_it() {
    each_seed(40, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let echo = Echo::default();
            let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
            let (ends, resets) = (Peer::open(&mut server), Peer::open(&mut server));
            ends.send(&[frame(0x81, b"answered"), frame(0x01, b"half")].concat());
            ends.client.shutdown_write();
            assert_eq!(ends.text(&mut server), "answered");
            assert_eq!(server.read_to_end(&ends.client), b"");
            resets.send(&frame(0x81, b"unread"));
            resets.client.abort();
            server.settle();
            server.end();
            assert_eq!(echo.codes(), [1006, 1006]);
        }
    });
}

#[test]
fn sim_a_message_that_trickles_is_refused() {
    each_seed(10, |seed| {
        for begun in [&frame(0x81, b"hello")[..1], &frame(0x82, &[0; 5000])[..100]] {
            let echo = Echo::default();
            let mut server = serve(Conditions::rough(seed), WebSocket::inline(), echo.factory());
            let peer = Peer::open(&mut server);
            peer.send(begun);
            server.settle();
            server.advance(LONG);
            assert_eq!(peer.closed(&mut server), 1008);
            peer.client.shutdown_write();
            server.end();
            assert_eq!(echo.codes(), [1008]);
        }
    });
}

#[test]
fn sim_an_idle_socket_makes_room_for_a_newcomer_with_1013() {
    each_seed(10, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.limits.connections_max = 4;
        let echo = Echo::default();
        let mut server = serve(conditions, WebSocket::inline(), echo.factory());
        let first = Peer::open(&mut server);
        server.settle();
        server.advance(Duration::from_secs(2));
        let later: Vec<Peer> = (0..4).map(|_| Peer::open(&mut server)).collect();
        assert_eq!(first.closed(&mut server), 1013);
        assert_eq!(echo.codes(), [1013]);
        assert_eq!(later[3].client.state(), ClientState::Open);
    });
}

/// Notes that it was opened and closed.
struct Noted(Arc<Mutex<Vec<&'static str>>>);

impl Handler for Noted {
    fn opened(&mut self, socket: &Socket) {
        socket.send("welcome").expect("it is open");
        self.0.lock().expect("no panic").push("opened");
    }

    fn message(&mut self, _: &Socket, _: Message) {}

    fn closed(&mut self, socket: &Socket, _: &flatpath_websocket::Close) {
        assert!(socket.is_closed());
        self.0.lock().expect("no panic").push("closed");
    }
}

#[test]
fn sim_every_handler_that_is_opened_is_closed_once_also_where_the_handshake_fails() {
    each_seed(40, |seed| {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&notes);
        let mut server = serve(Conditions::rough(seed), WebSocket::pooled(), move || {
            Noted(Arc::clone(&noted))
        });
        let peer = Peer::open(&mut server);
        assert_eq!(peer.text(&mut server), "welcome");
        // It is gone before the answer, or wants nothing after it.
        let gone = server.connect();
        gone.write(handshake("").as_bytes());
        gone.abort();
        let ends = server.connect();
        ends.write(handshake("").as_bytes());
        ends.shutdown_write();
        server.settle();
        peer.client.abort();
        server.end();
        let notes = notes.lock().expect("no panic");
        let count = |word| notes.iter().filter(|note| **note == word).count();
        assert!(count("opened") >= 1);
        assert_eq!(count("opened"), count("closed"), "{notes:?}");
    });
}
