//! Connections that change their protocol on the simulated driver: hundreds of seeds, every fault.
//!
//! Clients say commands in pieces of any size. Checked are
//! - without losses: each hears exactly what its commands are answered with, in order, by the
//!   protocol whose turn it is, and the end behind it;
//! - with losses: what is heard is the beginning of that;
//! - always: every session that began was closed, no job met a stranger, and the server ends when
//!   it drains and has given everything back.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath --test it simulation_hand_over` runs one seed alone.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::speakers::{heard_after, troupe};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};

const SEEDS: u64 = 300;
const TURNS_MAX: usize = 100_000;

struct Talker {
    client: Client,
    script: String,
    said: usize,
    heard: Vec<u8>,
    leaves_early: bool,
    ended: bool,
}

impl Talker {
    fn new(server: &SimulatedServer, dice: &mut Random, lossless: bool) -> Talker {
        let mut script = String::new();
        for number in 0..dice.below(30) {
            script += &match dice.below(6) {
                0 | 1 => "ping\n".to_owned(),
                2 => format!("work {number}\n"),
                3 => format!("try {}\n", 1 + dice.below(3)),
                _ => format!("go {}\n", 1 + dice.below(3)),
            };
        }
        Talker {
            client: server.connect(),
            script,
            said: 0,
            heard: Vec::new(),
            leaves_early: !lossless && dice.below(4) == 0,
            ended: false,
        }
    }

    fn step(&mut self, dice: &mut Random) {
        if self.ended {
            return;
        }
        if self.said < self.script.len() || self.script.is_empty() {
            let count = (1 + dice.below(40)).min(self.script.len() - self.said);
            let piece = &self.script.as_bytes()[self.said..self.said + count];
            self.client.write(piece);
            self.said += count;
            if self.said == self.script.len() {
                // The end of the stream may come with the last command, or after its answer.
                self.client.shutdown_write();
                self.script += if self.script.is_empty() { "\n" } else { "" };
                self.said = self.script.len();
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
}

fn run(seed: u64, faults: Faults, lossless: bool) {
    let mut dice = Random::new(seed);
    let (speaker, troupe) = troupe();
    let mut server = SimulatedServer::new(Conditions::drawn(seed, &mut dice, faults), speaker);
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
    for talker in &talkers {
        let owed = heard_after(talker.script.trim_start_matches('\n'));
        let heard = std::str::from_utf8(&talker.heard).expect("text");
        if lossless {
            assert_eq!(
                heard,
                owed,
                "seed {seed}: {:?} {:?}",
                talker.client.state(),
                talker.script
            );
        } else {
            assert!(
                owed.starts_with(heard),
                "seed {seed}: {heard:?} of {owed:?}"
            );
        }
    }
    server.drain();
    server.end(TURNS_MAX);
    let (begun, closed) = (&troupe.begun, &troupe.closed);
    assert_eq!(begun.load(Relaxed), closed.load(Relaxed), "seed {seed}");
    assert_eq!(troupe.strangers.load(Relaxed), 0, "seed {seed}");
}

in_each_world!(SEEDS, run);
