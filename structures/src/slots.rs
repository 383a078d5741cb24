//! Slots: a table whose keys outlive its entries, and then find nothing.
//!
//! Other names: generation table, slot map, generational arena. A key is (index, generation);
//! removing an entry moves its slot to the next generation, so a late completion, timer or reply
//! that still carries the old key misses instead of reaching the slot's next owner.
//!
//! One thread owns the table (`&mut`); no locks, no atomics. It does not compact, does not shrink
//! and keeps no order: `iter` goes by index.
//!
//! Reuse is newest first: the slot freed last is taken next, because its memory is warm. Entries
//! never move: storage grows by whole segments of `SEGMENT_ENTRIES` and is kept.
//!
//! Invariants
//! - S1: a slot is in exactly one of: taken, on the free list, retired, or not yet touched.
//! - S2: a generation is never 0 and never returns: after `u32::MAX` the slot is retired, that is,
//!   never handed out again. At 100,000 removals a second of one and the same slot that takes
//!   twelve hours and costs one slot of the capacity.
//! - S3: `len` + free + retired = slots touched <= `capacity`.
//!
//! Cost: insert, get and remove are O(1); the first insert into a new segment allocates it. An
//! entry costs its value (as `Option`) and eight bytes.

use crate::NIL;

/// Entries that are allocated together.
const SEGMENT_ENTRIES: usize = 256;

/// Names one entry for as long as it lives, and nothing afterwards.
///
/// Packed in a `u64`, the index is the low half and the generation the high half. A table of
/// capacity 2^24 or less leaves bits 24 to 31 zero, for a caller that wants to put something there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Place in the table; below its capacity.
    pub index: u32,
    /// Which use of that place. Never 0 in a key that a table handed out.
    pub generation: u32,
}

