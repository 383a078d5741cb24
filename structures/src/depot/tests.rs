//! The depot: examples, and bodies that the model checkers run as well.

#[cfg(not(loom))]
use super::magazine::REACH_AT_FIRST;
use super::*;
use crate::number::NO_NUMBER;
use crate::sync::{Arc, Ordering::Relaxed};
use crate::testing::race;

#[cfg(not(any(loom, shuttle)))]
const MAGAZINES: u32 = NEAR_MAGAZINES + FAR_MAGAZINES;

/// A depot whose indices carry a payload and a holder's mark, both written with Relaxed: the depot
/// alone must order them. What is disposed of is noted, and must not be disposed of twice.
struct Marked {
    depot: Depot,
    held: Vec<AtomicBool>,
    payload: Vec<AtomicU32>,
    disposed: Vec<AtomicBool>,
}

impl Marked {
    fn new(capacity: u32) -> Arc<Marked> {
        let flags = |value| (0..capacity).map(|_| AtomicBool::new(value)).collect();
        Arc::new(Marked {
            depot: Depot::new(capacity),
            held: flags(true),
            payload: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
            disposed: flags(false),
        })
    }

    /// With these indices idle, put by this thread in the order given.
    fn holding(capacity: u32, thread: u32, indices: &[u32]) -> Arc<Marked> {
        let marked = Marked::new(capacity);
        indices.iter().for_each(|&index| marked.put(thread, index));
        marked
    }

    fn take(&self, thread: u32) -> Option<u32> {
        let index = self.depot.take(thread);
        let index = index.or_else(|| self.depot.take_last(thread))?;
        self.received(index);
        Some(index)
    }

    fn received(&self, index: u32) {
        let payload = self.payload[index as usize].load(Relaxed);
        assert_eq!(payload, index + 100, "not yet visible");
        let was_held = self.held[index as usize].swap(true, Relaxed);
        assert!(!was_held, "index {index} was handed out twice");
    }

    /// What the pool does with its buffers.
    fn put(&self, thread: u32, index: u32) {
        let near = self.depot.reserve_near(thread).map(PutSlot::Reserved);
        let slot = near.unwrap_or_else(|| self.depot.reserve(thread));
        // After the step's fence, which is whole in a model and would publish this as well.
        self.payload[index as usize].store(index + 100, Relaxed);
        self.held[index as usize].store(false, Relaxed);
        let is_in = match slot {
            PutSlot::Reserved(reservation) => {
                reservation.commit(index);
                true
            }
            PutSlot::Shared => {
                if self.depot.put_shared(index) {
                    self.depot.empty(|index| self.dispose(index));
                }
                true
            }
            PutSlot::Closed => {
                self.depot.empty(|index| self.dispose(index));
                false
            }
        };
        if !is_in {
            self.dispose(index);
        }
    }

    fn dispose(&self, index: u32) {
        self.received(index);
        let twice = self.disposed[index as usize].swap(true, Relaxed);
        assert!(!twice, "index {index} was disposed of twice");
    }

    fn close(&self) {
        let is_settled = self.depot.close(|index| self.dispose(index));
        assert!(is_settled, "nothing refuses the fence");
    }

    fn take_rest(&self, thread: u32) -> usize {
        std::iter::from_fn(|| self.take(thread)).count()
    }

    fn assert_all_disposed(&self) {
        let left = self
            .disposed
            .iter()
            .position(|disposed| !disposed.load(Relaxed));
        assert_eq!(left, None, "this index stays in a closed depot for ever");
    }
}

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod reach;

mod loom_bodies {
    use super::*;

    #[test]
    fn loom_an_index_is_taken_by_its_owner_or_a_visitor_and_never_both() {
        race(
            || Marked::holding(1, 0, &[0]),
            |marked| marked.take(0),
            |marked| marked.take(1),
            |_, left, right| assert!(left.is_some() != right.is_some()),
        );
    }

