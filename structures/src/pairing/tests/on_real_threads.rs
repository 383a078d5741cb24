//! The hazards by name, a model against a map, and a stress test.

use super::noting::{Bench, CONNECTED, Mood, Noted, Noting, PARTED, consumer, producer};
use super::*;
use crate::sync::lock;
use crate::testing::{Random, repeats, rounds, with_seeds, within_deadline};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};

#[test]
fn a_pair_is_connected_by_the_second_to_come_and_parted_by_the_first_to_leave() {
    let bench = Bench::new();
    let produced = bench.produce(KEY).expect("free");
    assert_eq!(bench.take_log(), "", "no peer yet");
    let consumed = bench.consume(KEY).expect("free");
    assert_eq!(bench.take_log(), CONNECTED);
    drop(produced);
    assert_eq!(bench.take_log(), PARTED);
    let produced = bench.produce(KEY).expect("free again");
    assert_eq!(bench.take_log(), CONNECTED);
    drop(consumed);
    assert_eq!(bench.take_log(), PARTED);
    drop(produced);
    assert_eq!(bench.take_log(), "", "no peer is left");
    assert!(bench.registry.is_empty());
}

#[test]
fn the_empty_key_is_refused() {
    let bench = Bench::new();
    assert_eq!(bench.produce(Event(0)).err(), Some(RegisterError::EmptyKey));
    assert_eq!(bench.consume(Event(0)).err(), Some(RegisterError::EmptyKey));
    assert!(!bench.producer.is_registered() && bench.registry.is_empty());
    assert!(!bench.registry.is_connected(Event(0)));
}

/// Hazard: keys that are numbers or addresses crowd in one shard, which is full before the others.
#[test]
fn keys_at_equal_distances_spread_over_the_shards_whatever_the_hash_is_keyed_with() {
    const KEYS: u32 = 500;
    let random = &mut Random::new(11);
    for distance in [1, 64, 4_096] {
        for _ in 0..rounds(700) {
            let keys = [random.next(), random.next()];
            let hash = Hash { keys };
            let mut counts = [0; SHARDS];
            for number in 1..=u64::from(KEYS) {
                counts[hash.spot(number * distance).shard()] += 1;
            }
            let most = counts.iter().max().expect("there are shards");
            assert!(
                *most <= entries_per_shard_max(KEYS),
                "{keys:x?}, distance {distance}: {most} keys in a shard"
            );
        }
    }
}

/// Hazard: a duplicate is refused without touching the owner, and its end does not evict the owner.
#[test]
fn the_loser_of_a_key_neither_disturbs_nor_evicts_the_owner() {
    let bench = Bench::new();
    let _produced = bench.produce(KEY).expect("free");
    let loser = producer(&bench.log);
    for _ in 0..2 {
        let lost = Registry::register_producer(&bench.registry, KEY, Arc::clone(&loser));
        assert_eq!(lost.err(), Some(RegisterError::Taken));
        assert!(!loser.is_registered());
    }
    let _consumed = bench.consume(KEY).expect("free");
    let late = Registry::register_consumer(&bench.registry, KEY, consumer(&bench.log));
    assert_eq!(late.err(), Some(RegisterError::Taken), "one to one only");
    assert_eq!(bench.take_log(), CONNECTED);
    assert!(bench.registry.is_connected(KEY));
}

/// Hazard: the same object under another key, which a look-up by key does not see.
#[test]
fn an_object_registered_twice_is_refused() {
    let bench = Bench::new();
    let produced = bench.produce(KEY).expect("free");
    for key in [KEY, Event(43)] {
        assert_eq!(
            bench.produce(key).err(),
            Some(RegisterError::RegisteredTwice)
        );
    }
    assert!(
        bench.producer.is_registered(),
        "the first registration stands"
    );
    assert_eq!(bench.registry.len(), 1);
    drop(produced);
    let _again = bench.produce(Event(43)).expect("free");
}

