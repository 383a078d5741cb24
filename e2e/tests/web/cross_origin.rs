//! `--allow-origin` and rules of headers, as pages of other origins meet them: in Chromium, and
//! field by field.

use std::fs;
use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::reply::Reply;
use flatpath_testkit::site::ADA;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, tools, until_true};
use rustix::process::Signal;

use flatpath_testkit::https::localhost;

each_driver!(
    a_page_of_a_named_origin_does_what_pages_of_the_site_do,
    a_page_reads_what_rules_of_headers_let_it_read,
    each_class_of_origin_gets_its_fields,
    a_preflight_needs_no_password_and_a_refusal_can_be_read,
    a_reload_changes_the_origins_of_a_site,
);

const PAGE: &str = "<!doctype html><title>a page</title>";

/// What a page in Chromium does with a server, by this protocol. `None`: there is no Chromium.
fn browse(page: &str, server: &str, protocol: &str) -> Option<()> {
    let (node, chromium) = (
        tools::find("node")?,
        tools::find("chromium-headless-shell")?,
    );
    let tus = tools::installed("FLATPATH_TUS_JS");
    let tus = tus.map(|home| home.join("node_modules/tus-js-client/dist/tus.min.js"));
    let folder = Site::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/cross_origin.cjs");
    let mut command = Command::new(node);
    command.arg(program).arg(chromium);
    command.args([page, server, protocol]).arg(folder.path());
    let output = tools::run(command.args(tus), patience());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{protocol}: {said}");
    Some(())
}

/// A server with a site that is written to, with these settings and rules of it.
fn writable(driver: Driver, run: &Site, settings: &str) -> Server {
    writable_below(driver, run, "", settings)
}

/// The same with settings above it.
fn writable_below(driver: Driver, run: &Site, above: &str, settings: &str) -> Server {
    let site = "[[site]]\nnames = \"*\"\ndir = \"site\"\nwritable = true\n";
    let text = format!("http = \"127.0.0.1:0\"\n{above}{site}{settings}");
    run.write("site/file", "contents");
    run.write("flatpath.toml", text);
    run.settle();
    Launch::configured(driver, run.path()).start()
}

/// Lets a page see by which protocol it was answered.
const TIMING: &str = "[[site.header]]\npath = \"/*\"\nset = { Timing-Allow-Origin = \"*\" }\n";

fn a_page_of_a_named_origin_does_what_pages_of_the_site_do(driver: Driver) {
    let pages = Site::new().with("page.html", PAGE);
    let (page_server, authority) = localhost(driver, &pages, &["--http", "127.0.0.1:0"]);
    let at = |scheme| format!("{scheme}://{}", page_server.address(scheme));
    let (plain, secure) = (at("http"), at("https"));
    let pair = |name: &str| authority.at(name).display().to_string();
    let (certificate, key) = (pair("site.crt"), pair("site.key"));
    let above =
        format!("https = \"127.0.0.1:0\"\ntls-cert = \"{certificate}\"\ntls-key = \"{key}\"\n");
    let settings = format!("allow-origin = [\"{plain}\", \"{secure}\"]\n{TIMING}");
    for (scheme, origin, protocol) in [("http", &plain, "http/1.1"), ("https", &secure, "h2")] {
        let run = Site::new();
        let server = writable_below(driver, &run, &above, &settings);
        let page = format!("{origin}/page.html");
        let url = format!("{scheme}://{}", server.address(scheme));
        if browse(&page, &url, protocol).is_none() {
            return;
        }
        for (name, content) in [("new", "two"), ("tus", "abcdef"), ("file", "contents")] {
            let stored = fs::read_to_string(run.at("site").join(name));
            assert_eq!(stored.expect(name), content, "{protocol}");
        }
        assert!(!run.at("site/foreign").exists());
        server.end();
    }
    page_server.end();
}

/// Without `--allow-origin`: what rules say reaches every answer, so it is enough to read.
fn a_page_reads_what_rules_of_headers_let_it_read(driver: Driver) {
    let run = Site::new();
    let rules = "[[site.header]]\npath = \"/*\"\nset = { Access-Control-Allow-Origin = \"*\", \
                 Access-Control-Allow-Headers = \"Range, If-None-Match\" }\n";
    let server = writable(driver, &run, rules);
    for (line, fields, status) in [
        ("GET /file", "", 200),
        ("GET /file", "Range: bytes=0-0\r\n", 206),
        ("GET /file", "If-None-Match: *\r\n", 304),
        ("GET /none", "", 404),
        ("GET /%", "", 400),
        (
            "OPTIONS /file",
            "Access-Control-Request-Method: GET\r\n",
            204,
        ),
        ("PUT /new", "", 201),
        ("PUT /new", "", 204),
        ("PUT /.new", "", 403),
    ] {
        // From its own origin, as a PUT of another one is refused by the listener.
        let host = server.address("http");
        let fields = format!("Origin: http://{host}\r\n{fields}");
        let reply = ask(&server, line, &fields);
        assert_eq!(reply.status, status, "{line}");
        let origin = all(&reply, "access-control-allow-origin");
        assert_eq!(origin, "*", "{line} {fields}: {reply:?}");
    }
    server.end();
}

