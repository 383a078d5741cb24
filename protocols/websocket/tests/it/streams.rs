//! Sockets on streams of HTTP/2 (RFC 8441): what they are on connections of their own, beside
//! others on one connection.

use std::time::Duration;

use bytes::Bytes;
use flatpath_http::http::{Method, Request as Asked, StatusCode};
use flatpath_http::{Http, Origins, Request, Router};
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_websocket::{Handler, Message, Socket, WebSocket, code};
use h2::Reason;
use h2::client::Builder;
use h2::ext::Protocol;

use crate::Echo;
use crate::frames::{close, frame, frames};
use crate::h2_client::Peer;

const SEEDS: u64 = 20;

fn http<H: Handler>(
    sockets: WebSocket,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> Http<Router> {
    let accept = move |request: Request| sockets.accept(&request, handler());
    Http::service(
        Router::new()
            .get("/chat", accept)
            .get("/", || "x".repeat(100_000)),
    )
}

/// Servers whose sockets are handled by workers, and by the network thread.
fn servers(conditions: &Conditions, echo: &Echo) -> [TestServer; 2] {
    [WebSocket::pooled(), WebSocket::inline()].map(|sockets| {
        let sockets = sockets.deflate(None);
        TestServer::new(conditions.clone(), http(sockets, echo.factory()))
    })
}

fn handshake(protocol: &'static str) -> Asked<()> {
    let request = Asked::builder()
        .method(Method::CONNECT)
        .uri("http://h/chat")
        .header("sec-websocket-version", "13")
        .extension(Protocol::from_static(protocol));
    request.body(()).expect("a request")
}

/// Opens a socket; its number.
fn open(server: &mut TestServer, peer: &mut Peer) -> usize {
    let index = peer.ask(handshake("websocket"), Some(Bytes::new()));
    peer.until(server, |peer| peer.reply(index).status.is_some());
    let reply = peer.reply(index);
    assert_eq!(reply.status, Some(StatusCode::OK));
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!reply.headers.contains_key(name), "{name}");
    }
    index
}

/// The frames that a socket has got.
fn got(peer: &Peer, index: usize) -> Vec<(u8, Vec<u8>)> {
    frames(&peer.reply(index).body).0
}

/// The code of the close frame that is all a socket has got.
fn refusal(peer: &Peer, index: usize) -> Option<u16> {
    match &got(peer, index)[..] {
        [(0x88, payload)] => Some(u16::from_be_bytes([payload[0], payload[1]])),
        _ => None,
    }
}

fn until_got(server: &mut TestServer, peer: &mut Peer, index: usize, count: usize) {
    peer.until(server, |peer| got(peer, index).len() >= count);
}

#[test]
fn sim_messages_come_back_whatever_frames_carry_them() {
    each_seed(SEEDS, |seed| {
        for mut server in servers(&Conditions::rough(seed), &Echo::default()) {
            let mut peer = Peer::new(&mut server);
            let long: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
            let said = [
                frame(0x81, b"hello"),
                frame(0x89, b"there?"),
                frame(0x01, b"in "),
                frame(0x80, b"parts"),
                frame(0x82, &long),
            ];
            let expected: [(u8, &[u8]); 4] = [
                (0x81, b"hello"),
                (0x8A, b"there?"),
                (0x81, b"in parts"),
                (0x82, &long),
            ];
            let (one, other) = (open(&mut server, &mut peer), open(&mut server, &mut peer));
            let page = peer.get("/");
            for part in said[..4].concat().chunks(1 + seed as usize) {
                peer.feed(one, part, false);
            }
            for part in said[4].chunks(1000 + seed as usize * 977) {
                peer.feed(one, part, false);
            }
            peer.feed(other, &said[0], false);
            until_got(&mut server, &mut peer, one, 4);
            until_got(&mut server, &mut peer, other, 1);
            // A ping is answered at once, a message when it is handled.
            let mut all = got(&peer, one);
            all.sort_by_key(|(first, _)| *first == 0x8A);
            let mut expected: Vec<_> = expected.map(|(kind, it)| (kind, it.to_vec())).into();
            expected.sort_by_key(|(first, _)| *first == 0x8A);
            assert!(all == expected, "seed {seed}");
            assert_eq!(got(&peer, other), [(0x81, b"hello".to_vec())]);
            peer.until(&mut server, |peer| peer.reply(page).body.len() == 100_000);
        }
    });
}

