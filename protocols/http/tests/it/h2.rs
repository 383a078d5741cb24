//! HTTP/2 in simulations: what services do over it, and what clients cannot.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use flatpath_http::http::{Request as Asked, StatusCode};
use flatpath_http::{
    Body, Hosts, Http, IntoResponse, Payload, Request, Response, Router, Sink, Upload, WorkerScope,
    routing, sse,
};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use h2::Reason;
use h2::client::Builder;

use crate::h2_client::Peer;
use crate::h2_frames::{
    CONTINUATION, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, PREFACE, RESET, SETTINGS,
    frame, frames, greeting,
};

const SEEDS: u64 = 20;

/// Counts the bytes of a body, and the bodies that broke off.
struct Counter(usize, Arc<AtomicUsize>);

impl Sink for Counter {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0 += piece.len();
        let is_bad = piece.parts().any(|part| part.bytes().contains(&b'!'));
        match is_bad {
            true => Err(Box::new(StatusCode::BAD_REQUEST.into_response())),
            false => Ok(()),
        }
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        format!("{} bytes", self.0).into_response()
    }

    fn abandoned(self: Box<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Ends with an error after some bytes.
struct Breaking(usize);

impl Read for Breaking {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("as it was told"));
        }
        let bytes = room.len().min(self.0);
        room[..bytes].fill(b'x');
        self.0 -= bytes;
        Ok(bytes)
    }
}

fn routes() -> Router {
    routes_with(Arc::default())
}

fn routes_with(abandoned: Arc<AtomicUsize>) -> Router {
    Router::new()
        .get("/hello", || "hello")
        .get("/version", |request: Request| {
            format!("{:?} {}", request.version(), request.uri())
        })
        .get("/static", || Body::from(&[b's'; 3000][..]))
        .get("/bytes", || pattern(300_000))
        .get("/reader", || {
            Body::reader(io::Cursor::new(pattern(300_000)), Some(300_000))
        })
        .get("/endless", || {
            Body::reader(io::Cursor::new(pattern(200_000)), None)
        })
        .get("/breaks", || Body::reader(Breaking(100_000), None))
        .get("/panics", || -> &'static str { panic!("as it was told") })
        .get("/empty", || StatusCode::NO_CONTENT)
        .get("/fed", || {
            let (sender, body) = Body::channel(10_000);
            thread::spawn(move || {
                // Until its client is gone.
                (0..100).try_for_each(|_| sender.send(vec![b'f'; 1000]))
            });
            body
        })
        .post("/echo", |body: Bytes| body)
        .route(
            "/count",
            routing::put(move || Upload::new(Counter(0, Arc::clone(&abandoned)))).streamed(),
        )
}

fn server(seed: u64) -> TestServer {
    TestServer::new(Conditions::rough(seed), Http::service(routes()))
}

#[test]
fn replies_of_every_kind_arrive_complete() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        for (path, status, body) in [
            ("/hello", 200, b"hello".to_vec()),
            ("/version", 200, b"HTTP/2.0 /version".to_vec()),
            ("/static", 200, vec![b's'; 3000]),
            ("/bytes", 200, pattern(300_000)),
            ("/reader", 200, pattern(300_000)),
            ("/endless", 200, pattern(200_000)),
            ("/fed", 200, vec![b'f'; 100_000]),
            ("/empty", 204, Vec::new()),
            ("/missing", 404, b"Not Found\n".to_vec()),
        ] {
            let reply = peer.fetch(&mut server, path);
            assert_eq!(reply.status.map(|it| it.as_u16()), Some(status), "{path}");
            assert_eq!(reply.end, Some(Ok(())), "{path}");
            let is_same = reply.body == body || path == "/missing";
            assert!(is_same, "{path}: {} bytes", reply.body.len());
            assert!(reply.headers.contains_key("date"), "{path}");
            assert!(!reply.headers.contains_key("transfer-encoding"), "{path}");
            assert!(!reply.headers.contains_key("connection"), "{path}");
        }
    });
}

