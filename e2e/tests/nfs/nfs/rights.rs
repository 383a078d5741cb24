//! Clients change files only where the server was told to let them, over every service.

use flatpath_testkit::nfs::{Connection, create, write};
use flatpath_testkit::{Client, Driver, Launch, Site, each_driver};

each_driver!(without_writable_nothing_changes);

const READ_ONLY: u32 = 30;

fn without_writable_nothing_changes(driver: Driver) {
    let (site, state) = (Site::new().with("file", "old"), Site::new());
    let path = state.path().to_str().expect("a path in text");
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--nfs", "127.0.0.1:0", "--nfs-state", path])
        .start();
    let mut calls = Connection::open(server.address("nfs"));
    let root = calls.root();
    let file = calls.lookup(&root, "file");
    assert_eq!(calls.status(&write(&file, 0, b"new", 2)), READ_ONLY);
    assert_eq!(calls.status(&create(&root, "made")), READ_ONLY);
    let mut client: Client = server.client();
    client.request("PUT", "/made", &[("Content-Length", "0")]);
    assert_eq!(client.reply().status, 405);
    assert_eq!(server.client().get("/file").text(), "old");
    assert!(!site.at("made").exists());
}
