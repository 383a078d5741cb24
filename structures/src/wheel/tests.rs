//! Tests of the wheel: each promise by name, and a model against a sorted map.

use super::*;
use crate::testing::{Random, repeats, with_seeds};
use std::collections::{BTreeMap, BTreeSet};

const TICK_NS: u64 = 1_000;

impl Wheel {
    /// The first tick of a round.
    fn start_of(&self, round: u64) -> u64 {
        round * (u64::from(self.mask) + 1)
    }

    /// Panics unless L1 to L4 hold. O(slots + timers).
    fn invariants(&self) {
        let mut seen = 0;
        for slot in 0..=self.mask {
            let mut prev = slot;
            let mut node = self.links[slot as usize].next;
            let word = slot as usize / 64;
            let bit = self.occupied.bits[word] >> (slot % 64) & 1 == 1;
            assert_eq!(bit, node != slot, "L3: the bit of slot {slot}");
            while node != slot {
                let entry = self.links[node as usize];
                let timer = node - self.mask - 1;
                let rounds = self.rounds[timer as usize];
                let tick = self.start_of(self.base + u64::from(rounds)) + u64::from(slot);
                assert_eq!(entry.prev, prev, "L2: links agree");
                assert_eq!(self.slot_of(tick), slot, "L1: in the list of its tick");
                assert!(tick > self.tick || rounds == NEVER, "L4: not expired yet");
                (prev, node) = (node, entry.next);
                seen += 1;
                assert!(seen <= self.armed, "L2: no cycle beside the sentinel");
            }
            assert_eq!(self.links[slot as usize].prev, prev, "L2: links agree");
        }
        assert_eq!(seen, self.armed, "L1: the armed are listed");
        for (word, bits) in self.occupied.bits.iter().enumerate() {
            let summary = self.occupied.summary[word / 64] >> (word % 64) & 1 == 1;
            assert_eq!(summary, *bits != 0, "L3: summary of word {word}");
        }
    }
}

fn expired(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
    let mut due = Vec::new();
    wheel.expire(now_ns, &mut due);
    due
}

fn is_armed(wheel: &Wheel, index: u32) -> bool {
    wheel
        .known(index)
        .is_some_and(|node| wheel.links[node as usize].next < DUE)
}

#[test]
fn a_timer_fires_at_its_deadline_rounded_up_and_never_early() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    wheel.arm(3, 2_001);
    assert_eq!(expired(&mut wheel, 2_001), [0; 0]);
    assert_eq!(expired(&mut wheel, 2_999), [0; 0]);
    assert_eq!(expired(&mut wheel, 3_000), [3]);
    assert_eq!(wheel.armed, 0);
    assert_eq!(expired(&mut wheel, 99_000), [0; 0], "and only once");
}

#[test]
fn a_deadline_in_the_past_is_due_at_the_next_tick() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    assert_eq!(expired(&mut wheel, 50_500), [0; 0]);
    wheel.arm(0, 7);
    assert_eq!(wheel.next_ns(50_500), Some(500));
    assert_eq!(expired(&mut wheel, 51_000), [0]);
}

#[test]
fn arming_an_armed_timer_moves_it() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    wheel.arm(1, 2_000);
    wheel.arm(1, 5_000);
    assert_eq!(wheel.armed, 1);
    assert_eq!(expired(&mut wheel, 4_000), [0; 0]);
    wheel.arm(1, 4_500);
    assert_eq!(expired(&mut wheel, 5_000), [1]);
    wheel.invariants();
}

#[test]
fn cancel_is_idempotent_and_says_whether_there_was_something() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    assert!(!wheel.cancel(0), "never heard of");
    wheel.arm(5, 2_000);
    assert!(!wheel.cancel(4), "covered by the table, not armed");
    assert!(wheel.cancel(5));
    assert!(!wheel.cancel(5));
    assert!(!wheel.cancel(u32::MAX), "out of range");
    assert_eq!(wheel.next_ns(0), None);
    assert_eq!(expired(&mut wheel, 10_000), [0; 0]);
    wheel.invariants();
}