#[test]
fn a_hundred_streams_run_side_by_side() {
    each_seed(5, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        let paths = ["/hello", "/bytes", "/reader", "/fed"];
        let asked: Vec<_> = (0..100).map(|at| peer.get(paths[at % 4])).collect();
        peer.finish(&mut server);
        for (at, index) in asked.into_iter().enumerate() {
            let bytes = [5, 300_000, 300_000, 100_000][at % 4];
            let reply = peer.reply(index);
            assert_eq!((reply.body.len(), reply.end), (bytes, Some(Ok(()))), "{at}");
        }
    });
}

#[test]
fn bodies_arrive_whole_or_piece_by_piece() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        let echo = Asked::post("http://h/echo").body(()).expect("a request");
        let body = pattern(200_000);
        let echo = peer.ask(echo, Some(body.clone().into()));
        let count = peer.put("/count", pattern_without_end(3_000_000));
        let short = peer.put("/count", "x");
        peer.finish(&mut server);
        assert!(peer.reply(echo).body == body);
        assert_eq!(peer.reply(count).text(), "3000000 bytes");
        assert_eq!(peer.reply(short).text(), "1 bytes");
    });
}

fn pattern_without_end(bytes: usize) -> Vec<u8> {
    vec![b'u'; bytes]
}

#[test]
fn a_body_that_is_too_long_is_refused_and_the_others_live() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        let post = || Asked::post("http://h/echo");
        let announced = post().header("content-length", "3000000");
        let announced = announced.body(()).expect("a request");
        let announced = peer.ask(announced, Some(vec![b'x'; 3_000_000].into()));
        let unknown = post().body(()).expect("a request");
        let unknown = peer.ask(unknown, Some(vec![b'x'; 3_000_000].into()));
        let early = peer.put("/count", vec![b'!'; 2_000_000]);
        let hello = peer.get("/hello");
        peer.finish(&mut server);
        for (index, status) in [(announced, 413), (unknown, 413), (early, 400), (hello, 200)] {
            let reply = peer.reply(index);
            assert_eq!(reply.status.map(|it| it.as_u16()), Some(status));
        }
        assert_eq!(peer.fetch(&mut server, "/hello").text(), "hello");
    });
}

#[test]
fn what_breaks_costs_its_stream_alone() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        let (panics, breaks) = (peer.get("/panics"), peer.get("/breaks"));
        let hello = peer.get("/hello");
        peer.finish(&mut server);
        let panics = peer.reply(panics);
        assert_eq!(panics.status, Some(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!(panics.end, Some(Ok(())));
        let end = peer.reply(breaks).end;
        assert_eq!(end, Some(Err(Some(Reason::INTERNAL_ERROR))));
        assert_eq!(peer.reply(hello).text(), "hello");
    });
}

#[test]
fn small_windows_are_kept_to() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut builder = Builder::new();
        builder.initial_window_size(7);
        let mut peer = Peer::with(&mut server, &builder);
        let asked = [peer.get("/static"), peer.get("/hello")];
        peer.finish(&mut server);
        assert_eq!(asked.map(|it| peer.reply(it).body.len()), [3000, 5]);
    });
}

/// Conditions with deadlines that a test reaches.
fn hasty(seed: u64) -> Conditions {
    let mut conditions = Conditions::rough(seed);
    conditions.limits.head_timeout = Duration::from_secs(2);
    conditions.limits.body_timeout = Duration::from_secs(3);
    conditions.limits.idle_timeout = Duration::from_secs(4);
    conditions.limits.push_interval = Duration::from_secs(1);
    conditions
}

#[test]
fn streams_that_this_side_has_reset_are_not_counted_as_cancelled() {
    let mut server = server(1);
    let mut peer = Peer::new(&mut server);
    for _ in 0..150 {
        let reply = peer.fetch(&mut server, "/breaks");
        assert_eq!(reply.end, Some(Err(Some(Reason::INTERNAL_ERROR))));
    }
    assert_eq!(peer.fetch(&mut server, "/hello").text(), "hello");
}

