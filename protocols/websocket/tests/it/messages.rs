//! Handshakes, and what is received.

use flatpath_http::{Http, Request};
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_websocket::{Handler, Limits, Message, Socket, WebSocket};

use crate::Echo;
use crate::client::{Peer, handshake, serve};
use crate::frames::{close, frame, frames};

/// Both kinds of handlers.
fn kinds() -> [WebSocket; 2] {
    [WebSocket::inline(), WebSocket::pooled()]
}

#[test]
fn sim_messages_are_answered_in_order_however_they_are_split() {
    each_seed(60, |seed| {
        for websocket in kinds() {
            let echo = Echo::default();
            let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
            let client = server.connect();
            let mut sent = handshake("").into_bytes();
            let mut expected = Vec::new();
            for number in 0..30 {
                let text = format!("{number} ").repeat(number * number);
                match number % 3 {
                    0 => sent.extend(frame(0x81, text.as_bytes())),
                    1 => {
                        let (first, second) = text.as_bytes().split_at(text.len() / 3);
                        sent.extend(frame(0x01, first));
                        sent.extend(frame(0x00, b""));
                        sent.extend(frame(0x80, second));
                    }
                    _ => sent.extend(frame(0x82, text.as_bytes())),
                }
                let first = if number % 3 == 2 { 0x82 } else { 0x81 };
                expected.push((first, text.into_bytes()));
            }
            sent.extend(close(1000));
            expected.push((0x88, 1000_u16.to_be_bytes().to_vec()));
            for piece in sent.chunks(1 + seed as usize * 37) {
                client.write(piece);
            }
            let reply = server.read_to_end(&client);
            let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            let (answers, left) = frames(&reply[end.expect("a head") + 4..]);
            assert!(left.is_empty(), "whole frames");
            assert_eq!(answers, expected);
            server.end();
            assert_eq!(echo.codes(), [1000]);
        }
    });
}

#[test]
fn sim_pings_are_answered_between_fragments_and_while_a_worker_is_busy() {
    each_seed(40, |seed| {
        for websocket in kinds() {
            let mut server = serve(
                Conditions::rough(seed),
                websocket,
                Echo::default().factory(),
            );
            let peer = Peer::open(&mut server);
            peer.send(&frame(0x01, b"he"));
            peer.send(&frame(0x89, b"between"));
            assert_eq!(peer.frame(&mut server), (0x8A, b"between".to_vec()));
            peer.send(&frame(0x8A, b"unasked"));
            peer.send(&frame(0x80, b"llo"));
            assert_eq!(peer.text(&mut server), "hello");
            peer.send(&[frame(0x81, b"a"), frame(0x89, b"")].concat());
            let mut both = [peer.frame(&mut server), peer.frame(&mut server)];
            both.sort();
            assert_eq!(both, [(0x81, b"a".to_vec()), (0x8A, vec![])]);
        }
    });
}

#[test]
fn sim_what_breaks_the_protocol_is_told_its_code_after_the_answers_before_it() {
    let limits = Limits {
        message_bytes_max: 1000,
        fragments_max: 3,
        ..Limits::default()
    };
    let faults: [(Vec<u8>, u16); 8] = [
        (frame(0xF1, b"a"), 1002),
        (frame(0x83, b"a"), 1002),
        (frame(0x80, b"a"), 1002),
        (frame(0x88, &999_u16.to_be_bytes()), 1002),
        (vec![0x81, 1, b'a'], 1002),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x81, &[b'a'; 1001]), 1009),
        (
            frame(0x01, b"")
                .repeat(1)
                .into_iter()
                .chain(frame(0, b"").repeat(3))
                .collect(),
            1009,
        ),
    ];
    each_seed(20, |seed| {
        for websocket in kinds() {
            for (bytes, code) in &faults {
                let echo = Echo::default();
                let websocket = websocket.clone().limits(limits);
                let mut server = serve(Conditions::rough(seed), websocket, echo.factory());
                let peer = Peer::open(&mut server);
                peer.send(&[&frame(0x81, b"before"), &bytes[..], &frame(0x81, b"after")].concat());
                assert_eq!(peer.text(&mut server), "before");
                assert_eq!(peer.closed(&mut server), *code, "{bytes:?}");
                peer.client.shutdown_write();
                server.end();
                assert_eq!(echo.codes(), [*code], "{bytes:?}");
            }
        }
    });
}

