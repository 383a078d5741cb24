//! Where connections come from: the one table of peer addresses, and what counts as one address.
//!
//! An entry stands for an IPv4 address or for an IPv6 /64, which is what one subscriber is given
//! (RFC 6177 section 2). It counts connections of one network thread and lists them in the order in
//! which they were entered. Peers without an internet address (Unix sockets, peers that
//! are gone already) share one entry, on which no limit holds.
//!
//! Each address has two cells in the counts that all threads share (`address_limit.rs`), found by
//! the keys of the server ([`AddressKeys`]). Those counts know cells and no address; they have no
//! lock, and what is given back on any thread is counted there. This table knows addresses and is
//! exact, because it says which connection is closed for which.
//!
//! A peer's address costs a system call (0.2 to 0.3 us; multishot accept of io_uring does not
//! deliver it), about one hundredth of what a connection with one request costs. So it is asked for
//! once, when something depends on it (`Common::learn`): at accept where a limit per address is
//! set, and otherwise not before a connection holds more than it should.
//!
//! Invariants
//! - A1: an entry exists exactly while it counts a connection, but for the unlimited one.
//! - A2: `connections` is the length of the entry's list.
//!
//! Cost: O(1) expected per operation. Cells are keyed by secrets, so no choice of addresses makes a
//! chain long. Memory is allocated for the capacity at start and committed as it is used; entries
//! are allocated 256 at a time and kept.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use flatpath_structures::slots::{Key, Slots};

use crate::limits::ADDRESS_ROW;
use crate::lists::{Links, List};

/// What counts as one address: that of an IPv4 peer, and the first 64 bits of an IPv6 peer's, which
/// is what one subscriber is given (RFC 6177, 2).
pub fn subscriber(peer: SocketAddr) -> IpAddr {
    match Prefix::of(Some(peer)) {
        Prefix::V6(bits) => Ipv6Addr::from_bits(u128::from(bits) << 64).into(),
        Prefix::V4(_) | Prefix::None => peer.ip().to_canonical(),
    }
}

/// The place of an address in the counts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells(pub(crate) [u16; 2]);

impl Cells {
    /// Counted for no address: the peer has none.
    pub(crate) const NONE: Cells = Cells([u16::MAX; 2]);
    /// The peer's address has not been asked for.
    pub(crate) const UNKNOWN: Cells = Cells([u16::MAX - 1; 2]);

    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.0[0]) << 16 | u32::from(self.0[1])
    }

    pub(crate) fn from_bits(bits: u32) -> Cells {
        Cells([(bits >> 16) as u16, bits as u16])
    }

    /// Whether it stands for an address, which may have a share.
    pub(crate) fn is_address(self) -> bool {
        self != Cells::NONE && self != Cells::UNKNOWN
    }

    /// The part that the address falls into, of this number of parts, with equal chances.
    pub(crate) fn part(self, parts: usize) -> usize {
        (usize::from(self.0[0]) * ADDRESS_ROW + usize::from(self.0[1])) % parts
    }
}

impl Default for Cells {
    fn default() -> Cells {
        Cells::UNKNOWN
    }
}

#[cfg(test)]
impl Cells {
    /// Those of addresses that share no cell, which those of an [`AddressKeys`] may do.
    pub(crate) fn apart(count: u16) -> Vec<Cells> {
        (0..count).map(|place| Cells([place; 2])).collect()
    }
}

/// Finds the cells of addresses; one for a server.
#[derive(Debug, Default)]
pub(crate) struct AddressKeys([RandomState; 2]);

impl AddressKeys {
    /// The address of this peer, and where it is counted.
    pub(crate) fn find(&self, peer: Option<SocketAddr>) -> Address {
        let prefix = Prefix::of(peer);
        let cells = match prefix {
            Prefix::None => Cells::NONE,
            _ => Cells(self.0.each_ref().map(|hasher| {
                let place = hasher.hash_one(prefix) % ADDRESS_ROW as u64;
                u16::try_from(place).unwrap_or_default()
            })),
        };
        Address { prefix, cells }
    }

    /// Where connections from this peer are counted.
    pub(crate) fn cells(&self, peer: Option<SocketAddr>) -> Cells {
        self.find(peer).cells
    }
}

/// An address, and where it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    prefix: Prefix,
    pub(crate) cells: Cells,
}

/// Names an entry for as long as a connection is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressId(u32);

