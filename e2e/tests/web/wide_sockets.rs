//! What the kernel holds of downloads that are not read: much of a few that had read much, little
//! of all others, and the few give their places up.

use std::time::Duration;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until, until_true};

each_driver!(
    of_few_clients_that_read_much_and_stop_the_kernel_holds_much,
    a_client_that_reads_gets_the_place_of_one_that_does_not,
);

/// Of a network thread, as `engine/src/network/wide.rs` has it.
const WIDE_MAX: usize = 32;

/// Longer than what lies in both sockets.
const FILE_BYTES: u64 = 32 << 20;

/// Downloads before one is looked at: while one is read, a few places are judged, and a look at the
/// kernel's table is slow where it has a hundred thousand sockets.
const DOWNLOADS: usize = 8;

/// What a client has read when more of it may be held, and some windows after that.
const READ_BYTES: usize = 5 << 20;

/// More than a narrow socket holds, and less than a wide one.
const MUCH_BYTES: usize = 1 << 20;

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new();
    site.write_hole("large", FILE_BYTES);
    site.write_hole("some", READ_BYTES as u64);
    site.settle();
    let launch = Launch::serve(driver).with(["--network-threads", "1", "--idle-timeout", "1h"]);
    let server = launch.directory(site.path()).start();
    (server, site)
}

/// A client that has read [`READ_BYTES`] of a download, and no more.
fn stopped(server: &Server) -> Client {
    let mut client = server.client().patient(long_patience());
    read_some(&mut client);
    client
}

fn read_some(client: &mut Client) {
    client.request("GET", "/large", &[]);
    assert_eq!(client.reply_to_head().status, 200);
    client.exactly(READ_BYTES);
}

/// What the kernel has of each connection to a port and was not acknowledged, in bytes, by the port
/// of its client (`tx_queue` of proc_net(5)).
pub(crate) fn unacknowledged(server: &Server) -> Vec<(u16, usize)> {
    let port = server.address("http").port();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let of_port = table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (_, local) = words.nth(1)?.split_once(':')?;
        let (_, remote) = words.next()?.split_once(':')?;
        let (queued, _) = words.nth(1)?.split_once(':')?;
        let remote = u16::from_str_radix(remote, 16).ok()?;
        let queued = usize::from_str_radix(queued, 16).ok()?;
        (local == format!("{port:04X}") && remote != 0).then_some((remote, queued))
    });
    of_port.collect()
}

/// The clients of which much is held, once nothing moves any more.
fn held(server: &Server) -> Vec<u16> {
    let mut before = Vec::new();
    until("all downloads to be stuck", || {
        std::thread::sleep(Duration::from_millis(100));
        let mut now = unacknowledged(server);
        now.sort_unstable();
        let is_stuck = now == before;
        before = now;
        is_stuck.then_some(())
    });
    let held = before.iter().filter(|(_, bytes)| *bytes > MUCH_BYTES);
    held.map(|(port, _)| *port).collect()
}

fn is_held(server: &Server, client: &Client) -> bool {
    held(server).contains(&client.address().port())
}

fn of_few_clients_that_read_much_and_stop_the_kernel_holds_much(driver: Driver) {
    let (server, _site) = serve(driver);
    let clients: Vec<_> = (0..WIDE_MAX + 16).map(|_| stopped(&server)).collect();
    // What is on its way to them counts until it is there.
    until_true("much to be held of as many as there are places", || {
        (WIDE_MAX / 2..=WIDE_MAX).contains(&held(&server).len())
    });
    // As long as they hold it, no other one gets more, and none waits.
    let another = stopped(&server);
    until_true("little to be held of it", || !is_held(&server, &another));
    drop((clients, another));
    until_true("they are gone", || unacknowledged(&server).is_empty());
    let another = stopped(&server);
    until_true("much to be held of it", || is_held(&server, &another));
    // A drain would wait for it.
    drop(another);
    server.end();
}

fn a_client_that_reads_gets_the_place_of_one_that_does_not(driver: Driver) {
    let (server, _site) = serve(driver);
    // They have read all, and stay.
    let idle = (0..WIDE_MAX).map(|_| {
        let mut client = server.client().patient(long_patience());
        assert_eq!(client.get("/some").body.len(), READ_BYTES);
        client
    });
    let idle: Vec<_> = idle.collect();
    let mut client = server.client().patient(long_patience());
    until_true("it has a place", || {
        for _ in 0..DOWNLOADS {
            assert_eq!(client.get("/large").status, 200);
        }
        read_some(&mut client);
        let is_held = is_held(&server, &client);
        client.exactly(usize::try_from(FILE_BYTES).expect("it fits") - READ_BYTES);
        is_held
    });
    for mut client in idle {
        assert_eq!(client.ask("/some", &[("Range", "bytes=-1")]).status, 206);
    }
    server.end();
}
