//! Ingest on the simulated driver: hundreds of seeds, every fault, consumers that come and die.
//!
//! Network, kernel and clock are simulated. The region is a real sealed memfd, the consumers are
//! real ones that attach over a real socket and read real pipes; nothing of that moves by itself,
//! because the control has no thread here: the run gives it its rounds. Always
//! - a message comes whole and unchanged, those of a producer in order, none twice;
//! - each fragment that was delivered is returned or taken back, and no return is refused;
//! - at the end no page is kept, no peer is left, and nothing is leaked.
//!
//! In a world without losses, with consumers that stay, every message comes.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath-ingest --test it simulation` runs one seed alone.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::rig::{check, message};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{DriverConfig, Limits, OperationMode};
use flatpath_consumer::{Consumer, Error, Message};
use flatpath_driver::simulation::{
    Client, ClientState, Fault, Faults, Injected, Random, each_seed,
};
use flatpath_ingest::{Control, Ingest, Settings};

const SEEDS: u64 = 120;
const TURNS_MAX: usize = 50_000;
/// About the longest message that half a window holds.
const LENGTH_MAX: usize = 12_000;

struct Producer {
    client: Client,
    /// What is still to be said.
    words: Vec<u8>,
    is_restless: bool,
    finished: bool,
}

impl Producer {
    fn new(server: &SimulatedServer, number: u32, messages: u32, dice: &mut Random) -> Producer {
        let mut words = Vec::new();
        for each in 0..messages {
            let long = dice.below(2) == 0;
            let length = 8 + dice.below(if long { LENGTH_MAX - 8 } else { 200 });
            let message = message(number, each, length);
            words.extend((message.len() as u32).to_be_bytes());
            words.extend(message);
        }
        Producer {
            client: server.connect(),
            words,
            is_restless: false,
            finished: false,
        }
    }

    fn step(&mut self, dice: &mut Random) {
        if self.finished {
            return;
        }
        if self.client.state() == ClientState::Reset || self.is_restless && dice.below(60) == 0 {
            self.client.abort();
            self.finished = true;
            return;
        }
        let most = [3, 100, 5000][dice.below(3)];
        let count = self.words.len().min(dice.below(most) + 1);
        self.client.write(&self.words[..count]);
        self.words.drain(..count);
        if self.words.is_empty() {
            self.client.shutdown_write();
            self.finished = true;
        }
    }
}

struct Reader {
    consumer: Consumer,
    kept: Vec<Message>,
}

impl Reader {
    /// Attaches: blocks, so another thread does it while the control has its rounds.
    fn attach(socket: &Path, control: &mut Control) -> Reader {
        let consumer = std::thread::scope(|scope| {
            let attaching = scope.spawn(|| Consumer::attach(socket));
            while !attaching.is_finished() {
                control.round();
                std::thread::yield_now();
            }
            attaching.join().expect("no panic").expect("attached")
        });
        Reader {
            consumer,
            kept: Vec::new(),
        }
    }

    fn step(&mut self, dice: &mut Random, seen: &mut Seen) {
        for _ in 0..dice.below(4) {
            match self.consumer.receive_timeout(Duration::ZERO) {
                Ok(Some(message)) => {
                    seen.note(&message);
                    self.kept.push(message);
                }
                Err(Error::TimedOut) => break,
                other => panic!("{other:?}"),
            }
        }
        // What is held cannot fill the window for ever.
        while self.kept.len() > 2 || !self.kept.is_empty() && dice.below(3) == 0 {
            let which = dice.below(self.kept.len());
            // It was not written to meanwhile.
            check(&self.kept[which].to_vec());
            drop(self.kept.swap_remove(which));
        }
        if dice.below(2) == 0 {
            self.consumer.flush();
        }
    }
}

/// Which message was the last of each producer, and how many there were.
#[derive(Default)]
struct Seen {
    last: HashMap<u32, u32>,
    count: u64,
}

impl Seen {
    fn note(&mut self, message: &Message) {
        let (producer, number) = check(&message.to_vec());
        let before = self.last.insert(producer, number);
        assert!(
            before.is_none_or(|before| number > before),
            "message {number} of producer {producer} after {before:?}"
        );
        self.count += 1;
    }
}

fn conditions(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
    const LONG: u64 = 100_000 * 1_000_000_000;
    Conditions {
        faults,
        driver: DriverConfig {
            completion_entries: [4, 64, 4096][dice.below(3)],
            ..DriverConfig::default()
        },
        limits: Limits {
            head_timeout: Duration::from_nanos(LONG),
            idle_timeout: Duration::from_nanos(LONG),
            body_timeout: Duration::from_nanos(LONG),
            stall_timeout: Duration::from_nanos(LONG),
            write_timeout: Duration::from_nanos(LONG),
            wait_timeout: Duration::from_nanos(LONG),
            drain_timeout: Duration::from_nanos(LONG),
            ..Limits::default()
        },
        accept: [OperationMode::Single, OperationMode::Multishot][dice.below(2)],
        ..Conditions::calm(seed)
    }
}

/// One world, until its server has ended.
struct World {
    dice: Random,
    lossless: bool,
    directory: tempfile::TempDir,
    control: Control,
    ingest: Ingest,
    server: SimulatedServer,
    producers: Vec<Producer>,
    readers: Vec<Reader>,
    seen: Seen,
    sent: u64,
}

