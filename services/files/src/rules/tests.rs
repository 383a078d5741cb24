//! Rules without files: what they lead to, and what is refused.

use std::time::Instant;

use http::{HeaderMap, StatusCode};

use super::file_format::{Mistakes, read_headers, read_redirects};
use super::*;
use crate::limits::{EXPRESSIONS_MAX, TRY_FILES_MAX};

const MOVED: StatusCode = StatusCode::MOVED_PERMANENTLY;

fn pattern(text: &str) -> Pattern {
    text.parse().expect(text)
}

fn redirect(rules: Rules, from: &str, to: &str) -> Result<Rules, RuleError> {
    rules.redirect(pattern(from), to, MOVED)
}

/// Where a target is redirected to.
fn location(rules: &Rules, target: &str) -> Option<String> {
    match rules.explain(target).outcome {
        Outcome::Redirect { location, .. } => Some(location),
        _ => None,
    }
}

/// The files that are looked for.
fn files(rules: &Rules, target: &str) -> Vec<String> {
    match rules.explain(target).outcome {
        Outcome::Files(files) => files,
        other => panic!("{target}: {other:?}"),
    }
}

#[test]
fn redirects_that_lead_back_are_refused() {
    for (from, to) in [
        ("/a", "/a"),
        ("/a%20b", "/a%20b"),
        ("/a", "/a?x=1"),
        ("/a/*", "/a/b"),
        ("/a/*", "/a"),
        ("/*", "/x"),
        ("~^/a", "/ab"),
    ] {
        let error = redirect(Rules::new(), from, to).expect_err(from);
        assert!(
            matches!(error, RuleError::Loop { .. }),
            "{from} {to}: {error}"
        );
    }
    let rules = redirect(Rules::new(), "/a", "/b").expect("a rule");
    let rules = redirect(rules, "/b", "/c").expect("a rule");
    let error = redirect(rules.clone(), "/c", "/a").expect_err("a circle of three");
    assert!(matches!(error, RuleError::Loop { .. }), "{error}");
    // What was refused is not there.
    assert_eq!(location(&rules, "/c"), None);
    assert_eq!(location(&rules, "/b").as_deref(), Some("/c"));
    let other = redirect(Rules::new(), "/a", "https://other.example/a");
    assert!(other.is_ok(), "another server");
}

#[test]
fn a_redirect_to_the_address_that_was_asked_for_does_not_apply() {
    let rules = redirect(Rules::new(), "~^/(.*)$", "/$1").expect("not seen");
    assert_eq!(location(&rules, "/a/b?x"), None);
    let lower = redirect(Rules::new(), "~^/(a*)(?:A*)$", "/$1").expect("a rule");
    assert_eq!(location(&lower, "/aaAA").as_deref(), Some("/aa"));
    assert_eq!(location(&lower, "/aa"), None);
}

#[test]
fn statuses_are_those_of_redirects_and_errors() {
    for status in [301, 302, 303, 307, 308] {
        let status = StatusCode::from_u16(status).expect("a status");
        assert!(Rules::new().redirect(pattern("/a"), "/b", status).is_ok());
    }
    for status in [
        StatusCode::OK,
        StatusCode::NOT_MODIFIED,
        StatusCode::NOT_FOUND,
    ] {
        let error = Rules::new()
            .redirect(pattern("/a"), "/b", status)
            .expect_err("none");
        assert_eq!(error, RuleError::RedirectStatus(status));
    }
    for status in [StatusCode::OK, StatusCode::FOUND] {
        let error = Rules::new()
            .error_page(status, "/e.html")
            .expect_err("no error");
        assert_eq!(error, RuleError::ErrorStatus(status));
    }
    assert!(
        Rules::new()
            .error_page(StatusCode::NOT_FOUND, "/../e.html")
            .is_err()
    );
}

#[test]
fn media_types_are_types_and_endings_are_endings() {
    let rules = Rules::new()
        .media_type("GMI", "text/gemini; charset=utf-8")
        .expect("a type");
    assert!(rules.media_of(b"a/b.gmi").is_some() && rules.media_of(b"b.Gmi").is_some());
    assert!(rules.media_of(b"gmi").is_none() && rules.media_of(b".gmi").is_none());
    for media in [
        "",
        "text",
        "text/",
        "/x",
        "a/b\r\nX: y",
        "a/b; c",
        "a b/c",
        "a/b/c",
        "a/é",
    ] {
        let error = Rules::new().media_type("x", media).expect_err(media);
        assert_eq!(error, RuleError::MediaType(media.to_owned()));
    }
    for extension in ["", ".x", "a.b", "a/b", "é"] {
        let error = Rules::new()
            .media_type(extension, "a/b")
            .expect_err(extension);
        assert_eq!(error, RuleError::Extension(extension.to_owned()));
    }
}

