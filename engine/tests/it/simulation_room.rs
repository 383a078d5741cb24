//! Who gets a place at a bound, on the simulated driver: newcomers before those that rest, each
//! address within its share, and no connection that has a request in work.

use std::net::SocketAddr;
use std::time::Duration;

use crate::lines::Lines;
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState};

const TURNS_MAX: usize = 10_000;
const SECOND: Duration = Duration::from_secs(1);

fn server(limits: Limits) -> SimulatedServer {
    let mut conditions = Conditions::calm(1);
    conditions.limits = limits;
    SimulatedServer::new(conditions, Lines)
}

fn peer(text: &str) -> Option<SocketAddr> {
    Some(SocketAddr::new(text.parse().expect("an address"), 1))
}

/// Says something and returns what is heard until a line has come or the connection is over.
fn ask(server: &mut SimulatedServer, client: &Client, words: &str) -> String {
    client.write(words.as_bytes());
    let mut heard = Vec::new();
    for _ in 0..TURNS_MAX {
        server.turn();
        heard.extend(client.read());
        if heard.ends_with(b"\n") || client.state() != ClientState::Open {
            return String::from_utf8(heard).expect("text");
        }
    }
    panic!("no answer to {words:?}");
}

fn turns(server: &mut SimulatedServer, count: usize) {
    for _ in 0..count {
        server.turn();
    }
}

/// Ends the server and checks that everything was given back.
fn end(mut server: SimulatedServer) {
    server.force();
    server.end(TURNS_MAX);
}

#[test]
fn sim_an_address_with_its_share_pays_with_its_own_longest_idle_connection() {
    let mut server = server(Limits {
        connections_per_address: 3,
        ..Limits::default()
    });
    let (crowd, other) = (peer("192.0.2.1"), peer("192.0.2.2"));
    let neighbour = server.connect_from(other);
    assert_eq!(ask(&mut server, &neighbour, "ping\n"), "pong\n");
    let mut idle = Vec::new();
    for _ in 0..3 {
        let client = server.connect_from(crowd);
        assert_eq!(ask(&mut server, &client, "ping\n"), "pong\n");
        server.world().advance(SECOND);
        idle.push(client);
    }
    // The first one speaks again: the second is the longest idle now.
    assert_eq!(ask(&mut server, &idle[0], "ping\n"), "pong\n");
    let newcomer = server.connect_from(crowd);
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    turns(&mut server, 20);
    assert_ne!(idle[1].state(), ClientState::Open, "the longest idle pays");
    for client in [&neighbour, &idle[0], &idle[2], &newcomer] {
        assert_eq!(client.state(), ClientState::Open);
    }
    assert_eq!(server.statistics().connections_evicted, 1);
    end(server);
}

#[test]
fn sim_an_address_whose_connections_all_work_is_refused_and_others_are_not() {
    let mut server = server(Limits {
        connections_per_address: 2,
        ..Limits::default()
    });
    let (crowd, other) = (peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    // A reply that its client does not read is work.
    let busy: Vec<Client> = (0..2).map(|_| server.connect_from(crowd)).collect();
    for client in &busy {
        client.write(b"big 1000000\n");
    }
    turns(&mut server, 50);
    for _ in 0..3 {
        let refused = server.connect_from(crowd);
        assert_eq!(ask(&mut server, &refused, "ping\n"), "full\n");
    }
    assert_eq!(server.statistics().refused_address, 3);
    for peer in [other, None, None, None] {
        let client = server.connect_from(peer);
        assert_eq!(ask(&mut server, &client, "ping\n"), "pong\n");
    }
    // With room again the address is served, although refused clients are still reading.
    busy.iter().for_each(Client::abort);
    turns(&mut server, 50);
    let client = server.connect_from(crowd);
    assert_eq!(ask(&mut server, &client, "ping\n"), "pong\n");
    end(server);
}

/// As many clients as there are places, each having had an answer, a simulated second apart.
fn idlers(server: &mut SimulatedServer, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = server.connect();
        assert_eq!(ask(server, &client, "ping\n"), "pong\n");
        server.world().advance(SECOND);
        clients.push(client);
    }
    clients
}

