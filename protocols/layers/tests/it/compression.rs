//! Compressed responses, decoded by the crates of others.

use std::io::{self, Read};

use flatpath_files::Files;
use flatpath_http::header_values::ContentCoding;
use flatpath_http::http::StatusCode;
use flatpath_http::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, VARY,
};
use flatpath_http::{Body, Http, Next, Request, Response, Router, routing, sse};
use flatpath_layers::{Compression, Effort};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use flatpath_testkit::reply::Reply;

use crate::Site;

/// Text that shrinks, but not to nothing.
pub(crate) fn text(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    let words = [
        "a ",
        "flat ",
        "path ",
        "costs ",
        "the ",
        "same\n",
        "everywhere ",
    ];
    let mut text = String::new();
    while text.len() < bytes {
        text += words[random.usize(..words.len())];
    }
    text.truncate(bytes);
    text
}

fn decode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut content),
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut content),
        "zstd" => {
            let decoder = zstd::stream::read::Decoder::new(body);
            decoder.and_then(|mut decoder| decoder.read_to_end(&mut content))
        }
        other => panic!("no coding: {other}"),
    }
    .expect("what the encoder has written");
    content
}

/// The content that a reply has, whatever its coding.
fn content(reply: &Reply) -> Vec<u8> {
    match reply.field("content-encoding") {
        Some(coding) => decode(coding, &reply.body),
        None => reply.body.clone(),
    }
}

fn typed(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let html = "text/html; charset=utf-8".parse().expect("a value");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

/// Bytes that come in pieces of this length.
struct Trickle(Vec<u8>, usize);

impl Read for Trickle {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.1.min(room.len()).min(self.0.len());
        room[..bytes].copy_from_slice(&self.0[..bytes]);
        self.0.drain(..bytes);
        Ok(bytes)
    }
}

const LENGTHS: [usize; 7] = [
    1024,
    4096,
    4097,
    100_000,
    256 << 10,
    (256 << 10) + 1,
    1 << 20,
];

#[test]
fn sim_bodies_of_every_kind_length_and_place_are_what_they_were() {
    each_seed(2, |seed| {
        let mut router = Router::new();
        for bytes in LENGTHS {
            let body = move || typed(text(bytes));
            let read = move || {
                let source = Trickle(text(bytes).into(), 10_000 + bytes % 7_000);
                typed(Body::reader(
                    source,
                    (bytes % 2 == 0).then_some(bytes as u64),
                ))
            };
            router = router
                .get(&format!("/pooled/{bytes}"), body)
                .get(&format!("/read/{bytes}"), read)
                .route(&format!("/inline/{bytes}"), routing::get(body).inline());
        }
        let mut site = Site::new(seed, router.layer(Compression::new()));
        for bytes in LENGTHS {
            let expected = text(bytes);
            for coding in ["gzip", "br", "zstd"] {
                let accepts = format!("Accept-Encoding: {coding}");
                for place in ["pooled", "read", "inline"] {
                    let line = format!("GET /{place}/{bytes}");
                    let reply = site.ask(&line, &[&accepts]);
                    assert_eq!(reply.field("content-encoding"), Some(coding), "{line}");
                    assert_eq!(reply.field("vary"), Some("accept-encoding"), "{line}");
                    assert!(reply.body.len() < bytes / 2, "{line}: {}", reply.body.len());
                    assert!(content(&reply) == expected.as_bytes(), "{line} {coding}");
                    let is_whole = match place {
                        "pooled" => bytes <= 256 << 10,
                        "inline" => bytes <= 4096,
                        _ => false,
                    };
                    let length = reply.field("content-length").is_some();
                    assert_eq!(
                        length, is_whole,
                        "{line}: no network thread takes that long"
                    );
                }
            }
        }
    });
}

