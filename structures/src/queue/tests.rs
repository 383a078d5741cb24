//! The queue: examples, a model, and bodies that the model checkers run as well.

use super::*;
use crate::sync::{Arc, AtomicBool, Ordering::Relaxed, fence, spawn};
use crate::testing::{join, model, race};

/// A queue whose indices carry a payload and a holder's mark, both written with Relaxed: the queue
/// alone must order them.
struct Marked {
    queue: Queue,
    held: Vec<AtomicBool>,
    payload: Vec<AtomicU32>,
}

impl Marked {
    fn new(capacity: u32) -> Arc<Marked> {
        Arc::new(Marked {
            queue: Queue::new(capacity),
            held: (0..capacity).map(|_| AtomicBool::new(true)).collect(),
            payload: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    /// With `index - 1` taken by a pop, so that `index` waits in `ready` and `new` is empty.
    fn with_one_ready(capacity: u32, index: u32) -> Arc<Marked> {
        let marked = Marked::new(capacity);
        marked.push(index - 1);
        marked.push(index);
        assert_eq!(marked.pop(), Some(index - 1));
        marked
    }

    fn write(&self, index: u32) {
        self.payload[index as usize].store(index + 100, Relaxed);
        self.held[index as usize].store(false, Relaxed);
    }

    fn push(&self, index: u32) -> bool {
        self.write(index);
        self.queue.push(index)
    }

    fn received(&self, index: u32) -> u32 {
        let payload = self.payload[index as usize].load(Relaxed);
        assert_eq!(payload, index + 100, "not yet visible");
        let was_held = self.held[index as usize].swap(true, Relaxed);
        assert!(!was_held, "index {index} was handed out twice");
        index
    }

    fn pop(&self) -> Option<u32> {
        self.queue.pop().map(|index| self.received(index))
    }

    fn take_all(&self) -> Vec<u32> {
        self.queue
            .take_all()
            .map(|index| self.received(index))
            .collect()
    }
}

#[cfg(not(loom))]
mod larger;

mod loom_bodies {
    use super::*;

    fn push_both(marked: &Marked) {
        marked.push(0);
        marked.push(1);
    }

    #[test]
    fn loom_pop_sees_what_was_written_before_the_push_and_in_its_order() {
        race(
            || Marked::new(2),
            push_both,
            |marked| {
                [marked.pop(), marked.pop()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
            },
            |marked, (), mut popped| {
                popped.extend(marked.take_all());
                assert_eq!(popped, [0, 1]);
            },
        );
    }

    #[test]
    fn loom_take_all_sees_what_was_written_before_the_push_and_in_its_order() {
        race(
            || Marked::new(2),
            push_both,
            Marked::take_all,
            |marked, (), mut taken| {
                taken.extend(marked.take_all());
                assert_eq!(taken, [0, 1]);
            },
        );
    }

    #[test]
    fn loom_a_pop_reads_what_another_pop_turned_round() {
        race(
            || {
                let marked = Marked::new(3);
                marked.push(0);
                marked.push(1);
                marked.push(2);
                marked
            },
            Marked::pop,
            Marked::pop,
            |marked, left, right| {
                let mut popped = [left, right];
                popped.sort_unstable();
                assert_eq!(popped, [Some(0), Some(1)]);
                assert_eq!(marked.pop(), Some(2));
            },
        );
    }

    #[test]
    fn loom_two_producers_and_two_poppers_keep_each_producers_order() {
        model(|| {
            let marked = Marked::new(3);
            let producer = {
                let marked = Arc::clone(&marked);
                spawn(move || push_both(&marked))
            };
            let popper = {
                let marked = Arc::clone(&marked);
                spawn(move || marked.pop())
            };
            marked.push(2);
            let mine = marked.pop();
            join(producer);
            let theirs = join(popper);
            let rest = marked.take_all();
            // 1 was popped after 0 was.
            assert!(!rest.contains(&0) || ![mine, theirs].contains(&Some(1)));
            let mut all: Vec<u32> = [mine, theirs].into_iter().flatten().chain(rest).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }

    #[test]
    fn loom_it_never_looks_empty_while_new_moves_over() {
        race(
            || {
                let marked = Marked::new(2);
                push_both(&marked);
                marked
            },
            |marked| assert_eq!(marked.pop(), Some(0)),
            |marked| assert!(!marked.queue.is_empty(), "index 1 is in it all the time"),
            |marked, (), ()| assert_eq!(marked.pop(), Some(1)),
        );
    }

    #[test]
    fn loom_it_never_looks_empty_when_the_last_ready_goes_after_a_push() {
        // The push is another thread's: the fence that stands for SeqCst in a push under loom would
        // release the popper's store as well.
        model(|| {
            let marked = Marked::with_one_ready(3, 1);
            let pushed = Arc::new(AtomicBool::new(false));
            let pusher = {
                let (marked, pushed) = (Arc::clone(&marked), Arc::clone(&pushed));
                spawn(move || {
                    marked.push(2);
                    pushed.store(true, Ordering::Release);
                })
            };
            let observer = {
                let marked = Arc::clone(&marked);
                spawn(move || assert!(!marked.queue.is_empty(), "first 1, then 2 is in it"))
            };
            if pushed.load(Ordering::Acquire) {
                assert_eq!(marked.pop(), Some(1));
            }
            join(pusher);
            join(observer);
        });
    }

    #[test]
    fn loom_a_sleeper_that_saw_it_empty_is_known_to_the_push() {
        race(
            || Marked::with_one_ready(3, 1),
            |marked| {
                assert_eq!(marked.pop(), Some(1));
                fence(Ordering::SeqCst);
                marked.queue.is_empty()
            },
            |marked| marked.push(2),
            |_, asleep, told| assert!(told || !asleep, "the sleeper will never hear of it"),
        );
    }

    #[test]
    fn loom_of_two_pushers_at_least_one_learns_that_it_was_empty() {
        race(
            || Marked::new(2),
            |marked| marked.push(0),
            |marked| marked.push(1),
            |_, left, right| {
                assert_ne!(left, right, "nothing was popped, so exactly one came first");
            },
        );
    }

    #[test]
    fn loom_take_all_beside_a_pop_and_a_push_loses_nothing() {
        model(|| {
            let marked = Marked::new(3);
            push_both(&marked);
            let popper = {
                let marked = Arc::clone(&marked);
                spawn(move || marked.pop())
            };
            let pusher = {
                let marked = Arc::clone(&marked);
                spawn(move || marked.push(2))
            };
            let taken = marked.take_all();
            let popped = join(popper);
            join(pusher);
            assert!(taken.is_sorted(), "{taken:?}");
            let rest = marked.take_all();
            let mut all: Vec<u32> = taken.into_iter().chain(popped).chain(rest).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }
}

#[cfg(not(any(loom, shuttle)))]
mod ordinary {
    use super::*;
    use crate::testing::{Random, repeats, with_seeds, within_deadline};
    use std::collections::VecDeque;

    #[test]
    fn push_to_empty_reports_that_it_may_have_been_empty() {
        let queue = Queue::new(3);
        assert!(queue.push(0));
        assert!(!queue.push(1));
        assert_eq!(queue.pop(), Some(0));
        // `new` is empty, but 1 is ready: its consumer will look again.
        assert!(!queue.push(2));
        assert_eq!(queue.take_all().count(), 2);
        assert!(queue.push(1));
    }

    #[test]
    fn pop_gives_the_oldest_first_and_none_when_empty() {
        let queue = Queue::new(4);
        assert_eq!(queue.pop(), None);
        queue.push(2);
        queue.push(0);
        assert_eq!(queue.pop(), Some(2));
        queue.push(1);
        queue.push(3);
        let popped: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(popped, [0, 1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn take_all_gives_ready_before_new() {
        let queue = Queue::new(5);
        for index in [4, 3, 2] {
            queue.push(index);
        }
        assert_eq!(queue.pop(), Some(4));
        queue.push(0);
        queue.push(1);
        assert_eq!(queue.take_all().collect::<Vec<_>>(), [3, 2, 0, 1]);
        assert!(queue.take_all().is_empty());
    }

    #[test]
    fn every_way_out_marks_the_index_as_not_listed() {
        let queue = Queue::new(4);
        let listed = || {
            (0..4)
                .filter(|&index| queue.links.is_listed(index))
                .collect::<Vec<_>>()
        };
        for index in 0..3 {
            queue.push(index);
        }
        assert_eq!(queue.pop(), Some(0));
        queue.push(3);
        assert_eq!(listed(), [1, 2, 3]);
        let mut chain = queue.take_all();
        assert_eq!(chain.next(), Some(1));
        assert_eq!(listed(), [2, 3]);
        drop(chain);
        assert_eq!(listed(), []);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "pushed while it is listed")]
    fn a_second_push_of_a_listed_index_is_noticed() {
        let queue = Queue::new(2);
        queue.push(1);
        queue.push(1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri makes room for each of the 16 million before it")]
    fn the_largest_index_is_not_taken_for_the_end() {
        let queue = Queue::new(INDICES_MAX);
        queue.push(INDICES_MAX - 1);
        queue.push(0);
        assert_eq!(queue.pop(), Some(INDICES_MAX - 1));
        assert_eq!(queue.pop(), Some(0));
        assert!(queue.is_empty());
    }

    #[test]
    fn the_count_of_moves_wraps_around_without_harm() {
        let queue = Queue::new(2);
        let last = (1_u64 << (64 - OLDEST_BITS)) - 2;
        queue.ready.store(
            Ready {
                oldest: END,
                moves: last,
            }
            .word(),
            Relaxed,
        );
        assert!(queue.push(0));
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(Ready::of(queue.ready.load(Relaxed)).moves, 0);
        assert!(queue.is_empty());
    }

    #[test]
    fn model_random_operations_match_a_deque() {
        with_seeds(50, |random| {
            let capacity = 1 + random.below(40);
            let queue = Queue::new(capacity);
            let mut oracle: VecDeque<u32> = VecDeque::new();
            let mut free: Vec<u32> = (0..capacity).collect();
            for _ in 0..repeats(400) {
                step(random, &queue, &mut oracle, &mut free);
                assert_eq!(queue.is_empty(), oracle.is_empty());
                let probe = random.below(capacity);
                assert_eq!(queue.links.is_listed(probe), oracle.contains(&probe));
            }
        });
    }

    fn step(random: &mut Random, queue: &Queue, oracle: &mut VecDeque<u32>, free: &mut Vec<u32>) {
        match random.below(10) {
            0..5 => {
                if let Some(index) = free.pop() {
                    assert_eq!(queue.push(index), oracle.is_empty());
                    oracle.push_back(index);
                }
            }
            5..9 => {
                let popped = oracle.pop_front();
                assert_eq!(queue.pop(), popped);
                free.extend(popped);
            }
            _ => {
                assert!(queue.take_all().eq(oracle.iter().copied()));
                free.extend(oracle.drain(..));
            }
        }
    }

    #[test]
    fn stress_three_producers_and_two_poppers_keep_every_producers_order() {
        within_deadline(|| {
            let (producers, each) = (3, repeats(20_000));
            let marked = Marked::new(producers * each);
            let pushing: Vec<_> = (0..producers)
                .map(|producer| {
                    let marked = Arc::clone(&marked);
                    spawn(move || {
                        for index in producer * each..(producer + 1) * each {
                            marked.push(index);
                        }
                    })
                })
                .collect();
            let popped = Arc::new(AtomicU32::new(0));
            let popping: Vec<_> = (0..2)
                .map(|_| {
                    let (marked, popped) = (Arc::clone(&marked), Arc::clone(&popped));
                    spawn(move || pop_in_order(&marked, &popped, producers, each))
                })
                .collect();
            pushing.into_iter().chain(popping).for_each(join);
            assert_eq!(marked.pop(), None);
        });
    }

    /// Pops until everything was popped; each popper sees every producer's indices rise.
    fn pop_in_order(marked: &Marked, popped: &AtomicU32, producers: u32, each: u32) {
        let mut next = vec![0; producers as usize];
        while popped.load(Relaxed) < producers * each {
            let Some(index) = marked.pop() else {
                std::thread::yield_now();
                continue;
            };
            let (producer, nth) = (index / each, index % each);
            assert!(
                nth >= next[producer as usize],
                "{index} came after a later one"
            );
            next[producer as usize] = nth + 1;
            popped.fetch_add(1, Relaxed);
        }
    }
}
