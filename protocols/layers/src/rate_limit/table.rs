//! A table of numbers by key, of a fixed size: sets of eight entries, found by a hash under a
//! secret. The keys are addresses, whose numbers are arrival times, or hashes of credentials, whose
//! numbers are the times when these have to be checked again.
//!
//! Invariants
//! - RT1: it never has more entries than it was made with, and takes no memory after its start.
//! - RT2: a new key takes the entry of its set with the lowest number. An entry that was never
//!   used has 0, and one whose number has passed says no more than 0 does, so these go first.
//! - RT3: each look compares the key with all entries of its set, as whole numbers: how long it
//!   takes tells nothing of the keys.
//!
//! Any thread may call; the lock of a set is held for a look at its entries.

use std::hash::{BuildHasher, RandomState};

use flatpath::lock::Lock;

/// Entries of a set.
const WAYS: usize = 8;

/// Bytes of an entry, with its part of the lock of its set.
pub(crate) const ENTRY_BYTES: usize = 34;

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Of an address, as IPv6 has it; 0, the unspecified address, is no client's.
    key: u128,
    number: u64,
}

pub(crate) struct Table {
    sets: Box<[Lock<[Entry; WAYS]>]>,
    hasher: RandomState,
}

impl Table {
    /// A table of so many entries, rounded up to whole sets.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).max(1);
        Self {
            sets: (0..sets).map(|_| Lock::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// The number of a key, which is 0 where it is not known.
    pub(crate) fn number(&self, key: u128) -> u64 {
        let entries = self.set(key).lock();
        place(&entries, key).map_or(0, |place| entries[place].number)
    }

    /// Changes the number of a key, which is 0 where it is not known. After an error it stays
    /// what it was, and what is not known stays so.
    pub(crate) fn update<E>(
        &self,
        key: u128,
        change: impl FnOnce(u64) -> Result<u64, E>,
    ) -> Result<(), E> {
        let mut entries = self.set(key).lock();
        let known = place(&entries, key);
        let number = known.map_or(0, |place| entries[place].number);
        let number = change(number)?;
        let lowest = || (0..WAYS).min_by_key(|place| entries[*place].number);
        if let Some(place) = known.or_else(lowest) {
            entries[place] = Entry { key, number };
        }
        Ok(())
    }

    fn set(&self, key: u128) -> &Lock<[Entry; WAYS]> {
        let hash = self.hasher.hash_one(key);
        // The high bits of a product are a fair choice for any number of sets.
        let set = (u128::from(hash) * self.sets.len() as u128) >> u64::BITS;
        &self.sets[set as usize]
    }
}

/// Where a key is in its set (RT3).
fn place(entries: &[Entry; WAYS], key: u128) -> Option<usize> {
    let mut found = None;
    for (place, entry) in entries.iter().enumerate() {
        if entry.key == key {
            found = Some(place);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn put(table: &Table, key: u128, number: u64) -> u64 {
        let looked_up = table.number(key);
        let mut before = 0;
        let put: Result<(), Infallible> = table.update(key, |known| {
            before = known;
            Ok(number)
        });
        put.expect("it is never refused");
        assert_eq!((looked_up, table.number(key)), (before, number));
        before
    }

    #[test]
    fn a_number_is_kept_for_each_key() {
        let table = Table::new(1024);
        for bits in 1..100 {
            assert_eq!(put(&table, bits, bits as u64), 0, "{bits}");
        }
        for bits in 1..100 {
            assert_eq!(put(&table, bits, 1), bits as u64);
        }
        let other = 7 << 64;
        assert_eq!(put(&table, other, 1), 0, "another key");
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let table = Table::new(8);
        put(&table, 1, 5);
        assert_eq!(table.update(1, Err), Err(5));
        assert_eq!(table.update(2, Err), Err(0));
        assert_eq!(put(&table, 1, 6), 5);
    }

    #[test]
    fn a_full_set_forgets_the_lowest_number() {
        let table = Table::new(1);
        for bits in 1..=8 {
            put(&table, bits, 100 - bits as u64);
        }
        assert_eq!(put(&table, 9, 200), 0);
        assert_eq!(put(&table, 1, 99), 99, "it was among the highest");
        assert_eq!(put(&table, 8, 300), 0, "it was the lowest");
        assert_eq!(put(&table, 7, 300), 0, "it was the next");
    }

    #[test]
    fn the_number_of_entries_is_fixed() {
        for (entries, sets) in [(0, 1), (8, 1), (9, 2), (1000, 125)] {
            let table = Table::new(entries);
            for bits in 1..5000 {
                put(&table, bits, 1);
            }
            let used =
                |set: &Lock<[Entry; WAYS]>| set.lock().iter().filter(|it| it.number > 0).count();
            let used: usize = table.sets.iter().map(used).sum();
            assert_eq!((table.sets.len(), used), (sets, sets * WAYS), "{entries}");
        }
    }

    #[test]
    fn an_entry_is_as_long_as_the_documents_say() {
        let bytes = size_of::<Lock<[Entry; WAYS]>>().div_ceil(WAYS);
        assert_eq!(bytes, ENTRY_BYTES);
    }
}
