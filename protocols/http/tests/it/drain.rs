//! A drain on a simulated server: a client whose last reply did not say that it was the last may
//! send another request, and is answered.

use std::sync::mpsc;
use std::time::Duration;

use flatpath_http::http::header;
use flatpath_http::sse::Broadcast;
use flatpath_http::{
    Body, Decoder, Framing, Head, Http, Piece, Request, Response, Route, Sender, Service,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

const SEEDS: u64 = 40;

/// More than the client's window and the output hold.
const LONG: usize = 600_000;

/// What a client asks for: each kind of body, from the network thread and from a worker.
const PATHS: [&str; 9] = [
    "/inline/short",
    "/inline/long",
    "/inline/reader",
    "/inline/chunks",
    "/inline/channel",
    "/pooled/short",
    "/pooled/long",
    "/pooled/reader",
    "/pooled/channel",
];

/// Replies of each kind, and the senders of those that are fed from elsewhere.
fn site() -> (Http<impl Service>, mpsc::Receiver<Sender>) {
    let (streams, taken) = mpsc::channel();
    let handler = move |request: Request| {
        let path = request.uri().path();
        let content = std::io::Cursor::new(vec![b'x'; LONG]);
        Response::new(match &path["/inline/".len()..] {
            "channel" => {
                let (sender, body) = Body::channel(10_000);
                streams.send(sender).expect("the test is there");
                body
            }
            "reader" => Body::reader(content, Some(LONG as u64)),
            "chunks" => Body::reader(content, None),
            "long" => vec![b'x'; LONG].into(),
            _ => "short".into(),
        })
    };
    let route = |head: &Head<'_>| match head.path().starts_with("/inline") {
        true => Route::Inline,
        false => Route::Pooled,
    };
    (Http::routed(route, handler), taken)
}

/// The bytes of the first reply with its head, once all of it has arrived.
fn reply_bytes(arrived: &[u8]) -> Option<(usize, String)> {
    let head = arrived.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&arrived[..head]).into_owned();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map(|length| length.parse().expect("a number"));
    let mut rest = &arrived[head..];
    let mut decoder = Decoder::new(length.map_or(Framing::Chunked, Framing::Length));
    loop {
        match decoder.next(&mut rest).expect("it is well formed") {
            Piece::Data(_) => {}
            Piece::More => return None,
            Piece::End => return Some((arrived.len() - rest.len(), text)),
        }
    }
}

/// Reads the next reply while streams that are fed from elsewhere end, and gives its head; None
/// where the connection has ended before it.
fn reply(
    server: &mut TestServer,
    client: &Client,
    arrived: &mut Vec<u8>,
    taken: &mpsc::Receiver<Sender>,
) -> Option<String> {
    let mut found = None;
    server.run_until(|| {
        drop(taken.try_iter().collect::<Vec<_>>());
        // The state before the bytes: what is there at the end is read.
        let state = client.state();
        arrived.extend(client.read());
        found = reply_bytes(arrived);
        found.is_some() || state != ClientState::Open
    });
    let (bytes, head) = found?;
    arrived.drain(..bytes);
    Some(head)
}

fn ask(client: &Client, path: &str) {
    client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
}

/// The reply is anywhere between its request and its last byte when the drain begins.
#[test]
fn sim_a_request_after_a_reply_that_promised_more_is_answered_in_a_drain() {
    for path in PATHS {
        let promised = each_seed(SEEDS, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (http, taken) = site();
            let mut conditions = Conditions::calm(seed);
            // The requests are there long before.
            conditions.limits.drain_idle_timeout = Duration::from_secs(20);
            let mut server = TestServer::new(conditions, http);
            server.world().set_window_bytes(64 * 1024);
            let client = server.connect();
            ask(&client, path);
            let pipelined = random.usize(..4).saturating_sub(1);
            (0..pipelined).for_each(|_| ask(&client, "/pooled/short"));
            let mut arrived = Vec::new();
            while server.statistics().connections_accepted == 0 {
                server.turn();
            }
            for _ in 0..random.u8(..30) {
                server.turn();
                arrived.extend(client.read_at_most(random.usize(..20_000)));
            }
            server.drain();
            (0..random.u8(..4)).for_each(|_| server.turn());
            let mut asked = 1 + pipelined;
            for number in 0.. {
                let head = reply(&mut server, &client, &mut arrived, &taken);
                let head = head.unwrap_or_else(|| panic!("reply {number} of {asked} is lost"));
                if head.contains("\r\nConnection: close\r\n") {
                    break;
                }
                if number + 1 == asked {
                    ask(&client, "/pooled/short");
                    asked += 1;
                }
            }
            assert_eq!(server.read_to_end(&client), b"");
            asked - pipelined - 1
        });
        assert!(
            promised.iter().all(|more| *more <= 1),
            "{path}: {promised:?}"
        );
    }
}

