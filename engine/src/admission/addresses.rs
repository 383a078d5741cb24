//! Where connections come from: one entry per peer address, for shares per address.
//!
//! An entry stands for an IPv4 address or for an IPv6 /64, which is what one subscriber is given
//! (RFC 6177 section 2). It counts connections of one network thread and lists them in the order in
//! which they were entered. Peers without an internet address (Unix sockets, peers that
//! are gone already) share one entry, on which no limit holds.
//!
//! A peer's address costs a system call (0.2 to 0.3 us; multishot accept of io_uring does not
//! deliver it), about one hundredth of what a connection with one request costs. So it is asked for
//! when something depends on it, see `Network::address_of`: at accept where a limit per address is
//! set, and otherwise not before a connection holds more than it should.
//!
//! Invariants
//! - A1: an entry exists exactly while it counts a connection, but for the unlimited one.
//! - A2: `connections` is the length of the entry's list.
//!
//! Cost: O(1) expected per operation. Buckets, links and the addresses they hash are keyed by a
//! secret, so no choice of addresses makes a chain long. Memory is allocated for the capacity
//! at start and committed as it is used; entries are allocated 256 at a time and kept.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use flatpath_structures::slots::{Key, Slots};

use crate::lists::{Links, List};

/// Names an entry for as long as a connection is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressId(u32);

impl AddressId {
    /// The peer's address has not been asked for.
    pub(crate) const UNKNOWN: AddressId = AddressId(u32::MAX);
    /// The connection is to be counted nowhere: it was refused.
    pub(crate) const NOWHERE: AddressId = AddressId(u32::MAX - 1);
    /// The entry without a limit.
    pub(crate) const UNLIMITED: AddressId = AddressId(0);
}

/// What counts as one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Prefix {
    None,
    V4(u32),
    V6(u64),
}

#[derive(Debug)]
struct Entry {
    prefix: Prefix,
    connections: u32,
    list: List,
    next: Option<Key>,
}

#[derive(Debug)]
pub(crate) struct Addresses {
    hasher: RandomState,
    /// Index of the first entry of each chain plus one.
    buckets: Vec<u32>,
    entries: Slots<Entry>,
    links: Links,
    /// Connections that are counted in any entry.
    entered: usize,
}

impl Addresses {
    /// A table for connections with indices below `places`.
    pub(crate) fn new(places: usize) -> Addresses {
        let capacity = u32::try_from(places + 1).unwrap_or(u32::MAX - 1);
        let mut entries = Slots::new(capacity);
        let unlimited = entries.insert(Entry::new(Prefix::None));
        debug_assert_eq!(unlimited.map(|key| key.index).ok(), Some(0));
        Addresses {
            hasher: RandomState::new(),
            buckets: vec![0; places.next_power_of_two()],
            entries,
            links: Links::new(places),
            entered: 0,
        }
    }

    /// Counts connection `index`, which comes from `peer`, and says where.
    pub(crate) fn enter(&mut self, index: u32, peer: Option<SocketAddr>) -> AddressId {
        let prefix = Prefix::of(peer);
        let id = self.find(prefix).unwrap_or_else(|| self.add(prefix));
        if let Some(entry) = entry_of(&mut self.entries, id) {
            entry.connections += 1;
            self.entered += 1;
            self.links.push_back(&mut entry.list, index);
        }
        id
    }

    /// Connection `index` is no longer counted in `id`.
    pub(crate) fn leave(&mut self, id: AddressId, index: u32) {
        let Some(entry) = entry_of(&mut self.entries, id) else {
            return;
        };
        entry.connections -= 1;
        self.entered -= 1;
        self.links.remove(&mut entry.list, index);
        if entry.connections == 0 && id != AddressId::UNLIMITED {
            self.forget(id);
        }
    }

    /// Connections counted in `id`; none for the entry without a limit and for no entry.
    pub(crate) fn connections(&self, id: AddressId) -> usize {
        if id == AddressId::UNLIMITED {
            return 0;
        }
        self.entry(id).map_or(0, |entry| entry.connections as usize)
    }

    /// Connections whose address is known.
    pub(crate) fn entered(&self) -> usize {
        self.entered
    }

    /// The first connection of the address; [`Addresses::after`] has the others.
    pub(crate) fn first(&self, id: AddressId) -> Option<u32> {
        self.entry(id)?.list.first()
    }

    /// What comes after connection `index` in its address's list.
    pub(crate) fn after(&self, index: u32) -> Option<u32> {
        self.links.after(index)
    }

    /// Moves connection `index` after the others of its address.
    pub(crate) fn move_back(&mut self, id: AddressId, index: u32) {
        if let Some(entry) = entry_of(&mut self.entries, id) {
            self.links.move_back(&mut entry.list, index);
        }
    }

    fn entry(&self, id: AddressId) -> Option<&Entry> {
        self.entries.get(self.entries.key_at(id.0)?)
    }