#[test]
fn sim_the_client_decides_on_the_coding() {
    let router = || Router::new().get("/", || typed(text(5000)));
    let mut site = Site::new(1, router().layer(Compression::new()));
    for (accepts, coding) in [
        ("gzip, br, zstd", Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip;q=0.9, zstd;q=0.8, br;q=0.7", Some("gzip")),
        ("*", Some("zstd")),
        ("*, zstd;q=0", Some("br")),
        ("identity, gzip;q=0.5", None),
        ("deflate", None),
        ("gzip;q=0", None),
        ("", None),
    ] {
        let reply = site.ask("GET /", &[&format!("Accept-Encoding: {accepts}")]);
        assert_eq!(reply.field("content-encoding"), coding, "{accepts}");
        assert_eq!(reply.field("vary"), Some("accept-encoding"), "{accepts}");
        assert!(content(&reply) == text(5000).as_bytes());
    }
    assert_eq!(site.ask("GET /", &[]).field("content-encoding"), None);
    let ours = [ContentCoding::Gzip, ContentCoding::Zstd];
    for effort in [Effort::Least, Effort::Balanced, Effort::Most] {
        let layer = Compression::new().codings(ours).effort(effort);
        let mut site = Site::new(1, router().layer(layer));
        let reply = site.ask("GET /", &["Accept-Encoding: br, zstd, gzip"]);
        assert_eq!(reply.field("content-encoding"), Some("gzip"));
        assert!(content(&reply) == text(5000).as_bytes());
    }
}

#[test]
fn sim_what_would_not_gain_or_must_not_change_is_left_alone() {
    let with =
        |name: &'static str, value: &'static str| move || ([(name, value)], typed(text(5000)));
    let fed = || {
        let (sender, body) = Body::channel(1 << 20);
        sender.send(text(5000)).expect("room");
        typed(body)
    };
    let events = || {
        let (events, response) = sse::channel();
        events
            .send(sse::Event::new().data(text(5000)))
            .expect("room");
        response
    };
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(5000)
        .collect();
    let router = Router::new()
        .get("/short", || typed(text(1023)))
        .get("/noise", move || typed(noise.clone()))
        .get("/image", with("content-type", "image/png"))
        .get("/typeless", || Body::from(text(5000)))
        .get("/encoded", with("content-encoding", "gzip"))
        .get("/range", || {
            (StatusCode::PARTIAL_CONTENT, typed(text(5000)))
        })
        .get("/kept", with("cache-control", "max-age=5, No-Transform"))
        .get("/digest", with("content-digest", "sha-256=:AA==:"))
        .get("/fed", fed)
        .get("/events", events)
        .get("/read-events", with("content-type", "Text/Event-Stream"))
        .get("/empty", || StatusCode::NO_CONTENT)
        .get("/no-content", || {
            (StatusCode::NO_CONTENT, typed(text(5000)))
        })
        .layer(Compression::new());
    let mut site = Site::new(2, router);
    for path in [
        "/short",
        "/noise",
        "/image",
        "/typeless",
        "/encoded",
        "/range",
        "/kept",
        "/digest",
        "/fed",
        "/events",
        "/read-events",
        "/empty",
        "/no-content",
    ] {
        let reply = site.ask(&format!("GET {path}"), &["Accept-Encoding: gzip, br"]);
        let own = (path == "/encoded").then_some("gzip");
        assert_eq!(reply.field("content-encoding"), own, "{path}");
        let vary = (path == "/noise").then_some("accept-encoding");
        assert_eq!(reply.field("vary"), vary, "{path}: it depends on nothing");
        assert_eq!(reply.body.is_empty(), reply.status == 204);
    }
}

#[test]
fn sim_what_is_said_of_a_body_is_true_of_the_new_one() {
    let described = || {
        let said = [
            (ETAG, "\"a\""),
            (ACCEPT_RANGES, "bytes"),
            (VARY, "origin, Accept-Encoding"),
        ];
        (said, typed(text(5000)))
    };
    let weak = || ([(ETAG, "W/\"b\"")], typed(text(5000)));
    let router = Router::new()
        .get("/", described)
        .get("/weak", weak)
        .get("/fresh", || {
            ([(CACHE_CONTROL, "no-cache")], typed(text(5000)))
        })
        .head("/alone", || typed(()))
        .get("/not-modified", || StatusCode::NOT_MODIFIED)
        .get("/stated", || {
            ([(CONTENT_LENGTH, "5000")], typed(text(5000)))
        })
        .layer(Compression::new())
        .layer(|request: Request, next: &Next<'_>| {
            next.run(request).map(|mut response: Response| {
                if let Some(length) = response.headers().get(CONTENT_LENGTH).cloned() {
                    response.headers_mut().insert("x-stated", length);
                }
                response
            })
        });
    let mut site = Site::new(3, router);
    let gzip = "Accept-Encoding: gzip";
    assert_eq!(site.ask("GET /stated", &[]).field("x-stated"), Some("5000"));
    assert_eq!(site.ask("GET /stated", &[gzip]).field("x-stated"), None);
    let reply = site.ask("GET /", &[gzip]);
    assert_eq!(reply.field("etag"), Some("W/\"a\""));
    assert_eq!(reply.field("accept-ranges"), None);
    assert_eq!(reply.field("vary"), Some("origin, Accept-Encoding"));
    let length = reply.body.len().to_string();
    let head = site.ask("HEAD /", &[gzip]);
    assert_eq!(head.field("content-length"), Some(&*length), "that of GET");
    assert_eq!(head.field("content-encoding"), Some("gzip"));
    assert_eq!(
        site.ask("HEAD /alone", &[gzip]).field("content-encoding"),
        None
    );
    let plain = site.ask("GET /", &[]);
    assert_eq!(plain.field("etag"), Some("\"a\""));
    assert_eq!(plain.field("accept-ranges"), Some("bytes"));
    assert_eq!(
        site.ask("GET /weak", &[gzip]).field("etag"),
        Some("W/\"b\"")
    );
    assert_eq!(
        site.ask("GET /fresh", &[gzip]).field("content-encoding"),
        Some("gzip")
    );
    let reply = site.ask("GET /not-modified", &[gzip]);
    assert_eq!(
        (reply.status, reply.field("vary")),
        (304, Some("accept-encoding"))
    );
}