#[test]
fn a_deadline_beyond_the_horizon_waits_for_its_round() {
    let mut wheel = Wheel::new(TICK_NS, 4);
    wheel.arm(0, 3_000 + 2 * 4 * TICK_NS);
    wheel.arm(1, 3_000);
    for (tick, due) in [(3, vec![1]), (7, vec![]), (10, vec![]), (11, vec![0])] {
        assert_eq!(expired(&mut wheel, tick * TICK_NS), due, "tick {tick}");
        wheel.invariants();
    }
}

#[test]
fn the_farthest_deadline_neither_overflows_nor_fires() {
    let mut wheel = Wheel::new(1, 4);
    wheel.arm(0, u64::MAX);
    assert_eq!(expired(&mut wheel, u64::MAX), [0; 0]);
    assert_eq!(wheel.next_ns(u64::MAX - 5), Some(5));
    wheel.arm(1, 0);
    assert_eq!(expired(&mut wheel, u64::MAX), [0; 0]);
    wheel.invariants();
}

#[test]
fn a_deadline_2_to_the_32_rounds_away_never_comes() {
    const FAR_NS: u64 = 4 << 32;
    let mut wheel = Wheel::new(1, 4);
    for (index, ns) in (0..).zip([FAR_NS - 5, FAR_NS - 4, FAR_NS, 2 * FAR_NS]) {
        wheel.arm(index, ns);
        assert_eq!(wheel.rounds[index as usize] == NEVER, index > 0);
    }
    assert_eq!(expired(&mut wheel, FAR_NS - 6), [0; 0]);
    assert_eq!(expired(&mut wheel, 3 * FAR_NS), [0]);
    for index in 1..4 {
        assert!(wheel.cancel(index), "{index} is armed");
    }
    // Nothing is armed: distances count from here on.
    assert_eq!(expired(&mut wheel, 3 * FAR_NS + 1), [0; 0]);
    wheel.arm(3, 4 * FAR_NS - 5);
    assert_eq!(expired(&mut wheel, 4 * FAR_NS - 5), [3]);
    wheel.invariants();
}

#[test]
fn firing_one_timer_may_cancel_or_move_another_that_is_due() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    for index in 0..4 {
        wheel.arm(index, 1_000);
    }
    assert_eq!(expired(&mut wheel, 1_000), [0, 1, 2, 3]);
    assert!(wheel.confirm(0));
    assert!(wheel.cancel(1), "cancelled while it was queued");
    wheel.arm(2, 9_000);
    assert!(
        !wheel.confirm(1) && !wheel.confirm(2),
        "cancelled and moved ones do not fire"
    );
    assert!(wheel.confirm(3));
    assert!(!wheel.confirm(3), "each fires once");
    assert!(!wheel.confirm(77), "never heard of");
    assert_eq!(expired(&mut wheel, 9_000), [2]);
    wheel.invariants();
}

#[test]
fn after_a_long_sleep_each_slot_is_passed_once() {
    // 2^40 ticks pass at once: anything that walks ticks instead of slots never ends.
    let mut wheel = Wheel::new(1, repeats(1 << 16).next_power_of_two());
    let count = repeats(1_000);
    for index in 0..count {
        wheel.arm(index, u64::from(index) * 7 + 1);
    }
    wheel.arm(5_000, 1 << 41);
    let due = expired(&mut wheel, 1 << 40);
    assert_eq!(due.len(), count as usize);
    assert_eq!(due.iter().collect::<BTreeSet<_>>().len(), count as usize);
    assert!(is_armed(&wheel, 5_000));
    wheel.invariants();
    assert_eq!(expired(&mut wheel, 1 << 41), [5_000]);
}

#[test]
fn a_clock_that_steps_back_expires_nothing_and_loses_nothing() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    assert_eq!(expired(&mut wheel, 20_000), [0; 0]);
    wheel.arm(0, 22_000);
    assert_eq!(expired(&mut wheel, 3_000), [0; 0]);
    assert_eq!(expired(&mut wheel, 22_000), [0]);
}

