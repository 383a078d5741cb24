//! Listeners behind a load balancer on the simulated driver: hundreds of seeds, every fault.
//!
//! Balancers and others connect, with headers of all kinds and bent ones, in pieces of any size,
//! with the client's commands after them. Checked are
//! - without losses: behind a good header a client hears what its commands are answered with, also
//!   by protocols that take the connection over later; behind a bad one, or from elsewhere, it
//!   hears nothing and is reset;
//! - with losses: what is heard is the beginning of that;
//! - always: the listener's protocol was called for no connection without its header, each of its
//!   sessions was closed, and the server ends when it drains and has given everything back.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath --test it simulation_behind_proxy` runs one seed alone.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::headers::{Herald, binary, binary_for, line, local};
use crate::hoard::Hoard;
use crate::speakers::{heard_after, troupe};
use flatpath::Limits;
use flatpath::proxy_header::parse;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};

const SEEDS: u64 = 300;
const TURNS_MAX: usize = 100_000;

const BALANCER: &str = "10.1.2.3:4000";
const STRANGER: &str = "192.0.2.66:4000";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn balancers() -> Option<Vec<flatpath::Subnet>> {
    Some(vec![
        "fd00::/8".parse().expect("a network"),
        "10.1.0.0/16".parse().expect("a network"),
    ])
}

/// Some header that is accepted.
fn good_header(dice: &mut Random) -> Vec<u8> {
    let clients = ["198.51.100.7:56324", "[2001:db8::7]:65535", "0.0.0.0:0"];
    let client = address(clients[dice.below(clients.len())]);
    match dice.below(6) {
        0 => line(client),
        1 => b"PROXY UNKNOWN of whatever kind\r\n".to_vec(),
        2 => local(),
        3 => binary(0x21, 0x31, &[b'/'; 216]),
        _ => binary_for(client, [0, 3, 100, 5000, 16_000][dice.below(5)]),
    }
}

/// What a connection brings, and what it should hear.
fn script(dice: &mut Random) -> (SocketAddr, Vec<u8>, Option<String>) {
    let mut commands = String::new();
    for number in 0..dice.below(20) {
        commands += &match dice.below(4) {
            0 => "ping\n".to_owned(),
            1 => format!("work {number}\n"),
            2 => format!("try {}\n", 1 + dice.below(3)),
            _ => format!("go {}\n", 1 + dice.below(3)),
        };
    }
    let mut said = good_header(dice);
    let header_bytes = said.len();
    let heard = heard_after(&commands);
    said.extend(commands.bytes());
    match dice.below(6) {
        0 => {
            let at = dice.below(header_bytes);
            said[at] ^= 1 << dice.below(8);
            // What was bent may be a header still, with other bytes of the script in it.
            let is_bad = parse(&said).is_err();
            if !is_bad {
                said[at] = b'#';
                said[0] = b'#';
            }
            (address(BALANCER), said, None)
        }
        1 => (address(STRANGER), said, None),
        _ => (address(BALANCER), said, Some(heard)),
    }
}

struct Talker {
    client: Client,
    said: Vec<u8>,
    at: usize,
    heard: Vec<u8>,
    owed: Option<String>,
    leaves_early: bool,
    ended: bool,
}

impl Talker {
    fn new(server: &SimulatedServer, dice: &mut Random, lossless: bool) -> Talker {
        let (from, said, owed) = script(dice);
        Talker {
            client: server.connect_from(Some(from)),
            said,
            at: 0,
            heard: Vec::new(),
            owed,
            leaves_early: !lossless && dice.below(4) == 0,
            ended: false,
        }
    }

    fn step(&mut self, dice: &mut Random) {
        if self.ended {
            return;
        }
        if self.at < self.said.len() {
            let most = [1, 40, 4096][dice.below(3)];
            let count = (1 + dice.below(most)).min(self.said.len() - self.at);
            self.client.write(&self.said[self.at..self.at + count]);
            self.at += count;
            if self.at == self.said.len() {
                self.client.shutdown_write();
            }
        }
        if dice.below(3) == 0 {
            self.heard.extend(self.client.read());
        }
        if self.leaves_early && dice.below(40) == 0 {
            self.client.abort();
            self.ended = true;
        } else if self.client.state() != ClientState::Open {
            self.heard.extend(self.client.read());
            self.ended = true;
        }
    }

