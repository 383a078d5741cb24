//! The queue with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;
use crate::sync::{AtomicU32, Mutex, Thread, current, lock, park};

const PRODUCERS: u32 = 3;
const EACH: u32 = 3;

fn spawn_producers(marked: &Arc<Marked>) -> Vec<crate::sync::JoinHandle<()>> {
    let produce = |producer: u32| {
        let marked = Arc::clone(marked);
        spawn(move || {
            for index in producer * EACH..(producer + 1) * EACH {
                marked.push(index);
            }
        })
    };
    (0..PRODUCERS).map(produce).collect()
}

fn assert_rising_for_each_producer(seen: &[u32]) {
    for producer in 0..PRODUCERS {
        let of_one = seen.iter().filter(|&&index| index / EACH == producer);
        assert!(of_one.is_sorted(), "{seen:?}");
    }
}

#[test]
fn shuttle_three_producers_two_poppers_and_a_taker_keep_each_producers_order() {
    model(|| {
        let marked = Marked::new(PRODUCERS * EACH);
        let producers = spawn_producers(&marked);
        let consumers: Vec<_> = (0..3)
            .map(|number| {
                let marked = Arc::clone(&marked);
                spawn(move || match number {
                    0 => [marked.take_all(), marked.take_all()].concat(),
                    _ => (0..4).filter_map(|_| marked.pop()).collect(),
                })
            })
            .collect();
        producers.into_iter().for_each(join);
        let mut seen: Vec<Vec<u32>> = consumers.into_iter().map(join).collect();
        seen.push(std::iter::from_fn(|| marked.pop()).collect());
        for one in &seen {
            assert_rising_for_each_producer(one);
        }
        let mut all = seen.concat();
        all.sort_unstable();
        assert_eq!(all, (0..PRODUCERS * EACH).collect::<Vec<_>>());
    });
}

/// Wakes only when told that the queue may have been empty, which is enough as long as each
/// sleeper looks again before it parks.
#[test]
fn shuttle_sleepers_are_woken_by_pushes_that_found_it_empty() {
    model(|| {
        let marked = Marked::new(PRODUCERS * EACH);
        let taken = Arc::new(AtomicU32::new(0));
        let sleepers: Arc<Mutex<Vec<Thread>>> = Arc::new(Mutex::new(Vec::new()));
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let (marked, taken, sleepers) = (
                    Arc::clone(&marked),
                    Arc::clone(&taken),
                    Arc::clone(&sleepers),
                );
                spawn(move || consume_or_sleep(&marked, &taken, &sleepers))
            })
            .collect();
        for index in 0..PRODUCERS * EACH {
            if marked.push(index) {
                wake_all(&sleepers);
            }
        }
        consumers.into_iter().for_each(join);
    });
}

fn consume_or_sleep(marked: &Marked, taken: &AtomicU32, sleepers: &Mutex<Vec<Thread>>) {
    let all = PRODUCERS * EACH;
    while taken.load(Relaxed) < all {
        if marked.pop().is_some() {
            if taken.fetch_add(1, Relaxed) + 1 == all {
                wake_all(sleepers);
            }
            continue;
        }
        lock(sleepers).push(current());
        // ORDER: QE5 of the queue, the consumer's side.
        fence(Ordering::SeqCst);
        if marked.queue.is_empty() && taken.load(Relaxed) < all {
            park();
        }
    }
}

fn wake_all(sleepers: &Mutex<Vec<Thread>>) {
    let woken = std::mem::take(&mut *lock(sleepers));
    woken.iter().for_each(Thread::unpark);
}
