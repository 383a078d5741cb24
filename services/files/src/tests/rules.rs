//! What is answered by the rules of a site, by workers and from the cache.

use std::collections::BTreeSet;

use http::StatusCode;

use super::*;
use crate::cache::NewEntry;
use crate::stat::Locality;
use crate::{CleanUrls, HeaderChange, Pattern, RuleError, Rules, TrailingSlash};

const MOVED: StatusCode = StatusCode::MOVED_PERMANENTLY;

fn pattern(text: &str) -> Pattern {
    text.parse().expect(text)
}

fn set(name: &str, value: &str) -> HeaderChange {
    HeaderChange::set(name, value).expect(name)
}

/// A site with these files, each with its own name for content, and these rules.
pub(super) fn site(names: &[&str], rules: Result<Rules, RuleError>) -> Site {
    let mut site = Site::new();
    for name in names {
        site.write(name, name);
    }
    site.files = site.files.rules(rules.expect("rules"));
    wait_until_stable();
    site
}

/// Status, and where it leads or which file it is.
fn met(site: &mut Site, target: &str) -> (String, String) {
    let answer = site.get(target);
    let what = answer.header("location").unwrap_or(answer.text());
    let is_listing = answer.text().contains("Index of");
    let what = if is_listing { "listing" } else { what };
    (answer.status().to_owned(), what.to_owned())
}

#[track_caller]
pub(super) fn assert_met(site: &mut Site, target: &str, status: &str, what: &str) {
    let met = met(site, target);
    assert_eq!(met, (status.to_owned(), what.to_owned()), "{target}");
}

#[test]
fn a_redirect_comes_before_the_file() {
    let rules = Rules::new()
        .redirect(pattern("/a.txt"), "/b.txt", StatusCode::FOUND)
        .and_then(|rules| rules.redirect(pattern("/old/*"), "/new", StatusCode::PERMANENT_REDIRECT))
        .and_then(|rules| rules.redirect(pattern("/out/*"), "https://h.example", MOVED));
    let mut site = site(&["a.txt", "b.txt", "new/c.txt"], rules);
    assert_met(&mut site, "/a.txt?x=1&y", "302", "/b.txt?x=1&y");
    assert_met(&mut site, "/%61.txt", "302", "/b.txt");
    assert_met(&mut site, "/old/c.txt", "308", "/new/c.txt");
    assert_met(
        &mut site,
        "/out/%0d%0aX:%20y",
        "301",
        "https://h.example/%0D%0AX%3A%20y",
    );
    assert_met(&mut site, "/b.txt", "200", "b.txt");
    let head = site.ask("HEAD", "/a.txt", "");
    assert_eq!(
        (head.status(), head.header("location")),
        ("302", Some("/b.txt"))
    );
    let post = site.ask("POST", "/old/c.txt", "");
    assert_eq!(
        (post.status(), post.header("location")),
        ("308", Some("/new/c.txt"))
    );
    assert_eq!(site.ask("POST", "/b.txt", "").status(), "405");
    assert_eq!(site.ask("OPTIONS", "/a.txt", "").status(), "204");
}

#[test]
fn a_rewrite_is_seen_by_no_client_and_done_once() {
    let rules = Rules::new()
        .rewrite(pattern("/v1/*"), "/v2")
        .and_then(|rules| rules.rewrite(pattern("/v2/*"), "/v3"))
        .and_then(|rules| rules.rewrite(pattern("/docs"), "/sub"))
        .and_then(|rules| rules.rewrite(pattern("/bare"), "/empty"));
    let mut site = site(&["v2/a", "v3/a", "sub/index.html", "empty/x/y"], rules);
    assert_met(&mut site, "/v1/a", "200", "v2/a");
    assert_met(&mut site, "/v2/a", "200", "v3/a");
    assert_eq!(site.get_hot("/v1/a", "").text(), "v2/a");
    assert_met(&mut site, "/docs", "200", "sub/index.html");
    assert_eq!(
        site.get("/bare").status(),
        "404",
        "a listing needs its own address"
    );
}

