//! The relay on the simulated driver: hundreds of seeds, every fault. Registrations survive them.
//!
//! Clients with a few tokens and sides come, wait, speak, leave and break at seeded moments. Always
//! - a client that was sent `ok` gets the bytes of one partner from their beginning, and no others;
//! - no more clients wait than there are places;
//! - a match that was counted was spliced, and a pair that was spliced was counted;
//! - at the end no client waits, no pair is left, and nothing is leaked.
//!
//! In a world without losses every pair of clients with a token of its own is connected.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath-relay simulation` runs one seed alone.

use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};
use flatpath_relay::{Relay, WAITING_MAX};

const SEEDS: u64 = 400;
const TURNS_MAX: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Speaks after its `ok`, then finishes.
    Polite,
    Impatient,
    Rude,
    /// Leaves or breaks at any time.
    Restless,
}

struct Visitor {
    number: usize,
    token: usize,
    client: Client,
    manner: Manner,
    said_words: bool,
    heard: Vec<u8>,
    over: bool,
}

impl Visitor {
    fn new(
        server: &SimulatedServer,
        number: usize,
        token: usize,
        side: usize,
        manner: Manner,
    ) -> Visitor {
        let client = server.connect();
        let side = match side {
            0 => String::new(),
            side => format!(" for side {side:016x}"),
        };
        if manner == Manner::Rude {
            client.write(b"what?\n");
        } else {
            client.write(format!("please relay {token:064x}{side}\n").as_bytes());
        }
        Visitor {
            number,
            token,
            client,
            manner,
            said_words: false,
            heard: Vec::new(),
            over: false,
        }
    }

    fn words(&self) -> Vec<u8> {
        format!("{} of {};", self.number, self.token).into_bytes()
    }

    fn step(&mut self, dice: &mut Random) {
        if self.over {
            return;
        }
        self.heard.extend(self.client.read());
        let welcome = self.heard.starts_with(b"ok\n");
        let state = self.client.state();
        // A client that was sent `ok` still sends, also to one that has finished.
        if state == ClientState::Reset
            || state == ClientState::Finished && welcome == self.said_words
        {
            self.heard.extend(self.client.read());
            if !welcome {
                self.client.abort();
            }
            self.over = true;
            return;
        }
        let speaks = welcome || self.manner == Manner::Impatient && dice.below(10) == 0;
        if speaks && !self.said_words {
            self.said_words = true;
            self.client.write(&self.words());
            self.client.shutdown_write();
        }
        if self.manner == Manner::Restless && dice.below(20) == 0 {
            self.client.abort();
            self.over = true;
        }
    }
}

fn run(seed: u64, faults: Faults, lossless: bool) -> u64 {
    let mut dice = Random::new(seed);
    let places = if lossless {
        WAITING_MAX
    } else {
        [1, 2, WAITING_MAX][dice.below(3)]
    };
    let relay = Relay::new().waiting_max(places);
    let counters = relay.statistics();
    let mut server = SimulatedServer::new(Conditions::drawn(seed, &mut dice, faults), relay);
    let count = 2 * (1 + dice.below(8));
    let tokens = if lossless {
        count / 2
    } else {
        1 + dice.below(3)
    };
    let mut visitors: Vec<Visitor> = Vec::new();
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "stuck: {:?}", counters.read());
        let number = visitors.len();
        if number < count && dice.below(3) == 0 {
            let manner = match dice.below(6) {
                _ if lossless => Manner::Polite,
                0 => Manner::Impatient,
                1 => Manner::Rude,
                2 | 3 => Manner::Restless,
                _ => Manner::Polite,
            };
            let token = if lossless {
                number / 2
            } else {
                dice.below(tokens)
            };
            let side = if lossless { number % 2 } else { dice.below(3) };
            visitors.push(Visitor::new(&server, number, token, side, manner));
        }
        server.turn();
        assert!(counters.read().waiting <= u64::from(places));
        visitors
            .iter_mut()
            .for_each(|visitor| visitor.step(&mut dice));
        let all_came = visitors.len() == count;
        if all_came && (visitors.iter().all(|visitor| visitor.over) || !lossless && turn > 400) {
            break;
        }
    }
    check(&visitors, lossless);
    server.drain();
    visitors.iter().for_each(|visitor| visitor.client.abort());
    server.end(TURNS_MAX);
    let end = counters.read();
    assert_eq!((end.waiting, end.paired), (0, 0), "{end:?}");
    assert_eq!(end.matched, server.statistics().spliced_pairs, "{end:?}");
    assert_eq!(end.matched, server.statistics().unspliced, "{end:?}");
    end.matched
}

fn check(visitors: &[Visitor], lossless: bool) {
    for visitor in visitors {
        let heard = &visitor.heard[..];
        let Some(words) = heard.strip_prefix(b"ok\n") else {
            let known = [
                "ok\n",
                "impatient\n",
                "bad handshake\n",
                "taken\n",
                "busy\n",
            ];
            let known = known.map(str::as_bytes);
            let whole = known.iter().any(|words| words.starts_with(heard));
            assert!(whole, "{}", String::from_utf8_lossy(heard));
            assert!(!lossless, "not connected");
            continue;
        };
        let others = visitors
            .iter()
            .filter(|other| other.token == visitor.token && other.number != visitor.number);
        let sources = others
            .filter(|other| other.words().starts_with(words))
            .count();
        assert!(sources > 0, "{}", String::from_utf8_lossy(heard));
        if lossless {
            assert!(words.ends_with(b";"), "{}", String::from_utf8_lossy(heard));
        }
    }
}

fn run_all(faults: impl Fn(u64) -> Faults, lossless: bool) -> u64 {
    let matched = each_seed(SEEDS, |seed| run(seed, faults(seed), lossless));
    matched.iter().sum()
}

#[test]
fn sim_every_pair_is_connected_while_no_connection_is_lost() {
    assert!(run_all(|seed| Faults::mixed(seed).without_losses(), true) > SEEDS);
}

#[test]
fn sim_registrations_survive_a_calm_world_of_restless_clients() {
    assert!(run_all(|_| Faults::none(), false) > 0);
}

#[test]
fn sim_registrations_survive_every_failure() {
    assert!(run_all(Faults::mixed, false) > 0);
}
