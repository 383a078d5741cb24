//! From one state of a connection of HTTP/2 to the next: what a client hears in a drain, what
//! wakes a reply that waits, and what time begins anew when.

use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{
    BodyPlan, Disposition, Head, Http, IntoResponse, Plan, Reply, Request, Response, Router,
    Service, TimeOut, Turn, UploadDecision, WorkerScope,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

use crate::h2_frames::{
    ACK, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, POST, RESET, SETTINGS,
    WINDOW_UPDATE, frame, frames, greeting, whole_frames,
};
use crate::tunnels;

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

fn turns_without_workers(server: &mut TestServer) {
    (0..10).for_each(|_| server.turn_without_workers());
}

/// Says this in pieces that a connection receives.
fn say(server: &mut TestServer, client: &Client, said: &[u8]) {
    for part in said.chunks(8000) {
        client.write(part);
        (0..4).for_each(|_| server.turn_without_workers());
    }
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &[0, 0, 0, 8])
}

/// An extended CONNECT of `lines`.
fn connect(path: &str) -> Vec<u8> {
    let head = b"\x02\x07CONNECT\x86\x41\x01h\x00\x09:protocol\x05lines\x04";
    [&head[..], &[path.len() as u8], path.as_bytes()].concat()
}

/// Of each tunnel something was said and not taken, in all more than the window of a connection.
/// For other ends see `tunnels`.
#[test]
fn sim_a_connection_has_its_window_back_when_a_tunnel_ends_itself() {
    const SAID_BYTES: usize = 16_000;
    const WINDOW_BYTES: usize = 1024 * 1024;
    let http = tunnels::service(&tunnels::Told::default());
    let mut server = TestServer::new(Conditions::calm(1), http);
    let client = server.connect();
    say(&mut server, &client, &greeting());
    for at in 0..=WINDOW_BYTES / SAID_BYTES {
        let stream = 2 * at as u32 + 1;
        let asked = frame(HEADERS, END_HEADERS, stream, &connect("/lines"));
        say(&mut server, &client, &asked);
        turns(&mut server);
        let said = [&b"close\n"[..], &[b'x'; SAID_BYTES]].concat();
        say(&mut server, &client, &frame(DATA, 0, stream, &said));
        turns(&mut server);
        let heard = client.read();
        assert_eq!(goodbyes(&heard).len(), 0, "{:?}", frames(&heard));
    }
    assert_eq!(client.state(), ClientState::Open);
}

#[test]
fn sim_a_client_that_sends_on_after_the_end_hears_why_it_ended() {
    each_seed(SEEDS, |seed| {
        let mut server = server(Conditions::calm(seed));
        let client = server.connect();
        client.write(&[greeting(), frame(PING, 0, 0, &[0; 7])].concat());
        client.write(&get(1).repeat(100));
        turns(&mut server);
        client.write(&get(1).repeat(100));
        turns(&mut server);
        assert_eq!(goodbyes(&client.read()), [0]);
        assert_eq!(client.state(), ClientState::Finished, "and not reset");
    });
}

#[test]
fn sim_a_client_whose_place_is_wanted_is_told_though_its_stream_waits() {
    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_max = 1;
    let mut server = server(conditions);
    let client = server.connect();
    let narrow = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.write(&[greeting(), narrow, get(1)].concat());
    turns(&mut server);
    assert_eq!(statuses(&client.read()), 1, "it waits for a window");
    let newcomer = server.connect();
    newcomer.write(&[greeting(), get(1)].concat());
    turns(&mut server);
    assert_eq!(server.statistics().connections_evicted, 1);
    assert_eq!(goodbyes(&client.read()), [1]);
    assert_eq!(statuses(&newcomer.read()), 1);
}

#[test]
fn sim_a_stream_that_was_reset_is_not_answered_though_no_worker_began_in_time() {
    const TIME: Duration = Duration::from_secs(1);
    for is_reset in [false, true] {
        let timed = Router::new().get("/", || "hello");
        let http = Http::service(timed.layer(TimeOut::after(TIME)));
        let mut server = TestServer::new(Conditions::calm(1), http);
        let client = server.connect();
        client.write(&[greeting(), get(1)].concat());
        turns_without_workers(&mut server);
        if is_reset {
            client.write(&reset(1));
        }
        turns_without_workers(&mut server);
        server.advance(2 * TIME);
        turns_without_workers(&mut server);
        assert_eq!(statuses(&client.read()), usize::from(!is_reset));
    }
}

/// Each request is answered on the spot, and by far more than it is long.
#[test]
fn sim_no_request_is_read_while_answers_wait_for_their_client() {
    const REPLY_BYTES: usize = 1500;
    // What an output has, beside what is received at once.
    const BOUND: usize = 1 << 20;
    let http = Http::inline(|_: Request| Response::new(vec![b'x'; REPLY_BYTES].into()));
    let mut server = TestServer::new(Conditions::calm(1), http);
    server.world().set_window_bytes(1000);
    let client = server.connect();
    let wide = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let all = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    say(&mut server, &client, &[greeting(), wide, all].concat());
    let asked: Vec<u8> = (0..3000).flat_map(|at| get(2 * at + 1)).collect();
    client.write(&asked);
    turns(&mut server);
    let held = server.handle().pool_statistics().in_use_bytes;
    assert!(held < BOUND, "{held} bytes for one client");
    let (mut heard, mut answers) = (Vec::new(), 0);
    server.run_until(|| {
        heard.extend(client.read());
        answers = statuses(&heard);
        answers == 3000
    });
}

/// What is answered, by the first byte of its block.
fn answered(http: Http<impl Service>, flags: u8, block: &[u8]) -> u8 {
    let mut server = TestServer::new(Conditions::calm(1), http);
    let client = server.connect();
    client.write(&[greeting(), frame(HEADERS, END_HEADERS | flags, 1, block)].concat());
    turns(&mut server);
    let heard = client.read();
    let frames = whole_frames(&heard);
    let first = frames.iter().find(|it| it.stream == 1);
    let first = first.expect("it is answered");
    assert_eq!(first.kind, HEADERS);
    first.payload[0]
}

#[test]
fn sim_what_a_service_cannot_answer_so_is_no_answer() {
    // Of the static table: 200, 500.
    const OK: u8 = 0x88;
    const INTERNAL: u8 = 0x8e;
    let hello = || Http::inline(|_: Request| "hello".into_response());
    assert_eq!(answered(hello(), END_STREAM, GET), OK);
    // Any 2xx would open it.
    assert_ne!(answered(hello(), 0, &connect("/lines")), OK);
    let pooled = Http::pooled(|_: Request| "hello".into_response());
    assert_ne!(answered(pooled, 0, &connect("/lines")), OK);
    let early = Http::inline(|_: Request| StatusCode::CONTINUE.into_response());
    assert_eq!(answered(early, END_STREAM, GET), INTERNAL);
}
