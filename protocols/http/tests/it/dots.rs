//! Dot segments are gone before anything is looked for: the prefix of a site, a route, a mounted
//! service; over HTTP/1 in both forms of a target, and over HTTP/2.

use flatpath_http::{Http, MatchedPath, Request, Router, Sites};
use flatpath_test::{Conditions, TestServer};

use crate::h2_client::Peer;
use crate::layers::{Teller, reply_to};

/// Who answers, where.
fn http() -> Http<Sites> {
    let show = |route: MatchedPath, request: Request| {
        format!("route {} {}\n", route.as_str(), request.uri().path())
    };
    let router = Router::new()
        .get("/a/{id}", show)
        .get("/a", show)
        .nest_service("/in", Teller::new("in"))
        .fallback_service(Teller::new("rest"));
    let any = ["*".parse().expect("a pattern")];
    let sites = Sites::new().add(&any, "/", router);
    let sites = sites.and_then(|sites| sites.add(&any, "/private", Teller::new("private")));
    Http::service(sites.expect("two sites"))
}

/// A path, and the words that answer it.
const PATHS: &[(&str, &str)] = &[
    ("/a/7", "route /a/{id} /a/7"),
    ("/./a/./7", "route /a/{id} /a/7"),
    ("/x/../a/7", "route /a/{id} /a/7"),
    ("/private/../a/7", "route /a/{id} /a/7"),
    ("/private/%2e%2E/a", "route /a /a"),
    ("/in/../private/x", "private worker [/private] /x"),
    ("/./private/x", "private worker [/private] /x"),
    (
        "/private/./x?y=/../z",
        "private worker [/private] /x?y=/../z",
    ),
    ("/a/.%2e/private/x/..", "private worker [/private] /"),
    ("/a/%2e./in/x", "in worker [/in] /x"),
    ("/in/a/../b", "in worker [/in] /b"),
    ("/in/..", "rest worker [] /"),
    ("/in/.", "in worker [/in] /"),
    ("/in/..%2fa", "in worker [/in] /..%2fa"),
    ("/in/...", "in worker [/in] /..."),
];

const ABOVE: &[&str] = &[
    "/..",
    "/../a",
    "/private/../../private/x",
    "/%2e%2e/a",
    "/./%2E./in/x",
];

#[test]
fn sites_routes_and_services_see_paths_without_dot_segments() {
    let mut server = TestServer::new(Conditions::calm(7), http());
    for (path, words) in PATHS {
        for target in [(*path).to_owned(), format!("http://h{path}")] {
            let reply = reply_to(&mut server, &format!("GET {target}"), "");
            let told = reply.rsplit("\r\n\r\n").next().unwrap_or_default();
            assert_eq!(told.trim_end(), *words, "{target}: {reply}");
        }
    }
    for path in ABOVE {
        for target in [(*path).to_owned(), format!("http://h{path}")] {
            let reply = reply_to(&mut server, &format!("GET {target}"), "");
            assert!(reply.starts_with("HTTP/1.1 400 "), "{target}: {reply}");
        }
    }
}

#[test]
fn they_do_over_http_2() {
    let mut server = TestServer::new(Conditions::calm(7), http());
    let mut peer = Peer::new(&mut server);
    for (path, words) in PATHS {
        let reply = peer.fetch(&mut server, path);
        assert_eq!(reply.text().trim_end(), *words, "{path}");
    }
    for path in ABOVE {
        let reply = peer.fetch(&mut server, path);
        assert_eq!(
            reply.status.map(|status| status.as_u16()),
            Some(400),
            "{path}"
        );
    }
}

/// The rest of the request is where it was.
#[test]
fn what_follows_a_target_with_dot_segments_is_the_next_request() {
    let mut server = TestServer::new(Conditions::calm(7), http());
    let client = server.connect();
    let first = "POST /in/./x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let second = "GET /x/../in/y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    client.write(format!("{first}{second}").as_bytes());
    let replies = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
    let first = replies.find("in worker [/in] /x hello\n");
    let second = replies.find("in worker [/in] /y\n");
    assert!(first.is_some() && first < second, "{replies}");
}