    #[test]
    fn loom_a_visitor_sees_what_was_written_before_the_put() {
        race(
            || Marked::holding(2, 0, &[0]),
            |marked| {
                let held = marked.take(0);
                marked.put(0, 1);
                held
            },
            |marked| marked.take(1),
            |marked, left, right| {
                let taken = left.iter().chain(right.iter()).count();
                assert_eq!(taken + marked.take_rest(2), 2);
            },
        );
    }

    #[test]
    fn loom_a_magazine_that_is_new_is_seen_whole() {
        race(
            || Marked::new(1),
            |marked| marked.put(NEAR_MAGAZINES, 0),
            |marked| marked.take(1),
            |marked, (), taken| assert_eq!(taken.iter().count() + marked.take_rest(2), 1),
        );
    }

    #[test]
    fn loom_a_chain_from_a_full_magazine_arrives_whole() {
        race(
            || Marked::holding(4, 0, &[0, 1, 2]),
            |marked| marked.put(0, 3),
            |marked| marked.take(1),
            |marked, (), taken| {
                assert!(taken.is_some(), "three were idle all the time");
                assert_eq!(marked.take_rest(2), 3);
            },
        );
    }

    #[test]
    fn loom_an_owner_sees_what_a_visitor_took() {
        race(
            || Marked::holding(2, 0, &[0, 1]),
            |marked| [marked.depot.take(0), marked.depot.take(0)],
            |marked| marked.take(1),
            |marked, left, right| {
                let taken = left.into_iter().flatten();
                let taken = taken.inspect(|&index| marked.received(index)).count();
                assert_eq!(taken + right.iter().count() + marked.take_rest(2), 2);
            },
        );
    }

    #[test]
    fn loom_two_visitors_share_what_one_magazine_holds() {
        race(
            || Marked::holding(3, 0, &[0, 1, 2]),
            |marked| marked.take(1).is_some(),
            |marked| marked.take(NO_NUMBER).is_some(),
            |marked, left, right| {
                assert!(left && right, "three for two");
                assert_eq!(marked.take_rest(0), 1);
            },
        );
    }

    /// With the models' magazines of three.
    #[cfg(any(loom, shuttle))]
    #[test]
    fn loom_what_is_fetched_beside_a_visit_arrives_whole() {
        race(
            || {
                // The far magazine spills 1 and 2 as a chain of two, and is emptied then.
                let marked = Marked::holding(6, 2, &[0, 1, 2, 3]);
                assert_eq!([marked.take(2), marked.take(2)], [Some(3), Some(0)]);
                marked
            },
            |marked| usize::from(marked.take(0).is_some()),
            |marked| usize::from(marked.take(1).is_some()),
            |marked, left, right| {
                assert!(left + right > 0);
                assert_eq!(left + right + marked.take_rest(2), 2);
            },
        );
    }

    /// The fence is refused: the owner may be inside without having seen the bar.
    #[cfg(loom)]
    #[test]
    fn loom_a_visit_that_may_have_missed_a_step_takes_nothing() {
        race(
            || {
                crate::barrier::refused::refuse();
                Marked::holding(1, 0, &[0])
            },
            |marked| marked.depot.take(0),
            |marked| marked.depot.take_last(1),
            |_, _, visitor| assert_eq!(visitor, None, "the owner may have it, too"),
        );
    }

    /// The fence is refused: a step may be missed, and the depot must be known to be in use still.
    #[cfg(loom)]
    #[test]
    fn loom_a_close_that_may_have_missed_a_step_is_not_settled() {
        race(
            || {
                crate::barrier::refused::refuse();
                Marked::holding(2, 0, &[0])
            },
            |marked| marked.put(0, 1),
            |marked| {
                let is_settled = marked.depot.close(|index| marked.dispose(index));
                is_settled.then(|| marked.depot.near[0].tally())
            },
            |marked, (), settled| {
                if let Some(tally) = settled {
                    let later = marked.depot.near[0].tally();
                    assert_eq!(later, tally, "written to after it could have been freed");
                }
            },
        );
    }

