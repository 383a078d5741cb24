//! What the access log says of requests that a program answers: the route, the name that a layer
//! has given the request, and the client that a proxy has named, over HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use flatpath::access_log::LogFormat;
use flatpath::{Bytes, Server};
use flatpath_http::{Body, Deferred, ForwardedHeader, Http, Router, Upload, routing};
use flatpath_layers::SetRequestId;
use flatpath_test_client::{HttpClient, Requests};
use flatpath_testkit::{Driver, deadline, each_driver, tools};
use serde_json::Value;

use crate::log_lines::Lines;
use flatpath_e2e::choice;

each_driver!(lines_have_the_route_the_name_and_the_client);

fn later() -> Deferred {
    let (responder, deferred) = Deferred::new();
    std::thread::spawn(move || responder.send("later\n"));
    deferred
}

fn routes() -> Router {
    let inner: Router = Router::new().get("/x", || "mounted\n");
    let upload = || Upload::to(Vec::new(), |bytes: Vec<u8>| format!("{}\n", bytes.len()));
    Router::new()
        .get("/users/{id}", || "a user\n")
        .route("/inline", routing::get(|| "inline\n").inline())
        .get("/later", later)
        .get("/read", || Body::reader(&b"read\n"[..], None))
        .get("/panics", || -> &'static str { panic!("for the test") })
        .post("/whole", |body: Bytes| format!("{}\n", body.len()))
        .route("/upload", routing::put(upload).streamed())
        .nest_service("/deep", inner)
        .layer(SetRequestId::new())
        .get("/plain/{rest}", || "plain\n")
        .route("/plain", routing::get(|| "plain\n").inline())
}

/// The line of a request, once it is written.
fn line_of(lines: &Lines, number: usize) -> Value {
    let is_there = || lines.all().into_iter().nth(number);
    deadline::until("a line", is_there)
}

/// What was asked for, the route in the line, and whether it has a name.
const ASKED: &[(&str, &str, Option<&str>, bool)] = &[
    ("GET", "/users/7?a=b", Some("/users/{id}"), true),
    ("GET", "/inline", Some("/inline"), true),
    ("GET", "/later", Some("/later"), true),
    ("GET", "/read", Some("/read"), true),
    ("GET", "/panics", Some("/panics"), true),
    ("PATCH", "/users/7", Some("/users/{id}"), true),
    ("POST", "/whole", Some("/whole"), true),
    ("PUT", "/upload", Some("/upload"), true),
    ("GET", "/deep/x", Some("/deep"), true),
    ("GET", "/deep/none", Some("/deep"), true),
    ("GET", "/plain/x", Some("/plain/{rest}"), false),
    ("GET", "/plain", Some("/plain"), false),
    ("GET", "/none", None, true),
];

fn check(line: &Value, asked: &(&str, &str, Option<&str>, bool), id: Option<&str>, peer: &str) {
    let (method, target, route, is_named) = *asked;
    assert_eq!(
        (&line["method"], &line["target"]),
        (&method.into(), &target.into())
    );
    assert_eq!(line["route"].as_str(), route, "{line}");
    assert_eq!(line["id"].as_str(), id, "{line}");
    assert_eq!(id.is_some(), is_named, "{line}");
    assert_eq!(line["peer"], peer, "{line}");
    let proxy = (peer != "127.0.0.1").then_some("127.0.0.1");
    assert_eq!(line["proxy"].as_str(), proxy, "{line}");
}

/// The `X-Request-Id` of a reply that curl gets over HTTP/2.
fn id_by_curl(address: SocketAddr, method: &str, target: &str, client: &str) -> Option<String> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-i", "--http2-prior-knowledge", "-X", method]);
    curl.args(["-H", &format!("X-Forwarded-For: {client}")]);
    if matches!(method, "POST" | "PUT") {
        curl.args(["-d", "body"]);
    }
    curl.arg(format!("http://{address}{target}"));
    let reply = flatpath_testkit::https::text(&mut curl);
    let id = reply
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "));
    id.map(str::to_owned)
}

fn lines_have_the_route_the_name_and_the_client(driver: Driver) {
    let lines = Lines::default();
    let networks = ["127.0.0.0/8".parse().expect("a network")];
    let header = ForwardedHeader::XForwardedFor;
    let http = Http::service(routes()).behind_proxies(header, networks);
    let server = Server::new().driver(choice(driver)).network_threads(1);
    let server = server.access_log(LogFormat::Json, Arc::new(lines.clone()));
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    let mut client = HttpClient::connect(address);
    let mut number = 0;
    for asked in ASKED {
        for (list, peer) in [
            ("6.6.6.6, 192.0.2.7", "192.0.2.7"),
            ("unknown", "127.0.0.1"),
        ] {
            let (method, target, ..) = *asked;
            let request = client
                .request(method, target)
                .header("x-forwarded-for", list);
            let request = match method {
                "POST" | "PUT" => request.body("body"),
                _ => request,
            };
            let reply = request.send();
            let line = line_of(&lines, number);
            check(&line, asked, reply.field("x-request-id"), peer);
            number += 1;
        }
    }
    if tools::find("curl").is_some() {
        for asked in ASKED {
            let id = id_by_curl(address, asked.0, asked.1, "192.0.2.8");
            let line = line_of(&lines, number);
            assert_eq!(line["version"], "HTTP/2.0");
            check(&line, asked, id.as_deref(), "192.0.2.8");
            number += 1;
        }
    }
    drop(client);
    running.handle().drain();
    running.wait().expect("it ends");
}