    fn check(&self, seed: u64, lossless: bool) {
        let heard = std::str::from_utf8(&self.heard).expect("text");
        let (owed, state) = (self.owed.as_deref(), self.client.state());
        assert!(
            owed.unwrap_or_default().starts_with(heard),
            "seed {seed}: {heard:?} of {owed:?}"
        );
        if lossless {
            let ends = match owed {
                Some(_) => ClientState::Finished,
                None => ClientState::Reset,
            };
            assert_eq!(state, ends, "seed {seed}: {heard:?} of {owed:?}");
            assert_eq!(heard, owed.unwrap_or_default(), "seed {seed}");
        }
    }
}

fn conditions(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
    Conditions {
        balancers: balancers(),
        ..Conditions::drawn(seed, dice, faults)
    }
}

fn run(seed: u64, faults: Faults, lossless: bool) {
    let mut dice = Random::new(seed);
    let (speaker, troupe) = troupe();
    let mut server = SimulatedServer::new(conditions(seed, &mut dice, faults), speaker);
    let mut talkers: Vec<Talker> = (0..1 + dice.below(12))
        .map(|_| Talker::new(&server, &mut dice, lossless))
        .collect();
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "seed {seed}: a client still waits");
        talkers.iter_mut().for_each(|talker| talker.step(&mut dice));
        server.turn();
        server.advance(Duration::from_millis(dice.up_to(20)));
        if talkers.iter().all(|talker| talker.ended) {
            break;
        }
    }
    talkers
        .iter()
        .for_each(|talker| talker.check(seed, lossless));
    let good = talkers.iter().filter(|talker| talker.owed.is_some());
    let (good, refused) = (good.count(), server.statistics().refused_proxy_header);
    if lossless {
        let bad = (talkers.len() - good) as u64;
        assert_eq!(refused, bad, "seed {seed}");
    }
    server.drain();
    server.end(TURNS_MAX);
    assert_eq!(
        troupe.begun.load(Relaxed),
        troupe.closed.load(Relaxed),
        "seed {seed}"
    );
    assert_eq!(troupe.strangers.load(Relaxed), 0, "seed {seed}");
}

in_each_world!(SEEDS, run);

/// A server with one balancer, and what its clients are to hear.
fn heralds(limits: Limits) -> SimulatedServer {
    let conditions = Conditions {
        limits,
        balancers: balancers(),
        ..Conditions::calm(1)
    };
    SimulatedServer::new(conditions, Herald)
}

fn turns(server: &mut SimulatedServer) {
    (0..50).for_each(|_| server.turn());
}

fn heard(client: &Client) -> String {
    String::from_utf8(client.read()).expect("text")
}

