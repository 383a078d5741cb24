//! Bodies over HTTP/2 on a simulated server: of services that answer at once, of a length that was
//! announced, of uploads that break off, and of requests for which there is no room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flatpath_http::http::request::Builder as Asking;
use flatpath_http::http::{HeaderValue, Request as Asked, StatusCode};
use flatpath_http::{
    Body, Http, IntoResponse, Limits, Payload, Request, Response, Router, Sink, Upload,
    WorkerScope, routing,
};
use flatpath_test::{Conditions, TestServer, each_seed};
use h2::Reason;
use h2::client::Builder;

use crate::h2_client::Peer;
use crate::h2_frames::{
    END_HEADERS, END_STREAM, GET, HEADERS, RESET, frame, frames, greeting, whole_frames,
};

const SEEDS: u64 = 10;
const DATA: u8 = 0;

/// Takes the beginning of a body, too.
#[derive(Clone, Default)]
struct Parts {
    bytes: Arc<AtomicUsize>,
    abandoned: Arc<AtomicUsize>,
}

impl Sink for Parts {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(())
    }

    fn keeps_parts(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        format!("{} bytes", self.bytes.load(Ordering::Relaxed)).into_response()
    }

    fn abandoned(self: Box<Self>) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

fn service(parts: &Parts) -> Http<Router> {
    let parts = parts.clone();
    let router = Router::new()
        .get("/hello", || "hello")
        .get("/bytes", || vec![b'b'; 300_000])
        .post("/echo", |body: Bytes| body)
        .route(
            "/parts",
            routing::put(move || Upload::new(parts.clone())).streamed(),
        );
    Http::service(router)
}

fn post() -> Asking {
    Asked::post("http://h/echo")
}

#[test]
fn sim_replies_of_a_service_that_answers_at_once_arrive_complete() {
    let long = || vec![b'b'; 300_000];
    each_seed(SEEDS, |seed| {
        let inline = move |request: Request| match request.uri().path() {
            "/short" => "short".into_response(),
            "/some" => Response::new(Body::from(vec![b'b'; 1500])),
            "/long" => Response::new(Body::from(long())),
            "/whole" => Response::new(Body::reader(io::Cursor::new(b"whole"), Some(5))),
            "/reader" => Response::new(Body::reader(io::Cursor::new(long()), None)),
            _ => StatusCode::NO_CONTENT.into_response(),
        };
        let mut server = TestServer::new(Conditions::rough(seed), Http::inline(inline));
        let mut peer = Peer::new(&mut server);
        for (path, bytes) in [
            ("/short", 5),
            ("/some", 1500),
            ("/long", 300_000),
            ("/whole", 5),
            ("/reader", 300_000),
            ("/", 0),
        ] {
            let reply = peer.fetch(&mut server, path);
            assert_eq!(
                (reply.body.len(), reply.end),
                (bytes, Some(Ok(()))),
                "{path}"
            );
        }
    });
}

#[test]
fn sim_a_body_shorter_than_its_length_is_no_whole_one() {
    each_seed(SEEDS, |seed| {
        let handler = |request: Request| {
            let (sender, body) = Body::channel(1000);
            sender.try_send("words").expect("there is room");
            let mut response = Response::new(body);
            let length = HeaderValue::from_str(&request.uri().path()[1..]).expect("a number");
            response.headers_mut().insert("content-length", length);
            response
        };
        let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(handler));
        let mut peer = Peer::new(&mut server);
        let broken = Some(Err(Some(Reason::INTERNAL_ERROR)));
        for (path, end) in [("/5", Some(Ok(()))), ("/100", broken)] {
            assert_eq!(peer.fetch(&mut server, path).end, end, "{path}");
        }
    });
}

#[test]
fn sim_a_body_that_its_sender_cuts_off_is_no_whole_one() {
    each_seed(SEEDS, |seed| {
        let handler = |_: Request| {
            let (sender, body) = Body::channel(1000);
            sender.try_send("words").expect("there is room");
            sender.abort();
            Response::new(body)
        };
        let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(handler));
        let mut peer = Peer::new(&mut server);
        let broken = Some(Err(Some(Reason::INTERNAL_ERROR)));
        assert_eq!(peer.fetch(&mut server, "/").end, broken);
    });
}

