//! Clients change files only where the server was told to let them, over every service.

use flatpath_testkit::{Client, Driver, Launch, Site, each_driver};

use crate::calls::{Connection, Words, write};

each_driver!(without_writable_nothing_changes);

const CREATE: u32 = 8;
const WRITE: u32 = 7;
const LOOKUP: u32 = 3;
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
    let name = |name: &[u8]| Words::default().opaque(&root).opaque(name);
    let file = calls.nfs(LOOKUP, &name(b"file")).opaque(4);
    let changed = calls.nfs(WRITE, &write(&file, 0, b"new", 2));
    assert_eq!(changed.status(), READ_ONLY);
    let attributes = [1, 0o644, 0, 0, 0, 0, 0];
    let made = attributes
        .into_iter()
        .fold(name(b"made").word(0), Words::word);
    assert_eq!(calls.nfs(CREATE, &made).status(), READ_ONLY);
    let mut client: Client = server.client();
    client.request("PUT", "/made", &[("Content-Length", "0")]);
    assert_eq!(client.reply().status, 405);
    assert_eq!(server.client().get("/file").text(), "old");
    assert!(!site.at("made").exists());
}
