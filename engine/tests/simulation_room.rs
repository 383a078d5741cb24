//! Who gets a place at a bound, on the simulated driver: newcomers before those that rest, each
//! address within its share, and no connection that has a request in work.

mod lines;

use std::net::SocketAddr;

use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState};
use lines::Lines;

const TURNS_MAX: usize = 10_000;
const SECOND: u64 = 1_000_000_000;

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
    for _ in 0..TURNS_MAX {
        server.turn();
        if server.has_ended() {
            let (leaks, pooled) = server.leaks();
            assert!(leaks.is_none() && pooled == 0, "{leaks:?} {pooled}");
            return;
        }
    }
    panic!("the server does not end");
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
    assert_eq!(server.statistics().evicted.read(), 1);
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
    assert_eq!(server.statistics().refused_by_address.read(), 3);
    for peer in [other, None, None, None] {
        let client = server.connect_from(peer);
        assert_eq!(ask(&mut server, &client, "ping\n"), "pong\n");
    }
    // With room again the address is served, although refused clients are still reading.
    busy.iter().for_each(Client::reset);
    turns(&mut server, 50);
    let client = server.connect_from(crowd);
    assert_eq!(ask(&mut server, &client, "ping\n"), "pong\n");
    end(server);
}
