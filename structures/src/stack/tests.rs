//! The stack: examples, a model, and bodies that the model checkers run as well.

use super::*;
use crate::sync::{Arc, AtomicBool, AtomicU32, Ordering::Relaxed};
use crate::testing::race;

/// A stack whose indices carry a holder's mark: handing one out twice is noticed at once.
struct Marked {
    stack: Stack,
    held: Vec<AtomicBool>,
    payload: Vec<AtomicU32>,
}

impl Marked {
    fn new(capacity: u32, pushed: &[u32]) -> Arc<Marked> {
        let marked = Marked {
            stack: Stack::new(capacity),
            held: (0..capacity).map(|_| AtomicBool::new(true)).collect(),
            payload: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
        };
        for &index in pushed {
            marked.push(index);
        }
        Arc::new(marked)
    }

    /// Relaxed on purpose: the stack alone must order what is written here.
    fn write(&self, index: u32) {
        self.payload[index as usize].store(index + 100, Relaxed);
        self.held[index as usize].store(false, Relaxed);
    }

    fn push(&self, index: u32) -> bool {
        self.write(index);
        self.stack.push(index)
    }

    fn assert_visible(&self, index: u32) {
        let payload = self.payload[index as usize].load(Relaxed);
        assert_eq!(payload, index + 100, "not yet visible");
    }

    fn received(&self, index: u32) -> u32 {
        self.assert_visible(index);
        let was_held = self.held[index as usize].swap(true, Relaxed);
        assert!(!was_held, "index {index} was handed out twice");
        index
    }

    fn pop(&self) -> Option<u32> {
        self.stack.pop().map(|index| self.received(index))
    }

    fn take_all(&self) -> Vec<u32> {
        self.stack
            .take_all()
            .map(|index| self.received(index))
            .collect()
    }
}

#[cfg(not(loom))]
mod larger;

mod loom_bodies {
    use super::*;

    #[test]
    fn loom_two_poppers_and_a_repush_never_hand_out_twice() {
        race(
            || Marked::new(3, &[2, 1, 0]),
            |marked| {
                let first = marked.pop().expect("three for three pops");
                let second = marked.pop();
                marked.push(first);
                usize::from(second.is_some())
            },
            |marked| usize::from(marked.pop().is_some()),
            |marked, left, right| assert_eq!(left + right + marked.take_all().len(), 3),
        );
    }

    #[test]
    fn loom_take_all_and_a_repush_beside_a_popper_lose_nothing() {
        race(
            || Marked::new(3, &[2, 1, 0]),
            |marked| {
                // Back in another order: what was on top has something else under it now.
                for index in marked.take_all() {
                    marked.push(index);
                }
            },
            |marked| usize::from(marked.pop().is_some()),
            |marked, (), right| assert_eq!(right + marked.take_all().len(), 3),
        );
    }

    fn push_both(marked: &Marked) {
        marked.push(0);
        marked.push(1);
    }

    #[test]
    fn loom_pop_sees_what_was_written_before_the_push() {
        race(
            || Marked::new(2, &[]),
            push_both,
            |marked| [marked.pop(), marked.pop()].iter().flatten().count(),
            |marked, (), popped| assert_eq!(popped + marked.take_all().len(), 2),
        );
    }

    #[test]
    fn loom_take_all_sees_what_was_written_before_the_pushes() {
        race(
            || Marked::new(2, &[]),
            push_both,
            |marked| marked.take_all().len(),
            |marked, (), taken| assert_eq!(taken + marked.take_all().len(), 2),
        );
    }

    #[test]
    fn loom_peek_sees_what_was_written_before_the_push() {
        race(
            || Marked::new(2, &[]),
            |marked| {
                push_both(marked);
                // The swap of the pop continues the release sequence of the push below it.
                marked.pop();
            },
            |marked| {
                if let Some(top) = marked.stack.peek() {
                    marked.assert_visible(top);
                }
            },
            |marked, (), ()| assert_eq!(marked.take_all(), [0]),
        );
    }

    #[test]
    fn loom_pop_if_head_sees_what_was_written_before_the_push() {
        race(
            || Marked::new(1, &[]),
            |marked| marked.push(0),
            |marked| {
                let popped = marked.stack.pop_if_head(0);
                if popped {
                    marked.received(0);
                }
                popped
            },
            |marked, was_empty, popped| {
                assert!(was_empty);
                assert_ne!(popped, marked.pop().is_some());
            },
        );
    }

