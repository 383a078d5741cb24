//! Attacks on what an administrator sets: rules that could lead out, names that could begin a line,
//! bodies that grow when they are inflated, a file of passwords that is written while it is read.
//!
//! Attacks on paths are in `traversal.rs`, on the names of hosts in `sites.rs`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use flatpath_testkit::reply::{Asked, Reply};
use flatpath_testkit::site::ADA;
use flatpath_testkit::{Client, Driver, Launch, Over, Server, Site, binary, each_driver};
use rustix::process::Signal;

each_driver!(
    no_rule_leads_out_whatever_a_client_makes_of_it,
    no_rule_and_no_name_begin_a_line,
    a_host_is_one_host_however_it_is_said,
    a_body_is_stored_as_it_came_or_not_at_all,
    a_file_of_passwords_that_is_written_lets_in_who_was_in_it,
);

const SECRET: &str = "this text is outside";

const ADAS: &str = "Authorization: Basic YWRhOnBhc3M6d29yZA==\r\n";
/// `ada` with another password.
const EVES: &str = "Authorization: Basic YWRhOnB3bmVk\r\n";

/// A server of a configuration in `site`, from the directory `root` below it.
fn start(driver: Driver, site: &Site, settings: &str) -> Server {
    site.write(
        "flatpath.toml",
        format!("http = \"127.0.0.1:0\"\nhosts = \"*\"\n{settings}"),
    );
    Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--driver", driver.name(), "--config"])
        .with([site.at("flatpath.toml")])
        .within(site.path())
        .start()
}