/// A client may offer an upgrade with each request, as some do for HTTP/2.
#[test]
fn sim_a_reply_in_a_drain_announces_the_end_also_where_an_upgrade_was_offered() {
    for path in PATHS {
        each_seed(SEEDS, |seed| {
            let (http, taken) = site();
            let mut conditions = Conditions::calm(seed);
            conditions.limits.drain_idle_timeout = Duration::from_secs(20);
            let mut server = TestServer::new(conditions, http);
            let client = server.connect();
            let mut arrived = Vec::new();
            ask(&client, "/pooled/short");
            reply(&mut server, &client, &mut arrived, &taken).expect("it is served");
            server.drain();
            server.turn();
            let offer = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
            client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{offer}\r\n").as_bytes());
            let head = reply(&mut server, &client, &mut arrived, &taken).expect("a reply");
            assert!(head.contains("\r\nConnection: close\r\n"), "{path}: {head}");
            assert_eq!(server.read_to_end(&client), b"");
        });
    }
}

/// Who says nothing more is let go after the time of an idle connection, and not before.
#[test]
fn sim_a_client_that_asks_for_nothing_more_has_the_idle_time_after_its_reply() {
    for path in PATHS {
        let (http, taken) = site();
        let conditions = Conditions::calm(1);
        let idle = conditions.limits.drain_idle_timeout;
        let mut server = TestServer::new(conditions, http);
        server.world().set_window_bytes(64 * 1024);
        let client = server.connect();
        ask(&client, path);
        server.settle();
        server.drain();
        // It reads late, whatever is in flight.
        server.advance(idle * 3);
        (0..10).for_each(|_| server.turn());
        let head = reply(&mut server, &client, &mut Vec::new(), &taken);
        let head = head.unwrap_or_else(|| panic!("{path}: the reply is lost"));
        let is_long = !path.ends_with("short");
        assert!(!head.contains("\r\nConnection: close\r\n"), "{path}");
        if is_long {
            server.advance(idle / 2);
            (0..10).for_each(|_| server.turn());
            assert_eq!(client.state(), ClientState::Open, "{path}");
        }
        assert_eq!(server.read_to_end(&client), b"");
    }
}

/// A stream that ends with the drain is followed by the time of an idle connection too.
#[test]
fn sim_a_listener_of_events_that_asks_for_nothing_more_is_let_go_after_the_idle_time() {
    let news = Broadcast::new();
    let listen = news.clone();
    let http = Http::inline(move |_: Request| listen.response());
    let conditions = Conditions::calm(1);
    let idle = conditions.limits.drain_idle_timeout;
    let mut server = TestServer::new(conditions, http);
    let client = server.connect();
    ask(&client, "/events");
    server.run_until(|| news.listeners() == 1);
    server.settle();
    server.drain();
    server.set_wait_max(2 * idle);
    let stream = server.read_to_end(&client);
    assert!(stream.ends_with(b"0\r\n\r\n"));
}

/// What comes after the last request is unread when the connection ends; a reset for it would take
/// the reply along.
#[test]
fn sim_a_last_reply_reaches_a_client_that_sends_on() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    each_seed(100, |seed| {
        let http = Http::inline(|_: Request| {
            let mut response = Response::new("last".into());
            let close = header::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        });
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        client.write(&GET.repeat(100));
        server.turn();
        client.write(&GET.repeat(500));
        let reply = server.read_to_end(&client);
        assert!(reply.ends_with(b"\r\n\r\nlast"), "seed {seed}");
    });
}