impl Key {
    /// The key as one word: generation in the high half, index in the low half. Never 0.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`Key::to_u64`]. Any word is accepted: a forged key finds nothing.
    #[inline]
    pub const fn from_u64(word: u64) -> Key {
        Key {
            index: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// A bounded table of `T` with generation-checked keys. See the module's header.
///
/// ```
/// use flatpath_structures::slots::Slots;
///
/// let mut slots = Slots::new(1);
/// let first = slots.insert("one").unwrap();
/// assert_eq!(slots.insert("two"), Err("two"), "full: the value comes back");
/// assert_eq!(slots.remove(first), Some("one"));
///
/// let second = slots.insert("two").unwrap();
/// assert_eq!(slots.get(first), None, "a late key finds nothing, though the slot is used again");
/// assert_eq!(slots.get(second), Some(&"two"));
/// ```
#[derive(Debug)]
pub struct Slots<T> {
    segments: Vec<Box<[Slot<T>]>>,
    /// Newest free slot, or `NIL`.
    free: u32,
    /// Slots touched so far; the next fresh index.
    touched: u32,
    taken: u32,
    retired: u32,
    capacity: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// Next free slot. Meaningful only while the slot is on the free list.
    link: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    /// An empty table for at most `capacity` entries. Allocates nothing yet.
    ///
    /// # Panics
    /// If `capacity` is `u32::MAX`, which is the mark for "no index".
    pub fn new(capacity: u32) -> Slots<T> {
        assert!(capacity < NIL, "capacity u32::MAX is reserved");
        Slots {
            segments: Vec::new(),
            free: NIL,
            touched: 0,
            taken: 0,
            retired: 0,
            capacity,
        }
    }

    /// Puts `value` in and returns its key. O(1).
    ///
    /// # Errors
    /// Gives the value back when the table is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let Some(key) = self.next_key() else {
            return Err(value);
        };
        let Some(slot) = self.slot_mut(key.index) else {
            unreachable!("the table has grown for the key")
        };
        debug_assert!(
            slot.value.is_none(),
            "S1: a slot that is handed out is not taken"
        );
        slot.value = Some(value);
        let link = slot.link;
        if self.free == key.index {
            self.free = link;
        } else {
            self.touched += 1;
        }
        self.taken += 1;
        Ok(key)
    }

    /// The entry of `key`, or `None` if it was removed or never existed. O(1).
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key.index)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    /// The entry of `key`, or `None` if it was removed or never existed. O(1).
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slot_mut(key.index)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// Whether `key` still names an entry. O(1).
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// Takes the entry of `key` out; its key finds nothing from now on. O(1).
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(key.index)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        if slot.generation == u32::MAX {
            // S2: the next generation would be one that was used before.
            self.retired += 1;
        } else {
            slot.generation += 1;
            slot.link = free;
            self.free = key.index;
        }
        self.taken -= 1;
        Some(value)
    }

    /// The key of the entry that is at `index` now, or `None` if that slot is not taken. O(1).
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slot(index)?;
        slot.value.as_ref().map(|_| Key {
            index,
            generation: slot.generation,
        })
    }

    /// The entry that is at `index` now with its key, or `None` if that slot is not taken. O(1).
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let slot = self.slot_mut(index)?;
        let generation = slot.generation;
        let value = slot.value.as_mut()?;
        Some((Key { index, generation }, value))
    }

    /// Entries in the table.
    #[inline]
    pub fn len(&self) -> u32 {
        self.taken
    }

    /// Whether the table holds no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Whether the next [`Slots::insert`] gives its value back.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.free == NIL && self.touched == self.capacity
    }

    /// Entries that fit: the capacity it was made with, less the retired slots.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity - self.retired
    }

    /// All entries by index. O(largest number of entries there ever was), not O(len).
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = self.segments.iter().flat_map(|segment| segment.iter());
        (0..self.touched).zip(slots).filter_map(|(index, slot)| {
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.value.as_ref().map(|value| (key, value))
        })
    }

    /// All entries by index, to change them. O(largest number of entries there ever was).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        let slots = self
            .segments
            .iter_mut()
            .flat_map(|segment| segment.iter_mut());
        (0..self.touched).zip(slots).filter_map(|(index, slot)| {
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.value.as_mut().map(|value| (key, value))
        })
    }

    /// The key that the next value gets. Grows the table, but does not take the slot yet.
    #[inline]
    fn next_key(&mut self) -> Option<Key> {
        if self.free != NIL {
            let index = self.free;
            return Some(Key {
                index,
                generation: self.slot(index)?.generation,
            });
        }
        if self.touched == self.capacity {
            return None;
        }
        if self.touched as usize / SEGMENT_ENTRIES == self.segments.len() {
            self.grow();
        }
        Some(Key {
            index: self.touched,
            generation: 1,
        })
    }

    #[cold]
    fn grow(&mut self) {
        let entries = (self.capacity - self.touched).min(SEGMENT_ENTRIES as u32);
        let fresh = |_| Slot {
            generation: 1,
            link: NIL,
            value: None,
        };
        self.segments.push((0..entries).map(fresh).collect());
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let segment = self.segments.get(index as usize / SEGMENT_ENTRIES)?;
        segment.get(index as usize % SEGMENT_ENTRIES)
    }

    /// The same, to change.
    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        let segment = self.segments.get_mut(index as usize / SEGMENT_ENTRIES)?;
        segment.get_mut(index as usize % SEGMENT_ENTRIES)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::testing::{Random, repeats, with_seeds};
    use std::collections::HashMap;

    impl<T> Slots<T> {
        /// Panics unless S1 to S3 hold. O(slots touched).
        fn invariants(&self) {
            let touched = (0..self.touched).map(|index| self.slot(index).expect("touched"));
            let taken = touched.clone().filter(|slot| slot.value.is_some()).count() as u32;
            assert_eq!(taken, self.taken, "len counts the taken slots");
            assert!(
                touched.clone().all(|slot| slot.generation != 0),
                "S2: never generation 0"
            );
            let mut free = 0;
            let mut index = self.free;
            while index != NIL {
                assert!(
                    self.slot(index).expect("listed").value.is_none(),
                    "S1: free, not taken"
                );
                index = self.slot(index).expect("listed").link;
                free += 1;
                assert!(free <= self.touched, "S1: the free list has no cycle");
            }
            assert_eq!(taken + free + self.retired, self.touched, "S3");
            assert!(self.touched <= self.capacity, "S3");
        }

        /// Moves the entry of `key` to its last generation, which takes 2^32 removals otherwise.
        fn age(&mut self, key: Key) -> Key {
            let slot = self.slot_mut(key.index).expect("taken");
            slot.generation = u32::MAX;
            Key {
                generation: u32::MAX,
                ..key
            }
        }
    }

    #[test]
    fn a_key_finds_its_value_until_it_is_removed() {
        let mut slots = Slots::new(4);
        let key = slots.insert("one").expect("room");
        assert_eq!(slots.get(key), Some(&"one"));
        *slots.get_mut(key).expect("there") = "two";
        assert_eq!(slots.remove(key), Some("two"));
        assert_eq!(slots.get(key), None);
        assert_eq!(slots.get_mut(key), None);
        assert_eq!(slots.remove(key), None, "a second removal finds nothing");
        slots.invariants();
    }

    #[test]
    fn a_late_key_does_not_reach_the_next_owner_of_its_slot() {
        let mut slots = Slots::new(1);
        let late = slots.insert(1).expect("room");
        slots.remove(late);
        let current = slots.insert(2).expect("room");
        assert_eq!(late.index, current.index, "the slot is used again");
        assert_eq!(slots.get(late), None);
        assert_eq!(slots.remove(late), None);
        assert_eq!(slots.get(current), Some(&2));
    }

    #[test]
    fn a_full_table_gives_the_value_back() {
        let mut slots = Slots::new(2);
        let first = slots.insert(Box::new(1)).expect("room");
        slots.insert(Box::new(2)).expect("room");
        assert!(slots.is_full());
        assert_eq!(slots.insert(Box::new(3)), Err(Box::new(3)));
        slots.remove(first);
        assert!(!slots.is_full());
        assert!(slots.insert(Box::new(3)).is_ok());
        slots.invariants();
    }

    #[test]
    fn a_table_of_capacity_zero_holds_nothing() {
        let mut slots = Slots::new(0);
        assert_eq!(slots.insert(1), Err(1));
        assert!(slots.is_full() && slots.is_empty());
    }

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut slots = Slots::new(8);
        let keys: Vec<Key> = (0..4).map(|n| slots.insert(n).expect("room")).collect();
        slots.remove(keys[1]);
        slots.remove(keys[3]);
        assert_eq!(slots.insert(9).expect("room").index, 3);
        assert_eq!(slots.insert(9).expect("room").index, 1);
        assert_eq!(slots.insert(9).expect("room").index, 4, "then a fresh one");
        slots.invariants();
    }

    #[test]
    fn a_forged_key_finds_nothing() {
        let mut slots = Slots::new(10);
        let key = slots.insert(1).expect("room");
        for generation in [0, 2, u32::MAX] {
            assert_eq!(slots.get(Key { generation, ..key }), None);
        }
        for index in [1, 9, 10, 255, 256, NIL] {
            let forged = Key {
                index,
                generation: 1,
            };
            assert_eq!(slots.get(forged), None);
            assert_eq!(slots.get_mut(forged), None);
            assert_eq!(slots.remove(forged), None);
            assert_eq!(slots.key_at(index), None);
        }
        assert_eq!(slots.get(Key::from_u64(0)), None);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_slot_at_its_last_generation_is_retired() {
        let mut slots = Slots::new(2);
        let key = slots.insert(1).expect("room");
        let last = slots.age(key);
        assert_eq!(slots.remove(last), Some(1));
        slots.invariants();
        assert_eq!((slots.retired, slots.capacity()), (1, 1));
        assert_eq!(slots.get(last), None);
        assert_eq!(slots.remove(last), None);
        let next = slots.insert(2).expect("room");
        assert_ne!(next.index, last.index, "the retired slot is not handed out");
        assert_eq!(slots.insert(3), Err(3));
        assert!(slots.is_full());
    }

    #[test]
    fn a_packed_key_survives_the_round_trip_and_leaves_its_middle_free() {
        let key = Key {
            index: 0x00ab_cdef,
            generation: 0x8765_4321,
        };
        assert_eq!(key.to_u64(), 0x8765_4321_00ab_cdef);
        assert_eq!(Key::from_u64(key.to_u64()), key);
    }

    #[test]
    fn entries_stay_where_they_are_when_the_table_grows() {
        let mut slots = Slots::new(3 * SEGMENT_ENTRIES as u32);
        let key = slots.insert([0_u8; 64]).expect("room");
        let place = std::ptr::from_ref(slots.get(key).expect("there"));
        while slots.insert([1; 64]).is_ok() {}
        assert_eq!(slots.len(), 3 * SEGMENT_ENTRIES as u32);
        assert_eq!(std::ptr::from_ref(slots.get(key).expect("there")), place);
        slots.invariants();
    }

    #[test]
    fn the_last_segment_is_no_larger_than_the_capacity() {
        let mut slots = Slots::new(SEGMENT_ENTRIES as u32 + 3);
        while slots.insert(()).is_ok() {}
        assert_eq!(slots.segments[1].len(), 3);
    }

    #[test]
    fn dropping_the_table_drops_what_is_left_in_it() {
        let shared = std::rc::Rc::new(());
        let mut slots = Slots::new(8);
        let key = slots.insert(shared.clone()).expect("room");
        slots.insert(shared.clone()).expect("room");
        drop(slots.remove(key));
        assert_eq!(std::rc::Rc::strong_count(&shared), 2);
        drop(slots);
        assert_eq!(std::rc::Rc::strong_count(&shared), 1);
    }

    #[test]
    fn model_random_operations_agree_with_a_map() {
        with_seeds(20, |random| {
            for capacity in [1, 7, 300, 600] {
                agree_with_a_map(random, capacity);
            }
        });
    }

    fn agree_with_a_map(random: &mut Random, capacity: u32) {
        let mut slots = Slots::new(capacity);
        let mut oracle: HashMap<Key, u64> = HashMap::new();
        let mut ever: Vec<Key> = Vec::new();
        for round in 0..repeats(2_000) {
            let value = random.next();
            // Fill for a while, then empty for a while.
            let inserts_percent = if round / 500 % 2 == 0 { 70 } else { 20 };
            if random.below(100) < inserts_percent {
                match slots.insert(value) {
                    Ok(key) => {
                        assert_eq!(oracle.insert(key, value), None, "a key is new");
                        ever.push(key);
                    }
                    Err(back) => {
                        assert_eq!(back, value);
                        assert_eq!(oracle.len(), capacity as usize, "only when full");
                    }
                }
            } else if !ever.is_empty() {
                let key = ever[random.below(ever.len() as u32) as usize];
                assert_eq!(slots.get(key), oracle.get(&key));
                assert_eq!(slots.get_mut(key).copied(), oracle.get(&key).copied());
                assert_eq!(slots.contains(key), oracle.contains_key(&key));
                assert_eq!(slots.remove(key), oracle.remove(&key));
            }
            assert_eq!(slots.len() as usize, oracle.len());
        }
        slots.invariants();
        for (key, value) in slots.iter_mut() {
            assert_eq!(oracle.get(&key), Some(&*value));
            *value += 1;
            oracle.insert(key, *value);
        }
        assert_eq!(slots.iter().count(), oracle.len());
        assert!(
            slots
                .iter()
                .all(|(key, value)| oracle.get(&key) == Some(value))
        );
        assert!(
            slots
                .iter()
                .all(|(key, _)| slots.key_at(key.index) == Some(key))
        );
    }
}
