//! Who may have a file is asked of the site that its directory belongs to: every way to a file, by
//! every rule of that site.
//!
//! The directory `pub` is served by several sites, one for each kind of rule that leads elsewhere,
//! all of them open, writable and with hidden names. The site of `pub/private` has the rule that is
//! tried. Each cell is asked twice: as a client that the rule refuses, and as one that it admits.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use flatpath_testkit::reply::Reply;
use flatpath_testkit::site::ADA;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver};

each_driver!(
    every_way_to_a_file_asks_the_site_of_its_directory,
    what_is_not_there_is_refused_as_what_is,
    what_one_client_was_admitted_to_is_not_kept_for_others,
    a_site_is_written_only_where_it_is_writable,
    listings_and_rule_files_are_those_of_the_site,
    a_directory_that_takes_the_place_of_a_sites_is_not_open,
    an_open_site_within_a_protected_one_stays_open,
    a_request_counts_once_however_much_it_meets,
);

pub(crate) const ADAS: &str = "Authorization: Basic YWRhOnBhc3M6d29yZA==\r\n";

/// What is in each protected file, and in the name of one.
pub(crate) const MARK: &str = "MARKED";

/// How what a site refuses looks, by the way that led there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The file itself: the refusal is the answer.
    File,
    /// Among other things, which are shown without it.
    Among,
    /// In place of a file that all may have.
    Instead,
    /// The page of an error, which stays one.
    ErrorPage,
    /// A file that is written; the answer where it may be.
    Written(u16),
}

/// A way to a protected file.
struct Way {
    what: &'static str,
    kind: Kind,
    line: String,
    host: &'static str,
    headers: String,
    body: &'static str,
}

/// A rule of the site, and what it does.
struct Rule {
    name: &'static str,
    refusing: &'static str,
    admitting: &'static str,
    /// The status of a refusal, and of one to write.
    status: (u16, u16),
    /// What a client sends that is admitted.
    credentials: &'static str,
    /// The names of the files are hidden ones.
    is_hidden: bool,
}

const RULES: [Rule; 6] = [
    Rule {
        name: "auth",
        refusing: "auth-file = \"users\"",
        admitting: "auth-file = \"users\"",
        status: (401, 401),
        credentials: ADAS,
        is_hidden: false,
    },
    Rule {
        name: "allow",
        refusing: "allow = \"10.0.0.0/8\"",
        admitting: "allow = \"127.0.0.0/8\"",
        status: (403, 403),
        credentials: "",
        is_hidden: false,
    },
    Rule {
        name: "deny",
        refusing: "deny = \"127.0.0.0/8\"",
        admitting: "deny = \"10.0.0.0/8\"",
        status: (403, 403),
        credentials: "",
        is_hidden: false,
    },
    Rule {
        name: "rate",
        refusing: "rate = \"1/1h\"",
        admitting: "rate = \"1000/1h\"",
        status: (429, 429),
        credentials: "",
        is_hidden: false,
    },
    Rule {
        name: "rate-bytes",
        refusing: "rate-bytes = \"1/1h\"",
        admitting: "rate-bytes = \"1G/1h\"",
        status: (429, 429),
        credentials: "",
        is_hidden: false,
    },
    Rule {
        name: "hidden names",
        refusing: "hidden = false",
        admitting: "hidden = true",
        status: (404, 403),
        credentials: "",
        is_hidden: true,
    },
];

/// The directories, with files of these names in `pub/private`.
pub(crate) fn directories(dot: &str) -> Site {
    let site = Site::new().with("users", ADA).with("pub/open.txt", "open");
    for name in ["a.txt", "a.html", "README.md", "a.css.gz"] {
        site.write(&format!("pub/private/{dot}{name}"), MARK);
    }
    site.write(&format!("pub/private/{dot}{MARK}"), MARK);
    site.write("pub/style/s.css", "plain");
    for name in ["index", "readme", "one"] {
        fs::create_dir_all(site.at(&format!("pub/{name}"))).expect("made");
    }
    for (target, link) in [
        (format!("../private/{dot}a.css.gz"), "style/s.css.gz"),
        (format!("../private/{dot}a.html"), "index/index.html"),
        (format!("../private/{dot}README.md"), "readme/README.md"),
        (format!("../private/{dot}a.txt"), "one/link.txt"),
        (format!("../private/{dot}{MARK}"), "one/long"),
        ("private".into(), "links"),
        ("../private/..".into(), "one/round"),
    ] {
        symlink(target, site.at("pub").join(link)).expect("linked");
    }
    site.write("pub/_redirects", format!("/f/* /private/{dot}:splat 200\n"));
    site
}