fn open(clients: &[Client]) -> Vec<bool> {
    let open = clients.iter().map(Client::state);
    open.map(|state| state == ClientState::Open).collect()
}

/// Clients that do not read the reply that they asked for.
fn busy(server: &mut SimulatedServer, count: usize) -> Vec<Client> {
    let clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(b"big 1000000\n");
    }
    turns(server, 10);
    clients
}

fn full(connections_max: usize) -> SimulatedServer {
    server(Limits {
        connections_max,
        ..Limits::default()
    })
}

#[test]
fn sim_a_full_table_closes_the_longest_idle_for_a_newcomer() {
    let mut server = full(5);
    let clients = idlers(&mut server, 5);
    // The first two speak again, so the third is the longest idle, then the fourth.
    for client in &clients[..2] {
        assert_eq!(ask(&mut server, client, "ping\n"), "pong\n");
    }
    let newcomers = idlers(&mut server, 2);
    turns(&mut server, 20);
    assert_eq!(open(&clients), [true, true, false, false, true]);
    assert_eq!(open(&newcomers), [true, true]);
    assert_eq!(server.statistics().connections_refused(), 0);
    end(server);
}

#[test]
fn sim_old_heads_are_closed_before_a_client_that_has_just_been_served() {
    let mut server = full(5);
    let heads: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for head in &heads {
        head.write(b"pi");
        turns(&mut server, 5);
        server.world().advance(SECOND);
    }
    let kept = server.connect();
    assert_eq!(ask(&mut server, &kept, "ping\n"), "pong\n");
    for round in 0..4 {
        let newcomer = server.connect();
        assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
        assert_eq!(ask(&mut server, &kept, "ping\n"), "pong\n");
        turns(&mut server, 20);
        let still_open = open(&heads).iter().filter(|open| **open).count();
        assert_eq!(still_open, 3 - round.min(3), "the oldest head is closed");
        drop(newcomer);
        // It is replaced by another head, so that the table is full again.
        turns(&mut server, 5);
        let head = server.connect();
        head.write(b"pi");
        turns(&mut server, 5);
        std::mem::forget(head);
    }
    end(server);
}

#[test]
fn sim_a_client_between_two_requests_outlives_heads_that_come_back_at_once() {
    let mut server = full(8);
    let kept = server.connect();
    assert_eq!(ask(&mut server, &kept, "ping\n"), "pong\n");
    // No member of this crowd has rested for long, but each has rested longer than the client.
    let mut crowd: Vec<Client> = Vec::new();
    for _ in 0..60 {
        let head = server.connect();
        head.write(b"pi");
        crowd.push(head);
        turns(&mut server, 2);
        assert_eq!(ask(&mut server, &kept, "ping\n"), "pong\n");
        server.world().advance(SECOND / 1000);
    }
    assert!(
        server.statistics().connections_evicted > 40,
        "the bound was reached"
    );
    end(server);
}

#[test]
fn sim_what_is_in_work_is_never_closed_and_newcomers_are_refused_after_a_moment() {
    let mut server = full(3);
    let busy: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &busy {
        client.write(b"big 1000000\n");
    }
    turns(&mut server, 50);
    let before = server.world().now();
    let refused = server.connect();
    assert_eq!(ask(&mut server, &refused, "ping\n"), "full\n");
    assert!(
        server.world().now() - before >= Duration::from_millis(50),
        "it may wait first"
    );
    assert_eq!(open(&busy), [true, true, true]);
    // With a place again the next one is served.
    busy[0].abort();
    turns(&mut server, 20);
    let newcomer = server.connect();
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    assert_eq!(server.statistics().connections_evicted, 0);
    end(server);
}

#[test]
fn sim_a_newcomer_waits_for_a_moment_for_what_is_about_to_end() {
    let mut server = full(2);
    let busy: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &busy {
        client.write(b"big 1000000\n");
    }
    turns(&mut server, 10);
    let newcomer = server.connect();
    turns(&mut server, 10);
    busy[0].abort();
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    assert_eq!(server.statistics().connections_refused(), 0);
    end(server);
}

