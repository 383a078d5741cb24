//! `.flatpath-put-*` of a server that was killed: gone after the next start, and never one that a
//! server has.

use std::fs;
use std::path::Path;

use flatpath_testkit::lossy::Cache;
use flatpath_testkit::{Client, Driver, Launch, Lossy, Server, Site, each_driver, until_true};
use rustix::process::Signal;

each_driver!(
    what_a_killed_server_left_is_gone_after_the_next_start,
    a_server_leaves_alone_what_another_one_writes,
    old_names_are_removed_on_a_disk_at_once,
);

fn serve(driver: Driver, directory: &Path) -> Server {
    Launch::serve(driver)
        .directory(directory)
        .with(["--writable"])
        .start()
}

fn temporary(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable");
    let names = entries.map(|it| it.expect("an entry").file_name());
    let names = names.map(|it| it.to_string_lossy().into_owned());
    names
        .filter(|it| it.starts_with(".flatpath-put-"))
        .collect()
}

/// A file system that has no files without a name, so a PUT has a hidden one from its start.
fn nameless(site: &Site) -> Option<Lossy> {
    let lossy = Lossy::try_mount(&site.at("lossy"), Cache::Through)?;
    fs::create_dir_all(lossy.path().join("sub")).expect("made");
    Some(lossy)
}

/// A PUT of 8 bytes, of which 4 have arrived.
fn begun(server: &Server, directory: &Path) -> Client {
    let before = temporary(directory).len();
    let mut client = server.client();
    client.send("PUT /sub/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nhalf");
    until_true("the file is being written", || {
        temporary(directory).len() > before
    });
    client
}

fn what_a_killed_server_left_is_gone_after_the_next_start(driver: Driver) {
    let site = Site::new();
    let Some(lossy) = nameless(&site) else { return };
    let sub = lossy.path().join("sub");
    let mut server = serve(driver, lossy.path());
    let client = begun(&server, &sub);
    server.process().signal(Signal::KILL);
    server.exit_status();
    drop(client);
    assert_eq!(temporary(&sub).len(), 1, "nothing removes it by itself");
    let server = serve(driver, lossy.path());
    until_true("it is removed", || temporary(&sub).is_empty());
    server.await_log("a temporary file of a server that was killed is removed");
    server.end();
}

fn a_server_leaves_alone_what_another_one_writes(driver: Driver) {
    let site = Site::new();
    let Some(lossy) = nameless(&site) else { return };
    let sub = lossy.path().join("sub");
    let first = serve(driver, lossy.path());
    let mut client = begun(&first, &sub);
    // Something to wait for.
    let mut killed = serve(driver, lossy.path());
    let other = begun(&killed, &sub);
    killed.process().signal(Signal::KILL);
    killed.exit_status();
    drop(other);
    let second = serve(driver, lossy.path());
    second.await_log("a temporary file of a server that was killed is removed");
    assert_eq!(temporary(&sub).len(), 1);
    client.send("more");
    assert_eq!(client.reply().status, 201);
    assert_eq!(fs::read(sub.join("a")).expect("written"), b"halfmore");
    second.end();
    first.end();
}

/// Of a version whose names did not say of which kernel they are.
fn old_names_are_removed_on_a_disk_at_once(driver: Driver) {
    let site = Site::new().with("a/b/.flatpath-put-0123456789abcdef", "half");
    site.write("a/.flatpath-put-fedcba9876543210", "half");
    site.write("a/file", "whole");
    let server = serve(driver, site.path());
    server.await_log("2 temporary files of servers that were killed are removed");
    assert!(temporary(&site.at("a")).is_empty() && temporary(&site.at("a/b")).is_empty());
    assert!(site.at("a/file").exists());
    server.end();
}