impl AddressId {
    /// The peer's address has not been asked for.
    pub(crate) const UNKNOWN: AddressId = AddressId(u32::MAX);
    /// The connection is to be counted nowhere: it was refused.
    pub(crate) const NOWHERE: AddressId = AddressId(u32::MAX - 1);
    /// The connection is to be counted nowhere yet: its PROXY header names its client.
    pub(crate) const UNNAMED: AddressId = AddressId(u32::MAX - 2);
    /// The entry without a limit.
    pub(crate) const UNLIMITED: AddressId = AddressId(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Prefix {
    None,
    V4(u32),
    V6(u64),
}

#[derive(Debug)]
struct Entry {
    address: Address,
    connections: u32,
    list: List,
    next: Option<Key>,
}

#[derive(Debug)]
pub(crate) struct Addresses {
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
        let unlimited = entries.insert(Entry::new(Address {
            prefix: Prefix::None,
            cells: Cells::NONE,
        }));
        debug_assert_eq!(unlimited.map(|key| key.index).ok(), Some(0));
        Addresses {
            buckets: vec![0; places.next_power_of_two()],
            entries,
            links: Links::new(places),
            entered: 0,
        }
    }

    /// Counts connection `index`, which comes from this address, and says where.
    pub(crate) fn enter(&mut self, index: u32, address: Address) -> AddressId {
        let id = self.find(address).unwrap_or_else(|| self.add(address));
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

    fn bucket(&self, address: Address) -> usize {
        address.cells.part(self.buckets.len())
    }

    fn head(&self, bucket: usize) -> Option<Key> {
        self.entries.key_at(self.buckets[bucket].checked_sub(1)?)
    }

    fn find(&self, address: Address) -> Option<AddressId> {
        if address.prefix == Prefix::None {
            return Some(AddressId::UNLIMITED);
        }
        let mut at = self.head(self.bucket(address));
        while let Some(key) = at {
            let entry = self.entries.get(key)?;
            if entry.address.prefix == address.prefix {
                return Some(AddressId(key.index));
            }
            at = entry.next;
        }
        None
    }

    fn add(&mut self, address: Address) -> AddressId {
        let bucket = self.bucket(address);
        let mut entry = Entry::new(address);
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
        let Some(Entry { address, next, .. }) = self.entries.remove(gone) else {
            return;
        };
        let bucket = self.bucket(address);
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
    fn new(address: Address) -> Entry {
        Entry {
            address,
            connections: 0,
            list: List::default(),
            next: None,
        }
    }
}

impl Prefix {
    fn of(peer: Option<SocketAddr>) -> Prefix {
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

    use super::*;
    use crate::Random;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    /// As [`AddressKeys`] find it, but all of them in one chain.
    fn chained(host: u32) -> Address {
        Address {
            prefix: Prefix::V4(host),
            cells: Cells([7, 7]),
        }
    }

    #[test]
    fn ports_and_hosts_of_one_subscriber_are_one_address() {
        let (mut addresses, keys) = (Addresses::new(8), AddressKeys::default());
        let peer = |text| keys.find(peer(text));
        let one = addresses.enter(0, peer("192.0.2.1"));
        assert_eq!(addresses.enter(1, peer("::ffff:192.0.2.1")), one);
        assert_ne!(addresses.enter(2, peer("192.0.2.2")), one);
        assert_eq!(addresses.connections(one), 2);
        let subscriber = addresses.enter(3, peer("2001:db8:0:1::1"));
        assert_eq!(addresses.enter(4, peer("2001:db8:0:1:ffff::")), subscriber);
        assert_ne!(addresses.enter(5, peer("2001:db8:0:2::1")), subscriber);
        let unlimited = addresses.enter(6, keys.find(None));
        assert_eq!(unlimited, AddressId::UNLIMITED);
        assert_eq!(keys.cells(None), Cells::NONE);
        assert_eq!(addresses.connections(AddressId::UNLIMITED), 0);
        for nowhere in [AddressId::UNKNOWN, AddressId::NOWHERE, AddressId::UNNAMED] {
            assert_eq!(addresses.connections(nowhere), 0);
            addresses.leave(nowhere, 7);
        }
    }

    #[test]
    fn model_counts_agree_with_a_map_and_entries_come_back() {
        const PLACES: u32 = 64;
        let (mut random, keys) = (Random::new(7), AddressKeys::default());
        let mut addresses = Addresses::new(PLACES as usize);
        let mut oracle: HashMap<u32, (u32, AddressId)> = HashMap::new();
        for _ in 0..20_000 {
            let index = random.below(PLACES as usize) as u32;
            if let Some((_, id)) = oracle.remove(&index) {
                addresses.leave(id, index);
            } else {
                let host = random.below(20) as u32;
                let peer = SocketAddr::new(IpAddr::V4((0x0a00_0000 + host).into()), 9);
                let address = match host % 2 {
                    0 => chained(host),
                    _ => keys.find(Some(peer)),
                };
                let id = addresses.enter(index, address);
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
