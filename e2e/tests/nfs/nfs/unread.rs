//! Clients that do not read their replies: what they asked for holds up no other client.

use std::fs::File;

use flatpath_testkit::nfs::{Connection, getattr, read};
use flatpath_testkit::{Driver, Site, each_driver};

use crate::nfs::serve;

each_driver!(replies_that_are_not_read_stop_no_other_client);

/// Clients that ask for 128 MiB each, of a server with half of that for everything.
const CLIENTS: usize = 64;
const CALLS: u32 = 128;
const MEBIBYTE: u32 = 1 << 20;

fn replies_that_are_not_read_stop_no_other_client(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let large = File::create(site.at("large")).expect("created");
    large.set_len(64 << 20).expect("a sparse file");
    // The time-out of clients that do not read is longer than this test.
    let more = ["--memory", "64M", "--write-timeout", "600"];
    let server = serve(driver, &site, &state, &more);
    let mut innocent = Connection::open(server.address("nfs"));
    let root = innocent.root();
    let file = innocent.lookup(&root, "large");
    let small = read(&file, 0, 4096);
    assert_eq!(innocent.status(&small), 0);

    let unread: Vec<Connection> = (0..CLIENTS)
        .map(|_| {
            let mut client = Connection::open(server.address("nfs"));
            for number in 0..CALLS {
                let call = read(&file, u64::from(number) * 4096, MEBIBYTE);
                // It may be ended before it has said all.
                let _ = client.try_send(&call.record(number));
            }
            client
        })
        .collect();
    // Until what they asked for has been read into all the room that there is.
    std::thread::sleep(std::time::Duration::from_secs(1));
    for _ in 0..50 {
        let attributes = getattr(&file);
        assert_eq!(innocent.status(&attributes), 0);
        assert_eq!(innocent.status(&small), 0);
        let mut newcomer = Connection::open(server.address("nfs"));
        assert_eq!(newcomer.status(&attributes), 0);
    }
    drop(unread);
}
