//! From one state of a connection of HTTP/2 to the next: what a client hears in a drain, what
//! wakes a reply that waits, and what time begins anew when.

use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{
    BodyPlan, Disposition, Head, Http, IntoResponse, Plan, Reply, Request, Response, Router,
    Service, Turn, UploadDecision, WorkerScope,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_frames::{
    ACK, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, POST, RESET, SETTINGS,
    WINDOW_UPDATE, frame, frames, greeting, whole_frames,
};

const SEEDS: u64 = 5;
const LONG: usize = 3 << 20;

fn router() -> Router {
    Router::new()
        .get("/", || "hello")
        .get("/long", || vec![b'x'; LONG])
}

fn server(conditions: Conditions) -> TestServer {
    TestServer::new(conditions, Http::service(router()))
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

/// `GET http://h/long`.
fn long(stream: u32) -> Vec<u8> {
    let block = b"\x82\x86\x41\x01h\x04\x05/long";
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

fn turns(server: &mut TestServer) {
    (0..40).for_each(|_| server.turn());
}

/// The last stream that a GOAWAY names, of each in order.
fn goodbyes(heard: &[u8]) -> Vec<u32> {
    let frames = whole_frames(heard).into_iter();
    let goodbyes = frames.filter(|it| it.kind == GOAWAY);
    let last = |payload: &[u8]| u32::from_be_bytes(payload[..4].try_into().expect("a stream"));
    goodbyes.map(|it| last(it.payload)).collect()
}

fn statuses(heard: &[u8]) -> usize {
    let heads = frames(heard);
    heads.iter().filter(|(kind, _)| *kind == HEADERS).count()
}

/// RFC 9113 6.8: the first goodbye lets requests on their way in, the second follows what its
/// client has seen of the first.
fn says_goodbye_twice(server: &mut TestServer, client: &Client, mut heard: Vec<u8>, next: u32) {
    assert_eq!(goodbyes(&heard), [i32::MAX as u32], "the first, at once");
    let frames = whole_frames(&heard);
    let asked = frames.iter().rfind(|it| it.kind == PING).expect("a PING");
    assert_eq!(asked.flags, 0);
    let pong = frame(PING, ACK, 0, asked.payload);
    let before = statuses(&heard);
    client.write(&get(next));
    turns(server);
    heard.extend(client.read());
    assert_eq!(statuses(&heard), before + 1, "it was on its way");
    assert_eq!(client.state(), ClientState::Open);
    client.write(&pong);
    turns(server);
    heard.extend(client.read());
    assert_eq!(goodbyes(&heard), [i32::MAX as u32, next]);
    assert_eq!(client.state(), ClientState::Finished);
}

#[test]
fn sim_a_client_that_has_asked_is_told_of_a_drain_at_once_and_asks_once_more() {
    each_seed(SEEDS, |seed| {
        let mut server = server(Conditions::calm(seed));
        let client = server.connect();
        client.write(&[greeting(), get(1)].concat());
        turns(&mut server);
        let mut heard = client.read();
        assert_eq!((statuses(&heard), goodbyes(&heard).len()), (1, 0));
        server.drain();
        turns(&mut server);
        heard.extend(client.read());
        says_goodbye_twice(&mut server, &client, heard, 3);
    });
}

#[test]
fn sim_a_client_that_has_not_asked_is_told_when_it_has_rested_and_may_ask_then() {
    each_seed(SEEDS, |seed| {
        let conditions = Conditions::calm(seed);
        let idle = conditions.limits.drain_idle_timeout;
        let mut server = server(conditions);
        let client = server.connect();
        client.write(&greeting());
        turns(&mut server);
        server.drain();
        turns(&mut server);
        let mut heard = client.read();
        assert_eq!(goodbyes(&heard).len(), 0, "its request may be on its way");
        server.advance(idle + Duration::from_millis(1));
        turns(&mut server);
        heard.extend(client.read());
        assert_eq!(client.state(), ClientState::Open);
        says_goodbye_twice(&mut server, &client, heard, 1);
    });
}

/// Nothing of the client moves it: its windows are wide from the beginning.
#[test]
fn sim_a_long_reply_goes_on_when_the_output_has_room() {
    let mut server = server(Conditions::calm(1));
    server.world().set_window_bytes(1000);
    let client = server.connect();
    let wide = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let all = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    client.write(&[greeting(), wide, all, long(1)].concat());
    let mut heard = Vec::new();
    server.run_until(|| {
        heard.extend(client.read());
        let data = whole_frames(&heard);
        let data = data.iter().filter(|it| it.kind == DATA);
        data.map(|it| it.payload.len()).sum::<usize>() == LONG
    });
}

#[test]
fn sim_half_a_head_that_comes_as_a_stream_ends_has_its_own_time() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.limits.head_timeout = Duration::from_secs(2);
        let mut server = server(conditions);
        let client = server.connect();
        let narrow = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        client.write(&[greeting(), narrow, get(1)].concat());
        turns(&mut server);
        assert_eq!(statuses(&client.read()), 1, "it waits for a window");
        server.advance(Duration::from_millis(1500));
        let opens = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0]);
        client.write(&[&opens[..], &get(3)[..12]].concat());
        turns(&mut server);
        let mut goodbyes_after = |time| {
            server.advance(Duration::from_millis(time));
            turns(&mut server);
            goodbyes(&client.read()).len()
        };
        assert_eq!(goodbyes_after(1500), 0, "that was the stream's time");
        assert_eq!(goodbyes_after(1500), 1);
    });
}

