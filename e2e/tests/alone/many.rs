//! Ten thousand connections: all served, none lost, and idle ones cost almost nothing.

use std::time::Duration;

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Launch, Server, Site, Swarm, each_driver, until};

use crate::is_alone;

each_driver!(
    ten_thousand_clients_are_served_at_once,
    an_idle_connection_takes_at_most_one_kibibyte,
    ten_thousand_clients_echo_at_once_with_one_accept,
    ten_thousand_clients_echo_at_once_with_single_accepts,
);

/// Wished for; fewer where this process may open fewer descriptors.
const CLIENTS: usize = 10_000;
const BODY: &str = "a small file\n";

/// As many clients as the machine allows, at most [`CLIENTS`].
fn clients() -> usize {
    Swarm::size_allowed(CLIENTS)
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.ends_with(BODY.as_bytes())
}

fn ten_thousand_clients_are_served_at_once(driver: Driver) {
    if !is_alone(driver, "many::ten_thousand_clients_are_served_at_once") {
        return;
    }
    let clients = clients();
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver).directory(site.path()).start();
    let request = request_bytes("GET", "/small", &[]);
    let mut swarm = Swarm::start(server.address("http"), clients);
    for round in 0..3 {
        let replies = swarm.exchange(|_| request.clone(), |_, bytes| is_whole(bytes));
        let good = replies
            .iter()
            .filter(|reply| reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(
            good.count(),
            clients,
            "round {round}: all are answered with the file"
        );
    }
    drop(swarm);
    until("all connections to be closed", || {
        (server.process().descriptors() < 100).then_some(())
    });
    assert_eq!(server.client().get("/small").text(), BODY);
}

fn an_idle_connection_takes_at_most_one_kibibyte(driver: Driver) {
    const WARM: usize = 1500;
    const BYTES_PER_CONNECTION_MAX: u64 = 1024;
    if !is_alone(
        driver,
        "many::an_idle_connection_takes_at_most_one_kibibyte",
    ) {
        return;
    }
    let clients = clients();
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver).directory(site.path()).start();
    let request = request_bytes("GET", "/small", &[]);
    let serve = |swarm: &mut Swarm| {
        let _ = swarm.exchange(|_| request.clone(), |_, bytes| is_whole(bytes));
    };
    // What the server takes once, for any number of clients, is there before we measure.
    let mut warm = Swarm::start(server.address("http"), WARM);
    serve(&mut warm);
    let before = settled_growth(&server, 0, u64::MAX);
    let mut swarm = Swarm::start(server.address("http"), clients);
    serve(&mut swarm);
    // Buffers that were needed at the height of it go back; the connections stay.
    let count = u64::try_from(clients).expect("a small number");
    let each = settled_growth(&server, before, BYTES_PER_CONNECTION_MAX * count) / count;
    eprintln!(
        "{}: {each} bytes for each of {clients} idle connections",
        driver.name()
    );
    assert!(
        each <= BYTES_PER_CONNECTION_MAX,
        "{each} bytes for each idle connection"
    );
    serve(&mut swarm);
}

/// How much more memory the server has than `before`, once it gives back no more. Above `enough` it
/// gets longer: pools give memory back when it has been idle for a while.
fn settled_growth(server: &Server, before: u64, enough: u64) -> u64 {
    const LOOKS: u32 = 20;
    const LOOKS_ABOVE: u32 = 150;
    let (mut least, mut same) = (u64::MAX, 0);
    until("the server's memory to settle", || {
        std::thread::sleep(Duration::from_millis(100));
        let growth = server.process().memory_bytes().saturating_sub(before);
        same = if growth < least { 0 } else { same + 1 };
        least = least.min(growth);
        (same >= if least <= enough { LOOKS } else { LOOKS_ABOVE }).then_some(least)
    })
}

/// 128 bytes from each, all different, so that a mixed-up reply is seen.
fn echo_at_once(driver: Driver, accept: &str) {
    const ROUNDS: usize = 2;
    const BYTES: usize = 128;
    let clients = clients();
    let site = Site::new();
    let server = Launch::serve(driver)
        .with(["--accept", accept])
        .echo()
        .directory(site.path())
        .start();
    let request = |index: usize| noise(index as u64, BYTES);
    for _ in 0..ROUNDS {
        let mut swarm = Swarm::start(server.address("echo"), clients);
        let replies = swarm.exchange(request, |_, bytes| bytes.len() >= BYTES);
        let wrong = replies
            .iter()
            .enumerate()
            .filter(|(index, reply)| **reply != request(*index));
        assert_eq!(wrong.count(), 0, "each gets back what it sent");
    }
}

fn ten_thousand_clients_echo_at_once_with_one_accept(driver: Driver) {
    if !is_alone(
        driver,
        "many::ten_thousand_clients_echo_at_once_with_one_accept",
    ) {
        return;
    }
    echo_at_once(driver, "multishot");
}

fn ten_thousand_clients_echo_at_once_with_single_accepts(driver: Driver) {
    if !is_alone(
        driver,
        "many::ten_thousand_clients_echo_at_once_with_single_accepts",
    ) {
        return;
    }
    echo_at_once(driver, "single");
}