#[test]
fn sim_both_sides_close_and_the_stream_ends() {
    each_seed(SEEDS, |seed| {
        let echo = Echo::default();
        for mut server in servers(&Conditions::rough(seed), &echo) {
            let mut peer = Peer::new(&mut server);
            let index = open(&mut server, &mut peer);
            peer.feed(index, &[frame(0x81, b"last"), close(1000)].concat(), false);
            peer.until(&mut server, |peer| peer.reply(index).end.is_some());
            assert_eq!(peer.reply(index).end, Some(Ok(())));
            let expected = [(0x81, b"last".to_vec()), (0x88, vec![0x03, 0xE8])];
            assert_eq!(got(&peer, index), expected);
            let broken = open(&mut server, &mut peer);
            peer.feed(broken, &[0x81, 0x05], false);
            peer.until(&mut server, |peer| peer.reply(broken).end.is_some());
            assert_eq!(refusal(&peer, broken), Some(1002), "it has no mask");
            server.settle();
        }
        assert_eq!(echo.codes(), [1000, 1002, 1000, 1002], "seed {seed}");
    });
}

#[test]
fn sim_a_client_that_resets_its_stream_is_gone_and_its_others_stay() {
    each_seed(SEEDS, |seed| {
        let echo = Echo::default();
        for mut server in servers(&Conditions::rough(seed), &echo) {
            let mut peer = Peer::new(&mut server);
            let (gone, ended) = (open(&mut server, &mut peer), open(&mut server, &mut peer));
            let stays = open(&mut server, &mut peer);
            peer.feed(gone, &frame(0x81, b"hello")[..4], false);
            peer.reset(gone);
            peer.feed(ended, b"", true);
            peer.until(&mut server, |peer| peer.reply(ended).end.is_some());
            peer.feed(stays, &frame(0x81, b"hello"), false);
            until_got(&mut server, &mut peer, stays, 1);
            assert_eq!(echo.codes(), [code::ABNORMAL; 2], "seed {seed}");
            drop(peer);
            server.end();
            assert_eq!(echo.codes().len(), 3);
            echo.closed.lock().expect("no panic").clear();
        }
    });
}

#[test]
fn sim_windows_hold_back_both_sides() {
    each_seed(SEEDS, |seed| {
        for mut server in servers(&Conditions::rough(seed), &Echo::default()) {
            let mut builder = Builder::new();
            builder.initial_window_size(1000);
            let mut peer = Peer::with(&mut server, &builder);
            let index = open(&mut server, &mut peer);
            // It gives no window back, and what it says is not taken for ever.
            peer.reads = false;
            let message = frame(0x82, &[7; 10_000]);
            (0..300).for_each(|_| peer.feed(index, &message, false));
            (0..3000).for_each(|_| peer.step(&mut server));
            let (_, bytes) = server.leaks();
            assert!(
                bytes < 2_000_000,
                "seed {seed}: {bytes} bytes for one client"
            );
            assert!(peer.reply(index).body.len() <= 1000);
            let other = peer.get("/missing");
            peer.until(&mut server, |peer| peer.reply(other).end.is_some());
            assert_eq!(peer.reply(other).status, Some(StatusCode::NOT_FOUND));
        }
    });
}

#[test]
fn sim_a_drain_says_goodbye_and_a_silent_client_is_asked() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.idle_timeout = Duration::from_secs(5);
        for mut server in servers(&conditions, &Echo::default()) {
            let mut peer = Peer::new(&mut server);
            let (silent, alive) = (open(&mut server, &mut peer), open(&mut server, &mut peer));
            peer.until(&mut server, |peer| {
                got(peer, silent).len() == 1 && got(peer, alive).len() == 1
            });
            assert_eq!(got(&peer, alive), [(0x89, Vec::new())], "a ping");
            peer.feed(alive, &frame(0x8A, b""), false);
            peer.until(&mut server, |peer| peer.reply(silent).end.is_some());
            let end = peer.reply(silent).end;
            assert_eq!(end, Some(Err(Some(Reason::CANCEL))), "cut off");
            server.drain();
            peer.until(&mut server, |peer| {
                let last = got(peer, alive).pop();
                last == Some((0x88, vec![0x03, 0xE9]))
            });
            peer.feed(alive, &close(1001), true);
            peer.until(&mut server, |peer| peer.end.is_some());
        }
    });
}

