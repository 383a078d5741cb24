//! What the layers of nested routers and of single routes get to see, in the simulation.

use flatpath_http::http::StatusCode;
use flatpath_http::{Answer, Http, MatchedPath, Mount, Next, Request, Response, Router, routing};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::layers::{Teller, reply_to, status};

/// A layer that adds its name to each response, in the order in which they return.
fn named(name: &'static str) -> impl Fn(Request, &Next<'_>) -> Answer + Send + Sync + 'static {
    move |request, next| {
        next.run(request).map(move |mut response: Response| {
            let name = name.parse().expect("a value");
            response.headers_mut().append("x-layer", name);
            response
        })
    }
}

/// The status of a reply and the layers that it passed.
fn seen(server: &mut TestServer, line: &str) -> String {
    let reply = reply_to(server, line, "");
    let names = reply
        .lines()
        .filter_map(|line| line.strip_prefix("X-Layer: "));
    let names: Vec<_> = names.collect();
    format!("{} {}", status(&reply), names.join(" "))
        .trim_end()
        .to_owned()
}

fn inner(name: &'static str) -> Router {
    Router::new()
        .get("/x", || "x")
        .post("/y", || "y")
        .layer(named(name))
}

fn check(router: Router, expected: &[(&str, &str)]) {
    let mut server = TestServer::new(Conditions::rough(7), Http::service(router));
    for (line, is) in expected {
        assert_eq!(seen(&mut server, line), *is, "{line}");
    }
}

#[test]
fn layers_of_a_nested_router_see_its_404_and_405() {
    check(
        Router::new()
            .get("/", || "root")
            .nest("/admin", inner("admin"))
            .nest("/plain", Router::new().get("/x", || "x"))
            .layer(named("outer"))
            .nest("/late", inner("late")),
        &[
            ("GET /", "200 outer"),
            ("GET /admin/x", "200 admin outer"),
            ("GET /admin/nope", "404 admin outer"),
            ("POST /admin/nope/deeper", "404 admin outer"),
            ("GET /%61dmin/nope", "404 admin outer"),
            ("GET /admin", "404 admin outer"),
            ("GET /admin/", "404 admin outer"),
            ("DELETE /admin/x", "405 admin outer"),
            ("OPTIONS /admin/x", "204 admin outer"),
            ("GET /adminx", "404 outer"),
            ("GET /plain/nope", "404 outer"),
            ("DELETE /plain/x", "405 outer"),
            ("GET /nope", "404 outer"),
            ("GET /late/x", "200 late"),
            ("GET /late/nope", "404 late"),
            ("DELETE /late/x", "405 late"),
        ],
    );
}

#[test]
fn a_nested_router_sees_the_404_of_those_nested_in_it() {
    let deep = || Router::new().nest("/deep", inner("deep"));
    check(
        Router::new()
            .nest("/a", deep().layer(named("a")))
            .nest("/b", deep())
            .nest("/c/{id}", inner("c"))
            .merge(Router::new().nest("/d", inner("d"))),
        &[
            ("GET /a/deep/x", "200 deep a"),
            ("GET /a/deep/nope", "404 deep a"),
            ("GET /a/nope", "404 a"),
            ("GET /b/deep/nope", "404 deep"),
            ("GET /b/nope", "404"),
            ("GET /c/7/nope", "404 c"),
            ("GET /c/7", "404 c"),
            ("GET /c", "404"),
            ("GET /d/nope", "404 d"),
        ],
    );
}

#[test]
fn a_refusal_of_a_nested_layer_hides_which_routes_there_are() {
    let refuse = |_: Request, _: &Next<'_>| StatusCode::UNAUTHORIZED;
    let admin = Router::new().get("/x", || "x").layer(refuse);
    check(
        Router::new().nest("/admin", admin).fallback(|| "lost"),
        &[
            ("GET /admin/x", "401"),
            ("GET /admin/nope", "401"),
            ("PUT /admin/nope", "401"),
            ("DELETE /admin/x", "401"),
            ("GET /nope", "200"),
        ],
    );
}

