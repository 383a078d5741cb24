//! What a client of HTTP/2 may have open, cancel and leave unread, and that what waits for it, for
//! memory or for the end of a drain goes on: on a simulated server.

use std::sync::mpsc;
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{Body, Http, Request, Response, Router};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use h2::Reason;
use h2::client::Builder;

use crate::h2_client::Peer;
use crate::h2_frames::{
    DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, POST, RESET, WINDOW_UPDATE, frame,
    frames, greeting,
};

const SEEDS: u64 = 5;
/// Streams of a connection, and requests that may be cancelled beyond those that were answered.
const MAX: u32 = 100;

fn server(conditions: Conditions) -> TestServer {
    let router = Router::new()
        .get("/", || "hello")
        .get("/empty", || StatusCode::NO_CONTENT);
    TestServer::new(conditions, Http::service(router))
}

#[test]
fn sim_streams_that_were_reset_count_while_workers_have_their_jobs() {
    // A few, so that each of them is a request before it is reset.
    const ROUND: u32 = 16;
    each_seed(SEEDS, |seed| {
        let mut server = server(Conditions::calm(seed));
        let client = server.connect();
        client.write(&greeting());
        let (mut asked, mut heard) = (0, Vec::new());
        // At most three jobs are done in a turn.
        let refused = (0..30).any(|_| {
            let ids = asked..asked + ROUND;
            let mut say = |frame: &dyn Fn(u32) -> Vec<u8>| {
                let said: Vec<u8> = ids.clone().flat_map(|at| frame(2 * at + 1)).collect();
                client.write(&said);
                server.turn();
                server.turn();
            };
            say(&|id| frame(HEADERS, END_STREAM | END_HEADERS, id, GET));
            say(&|id| frame(RESET, 0, id, &[0, 0, 0, 8]));
            asked += ROUND;
            heard.extend(client.read());
            frames(&heard).contains(&(RESET, None))
        });
        assert!(
            refused && asked > MAX,
            "{asked} asked: {:?}",
            frames(&heard)
        );
    });
}

#[test]
fn sim_a_client_may_cancel_so_many_more_requests_than_it_takes_answers_of() {
    each_seed(SEEDS, |seed| {
        let mut server = server(Conditions::rough(seed));
        let mut builder = Builder::new();
        builder.initial_window_size(0);
        let mut peer = Peer::with(&mut server, &builder);
        // One by one, so that it is not `h2` which loses patience.
        let cancel = |peer: &mut Peer, server: &mut TestServer| {
            let index = peer.get("/");
            peer.until(server, |peer| peer.reply(index).status.is_some());
            peer.reset(index);
        };
        // What it takes now is no credit for later.
        peer.fetch(&mut server, "/empty");
        (0..MAX).for_each(|_| cancel(&mut peer, &mut server));
        assert_eq!(peer.fetch(&mut server, "/empty").end, Some(Ok(())));
        cancel(&mut peer, &mut server);
        server.settle();
        (0..100).for_each(|_| peer.step(&mut server));
        assert_eq!(peer.end, None, "so many are let pass");
        cancel(&mut peer, &mut server);
        peer.until(&mut server, |peer| peer.end.is_some());
        assert_eq!(peer.end, Some(Err(Some(Reason::ENHANCE_YOUR_CALM))));
    });
}

#[test]
fn sim_what_is_said_while_nothing_is_read_is_answered_when_it_is() {
    const PINGS: usize = 30_000;
    each_seed(1, |seed| {
        let mut server = server(Conditions::calm(seed));
        server.world().set_window_bytes(1000);
        let client = server.connect();
        client.write(&greeting());
        // Their answers are more than may wait.
        for flood in frame(PING, 0, 0, &[7; 8]).repeat(PINGS).chunks(8000) {
            client.write(flood);
            (0..4).for_each(|_| server.turn());
        }
        let (_, waits_bytes) = server.leaks();
        assert!(waits_bytes < 700_000, "{waits_bytes} bytes for one client");
        let mut heard = Vec::new();
        server.run_until(|| {
            heard.extend(client.read());
            let answers = frames(&heard);
            let answers = answers.iter().filter(|(kind, _)| *kind == PING);
            answers.count() == PINGS
        });
    });
}

#[test]
fn sim_a_request_on_its_way_when_a_drain_begins_is_answered() {
    each_seed(SEEDS, |seed| {
        let mut server = server(Conditions::calm(seed));
        let client = server.connect();
        let get = |id| frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
        client.write(&[greeting(), get(1)].concat());
        let mut heard = Vec::new();
        let mut answers = |server: &mut TestServer| {
            (0..40).for_each(|_| server.turn());
            heard.extend(client.read());
            let heads = frames(&heard);
            heads.iter().filter(|(kind, _)| *kind == HEADERS).count()
        };
        assert_eq!(answers(&mut server), 1);
        // Longer than a connection may rest in a drain.
        server.advance(Duration::from_secs(10));
        server.drain();
        assert_eq!(answers(&mut server), 1);
        server.advance(Duration::from_millis(100));
        client.write(&get(3));
        assert_eq!(answers(&mut server), 2);
    });
}

