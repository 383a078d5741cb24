//! Attacks on a server of HTTP/2, class by class: what a client says again and again that costs it
//! less than the server. Each ends its connection, or is a row of requests that are answered; and
//! whatever it is, other clients wait no longer for it, in turns and by the simulation's clock.
//!
//! | class                       | what it is known by                                |
//! |-----------------------------|----------------------------------------------------|
//! | reset by the client         | CVE-2023-44487, rapid reset                        |
//! | reset by the server's rule  | CVE-2025-8671, made you reset                      |
//! | CONTINUATION                | CVE-2024-27316                                     |
//! | HPACK                       | CVE-2016-6581, bombs                               |
//! | empty frames, padding       | CVE-2019-9518                                      |
//! | floods                      | CVE-2019-9511, 9512, 9514, 9515 and 9517           |

use std::time::Duration;

use flatpath_http::{Bytes, Http, Router, routing};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};
use h2::Reason;

use crate::h2_frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RESET,
    SETTINGS, WINDOW_UPDATE, frame, frames, greeting,
};

const SEEDS: u64 = 2;

/// What an attacker says at a time.
const PART_BYTES: usize = 8000;

/// All that an attacker says whose connection does not end, and one that is to end.
const LASTS_BYTES: usize = 200_000;
const SAID_BYTES_MAX: usize = 2 << 20;

/// What the server holds at most for all clients: an output, and what has arrived.
const HELD_BYTES_MAX: usize = 700_000;

/// What others wait at most for an answer from the network thread: to be received, answered and
/// sent, each with a part of the attacker's before it.
const TURNS_MAX: u32 = 12;
const WAIT_MAX: Duration = Duration::from_millis(8);

const CALM: Option<Reason> = Some(Reason::ENHANCE_YOUR_CALM);
const BROKEN: Option<Reason> = Some(Reason::COMPRESSION_ERROR);
/// Requests that are answered, on a connection that stays open.
const ANSWERED: Option<Reason> = None;

/// `GET http://h/`, and POST, of which no table gets anything: that has a bound of its own.
const GET: &[u8] = b"\x82\x86\x84\x01\x01h";
const POST: &[u8] = b"\x83\x86\x84\x01\x01h";

const PADDED: u8 = 0x8;
const PRIORITY_UPDATE: u8 = 0x10;
const UNKNOWN: u8 = 0x42;

/// An attack: what it is, what is said first, what is said then, again and again, with a number
/// for a stream that grows, and what ends the connection.
type Attack = (&'static str, Vec<u8>, fn(u32) -> Vec<u8>, Option<Reason>);

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &[0, 0, 0, 8])
}

fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// What the windows of streams begin with.
fn windows_of(bytes: u8) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, bytes])
}

/// A head that costs its stream: a name with a capital letter.
fn malformed(stream: u32) -> Vec<u8> {
    let block = [GET, b"\x00\x01X\x01y"].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

/// A GET whose head has this before it and after it.
fn get_with(stream: u32, before: &[u8], after: &[u8]) -> Vec<u8> {
    let block = [before, GET, after].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

fn server(seed: u64) -> TestServer {
    let router = Router::new()
        .get("/", || "hello")
        .post("/", |body: Bytes| body)
        .route("/now", routing::get(|| "hello").inline())
        .route("/long", routing::get(|| vec![b'x'; 300_000]).inline());
    TestServer::new(Conditions::calm(seed), Http::service(router))
}

/// A client that asks for one thing after the other, and what it says for each.
struct Other {
    client: Client,
    request: fn(u32) -> Vec<u8>,
    asked: u32,
}

/// One of each version.
fn others(server: &mut TestServer) -> [Other; 2] {
    let requests: [fn(u32) -> Vec<u8>; 2] = [
        |_| b"GET /now HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        |at| {
            let block = b"\x82\x86\x04\x04/now\x01\x01h";
            let get = frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, block);
            match at {
                0 => [greeting(), get].concat(),
                _ => get,
            }
        },
    ];
    requests.map(|request| Other {
        client: server.connect(),
        request,
        asked: 0,
    })
}