#[test]
fn a_client_that_opens_no_window_loses_its_streams() {
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(hasty(seed), Http::service(routes()));
        let mut builder = Builder::new();
        builder.initial_window_size(0);
        let mut peer = Peer::with(&mut server, &builder);
        let paths = ["/hello", "/bytes", "/reader", "/fed"];
        let asked: Vec<_> = (0..20).map(|at| peer.get(paths[at % 4])).collect();
        peer.finish(&mut server);
        for index in asked {
            let reply = peer.reply(index);
            assert_eq!(reply.status, Some(StatusCode::OK));
            assert_eq!(reply.end, Some(Err(Some(Reason::CANCEL))));
        }
        let end = peer.fetch(&mut server, "/empty").end;
        assert_eq!((end, peer.end), (Some(Ok(())), None));
    });
}

#[test]
fn a_body_that_stops_arriving_is_answered_and_an_idle_connection_ends() {
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(hasty(seed), Http::service(routes()));
        let mut peer = Peer::new(&mut server);
        let post = Asked::post("http://h/echo").body(()).expect("a request");
        let slow = peer.ask(post, Some(Bytes::new()));
        let upload = peer.put("/count", Bytes::new());
        peer.finish(&mut server);
        assert_eq!(peer.reply(slow).status, Some(StatusCode::REQUEST_TIMEOUT));
        let told = peer.reply(upload).status;
        assert_eq!(told, Some(StatusCode::REQUEST_TIMEOUT), "as over HTTP/1");
        peer.until(&mut server, |peer| peer.end.is_some());
        assert_eq!(peer.end, Some(Ok(())), "by GOAWAY without an error");
    });
}

#[test]
fn each_stream_has_its_own_time_whatever_the_others_do() {
    each_seed(SEEDS, |seed| {
        let news = sse::Broadcast::new();
        let listen = news.clone();
        let router = routes().get("/news", move || listen.response());
        let mut server = TestServer::new(hasty(seed), Http::service(router));
        let mut builder = Builder::new();
        builder.initial_window_size(0);
        let mut peer = Peer::with(&mut server, &builder);
        let post = || Asked::post("http://h/echo").body(()).expect("a request");
        let (slow, trickles) = (peer.ask(post(), Some(Bytes::new())), peer.put("/count", ""));
        let (fast, blocked) = (peer.put("/count", ""), peer.get("/bytes"));
        peer.feed(slow, b"half", false);
        let mut sent = 0;
        while !(peer.reply(slow).status.is_some() && peer.reply(trickles).end.is_some()) {
            assert!(sent < 1000, "none of them ends");
            sent += 1;
            peer.feed(fast, &[b'x'; 1000], false);
            // Less than the least rate.
            peer.feed(trickles, b"x", false);
            server.advance(Duration::from_millis(200));
            (0..4).for_each(|_| peer.step(&mut server));
        }
        assert_eq!(peer.reply(slow).status, Some(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(peer.reply(trickles).end, Some(Err(Some(Reason::CANCEL))));
        assert_eq!(peer.reply(blocked).end, Some(Err(Some(Reason::CANCEL))));
        assert!(sent > 10, "they had their time");
        assert_eq!(
            (peer.reply(fast).status, peer.reply(fast).end),
            (None, None)
        );
        peer.feed(fast, b"", true);
        peer.until(&mut server, |peer| peer.reply(fast).status.is_some());
    });
}

#[test]
fn a_client_that_asks_for_nothing_has_the_time_of_a_head() {
    each_seed(SEEDS, |seed| {
        let mut conditions = hasty(seed);
        conditions.limits.idle_timeout = Duration::from_secs(10_000);
        let mut server = TestServer::new(conditions, Http::service(routes()));
        let mut peer = Peer::new(&mut server);
        peer.until(&mut server, |peer| peer.end.is_some());
    });
}

#[test]
fn a_client_that_resets_an_upload_has_it_abandoned_once() {
    each_seed(SEEDS, |seed| {
        let abandoned = Arc::new(AtomicUsize::new(0));
        let router = routes_with(Arc::clone(&abandoned));
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let mut peer = Peer::new(&mut server);
        for turns in [0, 1, 3, 30] {
            let (upload, echo) = (peer.put("/count", Bytes::new()), peer.get("/bytes"));
            (0..turns).for_each(|_| peer.step(&mut server));
            peer.reset(upload);
            peer.reset(echo);
        }
        assert_eq!(peer.fetch(&mut server, "/hello").text(), "hello");
        server.settle();
        drop(peer);
        server.end();
        // One that was reset with its head has not begun.
        assert!((1..=4).contains(&abandoned.load(Ordering::Relaxed)));
    });
}

#[test]
fn a_drain_finishes_what_runs_and_says_goodbye() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let mut peer = Peer::new(&mut server);
        let mut idle = Peer::new(&mut server);
        let asked = [peer.get("/bytes"), peer.get("/reader"), peer.get("/hello")];
        peer.until(&mut server, |peer| peer.reply(0).status.is_some());
        server.drain();
        peer.until(&mut server, |peer| peer.end.is_some());
        let bytes = asked.map(|index| peer.reply(index).body.len());
        assert_eq!((bytes, peer.end), ([300_000, 300_000, 5], Some(Ok(()))));
        idle.until(&mut server, |peer| peer.end.is_some());
        assert_eq!(idle.end, Some(Ok(())));
    });
}

