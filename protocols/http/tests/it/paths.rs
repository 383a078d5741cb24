//! Which spellings of a path lead to a route, and slashes at its end, in the simulation.

use flatpath_http::{
    Answer, Http, Mount, Next, Parameters, Request, Response, Router, TrailingSlash, Upload,
    routing,
};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::layers::{reply_to, status};

/// Says by which route a request came, with which parameters, and below which prefix.
fn shown(route: &'static str) -> impl Fn(Parameters, Request) -> String + Send + Sync + 'static {
    move |parameters, request| {
        let values: Vec<_> = parameters.iter().map(|(_, value)| value).collect();
        let prefix = Mount::of(&request).map_or("", Mount::prefix);
        format!("{route} {values:?} [{prefix}] {}", request.uri().path())
    }
}

fn get(server: &mut TestServer, path: &str) -> String {
    reply_to(server, &format!("GET {path}"), "")
}

/// What a request for this path gets: the status, or what its route says.
fn answer(server: &mut TestServer, path: &str) -> String {
    let reply = get(server, path);
    match (status(&reply), reply.split_once("\r\n\r\n")) {
        ("200", Some((_, body))) => body.to_owned(),
        (status, _) => status.to_owned(),
    }
}

/// One router with each kind of route, on workers and on the network thread.
fn routes() -> Router {
    let below = Router::new().fallback(shown("below"));
    let fast = |pattern| routing::get(shown(pattern)).inline();
    Router::new()
        .get("/api/q", shown("api"))
        .route("/fast/q", fast("fast"))
        .get("/users/{id}", shown("user"))
        .get("/users/me", shown("me"))
        .route("/fast/{id}", fast("fast one"))
        .get("/rest/{*rest}", shown("rest"))
        .get("/caf\u{e9}", shown("cafe"))
        .get("/caf\u{e9}/{id}", shown("cafe one"))
        .get("/na%c3%afve/{id}/m\u{fc}sli", shown("naive"))
        .get("/a b", shown("space"))
        .get("/a\"b|c^d", shown("quotes"))
        .get("/{{braces}}", shown("braces"))
        .get("/100%", shown("percent"))
        .get("/jobs:run", shown("colon"))
        .get("/%7Euser", shown("tilde"))
        .get("/img-{id}.\u{e9}", shown("suffix"))
        .nest_service("/caf\u{e9}s", below)
}

#[test]
fn sim_a_path_leads_to_its_route_however_it_is_spelled() {
    each_seed(4, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(routes()));
        for (path, route) in [
            // RFC 3986 section 6.2.2.2: escapes of unreserved characters.
            ("/api/q", "api [] [] /api/q"),
            ("/%61pi/q", "api [] [] /%61pi/q"),
            ("/%61%70%69/%71?%61", "api [] [] /%61%70%69/%71"),
            ("/fast/%71", "fast [] [] /fast/%71"),
            ("http://h/%61pi/q", "api [] [] /%61pi/q"),
            // A literal wins over a parameter, however it is spelled.
            ("/users/me", "me [] [] /users/me"),
            ("/users/%6de", "me [] [] /users/%6de"),
            ("/users/%6De", "me [] [] /users/%6De"),
            ("/%75sers/%6dy", r#"user ["my"] [] /%75sers/%6dy"#),
            ("/%66ast/x%2Fy", r#"fast one ["x/y"] [] /%66ast/x%2Fy"#),
            // Parameters are decoded once.
            ("/users/%2541", r#"user ["%41"] [] /users/%2541"#),
            ("/users/a%2fb%20c", r#"user ["a/b c"] [] /users/a%2fb%20c"#),
            ("/users/a+b", r#"user ["a+b"] [] /users/a+b"#),
            ("/users/50%", r#"user ["50%"] [] /users/50%"#),
            ("/users/%4", r#"user ["%4"] [] /users/%4"#),
            ("/users/%7b%7d", r#"user ["{}"] [] /users/%7b%7d"#),
            ("/rest/%61/b%2Fc", r#"rest ["a/b/c"] [] /rest/%61/b%2Fc"#),
            ("/r%65st/%c3%a9", "rest [\"\u{e9}\"] [] /r%65st/%c3%a9"),
            // What stands in a route as it is read comes as escapes.
            ("/caf%C3%A9", "cafe [] [] /caf%C3%A9"),
            ("/caf%c3%a9", "cafe [] [] /caf%c3%a9"),
            ("/%63af%c3%A9", "cafe [] [] /%63af%c3%A9"),
            (
                "/caf%C3%A9/%C3%A9",
                "cafe one [\"\u{e9}\"] [] /caf%C3%A9/%C3%A9",
            ),
            (
                "/na%C3%AFve/7/m%C3%BCsli",
                r#"naive ["7"] [] /na%C3%AFve/7/m%C3%BCsli"#,
            ),
            ("/a%20b", "space [] [] /a%20b"),
            ("/a\"b|c^d", "quotes [] [] /a\"b|c^d"),
            ("/a%22b%7cc%5Ed", "quotes [] [] /a%22b%7cc%5Ed"),
            ("/{braces}", "braces [] [] /{braces}"),
            ("/%7Bbraces%7D", "braces [] [] /%7Bbraces%7D"),
            ("/100%", "percent [] [] /100%"),
            ("/100%25", "percent [] [] /100%25"),
            ("/~user", "tilde [] [] /~user"),
            ("/%7euser", "tilde [] [] /%7euser"),
            ("/img-7.%C3%A9", r#"suffix ["7"] [] /img-7.%C3%A9"#),
            ("/jobs:run", "colon [] [] /jobs:run"),
            // A prefix is cut off as it was spelled.
            ("/caf%c3%a9%73/%61%2fb", "below [] [/caf%c3%a9%73] /%61%2fb"),
            ("/caf%C3%A9s", "below [] [/caf%C3%A9s] /"),
            ("/caf%C3%A9s/", "below [] [/caf%C3%A9s] /"),
            // Reserved characters mean something else when they are escaped (section 2.2).
            ("/api%2Fq", "404"),
            ("/jobs%3Arun", "404"),
            ("/users/me%2F", r#"user ["me/"] [] /users/me%2F"#),
            ("/cafe", "404"),
            ("/a%2520b", "404"),
            ("/users/%ff", "400"),
            ("/users/%00", "400"),
            // Dot segments are gone before.
            ("/users/%2e%2e", "404"),
            ("/users/%2e%2e%2f", "400"),
        ] {
            assert_eq!(answer(&mut server, path), route, "seed {seed}: {path}");
        }
    });
}

/// Where a reply sends its client, as a browser resolves it against this path.
fn target(reply: &str, path: &str) -> String {
    let location = reply
        .lines()
        .find_map(|line| line.strip_prefix("Location: "));
    let location = location.expect("it redirects");
    let base = path.split('?').next().unwrap_or_default();
    let (directory, _) = base.rsplit_once('/').expect("a path");
    let rest = match location.strip_prefix("../") {
        Some(rest) => {
            let (above, _) = directory.rsplit_once('/').expect("not the root");
            return format!("{above}/{rest}");
        }
        None => location.strip_prefix("./").expect("a relative reference"),
    };
    format!("{directory}/{rest}")
}

fn slashes(rule: Option<TrailingSlash>) -> Router {
    let router = Router::new()
        .get("/", shown("root"))
        .get("/a", shown("a"))
        .get("/dir/", shown("dir"))
        .get("/both", shown("both"))
        .get("/both/", shown("both/"))
        .get("/users/{id}", shown("user"))
        .get("/users/{id}/posts/", shown("posts"))
        .route("/fast", routing::get(shown("fast")).inline())
        .post("/new", |text: String| text)
        .nest(
            "/in",
            Router::new()
                .get("/", shown("in"))
                .get("/strict", shown("strict"))
                .trailing_slash(TrailingSlash::Strict),
        )
        .nest("/open", Router::new().get("/", shown("open")));
    match rule {
        Some(rule) => router.trailing_slash(rule).get("/late", shown("late")),
        None => router.get("/late", shown("late")),
    }
}

#[test]
fn a_slash_at_the_end_makes_another_path_by_default() {
    for rule in [None, Some(TrailingSlash::Strict)] {
        let http = Http::service(slashes(rule));
        let mut server = TestServer::new(Conditions::calm(1), http);
        for path in [
            "/a/",
            "/dir",
            "/users/7/",
            "/fast/",
            "/late/",
            "/open/",
            "/%61/",
        ] {
            assert_eq!(answer(&mut server, path), "404", "{path}");
        }
        assert_eq!(answer(&mut server, "/both/"), "both/ [] [] /both/");
    }
}

#[test]
fn sim_a_slash_more_or_less_may_lead_to_the_same_route() {
    each_seed(4, |seed| {
        let http = Http::service(slashes(Some(TrailingSlash::Same)));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        for (path, is) in [
            ("/", "root [] [] /"),
            ("/a", "a [] [] /a"),
            ("/a/", "a [] [] /a/"),
            ("/%61/", "a [] [] /%61/"),
            ("/a/?q", "a [] [] /a/"),
            ("/dir", "dir [] [] /dir"),
            ("/dir/", "dir [] [] /dir/"),
            ("/both", "both [] [] /both"),
            ("/both/", "both/ [] [] /both/"),
            ("/users/7/", r#"user ["7"] [] /users/7/"#),
            ("/users/a%2Fb/", r#"user ["a/b"] [] /users/a%2Fb/"#),
            ("/users/7/posts", r#"posts ["7"] [] /users/7/posts"#),
            ("/users/", "404"),
            ("/users/%ff/", "400"),
            ("/fast/", "fast [] [] /fast/"),
            ("/late/", "late [] [] /late/"),
            ("/open/", "open [] [] /open/"),
            ("/in", "in [] [] /in"),
            ("/in/", "404"),
            ("/in/strict/", "404"),
            ("/a//", "404"),
            ("//", "root [] [] //"),
            ("/none/", "404"),
        ] {
            assert_eq!(answer(&mut server, path), is, "seed {seed}: {path}");
        }
        let reply = reply_to(&mut server, "POST /new/", "a body");
        assert!(reply.ends_with("\r\n\r\na body"), "{reply}");
        assert_eq!(status(&reply_to(&mut server, "PUT /a/", "")), "405");
    });
}

#[test]
fn sim_a_slash_more_or_less_may_be_redirected() {
    each_seed(4, |seed| {
        let deep = Router::new().nest_service("/mounted", slashes(Some(TrailingSlash::Redirect)));
        let router = slashes(Some(TrailingSlash::Redirect)).nest_service("/below", deep);
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for (line, to) in [
            ("GET /a/", "/a"),
            ("GET /a/?b=c&d=/e/", "/a?b=c&d=/e/"),
            ("HEAD /a/", "/a"),
            ("PUT /a/", "/a"),
            ("GET /dir", "/dir/"),
            ("GET /dir?x", "/dir/?x"),
            ("GET /%64ir", "/dir/"),
            ("GET /users/7/", "/users/7"),
            ("GET /users/a:b/", "/users/a:b"),
            ("GET /users/%c3%a9/", "/users/%C3%A9"),
            ("GET /users/x:y/posts", "/users/x:y/posts/"),
            ("POST /new/", "/new"),
            ("GET /fast/", "/fast"),
            ("GET /late/", "/late"),
            ("GET /open/", "/open"),
            ("GET /below/mounted/a/", "/below/mounted/a"),
            ("GET /below/mounted/dir?x", "/below/mounted/dir/?x"),
        ] {
            let reply = reply_to(&mut server, line, "");
            assert_eq!(status(&reply), "308", "seed {seed}: {line}: {reply}");
            let path = line.split(' ').nth(1).expect("a path");
            assert_eq!(target(&reply, path), to, "seed {seed}: {line}");
        }
        // A path that looks like a host stays here.
        let reply = get(&mut server, "//users/7/");
        assert_eq!(status(&reply), "404", "{reply}");
        for (path, is) in [
            ("/both", "both [] [] /both"),
            ("/in/", "404"),
            ("/a//", "404"),
        ] {
            assert_eq!(answer(&mut server, path), is, "{path}");
        }
    });
}

#[test]
fn a_redirect_to_the_other_slash_passes_the_layers_of_its_route() {
    let mark = |request: Request, next: &Next<'_>| -> Answer {
        next.run(request)
            .map(|response: Response| ([("x-layer", "1")], response))
    };
    let ignore = || {
        Upload::to(Vec::new(), |_: Vec<u8>| {
            Ok::<_, flatpath_http::Problem>("done")
        })
    };
    let router = Router::new()
        .get("/a", || "a")
        .layer(mark)
        .get("/b", || "b")
        .route("/up", routing::put(ignore).streamed())
        .fallback(|| "lost")
        .trailing_slash(TrailingSlash::Redirect);
    let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
    assert!(get(&mut server, "/a/").contains("X-Layer: 1\r\n"));
    let plain = get(&mut server, "/b/");
    assert!(
        !plain.contains("X-Layer") && status(&plain) == "308",
        "{plain}"
    );
    assert_eq!(status(&reply_to(&mut server, "PUT /up/", "a body")), "308");
    assert_eq!(status(&get(&mut server, "/c/")), "200");
}
