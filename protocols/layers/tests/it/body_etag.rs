//! Entity tags of bodies.

use flatpath_http::http::StatusCode;
use flatpath_http::http::header::{CACHE_CONTROL, ETAG};
use flatpath_http::{Body, Router, routing};
use flatpath_layers::{BodyEtag, Compression};
use flatpath_test::each_seed;

use crate::Site;

fn long(length: usize) -> String {
    "x".repeat(length)
}

fn router() -> Router {
    Router::new()
        .get("/", || ([(CACHE_CONTROL, "no-cache")], "hello"))
        .get("/other", || "hallo")
        .get("/long", || long(5000))
        .get("/too-long", || long(5001))
        .route("/inline", routing::get(|| long(5000)).inline())
        .get("/read", || Body::reader(&b"hello"[..], Some(5)))
        .get("/own", || {
            ([(ETAG, "W/\"mine\"")], Body::reader(&b"hello"[..], None))
        })
        .get("/created", || (StatusCode::CREATED, "hello"))
        .post("/", || "hello")
        .head("/alone", || ())
}

#[test]
fn sim_the_same_body_has_the_same_tag_and_is_not_sent_again() {
    each_seed(3, |seed| {
        let mut site = Site::new(seed, router().layer(BodyEtag::strong().bytes_max(5000)));
        let mut tags = Vec::new();
        for path in ["/", "/other", "/long", "/inline"] {
            let reply = site.ask(&format!("GET {path}"), &[]);
            let tag = reply.field("etag").expect("a tag").to_owned();
            assert!(
                tag.starts_with('"') && tag.ends_with('"') && tag.len() == 42,
                "{tag}"
            );
            for listed in [&tag, &format!("W/{tag}"), &format!("\"a\", {tag}"), "*"] {
                let known = format!("If-None-Match: {listed}");
                for method in ["GET", "HEAD"] {
                    let reply = site.ask(&format!("{method} {path}"), &[&known]);
                    assert_eq!(reply.status, 304, "{method} {path} {listed}");
                    assert_eq!(reply.field("etag"), Some(&*tag));
                    assert_eq!(reply.field("content-type"), None);
                }
            }
            let reply = site.ask(&format!("GET {path}"), &["If-None-Match: \"a\""]);
            assert_eq!(reply.status, 200);
            tags.push(tag);
        }
        assert_ne!(tags[0], tags[1]);
        assert_eq!(tags[2], tags[3], "wherever it was made");
        let known = format!("If-None-Match: {}", tags[0]);
        let reply = site.ask("GET /", &[&known]);
        assert_eq!(reply.field("cache-control"), Some("no-cache"));
        assert_eq!(site.ask("POST /", &[&known]).status, 200);
    });
}

#[test]
fn sim_what_has_no_tag_is_sent() {
    let mut site = Site::new(1, router().layer(BodyEtag::strong().bytes_max(5000)));
    for line in [
        "HEAD /alone",
        "GET /too-long",
        "GET /read",
        "GET /created",
        "POST /",
        "GET /none",
    ] {
        let reply = site.ask(line, &["If-None-Match: *"]);
        assert_eq!(reply.field("etag"), None, "{line}");
        assert_ne!(reply.status, 304, "{line}");
    }
    assert_eq!(
        site.ask("GET /own", &["If-None-Match: \"mine\""]).status,
        304
    );
    let reply = site.ask("GET /own", &["If-None-Match: \"other\""]);
    assert_eq!(
        (reply.text(), reply.field("etag")),
        ("hello", Some("W/\"mine\""))
    );
}

#[test]
fn sim_long_bodies_get_none_on_a_network_thread() {
    let answer = |length| move || long(length);
    let router = Router::new()
        .route("/at-most", routing::get(answer(16 * 1024)).inline())
        .route("/longer", routing::get(answer(16 * 1024 + 1)).inline())
        .get("/pooled", answer(16 * 1024 + 1))
        .layer(BodyEtag::weak());
    let mut site = Site::new(2, router);
    let mut has_tag = |path: &str| {
        let reply = site.ask(&format!("GET {path}"), &[]);
        reply.field("etag").map(|tag| tag.starts_with("W/\"")) == Some(true)
    };
    assert_eq!(
        ["/at-most", "/longer", "/pooled"].map(&mut has_tag),
        [true, false, true]
    );
}

#[test]
fn sim_a_tag_passes_compression() {
    let layers = router().layer(BodyEtag::strong()).layer(Compression::new());
    let mut site = Site::new(3, layers);
    let accepts = "Accept-Encoding: gzip";
    let reply = site.ask("GET /long", &[accepts]);
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    let tag = reply.field("etag").expect("a tag");
    assert!(tag.starts_with("W/\""), "it is not of these bytes: {tag}");
    let reply = site.ask("GET /long", &[accepts, &format!("If-None-Match: {tag}")]);
    assert_eq!(
        (reply.status, reply.field("vary")),
        (304, Some("accept-encoding"))
    );
    assert_eq!(reply.field("content-encoding"), None);
}