    #[test]
    fn loom_threads_without_a_magazine_share_the_stack() {
        race(
            || Marked::holding(2, NO_NUMBER, &[0, 1]),
            |marked| {
                let index = marked.take(NO_NUMBER).expect("two for two takers");
                marked.put(NO_NUMBER, index);
            },
            |marked| marked.take(NO_NUMBER),
            |marked, (), taken| {
                assert!(taken.is_some());
                assert_eq!(marked.take_rest(NO_NUMBER), 1);
            },
        );
    }

    #[test]
    fn loom_what_is_put_while_the_depot_closes_is_disposed_of_once() {
        race(
            || Marked::holding(2, 0, &[0]),
            |marked| marked.put(0, 1),
            Marked::close,
            |marked, (), ()| marked.assert_all_disposed(),
        );
    }

    #[test]
    fn loom_what_is_put_in_a_new_magazine_while_the_depot_closes_is_disposed_of() {
        race(
            || Marked::new(1),
            |marked| marked.put(NEAR_MAGAZINES, 0),
            Marked::close,
            |marked, (), ()| marked.assert_all_disposed(),
        );
    }

    #[test]
    fn loom_what_spills_while_the_depot_closes_is_disposed_of() {
        race(
            || Marked::holding(4, 0, &[0, 1, 2]),
            |marked| marked.put(0, 3),
            Marked::close,
            |marked, (), ()| marked.assert_all_disposed(),
        );
    }

    #[test]
    fn loom_what_is_put_on_the_stack_while_the_depot_closes_is_disposed_of() {
        race(
            || Marked::new(1),
            |marked| marked.put(NO_NUMBER, 0),
            Marked::close,
            |marked, (), ()| marked.assert_all_disposed(),
        );
    }
}

#[cfg(not(any(loom, shuttle)))]
mod ordinary {
    use super::*;
    use crate::sync::spawn;
    use crate::testing::{Random, join, repeats, rounds, with_seeds, within_deadline};
    use std::sync::Barrier;

    #[test]
    fn take_gives_the_newest_first_and_none_when_empty() {
        let marked = Marked::holding(3, 0, &[2, 0, 1]);
        assert_eq!([marked.take(0), marked.take(0)], [Some(1), Some(0)]);
        marked.put(0, 1);
        assert_eq!(
            [marked.take(0), marked.take(0), marked.take(0)],
            [Some(1), Some(2), None]
        );
    }

    #[test]
    fn an_idle_index_is_found_wherever_it_lies() {
        // With nothing but the magazines of these two: most far magazines are never made.
        let far = [
            NEAR_MAGAZINES,
            NEAR_MAGAZINES + 1,
            NEAR_MAGAZINES + 5,
            MAGAZINES - 1,
            MAGAZINES,
        ];
        for holder in [0, 1, 3, NEAR_MAGAZINES - 1, NO_NUMBER]
            .into_iter()
            .chain(far)
        {
            for taker in [0, 3, NEAR_MAGAZINES - 1, NO_NUMBER].into_iter().chain(far) {
                let marked = Marked::holding(1, holder, &[0]);
                assert_eq!(
                    marked.take(taker),
                    Some(0),
                    "{taker} takes what {holder} put"
                );
                assert_eq!(marked.take(taker), None);
            }
        }
    }

    /// Enough that a magazine reaches as far as it may at first.
    pub(super) const MANY: u32 = 8 * REACH_AT_FIRST;

    pub(super) fn held(marked: &Marked, thread: usize) -> u32 {
        marked.depot.near[thread].held()
    }

    pub(super) fn put_all(marked: &Marked, thread: u32, indices: impl IntoIterator<Item = u32>) {
        indices
            .into_iter()
            .for_each(|index| marked.put(thread, index));
    }

