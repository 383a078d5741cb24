//! An export on a mount that hangs: everything else of the server is answered as before.

use std::path::Path;
use std::time::Duration;

use flatpath_testkit::fuse::{self, Content};
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::nfs::{Connection, getattr, lookup, read};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, scanner, until};

each_driver!(
    a_hung_export_does_not_take_all_workers,
    an_overlay_over_a_mount_that_hangs_stops_no_network_thread,
    a_permission_scanner_stops_a_network_thread_once,
    a_scanner_that_hangs_before_the_first_try_stops_no_network_thread,
);

const LATER: u32 = 10_008;
/// Far more than workers.
const CALLS: u32 = 40;

/// Two of four workers may be in one mount, whether files over HTTP or NFS brought them there; more
/// is told to come back, and the rest of the workers serve the other directory.
fn a_hung_export_does_not_take_all_workers(driver: Driver) {
    let (site, state) = (Site::new().with("local", "local"), Site::new());
    let content = vec![Content::new("file", "remote")];
    let Some(fuse) = fuse::try_mount(&site.at("hung"), content) else {
        return;
    };
    let listener = |protocol: &str, directory: &str, more: &str| {
        let directory = site.at(directory);
        let directory = directory.display();
        format!(
            "[[listener]]\nprotocol = \"{protocol}\"\naddress = \"127.0.0.1:0\"\n\
             dir = \"{directory}\"\n{more}"
        )
    };
    let kept = format!("nfs-state = \"{}\"\n", state.path().display());
    let tables = [listener("http", "", ""), listener("nfs", "hung", &kept)].concat();
    state.write("flatpath.toml", &tables);
    let launch = Launch::new(flatpath_testkit::binary::flatpath().to_path_buf()).with([
        "serve",
        "--driver",
        driver.name(),
        "--workers",
        "1..4",
        "--config",
    ]);
    let server = launch.with([state.at("flatpath.toml")]).start();
    let mut calls = Connection::open(server.address("nfs"));
    let root = getattr(&calls.root());
    assert_eq!(calls.status(&root), 0);

    fuse.pause();
    let mut same_mount = server.client();
    same_mount.request("GET", "/hung/file", &[]);
    for xid in 0..CALLS {
        calls.send(&root.record(xid));
    }
    for number in 0..20 {
        let text = number.to_string();
        site.write("local", &text);
        let answer = server.client().get("/local");
        assert_eq!((answer.status, answer.text()), (200, &*text));
    }
    assert_eq!(calls.reply().status(), LATER, "the mount is stuck");
    fuse.resume();
    for _ in 1..CALLS {
        assert!([0, LATER].contains(&calls.reply().status()));
    }
    assert!([200, 503].contains(&same_mount.reply().status));
    assert_eq!(calls.status(&root), 0);
}

/// NFS, HTTP and echo on one network thread.
fn serve_beside_echo(driver: Driver, directory: &Path, state: &Site) -> Server {
    let kept = state.path().to_str().expect("text");
    Launch::serve(driver)
        .directory(directory)
        .with(["--network-threads", "1", "--nfs", "127.0.0.1:0"])
        .with(["--nfs-state", kept, "--echo", "127.0.0.1:0"])
        .start()
}

