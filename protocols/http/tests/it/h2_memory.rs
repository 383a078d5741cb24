//! What connections that speak HTTP/2 hold is of one account, and what others need is left to them:
//! on a simulated server, with clients that rest, do not read, or send half of what they begin.

use std::time::Duration;

use allocation_counter::measure;
use flatpath::Limits;
use flatpath_http::{Http, Request, Router};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_frames::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, GET, HEADERS, POST, SETTINGS, WINDOW_UPDATE, frame,
    greeting,
};

fn http() -> Http<Router> {
    let router = Router::new()
        // Short enough not to be charged while it does not wait.
        .get("/", || "x".repeat(2000))
        .post("/", |request: Request| request.into_body());
    Http::service(router)
}

fn server(seed: u64, limits: Limits) -> TestServer {
    let mut conditions = Conditions::calm(seed);
    conditions.limits = limits;
    TestServer::new(conditions, http())
}

fn say(server: &mut TestServer, client: &Client, said: &[u8]) {
    for part in said.chunks(8000) {
        if client.state() == ClientState::Open {
            client.write(part);
        }
        (0..4).for_each(|_| server.turn());
    }
}

/// Many headers in few bytes, without an end: an index of the static table each.
fn half_a_block() -> Vec<u8> {
    let mut block = GET.to_vec();
    block.extend([0x90; 700]);
    [
        frame(HEADERS, END_STREAM, 1, &block),
        frame(CONTINUATION, 0, 1, b""),
    ]
    .concat()
}

/// Entries of the table of headers, each in a piece of memory of its own: what is between them is
/// of a kind that nobody knows.
fn full_table() -> Vec<u8> {
    let entry = [GET, b"\x40\x01x\x01y"].concat();
    let apart = frame(0xee, 0, 0, &[0; 8000]);
    (0..120)
        .flat_map(|at| {
            let get = frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &entry);
            [get, apart.clone()].concat()
        })
        .collect()
}

/// What kinds of clients say after their greeting.
fn kinds() -> [(&'static str, Vec<u8>); 5] {
    let get = |id| frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
    let post = |id| frame(HEADERS, END_HEADERS, id, POST);
    let streams = |of: &dyn Fn(u32) -> Vec<u8>| (0..90).flat_map(|at| of(2 * at + 1)).collect();
    // Nothing may be sent to them.
    let closed = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [
        ("rest", get(1)),
        // Of a stream that cannot begin any more.
        (
            "say how urgent nothing is",
            [get(3), frame(0x10, 0, 0, b"\0\0\0\x01u=1")].concat(),
        ),
        ("send no body", streams(&post)),
        ("take no body", [closed, streams(&get)].concat()),
        ("send half a head", half_a_block()),
    ]
}

/// What each of many clients that say this has the server hold, and what it is charged, in bytes.
fn each(said: &[u8]) -> (i64, i64) {
    const CLIENTS: usize = 20;
    let mut server = server(1, Limits::default());
    let connect = |server: &mut TestServer| {
        let client = server.connect();
        say(server, &client, said);
        server.settle();
        client.read();
        client
    };
    // What the first one leaves is used again.
    drop(connect(&mut server));
    server.settle();
    let charged = |server: &TestServer| server.handle().pool_statistics().in_use_bytes as i64;
    let before = charged(&server);
    let mut clients = Vec::with_capacity(CLIENTS);
    let counted = measure(|| (0..CLIENTS).for_each(|_| clients.push(connect(&mut server))));
    let each = |bytes: i64| bytes / CLIENTS as i64;
    (each(counted.bytes_current), each(charged(&server) - before))
}

#[test]
fn sim_what_connections_hold_is_charged() {
    // The connection's own place, and what its client takes here.
    let (place, _) = each(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    for (kind, said) in kinds() {
        let (held, charged) = each(&[greeting(), said].concat());
        let held = held - place;
        assert!(
            held <= charged,
            "who {kind}: {held} bytes held, {charged} charged"
        );
        assert!(
            charged <= 2 * held,
            "who {kind}: {held} bytes held, {charged} charged"
        );
    }
}

#[test]
fn sim_what_a_table_of_headers_keeps_is_charged_until_the_client_knows_of_none() {
    let window = frame(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]);
    let fills = [greeting(), window, full_table()].concat();
    let (_, full) = each(&fills);
    let knows = frame(SETTINGS, ACK, 0, b"");
    let (_, empty) = each(&[fills, knows].concat());
    let table = full - empty;
    assert!((4096..6000).contains(&table), "{empty} bytes of {full}");
}

#[test]
fn sim_connections_that_move_nothing_make_room_for_others() {
    const BUDGET: usize = 4 << 20;
    const CLIENTS: usize = 600;
    for (kind, said) in kinds() {
        each_seed(1, |seed| {
            let limits = Limits {
                buffer_bytes_max: BUDGET,
                ..Limits::default()
            };
            let mut server = server(seed, limits);
            let mut clients = Vec::with_capacity(CLIENTS);
            let counted = measure(|| {
                for _ in 0..CLIENTS {
                    let client = server.connect();
                    say(&mut server, &client, &greeting());
                    say(&mut server, &client, &said);
                    client.read();
                    server.advance(Duration::from_millis(20));
                    clients.push(client);
                }
            });
            let held = counted.bytes_current;
            assert!(
                held < 2 * BUDGET as i64,
                "seed {seed}, who {kind}: {held} bytes"
            );
            // Those that hold it are ended while one waits.
            let served = (0..50).find(|_| newcomer_is_served(&mut server));
            assert!(served.is_some(), "seed {seed}, who {kind}");
        });
    }
}

fn newcomer_is_served(server: &mut TestServer) -> bool {
    let client = server.connect();
    let get = frame(HEADERS, END_STREAM | END_HEADERS, 1, GET);
    client.write(&[greeting(), get].concat());
    let mut heard = Vec::new();
    for _ in 0..200 {
        server.advance(Duration::from_millis(1));
        server.turn();
        heard.extend(client.read());
    }
    heard.ends_with(&[b'x'; 1000])
}