/// Hazards: connected but not registered, and registered but not connected.
#[test]
fn a_refusal_to_connect_leaves_nothing_behind() {
    let half = "P.stop C.stop P.add C.start P.start";
    let undone = "P.stop C.stop P.add C.add P.del C.start P.start";
    let cases = [
        (Mood::Refuses, Mood::Agrees, half),
        (Mood::Agrees, Mood::Refuses, undone),
    ];
    for (of_producer, of_consumer, expected) in cases {
        let bench = Bench::new();
        bench.moods(of_producer, of_consumer);
        let _produced = bench.produce(KEY).expect("no peer yet");
        let refused = bench.consume(KEY);
        assert_eq!(refused.err(), Some(RegisterError::Connect("refused")));
        // Hazard: start is called on failure as well.
        assert_eq!(bench.take_log(), expected);
        assert!(!bench.consumer.is_registered() && bench.producer.is_registered());
        assert!(!bench.registry.is_connected(KEY));
        bench.moods(Mood::Agrees, Mood::Agrees);
        let consumed = bench.consume(KEY).expect("the side is free");
        assert_eq!(bench.take_log(), CONNECTED);
        drop(consumed);
        assert_eq!(bench.take_log(), PARTED);
    }
}

#[test]
fn a_panic_while_connecting_is_undone_like_a_refusal() {
    let cases = [
        (
            Mood::Panics,
            Mood::Agrees,
            "P.stop C.stop P.add C.start P.start",
        ),
        (
            Mood::Agrees,
            Mood::Panics,
            "P.stop C.stop P.add C.add P.del C.start P.start",
        ),
    ];
    for (of_producer, of_consumer, expected) in cases {
        let bench = Bench::new();
        bench.moods(of_producer, of_consumer);
        let _consumed = bench.consume(KEY).expect("no peer yet");
        assert!(catch_unwind(AssertUnwindSafe(|| bench.produce(KEY))).is_err());
        // The lock of the log is not poisoned: the panic came after it was given back.
        assert_eq!(bench.take_log(), expected);
        assert!(!bench.producer.is_registered() && bench.consumer.is_registered());
    }
}

/// The registration unwinds out of the frame that ends it, and so ends a second time.
#[test]
fn a_panic_while_parting_ends_one_side_once_and_leaves_the_peer() {
    for (of_producer, of_consumer) in [
        (Mood::PanicsOnParting, Mood::Agrees),
        (Mood::Agrees, Mood::PanicsOnParting),
    ] {
        let bench = Bench::new();
        bench.moods(of_producer, of_consumer);
        let produced = bench.produce(KEY).expect("free");
        let mut consumed = bench.consume(KEY).expect("free");
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let mut produced = produced;
            produced.end();
        }));
        assert!(ended.is_err(), "the callback panics");
        assert!(!bench.producer.is_registered() && bench.consumer.is_registered());
        assert_eq!((bench.registry.len(), bench.registry.pairs()), (1, 0));
        let rival = consumer(&bench.log);
        let refused = Registry::register_consumer(&bench.registry, KEY, Arc::clone(&rival));
        assert_eq!(refused.err(), Some(RegisterError::Taken));
        // The peer meets the next one as if nothing had been.
        bench.moods(Mood::Agrees, Mood::Agrees);
        let produced = bench.produce(KEY).expect("the side is free");
        assert!(bench.registry.is_connected(KEY));
        assert!(consumed.end() && !bench.consumer.is_registered());
        drop((consumed, produced));
        assert!(bench.registry.is_empty());
    }
}

/// Its key is another one's by the time it is dropped.
#[test]
fn a_registration_whose_end_panicked_does_not_evict_the_next_one() {
    let bench = Bench::new();
    bench.moods(Mood::PanicsOnParting, Mood::Agrees);
    let mut produced = bench.produce(KEY).expect("free");
    let _consumed = bench.consume(KEY).expect("free");
    assert!(catch_unwind(AssertUnwindSafe(|| produced.end())).is_err());
    let successor = producer(&bench.log);
    let _next = Registry::register_producer(&bench.registry, KEY, Arc::clone(&successor));
    assert!(!produced.end(), "it has ended");
    drop(produced);
    assert!(successor.is_registered() && bench.registry.is_connected(KEY));
}

#[test]
fn ending_a_registration_twice_does_nothing_the_second_time() {
    let bench = Bench::new();
    let mut produced = bench.produce(KEY).expect("free");
    let _consumed = bench.consume(KEY).expect("free");
    assert!(produced.end());
    bench.take_log();
    let successor = producer(&bench.log);
    let _next = Registry::register_producer(&bench.registry, KEY, successor).expect("free");
    assert!(!produced.end());
    drop(produced);
    assert_eq!(bench.take_log(), CONNECTED, "the successor is not parted");
    assert!(bench.registry.is_connected(KEY));
}

