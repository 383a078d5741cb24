//! Rounds of a shortage without connections: what is done, in which order, and from when.

use super::*;
use crate::limits::FLUSHED_PER_ROUND_MAX;
use crate::memory::holders::tests::{BUFFER, LONG_NS, PLACES, Table};

/// When shortages begin here.
const BEGIN_NS: u64 = 1_000_000;
const RELIEF_NS: u64 = BEGIN_NS + RELIEF_WAIT_NS;

/// One of two network threads, whose connections moved nothing since the beginning.
struct Thread {
    pools: Pools,
    /// The whole budget, in the hands of no connection.
    taken: Vec<flatpath_structures::pool::Buffer>,
    appeals: Appeals,
    table: Table,
    holders: Holders,
    shortages: Shortages,
}

impl Thread {
    fn new(threads: usize) -> Thread {
        Thread::with_memory(threads, 1 << 20)
    }

    fn with_memory(threads: usize, budget_bytes: usize) -> Thread {
        let pools = Pools::new(budget_bytes, threads, PLACES as usize);
        let taken = std::iter::from_fn(|| pools.common().take(1)).collect();
        Thread {
            taken,
            pools,
            appeals: Appeals::new(threads),
            table: Table::default(),
            holders: Holders::new(2 * FLUSHED_PER_ROUND_MAX),
            shortages: Shortages::default(),
        }
    }

    /// With connections at places 1, 2, 3 that hold these numbers of buffers since `BEGIN_NS`.
    fn with_holders(threads: usize, buffers: [usize; 3]) -> Thread {
        let mut thread = Thread::new(threads);
        for (index, buffers) in (1..).zip(buffers) {
            let held_bytes = buffers * BUFFER;
            let (table, holders) = (&mut thread.table, &mut thread.holders);
            table.hold(holders, index, held_bytes, BEGIN_NS);
        }
        thread
    }

    /// The steps of a round in which `waiting` wait.
    fn round(&mut self, waiting: usize, now_ns: u64) -> Vec<Step> {
        self.round_of(waiting, None, now_ns)
    }

    fn round_of(
        &mut self,
        waiting: usize,
        favoured_since_ns: Option<u64>,
        now_ns: u64,
    ) -> Vec<Step> {
        let demand = Demand {
            waiting,
            favoured_since_ns,
            now_ns,
        };
        let asked_bytes = self.appeals.take(0);
        let shortages = &mut self.shortages;
        shortages.begin_round(&mut self.holders, demand, asked_bytes);
        let mut steps = Vec::new();
        let home = Home {
            thread: 0,
            pools: &self.pools,
            appeals: &self.appeals,
        };
        while let Some(step) = {
            let holders = (&mut self.holders, PLACES);
            shortages.next(home, holders, &self.table)
        } {
            if let Step::End(index) = step {
                self.table.looks.remove(&index).expect("it was there");
            }
            steps.push(step);
            assert!(steps.len() < 99, "a round ends: {steps:?}");
        }
        steps
    }
}

fn flushes(steps: &[Step]) -> usize {
    let is_flush = |step: &&Step| matches!(step, Step::Flush(_));
    steps.iter().filter(is_flush).count()
}

fn others(steps: Vec<Step>) -> Vec<Step> {
    let is_other = |step: &Step| !matches!(step, Step::Flush(_));
    steps.into_iter().filter(is_other).collect()
}