#[test]
fn sim_a_newcomer_to_a_full_table_is_refused_in_time_although_nothing_else_happens() {
    let mut server = full(3);
    let _busy = busy(&mut server, 3);
    let newcomer = server.connect();
    server.world().set_step_max(100 * SECOND);
    let before = server.world().now();
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "full\n");
    let waited = server.world().now() - before;
    assert!(waited < SECOND / 2, "it took {waited:?}");
}

#[test]
fn sim_an_accept_without_a_descriptor_is_tried_again_although_nothing_else_happens() {
    let mut server = full(100);
    let _busy = busy(&mut server, 8);
    server.world().set_sockets_max(8);
    let newcomer = server.connect();
    turns(&mut server, 10);
    server.world().set_sockets_max(9);
    server.world().set_step_max(100 * SECOND);
    let before = server.world().now();
    ask(&mut server, &newcomer, "ping\n");
    let waited = server.world().now() - before;
    assert!(waited < SECOND / 2, "it took {waited:?}");
}

#[test]
fn sim_an_accept_without_a_descriptor_is_tried_again_when_connections_end() {
    let mut server = full(100);
    let busy = busy(&mut server, 8);
    server.world().set_sockets_max(8);
    let before = server.world().now();
    let newcomer = server.connect();
    turns(&mut server, 10);
    busy[..3].iter().for_each(Client::abort);
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    let waited = server.world().now() - before;
    assert!(waited < SECOND / 20, "it took {waited:?}");
}

#[test]
fn sim_without_descriptors_the_longest_idle_gives_its_own() {
    let mut server = full(100);
    let clients = idlers(&mut server, 4);
    server.world().set_sockets_max(4);
    let newcomer = server.connect();
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    turns(&mut server, 20);
    // One for the newcomer, and room for what workers open.
    let open = open(&clients);
    assert!(!open[0] && open[3], "{open:?}");
    end(server);
}

#[test]
fn sim_refused_clients_that_stay_keep_no_place_from_others() {
    let mut server = full(3);
    let busy: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &busy {
        client.write(b"big 1000000\n");
    }
    turns(&mut server, 300);
    // None of them closes its end.
    let refused: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for (number, client) in refused.iter().enumerate() {
        assert_eq!(ask(&mut server, client, "ping\n"), "full\n", "{number}");
    }
    busy[0].abort();
    turns(&mut server, 20);
    let newcomer = server.connect();
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    end(server);
}

/// Which are still open, once the others have read why they are not.
fn open_after_all(clients: &[Client]) -> Vec<bool> {
    clients.iter().for_each(|client| drop(client.read()));
    open(clients)
}

/// Sends each a command, and lets a few milliseconds pass.
fn all_say(server: &mut SimulatedServer, clients: &[Client], words: &str) {
    for client in clients {
        client.write(words.as_bytes());
    }
    for _ in 0..10 {
        server.world().advance(SECOND / 500);
        turns(server, 4);
    }
}

#[test]
fn sim_an_address_with_its_share_of_a_full_table_is_refused_before_others_are_closed() {
    const KEPT: usize = 6;
    let mut server = full(32);
    let (crowd, other) = (peer("192.0.2.1"), peer("192.0.2.2"));
    let kept: Vec<Client> = (0..KEPT).map(|_| server.connect_from(other)).collect();
    let mut busy = Vec::new();
    for _ in 0..10 {
        for client in &kept {
            assert_eq!(ask(&mut server, client, "ping\n"), "pong\n");
        }
        let some: Vec<Client> = (0..5).map(|_| server.connect_from(crowd)).collect();
        all_say(&mut server, &some, "big 1000000\n");
        busy.extend(some);
    }
    assert_eq!(open(&kept), [true; KEPT]);
    let statistics = server.statistics();
    assert_eq!(
        (
            statistics.connections_evicted,
            statistics.connections_ended_for_address
        ),
        (0, 0)
    );
    // 20 are its share; of the last sixteenth of the places it gets none beyond.
    let refused = statistics.refused_address;
    assert!((25..=30).contains(&refused), "{refused} are refused");
    let newcomer = server.connect_from(other);
    assert_eq!(ask(&mut server, &newcomer, "ping\n"), "pong\n");
    assert_eq!(open(&kept), [true; KEPT]);
    end(server);
}