    fn bucket(&self, prefix: Prefix) -> usize {
        let hash = self.hasher.hash_one(prefix);
        // A power of two: the low bits are the place.
        (hash as usize) & (self.buckets.len() - 1)
    }

    fn head(&self, bucket: usize) -> Option<Key> {
        self.entries.key_at(self.buckets[bucket].checked_sub(1)?)
    }

    fn find(&self, prefix: Prefix) -> Option<AddressId> {
        if prefix == Prefix::None {
            return Some(AddressId::UNLIMITED);
        }
        let mut at = self.head(self.bucket(prefix));
        while let Some(key) = at {
            let entry = self.entries.get(key)?;
            if entry.prefix == prefix {
                return Some(AddressId(key.index));
            }
            at = entry.next;
        }
        None
    }

    fn add(&mut self, prefix: Prefix) -> AddressId {
        let bucket = self.bucket(prefix);
        let mut entry = Entry::new(prefix);
        entry.next = self.head(bucket);
        match self.entries.insert(entry) {
            Ok(key) => {
                self.buckets[bucket] = key.index + 1;
                AddressId(key.index)
            }
            // No more addresses than connections (A1), and each connection has a place.
            Err(_) => AddressId::UNLIMITED,
        }
    }

    /// Takes an entry without connections out of its chain.
    fn forget(&mut self, id: AddressId) {
        let Some(gone) = self.entries.key_at(id.0) else {
            return;
        };
        let Some(Entry { prefix, next, .. }) = self.entries.remove(gone) else {
            return;
        };
        let bucket = self.bucket(prefix);
        if self.buckets[bucket] == gone.index + 1 {
            self.buckets[bucket] = next.map_or(0, |next| next.index + 1);
            return;
        }
        let mut at = self.head(bucket);
        while let Some(entry) = at.and_then(|key| self.entries.get_mut(key)) {
            if entry.next == Some(gone) {
                entry.next = next;
                return;
            }
            at = entry.next;
        }
    }
}

fn entry_of(entries: &mut Slots<Entry>, id: AddressId) -> Option<&mut Entry> {
    entries.get_mut(entries.key_at(id.0)?)
}

impl Entry {
    fn new(prefix: Prefix) -> Entry {
        Entry {
            prefix,
            connections: 0,
            list: List::default(),
            next: None,
        }
    }
}

impl Prefix {
    pub(crate) fn of(peer: Option<SocketAddr>) -> Prefix {
        match peer.map(|peer| peer.ip().to_canonical()) {
            None => Prefix::None,
            Some(IpAddr::V4(address)) => Prefix::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => Prefix::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flatpath_driver::simulation::Random;

    use super::*;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    #[test]
    fn ports_and_hosts_of_one_subscriber_are_one_address() {
        let mut addresses = Addresses::new(8);
        let one = addresses.enter(0, peer("192.0.2.1"));
        assert_eq!(addresses.enter(1, peer("::ffff:192.0.2.1")), one);
        assert_ne!(addresses.enter(2, peer("192.0.2.2")), one);
        assert_eq!(addresses.connections(one), 2);
        let subscriber = addresses.enter(3, peer("2001:db8:0:1::1"));
        assert_eq!(addresses.enter(4, peer("2001:db8:0:1:ffff::")), subscriber);
        assert_ne!(addresses.enter(5, peer("2001:db8:0:2::1")), subscriber);
        assert_eq!(addresses.enter(6, None), AddressId::UNLIMITED);
        assert_eq!(addresses.connections(AddressId::UNLIMITED), 0);
        for nowhere in [AddressId::UNKNOWN, AddressId::NOWHERE] {
            assert_eq!(addresses.connections(nowhere), 0);
            addresses.leave(nowhere, 7);
        }
    }

    #[test]
    fn model_counts_agree_with_a_map_and_entries_come_back() {
        const PLACES: u32 = 64;
        let mut random = Random::new(7);
        let mut addresses = Addresses::new(PLACES as usize);
        let mut oracle: HashMap<u32, (u32, AddressId)> = HashMap::new();
        for _ in 0..20_000 {
            let index = random.below(PLACES as usize) as u32;
            if let Some((_, id)) = oracle.remove(&index) {
                addresses.leave(id, index);
            } else {
                let host = random.below(20) as u32;
                let address = IpAddr::V4((0x0a00_0000 + host).into());
                let id = addresses.enter(index, Some(SocketAddr::new(address, 9)));
                oracle.insert(index, (host, id));
            }
            for (host, id) in oracle.values() {
                let count = oracle.values().filter(|(other, _)| other == host).count();
                assert_eq!(addresses.connections(*id), count, "host {host}");
            }
        }
        for (index, (_, id)) in oracle.drain() {
            addresses.leave(id, index);
        }
        assert_eq!(addresses.entries.len(), 1, "A1: the unlimited one is left");
        assert!(addresses.buckets.iter().all(|first| *first == 0));
    }
}