#[test]
fn sim_a_sink_gets_all_that_came_of_an_upload_that_breaks_off() {
    const BYTES: usize = 50_000;
    each_seed(SEEDS, |seed| {
        for (is_busy, is_lost) in [(false, false), (true, false), (false, true)] {
            let parts = Parts::default();
            let mut server = TestServer::new(Conditions::calm(seed), service(&parts));
            let mut peer = Peer::new(&mut server);
            let mut others = Peer::new(&mut server);
            // Workers have so much to do before that it is not opened when it breaks off.
            let before = if is_busy { 90 } else { 0 };
            (0..before).for_each(|_| _ = others.get("/hello"));
            (0..4).for_each(|_| others.step(&mut server));
            let upload = peer.put("/parts", Bytes::new());
            peer.feed(upload, &[b'p'; BYTES], false);
            let turns = if is_busy { 8 } else { 100 };
            (0..turns).for_each(|_| peer.step(&mut server));
            assert_eq!(parts.bytes.load(Ordering::Relaxed), 0, "it waits for more");
            match is_lost {
                true => peer.client.shutdown_write(),
                false => peer.reset(upload),
            }
            (0..300).for_each(|_| peer.step(&mut server));
            server.settle();
            let seen = [&parts.bytes, &parts.abandoned].map(|it| it.load(Ordering::Relaxed));
            assert_eq!(seen, [BYTES, 1], "busy {is_busy}, lost {is_lost}");
        }
    });
}

#[test]
fn sim_requests_are_refused_where_there_is_no_job_for_them() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 4;
        let mut server = TestServer::new(conditions, service(&Parts::default()));
        let mut peer = Peer::new(&mut server);
        let asked: Vec<usize> = (0..60)
            .map(|at| match at % 3 {
                0 => peer.get("/hello"),
                1 => peer.put("/parts", "some"),
                _ => peer.ask(post().body(()).expect("a request"), Some("some".into())),
            })
            .collect();
        peer.finish(&mut server);
        let status = |index: &usize| peer.reply(*index).status.map(|it| it.as_u16());
        let all: Vec<_> = asked.iter().map(status).collect();
        for status in [200, 503] {
            assert!(all.contains(&Some(status)), "{all:?}");
        }
        let is_known = |it: &Option<u16>| matches!(it, Some(200 | 503));
        assert!(all.iter().all(is_known), "{all:?}");
        assert_eq!(peer.fetch(&mut server, "/hello").text(), "hello");
    });
}

#[test]
fn sim_a_length_that_is_too_long_is_refused_before_the_body_and_a_body_that_is() {
    const MAX: usize = 5000;
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.body_timeout = Duration::from_secs(100_000);
        let http = service(&Parts::default()).limits(Limits {
            body_bytes_max: MAX as u64,
            ..Limits::default()
        });
        let mut server = TestServer::new(conditions, http);
        let mut peer = Peer::new(&mut server);
        let length = post().header("content-length", MAX + 1);
        let asked = [
            (length, Vec::new(), 413),
            (post().header("content-length", MAX), vec![0; MAX], 200),
            (post(), vec![0; MAX], 200),
            (post(), vec![0; MAX + 1], 413),
        ];
        for (request, body, status) in asked {
            let request = request.body(()).expect("a request");
            let index = peer.ask(request, Some(body.into()));
            peer.until(&mut server, |peer| peer.reply(index).status.is_some());
            let found = peer.reply(index).status.map(|it| it.as_u16());
            assert_eq!(found, Some(status));
        }
    });
}