#[test]
fn sim_a_directory_of_files_is_compressed_and_its_siblings_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: &[u8]| {
        std::fs::write(directory.path().join(name), content).expect("written");
    };
    let long = text(300_000);
    write("a.txt", long.as_bytes());
    write("b.css", text(5000).as_bytes());
    write("b.css.gz", b"compressed before");
    write("c.png", text(5000).as_bytes());
    let files = Files::open(directory.path()).expect("a directory");
    let router: Router = Router::new()
        .nest_service("/files", files)
        .layer(Compression::new());
    let mut site = Site::new(4, router);
    let gzip = "Accept-Encoding: gzip";
    let reply = site.ask("GET /files/a.txt", &[gzip]);
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    assert!(content(&reply) == long.as_bytes());
    assert_eq!(reply.field("vary"), Some("accept-encoding"));
    let part = site.ask("GET /files/a.txt", &[gzip, "Range: bytes=5-9"]);
    assert_eq!((part.status, &*part.body), (206, &long.as_bytes()[5..10]));
    assert_eq!(
        site.ask("GET /files/b.css", &[gzip]).body,
        b"compressed before"
    );
    assert_eq!(
        site.ask("GET /files/c.png", &[gzip])
            .field("content-encoding"),
        None
    );
}

/// A source that has a first piece, and fails if it is asked for more: what had come of it by then
/// is all that its client gets.
struct OncePrompt(bool);

impl Read for OncePrompt {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, true) {
            return Err(io::Error::other("on purpose"));
        }
        room[..5].copy_from_slice(b"first");
        Ok(5)
    }
}

