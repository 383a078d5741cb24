//! Every place where something can hang in a router, in every router that this one may become part
//! of: the same service answers, below the same prefix, within its layers.

use flatpath_http::{Answer, Http, Next, Request, Response, Router};
use flatpath_test::{Conditions, TestServer};

use crate::layers::{Teller, reply_to};

/// A layer that adds its name to each response.
fn named(name: &'static str) -> impl Fn(Request, &Next<'_>) -> Answer + Send + Sync + 'static {
    move |request, next| {
        next.run(request).map(move |mut response: Response| {
            let name = name.parse().expect("a value");
            response.headers_mut().append("x-layer", name);
            response
        })
    }
}

/// Where a service hangs: what puts it there, a path that it answers, the prefix that it is told,
/// and the layers around it.
type Place = (
    &'static str,
    fn() -> Router,
    &'static str,
    &'static str,
    &'static [&'static str],
);

fn it() -> Teller {
    Teller::new("it")
}

fn other() -> Teller {
    Teller::new("other")
}

/// A router that has a service before anything else.
fn begun() -> Router {
    Router::new().nest_service("/before", other())
}

fn layered() -> Router {
    Router::new().get("/x", || "x").layer(named("in"))
}

const PLACES: &[Place] = &[
    (
        "below a prefix",
        || begun().nest_service("/s", it()),
        "/s/a",
        "/s",
        &[],
    ),
    (
        "at a prefix",
        || begun().nest_service("/s", it()),
        "/s",
        "/s",
        &[],
    ),
    (
        "as the fallback",
        || begun().fallback_service(it()),
        "/a",
        "",
        &[],
    ),
    (
        "below a prefix of a nested router",
        || begun().nest("/n", begun().nest_service("/s", it())),
        "/n/s/a",
        "/n/s",
        &[],
    ),
    (
        "as the fallback of a nested router",
        || begun().nest("/n", begun().fallback_service(it())),
        "/n/a",
        "/n",
        &[],
    ),
    (
        "as the fallback of a router that is nested twice",
        || begun().nest("/n", begun().nest("/m", begun().fallback_service(it()))),
        "/n/m/a",
        "/n/m",
        &[],
    ),
    (
        "as the fallback, below a nested router with layers",
        || begun().nest("/n", layered()).fallback_service(it()),
        "/n/a",
        "",
        &["in"],
    ),
    (
        "the same, where the fallback was there before",
        || begun().fallback_service(it()).nest("/n", layered()),
        "/n/a",
        "",
        &["in"],
    ),
    (
        "as the fallback of a nested router, below one nested there with layers",
        || begun().nest("/n", begun().nest("/m", layered()).fallback_service(it())),
        "/n/m/a",
        "/n",
        &["in"],
    ),
    (
        "as the fallback above two nested routers, of which the inner one has layers",
        || {
            begun()
                .nest("/n", begun().nest("/m", layered()))
                .fallback_service(it())
        },
        "/n/m/a",
        "",
        &["in"],
    ),
    (
        "the same, where both have layers",
        || {
            let between = begun().nest("/m", layered()).layer(named("between"));
            begun().nest("/n", between).fallback_service(it())
        },
        "/n/m/a",
        "",
        &["in", "between"],
    ),
    (
        "below a prefix of a router that was merged",
        || begun().merge(Router::new().nest_service("/s", it())),
        "/s/a",
        "/s",
        &[],
    ),
    (
        "as the fallback of a router that was merged",
        || begun().merge(Router::new().fallback_service(it())),
        "/a",
        "",
        &[],
    ),
    (
        "below a prefix that has a parameter",
        || begun().nest("/{id}", begun().nest_service("/s", it()).layer(named("in"))),
        "/7/s/a",
        "/7/s",
        &["in"],
    ),
];

/// What a router becomes part of: what does it, and the prefix and layers that this adds.
type Whole = (
    &'static str,
    fn(Router) -> Router,
    &'static str,
    &'static [&'static str],
);

const MOUNTED: &str = "a mounted service";

const WHOLES: &[Whole] = &[
    ("itself", |router| router, "", &[]),
    (
        "itself, with state",
        |router| router.with_state(()),
        "",
        &[],
    ),
    (
        "one with layers",
        |router| router.layer(named("out")),
        "",
        &["out"],
    ),
    (
        "one with services before and after",
        |router| {
            let many = begun()
                .nest_service("/first", other())
                .nest_service("/second", other());
            many.nest("/w", router).nest_service("/after", other())
        },
        "/w",
        &[],
    ),
    (
        "one nested in another, with layers between",
        |router| begun().nest("/v", begun().nest("/w", router).layer(named("out"))),
        "/v/w",
        &["out"],
    ),
    (
        "one that it is merged with",
        |router| Router::new().nest_service("/first", other()).merge(router),
        "",
        &[],
    ),
    (
        MOUNTED,
        |router| begun().nest_service("/w", router),
        "/w",
        &[],
    ),
];

#[test]
fn what_hangs_in_a_router_stays_its_own_wherever_that_becomes_a_part() {
    for (place, make, path, mount, layers) in PLACES {
        for (whole, embed, prefix, around) in WHOLES {
            let what = format!("{place}, in {whole}");
            let router = embed(make());
            let mut server = TestServer::new(Conditions::calm(7), Http::service(router));
            let reply = reply_to(&mut server, &format!("GET {prefix}{path}"), "");
            let (head, told) = reply.split_once("\r\n\r\n").expect("a head");
            let within = path.strip_prefix(mount).expect("it begins so");
            let within = if within.is_empty() { "/" } else { within };
            let words: Vec<&str> = told.split_whitespace().collect();
            // A service that is mounted in another is told of the last prefix that was cut off.
            let told_mount = match *whole == MOUNTED && !mount.is_empty() {
                true => format!("[{mount}]"),
                false => format!("[{prefix}{mount}]"),
            };
            assert_eq!(words.first(), Some(&"it"), "{what}: {reply}");
            assert_eq!(words[2..], [&told_mount, within], "{what}: {reply}");
            let passed = head
                .lines()
                .filter_map(|line| line.strip_prefix("X-Layer: "));
            let passed: Vec<_> = passed.collect();
            assert_eq!(passed, [*layers, *around].concat(), "{what}: {reply}");
            // What hung beside it is where it was, too.
            let beside = reply_to(&mut server, &format!("GET {prefix}/before/a"), "");
            assert!(beside.contains("other "), "{what}: {beside}");
        }
    }
}
