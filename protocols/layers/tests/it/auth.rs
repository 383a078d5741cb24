//! Passwords and tokens: who is admitted, and what all others are told.

use std::panic::catch_unwind;

use flatpath_http::http::StatusCode;
use flatpath_http::{Extension, Router, routing};
use flatpath_layers::{AuthUser, BasicAuth, BearerAuth};
use flatpath_test::each_seed;

use crate::{Site, upload};

fn who(Extension(user): Extension<AuthUser>) -> String {
    user.as_str().to_owned()
}

#[test]
fn sim_a_name_with_its_password_is_admitted() {
    let users = [("ada", "pass:word"), ("bob", "p\u{e4}ss"), ("none", "")];
    each_seed(3, |seed| {
        let router = Router::new()
            .get("/", who)
            .route("/upload", routing::put(upload).streamed())
            .layer(BasicAuth::new("the staff", users));
        let mut site = Site::new(seed, router);
        for (credentials, name) in [
            ("Basic YWRhOnBhc3M6d29yZA==", "ada"),
            ("basic  YWRhOnBhc3M6d29yZA==", "ada"),
            ("Basic YWRhOnBhc3M6d29yZA", "ada"),
            ("Basic Ym9iOnDDpHNz", "bob"),
            ("Basic bm9uZTo=", "none"),
        ] {
            let header = format!("Authorization: {credentials}");
            let reply = site.ask("GET /", &[&header]);
            assert_eq!((reply.status, reply.text()), (200, name), "{credentials}");
            let reply = site.ask_from(None, "PUT /upload", &[&header], "four");
            assert_eq!(reply.text(), "4 bytes");
        }
        for headers in [
            &[][..],
            &["Authorization:"],
            &["Authorization: Basic"],
            &["Authorization: Basic "],
            &["Authorization: Basic ====="],
            // Without a colon, another password, another's password, a longer and a shorter one.
            &["Authorization: Basic YWRh"],
            &["Authorization: Basic YWRhOnBhc3M6d29yZQ=="],
            &["Authorization: Basic Ym9iOnBhc3M6d29yZA=="],
            &["Authorization: Basic YWRhOnBhc3M6d29yZGQ="],
            &["Authorization: Basic YWRhOnBhc3M6d29y"],
            &["Authorization: Basic YWRhOg=="],
            // "none" and a NUL; a line end.
            &["Authorization: Basic bm9uZToA"],
            &["Authorization: Basic YWRhOnBhc3M6d29yZAo="],
            &["Authorization: Bearer YWRhOnBhc3M6d29yZA=="],
            &[
                "Authorization: Basic YWRhOnBhc3M6d29yZA==",
                "Authorization: Basic eDp5",
            ],
        ] {
            for line in ["GET /", "PUT /upload", "GET /none"] {
                let reply = site.ask_from(None, line, headers, "");
                assert_eq!(reply.status, 401, "{line} {headers:?}");
                assert_eq!(
                    reply.field("www-authenticate"),
                    Some("Basic realm=\"the staff\", charset=\"UTF-8\"")
                );
            }
        }
    });
}

#[test]
fn sim_a_token_is_admitted_under_its_name() {
    let tokens = [("t-1", "deploy"), ("t-2", "watch")];
    let router = Router::new()
        .get("/", who)
        .layer(BearerAuth::new("api", tokens));
    let mut site = Site::new(1, router);
    for (credentials, name) in [("Bearer t-1", "deploy"), ("bearer t-2", "watch")] {
        let reply = site.ask("GET /", &[&format!("Authorization: {credentials}")]);
        assert_eq!((reply.status, reply.text()), (200, name));
    }
    let challenge = |reply: &flatpath_testkit::reply::Reply| {
        assert_eq!(reply.status, 401);
        reply
            .field("www-authenticate")
            .expect("a challenge")
            .to_owned()
    };
    assert_eq!(challenge(&site.ask("GET /", &[])), "Bearer realm=\"api\"");
    for credentials in [
        "Bearer t-3",
        "Bearer t-",
        "Bearer t-11",
        "Bearer",
        "Basic t-1",
    ] {
        let reply = site.ask("GET /", &[&format!("Authorization: {credentials}")]);
        let expected = "Bearer realm=\"api\", error=\"invalid_token\"";
        assert_eq!(challenge(&reply), expected, "{credentials}");
    }
}

#[test]
fn sim_a_function_finds_the_sender() {
    let double =
        |name: &str, password: &str| (password == format!("{name}{name}")).then_some(name.len());
    let even = |token: &str| token.parse::<u64>().ok().filter(|it| it % 2 == 0);
    let router = Router::new()
        .get("/basic", |Extension(length): Extension<usize>| {
            length.to_string()
        })
        .layer(BasicAuth::checked("r", double))
        .merge(
            Router::new()
                .get("/bearer", |Extension(number): Extension<u64>| {
                    number.to_string()
                })
                .layer(BearerAuth::checked("r", even)),
        );
    let mut site = Site::new(1, router);
    let mut ask = |path: &str, credentials: &str| {
        let reply = site.ask(
            &format!("GET {path}"),
            &[&format!("Authorization: {credentials}")],
        );
        (reply.status, reply.text().to_owned())
    };
    assert_eq!(ask("/basic", "Basic YWI6YWJhYg=="), (200, "2".into()));
    assert_eq!(ask("/basic", "Basic YWI6YWI=").0, 401);
    // A tab is the name: control characters are refused before the function is asked.
    assert_eq!(ask("/basic", "Basic CToJCQ==").0, 401);
    assert_eq!(ask("/bearer", "Bearer 12"), (200, "12".into()));
    assert_eq!(ask("/bearer", "Bearer 13").0, StatusCode::UNAUTHORIZED);
}

#[test]
fn what_cannot_be_right_is_refused_at_the_start() {
    let none: [(&str, &str); 0] = [];
    assert!(catch_unwind(|| BasicAuth::new("a \"realm\"", none)).is_err());
    assert!(catch_unwind(|| BasicAuth::new("line\nend", none)).is_err());
    assert!(catch_unwind(|| BasicAuth::new("r", [("a:b", "c")])).is_err());
    assert!(catch_unwind(|| BasicAuth::new("r", [("a", "x".repeat(513))])).is_err());
    assert!(catch_unwind(|| BearerAuth::new("r", [("", "name")])).is_err());
    assert!(catch_unwind(|| BearerAuth::new("r", [("x".repeat(513), "name")])).is_err());
    let _ = BearerAuth::new("r", [("x".repeat(512), "name")]);
}