/// The head of the answer to a request.
fn answer(request: &str) -> String {
    let websocket = WebSocket::inline().subprotocols(&["chat", "talk"]);
    let echo = |socket: &Socket, message: Message| {
        let _ = socket.send(message);
    };
    let accept = move |request: Request| websocket.accept(&request, echo);
    let mut server = TestServer::new(Conditions::calm(1), Http::pooled(accept));
    let client = server.connect();
    client.write(request.as_bytes());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head += &server.read_line(&client);
    }
    client.shutdown_write();
    head.to_lowercase()
}

#[test]
fn a_handshake_is_answered_as_section_4_2_2_says() {
    let head = answer(&handshake("Sec-WebSocket-Protocol: talk, chat\r\n"));
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "sec-websocket-protocol: chat",
    ] {
        assert!(
            head.contains(&format!("\r\n{line}\r\n")),
            "{line} in {head}"
        );
    }
    assert!(!head.contains("extensions"), "{head}");
    assert!(!answer(&handshake("")).contains("protocol:"));
}

#[test]
fn what_is_no_handshake_is_refused_with_its_reason() {
    let good = handshake("");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (request, status, line) in [
        (
            good.replace("Version: 13", "Version: 8"),
            426,
            "\r\nsec-websocket-version: 13\r\n",
        ),
        (
            good.replace("Sec-WebSocket-Version: 13\r\n", ""),
            426,
            "\r\nsec-websocket-version: 13\r\n",
        ),
        (
            good.replace("Upgrade: websocket", "Upgrade: h2c"),
            426,
            "\r\nupgrade: websocket\r\n",
        ),
        (
            good.replace("Connection: Upgrade\r\n", ""),
            426,
            "\r\nupgrade: websocket\r\n",
        ),
        (good.replace("GET", "POST"), 400, ""),
        (good.replace(key, ""), 400, ""),
        (good.replace(key, &key.repeat(2)), 400, ""),
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"), 400, ""),
        (
            good.replace("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ=="),
            400,
            "",
        ),
    ] {
        let head = answer(&request);
        assert!(
            head.starts_with(&format!("http/1.1 {status} ")),
            "{request}{head}"
        );
        assert!(head.contains(line), "{request}{head}");
    }
}

/// Panics when it is told to.
struct Fragile;

impl Handler for Fragile {
    fn message(&mut self, socket: &Socket, message: Message) {
        assert_ne!(message.text(), Some("panic"), "as it was told");
        let _ = socket.send(message);
    }
}

#[test]
fn sim_a_panic_of_the_handler_is_1011_for_its_own_client_alone() {
    each_seed(20, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let mut server = serve(Conditions::rough(seed), websocket, || Fragile);
            let (one, other) = (Peer::open(&mut server), Peer::open(&mut server));
            one.send(&[frame(0x81, b"a"), frame(0x81, b"panic"), frame(0x81, b"b")].concat());
            assert_eq!(one.text(&mut server), "a");
            assert_eq!(one.closed(&mut server), 1011);
            other.send(&frame(0x81, b"c"));
            assert_eq!(other.text(&mut server), "c");
            one.client.shutdown_write();
        }
    });
}

#[cfg(feature = "deflate")]
#[test]
fn sim_compressed_messages_are_inflated_within_the_limit_and_answered_compressed() {
    use flatpath_websocket::Deflate;
    // "Hello" of RFC 7692 section 7.2.3.1.
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    each_seed(20, |seed| {
        for websocket in kinds() {
            let limits = Limits {
                message_bytes_max: 299,
                ..Limits::default()
            };
            let options = Deflate {
                bytes_min: 0,
                ..Deflate::default()
            };
            let websocket = websocket.limits(limits).deflate(Some(options));
            let mut server = serve(
                Conditions::rough(seed),
                websocket,
                Echo::default().factory(),
            );
            let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
            let (peer, head) = Peer::open_with(&mut server, offer);
            assert!(head.contains(
                "\r\nsec-websocket-extensions: permessage-deflate; server_no_context_takeover; \
                 client_no_context_takeover\r\n"
            ));
            for (first, rest) in [(0x41, 0x80), (0xC1, 0)] {
                let cut = if rest == 0 { hello.len() } else { 3 };
                peer.send(&frame(first, &hello[..cut]));
                if rest != 0 {
                    peer.send(&frame(0x89, b"still"));
                    peer.send(&frame(rest, &hello[cut..]));
                    assert_eq!(peer.frame(&mut server), (0x8A, b"still".to_vec()));
                }
                // It would not be shorter.
                assert_eq!(peer.text(&mut server), "Hello");
            }
            // 300 times "a".
            peer.send(&frame(
                0xC2,
                &[0x4a, 0x4c, 0x1c, 0x05, 0xc4, 0x02, 0x00, 0x00],
            ));
            assert_eq!(peer.closed(&mut server), 1009);
            peer.client.shutdown_write();
        }
    });
}