/// Answers an upload before its body.
struct Early;

impl Service for Early {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        Plan {
            body: BodyPlan::Streamed,
            ..Plan::default()
        }
    }

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn open(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        UploadDecision::Response(StatusCode::NO_CONTENT.into_response())
    }

    fn pooled(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        "whole".into_response()
    }
}

#[test]
fn sim_an_upload_that_was_answered_early_is_thrown_away_to_its_end() {
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(Conditions::calm(seed), Http::service(Early));
        let client = server.connect();
        client.write(&[greeting(), frame(HEADERS, END_HEADERS, 1, POST)].concat());
        turns(&mut server);
        let mut heard = client.read();
        assert_eq!(statuses(&heard), 1);
        let said = frame(DATA, 0, 1, &[b'x'; 1000]).repeat(600);
        for part in said.chunks(8000) {
            client.write(part);
            (0..4).for_each(|_| server.turn());
        }
        client.write(&frame(DATA, END_STREAM, 1, b""));
        server.settle();
        heard.extend(client.read());
        let frames = frames(&heard);
        assert!(!frames.iter().any(|(kind, _)| *kind == RESET), "{frames:?}");
        // And its windows were opened for it.
        assert!(frames.iter().any(|(kind, _)| *kind == WINDOW_UPDATE));
    });
}

/// A reply without a body sends nothing that a client could be borne with for.
#[test]
fn sim_a_request_does_something_whatever_its_reply() {
    // Less than may be sent for nothing beside such a head.
    const PINGS: usize = 50;
    let mut server = server(Conditions::calm(1));
    let client = server.connect();
    client.write(&greeting());
    let head = [
        &b"\x86\x84\x01\x01h\x02\x04HEAD\x00\x01x\x64"[..],
        &[b'x'; 100],
    ]
    .concat();
    let (mut idle_bytes, mut answers) = (0, 0);
    for at in 0..1400 {
        let asked = frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &head);
        let pings = frame(PING, 0, 0, &[7; 8]).repeat(PINGS);
        idle_bytes += pings.len();
        client.write(&[asked, pings].concat());
        (0..4).for_each(|_| server.turn());
        answers += statuses(&client.read());
    }
    server.settle();
    answers += statuses(&client.read());
    assert!(
        idle_bytes > 1024 * 1024,
        "{idle_bytes} bytes are borne with"
    );
    assert_eq!((client.state(), answers), (ClientState::Open, 1400));
}
