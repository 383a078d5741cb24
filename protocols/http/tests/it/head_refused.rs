//! HEAD that is refused: "the server MUST NOT send content in the response" (RFC 9110 section
//! 9.3.2), wherever that is made: for a head, for a body, and in constant words.

use std::time::Duration;

use flatpath_http::http::{Request as Asked, StatusCode};
use flatpath_http::{Hosts, Http, Limits, Router, Service};
use flatpath_test::{Client, Conditions, TestServer};

use crate::deferred::Waiting;
use crate::h2_client::Peer;

const BODY_BYTES_MAX: u64 = 10;

fn service() -> Http<impl Service> {
    let limits = Limits {
        body_bytes_max: BODY_BYTES_MAX,
        ..Limits::default()
    };
    let router = Router::new().any("/", |body: String| body);
    let names = ["h".parse().expect("a host")];
    Http::service(router)
        .limits(limits)
        .hosts(Hosts::local().and(names))
}

/// All that is answered to this, as a head and what follows it.
fn answer(request: &str) -> (String, String) {
    let mut server = TestServer::new(Conditions::calm(1), service());
    server.set_wait_max(Duration::from_secs(600));
    let client = server.connect();
    client.write(request.as_bytes());
    let reply = String::from_utf8(server.read_to_end(&client)).expect("text");
    let (head, rest) = reply.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), rest.to_owned())
}

#[test]
fn what_is_refused_has_the_same_head_for_head_and_no_body() {
    let long = "x".repeat(100_000);
    let too_long = format!("/ HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n");
    for (rest, status) in [
        ("/ HTTP/1.1\r\n\r\n", 400),
        ("/ HTTP/1.1\r\nHost: h\r\nA B: c\r\n\r\n", 400),
        ("/a/../../b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (&*too_long, 431),
        ("/ HTTP/1.1\r\nHost: other\r\n\r\n", 421),
        ("/ HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n", 413),
        (
            "/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            400,
        ),
        // They are late.
        ("/ HTTP/1.1\r\nHost: h\r\n", 408),
        ("/ HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx", 408),
    ] {
        let (of_get, body) = answer(&format!("GET {rest}"));
        let shown = &rest[..rest.len().min(70)];
        assert!(
            of_get.starts_with(&format!("HTTP/1.1 {status} ")),
            "{shown}: {of_get}"
        );
        assert!(
            of_get.contains(&format!("\r\nContent-Length: {}", body.len())),
            "{of_get}"
        );
        assert!(!body.is_empty(), "{shown}");
        for before in ["", "\r\n"] {
            let (of_head, body) = answer(&format!("{before}HEAD {rest}"));
            let undated = |head: &str| {
                let lines = head.lines().filter(|line| !line.starts_with("Date: "));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(undated(&of_head), undated(&of_get), "{shown}");
            assert_eq!(body, "", "{shown}");
        }
    }
}

#[test]
fn constant_words_for_head_are_their_head_alone() {
    let mut conditions = Conditions::calm(1);
    conditions.limits.in_flight_max = 16;
    let waiting = Waiting::default();
    let router = || {
        let waiting = waiting.clone();
        Http::service(Router::new().get("/", move || waiting.wait("")))
    };
    let mut server = TestServer::new(conditions.clone(), router());
    let ask = |method: &str| {
        let client = server.connect();
        client.write(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        client
    };
    // As many wait as may; the others are refused.
    let clients: Vec<_> = (0..32).flat_map(|_| ["HEAD", "GET"]).map(ask).collect();
    (0..300).for_each(|_| server.turn());
    let refused = |client: &Client| {
        let reply = String::from_utf8(client.read()).expect("text");
        let (head, body) = reply.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert!(head.contains("\r\nContent-Length: 44\r\n"), "{head}");
        Some(body.len())
    };
    let bodies = |offset: usize| clients.iter().skip(offset).step_by(2).filter_map(refused);
    let (of_head, of_get): (Vec<_>, Vec<_>) = (bodies(0).collect(), bodies(1).collect());
    assert!(
        of_head.contains(&0) && of_head.iter().all(|bytes| *bytes == 0),
        "{of_head:?}"
    );
    assert!(
        of_get.contains(&44) && of_get.iter().all(|bytes| *bytes == 44),
        "{of_get:?}"
    );

    let mut server = TestServer::new(conditions, router());
    let mut peer = Peer::new(&mut server);
    let asked = || Asked::head("http://h/").body(()).expect("a request");
    let streams: Vec<_> = (0..32).map(|_| peer.ask(asked(), None)).collect();
    let ended = |peer: &Peer| {
        let replies = streams.iter().map(|at| peer.reply(*at));
        replies.filter(|reply| reply.end.is_some()).count()
    };
    peer.until(&mut server, |peer| ended(peer) > 0);
    let replies = streams.iter().map(|at| peer.reply(*at));
    for reply in replies.filter(|reply| reply.end.is_some()) {
        assert_eq!(reply.status, Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(reply.headers["content-length"], "44");
        assert_eq!((reply.end, reply.body.len()), (Some(Ok(())), 0));
    }
}
