//! Request ids and the headers of security.

use std::collections::HashSet;
use std::time::Duration;

use flatpath_http::http::header::{REFERRER_POLICY, X_FRAME_OPTIONS};
use flatpath_http::http::{HeaderName, HeaderValue};
use flatpath_http::{Request, RequestId, Router, routing};
use flatpath_layers::{SecurityHeaders, SetRequestId};
use flatpath_test::each_seed;

use crate::{Site, upload};

fn show(id: RequestId) -> String {
    id.to_string()
}

fn site(seed: u64, ids: SetRequestId) -> Site {
    let router = Router::new()
        .get("/", show)
        .route("/upload", routing::put(upload).streamed())
        .layer(ids)
        .get("/without", show);
    Site::new(seed, router)
}

#[test]
fn sim_each_request_has_an_id_of_its_own() {
    each_seed(5, |seed| {
        let mut site = site(seed, SetRequestId::new());
        let mut ids = HashSet::new();
        for line in ["GET /", "GET /", "GET /none", "PUT /upload", "DELETE /"] {
            let reply = site.ask_from(None, line, &["X-Request-Id: theirs"], "");
            let id = reply.field("x-request-id").expect("an id").to_owned();
            assert!(
                id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit()),
                "{id}"
            );
            if line == "GET /" {
                assert_eq!(reply.text(), id, "the handler has the same");
            }
            assert!(ids.insert(id), "{line}");
        }
        assert_eq!(site.ask("GET /without", &[]).status, 500);
    });
}

#[test]
fn sim_an_id_is_kept_where_it_is_trusted_and_sound() {
    let trusts = |request: &Request| request.headers().contains_key("x-proxy");
    let header = HeaderName::from_static("x-trace");
    let mut site = site(1, SetRequestId::new().header(header).trust(trusts));
    let longest = format!("X-Trace: {}", "a".repeat(128));
    for id in ["X-Trace: a-1", &longest] {
        let value = id.strip_prefix("X-Trace: ");
        let reply = site.ask("GET /", &["X-Proxy: yes", id]);
        assert_eq!(reply.field("x-trace"), value);
        assert_eq!(Some(reply.text()), value);
        assert_ne!(site.ask("GET /", &[id]).field("x-trace"), value);
    }
    let too_long = format!("X-Trace: {}", "a".repeat(129));
    for headers in [
        &["X-Trace: a b"][..],
        &["X-Trace:"],
        &["X-Trace: \u{e4}"],
        &["X-Trace: a", "X-Trace: b"],
        &[&too_long],
    ] {
        let headers = [headers, &["X-Proxy: yes"]].concat();
        let reply = site.ask("GET /", &headers);
        assert_eq!(
            reply.field("x-trace").map(str::len),
            Some(32),
            "{headers:?}"
        );
    }
}

#[test]
fn sim_security_headers_are_added_where_a_handler_has_none() {
    let careful = SecurityHeaders::new()
        .set(REFERRER_POLICY, HeaderValue::from_static("no-referrer"))
        .set(
            HeaderName::from_static("x-more"),
            HeaderValue::from_static("1"),
        )
        .without(&HeaderName::from_static("cross-origin-opener-policy"))
        .strict_transport(Duration::from_secs(3600));
    let own = || ([(X_FRAME_OPTIONS, "SAMEORIGIN")], "framed");
    let router = Router::new()
        .get("/", || "hello")
        .get("/own", own)
        .layer(careful);
    let mut site = Site::new(1, router);
    for (line, frame) in [
        ("GET /", "DENY"),
        ("GET /own", "SAMEORIGIN"),
        ("GET /none", "DENY"),
    ] {
        let reply = site.ask(line, &[]);
        for (name, value) in [
            ("x-frame-options", Some(frame)),
            ("x-content-type-options", Some("nosniff")),
            ("referrer-policy", Some("no-referrer")),
            ("cross-origin-resource-policy", Some("same-origin")),
            ("cross-origin-opener-policy", None),
            ("x-more", Some("1")),
            // The connection has no TLS (RFC 6797, 7.2).
            ("strict-transport-security", None),
        ] {
            assert_eq!(reply.field(name), value, "{line}: {name}");
        }
        let policy = reply.field("content-security-policy").unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    }
}