    pub(super) fn take_some(marked: &Marked, thread: u32, count: usize) -> Vec<u32> {
        let taken = std::iter::from_fn(|| marked.take(thread));
        let taken: Vec<u32> = taken.take(count).collect();
        assert_eq!(taken.len(), count);
        taken
    }

    #[test]
    fn a_visitor_takes_half_and_leaves_half() {
        let marked = Marked::holding(MANY, 0, &(0..8).collect::<Vec<_>>());
        assert_eq!(marked.depot.take(1), None, "another thread's own");
        let first = marked.depot.take_last(1);
        assert_eq!((first, held(&marked, 0)), (Some(7), 4));
        assert_eq!(take_some(&marked, 1, 3).len(), 3, "from the stack");
        assert_eq!(held(&marked, 0), 4);
        assert_eq!(marked.take_rest(0), 4);
    }

    #[test]
    fn a_full_magazine_sends_half_to_all_others() {
        let marked = Marked::holding(MANY, 0, &(0..=REACH_AT_FIRST).collect::<Vec<_>>());
        assert_eq!(held(&marked, 0), REACH_AT_FIRST / 2 + 1);
        let taken = std::iter::from_fn(|| marked.depot.take(1)).count();
        assert_eq!(taken as u32, REACH_AT_FIRST / 2);
        assert!(marked.depot.chains.is_empty());
    }

    #[test]
    fn a_thread_at_the_edge_swaps_with_the_others_rarely() {
        let marked = Marked::holding(MANY, 0, &(0..=REACH_AT_FIRST).collect::<Vec<_>>());
        let chains_before = marked.depot.chains.peek();
        for _ in 0..10 {
            let held = take_some(&marked, 0, 3);
            put_all(&marked, 0, held);
            assert_eq!(
                marked.depot.chains.peek(),
                chains_before,
                "no chain came or went"
            );
        }
    }

    #[test]
    fn an_owner_that_is_barred_gives_to_the_stack_and_takes_from_there() {
        let marked = Marked::holding(MANY, 0, &[0, 1]);
        marked.depot.near[0].bar();
        marked.put(0, 2);
        assert_eq!(held(&marked, 0), 2);
        assert_eq!(marked.depot.take_near(0), None);
        assert_eq!(marked.depot.take(0), Some(2));
        assert_eq!(marked.depot.take(0), None);
        marked.put(0, 3);
        marked.put(0, 4);
        assert_eq!(held(&marked, 0), 2);
    }

    #[test]
    fn a_magazine_whose_owner_is_gone_is_emptied_by_the_others() {
        let marked = Marked::new(3);
        let gone = Arc::clone(&marked);
        join(spawn(move || {
            (0..3).for_each(|index| gone.put(NEAR_MAGAZINES + 5, index));
        }));
        assert_eq!(marked.take_rest(0), 3);
    }

    #[test]
    fn the_tally_counts_takes_and_puts_on_every_path() {
        let marked = Marked::holding(40, 0, &(0..40).collect::<Vec<_>>());
        assert_eq!(marked.depot.tally(), (0, 40));
        for thread in [0, 1, NO_NUMBER] {
            for _ in 0..5 {
                marked.take(thread);
            }
        }
        assert_eq!(marked.depot.tally(), (15, 40));
        marked.put(NO_NUMBER, 0);
        assert_eq!(marked.depot.tally(), (15, 41));
        marked.depot.withdraw();
        assert_eq!(marked.depot.tally(), (15, 41), "taken for removal");
        for thread in [2, NO_NUMBER] {
            while marked.depot.take(thread).is_some() {}
            marked.put(1, 0);
            let (before, _) = marked.depot.tally();
            assert_eq!(marked.depot.take(thread), None, "it is another thread's");
            assert!(marked.depot.take_last(thread).is_some());
            assert_eq!(marked.depot.tally().0, before + 1, "by {thread}");
        }
    }

