//! Too little of something: descriptors, buffers, places for completions, connections.
//!
//! A newcomer is served before a connection that rests; what else does not fit waits, no connection
//! with a request in work is closed, and nothing spins.

use std::time::Duration;

use flatpath_testkit::client::request_bytes;
use flatpath_testkit::noise;
use flatpath_testkit::process::raise_descriptor_limit;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, Swarm, each_driver};

each_driver!(
    sixty_four_descriptors_serve_two_hundred_clients_in_turn,
    running_out_of_descriptors_does_not_spin_and_closes_those_that_rest,
    at_the_connection_limit_the_longest_idle_is_closed_for_the_next_client,
    half_heads_at_the_connection_limit_keep_no_client_out,
    four_receive_buffers_serve_a_thousand_clients,
    eight_completion_places_serve_a_thousand_clients,
);

const BODY: &str = "a small file\n";

/// Opens clients one after the other and keeps them; each is answered, however many there are.
fn serve_in_turn(server: &Server, clients: usize) -> Vec<Client> {
    let served = (0..clients).map(|number| {
        let mut client = server.client();
        assert_eq!(client.get("/small").text(), BODY, "client {number}");
        client
    });
    served.collect()
}

/// How many of the clients the server has not closed.
fn still_open(clients: &mut [Client]) -> usize {
    let open = clients.iter_mut().map(Client::is_quiet);
    open.filter(|open| *open).count()
}

/// The share of one processor that the server uses while nothing happens, in percent.
fn processor_percent(server: &Server) -> u128 {
    const WINDOW: Duration = Duration::from_secs(1);
    let before = server.process().processor_time();
    std::thread::sleep(WINDOW);
    (server.process().processor_time() - before).as_millis() * 100 / WINDOW.as_millis()
}

/// A loop over a refused accept takes a whole processor; a pause takes next to nothing.
const PERCENT_MAX: u128 = 30;

fn sixty_four_descriptors_serve_two_hundred_clients_in_turn(driver: Driver) {
    const CLIENTS: usize = 200;
    const OPEN_MIN: usize = 16;
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver)
        .descriptors(64)
        .directory(site.path())
        .start();
    let mut all = serve_in_turn(&server, CLIENTS);
    let count = still_open(&mut all);
    assert!(
        (OPEN_MIN..64).contains(&count),
        "{count} of {CLIENTS} are open at once"
    );
    assert!(server.process().descriptors() <= 64);
    server.await_log("connection limit: ");
}

/// The limit falls while the server runs, below what it planned with: the kernel refuses for real.
fn running_out_of_descriptors_does_not_spin_and_closes_those_that_rest(driver: Driver) {
    const CLIENTS: usize = 100;
    const REFUSED_MAX: usize = 10;
    let site = Site::new().with("small", BODY);
    // A multishot accept keeps the limit it was armed with, so a lower one would not be noticed.
    let server = Launch::serve(driver)
        .with(["--accept", "single"])
        .directory(site.path())
        .start();
    assert_eq!(server.client().get("/small").text(), BODY);
    let limit = u64::try_from(server.process().descriptors() + 30).expect("a small number");
    server.process().limit_descriptors(limit);
    let mut refused = 0;
    let clients = (0..CLIENTS).map(|_| {
        let mut client = server.client();
        let reply = client.get("/small");
        // A worker may find none for the file before accept has missed one.
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        refused += usize::from(reply.status == 503);
        client
    });
    let mut all: Vec<Client> = clients.collect();
    assert!(refused <= REFUSED_MAX, "{refused} clients got 503");
    let count = still_open(&mut all);
    assert!(count > 0 && count < CLIENTS, "{count} are open");
    server.await_log("descriptors: ");
    let percent = processor_percent(&server);
    assert!(
        percent <= PERCENT_MAX,
        "{percent} % of a processor while nothing can be accepted"
    );
}

fn at_the_connection_limit_the_longest_idle_is_closed_for_the_next_client(driver: Driver) {
    const LIMIT: usize = 10;
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver)
        .with(["--max-connections", &LIMIT.to_string()])
        .directory(site.path())
        .start();
    let mut all = serve_in_turn(&server, 3 * LIMIT);
    let newest = all.split_off(2 * LIMIT);
    for mut client in all {
        client.expect_closed();
    }
    for mut client in newest {
        assert_eq!(client.get("/small").text(), BODY, "the newest are served");
    }
    server.await_log("connection limit: 10 of 10 on this network thread");
}

/// Slowloris: the oldest unfinished head is told 408 and makes place.
fn half_heads_at_the_connection_limit_keep_no_client_out(driver: Driver) {
    const LIMIT: usize = 20;
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver)
        .with(["--max-connections", &LIMIT.to_string()])
        .directory(site.path())
        .start();
    let heads = (0..LIMIT + LIMIT / 2).map(|_| {
        let mut client = server.client();
        client.send(b"GET /small HT");
        client
    });
    let mut heads: Vec<Client> = heads.collect();
    let mut clients = serve_in_turn(&server, 3);
    assert_eq!(heads[0].reply().status, 408);
    assert!(still_open(&mut heads) >= LIMIT / 2, "no more than needed");
    assert_eq!(clients[2].get("/small").text(), BODY);
}

/// Every way through the server, with a thousand clients at once: inline, by a worker, a body from
/// the client, and echo.
fn a_thousand_clients(driver: Driver, flags: [&str; 2]) {
    const CLIENTS: usize = 1000;
    const BYTES: usize = 20_000;
    let _ = raise_descriptor_limit();
    let server = Launch::handlers(driver).with(flags).start();
    let mut swarm = Swarm::start(server.address("http"), CLIENTS);
    for (target, text) in [
        ("/hello", "hello"),
        ("/pooled", "pooled"),
        ("/hello", "hello"),
    ] {
        let request = request_bytes("GET", target, &[]);
        let replies = swarm.exchange(
            |_| request.clone(),
            |_, bytes| bytes.ends_with(text.as_bytes()),
        );
        let good = replies
            .iter()
            .filter(|reply| reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(good.count(), CLIENTS, "{target}");
    }
    let sent = |index: usize| noise(index as u64, BYTES);
    let post = |index: usize| {
        let head = request_bytes("POST", "/echo", &[("Content-Length", &BYTES.to_string())]);
        [head, sent(index)].concat()
    };
    let _ = swarm.exchange(post, |index, bytes| bytes.ends_with(&sent(index)));
    let mut swarm = Swarm::start(server.address("echo"), CLIENTS);
    let replies = swarm.exchange(sent, |_, bytes| bytes.len() >= BYTES);
    let wrong = replies
        .iter()
        .enumerate()
        .filter(|(index, reply)| **reply != sent(*index));
    assert_eq!(wrong.count(), 0, "each gets back what it sent");
}

fn four_receive_buffers_serve_a_thousand_clients(driver: Driver) {
    a_thousand_clients(driver, ["--receive-buffers", "4"]);
}

fn eight_completion_places_serve_a_thousand_clients(driver: Driver) {
    a_thousand_clients(driver, ["--completion-entries", "8"]);
}