/// Hazard: a failure to insert leaves nothing behind.
#[test]
fn without_memory_nothing_is_registered() {
    let bench = Bench::new();
    bench.registry.starve(true);
    assert_eq!(bench.produce(KEY).err(), Some(RegisterError::NoMemory));
    assert!(!bench.producer.is_registered() && bench.registry.is_empty());
    bench.registry.starve(false);
    let _produced = bench.produce(KEY).expect("there is memory");
}

#[test]
fn a_full_registry_refuses_new_keys_and_still_pairs_old_ones() {
    let registry = Arc::new(Counted::new(1));
    let mut held = Vec::new();
    let full = (1..100_000).map(Event).find(|key| {
        let produced =
            Registry::register_producer(Arc::clone(&registry), *key, Counting::endpoint());
        match produced {
            Ok(produced) => {
                held.push((*key, produced));
                false
            }
            Err(error) => error == RegisterError::Full,
        }
    });
    let full = full.expect("there is a bound");
    let shard = registry.shard(registry.hash.spot(full.word()));
    assert_eq!(shard.len(), registry.entries_per_shard_max);
    let same = held
        .iter()
        .find(|(key, _)| std::ptr::eq(registry.shard(registry.hash.spot(key.word())), shard));
    let (key, _) = same.expect("the shard is full");
    let consumed = Registry::register_consumer(&*registry, *key, Counting::endpoint());
    assert!(consumed.is_ok() && registry.is_connected(*key));
}

/// Hazard: lifetime. The objects outlive their registration, whichever side drops them.
#[test]
fn a_registered_object_lives_until_its_registration_ends() {
    let Bench {
        registry,
        log,
        producer,
        consumer,
    } = Bench::new();
    let weak = Arc::downgrade(&producer);
    let produced = Registry::register_producer(&registry, KEY, producer).expect("free");
    assert!(weak.upgrade().is_some());
    let consumed = Registry::register_consumer(&registry, KEY, consumer).expect("free");
    lock(&log).clear();
    drop(consumed);
    assert_eq!(lock(&log).join(" "), PARTED, "it is there to be told");
    drop(produced);
    assert!(weak.upgrade().is_none());
}

/// Hazard: a key that is used again pairs with a stranger, if the old side is still there. A key
/// with a generation does not.
#[test]
fn a_key_with_a_generation_does_not_pair_with_a_stranger() {
    let mut slots = crate::slots::Slots::new(1);
    let registry: Registry<Event, Counting, Counting> = Registry::new(10);
    let key = |key: crate::slots::Key| Event(key.to_u64());
    let old = slots.insert(()).expect("room");
    let _left_behind = Registry::register_producer(&registry, key(old), Counting::endpoint());
    slots.remove(old);
    let new = slots.insert(()).expect("room");
    assert_eq!(old.index, new.index);
    let _consumed = Registry::register_consumer(&registry, key(new), Counting::endpoint());
    assert!(!registry.is_connected(key(old)) && !registry.is_connected(key(new)));
}

/// A side whose callback does as it is told.
struct Calling<F>(F);

impl<F: Fn()> Producer<Calling<F>> for Calling<F> {
    type Error = ();
}

impl<F: Fn()> Consumer<Calling<F>> for Calling<F> {
    type Error = ();
    fn add_producer(&self, _producer: &Calling<F>) -> Result<(), ()> {
        (self.0)();
        Ok(())
    }
}

/// Hazard: callbacks under a lock may not re-enter. Here they may, under any other key.
#[test]
fn a_callback_may_register_under_other_keys() {
    const PAIRS: u64 = repeats(2_000) as u64;
    within_deadline(|| {
        let inner = Arc::new(Counted::new(10_000));
        let calls = Arc::clone(&inner);
        let pair_up = move || {
            let pairs: Vec<_> = (1..=PAIRS)
                .map(Event)
                .map(|key| both(&calls, key))
                .collect();
            assert_eq!(pairs.len() as u64, PAIRS);
        };
        let registry = Registry::new(10);
        let endpoint = || Arc::new(Endpoint::new(Calling(pair_up.clone())));
        let produced = Registry::register_producer(&registry, KEY, endpoint()).expect("free");
        let consumed = Registry::register_consumer(&registry, KEY, endpoint()).expect("free");
        drop((produced, consumed));
        assert!(inner.is_empty());
    });
}

type Pair<'a> = [Registration<&'a Counted>; 2];