#[test]
fn sim_what_is_no_handshake_is_refused_on_its_stream() {
    each_seed(SEEDS, |seed| {
        let sockets = http(WebSocket::pooled(), Echo::default().factory());
        let http = sockets.origins(Origins::own());
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut peer = Peer::new(&mut server);
        let mut foreign = handshake("websocket");
        let origin = "http://elsewhere".parse().expect("a value");
        foreign.headers_mut().insert("origin", origin);
        let mut old = handshake("websocket");
        old.headers_mut().insert("sec-websocket-version", 8.into());
        for (request, status) in [(handshake("other"), 426), (old, 426), (foreign, 403)] {
            let index = peer.ask(request, Some(Bytes::new()));
            peer.until(&mut server, |peer| peer.reply(index).end.is_some());
            assert_eq!(peer.reply(index).status.map(|it| it.as_u16()), Some(status));
        }
        let index = open(&mut server, &mut peer);
        peer.feed(index, &frame(0x81, b"hello"), false);
        until_got(&mut server, &mut peer, index, 1);
        let plain = peer.get("/chat");
        peer.until(&mut server, |peer| peer.reply(plain).end.is_some());
        assert_eq!(peer.reply(plain).status, Some(StatusCode::UPGRADE_REQUIRED));
    });
}

#[test]
fn sim_a_handler_that_panics_costs_its_socket_alone() {
    each_seed(SEEDS, |seed| {
        for sockets in [WebSocket::pooled(), WebSocket::inline()] {
            let handler = |socket: &Socket, message: Message| {
                assert!(message.text() != Some("panic"), "as it was told");
                let _ = socket.send(message);
            };
            let mut server =
                TestServer::new(Conditions::rough(seed), http(sockets, move || handler));
            let mut peer = Peer::new(&mut server);
            let (one, other) = (open(&mut server, &mut peer), open(&mut server, &mut peer));
            peer.feed(one, &frame(0x81, b"panic"), false);
            peer.feed(other, &frame(0x81, b"hello"), false);
            peer.until(&mut server, |peer| peer.reply(one).end.is_some());
            until_got(&mut server, &mut peer, other, 1);
            assert_eq!(refusal(&peer, one), Some(1011));
        }
    });
}

#[test]
fn sim_a_message_longer_than_the_window_comes_back() {
    each_seed(SEEDS, |seed| {
        for mut server in servers(&Conditions::rough(seed), &Echo::default()) {
            let mut peer = Peer::new(&mut server);
            let index = open(&mut server, &mut peer);
            let message = vec![7; 900_000];
            peer.feed(index, &frame(0x82, &message), false);
            until_got(&mut server, &mut peer, index, 1);
            assert!(got(&peer, index) == [(0x82, message)], "seed {seed}");
        }
    });
}

#[test]
fn sim_sockets_whose_messages_find_no_job_wait_for_one() {
    const MESSAGES: usize = 5;
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 2;
        for mut server in servers(&conditions, &Echo::default()) {
            let mut peer = Peer::new(&mut server);
            let all: Vec<usize> = (0..10).map(|_| open(&mut server, &mut peer)).collect();
            for index in &all {
                peer.feed(*index, &frame(0x81, b"hello").repeat(MESSAGES), false);
            }
            for index in all {
                until_got(&mut server, &mut peer, index, MESSAGES);
            }
        }
    });
}

#[test]
fn sim_a_client_that_opens_no_window_loses_its_socket() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.head_timeout = Duration::from_secs(2);
        for mut server in servers(&conditions, &Echo::default()) {
            let mut builder = Builder::new();
            builder.initial_window_size(10);
            let mut peer = Peer::with(&mut server, &builder);
            let index = open(&mut server, &mut peer);
            peer.reads = false;
            peer.feed(index, &frame(0x82, &[7; 10_000]), false);
            peer.until(&mut server, |peer| peer.reply(index).end.is_some());
            let end = peer.reply(index).end;
            assert_eq!(end, Some(Err(Some(Reason::CANCEL))), "seed {seed}");
        }
    });
}
