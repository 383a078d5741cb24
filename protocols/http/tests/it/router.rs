//! Routes, as clients see them, in the simulation.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use flatpath_http::http::{HeaderMap, Method, StatusCode};
use flatpath_http::{
    Answer, Bytes, Http, IntoResponse, Next, Parameters, Payload, Request, Response, Router, Sink,
    State, Upload, WorkerScope, routing,
};
use flatpath_test::{Conditions, TestServer};

/// What a client gets that sends this and no more.
fn ask(router: Router, requests: &str) -> String {
    let mut server = TestServer::new(Conditions::rough(7), Http::service(router));
    let client = server.connect();
    client.write(requests.as_bytes());
    String::from_utf8(server.read_to_end(&client)).expect("ASCII")
}

/// One request, the last of its connection.
pub(crate) fn one(router: Router, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    ask(
        router,
        &format!("{head}Content-Length: {length}\r\n\r\n{body}"),
    )
}

fn users() -> Router {
    let show = |parameters: Parameters| format!("user {}", parameters.get("id").unwrap_or("?"));
    Router::new()
        .get("/users/{id}", show)
        .get("/users/me", || "myself")
        .route("/fast", routing::get(|| "fast").inline())
        .route(
            "/short",
            routing::post(|body: Bytes| body).body_bytes_max(4),
        )
        .any("/any", |method: Method| method.to_string())
}

#[test]
fn paths_lead_to_their_handlers() {
    for (path, end) in [
        ("/users/7", "\r\n\r\nuser 7"),
        ("/users/me", "\r\n\r\nmyself"),
        ("/users/a%2Fb%20c?d", "\r\n\r\nuser a/b c"),
        ("/users/%2541", "\r\n\r\nuser %41"),
        ("/fast", "\r\n\r\nfast"),
    ] {
        let reply = one(users(), "GET", path, "");
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(end),
            "{path}: {reply}"
        );
    }
    assert!(one(users(), "GET", "/users/%ff", "").starts_with("HTTP/1.1 400 "));
    for path in ["/", "/users", "/users/", "/users/7/8", "/fast/"] {
        assert!(
            one(users(), "GET", path, "").starts_with("HTTP/1.1 404 "),
            "{path}"
        );
    }
}

#[test]
fn methods_without_a_handler_learn_what_is_allowed() {
    for path in ["/users/7", "/fast"] {
        let head = one(users(), "HEAD", path, "");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let refused = one(users(), "DELETE", path, "");
        assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
        let options = one(users(), "OPTIONS", path, "");
        assert!(options.starts_with("HTTP/1.1 204 "), "{options}");
        for reply in [refused, options] {
            assert!(reply.contains("Allow: GET, HEAD, OPTIONS\r\n"), "{reply}");
        }
    }
    assert!(one(users(), "OPTIONS", "*", "").starts_with("HTTP/1.1 204 "));
    assert!(one(users(), "BREW", "/any", "").ends_with("\r\n\r\nBREW"));
}

#[test]
fn a_route_has_its_own_bound_for_bodies() {
    assert!(one(users(), "POST", "/short", "four").ends_with("four"));
    assert!(one(users(), "POST", "/short", "fives").starts_with("HTTP/1.1 413 "));
    assert!(one(users(), "PUT", "/any", "fives").starts_with("HTTP/1.1 200 "));
    let chunked = "POST /short HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert!(ask(users(), chunked).starts_with("HTTP/1.1 413 "));
}

#[test]
fn routers_nest_merge_and_fall_back() {
    let nested = || {
        let inner = Router::new().get("/", || "root").get("/a", || "a");
        let other = Router::new().get("/other", || "other").fallback(|| "lost");
        Router::new().nest("/in", inner).merge(other)
    };
    for (path, end) in [
        ("/in", "root"),
        ("/in/a", "a"),
        ("/other", "other"),
        ("/x", "lost"),
    ] {
        let reply = one(nested(), "GET", path, "");
        assert!(
            reply.ends_with(&format!("\r\n\r\n{end}")),
            "{path}: {reply}"
        );
    }
}