/// A fallback answers what has no route below a nested router, too: within the layers of both.
#[test]
fn a_fallback_is_inherited_within_the_layers_of_a_nested_router() {
    let fallback = || (StatusCode::GONE, "gone");
    let later = Router::new()
        .nest("/in", inner("in"))
        .layer(named("between"))
        .fallback(fallback)
        .layer(named("outer"));
    check(
        later,
        &[
            ("GET /in/x", "200 in between outer"),
            ("GET /in/nope", "410 in between outer"),
            ("GET /nope", "410 outer"),
        ],
    );
    let before = Router::new()
        .fallback(fallback)
        .layer(named("its own"))
        .nest("/in", inner("in"))
        .layer(named("outer"));
    check(
        before,
        &[
            ("GET /in/x", "200 in outer"),
            ("GET /in/nope", "410 its own in outer"),
            ("GET /nope", "410 its own outer"),
        ],
    );
    let of_the_inner = Router::new()
        .nest("/in", inner("in").fallback(|| "lost"))
        .nest(
            "/deep",
            Router::new().nest("/in", inner("in")).fallback(|| "lost"),
        )
        .fallback(fallback)
        .layer(named("outer"))
        .with_state(());
    check(
        of_the_inner,
        &[
            ("GET /in/nope", "200 outer"),
            ("GET /deep/nope", "200 outer"),
            ("GET /deep/in/nope", "200 in outer"),
            ("GET /nope", "410 outer"),
        ],
    );
}

#[test]
fn sim_an_inherited_service_gets_whole_paths() {
    each_seed(10, |seed| {
        let rest = || {
            Router::new()
                .nest("/in", inner("in"))
                .fallback_service(Teller::new("rest"))
        };
        let outer = Router::new()
            .nest_service("/first", Teller::new("first"))
            .nest("/below", rest());
        for (router, prefix) in [(rest(), ""), (outer, "/below")] {
            let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
            for (path, mark) in [("/in/nope", "X-Layer: in"), ("/nope", "")] {
                let path = format!("{prefix}{path}");
                let reply = reply_to(&mut server, &format!("GET {path}"), "");
                let within = path.strip_prefix(prefix).expect("it begins so");
                let told = format!("rest worker [{prefix}] {within}\n");
                assert!(reply.ends_with(&told), "seed {seed}: {reply}");
                assert!(reply.contains(mark), "seed {seed}: {reply}");
            }
        }
    });
}

#[test]
fn what_answers_below_a_prefix_goes_before_a_nested_404() {
    check(
        Router::new()
            .nest("/a", inner("one"))
            .nest("/a/b", inner("two"))
            .nest_service("/a/c", Teller::new("c"))
            .nest_service("/s", Teller::new("s"))
            .nest("/s/in", inner("in")),
        &[
            ("GET /a/nope", "404 one"),
            ("GET /a/b/nope", "404 two"),
            ("GET /a/c/nope", "200"),
            ("GET /s/in/x", "200 in"),
            ("GET /s/in/nope", "200"),
        ],
    );
    // Two below one prefix: the first one's layers; a service, whenever it comes, goes before.
    check(
        Router::new()
            .nest("/a", inner("one"))
            .nest("/a", Router::new().get("/z", || "z").layer(named("two"))),
        &[
            ("GET /a/x", "200 one"),
            ("GET /a/z", "200 two"),
            ("GET /a/nope", "404 one"),
        ],
    );
    check(
        Router::new()
            .nest("/{a}", inner("one"))
            .nest_service("/{b}", Teller::new("b")),
        &[("GET /1/x", "200 one"), ("GET /1/nope", "200")],
    );
}

#[test]
fn a_404_below_a_nested_router_has_no_route() {
    let show = |request: Request, next: &Next<'_>| -> Answer {
        let route = MatchedPath::of(&request).map_or("none", MatchedPath::as_str);
        let prefix = Mount::of(&request).map_or("none", Mount::prefix);
        let shown = format!("{route} {prefix}");
        next.run(request)
            .map(move |response: Response| ([("x-layer", shown)], response))
    };
    let inner = Router::new().get("/x/{id}", || "x").layer(show);
    check(
        Router::new().nest("/in", inner),
        &[
            ("GET /in/x/7", "200 /in/x/{id} none"),
            ("GET /in/nope", "404 none none"),
        ],
    );
}

#[test]
fn a_layer_of_one_route_sees_its_405_and_options() {
    check(
        Router::new()
            .route("/a", routing::get(|| "a").layer(named("a")).post(|| "b"))
            .route("/b", routing::get(|| "b"))
            .route("/b", routing::post(|| "b").layer(named("post")))
            .layer(named("outer")),
        &[
            ("GET /a", "200 a outer"),
            ("HEAD /a", "200 a outer"),
            ("POST /a", "200 outer"),
            ("DELETE /a", "405 a outer"),
            ("OPTIONS /a", "204 a outer"),
            ("GET /b", "200 outer"),
            ("POST /b", "200 post outer"),
            ("DELETE /b", "405 post outer"),
            ("GET /nope", "404 outer"),
        ],
    );
}