#[test]
fn no_rewrite_leaves_the_root_or_shows_what_is_hidden() {
    let all = Rules::new()
        .rewrite(pattern("~^/x/(.*)$"), "/$1")
        .and_then(|rules| rules.rewrite(pattern("~^/y/(.)(.)(.)(.*)$"), "/$1$3/$4"))
        .and_then(|rules| rules.rewrite(pattern("/z/*"), "/sub/%2e%2e/secret"))
        .and_then(|rules| rules.rewrite(pattern("/h"), "/.hidden"))
        .and_then(|rules| rules.try_files(pattern("/t/*"), ["/.hidden", "/../secret", "$path"]));
    let mut site = site(&["a", "sub/a", ".hidden", "t/a"], all);
    fs::write(site.folder.path().join("secret"), "secret").expect("write");
    assert_met(&mut site, "/x/a", "200", "a");
    for target in [
        "/x/../secret",
        "/x/..%2fsecret",
        "/x/%2e%2e/secret",
        "/x/%252e%252e/secret",
        "/x/.hidden",
        "/x/%2ehidden",
        "/x//secret",
        "/x/a%00",
        "/x/..%5csecret",
        "/x/sub/..\\..\\secret",
        "/y/.a./secret",
        "/y/.a.secret",
        "/y/.%2f.secret",
        "/z/a",
        "/h",
    ] {
        let answer = site.get(target);
        assert!(
            matches!(answer.status(), "400" | "404"),
            "{target}: {}",
            answer.head
        );
        assert!(
            !answer.text().contains("secret\n") && answer.body != b"secret",
            "{target}"
        );
        assert_ne!(answer.text(), ".hidden", "{target}");
    }
    assert_met(&mut site, "/t/a", "200", "t/a");
}

#[test]
fn the_first_file_of_a_list_that_exists_is_served_and_kept() {
    let tried = ["$path", "$path.html", "$path/index.html", "/all.html"];
    let rules = Rules::new().try_files(pattern("/*"), tried);
    let names = ["a.html", "b", "b.html", "c/index.html", "all.html"];
    let mut site = site(&names, rules);
    for (target, name) in [
        ("/a", "a.html"),
        ("/b", "b"),
        ("/c", "c/index.html"),
        ("/d/e/f", "all.html"),
    ] {
        assert_eq!(site.get_hot(target, "").text(), name, "{target}");
    }
    let files = ["$path/index.html", "$path"];
    let directories_first = Rules::new().try_files(pattern("/*"), files);
    let mut other = self::site(&["a"], directories_first);
    assert_eq!(
        other.get_hot("/a", "").text(),
        "a",
        "below a file is nothing"
    );
    // A better file that appears is noticed, in whichever directory.
    site.write("d/e/f.html", "new");
    wait_until_stable();
    assert_eq!(site.get_hot("/d/e/f", "").text(), "new");
    site.write("a", "plain");
    wait_until_stable();
    assert_eq!(site.get_hot("/a", "").text(), "plain");
    fs::remove_file(site.path("a")).expect("remove");
    assert_eq!(site.get("/a").text(), "a.html");
    fs::create_dir(site.path("a")).expect("mkdir");
    assert_eq!(site.get_hot("/a", "").text(), "a.html");
    fs::remove_dir(site.path("a")).expect("rmdir");
    site.write("a", "plain");
    assert_eq!(
        site.get("/a").text(),
        "plain",
        "a directory that becomes a file"
    );
}

#[test]
fn a_list_may_end_at_a_directory_or_at_nothing() {
    let rules = Rules::new().try_files(pattern("/*"), ["$path", "$path/"]);
    let mut site = site(&["a/b", "c/index.html"], rules);
    assert_met(&mut site, "/c", "200", "c/index.html");
    assert_met(&mut site, "/a/", "200", "listing");
    assert_eq!(site.get("/none").status(), "404");
}

#[test]
fn a_missing_directory_that_becomes_a_link_is_not_walked_through() {
    let rules = Rules::new().try_files(pattern("/*"), ["$path/index.html", "/all.html"]);
    let mut site = site(&["all.html", "real/index.html"], rules);
    assert_eq!(site.get_hot("/a/b", "").text(), "all.html");
    fs::create_dir(site.path("a")).expect("mkdir");
    symlink("../real", site.path("a/b")).expect("symlink");
    assert_eq!(site.get("/a/b").text(), "real/index.html");
}

