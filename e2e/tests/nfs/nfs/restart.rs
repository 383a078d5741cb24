//! Handles of a server that has ended, shown to a new process with the same key: nothing it has in
//! memory can help, only the kernel's handles, or without those the search through the tree.

use flatpath_testkit::nfs::{Connection, getattr};
use flatpath_testkit::{Driver, Server, Site, each_driver};
use rustix::process::Signal;

use crate::nfs::serve_by_name;

each_driver!(
    handles_lead_a_new_process_to_their_files,
    handles_lead_a_new_process_without_the_privilege_to_their_files,
    a_server_starts_at_once_on_the_port_of_one_that_was_killed,
    a_key_that_is_removed_is_kept_and_handles_of_another_key_are_stale,
);

const STALE: u32 = 70;
const BY_NAME: &str = "are found by name";

/// The server, able to open files by the kernel's handles or not.
fn serve(driver: Driver, site: &Site, state: &Site, privileged: bool) -> Option<Server> {
    if privileged {
        Some(crate::nfs::serve(driver, site, state, &[]))
    } else {
        serve_by_name(driver, site, state)
    }
}

fn outlive(driver: Driver, privileged: bool) {
    let site = Site::new();
    for number in 0..50 {
        site.write(&format!("a/b{number}/file"), format!("text {number}"));
    }
    site.write("gone", "text");
    let state = Site::new();
    let Some(mut server) = serve(driver, &site, &state, privileged) else {
        return;
    };
    if !privileged {
        assert!(server.log().contains(BY_NAME), "{}", server.log());
    }
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let top = client.lookup(&root, "a");
    let mut files = Vec::new();
    for number in 0..50 {
        let below = client.lookup(&top, &format!("b{number}"));
        files.push((client.lookup(&below, "file"), number));
    }
    let gone = client.lookup(&root, "gone");
    server.process().signal(Signal::KILL);
    server.exit_status();
    // No server sees where they go.
    std::fs::rename(site.at("a/b7/file"), site.at("moved")).expect("renamed");
    std::fs::rename(site.at("a"), site.at("z")).expect("renamed");
    std::fs::remove_file(site.at("gone")).expect("removed");
    let server = serve(driver, &site, &state, privileged).expect("as before");
    let mut client = Connection::open(server.address("nfs"));
    for (file, number) in files {
        assert_eq!(
            client.read(&file, 100),
            format!("text {number}").into_bytes()
        );
    }
    let below = client.lookup(&top, "b3");
    assert_eq!(client.lookup(&below, "..").as_slice(), top);
    assert_eq!(client.status(&getattr(&gone)), STALE);
}

fn handles_lead_a_new_process_to_their_files(driver: Driver) {
    outlive(driver, true);
}

fn handles_lead_a_new_process_without_the_privilege_to_their_files(driver: Driver) {
    outlive(driver, false);
}

fn a_server_starts_at_once_on_the_port_of_one_that_was_killed(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let mut server = crate::nfs::serve(driver, &site, &state, &[]);
    let address = server.address("nfs");
    for _ in 0..6 {
        let mut client = Connection::open(address);
        assert!(!client.root().is_empty());
        server.process().signal(Signal::KILL);
        server.exit_status();
        let launch = flatpath_testkit::Launch::serve(driver).directory(site.path());
        let state = state.path().to_str().expect("a path in text");
        server = launch
            .with(["--nfs", &address.to_string(), "--nfs-state", state])
            .with(["--writable"])
            .start();
    }
}

fn a_key_that_is_removed_is_kept_and_handles_of_another_key_are_stale(driver: Driver) {
    const FILE: &str = "nfs-handle.key";
    let (site, state) = (Site::new().with("file", "content"), Site::new());
    let handle_of = |server: &Server| {
        let mut client = Connection::open(server.address("nfs"));
        let root = client.root();
        client.lookup(&root, "file")
    };
    let status_of = |server: &Server, handle: &[u8]| {
        let mut client = Connection::open(server.address("nfs"));
        client.status(&getattr(handle))
    };
    let server = crate::nfs::serve(driver, &site, &state, &[]);
    server.await_log("a new key of file handles");
    let handle = handle_of(&server);
    let key = std::fs::read(state.at(FILE)).expect("it is kept");
    std::fs::remove_file(state.at(FILE)).expect("removed");
    server.await_log("was removed: it is written again");
    assert_eq!(std::fs::read(state.at(FILE)).expect("there again"), key);
    server.end();
    let server = crate::nfs::serve(driver, &site, &state, &[]);
    assert_eq!(status_of(&server, &handle), 0, "the same key");
    state.write(FILE, [7; 16]);
    server.await_log("no longer holds the key");
    assert_eq!(status_of(&server, &handle), 0, "this server has it still");
    server.end();
    // Linux's client asks for the path again; it would not know what a bad handle is.
    let server = crate::nfs::serve(driver, &site, &state, &[]);
    assert_eq!(status_of(&server, &handle), STALE, "another key");
    assert_eq!(status_of(&server, &handle_of(&server)), 0);
    server.end();
}