#[test]
fn events_reach_their_listeners_and_show_that_they_are_there() {
    each_seed(SEEDS, |seed| {
        let news = sse::Broadcast::new();
        let listen = news.clone();
        let http = Http::inline(move |_: Request| listen.response());
        let mut server = TestServer::new(hasty(seed), http);
        let mut peer = Peer::new(&mut server);
        let all: Vec<_> = (0..5).map(|_| peer.get("/")).collect();
        peer.until(&mut server, |peer| {
            all.iter().all(|index| peer.reply(*index).status.is_some())
        });
        news.send(sse::Event::new().data("one"));
        peer.until(&mut server, |peer| {
            let has = |index: &usize| peer.reply(*index).text().contains("data: one\n\n");
            all.iter().all(has)
        });
        peer.until(&mut server, |peer| {
            all.iter()
                .all(|index| peer.reply(*index).text().ends_with(":\n\n"))
        });
        server.drain();
        peer.finish(&mut server);
        assert!(
            all.iter()
                .all(|index| peer.reply(*index).end == Some(Ok(())))
        );
    });
}

#[test]
fn a_request_for_another_host_costs_its_stream_alone() {
    each_seed(SEEDS, |seed| {
        let hosts = Hosts::local().and(["h".parse().expect("a host")]);
        let http = Http::service(routes()).hosts(hosts);
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut peer = Peer::new(&mut server);
        for (host, status) in [("other", 421), ("h", 200), ("other", 421)] {
            let request = Asked::get(format!("http://{host}/hello"));
            let index = peer.ask(request.body(()).expect("a request"), None);
            peer.finish(&mut server);
            let found = peer.reply(index).status.map(|it| it.as_u16());
            assert_eq!(found, Some(status));
        }
    });
}

#[test]
fn a_preface_may_come_byte_by_byte() {
    each_seed(3, |seed| {
        let mut server = server(seed);
        let client = server.connect();
        let said = [greeting(), frame(HEADERS, END_STREAM | END_HEADERS, 1, GET)].concat();
        for byte in said {
            client.write(&[byte]);
            server.turn();
        }
        server.settle();
        assert!(frames(&client.read()).contains(&(HEADERS, None)));
    });
}

