//! The status page, as it is served, under node: what it says of a server that has served.

use std::net::SocketAddr;

use flatpath_admin::Admin;
use flatpath_admin::flatpath::Server;
use flatpath_admin::flatpath::metrics::{Metric, read};
use flatpath_http::{Http, Request, Response};
use flatpath_testkit::{Site, tools};

use crate::get::get;

/// The head and the body of an answer.
fn parts_of(address: SocketAddr, path: &str) -> (String, String) {
    let reply = get(address, path);
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// A metric of the program's own.
const LOGINS: &[Metric<u64>] = &[Metric::counter(
    "app_logins_total",
    "Logins.",
    &["by"],
    |it, out| out.put(&["key"], *it),
)];

#[test]
fn the_page_shows_what_the_server_says() {
    let Some(node) = tools::find("node") else {
        return;
    };
    let admin = Admin::new();
    admin.source(|| read(LOGINS, &3));
    let beside = admin.serve("127.0.0.1:0").expect("started");
    let server = Server::new().listen(
        "127.0.0.1:0",
        Http::inline(|_: &Request| Response::new("hello".into())),
    );
    let running = server.start().expect("started");
    admin.attach(running.handle());
    parts_of(running.addresses()[0].address, "/");
    let address = beside.addresses()[0].address;
    let (head, page) = parts_of(address, "/");
    let policy = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Security-Policy: "));
    let (_, status) = parts_of(address, "/status.json");
    let site = Site::new()
        .with("page", page)
        .with("policy", policy.expect("it has one"))
        .with("status", status);
    let test = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page.js");
    let output = std::process::Command::new(node)
        .arg(test)
        .args(["page", "policy", "status"].map(|name| site.at(name)))
        .output()
        .expect("node runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ok a_redraw_keeps_the_elements"), "{said}");
}
