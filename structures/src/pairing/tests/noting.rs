//! Sides that write down what happens to them.

use super::*;
use crate::sync::{Mutex, lock};

/// Callbacks in the order they were made.
pub(super) type Log = Arc<Mutex<Vec<&'static str>>>;

/// What a side does when it is asked to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Agrees,
    Refuses,
    Panics,
    /// When it is parted from its peer.
    PanicsOnParting,
}

/// A side that writes down what happens to it.
pub(super) struct Noting {
    pub(super) log: Log,
    /// The names of its callbacks: add, del, stop, start.
    names: [&'static str; 4],
    pub(super) mood: Mutex<Mood>,
}

impl Noting {
    fn note(&self, callback: usize) {
        lock(&self.log).push(self.names[callback]);
    }

    fn part(&self) {
        self.note(1);
        let mood = *lock(&self.mood);
        assert_ne!(mood, Mood::PanicsOnParting, "on purpose");
    }

    fn connect(&self) -> Result<(), &'static str> {
        self.note(0);
        match *lock(&self.mood) {
            Mood::Agrees | Mood::PanicsOnParting => Ok(()),
            Mood::Refuses => Err("refused"),
            Mood::Panics => panic!("on purpose"),
        }
    }
}

impl Producer<Noting> for Noting {
    type Error = &'static str;
    fn add_consumer(&self, _consumer: &Noting) -> Result<(), &'static str> {
        self.connect()
    }
    fn del_consumer(&self, _consumer: &Noting) {
        self.part();
    }
    fn stop(&self) {
        self.note(2);
    }
    fn start(&self) {
        self.note(3);
    }
}

impl Consumer<Noting> for Noting {
    type Error = &'static str;
    fn add_producer(&self, _producer: &Noting) -> Result<(), &'static str> {
        self.connect()
    }
    fn del_producer(&self, _producer: &Noting) {
        self.part();
    }
    fn stop(&self) {
        self.note(2);
    }
    fn start(&self) {
        self.note(3);
    }
}

pub(super) type Noted = Registry<Event, Noting, Noting>;

/// A registry, a producer and a consumer that share a log.
pub(super) struct Bench {
    pub(super) registry: Noted,
    pub(super) log: Log,
    pub(super) producer: Arc<Endpoint<Noting>>,
    pub(super) consumer: Arc<Endpoint<Noting>>,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let log = Log::default();
        Bench {
            registry: Noted::new(1_000),
            producer: producer(&log),
            consumer: consumer(&log),
            log,
        }
    }

    pub(super) fn produce(
        &self,
        key: Event,
    ) -> Result<Registration<&Noted>, RegisterError<&'static str>> {
        Registry::register_producer(&self.registry, key, Arc::clone(&self.producer))
    }

    pub(super) fn consume(
        &self,
        key: Event,
    ) -> Result<Registration<&Noted>, RegisterError<&'static str>> {
        Registry::register_consumer(&self.registry, key, Arc::clone(&self.consumer))
    }

    pub(super) fn moods(&self, producer: Mood, consumer: Mood) {
        *lock(&self.producer.mood) = producer;
        *lock(&self.consumer.mood) = consumer;
    }

    pub(super) fn take_log(&self) -> String {
        std::mem::take(&mut *lock(&self.log)).join(" ")
    }
}

pub(super) fn producer(log: &Log) -> Arc<Endpoint<Noting>> {
    let names = ["P.add", "P.del", "P.stop", "P.start"];
    noting(log, names)
}

pub(super) fn consumer(log: &Log) -> Arc<Endpoint<Noting>> {
    let names = ["C.add", "C.del", "C.stop", "C.start"];
    noting(log, names)
}

fn noting(log: &Log, names: [&'static str; 4]) -> Arc<Endpoint<Noting>> {
    let mood = Mutex::new(Mood::Agrees);
    Arc::new(Endpoint::new(Noting {
        log: Arc::clone(log),
        names,
        mood,
    }))
}

pub(super) const CONNECTED: &str = "P.stop C.stop P.add C.add C.start P.start";
pub(super) const PARTED: &str = "P.stop C.stop C.del P.del C.start P.start";