#[test]
fn try_lists_are_short() {
    let many = |count| Rules::new().try_files(Pattern::any(), vec!["$path"; count]);
    assert!(many(TRY_FILES_MAX).is_ok());
    let error = many(TRY_FILES_MAX + 1).expect_err("too many");
    assert!(matches!(error, RuleError::TooMany { .. }), "{error}");
    let rules = Rules::new().try_files(pattern("/a/*"), ["$path", "$path.html", "/a/$rest/x"]);
    let rules = rules.expect("a rule");
    assert_eq!(
        files(&rules, "/a/b%20c/"),
        ["/a/b%20c", "/a/b%20c.html", "/a/b%20c//x"]
    );
}

#[test]
fn an_explanation_names_each_rule_in_its_order() {
    let rules = Rules::new()
        .redirect(pattern("/old/*"), "/new", StatusCode::FOUND)
        .and_then(|rules| rules.rewrite(pattern("/v1/*"), "/v2"))
        .and_then(|rules| rules.fallback(pattern("/*"), "/index.html"))
        .and_then(|rules| rules.headers(pattern("/*"), [HeaderChange::set("X-A", "1")?]))
        .and_then(|rules| rules.headers(Pattern::hashed(), [HeaderChange::immutable()]))
        .expect("rules");
    let rules = rules.clean_urls(CleanUrls::Served);
    let expected = "path /v1/app.3f2a9c1b.js\n\
        rewrite /v1/*: /v2/app.3f2a9c1b.js\n\
        fallback /*: /index.html\n\
        headers /*: x-a: 1\n\
        headers hashed: cache-control: public, max-age=31536000, immutable\n\
        first of /v2/app.3f2a9c1b.js /v2/app.3f2a9c1b.js.html /index.html\n\
        header x-a: 1\n\
        header cache-control: public, max-age=31536000, immutable\n";
    assert_eq!(rules.explain("/v1/app.3f2a9c1b.js").to_string(), expected);
    let expected = "path /old/a b\n\
        redirect /old/*: 302 Found /new/a%20b?x\n\
        headers /*: x-a: 1\n\
        answer 302 to /new/a%20b?x\n\
        header x-a: 1\n";
    assert_eq!(rules.explain("/old/a%20b?x").to_string(), expected);
    let refused = rules.explain("/../etc/passwd").outcome;
    assert_eq!(refused, Outcome::Refused(StatusCode::BAD_REQUEST));
}

fn read(redirects: &str, headers: &str) -> (Rules, Mistakes) {
    let (mut rules, mut mistakes) = (Rules::new(), Mistakes::new());
    read_redirects(redirects.as_bytes(), &mut rules, &mut mistakes);
    read_headers(headers.as_bytes(), &mut rules, &mut mistakes);
    (rules, mistakes)
}

#[test]
fn lines_of_redirects_are_read_as_netlify_and_cloudflare_do() {
    let text = "# comment\n\n\
        /a /b\n\
        /old/*\t/new/:splat 301 # moved\n\
        /post/:year/:title https://blog.example:8443/:year-:title 308!\r\n\
        /all/* /one 307\n\
        /cash /$path?p=:p\n\
        /app/* /app/index.html 200\n\
        /v1/* /v2/:splat 200!\n";
    let (rules, mistakes) = read(text, "");
    assert_eq!(mistakes, Mistakes::new());
    for (target, led) in [
        ("/a?q", "/b?q"),
        ("/old/x/y", "/new/x/y"),
        ("/old", "/new/"),
        ("/post/2024/hi", "https://blog.example:8443/2024-hi"),
        ("/all/x", "/one"),
        ("/cash", "/$path?p=:p"),
    ] {
        assert_eq!(location(&rules, target).as_deref(), Some(led), "{target}");
    }
    let status = |target: &str| match rules.explain(target).outcome {
        Outcome::Redirect { status, .. } => status.as_u16(),
        _ => 0,
    };
    assert_eq!(["/a", "/old/x", "/all/x"].map(status), [302, 301, 307]);
    assert_eq!(files(&rules, "/v1/a"), ["/v2/a"]);
    assert!(rules.fallbacks.find(b"/app/x").is_some() && rules.fallbacks.find(b"/x").is_none());
}

