//! Trailers of requests and of replies, over both versions, wherever a body comes from or goes to.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use flatpath::DriverChoice;
use flatpath_http::http::{HeaderMap, HeaderName, HeaderValue, Request as Asked};
use flatpath_http::{
    Answer, Body, Deferred, Http, Limits, Methods, Next, Request, Response, Router, Service,
    Trailers, Upload, routing,
};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
use flatpath_testkit::Client;

use crate::h2_client::Peer;
use crate::on_each_driver;
use crate::serve::serve;

const SEEDS: u64 = 10;

const SUM: HeaderName = HeaderName::from_static("x-sum");

on_each_driver!(trailers_come_and_go_over_a_real_socket);

/// `x-sum` with this value.
fn sum(value: usize) -> HeaderMap {
    HeaderMap::from_iter([(SUM, HeaderValue::from(value))])
}

/// The trailers of a request as text.
fn listed(trailers: &HeaderMap) -> String {
    let listed = trailers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        format!("{name}={value};")
    });
    listed.collect()
}

/// Says what has come, and how long that was in a trailer.
fn show(body: &[u8], trailers: &HeaderMap) -> Response {
    let text = format!("{} bytes, {}", body.len(), listed(trailers));
    Trailers(sum(body.len())).after(text)
}

/// Changes nothing.
fn around(request: Request, next: &Next<'_>) -> Answer {
    next.run(request)
}

fn handle(Trailers(trailers): Trailers, body: Bytes) -> Response {
    show(&body, &trailers)
}

