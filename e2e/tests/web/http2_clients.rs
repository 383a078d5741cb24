//! HTTP/2 with clients of four languages and with a suite of its rules: Go's `net/http`, Node's
//! `http2`, Python's `httpx`, a newer libcurl than Debian's, a page in Chromium, and h2spec.
//!
//! `FLATPATH_GO_CLIENTS` is the directory of what `clients/go` builds, `FLATPATH_PYTHON_CLIENTS`
//! that of a Python with `httpx[http2]` and `curl_cffi`.

use std::path::{Path, PathBuf};
use std::process::Command;

use flatpath::Server;
use flatpath::tls::TlsConfig;
use flatpath_http::http::{HeaderMap, HeaderName, HeaderValue};
use flatpath_http::{Bytes, Http, Limits, Request, Router, Trailers, Upload, routing};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Issued, Site, each_driver, tools};
use flatpath_websocket::{Message, Socket, WebSocket};

use flatpath_e2e::choice;
use flatpath_testkit::https::{content, localhost, text, url};

each_driver!(
    node_is_served,
    go_is_served,
    httpx_and_a_newer_libcurl_are_served,
    a_page_of_many_files_is_served,
    trailers_of_node_and_go_come_and_go,
    the_rules_of_h2spec_hold,
);

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

/// Has a client do its cases over TLS and in the clear.
fn serves(driver: Driver, client: impl Fn() -> Command, cases: &str) {
    let site = Site::new()
        .with("small", content(1 << 10))
        .with("large", content(3 << 20));
    let options = ["--http", "127.0.0.1:0", "--writable"];
    let (server, authority) = localhost(driver, &site, &options);
    let plain = format!("http://{}", server.address("http"));
    for base in [url(&server, ""), plain] {
        let mut client = client();
        let client = client.arg(&base).arg(authority.at("site.crt"));
        let said = text(client.arg(site.path()));
        assert_eq!(said, format!("{cases} cases\n"), "{base}");
    }
    server.end();
}

fn node_is_served(driver: Driver) {
    let Some(node) = tools::find("node") else {
        return;
    };
    let client = || {
        let mut client = Command::new(&node);
        client.arg(program("http2_client.cjs"));
        client
    };
    serves(driver, client, "8");
}

fn go_is_served(driver: Driver) {
    let Some(programs) = tools::installed("FLATPATH_GO_CLIENTS") else {
        return;
    };
    serves(driver, || Command::new(programs.join("client")), "7");
}

fn httpx_and_a_newer_libcurl_are_served(driver: Driver) {
    let Some(programs) = tools::installed("FLATPATH_PYTHON_CLIENTS") else {
        return;
    };
    let client = || {
        let mut client = Command::new(programs.join("python"));
        client.arg(program("http2_client.py"));
        client
    };
    serves(driver, client, "13");
}

/// Of the server in this process.
pub(crate) fn certificate() -> TlsConfig {
    let issued = Issued::for_localhost();
    let tls = TlsConfig::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes());
    tls.expect("a certificate and its key")
}

/// One pixel.
const IMAGE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"></svg>";

fn a_page_of_many_files_is_served(driver: Driver) {
    let (Some(node), Some(chromium)) =
        (tools::find("node"), tools::find("chromium-headless-shell"))
    else {
        return;
    };
    let images = (0..100).map(|at| format!("<img src=\"/images/{at}.svg\">"));
    let page: String = images.collect();
    let html = [("content-type", "text/html")];
    let svg = [("content-type", "image/svg+xml")];
    let echo = |socket: &Socket, message: Message| {
        let _ = socket.send(message);
    };
    let websocket = WebSocket::pooled();
    let router = Router::new()
        .get("/", move || (html, format!("<!doctype html>{page}")))
        .get("/images/{name}", move || (svg, IMAGE))
        .put("/store", |request: Request| {
            request.into_body().into_bytes().len().to_string()
        })
        .get("/socket", move |request: Request| {
            websocket.accept(&request, echo)
        });
    let limits = Limits {
        body_bytes_max: 4 << 20,
        ..Limits::default()
    };
    let running = Server::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", Http::service(router).limits(limits))
        .with_tls(&certificate())
        .start()
        .expect("started");
    let port = running.addresses()[0].address.port();
    let folder = Site::new();
    let mut browser = Command::new(node);
    browser.arg(program("page_of_many.cjs")).arg(chromium);
    browser.arg(format!("https://localhost:{port}/"));
    let output = tools::run(browser.arg(folder.path()), patience());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    running.handle().drain();
    running.wait().expect("it ends");
}