#[test]
fn text_that_is_a_variable_elsewhere_is_refused_where_it_would_be_plain_text() {
    let redirect = |from: &str, to: &str| {
        let rules = Rules::new().redirect(pattern(from), to, StatusCode::FOUND);
        rules.map(drop).map_err(|why| why.to_string())
    };
    for (from, to, words) in [
        ("/old/*", "/new/:splat", "the variable is $splat"),
        ("/old/*", "/new-:splat", "the variable is $splat"),
        ("/old/*", "/new?to=:splat", "the variable is $splat"),
        (
            "/old/*",
            "https://h.example:8443/:splat",
            "the variable is $splat",
        ),
        ("/old/*", "/new/*", "the variable is $splat"),
        ("/old/*", "/new/{splat}", "the variable is $splat"),
        ("/u/:id", "/user/:id", "the variable is $id"),
        ("/u/:id", "/user/x:id", "the variable is $id"),
        ("/u/:id", "/user/:other", "sets no such variable"),
        ("/u", "/user/:splat", "sets no such variable"),
        ("/u", "/user/{path}", "sets no such variable"),
        ("/u", "/user/}", "sets no such variable"),
    ] {
        let why = redirect(from, to).expect_err(to);
        assert!(
            why.contains("would be plain text") && why.contains(words),
            "{to}: {why}"
        );
    }
    for (from, to) in [
        ("/old/*", "/new/$splat"),
        ("/old/*", "https://h.example:8443/${splat}"),
        ("/u/:id", "/urn:isbn:$id?at=12:30"),
        ("/u/:id", "/a/%3Asplat/%2A/%7Bid%7D/$id"),
    ] {
        assert_eq!(redirect(from, to), Ok(()), "{to}");
    }
    let plain = |why: Result<Rules, RuleError>| {
        matches!(why.expect_err("it is none"), RuleError::PlainText { .. })
    };
    assert!(plain(Rules::new().rewrite(pattern("/a/*"), "/b/:splat")));
    assert!(plain(Rules::new().fallback(pattern("/a/*"), "/b/:splat")));
    assert!(plain(
        Rules::new().try_files(pattern("/a/*"), ["$path", "/:splat"])
    ));
    assert!("/user/{id}".parse::<Pattern>().is_err(), "a name is :id");
    let header = |on: &str, value: &str| {
        let change = HeaderChange::set("X-A", value).expect("a header");
        Rules::new().headers(pattern(on), [change]).is_ok()
    };
    for (on, value) in [
        ("/u/:id", "user :id"),
        ("/u/:id", "user ${id}"),
        ("/old/*", "$splat"),
    ] {
        assert!(!header(on, value), "{on}: {value}");
    }
    for (on, value) in [
        ("/*", "default-src 'self' https: data:"),
        ("/u/:id", "max-age=60, x:y $1"),
    ] {
        assert!(header(on, value), "{on}: {value}");
    }
    let (_, mistakes) = read(
        "/a /new/:splat\n/a/* /b/*\n/ok/* /b/:splat\n",
        "/u/:id\n  X-A: :id\n",
    );
    let lines: Vec<_> = mistakes.iter().map(|it| it.split(": ").next()).collect();
    assert_eq!(
        lines,
        [
            Some("_redirects:1"),
            Some("_redirects:2"),
            Some("_headers:2")
        ]
    );
}

#[test]
fn a_mistake_in_redirects_has_its_line_and_costs_no_other() {
    let text = "/ok /fine\n\
        /a\n\
        https://h/x /y\n\
        /a id=:id /b 301\n\
        /a /b 301 Country=de\n\
        /a /b 404\n\
        /a /b x\n\
        /api/* https://h/:splat 200\n\
        /a //evil.example\n\
        /a /a\n\
        /b /c\n\
        /c /b\n\
        /last /fine\n";
    let (rules, mistakes) = read(text, "");
    let lines: Vec<&str> = mistakes
        .iter()
        .filter_map(|text| text.split(':').nth(1))
        .collect();
    assert_eq!(
        lines,
        ["2", "3", "4", "5", "6", "7", "8", "9", "10", "12"],
        "{mistakes:#?}"
    );
    assert!(mistakes.iter().all(|text| text.starts_with("_redirects:")));
    assert_eq!(location(&rules, "/last").as_deref(), Some("/fine"));
    assert_eq!(
        location(&rules, "/b").as_deref(),
        Some("/c"),
        "the first line of a circle"
    );
    assert_eq!(location(&rules, "/c"), None);
    let (_, mistakes) = {
        let (mut rules, mut mistakes) = (Rules::new(), Mistakes::new());
        read_redirects(b"/a /\xff\n/b /c\n", &mut rules, &mut mistakes);
        (rules, mistakes)
    };
    assert_eq!(mistakes, ["_redirects:1: it is not UTF-8"]);
}

fn sent(rules: &Rules, path: &str) -> Vec<String> {
    let mut headers = HeaderMap::new();
    InForce::of(rules).change(path.as_bytes(), Extent::All, &mut headers);
    let line = |(name, value): (_, &http::HeaderValue)| {
        format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
    };
    headers.iter().map(line).collect()
}

