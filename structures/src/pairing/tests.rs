//! Tests of the pairing: bodies for the model checkers, then the hazards by name.

use super::*;
use crate::sync::{AtomicU32, spawn};
use crate::testing::{join, model};

/// Keys of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Event(u64);

impl PairingKey for Event {
    fn word(self) -> u64 {
        self.0
    }
}

/// Counts what happens to a pair. Plain loads and stores: callbacks of a pair do not overlap.
#[derive(Debug)]
struct Counting {
    adds: AtomicU32,
    dels: AtomicU32,
}

impl Counting {
    fn endpoint() -> Arc<Endpoint<Counting>> {
        Arc::new(Endpoint::new(Counting {
            adds: AtomicU32::new(0),
            dels: AtomicU32::new(0),
        }))
    }

    fn counts(&self) -> (u32, u32) {
        let relaxed = Ordering::Relaxed;
        (self.adds.load(relaxed), self.dels.load(relaxed))
    }

    fn add(&self) {
        let (adds, dels) = self.counts();
        assert_eq!(adds, dels, "connected while connected");
        self.adds.store(adds + 1, Ordering::Relaxed);
    }

    fn del(&self) {
        let (adds, dels) = self.counts();
        assert_eq!(adds, dels + 1, "parted while not connected");
        self.dels.store(dels + 1, Ordering::Relaxed);
    }
}

impl Producer<Counting> for Counting {
    type Error = ();

    fn add_consumer(&self, _consumer: &Counting) -> Result<(), ()> {
        self.add();
        Ok(())
    }

    fn del_consumer(&self, _consumer: &Counting) {
        self.del();
    }
}

impl Consumer<Counting> for Counting {
    type Error = ();

    fn add_producer(&self, _producer: &Counting) -> Result<(), ()> {
        self.add();
        Ok(())
    }

    fn del_producer(&self, _producer: &Counting) {
        self.del();
    }
}

type Counted = Registry<Event, Counting, Counting>;

const KEY: Event = Event(42);

#[test]
fn loom_two_sides_that_register_at_once_are_connected_once() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let (producer, consumer) = (Counting::endpoint(), Counting::endpoint());
        let (its_registry, its_consumer) = (Arc::clone(&registry), Arc::clone(&consumer));
        let other = spawn(move || {
            Registry::register_consumer(its_registry, KEY, its_consumer).expect("free")
        });
        let produced = Registry::register_producer(&*registry, KEY, Arc::clone(&producer));
        let consumed = join(other);
        assert_eq!((producer.counts(), consumer.counts()), ((1, 0), (1, 0)));
        assert!(registry.is_connected(KEY));
        drop((produced.expect("free"), consumed));
        assert_eq!((producer.counts(), consumer.counts()), ((1, 1), (1, 1)));
        assert!(registry.is_empty());
    });
}

/// Hazard: who ends waits for callbacks that run on another thread.
#[test]
fn loom_an_end_beside_a_registration_leaves_no_half_pair() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let (producer, consumer) = (Counting::endpoint(), Counting::endpoint());
        let produced =
            Registry::register_producer(Arc::clone(&registry), KEY, Arc::clone(&producer));
        let (its_registry, its_consumer) = (Arc::clone(&registry), Arc::clone(&consumer));
        let other = spawn(move || {
            Registry::register_consumer(its_registry, KEY, its_consumer).expect("free")
        });
        drop(produced.expect("free"));
        assert!(!producer.is_registered());
        let consumed = join(other);
        assert!(!registry.is_connected(KEY) && consumer.is_registered());
        drop(consumed);
        let (adds, dels) = producer.counts();
        assert_eq!((adds, (adds, dels)), (dels, consumer.counts()));
        assert!(registry.is_empty());
    });
}

#[test]
fn loom_two_ends_at_once_part_a_pair_once() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let (producer, consumer) = (Counting::endpoint(), Counting::endpoint());
        let produced =
            Registry::register_producer(Arc::clone(&registry), KEY, Arc::clone(&producer));
        let consumed = Registry::register_consumer(&*registry, KEY, Arc::clone(&consumer));
        let other = spawn(move || drop(produced.expect("free")));
        drop(consumed.expect("free"));
        join(other);
        assert_eq!((producer.counts(), consumer.counts()), ((1, 1), (1, 1)));
        assert!(registry.is_empty());
    });
}

/// Hazard: the same object under two keys, at once.
#[test]
fn loom_an_object_registered_twice_at_once_is_registered_once() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let producer = Counting::endpoint();
        let (its_registry, its_producer) = (Arc::clone(&registry), Arc::clone(&producer));
        let other =
            spawn(move || Registry::register_producer(its_registry, Event(1), its_producer));
        let this = Registry::register_producer(Arc::clone(&registry), Event(2), producer);
        let both = [join(other), this];
        assert_eq!(both.iter().filter(|result| result.is_ok()).count(), 1);
        assert_eq!(registry.len(), 1);
    });
}

/// What callbacks did to an object is visible to the thread that registers it next.
#[test]
fn loom_an_object_that_is_registered_again_brings_its_past_along() {
    model(|| {
        let (first, second) = (Arc::new(Counted::new(8)), Arc::new(Counted::new(8)));
        let (producer, consumer) = (Counting::endpoint(), Counting::endpoint());
        let produced = Registry::register_producer(Arc::clone(&first), KEY, Arc::clone(&producer));
        let consumed = Registry::register_consumer(&*first, KEY, consumer).expect("free");
        let other = spawn(move || drop(produced.expect("free")));
        match Registry::register_producer(&*second, KEY, Arc::clone(&producer)) {
            Ok(_again) => assert_eq!(producer.counts(), (1, 1)),
            Err(error) => assert_eq!(error, RegisterError::RegisteredTwice),
        }
        join(other);
        drop(consumed);
    });
}

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod noting;
#[cfg(not(any(loom, shuttle)))]
mod on_real_threads;