/// Takes bodies of both kinds with the trailer `x-sum`, and sends one.
fn sums() -> Router {
    let show = |bytes: usize, Trailers(said): Trailers| {
        let said = said.get("x-sum").map(HeaderValue::to_str);
        let said = said.and_then(Result::ok).unwrap_or_default();
        let name = HeaderName::from_static("x-sum");
        let own = HeaderMap::from_iter([(name, HeaderValue::from(bytes))]);
        Trailers(own).after(format!("{bytes} bytes, x-sum {said}"))
    };
    let whole = move |trailers: Trailers, body: Bytes| show(body.len(), trailers);
    let finish = move |bytes: Vec<u8>, trailers| show(bytes.len(), trailers);
    let upload = move || Upload::with_trailers(Vec::new(), finish);
    Router::new()
        .post("/whole", whole)
        .route("/streamed", routing::put(upload).streamed())
}

fn trailers_of_node_and_go_come_and_go(driver: Driver) {
    let (Some(node), Some(programs)) =
        (tools::find("node"), tools::installed("FLATPATH_GO_CLIENTS"))
    else {
        return;
    };
    let running = Server::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", Http::service(sums()))
        .start()
        .expect("started");
    let base = format!("http://{}", running.addresses()[0].address);
    let mut by_node = Command::new(node);
    by_node.arg(program("trailers_client.cjs"));
    let mut by_go = Command::new(programs.join("client"));
    by_go.arg("trailers");
    for mut client in [by_node, by_go] {
        assert_eq!(text(client.arg(&base)), "12 cases\n", "{client:?}");
    }
    running.handle().drain();
    running.wait().expect("it ends");
}

/// What h2spec expects otherwise: its encoder uses a table after it has acknowledged that there is
/// none (RFC 9113 section 4.3.1); and in the clear a preface that is none is the head of a request
/// of HTTP/1, which gets its 400.
const OTHERWISE: [&str; 4] = [
    "Sends a dynamic table size update",
    "Sends multiple dynamic table size update",
    "Sends multiple CONTINUATION frames preceded by a HEADERS frame",
    "Sends invalid connection preface",
];

fn the_rules_of_h2spec_hold(driver: Driver) {
    let Some(programs) = tools::installed("FLATPATH_GO_CLIENTS") else {
        return;
    };
    // A POST is answered once its body is whole: what comes after an early answer is not looked at.
    let echo = |request: Request| request.into_body().into_bytes();
    let router = || Router::new().get("/", || "a page").post("/", echo);
    let running = Server::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", Http::service(router()))
        .with_tls(&certificate())
        .listen("127.0.0.1:0", Http::service(router()))
        .start()
        .expect("started");
    let [https, http] = [0, 1].map(|at| running.addresses()[at].address.port().to_string());
    for (port, more, expected) in [
        (https, &["-t", "-k"][..], &OTHERWISE[..3]),
        (http, &[], &OTHERWISE),
    ] {
        let mut suite = Command::new(programs.join("h2spec"));
        suite.args(["-h", "localhost", "-p", &port]).args(more);
        // Seconds: it waits for each answer, and a busy machine is slow.
        suite.args(["-o", "60"]);
        let output = tools::run(&mut suite, 4 * patience());
        let said = String::from_utf8_lossy(&output.stdout);
        let (_, failures) = said.split_once("\nFailures:").expect("a summary");
        let failed = failures.lines().filter_map(|line| {
            let (_, case) = line.split_once("\u{d7} ")?;
            Some(case.split_once(": ")?.1.trim())
        });
        let mut failed: Vec<_> = failed.collect();
        failed.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(failed, expected, "{more:?}: {failures}");
        let passed = 145 - expected.len();
        let counts = format!("145 tests, {passed} passed, 0 skipped");
        assert!(failures.contains(&counts), "{more:?}: {failures}");
    }
    running.handle().drain();
    running.wait().expect("it ends");
}