#[test]
fn sim_a_stream_that_is_fed_while_there_is_no_memory_goes_on_when_there_is() {
    let (streams, taken) = mpsc::channel();
    let http = Http::inline(move |_: Request| {
        let (sender, body) = Body::channel(10_000);
        streams.send(sender).expect("the test is there");
        Response::new(body)
    });
    let mut conditions = Conditions::calm(1);
    conditions.limits.buffer_bytes_max = 1 << 20;
    let mut server = TestServer::new(conditions, http);
    let client = server.connect();
    let get = frame(HEADERS, END_STREAM | END_HEADERS, 1, GET);
    client.write(&[greeting(), get].concat());
    (0..20).for_each(|_| server.turn());
    let sender = taken.try_recv().expect("a request");
    // Heads that do not end hold all that is left.
    let mut hoard = Vec::new();
    loop {
        let before = server.handle().pool_statistics().in_use_bytes;
        hoard.push(server.connect());
        let head = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 3000]].concat();
        hoard.last().expect("one").write(&head);
        (0..4).for_each(|_| server.turn());
        if server.handle().pool_statistics().in_use_bytes == before {
            break;
        }
    }
    assert!(hoard.len() > 100, "{} clients", hoard.len());
    let mut heard = client.read();
    sender.send("words").expect("its client is there");
    (0..20).for_each(|_| server.turn());
    heard.extend(client.read());
    assert!(!heard.ends_with(b"words"), "there is memory left");
    drop(hoard);
    server.run_until(|| {
        heard.extend(client.read());
        heard.ends_with(b"words")
    });
}

#[test]
fn sim_half_a_head_has_the_time_of_a_head_and_a_client_that_rests_its_own() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.limits.head_timeout = Duration::from_secs(2);
        conditions.limits.idle_timeout = Duration::from_secs(20);
        let mut server = server(conditions);
        let client = server.connect();
        let get = |id| frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
        let pass = |server: &mut TestServer| {
            (0..20).for_each(|_| server.turn());
            server.advance(Duration::from_secs(5));
            (0..20).for_each(|_| server.turn());
            client.read();
        };
        client.write(&[greeting(), get(1)].concat());
        pass(&mut server);
        assert_eq!(client.state(), ClientState::Open, "it rests");
        let (half, rest) = (&get(3)[..12], &get(3)[12..]);
        client.write(half);
        (0..20).for_each(|_| server.turn());
        client.write(rest);
        pass(&mut server);
        assert_eq!(client.state(), ClientState::Open, "it rests again");
        client.write(&get(5)[..12]);
        pass(&mut server);
        assert_ne!(client.state(), ClientState::Open);
    });
}

#[test]
fn sim_a_frame_that_means_nothing_is_as_long_under_way_as_a_head_may_be() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.limits.head_timeout = Duration::from_secs(2);
        conditions.limits.idle_timeout = Duration::from_secs(60);
        let mut server = server(conditions);
        let client = server.connect();
        client.write(&greeting());
        client.write(&frame(HEADERS, END_STREAM | END_HEADERS, 1, GET));
        server.settle();
        let unknown = frame(0x42, 0, 0, &[0; 100]);
        client.write(&unknown[..50]);
        server.settle();
        server.advance(Duration::from_secs(3));
        server.settle();
        let ended = frames(&client.read()).contains(&(GOAWAY, Some(0)));
        assert!(ended, "half of a frame waits");
        let client = server.connect();
        client.write(&greeting());
        client.write(&frame(HEADERS, END_STREAM | END_HEADERS, 1, GET));
        client.write(&unknown);
        server.settle();
        server.advance(Duration::from_secs(3));
        server.settle();
        let ended = frames(&client.read()).contains(&(GOAWAY, Some(0)));
        assert!(!ended, "it is idle");
    });
}

#[test]
fn sim_a_connection_that_its_client_leaves_ends_with_its_last_stream_however_that_ends() {
    let post = |more: &[u8]| frame(HEADERS, END_HEADERS, 1, &[POST, more].concat());
    let get = |more: &[u8]| {
        let block = [GET, more].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    let data = |flags, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    let one = b"\x0f\x0d\x011";
    let ends = [
        ("an answer", get(b"")),
        ("a malformed head", get(b"\x00\x01X\x01y")),
        (
            "an answer to half a request",
            [post(b""), data(END_STREAM, b"")].concat(),
        ),
        (
            "a reset by its client",
            [post(b""), frame(RESET, 0, 1, &[0, 0, 0, 8])].concat(),
        ),
        (
            "a window opened by 0",
            [post(b""), frame(WINDOW_UPDATE, 0, 1, &[0; 4])].concat(),
        ),
        (
            "more than was announced",
            [post(one), data(0, b"xy")].concat(),
        ),
        (
            "less than was announced",
            [post(one), data(END_STREAM, b"")].concat(),
        ),
        ("trailers without an end", [post(b""), post(b"")].concat()),
    ];
    for (name, said) in ends {
        let mut server = server(Conditions::calm(1));
        let client = server.connect();
        client.write(&[greeting(), said, frame(GOAWAY, 0, 0, &[0; 8])].concat());
        server.settle();
        let goodbye = frames(&client.read()).contains(&(GOAWAY, Some(0)));
        let is_open = client.state() == ClientState::Open;
        assert!(goodbye && !is_open, "{name}: {goodbye}, {is_open}");
    }
}
