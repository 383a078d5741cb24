//! Clients that say the same word are joined: producers and consumers in the pairing registry, TCP
//! connections as their ends, bytes past the workers.
//!
//! ```console
//! $ cargo run -p flatpath --example rendezvous
//! $ nc 127.0.0.1 7777    # say: give coffee
//! $ nc 127.0.0.1 7777    # say: take coffee
//! ```
//!
//! One that gives is a producer, one that takes a consumer. The registry introduces them and tells
//! both; whoever came second asks the engine to join the two connections.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use flatpath::pairing::{Consumer, Endpoint, PairingKey, Producer, Registration, Registry};
use flatpath::{Context, End, Job, Phase, Protocol, Server, Spread, WorkerScope};

/// What they call it, hashed. A service that must not join strangers compares the words as well.
#[derive(Clone, Copy)]
pub(crate) struct Thing(u64);

impl PairingKey for Thing {
    fn word(self) -> u64 {
        self.0
    }
}

/// A client that has said what it wants.
pub(crate) struct Party {
    end: End,
    partner: Mutex<Option<End>>,
}

impl Party {
    fn set(&self, partner: Option<End>) {
        *self.partner.lock().unwrap_or_else(PoisonError::into_inner) = partner;
    }

    fn partner(&self) -> Option<End> {
        *self.partner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Producer<Party> for Party {
    type Error = std::convert::Infallible;

    fn add_consumer(&self, consumer: &Party) -> Result<(), Self::Error> {
        self.set(Some(consumer.end));
        Ok(())
    }

    fn del_consumer(&self, _consumer: &Party) {
        self.set(None);
    }
}

impl Consumer<Party> for Party {
    type Error = std::convert::Infallible;

    fn add_producer(&self, producer: &Party) -> Result<(), Self::Error> {
        self.set(Some(producer.end));
        Ok(())
    }

    fn del_producer(&self, _producer: &Party) {
        self.set(None);
    }
}

pub(crate) type Parties = Registry<Thing, Party, Party>;

/// The service.
pub(crate) struct Rendezvous(Arc<Parties>);

impl Rendezvous {
    pub(crate) fn new() -> Rendezvous {
        Rendezvous(Arc::new(Registry::new(10_000)))
    }

    fn register(
        &self,
        line: &str,
        party: Arc<Endpoint<Party>>,
    ) -> Option<Registration<Arc<Parties>>> {
        let (verb, thing) = line.split_once(' ')?;
        let mut hasher = DefaultHasher::new();
        thing.hash(&mut hasher);
        let (registry, key) = (Arc::clone(&self.0), Thing(hasher.finish().max(1)));
        match verb {
            "give" => Registry::register_producer(registry, key, party).ok(),
            "take" => Registry::register_consumer(registry, key, party).ok(),
            _ => None,
        }
    }
}

impl Protocol for Rendezvous {
    type Lane = ();
    /// Dropped with the connection: then the pair is parted and the word is free.
    type Session = Option<Registration<Arc<Parties>>>;
    type Job = ();

    fn name(&self) -> &'static str {
        "rendezvous"
    }

    fn spread(&self) -> Spread {
        Spread::OneRing
    }

    fn lane(&self) {}

    fn received(
        &self,
        _lane: &mut (),
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        input: &[u8],
    ) -> usize {
        let line_end = input.iter().position(|byte| *byte == b'\n');
        let (Some(length), None) = (line_end, &session) else {
            // No whole line yet, or somebody who speaks before the other is there.
            if session.is_some() || input.len() > 100 {
                context.close_lingering();
            }
            return 0;
        };
        let line = String::from_utf8_lossy(&input[..length]);
        let party = Arc::new(Endpoint::new(Party {
            end: context.end(),
            partner: Mutex::default(),
        }));
        *session = self.register(line.trim_end(), Arc::clone(&party));
        match (party.partner(), &session) {
            (Some(partner), _) => context.join(partner),
            (None, Some(_)) => context.phase(Phase::Wait),
            (None, None) => {
                context.write_static(b"no: say give THING or take THING, once each\n");
                context.close_lingering();
            }
        }
        length + 1
    }

    fn joined(&self, _: &mut (), _: &mut Self::Session, context: &mut Context<'_, Self>) {
        context.write_static(b"here you are\n");
    }

    fn run(&self, _job: &mut (), _scope: &mut WorkerScope<'_>) {}

    fn panicked(&self, _job: &mut ()) {}

    fn finished(
        &self,
        _lane: &mut (),
        _session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        job: Job<Self>,
    ) {
        context.recycle(job);
    }
}

#[allow(dead_code, reason = "the test has one of its own")]
fn main() -> Result<(), flatpath::Error> {
    Server::new()
        .listen("127.0.0.1:7777", Rendezvous::new())
        .run()
}
