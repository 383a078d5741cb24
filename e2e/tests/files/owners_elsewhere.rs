//! A site's directory at other listeners, after a reload, and over NFS.

use std::fs;
use std::process::Command;

use flatpath_testkit::{Driver, binary, each_driver};
use rustix::process::Signal;

use crate::owners::{ADAS, MARK, directories, exchange, start};

each_driver!(
    a_site_of_another_listener_is_asked_as_well,
    a_reload_asks_a_new_site,
    a_listener_that_asks_a_new_site_after_a_restart_is_named,
    an_export_of_what_a_site_protects_is_named,
);

fn a_site_of_another_listener_is_asked_as_well(driver: Driver) {
    let site = directories("");
    let settings = "[[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\ndir = \"pub\"\n\
        [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.2:0\"\n\
        [[site]]\nprefix = \"/private\"\ndir = \"pub/private\"\nauth-file = \"users\"\n";
    let server = start(driver, &site, settings);
    let reply = exchange(&server, "GET /private/a.txt", "localhost", "", "");
    assert_eq!(reply.status, 401);
    let reply = exchange(&server, "GET /private/a.txt", "localhost", ADAS, "");
    assert_eq!((reply.status, reply.text()), (200, MARK));
    server.end();
}

fn a_reload_asks_a_new_site(driver: Driver) {
    let site = directories("");
    let open = "http = \"127.0.0.1:0\"\nhosts = \"*\"\n[[site]]\ndir = \"pub\"\n";
    let server = start(driver, &site, open);
    let get = |credentials| exchange(&server, "GET /links/a.txt", "x.example", credentials, "");
    assert_eq!(get("").status, 200);
    let new = "[[site]]\nnames = \"new.example\"\ndir = \"pub/private\"\nauth-file = \"users\"\n";
    site.write("flatpath.toml", format!("{open}{new}"));
    server.process().signal(Signal::HUP);
    server.await_log("reloaded");
    assert_eq!(get("").status, 401);
    assert_eq!(get(ADAS).status, 200);
    server.end();
}

/// NFS cannot ask for a password: `check` and `serve` say so.
fn an_export_of_what_a_site_protects_is_named(driver: Driver) {
    let site = directories("");
    let state = site.at("state");
    let settings = format!(
        "http = \"127.0.0.1:0\"\nnfs = \"127.0.0.1:0\"\nnfs-state = \"{}\"\n\
         [[export]]\npath = \"{}\"\nclients = \"127.0.0.1\"\n\
         [[site]]\ndir = \"rest\"\n\
         [[site]]\nprefix = \"/private\"\ndir = \"pub/private\"\nauth-file = \"users\"\n",
        state.display(),
        site.at("pub").display(),
    );
    fs::create_dir(site.at("rest")).expect("made");
    let server = start(driver, &site, &settings);
    let words = "without what [[site]] * /private protects with auth-file";
    server.await_log(words);
    server.end();
    let mut check = Command::new(binary::flatpath());
    let check = check
        .args(["check", "flatpath.toml"])
        .current_dir(site.path());
    let output = check.output().expect("it ran");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].starts_with("# nfs: clients of the export "),
        "{lines:?}"
    );
}

/// One with a directory of its own stays as it was started.
fn a_listener_that_asks_a_new_site_after_a_restart_is_named(driver: Driver) {
    let site = directories("");
    fs::create_dir(site.at("rest")).expect("made");
    let before = "[[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\ndir = \"pub\"\n\
        [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.2:0\"\n\
        [[site]]\nnames = \"rest.example\"\ndir = \"rest\"\n";
    let server = start(driver, &site, before);
    let new = "[[site]]\nnames = \"new.example\"\ndir = \"pub/private\"\nauth-file = \"users\"\n";
    site.write("flatpath.toml", format!("{before}{new}"));
    server.process().signal(Signal::HUP);
    server.await_log(
        "http 127.0.0.1:0 asks [[site]] new.example /: takes effect at the next restart",
    );
    server.end();
}
