//! Pairing with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;

/// Hazards: duplicates of both sides at once, and ends beside registrations.
#[test]
fn shuttle_two_of_each_side_of_one_key_pair_up_one_to_one() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let producers = [(); 2].map(|()| {
            let (registry, producer) = (Arc::clone(&registry), Counting::endpoint());
            spawn(move || {
                let produced = Registry::register_producer(&*registry, KEY, Arc::clone(&producer));
                assert_eq!(produced.is_ok(), producer.is_registered());
                drop(produced);
                producer.counts()
            })
        });
        let consumers = [(); 2].map(|()| {
            let (registry, consumer) = (Arc::clone(&registry), Counting::endpoint());
            spawn(move || {
                let consumed = Registry::register_consumer(&*registry, KEY, Arc::clone(&consumer));
                assert_eq!(consumed.is_ok(), consumer.is_registered());
                drop(consumed);
                consumer.counts()
            })
        });
        let adds = |sides: [(u32, u32); 2]| {
            let all_parted = sides.iter().all(|(adds, dels)| adds == dels);
            assert!(all_parted, "a half pair was left: {sides:?}");
            sides.iter().map(|(adds, _)| adds).sum::<u32>()
        };
        assert_eq!(adds(producers.map(join)), adds(consumers.map(join)));
        assert!(registry.is_empty());
    });
}

#[test]
fn shuttle_different_keys_in_different_orders_do_not_wait_for_each_other_in_a_ring() {
    model(|| {
        let registry = Arc::new(Counted::new(8));
        let threads = [[1, 2, 3], [3, 1, 2], [2, 3, 1]].map(|order| {
            let registry = Arc::clone(&registry);
            spawn(move || {
                let mut held = Vec::new();
                for word in order {
                    let key = Event(word);
                    let (producer, consumer) = (Counting::endpoint(), Counting::endpoint());
                    held.push((
                        Registry::register_producer(Arc::clone(&registry), key, producer).ok(),
                        Registry::register_consumer(Arc::clone(&registry), key, consumer).ok(),
                    ));
                }
                drop(held);
            })
        });
        threads.into_iter().for_each(join);
        assert!(registry.is_empty());
    });
}
