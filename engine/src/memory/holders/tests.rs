//! Holders without a driver: which is ended next, and which are asked to flush.

use std::collections::HashMap;

use super::*;
use crate::limits::BUFFER_CLASSES;

pub(in crate::memory) const BUFFER: usize = BUFFER_CLASSES[0];
pub(in crate::memory) const PLACES: u32 = 16;
/// Long enough to be seen to move little.
pub(in crate::memory) const LONG_NS: u64 = HOLDER_WINDOW_NS + 1_000_000;

/// Connections by place, and what their peers have acknowledged.
#[derive(Debug, Default)]
pub(in crate::memory) struct Table {
    pub(in crate::memory) looks: HashMap<u32, Look>,
    acknowledged: HashMap<u32, u64>,
}

impl Connections for Table {
    fn look(&self, index: u32) -> Option<Look> {
        self.looks.get(&index).copied()
    }

    fn acknowledged(&self, index: u32) -> Option<u64> {
        self.acknowledged.get(&index).copied()
    }
}

impl Table {
    pub(in crate::memory) fn hold(
        &mut self,
        holders: &mut Holders,
        index: u32,
        held_bytes: usize,
        now_ns: u64,
    ) {
        let look = Look {
            held_bytes,
            moved: 0,
            may_end: true,
            is_worked_on: false,
        };
        self.looks.insert(index, look);
        holders.note(index, (held_bytes, 0), now_ns);
    }

    fn end(&mut self, holders: &mut Holders, index: u32) {
        self.looks.remove(&index).expect("there");
        holders.ended(index);
    }

    fn victim(&self, holders: &mut Holders, now_ns: u64) -> Option<u32> {
        self.victim_of(holders, now_ns, false)
    }

    fn victim_of(&self, holders: &mut Holders, now_ns: u64, is_long: bool) -> Option<u32> {
        holders.victim(self, now_ns, (&mut 0, PLACES), is_long)
    }
}

#[test]
fn the_largest_of_those_that_move_little_is_ended() {
    let (mut holders, mut table) = (Holders::new(16), Table::default());
    for (index, buffers) in [(1, 4), (2, 64), (3, 16)] {
        table.hold(&mut holders, index, buffers * BUFFER, 1_000_000);
    }
    assert_eq!(
        table.victim(&mut holders, 1_000_000 + HOLDER_WINDOW_NS - 1),
        None
    );
    let now_ns = 2_000_000 + LONG_NS;
    // The largest moves, so it is looked at again later.
    table.looks.get_mut(&2).expect("there").moved = 64 * BUFFER as u32;
    assert_eq!(table.victim(&mut holders, now_ns), Some(3));
    table.end(&mut holders, 3);
    assert_eq!(table.victim(&mut holders, now_ns), Some(1));
    table.end(&mut holders, 1);
    assert_eq!(table.victim(&mut holders, now_ns), None);
    assert_eq!(table.victim(&mut holders, now_ns + LONG_NS), Some(2));
}

#[test]
fn one_whose_peer_acknowledges_is_spared() {
    let (mut holders, mut table) = (Holders::new(16), Table::default());
    table.hold(&mut holders, 1, 64 * BUFFER, 1_000_000);
    let mut now_ns = 1_000_000;
    for acknowledged in [10, 10 + 64 * BUFFER as u64] {
        now_ns += LONG_NS;
        table.acknowledged.insert(1, acknowledged);
        assert_eq!(table.victim(&mut holders, now_ns), None);
    }
    now_ns += LONG_NS;
    assert_eq!(table.victim(&mut holders, now_ns), Some(1), "no more came");
}

#[test]
fn one_that_is_cut_off_already_is_not_ended_again() {
    let (mut holders, mut table) = (Holders::new(16), Table::default());
    table.hold(&mut holders, 1, 64 * BUFFER, 1_000_000);
    table.looks.get_mut(&1).expect("there").may_end = false;
    assert_eq!(table.victim_of(&mut holders, 9 * LONG_NS, true), None);
}

#[test]
fn holders_of_one_buffer_are_ended_after_the_others_unless_they_are_worked_on() {
    let (mut holders, mut table) = (Holders::new(16), Table::default());
    for index in 0..4 {
        table.hold(&mut holders, index, BUFFER, 1_000_000);
    }
    table.hold(&mut holders, 5, 2 * BUFFER, 1_000_000);
    table.looks.get_mut(&0).expect("there").is_worked_on = true;
    assert_eq!(table.victim(&mut holders, 1_000_000), None, "seen first");
    let now_ns = 3 * LONG_NS;
    assert_eq!(table.victim(&mut holders, now_ns), Some(5));
    table.end(&mut holders, 5);
    for index in 1..4 {
        assert_eq!(table.victim(&mut holders, now_ns), Some(index));
        table.looks.remove(&index);
    }
    assert_eq!(table.victim(&mut holders, now_ns), None);
}

#[test]
fn in_a_long_shortage_the_largest_is_ended_although_it_moves() {
    let (mut holders, mut table) = (Holders::new(16), Table::default());
    table.hold(&mut holders, 1, 8 * BUFFER, 1_000_000);
    table.hold(&mut holders, 2, 4 * BUFFER, 1_000_000);
    assert_eq!(table.victim(&mut holders, 1_000_000), None);
    assert_eq!(table.victim_of(&mut holders, 1_000_000, true), Some(1));
}

#[test]
fn holders_are_asked_to_flush_in_turn_from_the_largest_down() {
    let (mut holders, mut table) = (Holders::new(200), Table::default());
    let count = FLUSHED_PER_ROUND_MAX as u32 + 1;
    for index in 0..count {
        let buffers = if index == 7 { 64 } else { 4 };
        table.hold(&mut holders, index, buffers * BUFFER, 1);
    }
    let (first, next) = holders.next_flushes(CLASSES - 1);
    assert_eq!((first.len(), first[0]), (FLUSHED_PER_ROUND_MAX, 7));
    let (second, next) = holders.next_flushes(next);
    let missed = (0..count).filter(|index| !first.contains(index) && !second.contains(index));
    assert_eq!(missed.count(), 0, "all have been asked");
    assert!(!second.contains(&7), "it was its turn already");
    let (third, _) = holders.next_flushes(next);
    assert_eq!(third[0], 7, "and from the largest again");
}

#[test]
fn others_learn_of_the_largest_holder_only_as_it_grows() {
    let mut holders = Holders::new(16);
    assert_eq!(holders.note(1, (BUFFER, 0), 1), None);
    assert_eq!(holders.note(1, (2 * BUFFER, 0), 1), Some(1));
    assert_eq!(holders.note(2, (3 * BUFFER, 0), 1), None);
    assert_eq!(holders.note(2, (8 * BUFFER, 0), 1), Some(3));
    assert_eq!(
        holders.note(2, (2 * BUFFER, 0), 1),
        None,
        "down only when looked at"
    );
    assert_eq!(holders.largest_class(), 3);
    holders.left(2);
    assert_eq!(holders.largest_class(), 1);
    holders.left(1);
    holders.left(9);
    assert_eq!(holders.largest_class(), 0);
}