#[test]
fn layers_and_state_surround_the_handlers_so_far() {
    let marked = |request: Request, next: &Next<'_>| -> Answer {
        let path = request.uri().path().to_owned();
        next.run(request).map(move |mut response: Response| {
            let path = path.parse().expect("a valid value");
            response.headers_mut().append("x-seen", path);
            response
        })
    };
    let router = || {
        Router::new()
            .get("/state", |State(state): State<&'static str>| state)
            .layer(marked)
            .get("/outside", || "outside")
            .with_state("the state")
    };
    let inside = one(router(), "GET", "/state", "");
    assert!(
        inside.contains("X-Seen: /state\r\n") && inside.ends_with("the state"),
        "{inside}"
    );
    assert!(one(router(), "GET", "/none", "").contains("X-Seen: /none\r\n"));
    assert!(one(router(), "PUT", "/state", "").contains("X-Seen: /state\r\n"));
    assert!(!one(router(), "GET", "/outside", "").contains("x-seen"));
}

#[test]
fn sim_pipelined_requests_are_answered_in_order_wherever_they_run() {
    for seed in 0..20 {
        let http = Http::service(users());
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        let mut sent = String::new();
        for number in 0..10 {
            for path in [format!("/users/{number}"), "/fast".to_owned()] {
                sent += &format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            }
        }
        sent += "GET /users/last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        client.write(sent.as_bytes());
        let replies = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        let mut rest = replies.as_str();
        for number in 0..10 {
            for text in [format!("user {number}"), "fast".to_owned()] {
                let at = rest.find(&text).expect("in order");
                rest = &rest[at + text.len()..];
            }
        }
        assert!(rest.ends_with("user last"), "seed {seed}: {rest}");
    }
}

/// Counts a body, and refuses one that has a `!`.
struct Count {
    bytes: usize,
}

impl Sink for Count {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.bytes += piece.len();
        match piece.parts().any(|part| part.bytes().contains(&b'!')) {
            true => Err(Box::new(StatusCode::BAD_REQUEST.into_response())),
            false => Ok(()),
        }
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.bytes.to_string().into_response()
    }
}

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.contains(&b'!') {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.lock().expect("no panic").write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn uploads() -> Router {
    let count = || Upload::new(Count { bytes: 0 });
    let guarded = |headers: HeaderMap| match headers.contains_key("x-key") {
        true => Ok(Upload::new(Count { bytes: 0 })),
        false => Err(StatusCode::UNAUTHORIZED),
    };
    let kept = || {
        Upload::to(Kept::default(), |kept: Kept| {
            let kept = std::mem::take(&mut *kept.0.lock().expect("no panic"));
            String::from_utf8(kept).map_err(|_| StatusCode::BAD_REQUEST)
        })
    };
    let mark = |request: Request, next: &Next<'_>| {
        let answer = next.run(request);
        (StatusCode::IM_A_TEAPOT, answer)
    };
    Router::new()
        .route("/layered", routing::put(count).streamed())
        .layer(mark)
        .route("/count", routing::put(count).streamed())
        .route("/guarded", routing::put(guarded).streamed())
        .route("/short", routing::put(count).body_bytes_max(9).streamed())
        .route("/kept/{of}", routing::put(kept).streamed())
        .put("/whole", count)
}

#[test]
fn a_streamed_route_takes_bodies_of_any_length_piece_by_piece() {
    let long = "x".repeat(3_000_000);
    for (path, body, status, end) in [
        ("/count", long.as_str(), 200, "\r\n\r\n3000000"),
        ("/count", "", 200, "\r\n\r\n0"),
        ("/layered", "four", 418, "\r\n\r\n4"),
        ("/short", "123456789", 200, "\r\n\r\n9"),
        ("/short", "1234567890", 413, "\r\n\r\n"),
        ("/count", "x!", 400, "\r\n\r\n"),
        ("/guarded", "x", 401, "\r\n\r\n"),
        ("/kept/a", "hello", 200, "\r\n\r\nhello"),
        ("/kept/a", "!", 500, "\r\n\r\n"),
        ("/kept/%ff", "hello", 400, "UTF-8\n"),
        ("/whole", "x", 500, "not streamed\n"),
    ] {
        let reply = one(uploads(), "PUT", path, body);
        let status = format!("HTTP/1.1 {status} ");
        assert!(
            reply.starts_with(&status) && reply.ends_with(end),
            "{path}: {reply}"
        );
    }
    let chunked = "PUT /short HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
        Transfer-Encoding: chunked\r\n\r\n\
        8\r\n12345678\r\n2\r\n90\r\n0\r\n\r\n";
    assert!(ask(uploads(), chunked).starts_with("HTTP/1.1 413 "));
}