#[test]
fn sim_the_client_is_the_peer_and_the_balancer_is_known() {
    let mut server = heralds(Limits::default());
    for (header, client) in [
        (line(address("198.51.100.7:56324")), "198.51.100.7:56324"),
        (line(address("[2001:db8::7]:1")), "[2001:db8::7]:1"),
        (binary_for(address("198.51.100.8:2"), 0), "198.51.100.8:2"),
        (
            binary_for(address("[2001:db8::8]:3"), 900),
            "[2001:db8::8]:3",
        ),
        (local(), BALANCER),
        (b"PROXY UNKNOWN\r\n".to_vec(), BALANCER),
        (binary(0x21, 0x31, &[0; 216]), BALANCER),
    ] {
        let words = format!("{client} through {BALANCER}\n");
        // Cut at every byte: also with the first request in the segment of the header's end.
        for cut in 0..header.len().min(80) {
            let connection = server.connect_from(Some(address(BALANCER)));
            connection.write(&header[..cut]);
            server.turn();
            connection.write(&header[cut..]);
            connection.write(b"more.");
            turns(&mut server);
            assert_eq!(heard(&connection), format!("{words}MORE."), "cut at {cut}");
            connection.abort();
        }
    }
    let stalls = server.statistics().stalls();
    assert_eq!(stalls, 0, "a header is no shortage");
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_a_peer_without_an_address_may_not_send_a_header() {
    let mut server = heralds(Limits::default());
    let connection = server.connect();
    connection.write(&line(address("198.51.100.7:56324")));
    turns(&mut server);
    assert_eq!(connection.state(), ClientState::Reset);
    assert_eq!(heard(&connection), "");
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_the_limit_for_an_address_counts_the_client() {
    let mut server = heralds(Limits {
        connections_per_address: 2,
        ..Limits::default()
    });
    let mut connect = |client: &str| {
        let connection = server.connect_from(Some(address(BALANCER)));
        connection.write(&binary_for(address(client), 0));
        connection.write(b"hello");
        turns(&mut server);
        connection
    };
    let many: Vec<Client> = (1..6)
        .map(|host| connect(&format!("198.51.100.{host}:1")))
        .collect();
    let (second, third) = (connect("198.51.100.1:2"), connect("198.51.100.1:3"));
    let words = |client: &str| format!("{client} through {BALANCER}\nHELLO");
    for (client, host) in many.iter().zip(1..) {
        assert_eq!(heard(client), words(&format!("198.51.100.{host}:1")));
        assert_eq!(client.state(), ClientState::Open);
    }
    assert_eq!(heard(&second), words("198.51.100.1:2"));
    assert_eq!(heard(&third), "", "it is refused");
    assert_ne!(third.state(), ClientState::Open);
    assert_eq!(server.statistics().refused_address, 1);
    for client in many.into_iter().chain([second, third]) {
        client.abort();
    }
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_what_clients_hold_is_not_counted_with_the_balancer_that_sent_their_headers() {
    const BUFFERS: usize = 8 * 256;
    let conditions = Conditions {
        limits: Limits {
            buffer_bytes_max: BUFFERS * 4096,
            ..Limits::default()
        },
        balancers: balancers(),
        ..Conditions::calm(1)
    };
    let mut server = SimulatedServer::new(conditions, Hoard::default());
    let mut hold = |client: &str, fields_bytes: usize| {
        let header = binary_for(address(client), fields_bytes);
        let connection = server.connect_from(Some(address(BALANCER)));
        // All but the end is kept until that comes.
        let (first, rest) = header.split_at(header.len() - 9);
        connection.write(first);
        turns(&mut server);
        connection.write(&[rest, b"hold 120\nanything\n"].concat());
        turns(&mut server);
        connection
    };
    // Enough that holders are counted.
    let few: Vec<Client> = (0..4).map(|_| hold("198.51.100.1:1", 0)).collect();
    // Together more than an address may.
    let crowd: Vec<Client> = (2..10)
        .map(|host| hold(&format!("198.51.100.{host}:1"), 5_000))
        .collect();
    for client in few.iter().chain(&crowd) {
        assert_eq!(heard(client), "ok\n");
    }
    assert_eq!(server.statistics().address_share_stalls, 0);
}

#[test]
fn sim_a_header_has_the_deadline_of_a_head() {
    let limits = Limits::default();
    let mut server = heralds(limits.clone());
    let whole = binary_for(address("198.51.100.7:1"), 0);
    let silent = server.connect_from(Some(address(BALANCER)));
    let late = server.connect_from(Some(address(BALANCER)));
    late.write(&whole[..whole.len() - 1]);
    let introduced = server.connect_from(Some(address(BALANCER)));
    turns(&mut server);
    server.advance(limits.head_timeout - Duration::from_secs(1));
    introduced.write(&whole);
    turns(&mut server);
    // Its protocol's own deadline began with the header's end.
    server.advance(Duration::from_secs(2));
    turns(&mut server);
    for client in [&silent, &late] {
        assert_eq!(heard(client), "");
        assert_eq!(client.state(), ClientState::Finished);
    }
    assert_eq!(server.statistics().connections_expired(), 2);
    introduced.write(b"here.");
    turns(&mut server);
    let words = format!("198.51.100.7:1 through {BALANCER}\nHERE.");
    assert_eq!(heard(&introduced), words);
    [silent, late, introduced].iter().for_each(Client::abort);
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_a_header_that_is_on_its_way_when_the_server_drains_is_served() {
    let limits = Limits::default();
    let mut server = heralds(limits.clone());
    let whole = binary_for(address("198.51.100.7:1"), 0);
    let silent = server.connect_from(Some(address(BALANCER)));
    let half = server.connect_from(Some(address(BALANCER)));
    half.write(&whole[..9]);
    turns(&mut server);
    server.drain();
    turns(&mut server);
    half.write(&whole[9..]);
    turns(&mut server);
    half.write(b"served");
    turns(&mut server);
    let words = format!("198.51.100.7:1 through {BALANCER}\nSERVED");
    assert_eq!(heard(&half), words);
    assert_eq!(half.state(), ClientState::Finished, "and told of the drain");
    assert_eq!(silent.state(), ClientState::Open);
    server.advance(limits.drain_idle_timeout);
    turns(&mut server);
    assert_eq!(silent.state(), ClientState::Finished);
    assert!(server.has_ended());
    assert!(server.leaks().0.is_none());
}