fn configuration(rules: &str, dot: &str) -> String {
    let mut text =
        "http = \"127.0.0.1:0\"\nhosts = \"*\"\nmemory = \"1G\"\narchive = [\"tar\", \"zip\"]\n"
            .to_owned();
    for (name, rules) in [
        ("pub.example", String::new()),
        ("other.example", String::new()),
        (
            "try.example",
            format!("try = [\"$path\", \"/private/{dot}a.txt\"]"),
        ),
        ("spa.example", format!("spa = \"/private/{dot}a.html\"")),
        (
            "page.example",
            format!("error-pages = {{ 404 = \"/private/{dot}a.html\" }}"),
        ),
        ("clean.example", "clean-urls = true".into()),
        ("files.example", "root-files = true".into()),
        (
            "rewrite.example",
            format!(
                "[[site.rewrite]]\nfrom = \"/r/*\"\nto = \"/private\"\n\
                 [[site.rewrite]]\nfrom = \"/n/:name\"\nto = \"/private/{dot}$name\"\n\
                 [[site.rewrite]]\nfrom = \"~^/x/(.*)$\"\nto = \"/$1\"\n"
            ),
        ),
    ] {
        text += &format!(
            "[[site]]\nnames = \"{name}\"\ndir = \"pub\"\nwritable = true\nhidden = true\n{rules}\n"
        );
    }
    text += "[[site]]\nnames = \"pub.example\"\nprefix = \"/private\"\ndir = \"pub/private\"\n\
             writable = true\n";
    text + rules + "\n"
}

/// The ways that read: what each is, how a refusal looks, the request, its host, and its headers.
/// `DOT` is that of the names.
#[rustfmt::skip]
const READING: [(&str, Kind, &str, &str, &str); 24] = [
    ("another host", Kind::File, "GET /private/DOTa.txt", "other.example", ""),
    ("an escape", Kind::File, "GET /%70rivate/DOT%61.txt", "other.example", ""),
    ("a dot", Kind::File, "GET /./private/./DOTa.txt", "other.example", ""),
    ("two dots", Kind::File, "GET /style/../private/DOTa.txt", "pub.example", ""),
    ("escaped dots", Kind::File, "GET /style/%2E./%2e/private/DOTa.txt", "other.example", ""),
    ("two dots after a rewrite", Kind::File, "GET /r/../private/DOTa.txt", "rewrite.example", ""),
    ("a rewrite", Kind::File, "GET /r/DOTa.txt", "rewrite.example", ""),
    ("a named placeholder", Kind::File, "GET /n/a.txt", "rewrite.example", ""),
    ("an expression", Kind::File, "GET /x/private/DOTa.txt", "rewrite.example", ""),
    ("a list of files", Kind::File, "GET /none", "try.example", ""),
    ("a fallback", Kind::File, "GET /none", "spa.example", ""),
    ("a clean address", Kind::File, "GET /private/DOTa", "clean.example", ""),
    ("a line of _redirects", Kind::File, "GET /f/a.txt", "files.example", ""),
    ("an index", Kind::File, "GET /index/", "other.example", ""),
    ("a link", Kind::File, "GET /one/link.txt", "other.example", ""),
    ("a linked directory", Kind::File, "GET /links/DOTa.txt", "other.example", ""),
    ("a range", Kind::File, "GET /links/DOTa.txt", "other.example", "Range: bytes=0-\r\n"),
    ("an error page", Kind::ErrorPage, "GET /none", "page.example", ""),
    ("a README", Kind::Among, "GET /readme/", "other.example", ""),
    ("tar", Kind::Among, "GET /?archive=tar", "pub.example", ""),
    ("zip", Kind::Among, "GET /?archive=zip", "pub.example", ""),
    ("tar of links", Kind::Among, "GET /one/?archive=tar", "pub.example", ""),
    ("zip of links", Kind::Among, "GET /one/?archive=zip", "other.example", ""),
    ("a compressed sibling", Kind::Instead, "GET /style/s.css", "other.example",
        "Accept-Encoding: gzip\r\n"),
];

fn ways(dot: &str) -> Vec<Way> {
    let way = |(what, kind, line, host, headers): (_, _, &str, _, &str)| Way {
        what,
        kind,
        line: line.replace("DOT", dot),
        host,
        headers: headers.to_owned(),
        body: "",
    };
    let name = match dot {
        "" => "ZXZpbDM=",
        _ => "LmV2aWwz",
    };
    let length = "Content-Length: 4\r\n";
    let tus = "Tus-Resumable: 1.0.0\r\nUpload-Length: 4\r\nContent-Length: 0\r\n";
    let named = format!("{tus}Upload-Metadata: filename {name}\r\n");
    let writing = [
        (
            "a PUT by another host",
            "PUT /private/DOTevil",
            "other.example",
            length,
        ),
        (
            "a PUT by a link",
            "PUT /links/DOTevil2",
            "pub.example",
            length,
        ),
        (
            "a PUT by two dots",
            "PUT /style/../private/DOTevil5",
            "pub.example",
            length,
        ),
        ("an upload", "POST /links/", "other.example", &named),
        (
            "an upload by name",
            "POST /private/DOTevil4",
            "other.example",
            tus,
        ),
    ];
    let written = |(what, line, host, headers): (_, &str, _, &str)| Way {
        body: if headers == length { "evil" } else { "" },
        ..way((what, Kind::Written(201), line, host, headers))
    };
    let reading = READING.into_iter().map(way);
    reading.chain(writing.into_iter().map(written)).collect()
}