#[test]
fn sim_a_newcomer_to_a_full_table_ends_what_a_crowding_address_has_had_longest() {
    let mut server = full(32);
    let crowd = peer("192.0.2.1");
    let busy: Vec<Client> = (0..32).map(|_| server.connect_from(crowd)).collect();
    all_say(&mut server, &busy, "last\n");
    assert_eq!(open(&busy), [true; 32], "alone it has all");
    let newcomers: Vec<Client> = (2..6)
        .map(|host| {
            let client = server.connect_from(peer(&format!("192.0.2.{host}")));
            assert_eq!(ask(&mut server, &client, "last\n"), "lasts\n", "{host}");
            client
        })
        .collect();
    all_say(&mut server, &newcomers, "ping\n");
    assert_eq!(open(&newcomers), [true; 4]);
    let left = open_after_all(&busy);
    let ended = left.iter().filter(|open| !**open).count();
    assert!((4..=8).contains(&ended), "{ended} are ended");
    assert_eq!(
        server.statistics().connections_ended_for_address,
        ended as u64
    );
    assert!(left.is_sorted(), "the longest first: {left:?}");
    assert_eq!(server.statistics().connections_refused(), 0);
    end(server);
}

#[test]
fn sim_requests_that_last_leave_places_to_other_addresses_and_the_longest_end_for_them() {
    // Three quarters of the places.
    const LASTING: usize = 48;
    let mut server = server(Limits {
        in_flight_max: 64,
        ..Limits::default()
    });
    let crowd = peer("192.0.2.1");
    let begin = |server: &mut SimulatedServer, from| {
        let client = server.connect_from(from);
        let is_begun = ask(server, &client, "last\n") == "lasts\n";
        (is_begun, client)
    };
    let mut busy = Vec::new();
    for _ in 0..LASTING {
        let (is_begun, client) = begin(&mut server, crowd);
        assert!(is_begun, "alone it has all");
        busy.push(client);
    }
    assert!(!begin(&mut server, crowd).0);
    let mut others = Vec::new();
    for host in 2..32 {
        let (is_begun, client) = begin(&mut server, peer(&format!("192.0.2.{host}")));
        assert!(is_begun, "{host}");
        others.push(client);
        server.world().advance(SECOND / 50);
        turns(&mut server, 4);
    }
    // Three of the reserve are used unpaid, and two end for each that is one too many.
    let left = open_after_all(&busy);
    let ended = left.iter().filter(|open| !**open).count();
    assert!((27..=28).contains(&ended), "{ended} are ended");
    assert!(left.is_sorted(), "the longest first: {left:?}");
    assert!(!begin(&mut server, crowd).0);
    assert_eq!(open(&others), [true; 30]);
    end(server);
}

#[test]
fn sim_requests_that_last_end_for_others_in_time_although_nothing_else_happens() {
    const LASTING: usize = 48;
    let mut server = server(Limits {
        in_flight_max: 64,
        ..Limits::default()
    });
    // Those that come after the first one that ends others do so before the next round.
    server.world().set_step_max(SECOND / 1_000_000);
    let mut begin = |host: usize| {
        let client = server.connect_from(peer(&format!("192.0.2.{host}")));
        assert_eq!(ask(&mut server, &client, "last\n"), "lasts\n", "{host}");
        client
    };
    let _crowd: Vec<Client> = (0..LASTING).map(|_| begin(1)).collect();
    let _others: Vec<Client> = (2..10).map(&mut begin).collect();
    let ended = |server: &SimulatedServer| server.statistics().connections_ended_for_address;
    let ended_before = ended(&server);
    server.world().set_step_max(100 * SECOND);
    let before = server.world().now();
    for _ in 0..TURNS_MAX {
        server.turn();
        if ended(&server) > ended_before {
            break;
        }
    }
    let waited = server.world().now() - before;
    assert!(waited < SECOND / 50, "it took {waited:?}");
}