#[test]
fn timers_of_one_tick_fire_in_the_order_they_were_armed() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    for index in [9, 2, 7, 4] {
        wheel.arm(index, 3_000);
    }
    assert_eq!(expired(&mut wheel, 3_000), [9, 2, 7, 4]);
}

#[test]
fn reserved_timers_allocate_nothing_when_they_are_armed() {
    let mut wheel = Wheel::new(TICK_NS, 8);
    wheel.reserve(0);
    wheel.reserve(100);
    let capacity = wheel.links.capacity();
    (0..100).for_each(|index| wheel.arm(index, 5_000));
    assert_eq!(wheel.links.capacity(), capacity);
}

#[test]
#[should_panic(expected = "timer indices and slots together")]
fn an_index_out_of_range_is_refused() {
    Wheel::new(TICK_NS, 8).arm(u32::MAX - 8, 1);
}

#[test]
fn a_wheel_of_one_slot_works() {
    let mut wheel = Wheel::new(1, 1);
    wheel.arm(0, 3);
    wheel.arm(1, 2);
    let fired: Vec<_> = (1..=3).map(|now| expired(&mut wheel, now)).collect();
    assert_eq!(fired, [vec![], vec![1], vec![0]]);
}

#[test]
fn model_random_operations_agree_with_a_sorted_map() {
    with_seeds(20, |random| {
        for slots in [1, 2, 64, 128, 8192] {
            agree_with_a_sorted_map(random, repeats(slots).next_power_of_two());
        }
    });
}

fn agree_with_a_sorted_map(random: &mut Random, slots: u32) {
    let mut wheel = Wheel::new(TICK_NS, slots);
    let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now_ns = random.next() >> 6;
    // The first call only learns what time it is.
    wheel.expire(now_ns, &mut Vec::new());
    for _ in 0..repeats(1_000) {
        let index = random.below(200);
        let reach_ns = (TICK_NS as u32) << random.below(15);
        let ns = u64::from(random.below(reach_ns));
        match random.below(8) {
            0..=3 => {
                // Some so far away that they never come.
                let is_far = random.below(32) == 0;
                let deadline_ns = if is_far { u64::MAX } else { now_ns + ns };
                wheel.arm(index, deadline_ns);
                oracle.insert(index, deadline_ns);
            }
            4 => assert_eq!(wheel.cancel(index), oracle.remove(&index).is_some()),
            _ => advance(&mut wheel, &mut oracle, &mut now_ns, ns),
        }
        assert_eq!(wheel.armed as usize, oracle.len());
        assert_eq!(is_armed(&wheel, index), oracle.contains_key(&index));
    }
    wheel.invariants();
}

/// Lets time pass and checks what fires against the oracle, and `next_ns` against both.
fn advance(wheel: &mut Wheel, oracle: &mut BTreeMap<u32, u64>, now_ns: &mut u64, ns: u64) {
    let earliest = oracle.values().min().copied();
    match (wheel.next_ns(*now_ns), earliest) {
        (None, None) => {}
        (Some(sleep_ns), Some(earliest)) => {
            assert!(
                *now_ns + sleep_ns < earliest.max(*now_ns).saturating_add(TICK_NS),
                "a tick late at most"
            );
        }
        other => panic!("armed in one and not in the other: {other:?}"),
    }
    *now_ns += ns;
    let mut due = Vec::new();
    wheel.expire(*now_ns, &mut due);
    for index in due {
        let deadline_ns = oracle.remove(&index).expect("armed");
        assert!(deadline_ns <= *now_ns, "never early");
        assert!(wheel.confirm(index), "queued");
    }
    let late = oracle
        .values()
        .filter(|deadline_ns| deadline_ns.saturating_add(TICK_NS) <= *now_ns);
    assert_eq!(late.count(), 0, "a tick late at most");
}
