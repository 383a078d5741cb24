//! Table: storage that never moves and never shrinks, made a segment at a time.
//!
//! Other names: slab segments; Linux `flex_array`, or memory of `SLAB_TYPESAFE_BY_RCU`. Entry `i`
//! is the same object for the life of the table, so a thread that is late may read it, though it
//! must not believe it: a thread that reads an entry it does not own checks with a
//! compare-and-swap afterwards.
//!
//! | may run beside | `at` |
//! |----------------|------|
//! | `at`           | yes, also when both are the first to touch the segment |
//!
//! Invariants
//! - An entry is made once, before anyone sees it, and dropped with the table.
//! - The address of an entry never changes.
//!
//! Cost: `at` is two loads and a shift. The first touch of a segment makes its `SEGMENT_ENTRIES`
//! entries, whatever the size of the table; `new` takes 24 bytes per segment.
//!
//! Under loom and shuttle all segments are made by `new`: the `OnceLock` that guards the first
//! touch is `std`'s, which the models neither see nor need to check.

use std::ops::Index;
use std::sync::OnceLock;

/// Entries in a segment: few enough to be made on the spot, many enough that a segment is rare.
const SEGMENT_ENTRIES: u32 = if cfg!(miri) { 16 } else { 256 };

/// A fixed number of entries, addressed by index, made a segment at a time on first touch.
#[derive(Debug)]
pub(crate) struct Table<T> {
    segments: Box<[OnceLock<Box<[T]>>]>,
    capacity: u32,
    make: fn(u32) -> T,
}

impl<T> Table<T> {
    /// A table of `capacity` entries; `make` is given the index of the entry it makes.
    ///
    /// # Panics
    /// If the capacity is `u32::MAX`: that index is [`NIL`](crate::NIL).
    pub(crate) fn new(capacity: u32, make: fn(u32) -> T) -> Table<T> {
        assert!(capacity < crate::NIL, "the last index is NIL");
        let segments = (0..capacity.div_ceil(SEGMENT_ENTRIES))
            .map(|_| OnceLock::new())
            .collect();
        let table = Table {
            segments,
            capacity,
            make,
        };
        if cfg!(any(loom, shuttle)) {
            table.make_all();
        }
        table
    }

    /// Entry `index`; makes its segment on the first touch. O(1) otherwise.
    ///
    /// # Panics
    /// If `index` is not below the capacity.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        let (segment, entry) = split(index);
        let segment_cell = &self.segments[segment];
        let entries = match segment_cell.get() {
            Some(entries) => entries,
            None => self.make_segment(segment),
        };
        &entries[entry]
    }

    #[cold]
    fn make_segment(&self, segment: usize) -> &[T] {
        self.segments[segment].get_or_init(|| {
            let first = segment as u32 * SEGMENT_ENTRIES;
            let end = first.saturating_add(SEGMENT_ENTRIES).min(self.capacity);
            (first..end).map(self.make).collect()
        })
    }

    fn make_all(&self) {
        for segment in 0..self.segments.len() {
            self.make_segment(segment);
        }
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.at(index)
    }
}

#[inline]
fn split(index: u32) -> (usize, usize) {
    (
        (index / SEGMENT_ENTRIES) as usize,
        (index % SEGMENT_ENTRIES) as usize,
    )
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicU32, Ordering, spawn};
    use crate::testing::{join, rounds};

    #[test]
    fn every_entry_is_made_with_its_own_index() {
        let table = Table::new(2 * SEGMENT_ENTRIES + 3, |index| index * 10);
        for index in 0..table.capacity {
            assert_eq!(table[index], index * 10);
        }
    }

    #[test]
    fn a_segment_is_made_on_its_first_touch_only() {
        let table = Table::new(4 * SEGMENT_ENTRIES, |index| index);
        assert_eq!(*table.at(2 * SEGMENT_ENTRIES - 1), 2 * SEGMENT_ENTRIES - 1);
        let made = table.segments.iter().map(|cell| cell.get().is_some());
        assert!(made.eq([false, true, false, false]));
    }

    #[test]
    fn the_last_segment_is_cut_to_the_capacity() {
        let table = Table::new(SEGMENT_ENTRIES + 1, |index| index);
        assert_eq!(table[SEGMENT_ENTRIES], SEGMENT_ENTRIES);
        assert_eq!(
            table.segments[1].get().map(|entries| entries.len()),
            Some(1)
        );
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_at_the_capacity_is_refused() {
        let table = Table::new(3, |index| index);
        table.at(3);
    }

    #[test]
    #[should_panic(expected = "NIL")]
    fn a_capacity_that_would_use_nil_is_refused() {
        Table::new(u32::MAX, |index| index);
    }

    #[test]
    fn an_entry_never_moves_while_others_are_made() {
        let table = Table::new(64 * SEGMENT_ENTRIES, AtomicU32::new);
        let first: *const AtomicU32 = table.at(0);
        for segment in 0..64 {
            table.at(segment * SEGMENT_ENTRIES);
        }
        assert_eq!(first, std::ptr::from_ref(table.at(0)));
    }

    #[test]
    fn stress_threads_that_touch_a_segment_together_see_one_entry() {
        for _ in 0..rounds(200) {
            let table = Arc::new(Table::new(SEGMENT_ENTRIES, |_| AtomicU32::new(0)));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let table = Arc::clone(&table);
                    spawn(move || table[7].fetch_add(1, Ordering::Relaxed))
                })
                .collect();
            threads.into_iter().for_each(|thread| _ = join(thread));
            assert_eq!(table[7].load(Ordering::Relaxed), 4);
        }
    }
}