#[test]
fn sim_a_newcomer_gets_a_place_where_a_hundred_addresses_have_all() {
    const LASTING: usize = 192;
    let mut server = server(Limits {
        in_flight_max: 256,
        ..Limits::default()
    });
    let begin = |server: &mut SimulatedServer, host: usize| {
        let client = server.connect_from(peer(&format!("192.0.2.{host}")));
        let is_begun = ask(server, &client, "last\n") == "lasts\n";
        (is_begun, client)
    };
    // None of 64 addresses has more than its share.
    let mut crowd = Vec::new();
    for number in 0..LASTING {
        let (is_begun, client) = begin(&mut server, number % 64);
        assert!(is_begun, "{number}");
        crowd.push(client);
    }
    for host in 0..64 {
        assert!(!begin(&mut server, host).0, "they have what they get");
    }
    // What ends soon costs the others nothing, however often it comes.
    for _ in 0..100 {
        let (is_begun, client) = begin(&mut server, 100);
        assert!(is_begun);
        client.abort();
        turns(&mut server, 4);
    }
    assert_eq!(open_after_all(&crowd), vec![true; LASTING]);
    // What lasts is paid for by those that have most, one of each.
    let others: Vec<Client> = (100..130)
        .map(|host| {
            let (is_begun, client) = begin(&mut server, host);
            assert!(is_begun, "{host}");
            server.world().advance(SECOND / 50);
            turns(&mut server, 4);
            client
        })
        .collect();
    assert_eq!(open(&others), [true; 30]);
    let left = open_after_all(&crowd);
    let ended = left.iter().filter(|open| !**open).count();
    assert!((18..=36).contains(&ended), "{ended} are ended");
    assert!(left.is_sorted(), "the longest first: {left:?}");
    end(server);
}

#[test]
fn model_sim_no_address_with_little_is_refused_and_only_those_with_most_are_ended() {
    const LASTING: usize = 48;
    for seed in 1..40 {
        let mut random = flatpath_driver::simulation::Random::new(seed);
        let mut server = server(Limits {
            in_flight_max: 64,
            ..Limits::default()
        });
        // By address: what is open, and how many were open at most.
        let mut held: Vec<Vec<Client>> = (0..4).map(|_| Vec::new()).collect();
        for step in 0..200 {
            // The first address asks for most.
            let host = random.below(8).saturating_sub(4);
            let all: usize = held.iter().map(Vec::len).sum();
            let average = |held: &[Vec<Client>], host: usize| {
                let have = |one: &usize| *one == host || !held[*one].is_empty();
                held.iter().map(Vec::len).sum::<usize>() / (0..4).filter(have).count()
            };
            if random.below(3) == 0 && !held[host].is_empty() {
                let at = random.below(held[host].len());
                held[host].swap_remove(at).abort();
            } else {
                let client = server.connect_from(peer(&format!("192.0.2.{}", host + 1)));
                let is_begun = ask(&mut server, &client, "last\n") == "lasts\n";
                // The first quarter is counted for no address, so the server sees less.
                let has_little = 4 * held[host].len() < average(&held, host);
                assert!(
                    is_begun || !has_little,
                    "seed {seed}, step {step}, host {host}"
                );
                let is_full = all >= LASTING + LASTING / 8;
                assert!(
                    !is_begun || !is_full,
                    "seed {seed}, step {step}: too many last"
                );
                held[host].extend(is_begun.then_some(client));
            }
            server.world().advance(SECOND / 50);
            turns(&mut server, 6);
            let averages: Vec<usize> = (0..4).map(|host| average(&held, host)).collect();
            for (host, clients) in held.iter_mut().enumerate() {
                let before = clients.len();
                let is_open = |client: &Client| {
                    client.read();
                    client.state() == ClientState::Open
                };
                clients.retain(is_open);
                let ended = before - clients.len();
                assert!(
                    ended == 0 || before > averages[host],
                    "seed {seed}, step {step}: {ended} of {before} of host {host} ended"
                );
            }
        }
        end(server);
    }
}