/// The answer comes at once; its stream is reset when the client has been silent, not before.
#[test]
fn sim_a_refused_body_is_thrown_away_until_its_end_or_a_silence() {
    const PIECE: [u8; 16_000] = [b'x'; 16_000];
    const PIECES: usize = 100;
    each_seed(SEEDS, |seed| {
        for is_silent in [false, true] {
            let mut conditions = Conditions::rough(seed);
            conditions.limits.linger_timeout = Duration::from_secs(2);
            let http = service(&Parts::default()).limits(Limits {
                body_bytes_max: 5000,
                ..Limits::default()
            });
            let mut server = TestServer::new(conditions, http);
            let client = server.connect();
            let block = b"\x83\x86\x41\x01h\x04\x05/echo\x0f\x0d\x071600000";
            let head = frame(HEADERS, END_HEADERS, 1, block);
            client.write(&[greeting(), head].concat());
            server.settle();
            let mut heard = client.read();
            let count = |heard: &[u8], kind, stream| {
                let frames = whole_frames(heard).into_iter();
                let such = frames.filter(|it| it.kind == kind && it.stream == stream);
                such.count()
            };
            assert_eq!(count(&heard, HEADERS, 1), 1, "the answer");
            for piece in 1..=PIECES {
                server.advance(Duration::from_millis(100));
                server.settle();
                heard.extend(client.read());
                assert_eq!(count(&heard, RESET, 1), 0, "at piece {piece}");
                let is_last = piece == PIECES && !is_silent;
                let flags = if is_last { END_STREAM } else { 0 };
                client.write(&frame(DATA, flags, 1, &PIECE));
            }
            if is_silent {
                server.run_until(|| {
                    heard.extend(client.read());
                    count(&heard, RESET, 1) == 1
                });
            }
            client.write(&frame(HEADERS, END_STREAM | END_HEADERS, 3, GET));
            server.settle();
            heard.extend(client.read());
            assert_eq!(count(&heard, HEADERS, 3), 1, "the connection lives");
            assert_eq!(count(&heard, RESET, 1), usize::from(is_silent));
            // RFC 9113 8.1: a complete answer is no error.
            let mut resets = whole_frames(&heard).into_iter();
            let is_calm = resets.all(|it| it.kind != RESET || it.payload == [0; 4]);
            assert!(is_calm, "NO_ERROR");
        }
    });
}

#[test]
fn sim_a_client_that_asks_whether_to_continue_is_told() {
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), service(&Parts::default()));
        let client = server.connect();
        let block = b"\x83\x86\x41\x01h\x04\x05/echo\x00\x06expect\x0c100-continue";
        client.write(&[greeting(), frame(HEADERS, END_HEADERS, 1, block)].concat());
        let mut heard = Vec::new();
        let heads = |heard: &[u8]| {
            let heads = frames(heard);
            heads.iter().filter(|(kind, _)| *kind == HEADERS).count()
        };
        server.run_until(|| {
            heard.extend(client.read());
            heads(&heard) == 1
        });
        client.write(&frame(DATA, END_STREAM, 1, b"words"));
        server.run_until(|| {
            heard.extend(client.read());
            heard.ends_with(b"words")
        });
        assert_eq!(heads(&heard), 2);
    });
}

/// Conditions with deadlines that a test reaches.
fn hasty(seed: u64) -> Conditions {
    let mut conditions = Conditions::calm(seed);
    conditions.limits.head_timeout = Duration::from_secs(2);
    conditions.limits.body_timeout = Duration::from_secs(2);
    conditions
}

#[test]
fn sim_a_client_that_opens_its_window_now_and_then_keeps_its_stream() {
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(hasty(seed), service(&Parts::default()));
        let mut builder = Builder::new();
        builder.initial_window_size(30_000);
        let mut peer = Peer::with(&mut server, &builder);
        let index = peer.get("/bytes");
        while peer.reply(index).end.is_none() {
            server.advance(Duration::from_secs(1));
            (0..4).for_each(|_| peer.step(&mut server));
        }
        let reply = peer.reply(index);
        assert_eq!((reply.body.len(), reply.end), (300_000, Some(Ok(()))));
    });
}

#[test]
fn sim_a_client_that_has_no_window_to_send_in_is_not_waited_for() {
    const BYTES: usize = 900_000;
    each_seed(SEEDS, |seed| {
        let mut server = TestServer::new(hasty(seed), service(&Parts::default()));
        let (mut peer, mut others) = (Peer::new(&mut server), Peer::new(&mut server));
        (0..90).for_each(|_| _ = others.get("/hello"));
        (0..4).for_each(|_| others.step(&mut server));
        let upload = peer.put("/parts", vec![b'p'; BYTES]);
        (0..15).for_each(|_| peer.step(&mut server));
        server.advance(Duration::from_secs(10));
        peer.finish(&mut server);
        assert_eq!(peer.reply(upload).text(), format!("{BYTES} bytes"));
    });
}
