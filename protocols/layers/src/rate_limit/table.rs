//! A table of numbers by address, of a fixed size: sets of eight entries, found by a hash under a
//! secret.
//!
//! Invariants
//! - RT1: it never has more entries than it was made with, and takes no memory after its start.
//! - RT2: a new address takes the entry of its set with the lowest number. An entry that was never
//!   used has 0, and one whose number has passed says no more than 0 does, so these go first.
//!
//! Any thread may call; the lock of a set is held for a look at its entries.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use flatpath::lock::Lock;

/// Entries of a set.
const WAYS: usize = 8;

#[derive(Clone, Copy, Default)]
struct Entry {
    /// As IPv6 has it; 0, the unspecified address, is no client's.
    address: u128,
    number: u64,
}

pub(super) struct Table {
    sets: Box<[Lock<[Entry; WAYS]>]>,
    hasher: RandomState,
}

impl Table {
    /// A table of so many entries, rounded up to whole sets.
    pub(super) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).max(1);
        Self {
            sets: (0..sets).map(|_| Lock::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Changes the number of an address, which is 0 where it is not known. After an error it stays
    /// what it was, and what is not known stays so.
    pub(super) fn update<E>(
        &self,
        address: IpAddr,
        change: impl FnOnce(u64) -> Result<u64, E>,
    ) -> Result<(), E> {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        let hash = self.hasher.hash_one(address);
        // The high bits of a product are a fair choice for any number of sets.
        let set = (u128::from(hash) * self.sets.len() as u128) >> u64::BITS;
        let mut entries = self.sets[set as usize].lock();
        let known = entries.iter().position(|entry| entry.address == address);
        let number = known.map_or(0, |place| entries[place].number);
        let number = change(number)?;
        let lowest = || (0..WAYS).min_by_key(|place| entries[*place].number);
        if let Some(place) = known.or_else(lowest) {
            entries[place] = Entry { address, number };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn put(table: &Table, address: IpAddr, number: u64) -> u64 {
        let mut before = 0;
        let put: Result<(), Infallible> = table.update(address, |known| {
            before = known;
            Ok(number)
        });
        put.expect("it is never refused");
        before
    }

    fn v4(bits: u32) -> IpAddr {
        Ipv4Addr::from_bits(bits).into()
    }

    #[test]
    fn a_number_is_kept_for_each_address() {
        let table = Table::new(1024);
        for bits in 1..100 {
            assert_eq!(put(&table, v4(bits), u64::from(bits)), 0, "{bits}");
        }
        for bits in 1..100 {
            assert_eq!(put(&table, v4(bits), 1), u64::from(bits));
        }
        assert_eq!(
            put(&table, Ipv6Addr::from_bits(7).into(), 1),
            0,
            "another address"
        );
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let table = Table::new(8);
        put(&table, v4(1), 5);
        assert_eq!(table.update(v4(1), Err), Err(5));
        assert_eq!(table.update(v4(2), Err), Err(0));
        assert_eq!(put(&table, v4(1), 6), 5);
    }

    #[test]
    fn a_full_set_forgets_the_lowest_number() {
        let table = Table::new(1);
        for bits in 1..=8 {
            put(&table, v4(bits), 100 - u64::from(bits));
        }
        assert_eq!(put(&table, v4(9), 200), 0);
        assert_eq!(put(&table, v4(1), 99), 99, "it was among the highest");
        assert_eq!(put(&table, v4(8), 300), 0, "it was the lowest");
        assert_eq!(put(&table, v4(7), 300), 0, "it was the next");
    }

    #[test]
    fn the_number_of_entries_is_fixed() {
        for (entries, sets) in [(0, 1), (8, 1), (9, 2), (1000, 125)] {
            let table = Table::new(entries);
            for bits in 1..5000 {
                put(&table, v4(bits), 1);
            }
            let used =
                |set: &Lock<[Entry; WAYS]>| set.lock().iter().filter(|it| it.number > 0).count();
            let used: usize = table.sets.iter().map(used).sum();
            assert_eq!((table.sets.len(), used), (sets, sets * WAYS), "{entries}");
        }
    }

    #[test]
    fn an_entry_is_as_long_as_the_documents_say() {
        assert_eq!(size_of::<Lock<[Entry; WAYS]>>() / WAYS, 34);
    }
}
