//! TLS on the simulated driver: many seeds, every fault.
//!
//! Clients speak both versions, cut what they send anywhere, change keys, and end with
//! close_notify or without. Checked are
//! - without losses: each hears what its commands are answered with, and the end;
//! - with losses: what is heard is the beginning of that;
//! - always: the server gives everything back.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath --test it simulation_tls` runs one seed alone.

use std::sync::Arc;
use std::time::Duration;

use crate::lines::Lines;
use crate::tls_client::{TURNS_MAX, TlsClient, VERSIONS, client_config, server_config};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::rustls::ClientConfig;
use flatpath::tls::rustls::version::TLS13;
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};

const SEEDS: u64 = 60;

/// Commands, and what they are answered with.
fn script(dice: &mut Random) -> (Vec<String>, String) {
    let (mut said, mut owed) = (Vec::new(), String::new());
    for _ in 0..dice.below(12) {
        let (line, reply) = match dice.below(4) {
            0 => {
                let count = dice.below(100_000);
                (format!("big {count}\n"), "x".repeat(count) + "\n")
            }
            1 => {
                let padding = "a".repeat(dice.below(40_000));
                (format!("ping {padding}\n"), "pong\n".to_owned())
            }
            _ => ("ping\n".to_owned(), "pong\n".to_owned()),
        };
        said.push(line);
        owed += &reply;
    }
    (said, owed)
}

struct Talker {
    client: Client,
    tls: TlsClient,
    said: Vec<String>,
    owed: String,
    /// Bytes on their way to the server, and how many of them it has.
    out: Vec<u8>,
    chunk_bytes_max: usize,
    has_closed: bool,
    /// Says so when it has said all.
    closes: bool,
    ended: bool,
}

impl Talker {
    fn new(server: &SimulatedServer, configs: &[Arc<ClientConfig>], dice: &mut Random) -> Talker {
        let (mut said, owed) = script(dice);
        said.reverse();
        Talker {
            client: server.connect(),
            tls: TlsClient::new(&configs[dice.below(configs.len())]),
            said,
            owed,
            out: Vec::new(),
            chunk_bytes_max: [50, 300, 5000, 100_000][dice.below(4)],
            has_closed: false,
            closes: true,
            ended: false,
        }
    }

    fn step(&mut self, dice: &mut Random) {
        if self.ended {
            return;
        }
        let open = self.client.state() == ClientState::Open;
        self.tls.feed(&self.client.read());
        if !self.tls.tls.is_handshaking() && dice.below(2) == 0 {
            // TLS 1.2 has no other keys.
            let has_others = self.tls.tls.protocol_version() == Some(TLS13.version);
            if has_others && !self.has_closed && dice.below(8) == 0 {
                self.tls.tls.refresh_traffic_keys().expect("TLS 1.3");
            }
            match self.said.pop() {
                Some(line) => self.tls.say(line.as_bytes()),
                None if self.closes && !self.has_closed => {
                    self.tls.tls.send_close_notify();
                    self.has_closed = true;
                }
                None => {}
            }
        }
        self.out.append(&mut self.tls.take());
        let count = self.out.len().min(1 + dice.below(self.chunk_bytes_max));
        if open && count > 0 {
            let chunk: Vec<u8> = self.out.drain(..count).collect();
            self.client.write(&chunk);
        }
        if !open {
            self.tls.feed(&self.client.read());
            self.ended = true;
        }
    }

    fn check(&mut self, seed: u64, lossless: bool) {
        let heard = std::str::from_utf8(&self.tls.heard).expect("text");
        assert!(self.owed.starts_with(heard), "seed {seed}: other words");
        if lossless {
            let broken = &self.tls.broken;
            assert_eq!(broken, &None, "seed {seed}");
            assert_eq!(heard.len(), self.owed.len(), "seed {seed}");
            assert_eq!(self.client.state(), ClientState::Finished, "seed {seed}");
            assert!(self.tls.was_told_of_the_end(), "seed {seed}: cut off");
        }
    }
}

fn run(seed: u64, faults: Faults, lossless: bool) {
    let mut dice = Random::new(seed);
    let conditions = Conditions {
        tls: Some(server_config()),
        ciphers_cached_max: [0, 2, usize::MAX][dice.below(3)],
        ..Conditions::drawn(seed, &mut dice, faults)
    };
    let mut server = SimulatedServer::new(conditions, Lines);
    let configs = VERSIONS.map(client_config);
    let mut talkers: Vec<Talker> = (0..1 + dice.below(8))
        .map(|_| Talker::new(&server, &configs, &mut dice))
        .collect();
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "seed {seed}: a client still waits");
        talkers.iter_mut().for_each(|talker| talker.step(&mut dice));
        server.turn();
        server.advance(Duration::from_micros(dice.up_to(200)));
        if talkers.iter().all(|talker| talker.ended) {
            break;
        }
    }
    for talker in &mut talkers {
        talker.check(seed, lossless);
    }
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_a_calm_world() {
    each_seed(SEEDS, |seed| run(seed, Faults::none(), true));
}

#[test]
fn sim_faults_without_losses() {
    each_seed(SEEDS, |seed| {
        run(seed, Faults::mixed(seed).without_losses(), true);
    });
}

#[test]
fn sim_faults_with_losses() {
    each_seed(SEEDS, |seed| run(seed, Faults::mixed(seed), false));
}
