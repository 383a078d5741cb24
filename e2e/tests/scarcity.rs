//! Too little of something: descriptors, buffers, places for completions, connections.
//!
//! The rule is the same everywhere: what does not fit waits, nobody healthy is closed, nothing
//! spins.

use std::time::Duration;

use flatpath_e2e::client::request_bytes;
use flatpath_e2e::process::raise_descriptor_limit;
use flatpath_e2e::site::noise;
use flatpath_e2e::{Client, Driver, Launch, Server, Site, Swarm, each_driver};

each_driver!(
    sixty_four_descriptors_serve_two_hundred_clients_in_turn,
    running_out_of_descriptors_does_not_spin_and_comes_back,
    a_connection_limit_makes_the_next_client_wait_or_go,
    four_receive_buffers_serve_a_thousand_clients,
    eight_completion_places_serve_a_thousand_clients,
);

const BODY: &str = "a small file\n";

/// Clients of a server that cannot have more.
struct Saturated {
    /// They have been served and are still connected.
    served: Vec<Client>,
    /// They have sent a request and not been answered.
    waiting: Vec<Client>,
    /// So many were told 503.
    refused: usize,
}

/// Opens clients one after the other until the server serves no more of them, and then the rest.
fn saturate(server: &Server, clients: usize) -> Saturated {
    const LOOKS: u32 = 40;
    let mut all = Saturated {
        served: Vec::new(),
        waiting: Vec::new(),
        refused: 0,
    };
    for _ in 0..clients {
        let mut client = server.client();
        client.request("GET", "/small", &[]);
        let mut looks = 0;
        while client.is_quiet() && looks < LOOKS && all.waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(25));
            looks += 1;
        }
        if client.is_quiet() {
            all.waiting.push(client);
            continue;
        }
        let reply = client.reply();
        match reply.status {
            200 => all.served.push(client),
            503 => all.refused += 1,
            _ => panic!("{reply:?}"),
        }
    }
    all
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

/// Closes the served clients and sees that those who wait are served or told 503, and that a new
/// one is served in the end.
fn release(server: &Server, all: Saturated) {
    drop(all.served);
    for mut client in all.waiting {
        let reply = client.reply();
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
    }
    let mut client = server.client();
    assert_eq!(
        client.get("/small").text(),
        BODY,
        "a new client is served again"
    );
}

fn sixty_four_descriptors_serve_two_hundred_clients_in_turn(driver: Driver) {
    const CLIENTS: usize = 200;
    const SERVED_MIN: usize = 16;
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver)
        .descriptors(64)
        .directory(site.path())
        .start();
    let all = saturate(&server, CLIENTS);
    let count = all.served.len();
    assert!(
        (SERVED_MIN..64).contains(&count),
        "{count} of {CLIENTS} are served at once"
    );
    assert!(server.process().descriptors() <= 64);
    let percent = processor_percent(&server);
    assert!(
        percent <= PERCENT_MAX,
        "{percent} % of a processor while nothing can be accepted"
    );
    release(&server, all);
}

/// The limit falls while the server runs, below what it planned with: the kernel refuses for real.
fn running_out_of_descriptors_does_not_spin_and_comes_back(driver: Driver) {
    const CLIENTS: usize = 100;
    let site = Site::new().with("small", BODY);
    // A multishot accept keeps the limit it was armed with, so a lower one would not be noticed.
    let server = Launch::serve(driver)
        .with(["--accept", "single"])
        .directory(site.path())
        .start();
    assert_eq!(server.client().get("/small").text(), BODY);
    let limit = u64::try_from(server.process().descriptors() + 30).expect("a small number");
    server.process().limit_descriptors(limit);
    let all = saturate(&server, CLIENTS);
    let kept_out = all.waiting.len() + all.refused;
    assert!(
        !all.served.is_empty() && kept_out > 0,
        "{} are served",
        all.served.len()
    );
    let percent = processor_percent(&server);
    assert!(
        percent <= PERCENT_MAX,
        "{percent} % of a processor while nothing can be accepted"
    );
    release(&server, all);
}

fn a_connection_limit_makes_the_next_client_wait_or_go(driver: Driver) {
    const LIMIT: usize = 10;
    let site = Site::new().with("small", BODY);
    let server = Launch::serve(driver)
        .with(["--max-connections", &LIMIT.to_string()])
        .directory(site.path())
        .start();
    let mut all = saturate(&server, 3 * LIMIT);
    assert_eq!(all.served.len(), LIMIT);
    for client in &mut all.served {
        assert_eq!(
            client.get("/small").text(),
            BODY,
            "who is in is served as before"
        );
    }
    release(&server, all);
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