fn ask(server: &Server, target: &[u8], headers: &str) -> Reply {
    let mut client = Client::connect(server.address("http"));
    let headers = format!(" HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    client.send([b"GET ", target, headers.as_bytes()].concat());
    let shown = String::from_utf8_lossy(target);
    // A reply with a stray line is none.
    let reply = client.try_reply(Asked::Any);
    reply.unwrap_or_else(|why| panic!("{shown}: {why}"))
}

/// Ways to say "up" or "hidden" in what a rule finds.
const UP: &[&str] = &[
    "../secret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "%252e%252e/secret",
    "..%252fsecret",
    "..%5csecret",
    "..\\secret",
    "sub/../../secret",
    ".hidden",
    "%2ehidden",
    "%252ehidden",
    "/secret",
    "%2fsecret",
    "sub/%2e%2e/%2e%2e/secret",
    "link",
    "sub/link/secret",
    "%00../secret",
    "..%00/secret",
    "secret%00",
    "%c0%ae%c0%ae/secret",
];

fn no_rule_leads_out_whatever_a_client_makes_of_it(driver: Driver) {
    let site = Site::new()
        .with("secret", SECRET)
        .with("root/a", "a")
        .with("root/.hidden", SECRET)
        .with("root/sub/a", "a")
        .with(
            "root/_redirects",
            "/f/* /:splat 200\n/g/* /sub/:splat 200!\n/h/:x/* /:x:splat 200!\n/up /../secret 200\n",
        );
    symlink("../secret", site.at("root/link")).expect("a link");
    symlink("../..", site.at("root/sub/link")).expect("a link");
    let server = start(
        driver,
        &site,
        r#"
[[site]]
dir = "root"
root-files = true
[[site.rewrite]]
from = "/x/*"
to = "/$rest"
[[site.rewrite]]
from = "~^/y/(.*)$"
to = "/sub/$1"
[[site.rewrite]]
from = "~^/z/(.)(.*)$"
to = "/$1$1$2"
[[site.rewrite]]
from = "/fixed"
to = "/%2e%2e/secret"
[site.error-pages]
404 = "/link"
403 = "/sub/link/secret"
"#,
    );
    for prefix in [
        "/", "/x/", "/y/", "/z/", "/z/./", "/f/", "/g/", "/h/./", "/h/../",
    ] {
        for up in UP {
            let target = format!("{prefix}{up}");
            // The second may come from the cache.
            for round in 0..2 {
                let reply = ask(&server, target.as_bytes(), "");
                assert!(
                    matches!(reply.status, 400 | 403 | 404),
                    "{target}: {reply:?}"
                );
                let text = String::from_utf8_lossy(&reply.body);
                assert!(!text.contains(SECRET), "{target} {round}: {text}");
            }
        }
    }
    for target in ["/fixed", "/up", "/none"] {
        let reply = ask(&server, target.as_bytes(), "");
        assert!(matches!(reply.status, 400 | 404), "{target}: {reply:?}");
        assert!(
            !String::from_utf8_lossy(&reply.body).contains(SECRET),
            "{target}"
        );
    }
    // The rules are in force.
    for target in ["/x/a", "/y/a", "/f/a", "/g/a"] {
        assert_eq!(ask(&server, target.as_bytes(), "").text(), "a", "{target}");
    }
    server.end();
}

/// Names that would begin a header, or break out of a page or of a quoted name.
const NAMES: &[&[u8]] = &[
    b"a\r\nX-Evil: 1",
    b"a\nX-Evil: 1\n\n<script>",
    b"<script>alert(1)<",
    b"\"><img src=x onerror=alert(1)>",
    b"\"; filename=evil.exe; x=\"",
    b"\xff\xfe; X-Evil: 1",
    b"%0d%0aX-Evil: 1",
];

fn no_rule_and_no_name_begin_a_line(driver: Driver) {
    let site = Site::new()
        .with("root/a", "a")
        .with(
            "root/_redirects",
            "/r/* /to/:splat?q=:splat\n/b /c?x=\u{1}y\n",
        )
        .with(
            "root/_headers",
            "/*\n  X-A: 1\u{1}\n  X-B: 2\r  X-Evil: 1\n  Location: /evil\n  X-C: 3\n",
        );
    for name in NAMES {
        let path = site
            .at("root")
            .join(Path::new(std::ffi::OsStr::from_bytes(name)));
        fs::create_dir(&path).expect("a directory of this name");
        fs::write(path.join(Path::new(std::ffi::OsStr::from_bytes(name))), "x").expect("a file");
    }
    let rules = r#"
archive = ["tar", "zip"]
[[site]]
dir = "root"
root-files = true
[[site.redirect]]
from = "~^/o/(.*)$"
to = "https://other.example/$1"
"#;
    let server = start(driver, &site, rules);
    let check = |reply: &Reply, what: &str| {
        let is_evil = |(name, _): &(String, String)| name.eq_ignore_ascii_case("x-evil");
        assert!(!reply.fields.iter().any(is_evil), "{what}: {reply:?}");
        for (name, value) in &reply.fields {
            let is_line = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            assert!(is_line, "{what}: {name}: {value:?}");
        }
    };
    for name in NAMES {
        let escaped: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        for target in [
            format!("/{escaped}"),
            format!("/{escaped}/"),
            format!("/{escaped}/{escaped}"),
            format!("/{escaped}/?archive=tar"),
            format!("/{escaped}/?archive=zip"),
            format!("/r/{escaped}"),
            format!("/o/{escaped}"),
        ] {
            let reply = ask(&server, target.as_bytes(), "");
            assert!(
                matches!(reply.status, 200 | 301 | 302),
                "{target}: {reply:?}"
            );
            check(&reply, &target);
            if let Some(location) = reply.field("location").filter(|_| target.starts_with("/o")) {
                assert!(location.starts_with("https://other.example/"), "{location}");
            }
        }
    }
    for accept in ["text/html", "application/json"] {
        let reply = ask(&server, b"/", &format!("Accept: {accept}\r\n"));
        check(&reply, accept);
        let page = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(page.contains("alert(1)"), "they are listed: {page}");
        let is_page = accept == "text/html";
        // The page has one script, its own, which its policy knows by its hash.
        let scripts = page.matches("<script").count();
        assert!(!is_page || scripts == 1 && !page.contains("<img"), "{page}");
    }
    // Of the lines with a mistake none has an effect, and the others have.
    let reply = ask(&server, b"/a", "");
    assert_eq!((reply.field("x-c"), reply.field("x-b")), (Some("3"), None));
    assert_eq!((reply.field("location"), reply.field("x-a")), (None, None));
    server.end();
}

/// One of several names is the host, or there is none.
fn a_host_is_one_host_however_it_is_said(driver: Driver) {
    let site = Site::new().with("a/index", "a").with("b/index", "b");
    let server = start(
        driver,
        &site,
        "[[site]]\nnames = \"a.example\"\ndir = \"a\"\n\
         [[site]]\nnames = \"b.example\"\ndir = \"b\"\n",
    );
    for (head, expected) in [
        (
            "GET /index HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n",
            400,
        ),
        (
            "GET /index HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n",
            400,
        ),
        ("GET /index HTTP/1.1\r\nHost: a.example, b.example\r\n", 400),
        ("GET /index HTTP/1.1\r\nHost: a.example b.example\r\n", 400),
        ("GET /index HTTP/1.1\r\nHost: a.example/b.example\r\n", 400),
        ("GET /index HTTP/1.1\r\nHost: b.example@a.example\r\n", 400),
        (
            "GET /index HTTP/1.1\r\nHost: a.example\r\n b.example\r\n",
            400,
        ),
        ("GET /index HTTP/1.1\r\nHost : a.example\r\n", 400),
        ("GET /index HTTP/1.1\r\n", 400),
        ("GET /index HTTP/1.1\r\nHost: \r\n", 421),
        ("GET /index HTTP/1.1\r\nHost: b.example.a.example\r\n", 421),
        ("GET /index HTTP/1.1\r\nHost: xa.example\r\n", 421),
        ("GET /index HTTP/1.1\r\nHost: a.example..\r\n", 421),
    ] {
        let mut client = Client::connect(server.address("http"));
        client.send(format!("{head}\r\n"));
        let reply = client
            .try_reply(Asked::Any)
            .unwrap_or_else(|why| panic!("{head}: {why}"));
        let is_refused = reply.status == expected || reply.status == 400 || reply.status == 421;
        assert!(is_refused, "{head}: {reply:?}");
        assert!(
            reply.body != b"a" && reply.body != b"b",
            "{head}: {reply:?}"
        );
    }
    // What a proxy or a page adds names no host.
    for header in [
        "X-Forwarded-Host",
        "X-Host",
        "Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
    ] {
        let mut client = Client::connect(server.address("http"));
        let value = if header == "Forwarded" {
            "host=b.example"
        } else {
            "b.example"
        };
        let reply = client.exchange(format!(
            "GET /index HTTP/1.1\r\nHost: a.example\r\n{header}: {value}\r\n\r\n"
        ));
        assert_eq!(reply.text(), "a", "{header}");
    }
    server.end();
}

/// Nothing inflates what a client sends, so no short body becomes a long file.
fn a_body_is_stored_as_it_came_or_not_at_all(driver: Driver) {
    let site = Site::new().with("root/a", "a");
    let server = start(driver, &site, "dir = \"root\"\nwritable = true\n");
    for coding in [
        "gzip",
        "br",
        "zstd",
        "deflate",
        "x-gzip",
        "gzip, gzip",
        "identity, gzip",
    ] {
        let mut client = Client::connect(server.address("http"));
        let reply = client.exchange(format!(
            "PUT /bomb HTTP/1.1\r\nHost: h\r\nContent-Encoding: {coding}\r\nContent-Length: 4\r\n\
             \r\n\x1f\u{b}\u{8}\0"
        ));
        assert_eq!(reply.status, 415, "{coding}");
        assert!(!site.at("root/bomb").exists(), "{coding}");
    }
    // As a coding of the transfer it would be inflated by any server that knows it.
    for coding in ["gzip, chunked", "gzip"] {
        let mut client = Client::connect(server.address("http"));
        let head = "PUT /bomb HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: ";
        client.send(format!("{head}{coding}\r\n\r\n0\r\n\r\n"));
        let reply = client
            .try_reply(Asked::Any)
            .unwrap_or_else(|why| panic!("{coding}: {why}"));
        assert!(matches!(reply.status, 400 | 501), "{coding}: {reply:?}");
        assert!(!site.at("root/bomb").exists(), "{coding}");
    }
    server.end();
}

/// While an editor rewrites the file in place, byte by byte, no new user gets in, and no user of
/// both versions is refused.
fn a_file_of_passwords_that_is_written_lets_in_who_was_in_it(driver: Driver) {
    const ROUNDS: usize = 12;
    let site = Site::new().with("root/a", "a").with("users", ADA);
    let server = start(driver, &site, "dir = \"root\"\nauth-file = \"users\"\n");
    let process = server.process();
    let is_over = Over::default();
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let writer = scope.spawn(|| {
            let mut writes = 0_usize;
            while !is_over.is_set() {
                // Half a line of a name without a password, a password in the clear, nothing.
                for text in ["", "ada:", "eve:pwned\n", "ada:$2y$05$B.E3", "#", ADA] {
                    fs::write(site.at("users"), text).expect("written");
                    process.signal(Signal::HUP);
                    writes += 1;
                    std::thread::yield_now();
                }
            }
            writes
        });
        for round in 0..ROUNDS {
            for (headers, status) in [(ADAS, 200), (EVES, 401), ("", 401)] {
                let reply = ask(&server, b"/a", headers);
                assert_eq!(reply.status, status, "{round}: {headers}");
            }
        }
        is_over.set();
        assert!(writer.join().expect("no panic") > 0);
    });
    server.end();
}
