//! Cross-origin requests and their preflights, as browsers send them.

use std::panic::catch_unwind;
use std::time::Duration;

use flatpath_http::http::header::{AUTHORIZATION, CONTENT_TYPE};
use flatpath_http::http::{HeaderName, Method};
use flatpath_http::{Router, routing};
use flatpath_layers::{BasicAuth, Cors};
use flatpath_test::each_seed;

use crate::{Site, all, upload};

const APP: &str = "Origin: https://app.example";
const OTHER: &str = "Origin: https://other.example";
const ASKS: &str = "Access-Control-Request-Method: PUT";

fn named() -> Cors {
    let origins = ["https://app.example", "http://localhost:3000"];
    Cors::origins(origins.map(|it| it.parse().expect("an origin")))
        .methods([Method::GET, Method::PUT])
        .headers([AUTHORIZATION, CONTENT_TYPE])
        .expose([HeaderName::from_static("x-total")])
        .credentials()
        .max_age(Duration::from_secs(600))
}

fn router() -> Router {
    Router::new()
        .get("/", || ([("vary", "accept"), ("x-total", "3")], "hello"))
        .get("/fails", || -> &'static str {
            std::panic::panic_any("on purpose")
        })
        .get("/own", || ([("access-control-allow-origin", "*")], "open"))
        .route("/upload", routing::put(upload).streamed())
        .options("/", || "of the handler")
}

#[test]
fn sim_an_allowed_origin_reads_every_response() {
    each_seed(5, |seed| {
        let mut site = Site::new(seed, router().layer(named()));
        for (line, status) in [
            ("GET /", 200),
            ("GET /none", 404),
            ("POST /", 405),
            ("GET /fails", 500),
            ("PUT /upload", 200),
            ("OPTIONS /", 200),
            ("GET /own", 200),
        ] {
            let reply = site.ask_from(None, line, &[APP], "body");
            assert_eq!(reply.status, status, "{line}");
            assert_eq!(
                reply.field("access-control-allow-origin"),
                Some("https://app.example"),
                "{line}: {reply:?}"
            );
            assert_eq!(
                reply.field("access-control-allow-credentials"),
                Some("true")
            );
            assert_eq!(
                reply.field("access-control-expose-headers"),
                Some("x-total")
            );
            assert!(all(&reply, "vary").contains("origin"), "{line}: {reply:?}");
        }
    });
}

#[test]
fn sim_what_is_not_allowed_gets_the_response_without_the_headers() {
    let mut site = Site::new(1, router().layer(named()));
    for headers in [
        &[][..],
        &[OTHER],
        &["Origin: null"],
        &["Origin: http://app.example"],
        &["Origin: https://app.example.evil"],
        &[APP, OTHER],
    ] {
        for line in ["GET /", "GET /own"] {
            let reply = site.ask(line, headers);
            assert_eq!(reply.status, 200);
            let granted = |(name, _): &&(String, String)| {
                name.to_ascii_lowercase().starts_with("access-control")
            };
            assert_eq!(reply.fields.iter().find(granted), None, "{headers:?}");
            assert!(
                all(&reply, "vary").contains("origin"),
                "{headers:?}: {reply:?}"
            );
        }
    }
}

