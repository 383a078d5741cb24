//! WRITE takes its data to the file from where it was received: every copied byte is counted.

use flatpath::{DriverChoice, Running, Server};
use flatpath_nfs::{Access, Nfs, Options};
use flatpath_testkit::nfs::{Connection, write};
use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Site, each_driver};

each_driver!(
    no_data_of_a_write_is_copied,
    writes_beyond_the_pages_of_a_connection_are_copied_and_not_stuck,
);

const CALL_BYTES: usize = 1 << 20;

/// What of a call with data is copied at most: its front, where a receive ended within.
const FRONT_BYTES: u64 = 1024;

fn start(driver: Driver, site: &Site) -> Running {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(site.path(), open).expect("our own directory");
    let options = Options {
        access: Access::ReadWrite,
        ..Options::new(site.path())
    };
    let nfs = Nfs::open(options).expect("a directory");
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = Server::new().driver(choice);
    server
        .listen("127.0.0.1:0", nfs.protocol())
        .start()
        .expect("started")
}

fn no_data_of_a_write_is_copied(driver: Driver) {
    const CALLS: usize = 16;
    let site = Site::new();
    let running = start(driver, &site);
    let mut client = Connection::open(running.addresses()[0].address);
    let root = client.root();
    let file = client.create(&root, "file");
    let contents = noise(5, CALLS * CALL_BYTES);
    for (number, data) in contents.chunks(CALL_BYTES).enumerate() {
        let offset = (number * CALL_BYTES) as u64;
        assert_eq!(client.status(&write(&file, offset, data, 0)), 0);
    }
    assert!(std::fs::read(site.at("file")).expect("written") == contents);
    let handle = running.handle();
    let (kept, copied) = (
        handle.statistics().body_bytes_retained,
        handle.statistics().body_bytes_copied,
    );
    assert!(
        copied <= CALLS as u64 * FRONT_BYTES,
        "{copied} bytes copied, {kept} kept"
    );
    assert!(kept + copied >= contents.len() as u64, "{kept} + {copied}");
}

fn writes_beyond_the_pages_of_a_connection_are_copied_and_not_stuck(driver: Driver) {
    const CALLS: usize = 24;
    let site = Site::new();
    let running = start(driver, &site);
    let address = running.addresses()[0].address;
    let mut client = Connection::open(address);
    let root = client.root();
    let file = client.create(&root, "file");
    let contents = noise(6, CALLS * CALL_BYTES);
    let mut sender = client.another();
    let records: Vec<Vec<u8>> = contents
        .chunks(CALL_BYTES)
        .enumerate()
        .map(|(number, data)| {
            let offset = (number * CALL_BYTES) as u64;
            write(&file, offset, data, 0).record(1000 + number as u32)
        })
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| records.iter().for_each(|record| sender.send(record)));
        for _ in 0..CALLS {
            assert_eq!(client.reply().status(), 0);
        }
    });
    assert!(std::fs::read(site.at("file")).expect("written") == contents);
}