#[test]
fn pages_have_clean_addresses() {
    let rules = Rules::new().clean_urls(CleanUrls::Served);
    let names = [
        "about.html",
        "both",
        "both.html",
        "dir/index.html",
        "dir.html",
        "index.html",
        "x/a.txt",
    ];
    let mut site = site(&names, Ok(rules));
    assert_met(&mut site, "/about", "200", "about.html");
    assert_eq!(
        site.get_hot("/about", "").header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_met(&mut site, "/about.html?x", "301", "/about?x");
    assert_met(&mut site, "/about/", "301", "/about");
    assert_met(&mut site, "/index.html", "301", "/");
    assert_met(&mut site, "/", "200", "index.html");
    assert_met(&mut site, "/dir/index.html", "301", "/dir/");
    assert_met(&mut site, "/dir/", "200", "dir/index.html");
    assert_met(&mut site, "/dir", "200", "dir.html");
    assert_met(&mut site, "/both", "200", "both");
    assert_met(&mut site, "/both.html", "200", "both.html");
    assert_met(&mut site, "/x", "301", "/x/");
    assert_met(&mut site, "/x/", "200", "listing");
    assert_eq!(site.get("/none").status(), "404");
    // What comes later is seen.
    site.get_hot("/about", "");
    site.write("about", "plain");
    assert_met(&mut site, "/about", "200", "plain");
}

#[test]
fn slashes_are_added_removed_or_left() {
    let names = ["about.html", "dir/index.html", "list/a.txt"];
    let with = |slash| {
        let rules = Rules::new()
            .clean_urls(CleanUrls::Served)
            .trailing_slash(slash);
        site(&names, Ok(rules))
    };
    for (slash, expected) in [
        (
            TrailingSlash::Add,
            [
                ("/about", "301", "/about/"),
                ("/about/", "200", "about.html"),
                ("/about.html", "301", "/about/"),
                ("/dir", "301", "/dir/"),
                ("/dir/", "200", "dir/index.html"),
                ("/dir/index.html", "301", "/dir/"),
                ("/list", "301", "/list/"),
                ("/list/", "200", "listing"),
            ],
        ),
        (
            TrailingSlash::Remove,
            [
                ("/about", "200", "about.html"),
                ("/about/", "301", "/about"),
                ("/about.html", "301", "/about"),
                ("/dir", "200", "dir/index.html"),
                ("/dir/", "301", "/dir"),
                ("/dir/index.html", "301", "/dir"),
                ("/list", "301", "/list/"),
                ("/list/", "200", "listing"),
            ],
        ),
        (
            TrailingSlash::Leave,
            [
                ("/about", "200", "about.html"),
                ("/about/", "200", "about.html"),
                ("/about.html", "301", "/about"),
                ("/dir", "200", "dir/index.html"),
                ("/dir/", "200", "dir/index.html"),
                ("/dir/index.html", "301", "/dir/"),
                ("/list", "301", "/list/"),
                ("/list/", "200", "listing"),
            ],
        ),
    ] {
        let mut site = with(slash);
        for (target, status, what) in expected {
            let met = met(&mut site, target);
            assert_eq!(met, (status.into(), what.into()), "{slash:?} {target}");
        }
    }
}

#[test]
fn model_no_redirect_of_the_service_leads_in_a_circle() {
    let mut random = fastrand::Rng::with_seed(3);
    let names = [
        "a",
        "a.html",
        "a/index.html",
        "a/b.html",
        "a/b/index.html",
        "b.html",
    ];
    let targets = [
        "/",
        "/a",
        "/a/",
        "/a.html",
        "/a/b",
        "/a/b/",
        "/a/index.html",
        "/a.html/",
        "/b",
    ];
    let slashes = [
        TrailingSlash::Directories,
        TrailingSlash::Add,
        TrailingSlash::Remove,
        TrailingSlash::Leave,
    ];
    for round in 0..80 {
        let mut taken = BTreeSet::new();
        let mut chosen: Vec<&str> = names.into_iter().filter(|_| random.bool()).collect();
        // A name is a file or a directory.
        chosen.retain(|name| {
            let is_free = !taken.iter().any(|other: &String| {
                other.starts_with(&format!("{name}/")) || name.starts_with(&format!("{other}/"))
            });
            is_free && taken.insert((*name).to_owned())
        });
        let mut rules = Rules::new().trailing_slash(random.choice(slashes).expect("some"));
        if random.bool() {
            rules = rules.clean_urls(CleanUrls::Served);
        }
        for _ in 0..random.usize(..3) {
            let (from, to) = (random.choice(targets), random.choice(targets));
            let (from, to) = (from.expect("some"), to.expect("some"));
            if let Ok(more) = rules.clone().redirect(pattern(from), to, MOVED) {
                rules = more;
            }
        }
        let mut site = Site::new();
        chosen.iter().for_each(|name| site.write(name, name));
        site.files = site.files.rules(rules.clone());
        for target in targets {
            let (mut at, mut hops) = (target.to_owned(), 0);
            loop {
                let (status, location) = met(&mut site, &at);
                if status != "301" {
                    break;
                }
                at = location;
                hops += 1;
                assert!(hops < 8, "round {round}: {chosen:?} {rules:?} {target}");
            }
        }
    }
}

#[test]
fn a_fallback_is_the_page_of_an_application_and_never_kept() {
    let rules = Rules::new()
        .fallback(pattern("/app/*"), "/app/index.html")
        .and_then(|rules| rules.headers(Pattern::hashed(), [HeaderChange::immutable()]))
        .and_then(|rules| rules.headers(Pattern::any(), [set("X-A", "1")]));
    let mut site = site(&["app/index.html", "app/a.js", "app/b.3f2a9c1b.js"], rules);
    for _ in 0..2 {
        let page = site.get("/app/some/where");
        assert_eq!(
            (page.status(), page.text(), page.by),
            ("200", "app/index.html", By::Worker)
        );
        assert_eq!(page.header("x-a"), Some("1"));
    }
    assert_met(&mut site, "/app/a.js", "200", "app/a.js");
    assert_eq!(site.get("/other").status(), "404");
    let hashed = site.get_hot("/app/b.3f2a9c1b.js", "");
    assert_eq!(
        hashed.header("cache-control"),
        Some("public, max-age=31536000, immutable")
    );
    let document = "Sec-Fetch-Dest: document\r\n";
    let missing = site.ask("GET", "/app/c.3f2a9c1b.js", document);
    assert_eq!(
        (missing.status(), missing.header("cache-control")),
        ("200", None)
    );
}

#[test]
fn an_error_has_its_page_and_keeps_its_status() {
    let rules = Rules::new()
        .error_page(StatusCode::NOT_FOUND, "/404.html")
        .and_then(|rules| rules.error_page(StatusCode::RANGE_NOT_SATISFIABLE, "416.txt"))
        .and_then(|rules| rules.error_page(StatusCode::METHOD_NOT_ALLOWED, "/405.html"))
        .and_then(|rules| rules.error_page(StatusCode::BAD_REQUEST, "/none.html"))
        .and_then(|rules| rules.headers(Pattern::any(), [set("X-A", "1")]))
        .and_then(|rules| rules.headers(pattern("/*"), [set("Cache-Control", "max-age=9")]));
    let mut site = site(&["404.html", "416.txt", "405.html", "a"], rules);
    for _ in 0..2 {
        let lost = site.get("/none");
        assert_eq!((lost.status(), lost.text()), ("404", "404.html"));
        assert_eq!(
            lost.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        for name in ["etag", "last-modified", "accept-ranges", "cache-control"] {
            assert_eq!(lost.header(name), None, "{name}");
        }
        assert!(
            lost.header("content-security-policy").is_none(),
            "that of the built-in page"
        );
        assert_eq!(lost.header("x-a"), Some("1"));
        assert_eq!(lost.by, By::Worker);
    }
    let head = site.ask("HEAD", "/none", "");
    assert_eq!(
        (head.status(), head.header("content-length")),
        ("404", Some("8"))
    );
    assert!(head.body.is_empty());
    let conditional = format!("If-Modified-Since: {DATE}\r\nRange: bytes=0-1\r\n");
    let lost = site.ask("GET", "/none", &conditional);
    assert_eq!((lost.status(), lost.text()), ("404", "404.html"));
    let beyond = site.ask("GET", "/a", "Range: bytes=9-\r\n");
    assert_eq!((beyond.status(), beyond.text()), ("416", "416.txt"));
    assert_eq!(beyond.header("content-range"), Some("bytes */1"));
    let post = site.ask("POST", "/a", "");
    assert_eq!((post.status(), post.text()), ("405", "405.html"));
    assert_eq!(post.header("allow"), Some("GET, HEAD, OPTIONS"));
    let bad = site.get("/%");
    assert!(
        bad.status() == "400" && bad.text().contains("400 Bad Request"),
        "built in"
    );
    assert_met(&mut site, "/404.html", "200", "404.html");
    fs::remove_file(site.path("404.html")).expect("remove");
    let lost = site.get("/404.html");
    assert!(
        lost.status() == "404" && lost.text().contains("no such file"),
        "built in"
    );
}

#[test]
fn headers_are_changed_alike_by_worker_and_network_thread() {
    let rules = Rules::new()
        .headers(
            Pattern::any(),
            [set("Content-Security-Policy", "default-src 'self'")],
        )
        .and_then(|rules| rules.headers(pattern("/*.txt"), [set("Cache-Control", "max-age=9")]))
        .and_then(|rules| {
            let append = HeaderChange::append("Vary", "cookie")?;
            let remove = HeaderChange::remove("X-Content-Type-Options")?;
            rules.headers(
                pattern("/a.txt"),
                [append, remove, set("Content-Type", "text/x-a")],
            )
        })
        .and_then(|rules| rules.media_type("gmi", "text/gemini"));
    let mut site = site(&["a.txt", "b.gmi", "sub/c"], rules);
    let hot = site.get_hot("/a.txt", "");
    for (name, value) in [
        ("content-security-policy", Some("default-src 'self'")),
        ("cache-control", Some("max-age=9")),
        ("content-type", Some("text/x-a")),
        ("x-content-type-options", None),
    ] {
        assert_eq!(hot.header(name), value, "{name}");
    }
    assert!(
        hot.lines().contains(&"vary: cookie".to_owned()),
        "{}",
        hot.head
    );
    let tag = hot.header("etag").expect("a tag").to_owned();
    let known = format!("If-None-Match: {tag}\r\n");
    let by_network = site.ask("GET", "/a.txt", &known);
    site.thread = site.files.thread_state();
    let by_worker = site.ask("GET", "/a.txt", &known);
    assert_eq!((by_network.by, by_worker.by), (By::Network, By::Worker));
    assert_eq!(
        (by_network.status(), by_network.lines()),
        ("304", by_worker.lines())
    );
    assert_eq!(by_network.header("cache-control"), Some("max-age=9"));
    assert_eq!(
        by_network.header("content-security-policy"),
        Some("default-src 'self'")
    );
    assert_eq!(by_network.header("content-type"), None, "of the body");
    let part = site.ask("GET", "/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!(
        (part.status(), part.header("cache-control")),
        ("206", Some("max-age=9"))
    );
    let parts = site.ask("GET", "/a.txt", "Range: bytes=0-0,4-\r\n");
    assert_eq!(parts.header("cache-control"), Some("max-age=9"));
    assert_eq!(
        site.get_hot("/b.gmi", "").header("content-type"),
        Some("text/gemini")
    );
    for (target, policy) in [("/sub/", "'none'"), ("/sub", "'self'"), ("/none", "'none'")] {
        let answer = site.get(target);
        let head = answer.head.to_ascii_lowercase();
        assert_eq!(head.matches("content-security-policy").count(), 1, "{head}");
        let own = answer.header("content-security-policy").expect("a policy");
        assert!(own.contains(policy), "{target}: {own}");
    }
}

#[test]
fn where_a_mount_may_be_below_the_network_thread_does_not_look() {
    let rules = Rules::new().try_files(pattern("/*"), ["/none$path", "$path"]);
    let site = site(&["a"], rules);
    let asker = Asker::default();
    let locality = |files: &Files, reach| {
        let (version, home) = files.home();
        let stay = Stay {
            version,
            home: &home,
        };
        let resources = ((&site.pool).into(), Some((&site.descriptors).into()));
        let answerer = files.answerer(stay, resources, (reach, &asker), None);
        let input = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        let (request, _) = testing::request(input).expect("valid").expect("complete");
        let response = answerer.answer(&request).expect("within reach");
        let entry = response
            .extensions()
            .get::<NewEntry>()
            .expect("for the cache");
        entry.lookup.locality
    };
    let plain = Files::open(&site.path("")).expect("open");
    let own = locality(&plain, Reach::Everywhere);
    assert_eq!(locality(&site.files, Reach::OwnMount), own);
    assert_eq!(locality(&site.files, Reach::Everywhere), Locality::Remote);
}