/// As image stores mount that fetch layers on demand: the overlay itself is local.
fn an_overlay_over_a_mount_that_hangs_stops_no_network_thread(driver: Driver) {
    let (lower, state) = (Site::new(), Site::new());
    let content = vec![Content::new("file", "remote")];
    let Some(fuse) = fuse::try_mount(lower.path(), content) else {
        return;
    };
    let Some(overlay) = Mounted::overlay(lower.path()) else {
        return;
    };
    let server = serve_beside_echo(driver, overlay.path(), &state);
    let mut calls = Connection::open(server.address("nfs"));
    let root = calls.root();
    let file = calls.lookup(&root, "file");
    for _ in 0..3 {
        assert_eq!(calls.status(&read(&file, 0, 100)), 0);
        assert_eq!(server.client().get("/file").text(), "remote");
    }
    let mut innocent = server.echo_client();

    fuse.pause();
    let asked = [getattr(&file), lookup(&root, "file"), read(&file, 0, 100)];
    for call in &asked {
        calls.send(&call.record(call.procedure));
    }
    let mut hung = server.client();
    hung.request("GET", "/file", &[]);
    for _ in 0..50 {
        innocent.send(b"hello");
        assert_eq!(innocent.exactly(5), b"hello");
    }
    fuse.resume();
    for _ in &asked {
        assert!([0, LATER].contains(&calls.reply().status()));
    }
    assert!([200, 503].contains(&hung.reply().status));
    // Dropped from the top down.
    drop((server, overlay));
}

/// The kernel tells nobody that an access would wait for a scanner. The first try of a worker's
/// work on the network thread finds out, and from then on workers wait.
fn a_permission_scanner_stops_a_network_thread_once(driver: Driver) {
    const FILES: usize = 8;
    let state = Site::new();
    let Some(mounted) = Mounted::tmpfs() else {
        return;
    };
    for number in 0..FILES {
        std::fs::write(mounted.path().join(format!("file-{number}")), "text").expect("a file");
    }
    let server = serve_beside_echo(driver, mounted.path(), &state);
    let mut calls = Connection::open(server.address("nfs"));
    let root = calls.root();
    let mut innocent = server.echo_client();
    // More than the longest try that keeps its right.
    let Some(scanner) = scanner::try_watch(mounted.path(), Duration::from_millis(150)) else {
        return;
    };
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(calls.lookup(&root, &format!("file-{number}")));
    }
    // The first of each service finds out.
    assert_eq!(server.client().get("/file-0").text(), "text");
    assert_eq!(calls.status(&read(&files[0], 0, 100)), 0);
    let before = scanner.seen();
    let mut waiting = Vec::new();
    for (number, file) in files.iter().enumerate() {
        calls.send(&read(file, 0, 100).record(number as u32));
        let mut client = server.client();
        client.request("GET", &format!("/file-{number}"), &[]);
        waiting.push(client);
    }
    let mut beside = 0;
    while scanner.seen() < before + FILES {
        innocent.send(b"hello");
        assert_eq!(innocent.exactly(5), b"hello");
        beside += 1;
    }
    for _ in 0..FILES {
        assert_eq!(calls.reply().status(), 0);
    }
    for client in &mut waiting {
        assert_eq!(client.reply().text(), "text");
    }
    assert!(beside > 3 * FILES, "{beside} answers beside {FILES} scans");
    drop((server, scanner));
}

/// A thread of its own finds that out before anything is tried.
fn a_scanner_that_hangs_before_the_first_try_stops_no_network_thread(driver: Driver) {
    const HANGS: Duration = Duration::from_secs(3);
    let state = Site::new();
    let Some(mounted) = Mounted::tmpfs() else {
        return;
    };
    std::fs::write(mounted.path().join("scanned"), "text").expect("a file");
    let server = serve_beside_echo(driver, mounted.path(), &state);
    let mut innocent = server.echo_client();
    let Some(scanner) = scanner::try_watch(mounted.path(), HANGS) else {
        return;
    };
    let mut waiting = server.client();
    waiting.request("GET", "/scanned", &[]);
    let mut beside = 0;
    while scanner.seen() == 0 {
        innocent.send(b"hello");
        assert_eq!(innocent.exactly(5), b"hello");
        beside += 1;
    }
    assert!(beside > 100, "{beside} answers beside an open that hangs");
    drop(scanner);
    assert_eq!(waiting.reply().text(), "text");
    until("the look to be judged", || {
        // What is in the cache is not tried.
        assert_eq!(server.client().get("/missing").status, 404);
        let is_judged = server.log().contains("a first open and read took");
        is_judged.then_some(())
    });
}