fn upload() -> Upload {
    Upload::with_trailers(Vec::new(), |body: Vec<u8>, Trailers(trailers)| {
        show(&body, &trailers)
    })
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Work that is done step by step, until a step says that it was the last one.
type Steps = Box<dyn FnMut() -> bool + Send>;

/// Where responses are made that come later.
#[derive(Clone)]
enum Elsewhere {
    /// In threads.
    Threads,
    /// In the test, whose simulated time does not wait for threads.
    Here(Arc<Mutex<Vec<Steps>>>),
}

impl Elsewhere {
    fn here() -> Self {
        Self::Here(Arc::default())
    }

    fn act(&self, mut steps: impl FnMut() -> bool + Send + 'static) {
        match self {
            Self::Threads => drop(thread::spawn(move || while !steps() {})),
            Self::Here(all) => all.lock().expect("no panic").push(Box::new(steps)),
        }
    }

    /// One step of each work.
    fn step(&self) {
        if let Self::Here(all) = self {
            all.lock().expect("no panic").retain_mut(|steps| !steps());
        }
    }
}

/// What replies in each way that there is, of this many bytes.
fn replies(bytes: usize, place: fn(Methods) -> Methods, elsewhere: &Elsewhere) -> Router {
    let (feeds, defers) = (elsewhere.clone(), elsewhere.clone());
    let known = move |body: Body| Trailers(sum(bytes)).after(body);
    let late = move |body: Body| {
        let (end, trailers) = Trailers::later([SUM]);
        end.set(sum(bytes));
        trailers.after(body)
    };
    let cursor = move || io::Cursor::new(pattern(bytes));
    let sized = move || known(Body::reader(cursor(), Some(bytes as u64)));
    let fed = move || {
        let (sender, body) = Body::channel(1 << 20);
        let (end, trailers) = Trailers::later([SUM]);
        let (mut left, mut open) = (pattern(bytes), Some((sender, end)));
        feeds.act(move || {
            let Some((sender, _)) = open.as_ref().filter(|_| !left.is_empty()) else {
                // Both are dropped, which ends the body.
                let ends = open.take();
                ends.into_iter().for_each(|(_, end)| end.set(sum(bytes)));
                return true;
            };
            let piece = left.drain(..left.len().min(1000)).collect::<Vec<_>>();
            // Until its client is gone.
            sender.send(piece).is_err()
        });
        trailers.after(body)
    };
    let deferred = move || {
        let (responder, deferred) = Deferred::new();
        let mut responder = Some(responder);
        defers.act(move || {
            let response = known(pattern(bytes).into());
            responder.take().is_none_or(|it| it.send(response).is_ok())
        });
        deferred
    };
    Router::new()
        .route(
            "/bytes",
            place(routing::get(move || known(pattern(bytes).into()))),
        )
        .route("/sized", place(routing::get(sized)))
        .route(
            "/reader",
            place(routing::get(move || late(Body::reader(cursor(), None)))),
        )
        .route("/fed", place(routing::get(fed)))
        .route("/deferred", place(routing::get(deferred)))
}

fn pooled(methods: Methods) -> Methods {
    methods
}

fn service() -> Http<impl Service> {
    let router = Router::new()
        .post("/whole", handle)
        .route("/layered", routing::post(handle).layer(around))
        .route("/streamed", routing::put(upload).streamed())
        .route("/around", routing::put(upload).layer(around).streamed())
        .merge(replies(3000, pooled, &Elsewhere::Threads));
    Http::service(router)
}

/// A request of HTTP/1 that ends its connection.
fn chunked(method: &str, path: &str, chunks: &[&str], trailers: &str) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, te\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    for chunk in chunks {
        request += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    (request + "0\r\n" + trailers + "\r\n").into_bytes()
}

const ROUTES: [(&str, &str); 4] = [
    ("POST", "/whole"),
    ("POST", "/layered"),
    ("PUT", "/streamed"),
    ("PUT", "/around"),
];

#[test]
fn sim_trailers_of_a_chunked_body_reach_what_takes_it() {
    let lines = "X-A: 1\r\nHost: evil\r\nx-a:2\r\nContent-Length: 9\r\nX-B:\r\n";
    each_seed(SEEDS, |seed| {
        for (method, path) in ROUTES {
            for chunks in [&["hello", " world"][..], &[]] {
                let mut server = TestServer::new(Conditions::rough(seed), service());
                let client = server.connect();
                client.write(&chunked(method, path, chunks, lines));
                let reply = String::from_utf8(server.read_to_end(&client)).expect("text");
                let bytes = chunks.concat().len();
                let text = format!("{bytes} bytes, x-a=1;x-a=2;x-b=;");
                let expected = format!("{:x}\r\n{text}\r\n0\r\nX-Sum: {bytes}\r\n\r\n", text.len());
                let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
                assert!(head.contains("\r\nTrailer: x-sum"), "{path}: {head}");
                assert!(!head.contains("Content-Length"), "{path}: {head}");
                let (size, rest) = body.split_once("\r\n").expect("a chunk");
                let size = usize::from_str_radix(size, 16).expect("a size");
                let unpadded = format!("{size:x}\r\n{rest}");
                assert_eq!(unpadded, expected, "{path}");
            }
        }
    });
}

#[test]
fn sim_trailers_of_a_stream_reach_what_takes_it() {
    let mut trailers = HeaderMap::new();
    for (name, value) in [
        ("x-a", "1"),
        ("host", "evil"),
        ("x-a", "2"),
        ("content-length", "9"),
    ] {
        let name = HeaderName::from_static(name);
        trailers.append(name, HeaderValue::from_static(value));
    }
    each_seed(SEEDS, |seed| {
        for (method, path) in ROUTES {
            for bytes in [0, 11, 100_000] {
                let mut server = TestServer::new(Conditions::rough(seed), service());
                let mut peer = Peer::new(&mut server);
                let asked = Asked::builder()
                    .method(method)
                    .uri(format!("http://h{path}"));
                let asked = asked.body(()).expect("a request");
                let index = peer.ask(asked, Some(Bytes::new()));
                if bytes > 0 {
                    peer.feed(index, &pattern(bytes), false);
                }
                peer.trail(index, trailers.clone());
                peer.finish(&mut server);
                let reply = peer.reply(index);
                let text = format!("{bytes} bytes, x-a=1;x-a=2;");
                assert_eq!((reply.text(), reply.end), (&*text, Some(Ok(()))), "{path}");
                assert_eq!(reply.trailers, sum(bytes), "{path}");
                assert_eq!(reply.headers["trailer"], "x-sum", "{path}");
            }
        }
    });
}

const PATHS: [&str; 5] = ["/bytes", "/sized", "/reader", "/fed", "/deferred"];
const PLACES: [fn(Methods) -> Methods; 2] = [pooled, Methods::inline];

/// Each way to reply, on a worker and on the network thread.
fn in_each_place() -> impl Iterator<Item = (fn(Methods) -> Methods, &'static str)> {
    let of = |place| PATHS.map(|path| (place, path));
    PLACES.into_iter().flat_map(of)
}

#[test]
fn sim_replies_of_every_kind_end_with_their_trailers_over_streams() {
    each_seed(SEEDS, |seed| {
        for bytes in [0, 1, 3000, 200_000] {
            for (place, path) in in_each_place() {
                let elsewhere = Elsewhere::here();
                let router = replies(bytes, place, &elsewhere);
                let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
                let mut peer = Peer::new(&mut server);
                let asked = peer.get(path);
                peer.until(&mut server, |peer| {
                    elsewhere.step();
                    peer.reply(asked).end.is_some()
                });
                let reply = peer.reply(asked);
                assert_eq!(reply.end, Some(Ok(())), "{path} {bytes}");
                assert!(reply.body == pattern(bytes), "{path} {bytes}");
                assert_eq!(reply.trailers, sum(bytes), "{path} {bytes}");
            }
        }
    });
}

/// The data of a chunked body, and what comes after its last chunk.
fn dechunked(mut rest: &[u8]) -> (Vec<u8>, String) {
    let mut data = Vec::new();
    loop {
        let at = rest
            .windows(2)
            .position(|it| it == b"\r\n")
            .expect("a line");
        let line = std::str::from_utf8(&rest[..at]).expect("a size");
        let bytes = usize::from_str_radix(line, 16).expect("a size");
        rest = &rest[at + 2..];
        if bytes == 0 {
            return (data, String::from_utf8_lossy(rest).into_owned());
        }
        data.extend_from_slice(&rest[..bytes]);
        assert_eq!(&rest[bytes..bytes + 2], b"\r\n");
        rest = &rest[bytes + 2..];
    }
}

/// A reply's head, and what follows.
fn parted(reply: &[u8]) -> (String, &[u8]) {
    let end = reply
        .windows(4)
        .position(|it| it == b"\r\n\r\n")
        .expect("a head")
        + 4;
    (
        String::from_utf8_lossy(&reply[..end]).into_owned(),
        &reply[end..],
    )
}

#[test]
fn sim_replies_of_every_kind_end_with_their_trailers_in_chunks() {
    each_seed(SEEDS, |seed| {
        for bytes in [0, 1, 3000, 200_000] {
            for (place, path) in in_each_place() {
                let elsewhere = Elsewhere::here();
                let router = replies(bytes, place, &elsewhere);
                let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
                let client = server.connect();
                let ask = |more: &str| {
                    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
                    client.write(request.as_bytes());
                };
                // The next reply is where it belongs.
                ask("TE: deflate;q=0.5, Trailers\r\n");
                ask("Connection: close\r\n");
                let mut both = Vec::new();
                server.run_until(|| {
                    elsewhere.step();
                    both.extend(client.read());
                    client.state() != ClientState::Open
                });
                both.extend(client.read());
                let (head, rest) = parted(&both);
                assert!(head.contains("\r\nTrailer: x-sum\r\n"), "{head}");
                let (data, rest) = dechunked(rest);
                assert!(data == pattern(bytes), "{path} {bytes}");
                let trailers = format!("X-Sum: {bytes}\r\n\r\nHTTP/1.1 200 OK\r\n");
                assert!(rest.starts_with(&trailers), "{path} {bytes}: {rest:.100}");
                assert!(
                    !rest[trailers.len()..].to_lowercase().contains("x-sum"),
                    "no more"
                );
                let has_length = matches!(path, "/bytes" | "/sized" | "/deferred");
                assert_eq!(rest.contains("Content-Length"), has_length, "{path}");
            }
        }
    });
}

#[test]
fn clients_without_use_for_trailers_get_none() {
    let last = |request: &str| {
        let service = Http::service(replies(10, pooled, &Elsewhere::here()));
        let mut server = TestServer::new(Conditions::calm(1), service);
        let client = server.connect();
        client.write(request.as_bytes());
        String::from_utf8(server.read_to_end(&client)).expect("text")
    };
    for request in [
        "HEAD /bytes HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close\r\n\r\n",
        "GET /bytes HTTP/1.1\r\nHost: h\r\nTE: trailers;q=0, x\r\nConnection: close\r\n\r\n",
        "GET /bytes HTTP/1.0\r\nTE: trailers\r\n\r\n",
        "GET /reader HTTP/1.0\r\nTE: trailers\r\n\r\n",
    ] {
        assert!(!last(request).contains("X-Sum"), "{request}");
    }
    let mut server = TestServer::new(
        Conditions::calm(1),
        Http::service(replies(10, pooled, &Elsewhere::here())),
    );
    let mut peer = Peer::new(&mut server);
    let asked = Asked::head("http://h/bytes").body(()).expect("a request");
    let index = peer.ask(asked, None);
    peer.finish(&mut server);
    assert!(peer.reply(index).trailers.is_empty(), "it has no body");
}

#[test]
fn late_trailers_that_are_not_set_are_none() {
    let unset = || Trailers::later([SUM]).1.after("text");
    let router = || Http::service(Router::new().get("/", unset));
    let mut server = TestServer::new(Conditions::calm(1), router());
    let mut peer = Peer::new(&mut server);
    let reply = peer.fetch(&mut server, "/");
    assert_eq!((reply.text(), reply.end), ("text", Some(Ok(()))));
    assert!(reply.trailers.is_empty());
    let mut server = TestServer::new(Conditions::calm(1), router());
    let client = server.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close\r\n\r\n");
    let reply = server.read_to_end(&client);
    assert_eq!(
        dechunked(parted(&reply).1),
        (b"text".to_vec(), "\r\n".to_owned())
    );
}

#[test]
fn trailers_have_the_limits_of_headers_over_both_versions() {
    let limits = Limits {
        headers_max: 3,
        ..Limits::default()
    };
    for (method, path) in ROUTES {
        for (count, status) in [(3, 200), (4, 431)] {
            let http = || service().limits(limits.clone());
            let mut server = TestServer::new(Conditions::calm(1), http());
            let client = server.connect();
            let lines = "X-A: 1\r\n".repeat(count);
            let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n");
            let head = head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
            client.write(format!("{head}1\r\nx\r\n0\r\n{lines}\r\n").as_bytes());
            let reply = String::from_utf8_lossy(&server.read_to_end(&client)).into_owned();
            assert!(
                reply.starts_with(&format!("HTTP/1.1 {status} ")),
                "{path}: {reply}"
            );
            let mut server = TestServer::new(Conditions::calm(1), http());
            let mut peer = Peer::new(&mut server);
            let asked = Asked::builder()
                .method(method)
                .uri(format!("http://h{path}"));
            let index = peer.ask(asked.body(()).expect("a request"), Some(Bytes::new()));
            peer.feed(index, b"x", false);
            let fields = (0..count).map(|_| (SUM, HeaderValue::from_static("1")));
            let mut trailers = HeaderMap::new();
            for (name, value) in fields {
                trailers.append(name, value);
            }
            peer.trail(index, trailers);
            peer.finish(&mut server);
            let found = peer.reply(index).status.map(|it| it.as_u16());
            assert_eq!(found, Some(status), "{path}");
        }
    }
}

#[test]
fn sim_long_trailers_wait_in_the_input_whatever_their_pieces_are() {
    let value = "v".repeat(15_000);
    each_seed(SEEDS, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        for (method, path) in ROUTES {
            let mut server = TestServer::new(Conditions::rough(seed), service());
            let client = server.connect();
            let request = chunked(method, path, &["hello"], &format!("X-A: {value}\r\n"));
            let mut rest = &request[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(random.usize(1..=rest.len().min(5000)));
                client.write(piece);
                (0..random.u8(..3)).for_each(|_| server.turn());
                rest = after;
            }
            let reply = server.read_to_end(&client);
            let (data, rest) = dechunked(parted(&reply).1);
            assert_eq!(data, format!("5 bytes, x-a={value};").as_bytes(), "{path}");
            assert_eq!(rest, "X-Sum: 5\r\n\r\n", "{path}");
        }
    });
}

fn trailers_come_and_go_over_a_real_socket(choice: DriverChoice) {
    let (_server, address) = serve(choice, service());
    for (method, path) in ROUTES {
        let mut client = Client::connect(address);
        client.send(chunked(method, path, &["hello"], "X-A: 1\r\nTE: x\r\n"));
        let (reply, _) = client.rest();
        let (data, rest) = dechunked(parted(&reply).1);
        assert_eq!(
            (&data[..], &*rest),
            (&b"5 bytes, x-a=1;"[..], "X-Sum: 5\r\n\r\n")
        );
    }
    for path in PATHS {
        let mut client = Client::connect(address);
        let ask = "HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close\r\n\r\n";
        client.send(format!("GET {path} {ask}"));
        let (reply, _) = client.rest();
        let (data, rest) = dechunked(parted(&reply).1);
        assert!(
            data == pattern(3000) && rest == "X-Sum: 3000\r\n\r\n",
            "{path}: {rest}"
        );
    }
}
