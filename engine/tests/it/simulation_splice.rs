//! Joined connections on the simulated driver: hundreds of seeds, every fault.
//!
//! Clients in pairs say a name, then each sends and reads at its own pace. Checked are
//! - without losses: each hears `tied` and then exactly what the other said, and the end behind it;
//! - with losses: what is heard is the beginning of that;
//! - always: every pair that was spliced is unspliced, the server ends when it drains, and has
//!   given everything back.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath --test it simulation_splice` runs one seed alone.

use std::time::Duration;

use crate::knots::Knots;
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};

const SEEDS: u64 = 300;
const TURNS_MAX: usize = 100_000;

/// One half of a pair.
struct Half {
    client: Client,
    name: Vec<u8>,
    /// What is said behind the name.
    words: Vec<u8>,
    said: usize,
    finished: bool,
    heard: Vec<u8>,
    ended: bool,
    leaves_early: bool,
    reads_rarely: usize,
}

impl Half {
    fn new(server: &SimulatedServer, pair: usize, dice: &mut Random, lossless: bool) -> Half {
        let length = [0, 10, 3_000, 200_000][dice.below(4)];
        let salt = dice.below(250) as u8;
        Half {
            client: server.connect(),
            name: format!("{pair}\n").into_bytes(),
            words: (0..length).map(|at: u32| (at % 251) as u8 ^ salt).collect(),
            said: 0,
            finished: false,
            heard: Vec::new(),
            ended: false,
            leaves_early: !lossless && dice.below(4) == 0,
            reads_rarely: 1 + dice.below(8),
        }
    }

    fn step(&mut self, dice: &mut Random) {
        if self.ended {
            return;
        }
        if self.client.state() == ClientState::Reset {
            self.heard.extend(self.client.read());
            self.ended = true;
            return;
        }
        let all = self.name.len() + self.words.len();
        let heard_tied = self.heard.starts_with(b"tied\n");
        // A name whose owner finished while it waited would be forgotten.
        let may_say = if self.said < self.name.len() || heard_tied {
            all
        } else {
            all.min(self.name.len() + 8)
        };
        if self.said < may_say {
            let count = (1 + dice.below(20_000)).min(may_say - self.said);
            let script = [&self.name[..], &self.words[..]].concat();
            self.client.write(&script[self.said..self.said + count]);
            self.said += count;
        } else if self.said == all && heard_tied && !self.finished && dice.below(4) == 0 {
            self.client.shutdown_write();
            self.finished = true;
        }
        if dice.below(self.reads_rarely) == 0 {
            self.heard.extend(self.client.read());
        }
        if self.leaves_early && dice.below(60) == 0 {
            self.client.abort();
            self.ended = true;
        } else if self.client.state() != ClientState::Open && self.finished {
            self.heard.extend(self.client.read());
            self.ended = true;
        }
    }
}

fn conditions(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
    let drawn = Conditions::drawn(seed, dice, faults);
    Conditions {
        limits: Limits {
            // Two buffers to fill, or plenty.
            buffer_bytes_max: [300 << 10, 256 << 20][dice.below(2)],
            ..drawn.limits
        },
        ..drawn
    }
}

fn run(seed: u64, faults: Faults, lossless: bool) -> u64 {
    let mut dice = Random::new(seed);
    let mut server = SimulatedServer::new(conditions(seed, &mut dice, faults), Knots::default());
    let pairs = 1 + dice.below(5);
    let mut halves: Vec<[Half; 2]> = (0..pairs)
        .map(|pair| [(); 2].map(|()| Half::new(&server, pair, &mut dice, lossless)))
        .collect();
    let mut turns = 0;
    // One whose other half is gone may wait without end: the drain ends it.
    let over = |pair: &[Half; 2]| {
        let [one, other] = pair;
        one.ended && other.ended || !lossless && (one.ended || other.ended)
    };
    while !halves.iter().all(over) && (lossless || turns < 5_000) {
        server.turn();
        for half in halves.iter_mut().flatten() {
            half.step(&mut dice);
        }
        turns += 1;
        assert!(turns < TURNS_MAX, "stuck");
    }
    check(&halves, lossless);
    server.drain();
    for half in halves.iter().flatten().filter(|half| !half.ended) {
        half.client.abort();
    }
    server.end(TURNS_MAX);
    let statistics = server.statistics();
    assert_eq!(statistics.spliced_pairs, statistics.unspliced);
    statistics.spliced_pairs
}

fn check(halves: &[[Half; 2]], lossless: bool) {
    for [one, other] in halves {
        for (half, source) in [(one, other), (other, one)] {
            let owed = [b"tied\n", &source.words[..]].concat();
            if lossless {
                assert!(half.heard == owed, "{} of {}", half.heard.len(), owed.len());
            } else {
                assert!(owed.starts_with(&half.heard), "heard what was not said");
            }
        }
    }
}