/// Whether this is the beginning of a reply that has the first piece.
fn has_first(coding: &str, reply: &[u8]) -> bool {
    let Some(end) = reply.windows(4).position(|it| it == b"\r\n\r\n") else {
        return false;
    };
    let (mut first, body) = ([0; 5], &reply[end + 4..]);
    let read = match coding {
        "gzip" => flate2::read::GzDecoder::new(body).read_exact(&mut first),
        "br" => brotli::Decompressor::new(body, 4096).read_exact(&mut first),
        _ => zstd::stream::read::Decoder::new(body).and_then(|mut it| it.read_exact(&mut first)),
    };
    read.is_ok() && &first == b"first"
}

#[test]
fn sim_a_piece_of_a_slow_source_is_passed_on_before_the_next_one_is_asked_for() {
    for coding in ["gzip", "br", "zstd"] {
        let router: Router = Router::new()
            .get("/", || typed(Body::reader(OncePrompt(false), None)))
            .layer(Compression::new());
        let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
        let client = server.connect();
        // HTTP/1.0 has no chunks.
        let head = format!("GET / HTTP/1.0\r\nHost: h\r\nAccept-Encoding: {coding}\r\n\r\n");
        client.write(head.as_bytes());
        let mut reply = Vec::new();
        server.run_until(|| {
            reply.extend(client.read());
            has_first(coding, &reply)
        });
    }
}

#[test]
fn sim_bodies_beyond_the_bound_are_sent_as_they_are() {
    let read = || typed(Body::reader(Trickle(text(50_000).into(), 16 << 10), None));
    let router = || Router::new().get("/", read);
    let gzip = "Accept-Encoding: gzip";
    let mut site = Site::new(5, router().layer(Compression::new().streams_max(0)));
    let reply = site.ask("GET /", &[gzip]);
    assert_eq!(reply.field("content-encoding"), None);
    assert_eq!(reply.field("vary"), Some("accept-encoding"));
    assert!(content(&reply) == text(50_000).as_bytes());
    // Each gives its place back.
    let mut site = Site::new(5, router().layer(Compression::new().streams_max(1)));
    for _ in 0..3 {
        assert_eq!(
            site.ask("GET /", &[gzip]).field("content-encoding"),
            Some("gzip")
        );
    }
}

#[test]
fn sim_a_source_that_fails_breaks_the_reply_off() {
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1..4 => Ok(room.len()),
                _ => Err(io::Error::other("on purpose")),
            }
        }
    }
    let router: Router = Router::new()
        .get("/", || typed(Body::reader(Fails(0), None)))
        .layer(Compression::new());
    let mut server = TestServer::new(Conditions::rough(6), Http::service(router));
    let client = server.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut reply = Vec::new();
    server.run_until(|| {
        reply.extend(client.read());
        client.state() != ClientState::Open
    });
    assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(!reply.ends_with(b"0\r\n\r\n"), "it does not look whole");
}

#[test]
fn sim_types_and_lengths_can_be_chosen() {
    let layer = Compression::new()
        .bytes_min(10)
        .types(|media| media != "text/html");
    let router = Router::new()
        .get("/html", || typed(text(5000)))
        .get("/png", || {
            ([(CONTENT_TYPE, "image/png; a=b")], Body::from(text(100)))
        })
        .get("/tiny", || {
            ([(CONTENT_TYPE, "image/png")], Body::from("a".repeat(9)))
        })
        .get("/events", || {
            (
                [(CONTENT_TYPE, "text/event-stream")],
                Body::from(text(5000)),
            )
        })
        .layer(layer);
    let mut site = Site::new(7, router);
    let mut coding = |path: &str| {
        let reply = site.ask(&format!("GET {path}"), &["Accept-Encoding: gzip"]);
        reply.field(CONTENT_ENCODING.as_str()).map(str::to_owned)
    };
    assert_eq!(coding("/html"), None);
    assert_eq!(coding("/png").as_deref(), Some("gzip"));
    assert_eq!(coding("/tiny"), None);
    assert_eq!(coding("/events"), None);
}