fn ask(server: &Server, way: &Way, more: &str) -> Reply {
    exchange(
        server,
        &way.line,
        way.host,
        &format!("{}{more}", way.headers),
        way.body,
    )
}

pub(crate) fn exchange(
    server: &Server,
    line: &str,
    host: &str,
    headers: &str,
    body: &str,
) -> Reply {
    let mut client = Client::connect(server.listeners()[0].1);
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
    client.exchange(head + body)
}

pub(crate) fn start(driver: Driver, site: &Site, settings: &str) -> Server {
    site.write("flatpath.toml", settings);
    Launch::configured(driver, site.path()).start()
}

fn has_mark(reply: &Reply) -> bool {
    let body = &reply.body;
    body.windows(MARK.len())
        .any(|window| window == MARK.as_bytes())
}

fn names_below(site: &Site) -> BTreeSet<String> {
    let entries = fs::read_dir(site.at("pub/private")).expect("read");
    let names = entries.map(|it| it.expect("an entry").file_name());
    names.map(|it| it.to_string_lossy().into_owned()).collect()
}

fn every_way_to_a_file_asks_the_site_of_its_directory(driver: Driver) {
    let mut wrong = Vec::new();
    let mut cells = 0;
    for rule in &RULES {
        let dot = if rule.is_hidden { "." } else { "" };
        let site = directories(dot);
        let server = start(driver, &site, &configuration(rule.refusing, dot));
        // What a rate has to count before it refuses.
        let first = format!("GET /private/{dot}a.txt");
        exchange(&server, &first, "pub.example", "", "");
        let before = names_below(&site);
        for way in ways(dot) {
            let reply = ask(&server, &way, "");
            let is_delayed = rule.status.0 == 429;
            let expected = match way.kind {
                // As if there were no index: the listing, without what is hidden.
                Kind::File if rule.is_hidden && way.what == "an index" => 200,
                Kind::File => rule.status.0,
                Kind::Among | Kind::Instead if is_delayed => 429,
                Kind::Among | Kind::Instead => 200,
                Kind::ErrorPage => 404,
                Kind::Written(_) => rule.status.1,
            };
            let is_asked = reply.status != 401 || reply.field("www-authenticate").is_some();
            if reply.status != expected || has_mark(&reply) || !is_asked {
                wrong.push(format!("{} by {}: {}", rule.name, way.what, reply.status));
            }
            cells += 1;
        }
        assert_eq!(
            names_below(&site),
            before,
            "{}: nothing was written",
            rule.name
        );
        server.end();
        let server = start(driver, &site, &configuration(rule.admitting, dot));
        for way in ways(dot) {
            let reply = ask(&server, &way, rule.credentials);
            let expected = match way.kind {
                Kind::File if way.what == "a range" => (206, true),
                Kind::File | Kind::Among | Kind::Instead => (200, true),
                Kind::ErrorPage => (404, true),
                Kind::Written(status) => (status, false),
            };
            if (reply.status, has_mark(&reply)) != expected {
                wrong.push(format!(
                    "{} admits {}: {}",
                    rule.name, way.what, reply.status
                ));
            }
            cells += 1;
        }
        server.end();
    }
    assert_eq!(
        cells,
        2 * RULES.len() * ways("").len(),
        "every cell was tried"
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Nothing is learned of the names of a protected directory, nor of where its links lead.
fn what_is_not_there_is_refused_as_what_is(driver: Driver) {
    let site = directories("");
    symlink("../open.txt", site.at("pub/private/out")).expect("linked");
    let server = start(driver, &site, &configuration("auth-file = \"users\"", ""));
    for target in [
        "/links/none",
        "/private/none/x",
        "/private/out",
        "/links/",
        "/private/",
    ] {
        let line = format!("GET {target}");
        let reply = exchange(&server, &line, "other.example", "", "");
        assert_eq!(reply.status, 401, "{target}");
        let reply = exchange(&server, &line, "other.example", ADAS, "");
        let found = if target.contains("none") { 404 } else { 200 };
        assert_eq!(reply.status, found, "{target}");
    }
    // Dots that lead out of it again are gone before a site is chosen.
    let line = "GET /private/../open.txt";
    let reply = exchange(&server, line, "pub.example", "", "");
    assert_eq!((reply.status, reply.text()), (200, "open"));
    // A link that only passes through it leads to what all may have.
    let reply = exchange(&server, "GET /one/round/open.txt", "other.example", "", "");
    assert_eq!((reply.status, reply.text()), (200, "open"));
    server.end();
}

fn what_one_client_was_admitted_to_is_not_kept_for_others(driver: Driver) {
    let site = directories("");
    site.write("pub/near.txt", "near");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let server = start(driver, &site, &configuration("auth-file = \"users\"", ""));
    for (target, open) in [("/private/a.txt", 401), ("/near.txt", 200)] {
        let line = format!("GET {target}");
        for (credentials, status) in [(ADAS, 200), (ADAS, 200), ("", open), (ADAS, 200)] {
            let reply = exchange(&server, &line, "other.example", credentials, "");
            assert_eq!(reply.status, status, "{target}");
        }
    }
    server.end();
}

fn a_site_is_written_only_where_it_is_writable(driver: Driver) {
    let site = directories("");
    let settings = configuration("root-files = true", "");
    let server = start(driver, &site, &settings);
    let length = "Content-Length: 4\r\n";
    let put = |server: &Server, target: &str| {
        let line = format!("PUT {target}");
        exchange(server, &line, "other.example", length, "evil").status
    };
    // Its rules are not for those who may write files.
    assert_eq!(put(&server, "/links/_headers"), 403);
    assert_eq!(put(&server, "/links/file"), 201);
    server.end();
    let server = start(
        driver,
        &site,
        &settings.replace("writable = true\nroot-files", "root-files"),
    );
    for target in ["/links/file", "/links/new", "/private/new"] {
        assert_eq!(put(&server, target), 403, "{target}");
    }
    assert_eq!(put(&server, "/new"), 201);
    server.end();
}

fn listings_and_rule_files_are_those_of_the_site(driver: Driver) {
    let site = directories("");
    site.write("pub/private/_headers", MARK);
    let server = start(driver, &site, &configuration("root-files = true", ""));
    let listing = exchange(&server, "GET /links/", "other.example", "", "");
    assert!(listing.text().contains("a.txt") && !listing.text().contains("_headers"));
    let kept = exchange(&server, "GET /links/_headers", "other.example", "", "");
    assert_eq!(kept.status, 404);
    let archive = exchange(&server, "GET /?archive=tar", "other.example", "", "");
    let has = |name: &str| {
        let mut windows = archive.body.windows(name.len());
        windows.any(|window| window == name.as_bytes())
    };
    assert!(has("private/a.txt") && !has("private/_headers"));
    server.end();
}

/// As a deployment does it: the site has the directory that was there when it began.
fn a_directory_that_takes_the_place_of_a_sites_is_not_open(driver: Driver) {
    let site = directories("");
    let server = start(driver, &site, &configuration("auth-file = \"users\"", ""));
    fs::rename(site.at("pub/private"), site.at("pub/before")).expect("moved");
    site.write("pub/private/new.txt", MARK);
    for target in ["/private/new.txt", "/before/a.txt"] {
        let line = format!("GET {target}");
        let reply = exchange(&server, &line, "other.example", "", "");
        assert_eq!(reply.status, 401, "{target}");
    }
    let reply = exchange(&server, "GET /?archive=tar", "other.example", "", "");
    assert!(reply.status == 200 && !has_mark(&reply));
    server.end();
}

fn an_open_site_within_a_protected_one_stays_open(driver: Driver) {
    let site = directories("");
    let settings = "http = \"127.0.0.1:0\"\nhosts = \"*\"\n\
        [[site]]\nnames = \"pub.example\"\ndir = \"pub\"\nauth-file = \"users\"\n\
        [[site]]\nnames = \"pub.example\"\nprefix = \"/private\"\ndir = \"pub/private\"\n\
        [[site]]\nnames = \"same.example\"\ndir = \"pub\"\n";
    let server = start(driver, &site, settings);
    for (line, host, status) in [
        ("GET /open.txt", "pub.example", 401),
        ("GET /private/a.txt", "pub.example", 200),
        // Each of two sites with one directory has it for itself.
        ("GET /open.txt", "same.example", 200),
        ("GET /links/a.txt", "same.example", 200),
    ] {
        let reply = exchange(&server, line, host, "", "");
        assert_eq!(reply.status, status, "{host} {line}");
    }
    server.end();
}

/// An archive with a hundred files of a site is one request to it.
fn a_request_counts_once_however_much_it_meets(driver: Driver) {
    let site = directories("");
    let server = start(driver, &site, &configuration("rate = \"2/1h\"", ""));
    let statuses = [(); 3].map(|()| {
        let reply = exchange(&server, "GET /?archive=tar", "other.example", "", "");
        (reply.status, has_mark(&reply))
    });
    assert_eq!(statuses, [(200, true), (200, true), (429, false)]);
    server.end();
}