fn ask(server: &Server, line: &str, fields: &str) -> Reply {
    let host = server.address("http");
    let mut client = server.client();
    let length = match line.starts_with("PUT") {
        true => "Content-Length: 0\r\n",
        false => "",
    };
    client.exchange(format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\n{length}{fields}\r\n"
    ))
}

fn all(reply: &Reply, name: &str) -> String {
    let fields = reply.fields.iter();
    let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let values: Vec<_> = named.map(|(_, value)| value.as_str()).collect();
    values.join("|")
}

const APP: &str = "https://app.example";
const PREFLIGHT: &str = "Access-Control-Request-Method: PUT\r\n";

/// Named, foreign, `null`, two at once, none; kept answers of a network thread and those of
/// workers.
fn each_class_of_origin_gets_its_fields(driver: Driver) {
    let run = Site::new();
    let rules = "[[site.header]]\npath = \"/*\"\nset = { X-Rule = \"1\" }\n";
    let server = writable(driver, &run, &format!("allow-origin = \"{APP}\"\n{rules}"));
    let named = format!("Origin: {APP}\r\n");
    let twice = format!("{named}{named}");
    let lines = [
        ("GET /file", "", 200),
        ("GET /file", "", 200),
        ("GET /file", "If-None-Match: *\r\n", 304),
        ("GET /none", "", 404),
        ("OPTIONS /file", "", 204),
        ("OPTIONS /file", PREFLIGHT, 204),
    ];
    for (fields, is_named) in [
        (&*named, true),
        ("Origin: https://other.example\r\n", false),
        ("Origin: http://app.example\r\n", false),
        ("Origin: null\r\n", false),
        (&*twice, false),
        ("", false),
    ] {
        for (line, more, status) in lines {
            let what = format!("{line} {fields}{more}");
            let reply = ask(&server, line, &format!("{fields}{more}"));
            assert_eq!(reply.status, status, "{what}");
            let is_answered = is_named && !more.is_empty() && line.starts_with("OPTIONS");
            for (field, expected) in [
                ("access-control-allow-origin", is_named.then_some(APP)),
                ("access-control-allow-credentials", None),
                ("x-rule", (!is_answered).then_some("1")),
            ] {
                assert_eq!(
                    all(&reply, field),
                    expected.unwrap_or_default(),
                    "{what}: {reply:?}"
                );
            }
            let exposed = all(&reply, "access-control-expose-headers");
            let is_exposed = exposed.contains("content-range") && exposed.contains("upload-offset");
            assert_eq!(is_exposed, is_named && !is_answered, "{what}: {reply:?}");
            let vary = all(&reply, "vary").to_ascii_lowercase();
            let of_origin = vary.matches("origin").count();
            assert_eq!(of_origin, 1, "{what}: caches tell origins apart: {reply:?}");
            let methods = all(&reply, "access-control-allow-methods");
            let allows = methods.contains("PUT") && methods.contains("DELETE");
            assert_eq!(allows, is_answered, "{what}: {reply:?}");
        }
    }
    server.end();
}

fn a_preflight_needs_no_password_and_a_refusal_can_be_read(driver: Driver) {
    let run = Site::new();
    // The password is `secret`.
    run.write("users", ADA);
    let settings = format!("allow-origin = \"{APP}\"\nauth-file = \"users\"\n");
    let server = writable(driver, &run, &settings);
    let named = format!("Origin: {APP}\r\n");
    let asks = format!("{named}{PREFLIGHT}Access-Control-Request-Headers: authorization\r\n");
    let preflight = ask(&server, "OPTIONS /file", &asks);
    assert_eq!(preflight.status, 204);
    assert!(all(&preflight, "access-control-allow-headers").contains("authorization"));
    for line in ["GET /file", "PUT /new"] {
        let refused = ask(&server, line, &named);
        assert_eq!(refused.status, 401, "{line}");
        assert_eq!(all(&refused, "access-control-allow-origin"), APP, "{line}");
        let exposed = all(&refused, "access-control-expose-headers");
        assert!(exposed.contains("www-authenticate"), "{exposed}");
    }
    // Another origin has no preflight of its own: it is asked for its password like any request.
    let foreign = format!("Origin: https://other.example\r\n{PREFLIGHT}");
    assert_eq!(ask(&server, "OPTIONS /file", &foreign).status, 401);
    assert!(!run.at("site/new").exists());
    server.end();
}

fn a_reload_changes_the_origins_of_a_site(driver: Driver) {
    let run = Site::new();
    let server = writable(driver, &run, "");
    let text = fs::read_to_string(run.at("flatpath.toml")).expect("written");
    let fields = format!("Origin: {APP}\r\n");
    let origin = || {
        all(
            &ask(&server, "GET /file", &fields),
            "access-control-allow-origin",
        )
    };
    assert_eq!(origin(), "");
    for (setting, expected) in [
        (format!("allow-origin = \"{APP}\"\n"), APP),
        ("allow-origin = \"*\"\n".into(), "*"),
        (String::new(), ""),
    ] {
        let before = server.log().matches("reloaded").count();
        fs::write(run.at("flatpath.toml"), format!("{text}{setting}")).expect("written");
        server.process().signal(Signal::HUP);
        until_true("a reload", || {
            server.log().matches("reloaded").count() > before
        });
        assert_eq!(origin(), expected);
    }
    server.end();
}
