//! Rules of headers, in the simulation: every answer of the service gets them, whatever its status
//! and whoever makes it.

use std::fs;
use std::path::Path;

use flatpath_files::{
    Files, HeaderChange, Pattern, RootFiles, RuleError, Rules, WriteOptions, Writing,
};
use flatpath_http::Http;
use flatpath_test::{Conditions, Reply, Requests, TestServer, each_seed};
use http::StatusCode;

const SEEDS: u64 = 3;
const TUS: (&str, &str) = ("tus-resumable", "1.0.0");

fn set_rules() -> Result<Rules, RuleError> {
    let all = [
        HeaderChange::set("X-Rule", "1")?,
        HeaderChange::set("Access-Control-Allow-Origin", "*")?,
        HeaderChange::set("Content-Language", "en")?,
        HeaderChange::immutable(),
    ];
    Rules::new().headers(Pattern::any(), all)
}

/// The same from `_headers`.
const LINES: &str = "/*\n  X-Rule: 1\n  Access-Control-Allow-Origin: *\n  Content-Language: en\n  \
                     Cache-Control: public, max-age=31536000, immutable\n";

fn serve(seed: u64, directory: &Path, rules: Rules) -> TestServer {
    let rules = rules
        .redirect(
            "/old".parse().expect("a path"),
            "/a",
            StatusCode::MOVED_PERMANENTLY,
        )
        .expect("a redirect");
    let files = Files::open(directory).expect("a directory");
    let files = files.rules(rules).writable(Writing::Allowed(WriteOptions {
        bytes_max: 1_000,
        ..WriteOptions::default()
    }));
    TestServer::new(Conditions::rough(seed), Http::service(files))
}

/// A request with its status: method, target, headers, body.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16);

/// Those that need no state.
const CASES: &[Case<'_>] = &[
    ("GET", "/a", &[], "", 200),
    ("HEAD", "/a", &[], "", 200),
    ("GET", "/a", &[("range", "bytes=0-0")], "", 206),
    ("GET", "/old", &[], "", 301),
    ("GET", "/sub", &[], "", 301),
    ("GET", "/sub/", &[], "", 200),
    ("GET", "/a", &[("if-none-match", "*")], "", 304),
    ("GET", "/a", &[("if-match", "\"x\"")], "", 412),
    ("GET", "/a", &[("range", "bytes=9-")], "", 416),
    ("GET", "/none", &[], "", 404),
    ("GET", "/.git", &[], "", 404),
    ("GET", "/%", &[], "", 400),
    ("LOCK", "/a", &[], "", 405),
    ("DELETE", "/a", &[], "", 405),
    ("OPTIONS", "/a", &[], "", 204),
    ("OPTIONS", "/a", &[("origin", "http://x")], "", 204),
    ("PUT", "/new", &[], "1", 201),
    ("PUT", "/new", &[], "2", 204),
    ("PUT", "/empty", &[], "", 201),
    ("PUT", "/.hidden", &[], "1", 403),
    ("PUT", "/none/new", &[], "1", 409),
    ("PUT", "/a", &[("if-none-match", "*")], "1", 412),
    ("PUT", "/a", &[("content-encoding", "gzip")], "1", 415),
    ("PUT", "/a", &[("content-range", "bytes 0-0/1")], "1", 400),
    ("PUT", "/%", &[], "1", 400),
    ("POST", "/t", &[], "", 412),
    ("POST", "/t", &[TUS, ("upload-length", "2000")], "", 413),
    (
        "POST",
        "/",
        &[("content-type", "multipart/form-data")],
        "",
        400,
    ),
];

fn ask(server: &mut TestServer, (method, target, headers, body, status): Case<'_>) -> Reply {
    let mut request = server.request(method, target);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let reply = request.body(body).send();
    assert_eq!(reply.status, status, "{method} {target}: {reply:?}");
    reply
}

fn assert_ruled(reply: &Reply, what: &str) {
    assert_eq!(reply.field("x-rule"), Some("1"), "{what}: {reply:?}");
    let origin = reply.field("access-control-allow-origin");
    assert_eq!(origin, Some("*"), "{what}: {reply:?}");
    let is_read = what.starts_with("GET") || what.starts_with("HEAD");
    let is_kept = is_read && matches!(reply.status, 200 | 206 | 301 | 304);
    let cache = reply.field("cache-control").unwrap_or_default();
    assert_eq!(cache.contains("immutable"), is_kept, "{what}: {reply:?}");
    // The client of a 304 has what says how its bytes are to be read.
    let language = reply.field("content-language");
    assert_eq!(language.is_some(), reply.status != 304, "{what}: {reply:?}");
}

#[test]
fn sim_every_answer_has_the_headers_of_its_rules() {
    each_seed(SEEDS, |seed| {
        for is_of_file in [false, true] {
            let directory = tempfile::tempdir().expect("temporary directory");
            fs::write(directory.path().join("a"), "a").expect("written");
            fs::create_dir(directory.path().join("sub")).expect("made");
            let rules = match is_of_file {
                true => {
                    fs::write(directory.path().join("_headers"), LINES).expect("written");
                    Rules::new().root_files(RootFiles::Read)
                }
                false => set_rules().expect("rules"),
            };
            let mut server = serve(seed, directory.path(), rules);
            // Twice, so that what a network thread keeps is among it.
            for case in CASES.iter().chain(CASES.iter().take(12)) {
                let what = format!("{} {} {:?}", case.0, case.1, case.2);
                assert_ruled(&ask(&mut server, *case), &what);
            }
            let begun = [TUS, ("upload-length", "2")];
            let reply = ask(&mut server, ("POST", "/up", &begun, "", 201));
            assert_ruled(&reply, "POST");
            let upload = reply.field("location").expect("an address").to_owned();
            let patch = |offset| {
                [
                    TUS,
                    ("upload-offset", offset),
                    ("content-type", "application/offset+octet-stream"),
                ]
            };
            for (method, headers, body, status) in [
                ("PATCH", &patch("7")[..], "x", 409),
                ("PATCH", &patch("0"), "x", 204),
                ("HEAD", &[TUS], "", 200),
                ("DELETE", &[TUS], "", 204),
                ("DELETE", &[TUS], "", 404),
            ] {
                let case = (method, &*upload, headers, body, status);
                let reply = ask(&mut server, case);
                assert_eq!(reply.field("x-rule"), Some("1"), "{case:?}: {reply:?}");
                assert_eq!(reply.field("cache-control"), Some("no-store"), "{case:?}");
            }
        }
    });
}