#[test]
fn another_service_takes_what_has_no_route() {
    let both = || {
        let path = |request: &Request| format!("{} within", request.uri().path());
        let inner = Router::new()
            .route("/inner", routing::get(path).inline())
            .any("/{*rest}", path);
        let routes = Router::new()
            .get("/a", || "a")
            .get("/b/{c}", |parameters: Parameters| format!("{parameters:?}"))
            .route("/fast", routing::get(|| "fast").inline())
            .route(
                "/count",
                routing::put(|| Upload::new(Count { bytes: 0 })).streamed(),
            )
            .layer(|request: Request, next: &Next<'_>| ([("x-layer", "1")], next.run(request)));
        Http::service(routes.fallback_service(inner))
    };
    let mut server = TestServer::new(Conditions::rough(5), both());
    let mut ask = |line: &str, body: &str| {
        let client = server.connect();
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        client.write(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
        String::from_utf8(server.read_to_end(&client)).expect("ASCII")
    };
    for (line, body, end) in [
        ("GET /a", "", "\r\n\r\na"),
        ("GET /fast", "", "\r\n\r\nfast"),
        ("PUT /count", "four", "\r\n\r\n4"),
        ("GET /elsewhere", "", "/elsewhere within"),
        ("PUT /elsewhere", "body", "/elsewhere within"),
        ("GET /inner", "", "/inner within"),
    ] {
        let reply = ask(line, body);
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(end),
            "{line}: {reply}"
        );
        let is_layered = !end.ends_with("within");
        assert_eq!(reply.contains("X-Layer"), is_layered, "{line}: {reply}");
    }
    assert!(ask("PUT /a", "").starts_with("HTTP/1.1 405 "));
    assert!(ask("OPTIONS *", "").starts_with("HTTP/1.1 204 "));
}

fn panics(build: impl FnOnce() -> Router + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(build).expect_err("it conflicts");
    panic
        .downcast::<String>()
        .map_or_else(|_| String::new(), |text| *text)
}

#[test]
fn conflicting_routes_are_named() {
    let two = || Router::new().get("/a/{b}", || ()).get("/a/{c}", || ());
    assert_eq!(
        panics(two),
        "the path /a/{c} conflicts with /a/{b}, which has handlers already"
    );
    let twice = || Router::new().get("/a", || ()).get("/a", || ());
    assert_eq!(panics(twice), "/a has a handler for GET already");
    assert_eq!(
        panics(|| Router::new().get("a", || ())),
        "a path begins with a slash: a"
    );
    // One path in two spellings is one path.
    let spelled = || {
        Router::new()
            .get("/caf\u{e9}/{b}", || ())
            .get("/caf%c3%a9/{c}", || ())
    };
    assert_eq!(
        panics(spelled),
        "the path /caf%c3%a9/{c} conflicts with /caf\u{e9}/{b}, which has handlers already"
    );
    let twice = || {
        Router::new()
            .get("/caf\u{e9}", || ())
            .get("/caf%C3%A9", || ())
    };
    assert_eq!(panics(twice), "/caf\u{e9} has a handler for GET already");
    let mounted = || {
        let service = || Router::new();
        Router::<()>::new()
            .nest_service("/%61", service())
            .nest_service("/a", service())
    };
    assert_eq!(
        panics(mounted),
        "the path /a conflicts with /a, which has handlers already"
    );
    assert_eq!(
        panics(|| Router::new().get("/a?b=c", || ())),
        "the path /a?b=c is not well formed: a `?` begins a query, which no route has"
    );
    let malformed = panics(|| Router::new().get("/{", || ()));
    assert!(
        malformed.starts_with("the path /{ is not well formed"),
        "{malformed}"
    );
}
