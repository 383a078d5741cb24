//! Event sources and their consumers on the simulated driver: hundreds of seeds, every failure.
//!
//! Producers and consumers of a few tokens register, refuse, leave, run out of memory and signal at
//! seeded moments, while the server may end. After every step
//! - both sides of a token are registered exactly if they are connected, and each end that knows of
//!   a partner has a registration;
//! - an end whose registration was refused knows no partner.
//!
//! And at the end
//! - every signal that was written was heard by a consumer, once, or is left. (Of a server that
//!   ended, none is heard twice.)
//!
//! `FLATPATH_SEED=N cargo test -p flatpath-pairing simulation` runs one seed alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatpath::simulation::{Conditions, Faults, Random, SimulatedServer, each_seed};
use flatpath::watch::Eventfd;
use flatpath_echo::Echo;
use flatpath_pairing::{
    Endpoint, EventSource, Intake, Item, Pairing, Pairings, Refused, RegisterError, Sink, Source,
    Token,
};

const SEEDS: u64 = 400;
const TOKENS: u64 = 3;
const TURNS_MAX: usize = 10_000;

/// A consumer that knows whether it is connected, and refuses when the test asks for it.
struct Listener {
    heard: Arc<AtomicU64>,
    is_connected: Arc<AtomicBool>,
    refuses: AtomicBool,
}

impl Listener {
    fn new(heard: &Arc<AtomicU64>) -> Arc<Endpoint<Listener>> {
        Arc::new(Endpoint::new(Listener {
            heard: Arc::clone(heard),
            is_connected: Arc::default(),
            refuses: AtomicBool::new(false),
        }))
    }

    fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }
}

impl Sink for Listener {
    fn connect(&self, _producer: &dyn Source) -> Result<(), Refused> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Refused::Declined);
        }
        assert!(!self.is_connected(), "connected twice");
        self.is_connected.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn disconnect(&self) {
        assert!(self.is_connected(), "disconnected twice");
        self.is_connected.store(false, Ordering::Relaxed);
    }

    fn intake(&self) -> Option<Arc<Intake>> {
        let heard = Arc::clone(&self.heard);
        let is_connected = Arc::clone(&self.is_connected);
        Some(Arc::new(move |item| {
            assert!(is_connected.load(Ordering::Relaxed), "called unconnected");
            if let Item::Signal(count) = item {
                heard.fetch_add(count, Ordering::Relaxed);
            }
        }))
    }
}

/// One token's two sides.
struct Line {
    source: Arc<Endpoint<EventSource>>,
    listener: Arc<Endpoint<Listener>>,
    produced: Option<Pairing>,
    consumed: Option<Pairing>,
    heard: Arc<AtomicU64>,
    written: u64,
}

/// How often what was refused.
#[derive(Debug, Default)]
struct Seen {
    matched: u64,
    declined: u64,
    no_memory: u64,
    no_orders: u64,
    shut_down: u64,
}

struct Run {
    dice: Random,
    server: SimulatedServer,
    pairings: Pairings,
    lines: Vec<Line>,
    seen: Seen,
}

impl Run {
    fn new(seed: u64) -> Run {
        let conditions = Conditions {
            faults: Faults::mixed(seed),
            ..Conditions::calm(seed)
        };
        let server = SimulatedServer::new(conditions, Echo);
        let handle = server.handle();
        let lines = (0..TOKENS).map(|_| {
            let heard = Arc::default();
            Line {
                source: Arc::new(Endpoint::new(EventSource::new(
                    &handle,
                    Eventfd::simulated(),
                ))),
                listener: Listener::new(&heard),
                produced: None,
                consumed: None,
                heard,
                written: 0,
            }
        });
        Run {
            dice: Random::new(seed),
            lines: lines.collect(),
            server,
            pairings: Pairings::new(100),
            seen: Seen::default(),
        }
    }

