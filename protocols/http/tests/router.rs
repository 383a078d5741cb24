//! Routes, as clients see them, in the simulation.

use flatpath_http::flatpath::Bytes;
use flatpath_http::http::Method;
use flatpath_http::{Http, Next, Parameters, Request, Response, Router, State, routing};
use flatpath_test::{Conditions, TestServer};

/// What a client gets that sends this and no more.
fn ask(router: Router, requests: &str) -> String {
    let mut server = TestServer::new(Conditions::rough(7), Http::service(router));
    let client = server.connect();
    client.write(requests.as_bytes());
    String::from_utf8(server.read_to_end(&client)).expect("ASCII")
}

/// One request, the last of its connection.
fn one(router: Router, method: &str, path: &str, body: &str) -> String {
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
            assert!(reply.contains("allow: GET, HEAD, OPTIONS\r\n"), "{reply}");
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
    let marked = |request: Request, next: &Next<'_>| -> Response {
        let path = request.uri().path().to_owned();
        let mut response = next.run(request);
        let path = path.parse().expect("a valid value");
        response.headers_mut().append("x-seen", path);
        response
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
        inside.contains("x-seen: /state\r\n") && inside.ends_with("the state"),
        "{inside}"
    );
    assert!(one(router(), "GET", "/none", "").contains("x-seen: /none\r\n"));
    assert!(one(router(), "PUT", "/state", "").contains("x-seen: /state\r\n"));
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

fn panics(build: impl FnOnce() -> Router + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(build).err().expect("it conflicts");
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
    let malformed = panics(|| Router::new().get("/{", || ()));
    assert!(
        malformed.starts_with("the path /{ is not well formed"),
        "{malformed}"
    );
}