    #[test]
    fn a_closed_depot_keeps_nothing() {
        let marked = Marked::holding(60, 0, &(0..50).collect::<Vec<_>>());
        marked.close();
        for (index, thread) in (50..60).zip([0, 1, NO_NUMBER, MAGAZINES].into_iter().cycle()) {
            marked.put(thread, index);
        }
        marked.assert_all_disposed();
    }

    #[test]
    fn a_full_magazine_of_a_closing_depot_gives_everything_back() {
        let marked = Marked::holding(MANY, 0, &(0..REACH_AT_FIRST).collect::<Vec<_>>());
        // The magazines are not emptied yet: the middle of a close.
        marked.depot.closed.store(true, Relaxed);
        marked.depot.near[0].bar();
        put_all(&marked, 0, REACH_AT_FIRST..MANY);
        let disposed = marked
            .disposed
            .iter()
            .filter(|disposed| disposed.load(Relaxed))
            .count();
        let came = (MANY - REACH_AT_FIRST) as usize;
        assert_eq!(disposed, came, "and nothing spilled for them");
        marked.close();
        marked.assert_all_disposed();
    }

    #[test]
    fn model_random_operations_lose_nothing_and_find_everything() {
        with_seeds(30, |random| {
            let capacity = 1 + random.below(100);
            let marked = Marked::new(capacity);
            let mut held: Vec<u32> = (0..capacity).collect();
            for _ in 0..repeats(600) {
                let thread =
                    [0, 1, NEAR_MAGAZINES, MAGAZINES - 1, NO_NUMBER][random.below(5) as usize];
                if random.below(100) < if random.below(3) == 0 { 80 } else { 30 } {
                    let taken = marked.take(thread);
                    assert_eq!(taken.is_some(), (held.len() as u32) < capacity);
                    held.extend(taken);
                } else if let Some(index) = held.pop() {
                    marked.put(thread, index);
                }
            }
            held.into_iter().for_each(|index| marked.put(1, index));
            assert_eq!(marked.take_rest(0), capacity as usize);
        });
    }

    #[test]
    fn stress_every_index_is_held_by_one_thread_at_a_time() {
        within_deadline(|| {
            let indices = 40;
            let marked = Marked::holding(indices, 0, &(0..indices).collect::<Vec<_>>());
            let threads: Vec<_> = [0, 1, 2, NO_NUMBER]
                .map(|thread| {
                    let marked = Arc::clone(&marked);
                    spawn(move || churn(&marked, thread))
                })
                .into();
            threads.into_iter().for_each(join);
            assert_eq!(marked.take_rest(0), indices as usize);
        });
    }

    /// With the fences of the machine, which the models do not know.
    #[test]
    fn stress_what_two_threads_put_while_the_depot_closes_is_disposed_of() {
        within_deadline(|| {
            let again = rounds(1_000);
            let depots: Arc<Vec<_>> = Arc::new((0..again).map(|_| Marked::new(40)).collect());
            let start = Arc::new(Barrier::new(3));
            let putters = [0, 1].map(|thread| {
                let (depots, start) = (Arc::clone(&depots), Arc::clone(&start));
                spawn(move || {
                    for marked in depots.iter() {
                        start.wait();
                        (thread * 20..thread * 20 + 20).for_each(|index| marked.put(thread, index));
                    }
                })
            });
            for marked in depots.iter() {
                start.wait();
                marked.close();
            }
            putters.into_iter().for_each(join);
            depots
                .iter()
                .for_each(|marked| marked.assert_all_disposed());
        });
    }

    fn churn(marked: &Marked, thread: u32) {
        let rounds = repeats(30_000);
        let mut random = Random::new(u64::from(thread));
        let mut held = Vec::new();
        for _ in 0..rounds {
            // Long waves, so that magazines fill up and run dry and there is stealing.
            if random.below(64) < 32 + u32::from(held.len() < 12) {
                held.extend(marked.take(thread));
            } else if let Some(index) = held.pop() {
                marked.put(thread, index);
            }
        }
        held.into_iter().for_each(|index| marked.put(thread, index));
    }
}