    #[test]
    fn loom_of_two_pushers_one_is_told_that_it_was_empty() {
        race(
            || Marked::new(2, &[]),
            |marked| marked.push(0),
            |marked| marked.push(1),
            |_, left, right| assert_ne!(left, right),
        );
    }

    #[test]
    fn loom_two_poppers_of_one_index_give_it_to_one_of_them() {
        // Both may see the stack not empty; the one that comes late gets None, not an index.
        race(
            || Marked::new(1, &[0]),
            |marked| !marked.stack.is_empty() && marked.pop().is_some(),
            |marked| !marked.stack.is_empty() && marked.pop().is_some(),
            |_, left, right| assert_ne!(left, right),
        );
    }

    #[test]
    fn loom_each_owner_removes_itself_while_it_is_on_top() {
        race(
            || Marked::new(2, &[]),
            |marked| {
                marked.push(0);
                marked.stack.pop_if_head(0)
            },
            |marked| {
                marked.push(1);
                marked.stack.pop_if_head(1)
            },
            |marked, left, right| {
                // A buried index is still there; no other was removed in its place.
                assert_eq!(marked.stack.is_listed(0), !left);
                assert_eq!(marked.stack.is_listed(1), !right);
                assert!(left || right, "the later of two pushes is on top");
            },
        );
    }
}

#[cfg(not(any(loom, shuttle)))]
mod ordinary {
    use super::*;
    use crate::sync::spawn;
    use crate::testing::{Random, join, repeats, with_seeds, within_deadline};

    #[test]
    fn push_to_empty_reports_empty() {
        let stack = Stack::new(3);
        assert!(stack.push(0));
        assert!(!stack.push(1));
        assert_eq!(stack.pop(), Some(1));
        assert!(!stack.push(2));
        assert_eq!(stack.take_all().count(), 2);
        assert!(stack.push(1));
    }

    #[test]
    fn pop_gives_the_newest_first_and_none_when_empty() {
        let stack = Stack::new(3);
        assert_eq!(stack.pop(), None);
        for index in [1, 0, 2] {
            stack.push(index);
        }
        assert_eq!(
            [stack.pop(), stack.pop(), stack.pop(), stack.pop()],
            [Some(2), Some(0), Some(1), None]
        );
    }

    #[test]
    fn every_way_out_marks_the_index_as_not_listed() {
        let stack = Stack::new(4);
        let listed = || {
            (0..4)
                .filter(|&index| stack.is_listed(index))
                .collect::<Vec<_>>()
        };
        for index in 0..4 {
            stack.push(index);
        }
        assert_eq!(listed(), [0, 1, 2, 3]);
        stack.pop();
        assert_eq!(listed(), [0, 1, 2]);
        assert!(stack.pop_if_head(2));
        assert_eq!(listed(), [0, 1]);
        let mut chain = stack.take_all();
        assert_eq!(chain.next(), Some(1));
        assert_eq!(listed(), [0]);
        drop(chain);
        assert_eq!(listed(), []);
    }

    #[test]
    fn pop_if_head_refuses_what_is_buried_or_absent() {
        let stack = Stack::new(3);
        assert!(!stack.pop_if_head(0));
        stack.push(0);
        stack.push(1);
        assert!(!stack.pop_if_head(0));
        assert!(!stack.pop_if_head(2));
        assert!(stack.pop_if_head(1));
        assert!(stack.pop_if_head(0));
        assert!(!stack.pop_if_head(0));
        assert!(stack.is_empty());
    }