impl World {
    fn new(seed: u64, faults: Faults, lossless: bool) -> World {
        let mut dice = Random::new(seed);
        let directory = tempfile::tempdir().expect("a directory");
        let settings = Settings {
            consumers_max: 2,
            ..crate::rig::small(directory.path().join("ingest"))
        };
        let (ingest, control) = Ingest::open_without_thread(settings).expect("open");
        let server = SimulatedServer::new(conditions(seed, &mut dice, faults), ingest.clone());
        World {
            dice,
            lossless,
            directory,
            control,
            ingest,
            server,
            producers: Vec::new(),
            readers: Vec::new(),
            seen: Seen::default(),
            sent: 0,
        }
    }

    /// A peer may come, each does a little, one may die.
    fn turn(&mut self, producers: usize) {
        let dice = &mut self.dice;
        let came = self.producers.len();
        if came < producers && dice.below(3) == 0 {
            let messages = 1 + dice.below(8) as u32;
            let mut producer = Producer::new(&self.server, came as u32, messages, dice);
            producer.is_restless = !self.lossless && dice.below(3) == 0;
            self.sent += u64::from(messages);
            self.producers.push(producer);
        }
        if self.readers.len() < 2 && dice.below(10) == 0 {
            let socket = self.directory.path().join("ingest");
            let reader = Reader::attach(&socket, &mut self.control);
            self.readers.push(reader);
        }
        self.server.turn();
        for producer in &mut self.producers {
            producer.step(dice);
        }
        for reader in &mut self.readers {
            reader.step(dice, &mut self.seen);
        }
        if !self.lossless && !self.readers.is_empty() && dice.below(80) == 0 {
            let which = dice.below(self.readers.len());
            self.readers.swap_remove(which);
        }
        if dice.below(2) == 0 {
            self.control.round();
        }
    }

    /// Takes what is left until all accounts are settled.
    fn settle(&mut self) {
        self.server.drain();
        for producer in &self.producers {
            if !self.lossless {
                producer.client.abort();
            }
        }
        for turn in 0.. {
            let figures = self.ingest.figures();
            assert!(turn < TURNS_MAX, "the drain is stuck: {figures}");
            let left = figures.producers + figures.fragments_held + figures.pages_retained;
            if self.server.has_ended() && left == 0 {
                break;
            }
            if !self.server.has_ended() {
                self.server.turn();
            }
            for reader in &mut self.readers {
                reader.step(&mut self.dice, &mut self.seen);
            }
            self.control.round();
        }
    }

    fn check(&mut self) {
        let figures = self.ingest.figures();
        let delivered = figures.fragments;
        let back = figures.fragments_returned + figures.fragments_reclaimed;
        assert_eq!(delivered, back, "each fragment came back once");
        assert_eq!(figures.returns_refused, 0);
        let messages = figures.messages;
        assert!(self.seen.count <= messages && messages <= self.sent);
        if self.lossless {
            assert_eq!((self.seen.count, messages), (self.sent, self.sent));
        }
        let (leaks, pooled_bytes) = self.server.leaks();
        assert!(leaks.is_none() && pooled_bytes == 0, "leaked: {leaks:?}");
    }
}

/// What a run came to.
#[derive(Default)]
struct Came {
    messages: u64,
    stalls: u64,
    reclaimed: u64,
    injected: Injected,
}

fn run(seed: u64, faults: Faults, lossless: bool, came: &mut Came) {
    let mut world = World::new(seed, faults, lossless);
    let producers = 1 + world.dice.below(6);
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "stuck: {}", world.ingest.figures());
        world.turn(producers);
        let all_said = world.producers.len() == producers
            && world.producers.iter().all(|producer| producer.finished);
        let over = world.ingest.figures().messages == world.sent;
        if all_said && (over || !lossless && turn > 300) {
            break;
        }
    }
    world.settle();
    world.check();
    let figures = world.ingest.figures();
    came.messages += world.seen.count;
    came.stalls += figures.producer_waits;
    came.reclaimed += figures.fragments_reclaimed;
    came.injected.add(&world.server.world().injected());
}

fn run_all(faults: impl Fn(u64) -> Faults, lossless: bool) -> Came {
    let mut came = Came::default();
    each_seed(SEEDS, |seed| run(seed, faults(seed), lossless, &mut came));
    came
}

#[test]
fn sim_every_message_comes_while_no_connection_is_lost() {
    let came = run_all(|seed| Faults::mixed(seed).without_losses(), true);
    let injected = came.injected;
    assert!(came.messages > SEEDS && came.stalls > 0);
    for fault in [Fault::ShortReceive, Fault::NoBuffer, Fault::Late] {
        assert!(injected.count(fault) > 0, "{fault:?} never struck");
    }
}

#[test]
fn sim_accounts_are_exact_in_a_calm_world_of_consumers_that_die() {
    let came = run_all(|_| Faults::none(), false);
    assert!(came.messages > SEEDS && came.reclaimed > 0);
}

#[test]
fn sim_accounts_are_exact_after_every_failure() {
    let came = run_all(Faults::mixed, false);
    assert!(came.messages > SEEDS && came.reclaimed > 0);
    for fault in [Fault::ReceiveReset, Fault::ReceiveTimeOut] {
        assert!(came.injected.count(fault) > 0, "{fault:?} never struck");
    }
}