#[test]
fn a_round_flushes_at_once_and_ends_after_a_wait_the_largest_first() {
    let mut thread = Thread::with_holders(1, [4, 16, 2]);
    let first = thread.round(64, BEGIN_NS);
    let flush = [2, 1, 3].map(Step::Flush);
    assert_eq!(first, flush, "the largest first");
    assert_eq!(thread.round(64, BEGIN_NS + 1), []);
    let flushed = thread.round(64, BEGIN_NS + RELIEF_PERIOD_NS);
    assert_eq!(flushed, flush);
    // They were seen a moment ago, so none has moved little for long.
    assert_eq!(others(thread.round(64, RELIEF_NS)), []);
    let now_ns = BEGIN_NS + LONG_NS;
    assert_eq!(others(thread.round(64, now_ns)), [Step::End(2)]);
    assert_eq!(thread.round(64, now_ns + 1), [], "once in a period");
    let next = thread.round(64, now_ns + RELIEF_PERIOD_NS);
    let expected = [Step::Flush(1), Step::Flush(3), Step::End(1), Step::End(3)];
    assert_eq!(next, expected);
}

#[test]
fn no_more_is_ended_than_those_that_wait_have_room_with() {
    // One that waits wants its longest input, but no more than a part of the budget. These hold 4,
    // 5 and 6 buffers, and are ended in this order, as all are of one class.
    for (free, expected) in [(0, 3), (2, 3), (3, 2), (7, 2), (8, 1), (11, 1), (12, 0)] {
        let mut thread = Thread::with_holders(1, [4, 5, 6]);
        let left = thread.taken.len() - free;
        thread.taken.truncate(left);
        assert_eq!(thread.pools.available_bytes() / BUFFER, free);
        assert_eq!(thread.pools.budget_bytes() / RELIEF_PART, 12 * BUFFER);
        let _ = thread.round(1, BEGIN_NS);
        let steps = others(thread.round(1, BEGIN_NS + LONG_NS));
        assert_eq!(steps.len(), expected, "{free} buffers: {steps:?}");
    }
}

#[test]
fn the_more_wait_the_more_room_is_made_up_to_a_part_of_the_budget() {
    // 7 MiB without the reserve, of which the part is seven of the longest inputs.
    for (waiting, expected) in [(1, 1), (2, 2), (7, 7), (8, 7)] {
        let mut thread = Thread::with_memory(1, 8 << 20);
        let part = thread.pools.budget_bytes() / RELIEF_PART;
        assert_eq!(part, 7 * INPUT_BYTES_MAX);
        for index in 1..10 {
            let (table, holders) = (&mut thread.table, &mut thread.holders);
            table.hold(holders, index, INPUT_BYTES_MAX, BEGIN_NS);
        }
        let _ = thread.round(waiting, BEGIN_NS);
        let steps = others(thread.round(waiting, BEGIN_NS + LONG_NS));
        assert_eq!(steps.len(), expected, "{waiting} wait: {steps:?}");
    }
}

#[test]
fn a_round_flushes_where_the_last_one_stopped() {
    let mut thread = Thread::new(1);
    for index in 0..=FLUSHED_PER_ROUND_MAX as u32 {
        let buffers = if index == 7 { 64 } else { 4 };
        let (table, holders) = (&mut thread.table, &mut thread.holders);
        table.hold(holders, index, buffers * BUFFER, BEGIN_NS);
    }
    let mut now_ns = BEGIN_NS;
    for is_first in [true, false, true] {
        let steps = thread.round(1, now_ns);
        assert_eq!(steps.len(), FLUSHED_PER_ROUND_MAX);
        assert_eq!(steps.contains(&Step::Flush(7)), is_first, "at {now_ns}");
        now_ns += RELIEF_PERIOD_NS;
    }
}

#[test]
fn a_shortage_is_over_when_none_has_waited_for_a_while() {
    let mut thread = Thread::with_holders(1, [4, 4, 4]);
    assert!(!thread.shortages.is_short());
    assert_eq!(thread.round(0, BEGIN_NS), []);
    assert!(!thread.shortages.is_short());
    assert_eq!(flushes(&thread.round(1, BEGIN_NS)), 3);
    assert_eq!(thread.round(0, RELIEF_NS + RELIEF_WAIT_NS - 1), []);
    assert!(thread.shortages.is_short(), "it may come back");
    assert_eq!(thread.round(0, RELIEF_NS + RELIEF_WAIT_NS), []);
    assert!(!thread.shortages.is_short());
}