#[test]
fn lines_of_headers_are_read_as_netlify_and_cloudflare_do() {
    let text = "\u{feff}/*\n  X-Frame-Options: DENY\n\tX-A: 1\n# comment\n\
        /assets/*\n  Cache-Control: public\n  Cache-Control: max-age=9\n  X-A: 2\n\
        /assets/open/*\n  ! X-Frame-Options\n";
    let (rules, mistakes) = read("", text);
    assert_eq!(mistakes, Mistakes::new());
    assert_eq!(sent(&rules, "/"), ["x-frame-options: DENY", "x-a: 1"]);
    let assets = [
        "x-frame-options: DENY",
        "x-a: 1, 2",
        "cache-control: public, max-age=9",
    ];
    assert_eq!(sent(&rules, "/assets/a.js"), assets);
    assert_eq!(sent(&rules, "/assets/open/a").len(), 2);
}

#[test]
fn a_mistake_in_headers_has_its_line_and_costs_no_other() {
    let text = "  X-A: 1\n\
        https://h/*\n  X-Not: here\n\
        /a\n  Content-Length: 5\n  no colon\n  X-Evil: a\u{1}b\n  X-A: 2\n\
        X-A: 3\n  X-B: 4\n";
    let (rules, mistakes) = read("", text);
    let lines: Vec<&str> = mistakes
        .iter()
        .filter_map(|text| text.split(':').nth(1))
        .collect();
    assert_eq!(lines, ["1", "2", "5", "6", "7", "9"], "{mistakes:#?}");
    assert_eq!(
        sent(&rules, "/a"),
        ["x-a: 2"],
        "headers of a mistaken path are for none"
    );
    assert!(sent(&rules, "/b").is_empty());
}

/// What is no text may have been a path: what follows is not for the path before it.
#[test]
fn headers_below_a_line_that_is_no_text_are_for_no_other_path() {
    let mut rules = Rules::new();
    let text = b"/open/*\n  X-A: \xff\n  X-B: 1\n/s\xe9cret/*\n  X-C: 1\n/last\n  X-D: 1\n";
    let mistakes = rules.add_headers_text(text);
    let no_text = |line| format!("_headers:{line}: it is not UTF-8");
    assert_eq!(mistakes, [no_text(2), no_text(4)]);
    assert_eq!(sent(&rules, "/open/a"), ["x-b: 1"]);
    assert_eq!(sent(&rules, "/last"), ["x-d: 1"]);
}

#[test]
fn as_many_rules_as_there_may_be_are_looked_through_in_time() {
    let mut rules = Rules::new();
    for number in 0..1_000 {
        rules = redirect(rules, &format!("/old/{number}"), &format!("/new/{number}")).expect("one");
        rules = redirect(rules, &format!("/at/{number}/*"), &format!("/to/{number}")).expect("one");
    }
    for number in 0..EXPRESSIONS_MAX {
        let text = format!("~^/x{number}/(\\d+)$");
        rules = redirect(rules, &text, &format!("/y{number}/$1")).expect("one");
    }
    // Not a measurement: something quadratic would not end.
    let deadline = Instant::now() + flatpath_testkit::patience();
    for round in 0..100 {
        assert_eq!(location(&rules, "/old/999").as_deref(), Some("/new/999"));
        assert_eq!(location(&rules, "/at/7/a/b").as_deref(), Some("/to/7/a/b"));
        assert_eq!(location(&rules, "/x255/7").as_deref(), Some("/y255/7"));
        assert_eq!(location(&rules, "/none/of/them"), None);
        assert!(Instant::now() < deadline, "round {round}");
    }
}

#[test]
fn model_no_path_and_no_rule_lead_to_another_server_or_a_second_line() {
    let pieces = [
        "/",
        "//",
        "\\",
        "..",
        ".",
        "%2f",
        "%0d%0a",
        "%00",
        "evil.example",
        "a",
        "%25",
    ];
    let froms = [
        "/*",
        "/a/*",
        "~^/(.*)$",
        "~(.*)",
        "~^/a(.*)$",
        "/:x/*",
        "~(/.*)$",
    ];
    let tos = [
        "/",
        "/b",
        "$path",
        "/$path",
        "/b$path",
        "https://h.example",
        "/b?x=$path",
    ];
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let (from, to) = (random.choice(froms), random.choice(tos));
        let (from, to) = (from.expect("some"), to.expect("some"));
        let Ok(rules) = redirect(Rules::new(), from, to) else {
            continue;
        };
        let mut target = String::from("/");
        for _ in 0..random.usize(..7) {
            target.push_str(random.choice(pieces).expect("some"));
        }
        let Some(location) = location(&rules, &target) else {
            continue;
        };
        let is_plain = location
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        assert!(is_plain, "{from} {to} {target}: {location}");
        let is_there = match to.starts_with("https") {
            true => location.starts_with("https://h.example/"),
            false => location.starts_with('/') && !location.starts_with("//"),
        };
        assert!(is_there, "{from} {to} {target}: {location}");
    }
}