fn both(registry: &Counted, key: Event) -> Pair<'_> {
    let produced = Registry::register_producer(registry, key, Counting::endpoint());
    let consumed = Registry::register_consumer(registry, key, Counting::endpoint());
    [produced.expect("free"), consumed.expect("free")]
}

/// Hazard: a global lock around callbacks. While one blocks, all other keys go on.
#[test]
fn a_callback_that_blocks_holds_up_no_other_key() {
    within_deadline(|| {
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let gate = Mutex::new((entered, may_leave));
        let block = Arc::new(move || {
            let gate = lock(&gate);
            gate.0.send(()).expect("the other end is there");
            gate.1.recv().expect("the other end is there");
        });
        let registry = Arc::new(Registry::new(10_000));
        let endpoint = |callback: Arc<dyn Fn() + Send + Sync>| {
            Arc::new(Endpoint::new(Calling(move || callback())))
        };
        let _produced =
            Registry::register_producer(Arc::clone(&registry), KEY, endpoint(block.clone()));
        let (its_registry, blocking) = (Arc::clone(&registry), endpoint(block));
        let blocked = spawn(move || {
            Registry::register_consumer(&*its_registry, KEY, blocking)
                .map(drop)
                .expect("free");
        });
        has_entered.recv().expect("the other end is there");
        // Among so many some share the shard.
        let others = u64::from(repeats(3_000));
        for key in (100..100 + others).map(Event) {
            let of_other = [(); 2].map(|()| endpoint(Arc::new(|| {})));
            let [producer, consumer] = of_other;
            let produced = Registry::register_producer(&*registry, key, producer);
            let consumed = Registry::register_consumer(&*registry, key, consumer);
            assert!(registry.is_connected(key));
            drop((produced, consumed));
        }
        let third = Registry::register_consumer(&*registry, KEY, endpoint(Arc::new(|| {})));
        assert_eq!(
            third.err(),
            Some(RegisterError::Taken),
            "about to be taken is taken"
        );
        assert!(!registry.is_connected(KEY), "not yet");
        leave.send(()).expect("the other end is there");
        join(blocked);
    });
}

/// A producer that ends its own registration when it is connected.
struct Ending(Arc<Mutex<Option<OwnRegistration>>>);

type OwnRegistration = Registration<Arc<Registry<Event, Ending, Counting>>>;

impl Producer<Counting> for Ending {
    type Error = ();
    fn add_consumer(&self, _consumer: &Counting) -> Result<(), ()> {
        let mut registration = lock(&self.0).take();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            registration.as_mut().map(Registration::end)
        }));
        assert!(ended.is_err(), "it would wait for itself");
        // Not now: it is this very pair that is being connected.
        *lock(&self.0) = registration;
        Ok(())
    }
}

impl Consumer<Ending> for Counting {
    type Error = ();
}

#[test]
fn a_callback_that_ends_its_own_pair_panics_instead_of_waiting_for_ever() {
    within_deadline(|| {
        let registry = Arc::new(Registry::new(10));
        let own = Arc::new(Mutex::new(None));
        let producer = Arc::new(Endpoint::new(Ending(Arc::clone(&own))));
        let produced = Registry::register_producer(Arc::clone(&registry), KEY, producer);
        *lock(&own) = Some(produced.expect("free"));
        let consumed = Registry::register_consumer(&*registry, KEY, Counting::endpoint());
        assert!(consumed.is_ok() && registry.is_connected(KEY));
        let mut produced = lock(&own).take().expect("put back");
        assert!(produced.end(), "from outside it ends");
        assert!(!registry.is_connected(KEY));
    });
}

#[test]
fn the_tables_shrink_when_registrations_end() {
    const PAIRS: usize = 10 * repeats(2_000) as usize;
    let registry = Counted::new(100_000);
    let slots = || {
        registry
            .shards
            .iter()
            .map(|shard| shard.slots())
            .sum::<usize>()
    };
    let mut pairs: Vec<_> = (1..=PAIRS as u64)
        .map(Event)
        .map(|key| both(&registry, key))
        .collect();
    let full = slots();
    assert!((PAIRS..8 * PAIRS).contains(&full), "{full}");
    pairs.truncate(PAIRS / 10);
    assert!(slots() < full / 2, "{}", slots());
    assert_eq!(registry.len(), PAIRS / 10);
    let stay = (1..=PAIRS as u64 / 10).map(Event);
    assert!(stay.into_iter().all(|key| registry.is_connected(key)));
    pairs.clear();
    assert!(slots() <= SHARDS * 4, "{}", slots());
}