#[test]
fn bulk_of_a_favoured_user_ends_what_lasted_longest_once_in_a_period() {
    let mut thread = Thread::new(1);
    let rows = [
        (None, BEGIN_NS, vec![]),
        (
            Some(BEGIN_NS),
            BEGIN_NS + RELIEF_PERIOD_NS,
            vec![Step::EndLongest],
        ),
        (Some(BEGIN_NS), BEGIN_NS + RELIEF_PERIOD_NS + 1, vec![]),
        (
            Some(BEGIN_NS + RELIEF_PERIOD_NS + 1),
            BEGIN_NS + 2 * RELIEF_PERIOD_NS,
            vec![],
        ),
        (
            Some(BEGIN_NS),
            BEGIN_NS + 3 * RELIEF_PERIOD_NS,
            vec![Step::EndLongest],
        ),
    ];
    for (since_ns, now_ns, expected) in rows {
        let steps = thread.round_of(1, since_ns, now_ns);
        assert_eq!(steps, expected, "{since_ns:?} at {now_ns}");
    }
}

#[test]
fn a_thread_with_larger_holders_is_asked_first_and_every_other_round() {
    let mut thread = Thread::with_holders(2, [2, 2, 2]);
    thread.appeals.publish(1, 9);
    let _ = thread.round(1, BEGIN_NS);
    let mut now_ns = BEGIN_NS + LONG_NS;
    for expected in [
        vec![Step::Ask(1)],
        [1, 2, 3].map(Step::End).to_vec(),
        vec![Step::Ask(1)],
    ] {
        assert_eq!(others(thread.round(1, now_ns)), expected, "at {now_ns}");
        now_ns += RELIEF_PERIOD_NS;
    }
    assert!(thread.appeals.take(1) > 0, "it learns how much");
}

#[test]
fn a_thread_that_is_asked_ends_its_own_at_once() {
    let mut thread = Thread::with_holders(2, [64, 2, 2]);
    thread.appeals.ask(0, 1);
    let steps = thread.round(0, BEGIN_NS + LONG_NS);
    assert_eq!((flushes(&steps), others(steps)), (3, vec![Step::End(1)]));
}

#[test]
fn a_thread_without_holders_asks_the_others_in_turn() {
    let mut thread = Thread::new(3);
    let _ = thread.round(1, BEGIN_NS);
    for (round, other) in [1, 2, 1].into_iter().enumerate() {
        let now_ns = RELIEF_NS + round as u64 * RELIEF_PERIOD_NS;
        assert_eq!(thread.round(1, now_ns), [Step::Ask(other)]);
    }
    let mut alone = Thread::new(1);
    let _ = alone.round(1, BEGIN_NS);
    assert_eq!(alone.round(1, RELIEF_NS), []);
}

#[test]
fn only_a_long_shortage_ends_one_that_moves_and_only_where_the_largest_is() {
    for (elsewhere, ends) in [(0, true), (9, false)] {
        let mut thread = Thread::with_holders(2, [2, 8, 4]);
        thread.appeals.publish(1, elsewhere);
        let _ = thread.round(1, BEGIN_NS);
        let mut now_ns = RELIEF_NS;
        let mut ended = Vec::new();
        while now_ns < BEGIN_NS + 2 * SHORTAGE_NS_MAX {
            for look in thread.table.looks.values_mut() {
                look.moved = look.moved.wrapping_add(1 << 20);
            }
            let steps = others(thread.round(1, now_ns));
            if steps.contains(&Step::End(2)) {
                ended.push(now_ns - BEGIN_NS >= SHORTAGE_NS_MAX);
            }
            now_ns += RELIEF_PERIOD_NS;
        }
        assert_eq!(ended.first(), ends.then_some(&true), "{elsewhere}");
    }
}
