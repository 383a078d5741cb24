//! Files that are open for the next call give their descriptors to connections.

use flatpath_testkit::ingest::told;
use flatpath_testkit::nfs::{Connection, commit, write};
use flatpath_testkit::{Client, Driver, Launch, Site, each_driver};

use crate::nfs::launch;

each_driver!(open_files_that_no_call_uses_give_their_descriptors_to_newcomers);

const DESCRIPTORS: u64 = 256;
const HELLO: &str = "hello";

/// The table of open files is full, three descriptors each, and then a crowd comes that needs them.
/// It is served, no accept misses a descriptor, and the files can be used as before.
fn open_files_that_no_call_uses_give_their_descriptors_to_newcomers(driver: Driver) {
    const FILES: usize = 60;
    const CLIENTS: usize = 170;
    let (site, state) = (Site::new().with("hello", HELLO), Site::new());
    let limited = Launch::serve(driver).descriptors(DESCRIPTORS);
    let server = launch(limited, &site, &state, &["--workers", "1..4"]);
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let files = (0..FILES).map(|number| {
        let file = nfs.create(&root, &format!("file-{number}"));
        assert_eq!(nfs.status(&write(&file, 0, HELLO.as_bytes(), 0)), 0);
        assert_eq!(nfs.status(&commit(&file)), 0);
        assert_eq!(nfs.read(&file, 100), HELLO.as_bytes());
        file
    });
    let files: Vec<Vec<u8>> = files.collect();
    assert!(
        told(&server, "server: ")["flatpath_descriptors{purpose=caches}"] >= 40,
        "the table is full"
    );

    let clients = (0..CLIENTS).map(|number| {
        let mut client = server.client();
        assert_eq!(client.get("/hello").text(), HELLO, "client {number}");
        client
    });
    let mut clients: Vec<Client> = clients.collect();
    assert!(
        clients.iter_mut().all(Client::is_quiet),
        "none was closed for another"
    );
    let used = server.process().descriptors();
    assert!((used as u64) < DESCRIPTORS, "{used} descriptors");
    let counts = told(&server, "server: ");
    assert!(
        counts["flatpath_descriptors_given_back_total"] > 0,
        "{counts:?}"
    );
    let log = server.log();
    assert!(!log.contains("the kernel says"), "{log}");
    assert_eq!(log.matches("caches close files for").count(), 1, "{log}");

    for file in &files {
        assert_eq!(nfs.read(file, 100), HELLO.as_bytes());
    }
    for client in &mut clients {
        assert_eq!(client.get("/hello").text(), HELLO);
    }
}