impl Other {
    /// Asks, and waits for the answer.
    fn is_answered(&mut self, server: &mut TestServer, attack: &str) {
        self.client.write(&(self.request)(self.asked));
        self.asked += 1;
        let (began, mut heard, mut turns) = (server.world().now(), Vec::new(), 0);
        while !heard.ends_with(b"hello") {
            server.turn();
            turns += 1;
            heard.extend(self.client.read());
            let waited = server.world().now() - began;
            assert!(
                turns <= TURNS_MAX && waited <= WAIT_MAX,
                "{attack}: another client waits, {turns} turns and {waited:?} by now"
            );
        }
    }
}

fn check(seed: u64, (name, begins, round, ends): &Attack) {
    let mut server = server(seed);
    let mut others = others(&mut server);
    others
        .iter_mut()
        .for_each(|other| other.is_answered(&mut server, "none"));
    let attacker = server.connect();
    let said_max = match ends {
        Some(_) => SAID_BYTES_MAX,
        None => LASTS_BYTES,
    };
    let (mut said, mut heard, mut rounds) = (0, Vec::new(), 0..);
    let mut part = [greeting(), begins.clone()].concat();
    while attacker.state() == ClientState::Open && said < said_max {
        while part.len() < PART_BYTES {
            part.extend(round(2 * rounds.next().expect("endless") + 1));
        }
        attacker.write(&part);
        said += part.len();
        part.clear();
        for other in &mut others {
            other.is_answered(&mut server, name);
        }
        heard.extend(attacker.read());
        let (_, held_bytes) = server.leaks();
        assert!(held_bytes < HELD_BYTES_MAX, "{name}: {held_bytes} bytes");
    }
    server.settle();
    heard.extend(attacker.read());
    let is_open = attacker.state() == ClientState::Open;
    assert_eq!(
        is_open,
        ends.is_none(),
        "{name}, seed {seed}: after {said} bytes"
    );
    let goodbyes = frames(&heard).into_iter().filter(|it| it.0 == GOAWAY);
    let goodbyes: Vec<_> = goodbyes.map(|it| it.1).collect();
    let expected: Vec<_> = ends.iter().map(|it| Some(u32::from(*it) as u8)).collect();
    assert_eq!(
        goodbyes, expected,
        "{name}, seed {seed}: after {said} bytes"
    );
}

fn check_all(attacks: &[Attack]) {
    each_seed(SEEDS, |seed| {
        attacks.iter().for_each(|attack| check(seed, attack));
    });
}

#[test]
fn sim_resets_by_the_client_end_its_connection_and_others_do_not_wait() {
    check_all(&[
        (
            "requests",
            vec![],
            |stream| [get(stream), reset(stream)].concat(),
            CALM,
        ),
        (
            "uploads",
            vec![],
            |stream| {
                let data = frame(DATA, 0, stream, b"body");
                [post(stream), data, reset(stream)].concat()
            },
            CALM,
        ),
        (
            "answers that have begun",
            windows_of(0),
            |stream| {
                let before = stream.checked_sub(2).map(reset);
                [get(stream), before.unwrap_or_default()].concat()
            },
            CALM,
        ),
    ]);
}

#[test]
fn sim_resets_by_the_servers_rule_end_the_connection_and_others_do_not_wait() {
    check_all(&[
        (
            "a window opened by nothing",
            vec![],
            |stream| [post(stream), window(stream, 0)].concat(),
            CALM,
        ),
        (
            "a window that is too large",
            vec![],
            |stream| [post(stream), window(stream, i32::MAX as u32)].concat(),
            CALM,
        ),
        (
            "data after the end",
            windows_of(0),
            |stream| [get(stream), frame(DATA, 0, stream, b"x")].concat(),
            CALM,
        ),
        (
            "a second head",
            windows_of(0),
            |stream| [get(stream), get(stream)].concat(),
            CALM,
        ),
        (
            "streams that depend on themselves",
            vec![],
            |stream| {
                let own = [&stream.to_be_bytes()[..], &[15]].concat();
                [post(stream), frame(PRIORITY, 0, stream, &own)].concat()
            },
            CALM,
        ),
        (
            "PRIORITY of four bytes",
            vec![],
            |stream| [post(stream), frame(PRIORITY, 0, stream, &[0; 4])].concat(),
            CALM,
        ),
        (
            "more than was announced",
            vec![],
            |stream| {
                let block = [POST, b"\x0f\x0d\x011"].concat();
                let head = frame(HEADERS, END_HEADERS, stream, &block);
                [head, frame(DATA, 0, stream, b"xy")].concat()
            },
            CALM,
        ),
        (
            "less than was announced",
            vec![],
            |stream| {
                let block = [POST, b"\x0f\x0d\x019"].concat();
                let head = frame(HEADERS, END_HEADERS, stream, &block);
                [head, frame(DATA, END_STREAM, stream, b"xy")].concat()
            },
            CALM,
        ),
        ("malformed heads", vec![], malformed, CALM),
    ]);
}