#[test]
fn what_only_begins_like_a_preface_is_refused() {
    each_seed(SEEDS, |seed| {
        let mut server = server(seed);
        let client = server.connect();
        client.write(b"PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        let said = server.read_to_end(&client);
        assert!(!said.starts_with(b"HTTP"), "{}", said.escape_ascii());
        let client = server.connect();
        client.write(b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
        client.write(PREFACE);
        let said = String::from_utf8_lossy(&server.read_to_end(&client)).into_owned();
        assert!(said.contains("HTTP/1.1 505 "), "{said}");
        let http = Http::service(routes()).without_http2();
        let mut plain = TestServer::new(Conditions::rough(seed), http);
        let client = plain.connect();
        client.write(PREFACE);
        assert!(plain.read_to_end(&client).starts_with(b"HTTP/1.1 505 "));
    });
}

/// What a hostile client got, and that others are served after it.
fn attacked(seed: u64, said: &[&[u8]], reads: bool) -> Vec<(u8, Option<u8>)> {
    let mut server = TestServer::new(hasty(seed), Http::service(routes()));
    let client = server.connect();
    client.write(&greeting());
    let mut heard = Vec::new();
    for part in said {
        if client.state() == ClientState::Open {
            client.write(part);
        }
        (0..5).for_each(|_| server.turn());
        if reads {
            heard.extend(client.read());
        }
        let (_, bytes) = server.leaks();
        assert!(bytes < 700_000, "{bytes} bytes for one client");
    }
    server.settle();
    let mut other = Peer::new(&mut server);
    assert_eq!(other.fetch(&mut server, "/hello").text(), "hello");
    heard.extend(client.read());
    frames(&heard)
}

#[test]
fn floods_of_resets_end_the_connection_or_are_refused() {
    each_seed(SEEDS, |seed| {
        let stream = |id| {
            let headers = frame(HEADERS, END_STREAM | END_HEADERS, id, GET);
            [headers, frame(RESET, 0, id, &[0, 0, 0, 8])].concat()
        };
        let all: Vec<u8> = (0..5000).flat_map(|at| stream(2 * at + 1)).collect();
        let frames = attacked(seed, &all.chunks(8000).collect::<Vec<_>>(), true);
        assert!(frames.contains(&(GOAWAY, Some(11))), "{frames:?}");
    });
}

#[test]
fn header_blocks_without_an_end_end_the_connection() {
    each_seed(SEEDS, |seed| {
        let more = frame(CONTINUATION, 0, 1, &[0; 100]);
        let mut said = frame(HEADERS, END_STREAM, 1, GET);
        (0..20_000).for_each(|_| said.extend(&more));
        let frames = attacked(seed, &said.chunks(8000).collect::<Vec<_>>(), true);
        let is_end = |(kind, error): &(u8, Option<u8>)| *kind == GOAWAY && *error != Some(0);
        assert!(frames.iter().any(is_end), "{frames:?}");
    });
}

#[test]
fn a_small_block_of_many_long_headers_is_refused() {
    each_seed(SEEDS, |seed| {
        // A header of 3,000 bytes for the dynamic table, then that header again and again.
        let mut block = GET.to_vec();
        block.extend(b"\x40\x01x\x7f\xb9\x16");
        block.extend([b'v'; 3000]);
        block.extend([0xbe; 10_000]);
        let bomb = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
        let frames = attacked(seed, &[&bomb], true);
        assert!(
            frames
                .iter()
                .any(|(kind, _)| matches!(*kind, HEADERS | GOAWAY | RESET))
        );
        assert!(!frames.is_empty());
    });
}

#[test]
fn floods_of_pings_and_settings_wait_for_a_client_that_does_not_read() {
    each_seed(SEEDS, |seed| {
        let pair = [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])].concat();
        let flood = pair.repeat(50_000);
        let frames = attacked(seed, &flood.chunks(8000).collect::<Vec<_>>(), false);
        assert!(frames.len() < 200_000);
    });
}