    #[test]
    fn peek_leaves_the_index_where_it_is() {
        let stack = Stack::new(2);
        assert_eq!(stack.peek(), None);
        stack.push(1);
        assert_eq!(stack.peek(), Some(1));
        assert_eq!(stack.pop(), Some(1));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "pushed while it is listed")]
    fn a_second_push_of_a_listed_index_is_noticed() {
        let stack = Stack::new(2);
        stack.push(1);
        stack.push(1);
    }

    #[test]
    #[should_panic(expected = "more indices than a head can name")]
    fn a_capacity_beyond_the_head_is_refused() {
        Stack::new(INDICES_MAX + 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri makes room for each of the 16 million before it")]
    fn the_largest_index_is_not_taken_for_the_end() {
        let stack = Stack::new(INDICES_MAX);
        assert!(stack.push(INDICES_MAX - 1));
        assert!(!stack.push(0));
        assert_eq!(stack.pop(), Some(0));
        assert_eq!(stack.peek(), Some(INDICES_MAX - 1));
        assert!(stack.pop_if_head(INDICES_MAX - 1));
        assert!(stack.is_empty());
    }

    #[test]
    fn the_generation_wraps_around_without_harm() {
        let last = (1_u64 << (64 - TOP_BITS)) - 1;
        let stack = Stack::with_generation(3, last - 1);
        for index in [0, 1, 2] {
            stack.push(index);
        }
        assert_eq!(Head::of(stack.head.load(Relaxed)).generation, 1);
        assert_eq!(stack.take_all().collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn a_head_that_was_overtaken_is_refused_even_with_the_same_top() {
        // The ABA problem step by step: the stalled pop holds a head whose top is back on top.
        let stack = Stack::new(3);
        for index in [2, 1, 0] {
            stack.push(index);
        }
        let stalled = stack.head.load(Relaxed);
        assert_eq!((stack.pop(), stack.pop()), (Some(0), Some(1)));
        stack.push(0);
        assert!(stack.try_pop(stalled, POP).is_err());
        assert_eq!(stack.take_all().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn a_head_from_before_take_all_is_refused() {
        let stack = Stack::new(2);
        stack.push(1);
        stack.push(0);
        let stalled = stack.head.load(Relaxed);
        assert_eq!(stack.take_all().count(), 2);
        stack.push(0);
        assert!(stack.try_pop(stalled, POP).is_err());
        assert_eq!(stack.pop(), Some(0));
        assert_eq!(stack.pop(), None);
    }

    #[test]
    fn model_random_operations_match_a_vector() {
        with_seeds(50, |random| {
            let capacity = 1 + random.below(40);
            let stack = Stack::new(capacity);
            let mut oracle: Vec<u32> = Vec::new();
            let mut free: Vec<u32> = (0..capacity).collect();
            for _ in 0..repeats(400) {
                step(random, &stack, &mut oracle, &mut free);
                assert_eq!(stack.peek(), oracle.last().copied());
                assert_eq!(stack.is_empty(), oracle.is_empty());
                let probe = random.below(capacity);
                assert_eq!(stack.is_listed(probe), oracle.contains(&probe));
            }
        });
    }

    fn step(random: &mut Random, stack: &Stack, oracle: &mut Vec<u32>, free: &mut Vec<u32>) {
        match random.below(10) {
            0..5 => {
                if let Some(index) = free.pop() {
                    assert_eq!(stack.push(index), oracle.is_empty());
                    oracle.push(index);
                }
            }
            5..8 => {
                let popped = oracle.pop();
                assert_eq!(stack.pop(), popped);
                free.extend(popped);
            }
            8 => {
                let index = random.below((oracle.len() + free.len()) as u32);
                let is_head = oracle.last() == Some(&index);
                assert_eq!(stack.pop_if_head(index), is_head);
                if is_head {
                    free.extend(oracle.pop());
                }
            }
            _ => {
                oracle.reverse();
                assert_eq!(stack.take_all().collect::<Vec<_>>(), *oracle);
                free.append(oracle);
            }
        }
    }

    #[test]
    fn stress_every_index_is_held_by_one_thread_at_a_time() {
        within_deadline(|| {
            let indices = 12;
            let marked = Marked::new(indices, &(0..indices).collect::<Vec<_>>());
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let marked = Arc::clone(&marked);
                    spawn(move || churn(&marked, &mut Random::new(thread)))
                })
                .collect();
            threads.into_iter().for_each(join);
            let mut all = marked.take_all();
            all.sort_unstable();
            assert_eq!(all, (0..indices).collect::<Vec<_>>());
        });
    }

    fn churn(marked: &Marked, random: &mut Random) {
        let rounds = repeats(30_000);
        let mut held = Vec::new();
        for _ in 0..rounds {
            match random.below(16) {
                0 => held.extend(marked.take_all()),
                1..8 => held.extend(marked.pop()),
                _ => {
                    if let Some(index) = held.pop() {
                        marked.push(index);
                    }
                }
            }
        }
        for index in held {
            marked.push(index);
        }
    }
}