#[test]
fn model_random_registrations_agree_with_a_map() {
    with_seeds(30, |random| {
        let bench = Bench::new();
        let objects: Vec<_> = (0..24)
            .map(|number| match number % 2 {
                0 => producer(&bench.log),
                _ => consumer(&bench.log),
            })
            .collect();
        // By object: its key and its registration.
        let mut held: HashMap<usize, (Event, Registration<&Noted>)> = HashMap::new();
        for _ in 0..repeats(600) {
            let number = random.below(24) as usize;
            if random.below(3) == 0 {
                let was_paired = held
                    .get(&number)
                    .is_some_and(|(key, _)| has_peer(&held, number, *key));
                drop(held.remove(&number));
                let expected = if was_paired { PARTED } else { "" };
                assert_eq!(bench.take_log(), expected);
                continue;
            }
            register_one(random, &bench, &objects, &mut held, number);
        }
        for key in (0..8).map(Event) {
            let sides = held.values().filter(|(held, _)| *held == key).count();
            assert_eq!(bench.registry.is_connected(key), sides == 2);
        }
    });
}

type Held<'a> = HashMap<usize, (Event, Registration<&'a Noted>)>;

/// Whether the other side of the object's key is registered.
fn has_peer(held: &Held<'_>, number: usize, key: Event) -> bool {
    held.iter()
        .any(|(other, (held, _))| *held == key && other % 2 != number % 2)
}

fn register_one<'a>(
    random: &mut Random,
    bench: &'a Bench,
    objects: &[Arc<Endpoint<Noting>>],
    held: &mut Held<'a>,
    number: usize,
) {
    let key = Event(u64::from(random.below(8)));
    let mood = if random.below(7) == 0 {
        Mood::Refuses
    } else {
        Mood::Agrees
    };
    *lock(&objects[number].mood) = mood;
    let object = Arc::clone(&objects[number]);
    let is_taken = held
        .iter()
        .any(|(other, (held, _))| *held == key && other % 2 == number % 2);
    let is_paired = has_peer(held, number, key);
    let expected = match () {
        () if key == Event(0) => Some(RegisterError::EmptyKey),
        () if held.contains_key(&number) => Some(RegisterError::RegisteredTwice),
        () if is_taken => Some(RegisterError::Taken),
        () if is_paired && mood == Mood::Refuses => Some(RegisterError::Connect("refused")),
        () => None,
    };
    let registered = match number % 2 {
        0 => Registry::register_producer(&bench.registry, key, object),
        _ => Registry::register_consumer(&bench.registry, key, object),
    };
    *lock(&objects[number].mood) = Mood::Agrees;
    assert_eq!(registered.as_ref().err(), expected.as_ref());
    let log = bench.take_log();
    match registered {
        Ok(registration) => {
            assert_eq!(log, if is_paired { CONNECTED } else { "" });
            held.insert(number, (key, registration));
        }
        Err(RegisterError::Connect(_)) => assert!(log.ends_with("C.start P.start"), "{log}"),
        Err(_) => assert_eq!(log, "", "nothing was touched"),
    }
}

/// Threads that come and go under a few keys. Each object checks that its callbacks make sense.
#[test]
fn stress_many_threads_pair_up_and_part_again() {
    let rounds = repeats(5_000);
    within_deadline(move || {
        let registry = Arc::new(Counted::new(100));
        let threads: Vec<_> = (0..6_u64)
            .map(|number| {
                let registry = Arc::clone(&registry);
                spawn(move || {
                    let mut random = Random::new(number + 1);
                    let object = Counting::endpoint();
                    for _ in 0..rounds {
                        let key = Event(u64::from(1 + random.below(3)));
                        let object = Arc::clone(&object);
                        let registered = match number % 2 {
                            0 => Registry::register_producer(&*registry, key, object),
                            _ => Registry::register_consumer(&*registry, key, object),
                        };
                        if let Err(error) = registered {
                            assert_eq!(error, RegisterError::Taken);
                        }
                    }
                    let (adds, dels) = object.counts();
                    assert_eq!(adds, dels);
                    adds
                })
            })
            .collect();
        let adds: Vec<u32> = threads.into_iter().map(join).collect();
        let by_side = |side| adds.iter().skip(side).step_by(2).sum::<u32>();
        assert_eq!(
            by_side(0),
            by_side(1),
            "each meeting has two sides: {adds:?}"
        );
        assert!(registry.is_empty());
    });
}