/// What a handler grants by itself, to everyone.
fn generous() -> Router {
    let all = [
        ("access-control-allow-origin", "https://own.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "x-own"),
    ];
    Router::new().get("/", move || (all, "hello"))
}

#[test]
fn sim_each_class_of_origin_gets_its_fields_whatever_the_handler_grants() {
    let plain = || Cors::origins(["https://app.example".parse().expect("an origin")]);
    let exposing = || plain().expose([HeaderName::from_static("x-total")]);
    // A policy, and what an origin that is allowed gets: credentials, exposed fields.
    for (cors, credentials, exposed) in [
        (plain(), "", ""),
        (plain().credentials(), "true", ""),
        (exposing(), "", "x-total"),
        (exposing().credentials(), "true", "x-total"),
    ] {
        let mut site = Site::new(6, generous().layer(cors));
        for (headers, is_allowed) in [
            (&[APP][..], true),
            (&["Origin: HTTPS://APP.EXAMPLE"], true),
            (&[OTHER], false),
            (&["Origin: null"], false),
            (&["Origin:"], false),
            (&["Origin: https://app.example:8443"], false),
            (&["Origin: https://app.example/"], false),
            (&[APP, APP], false),
            (&[], false),
        ] {
            let reply = site.ask("GET /", headers);
            let said = |field| all(&reply, field).to_ascii_lowercase();
            let expected = |value: &'static str| if is_allowed { value } else { "" };
            for (field, value) in [
                ("access-control-allow-origin", "https://app.example"),
                ("access-control-allow-credentials", credentials),
                ("access-control-expose-headers", exposed),
                ("access-control-allow-methods", ""),
                ("access-control-allow-headers", ""),
                ("access-control-max-age", ""),
            ] {
                assert_eq!(said(field), expected(value), "{headers:?}: {reply:?}");
            }
            assert_eq!(said("vary"), "origin", "{headers:?}: {reply:?}");
        }
    }
}

#[test]
fn sim_preflights_are_answered_by_the_layer() {
    let auth = BasicAuth::new("r", [("a", "b")]);
    let mut site = Site::new(2, router().layer(auth).layer(named()));
    for line in ["OPTIONS /", "OPTIONS /none", "OPTIONS /upload"] {
        let reply = site.ask(line, &[APP, ASKS]);
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{line}");
        for (name, value) in [
            ("access-control-allow-origin", "https://app.example"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "GET, PUT"),
            (
                "access-control-allow-headers",
                "authorization, content-type",
            ),
            ("access-control-max-age", "600"),
            ("vary", "origin"),
        ] {
            assert_eq!(reply.field(name), Some(value), "{line}: {reply:?}");
        }
    }
    let reply = site.ask("OPTIONS /", &[OTHER, ASKS]);
    assert_eq!(reply.status, 204);
    assert_eq!(reply.field("access-control-allow-methods"), None);
    assert_eq!(reply.field("access-control-max-age"), None);
    assert_eq!(reply.field("vary"), Some("origin"));
    // No preflights: they lack one of its headers.
    assert_eq!(site.ask("OPTIONS /", &[APP]).status, 401);
    assert_eq!(site.ask("OPTIONS /", &[ASKS]).status, 401);
    assert_eq!(site.ask("GET /", &[APP, ASKS]).status, 401);
}

#[test]
fn sim_every_origin_is_a_star_on_which_nothing_depends() {
    let star = ["*".parse().expect("a star")];
    for cors in [Cors::any(), Cors::origins(star)] {
        let cors = cors.any_method().any_header().expose_any();
        let mut site = Site::new(3, router().layer(cors));
        for headers in [&[][..], &[OTHER]] {
            let reply = site.ask("GET /", headers);
            assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
            assert_eq!(reply.field("access-control-expose-headers"), Some("*"));
            assert_eq!(reply.field("vary"), Some("accept"));
        }
        let reply = site.ask("OPTIONS /", &[OTHER, ASKS]);
        assert_eq!(reply.field("access-control-allow-methods"), Some("*"));
        assert_eq!(reply.field("access-control-allow-headers"), Some("*"));
        assert_eq!(reply.field("vary"), None);
    }
}

#[test]
fn sim_a_function_decides_and_headers_are_mirrored() {
    let ours = |origin: &[u8]| origin.ends_with(b".example");
    let cors = Cors::matching(ours).mirrored_headers().credentials();
    let mut site = Site::new(4, router().layer(cors));
    let asked = "Access-Control-Request-Headers: x-a,x-b";
    let reply = site.ask("OPTIONS /", &[OTHER, ASKS, asked]);
    assert_eq!(reply.field("access-control-allow-headers"), Some("x-a,x-b"));
    assert_eq!(all(&reply, "vary"), "origin|access-control-request-headers");
    assert_eq!(reply.field("access-control-allow-methods"), None);
    let reply = site.ask("GET /", &["Origin: https://evil.test"]);
    assert_eq!(reply.field("access-control-allow-origin"), None);
}

#[test]
fn credentials_with_a_wildcard_are_refused_in_any_order() {
    let origin = || Cors::origins(["https://a.example".parse().expect("an origin")]);
    let wrong: [fn(Cors) -> Cors; 6] = [
        |cors| cors.any_method().credentials(),
        |cors| cors.credentials().any_method(),
        |cors| cors.any_header().credentials(),
        |cors| cors.credentials().any_header(),
        |cors| cors.expose_any().credentials(),
        |cors| cors.credentials().expose_any(),
    ];
    for wrong in wrong {
        assert!(catch_unwind(move || wrong(origin())).is_err());
    }
    assert!(catch_unwind(|| Cors::any().credentials()).is_err());
    let _ = origin().credentials().mirrored_headers();
}