    /// Something happens to a random token.
    fn step(&mut self) {
        let number = self.dice.up_to(TOKENS - 1);
        let token = Token(number + 1);
        // What fails, if anything: no memory for the registry, or for the order of a watch.
        let misfortune = self.dice.below(6);
        self.pairings.starve(misfortune == 0);
        self.server.starve_watches(misfortune == 1);
        let refuses = self.dice.below(4) == 0;
        let act = self.dice.below(6);
        let line = &mut self.lines[number as usize];
        line.listener.refuses.store(refuses, Ordering::Relaxed);
        let refused = match act {
            0 if line.produced.is_none() => match self.pairings.produce(token, &line.source) {
                Ok(pairing) => {
                    line.produced = Some(pairing);
                    None
                }
                Err(error) => {
                    assert!(!line.source.is_registered());
                    Some(error)
                }
            },
            1 if line.consumed.is_none() => match self.pairings.consume(token, &line.listener) {
                Ok(pairing) => {
                    line.consumed = Some(pairing);
                    None
                }
                Err(error) => {
                    assert!(!line.listener.is_registered() && !line.listener.is_connected());
                    Some(error)
                }
            },
            2 => {
                line.produced = None;
                None
            }
            3 => {
                line.consumed = None;
                None
            }
            _ => {
                let count = 1 + self.dice.up_to(2);
                line.source.eventfd().write(count).expect("room");
                line.written += count;
                None
            }
        };
        match refused {
            None => {}
            Some(RegisterError::NoMemory) => self.seen.no_memory += 1,
            Some(RegisterError::Connect(Refused::Declined)) => self.seen.declined += 1,
            Some(RegisterError::Connect(Refused::NoMemory)) => self.seen.no_orders += 1,
            Some(RegisterError::Connect(Refused::ShutDown)) => self.seen.shut_down += 1,
            Some(other) => panic!("refused: {other:?}"),
        }
    }

    /// Connected and tracked are one.
    fn check(&self) {
        let mut pairs = 0;
        for (number, line) in (1..).zip(&self.lines) {
            let is_pair = line.produced.is_some() && line.consumed.is_some();
            pairs += u64::from(is_pair);
            assert_eq!(self.pairings.is_connected(Token(number)), is_pair);
            assert_eq!(line.listener.is_connected(), is_pair);
            assert_eq!(line.source.is_registered(), line.produced.is_some());
            assert_eq!(line.listener.is_registered(), line.consumed.is_some());
        }
        assert_eq!(self.pairings.figures().paired, pairs);
    }

    /// Ends what is there and compares what was written with what was heard.
    fn settle(mut self, is_over: bool) -> Seen {
        for line in &mut self.lines {
            (line.produced, line.consumed) = (None, None);
        }
        self.pairings.starve(false);
        self.server.starve_watches(false);
        let mut turns = 0;
        while !is_over && self.server.leaks().0.operations.len() > 1 {
            // The accept stays.
            self.server.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "a watch does not end");
        }
        for line in &self.lines {
            let left = line.source.eventfd().take().unwrap_or(0) + line.source.take_left();
            let heard = line.heard.load(Ordering::Relaxed);
            if is_over {
                assert!(heard + left <= line.written, "a signal was heard twice");
            } else {
                assert_eq!(heard + left, line.written);
            }
        }
        self.seen.matched = self.pairings.figures().matched;
        self.seen
    }
}

fn run(seed: u64, ends_early: bool) -> Seen {
    let mut run = Run::new(seed);
    let steps = 50 + run.dice.below(200);
    let end = run.dice.below(steps);
    for step in 0..steps {
        if ends_early && step == end {
            run.server.drain();
        }
        run.step();
        run.check();
        if run.dice.below(3) == 0 && !run.server.has_ended() {
            run.server.turn();
        }
    }
    if !ends_early {
        return run.settle(false);
    }
    let mut turns = 0;
    while !run.server.has_ended() {
        run.server.turn();
        turns += 1;
        assert!(turns < TURNS_MAX, "the drain is stuck");
    }
    run.check();
    run.settle(true)
}

fn run_all(ends_early: bool) -> Seen {
    let mut all = Seen::default();
    for seen in each_seed(SEEDS, |seed| run(seed, ends_early)) {
        all.matched += seen.matched;
        all.declined += seen.declined;
        all.no_memory += seen.no_memory;
        all.no_orders += seen.no_orders;
        all.shut_down += seen.shut_down;
    }
    all
}

#[test]
fn sim_registrations_survive_failed_allocations_and_refused_connects() {
    let seen = run_all(false);
    assert!(seen.matched > 0 && seen.declined > 0, "{seen:?}");
    assert!(seen.no_memory > 0 && seen.no_orders > 0, "{seen:?}");
}

#[test]
fn sim_registrations_survive_a_server_that_ends_while_they_connect() {
    let seen = run_all(true);
    assert!(seen.matched > 0 && seen.shut_down > 0, "{seen:?}");
}
