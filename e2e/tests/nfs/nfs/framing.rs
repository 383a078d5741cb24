//! Records in pieces, records that never end, many calls at once, and calls sent twice.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::Shutdown;

use flatpath_testkit::nfs::{Connection, getattr, read, remove, write};
use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Site, each_driver};

use crate::nfs::serve;

each_driver!(
    a_call_may_come_byte_by_byte_and_in_any_fragments,
    many_calls_of_one_connection_are_all_answered,
    a_megabyte_is_written_and_read_whole,
    a_call_sent_twice_is_executed_once_even_after_a_reset,
    half_a_marker_delays_no_other_client,
    what_is_no_record_ends_its_connection_and_no_other,
    replies_still_come_after_the_clients_last_byte,
);

fn a_call_may_come_byte_by_byte_and_in_any_fragments(driver: Driver) {
    let (site, state) = (Site::new().with("file", "text"), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let record = getattr(&root).record(77);
    for byte in &record {
        client.send(std::slice::from_ref(byte));
    }
    assert_eq!(client.reply().xid, 77);
    for size in [1, 4, 7, 40] {
        let mut fragments = Vec::new();
        for piece in record[4..].chunks(size) {
            fragments.extend(u32::try_from(piece.len()).expect("short").to_be_bytes());
            fragments.extend_from_slice(piece);
        }
        fragments.extend((1_u32 << 31).to_be_bytes());
        client.send(&fragments);
        let reply = client.reply();
        assert_eq!((reply.xid, reply.status()), (77, 0), "fragments of {size}");
    }
}

fn many_calls_of_one_connection_are_all_answered(driver: Driver) {
    const CALLS: u32 = 5000;
    let contents = noise(3, 1 << 20);
    let (site, state) = (Site::new().with("file", &contents), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let file = client.lookup(&root, "file");
    let mut writer = client.another();
    let place = |xid: u32| u64::from(xid * 37 % 200) * 4096 + u64::from(xid % 5);
    let sender = std::thread::spawn(move || {
        for xid in 0..CALLS {
            writer.send(&read(&file, place(xid), 4096).record(xid));
        }
    });
    let mut seen = BTreeSet::new();
    for _ in 0..CALLS {
        let reply = client.reply();
        let from = usize::try_from(place(reply.xid)).expect("short");
        assert!(
            reply.data() == contents[from..from + 4096],
            "call {}",
            reply.xid
        );
        assert!(seen.insert(reply.xid), "one reply each");
    }
    sender.join().expect("all calls were sent");
}

fn a_megabyte_is_written_and_read_whole(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let file = client.create(&root, "file");
    let contents = noise(9, 1 << 20);
    for stable in 0..3 {
        assert_eq!(client.status(&write(&file, 0, &contents, stable)), 0);
        assert!(client.read(&file, 1 << 20) == contents);
    }
    assert!(std::fs::read(site.at("file")).expect("written") == contents);
}

fn a_call_sent_twice_is_executed_once_even_after_a_reset(driver: Driver) {
    let (site, state) = (Site::new().with("file", "text"), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    std::fs::create_dir(site.at("dir")).expect("a directory");
    let record = remove(&root, "file").record(500);
    client.send(&record);
    let first = client.reply();
    assert_eq!(first.status(), 0);
    client.send(&record);
    assert_eq!(client.reply(), first, "not: no such file");
    client.reset();
    let mut other = Connection::open(server.address("nfs"));
    other.send(&record);
    assert_eq!(other.reply(), first);
    let another = remove(&root, "file").record(501);
    other.send(&another);
    assert_eq!(other.reply().status(), 2, "a new number is a new call");
}

fn half_a_marker_delays_no_other_client(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut stuck: Vec<Connection> = (0..40)
        .map(|_| Connection::open(server.address("nfs")))
        .collect();
    for (number, client) in stuck.iter_mut().enumerate() {
        client.send(&[0x80, 0, 0, 64, 1, 2, 3][..1 + number % 7]);
    }
    let mut client = Connection::open(server.address("nfs"));
    for _ in 0..20 {
        assert!(!client.root().is_empty());
    }
}

fn what_is_no_record_ends_its_connection_and_no_other(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut healthy = Connection::open(server.address("nfs"));
    let before = server.process().memory_bytes();
    let empty = [0; 4].repeat(100);
    for bomb in [
        &[0xff; 4][..],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x80, 0x10, 0x40, 0],
        &empty,
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1],
    ] {
        let mut client = Connection::open(server.address("nfs"));
        client.send(bomb);
        let mut rest = Vec::new();
        let ended = client.stream.read_to_end(&mut rest);
        assert!(
            ended.is_err() || rest.is_empty(),
            "nothing is said: {rest:?}"
        );
        assert!(!healthy.root().is_empty());
    }
    let after = server.process().memory_bytes();
    assert!(after < before + (32 << 20), "{before} bytes became {after}");
}

fn replies_still_come_after_the_clients_last_byte(driver: Driver) {
    let (site, state) = (Site::new().with("file", noise(1, 100_000)), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let file = client.lookup(&root, "file");
    for xid in 100..150 {
        client.send(&read(&file, 0, 100_000).record(xid));
    }
    client
        .stream
        .shutdown(Shutdown::Write)
        .expect("our half is closed");
    let replies: BTreeSet<u32> = (100..150).map(|_| client.reply().xid).collect();
    assert_eq!(replies, (100..150).collect());
    assert!(client.message().is_err(), "then the server closes");
}