fn run_all(faults: impl Fn(u64) -> Faults, lossless: bool) -> u64 {
    let spliced = each_seed(SEEDS, |seed| run(seed, faults(seed), lossless));
    spliced.iter().sum()
}

#[test]
fn sim_spliced_streams_arrive_whole_in_a_calm_world() {
    assert!(run_all(|_| Faults::none(), true) > 0);
}

#[test]
fn sim_spliced_streams_arrive_whole_while_no_connection_is_lost() {
    assert!(run_all(|seed| Faults::mixed(seed).without_losses(), true) > 0);
}

#[test]
fn sim_lost_ends_part_their_pairs_and_leak_nothing() {
    assert!(run_all(Faults::mixed, false) > 0);
}

#[test]
fn sim_what_passes_keeps_a_pair_and_silence_ends_it() {
    let mut conditions = Conditions::calm(1);
    conditions.limits.spliced_timeout = Duration::from_secs(10);
    let mut server = SimulatedServer::new(conditions, Knots::default());
    let turns = |server: &mut SimulatedServer| (0..20).for_each(|_| server.turn());
    let [one, other] = [(); 2].map(|()| server.connect());
    one.write(b"1\n");
    other.write(b"1\n");
    turns(&mut server);
    assert_eq!([one.read(), other.read()], [b"tied\n"; 2]);
    for _ in 0..4 {
        server.advance(Duration::from_secs(6));
        one.write(b"x");
        turns(&mut server);
        // Its own deadline moves, too, though it says nothing.
        assert_eq!(other.read(), b"x");
    }
    server.advance(Duration::from_secs(11));
    turns(&mut server);
    let states = [one.state(), other.state()];
    assert!(!states.contains(&ClientState::Open), "{states:?}");
    assert!(server.statistics().expired_spliced > 0);
    server.drain();
    server.end(TURNS_MAX);
}

/// One's long words come in the turn in which the other joins it: they wait for the end of the
/// turn, and what follows them is received then. Neither reads, so nothing else happens to them.
#[test]
fn sim_what_follows_words_that_waited_for_their_turn_is_received_at_once() {
    const BYTES: usize = 4_000;
    for seed in 1..20 {
        let mut server = SimulatedServer::new(Conditions::calm(seed), Knots::default());
        server.world().set_window_bytes(1);
        let turns = |server: &mut SimulatedServer| (0..20).for_each(|_| server.turn());
        let [one, other] = [(); 2].map(|()| server.connect());
        one.write(b"\n");
        other.write(b"\n");
        turns(&mut server);
        one.write(b"1\n");
        turns(&mut server);
        one.write(&[b'x'; BYTES]);
        other.write(b"1\n");
        turns(&mut server);
        one.write(&[b'x'; BYTES]);
        turns(&mut server);
        let passed = server.statistics().spliced_bytes_copied;
        assert_eq!(passed, 2 * BYTES as u64, "seed {seed}");
    }
}

/// The end of one stream and the drain come in the same turn: the words for the drain go out before
/// the end, which follows them.
#[test]
fn sim_words_that_are_written_while_an_end_is_passed_on_come_before_it() {
    let mut in_time = 0;
    for seed in 1..100 {
        let mut server = SimulatedServer::new(Conditions::calm(seed), Knots::default());
        let clients = [server.connect(), server.connect()];
        let mut heard = [Vec::new(), Vec::new()];
        let turn = |server: &mut SimulatedServer, heard: &mut [Vec<u8>; 2]| {
            server.turn();
            for (client, heard) in clients.iter().zip(heard) {
                heard.extend(client.read());
            }
        };
        clients.iter().for_each(|client| client.write(b"last\n"));
        for _ in 0..TURNS_MAX {
            if heard.iter().all(|heard| heard == b"tied\n") {
                break;
            }
            turn(&mut server, &mut heard);
        }
        assert_eq!(heard, [b"tied\n", b"tied\n"], "seed {seed}");
        clients[0].shutdown_write();
        for _ in 0..seed % 4 {
            turn(&mut server, &mut heard);
        }
        server.drain();
        for _ in 0..TURNS_MAX {
            if clients[1].state() != ClientState::Open {
                break;
            }
            turn(&mut server, &mut heard);
        }
        let words = &heard[1][5..];
        assert!(
            words.is_empty() || words == b"last\n",
            "seed {seed}: {words:?}"
        );
        in_time += u32::from(!words.is_empty());
        clients[1].shutdown_write();
        for _ in 0..TURNS_MAX {
            if server.has_ended() {
                break;
            }
            turn(&mut server, &mut heard);
        }
        assert!(server.has_ended(), "seed {seed}");
    }
    assert!(in_time > 0, "no seed had the two in one turn");
}