#[test]
fn sim_blocks_and_tables_are_bounded_and_others_do_not_wait() {
    let begins = || frame(HEADERS, END_STREAM, 1, GET);
    // An entry of the table, of 3,000 bytes.
    const ENTRY: &[u8] = b"\x40\x01x\x7f\xb9\x16";
    let entry = [ENTRY, &[b'v'; 3000]].concat();
    check_all(&[
        (
            "a block without an end",
            begins(),
            |_| frame(CONTINUATION, 0, 1, &[0; 5000]),
            CALM,
        ),
        (
            "a block of small frames",
            begins(),
            |_| frame(CONTINUATION, 0, 1, b"x"),
            CALM,
        ),
        (
            "a block of empty frames",
            begins(),
            |_| frame(CONTINUATION, 0, 1, b""),
            CALM,
        ),
        (
            "a table that is filled anew",
            vec![],
            |stream| get_with(stream, b"", &[ENTRY, &[b'v'; 3000]].concat()),
            BROKEN,
        ),
        (
            "a long entry again and again",
            get_with(1, b"", &entry),
            |stream| get_with(stream + 2, b"", &[0xbe; 4000]),
            ANSWERED,
        ),
        (
            "a table of one size and then another",
            vec![],
            |stream| get_with(stream, &b"\x20\x3f\xe1\x1f".repeat(1000), b""),
            ANSWERED,
        ),
    ]);
}

#[test]
fn sim_frames_that_are_empty_or_of_streams_that_are_gone_end_the_connection() {
    check_all(&[
        ("DATA", post(1), |_| frame(DATA, 0, 1, b""), CALM),
        ("SETTINGS", vec![], |_| frame(SETTINGS, 0, 0, b""), CALM),
        (
            "frames of no kind",
            vec![],
            |_| frame(UNKNOWN, 0, 0, b""),
            CALM,
        ),
        (
            "padding alone",
            post(1),
            |_| frame(DATA, PADDED, 1, b"\0"),
            CALM,
        ),
        (
            "data of a stream that was reset",
            malformed(1),
            |_| frame(DATA, 0, 1, b"x"),
            CALM,
        ),
        (
            "heads of a stream that was reset",
            malformed(1),
            |_| get(1),
            CALM,
        ),
        (
            "streams beyond those that there may be",
            (0..100).flat_map(|at| post(2 * at + 1)).collect(),
            |stream| post(stream + 200),
            CALM,
        ),
        (
            "resets of a stream that is gone",
            get(1),
            |_| reset(1),
            CALM,
        ),
    ]);
}

#[test]
fn sim_floods_end_the_connection_and_others_do_not_wait() {
    let block = b"\x82\x86\x04\x05/long\x01\x01h";
    let long = frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
    check_all(&[
        ("PING", vec![], |_| frame(PING, 0, 0, &[7; 8]), CALM),
        (
            "answers to no PING",
            vec![],
            |_| frame(PING, ACK, 0, &[7; 8]),
            CALM,
        ),
        (
            "answers to no SETTINGS",
            vec![],
            |_| frame(SETTINGS, ACK, 0, b""),
            CALM,
        ),
        (
            "windows that flap",
            post(1),
            |_| [windows_of(0), windows_of(200)].concat(),
            CALM,
        ),
        (
            "a window of one byte at a time",
            [windows_of(0), long].concat(),
            |_| window(1, 1),
            CALM,
        ),
        ("the connection's window", vec![], |_| window(0, 1), CALM),
        (
            "PRIORITY",
            vec![],
            |stream| frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 7]),
            CALM,
        ),
        (
            "PRIORITY_UPDATE",
            vec![],
            |_| frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"),
            CALM,
        ),
        ("GOAWAY", post(1), |_| frame(GOAWAY, 0, 0, &[0; 8]), CALM),
    ]);
}
