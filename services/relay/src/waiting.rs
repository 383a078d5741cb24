//! Places to wait: bounded, and shared fairly between addresses.
//!
//! When all places are taken, a newcomer still gets one: the client that has waited longest of the
//! address that holds most places loses its own. So an address that fills the places does so at its
//! own cost, and a newcomer has as long as any other to meet its partner. Addresses are those of
//! subscribers: an IPv4 address, or the first 64 bits of an IPv6 one. Peers without an address
//! count as one.
//!
//! Invariants
//! - W1: `groups` has a group for each address with a place, and `ranks` the rank of each group.
//! - W2: `count` is the number of places taken, and at most the bound once a newcomer has entered.
//!
//! Cost: O(log n) in the places taken, and one system call for the peer's address, per client that
//! waits. Clients whose partner is there take no place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use flatpath::episode::{Episode, Over};

/// Quarters of the places that may be taken when the log reports that places are free again.
const ROOM_AGAIN: usize = 3;

/// The address that a place is counted for.
pub(crate) type Holder = Option<IpAddr>;

/// A place taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    holder: Holder,
    number: u64,
}

/// Most places first, then longest waiting.
type Rank = (usize, Reverse<u64>, Holder);

pub(crate) struct Waiting<G> {
    groups: HashMap<Holder, BTreeMap<u64, G>>,
    ranks: BTreeSet<Rank>,
    count: usize,
    /// Numbers given, in order of arrival.
    arrivals: u64,
    /// Clients that lose their place, while the places are full.
    displaced: Episode,
}

impl<G> Default for Waiting<G> {
    fn default() -> Waiting<G> {
        Waiting {
            groups: HashMap::new(),
            ranks: BTreeSet::new(),
            count: 0,
            arrivals: 0,
            displaced: Episode::until_ended(),
        }
    }
}

impl<G: Clone> Waiting<G> {
    /// A client takes a place.
    #[must_use = "the place is given up with it"]
    pub(crate) fn enter(&mut self, client: G, peer: Option<SocketAddr>) -> Ticket {
        let holder = holder(peer);
        self.arrivals += 1;
        let number = self.arrivals;
        self.change(holder, |group| {
            group.insert(number, client);
        });
        self.count += 1;
        Ticket { holder, number }
    }

    /// A client gives up its place, of `places`.
    pub(crate) fn leave(&mut self, ticket: Ticket, places: usize) {
        self.remove(ticket);
        if self.count <= places / 4 * ROOM_AGAIN
            && let Some(Over { count, .. }) = self.displaced.end()
        {
            log::info!("relay: places to wait are free again; {count} clients lost theirs");
        }
    }

    fn remove(&mut self, ticket: Ticket) {
        self.change(ticket.holder, |group| {
            group.remove(&ticket.number);
        });
        self.count -= 1;
    }

    /// The client that loses its place, when more than `places` are taken. Its ticket is void.
    pub(crate) fn displace(&mut self, places: usize) -> Option<G> {
        if self.count <= places {
            return None;
        }
        let (taken, Reverse(number), holder) = *self.ranks.last()?;
        let client = self.groups.get(&holder)?.get(&number)?.clone();
        self.remove(Ticket { holder, number });
        if self.displaced.begins() {
            log::warn!(
                "relay: all {places} places to wait are taken, {taken} by one address; clients of \
                 the address with most lose theirs to new ones, longest waiting first"
            );
        }
        Some(client)
    }

    /// Changes a group and its rank.
    fn change(&mut self, holder: Holder, act: impl FnOnce(&mut BTreeMap<u64, G>)) {
        let group = self.groups.entry(holder).or_default();
        if let Some(rank) = rank(holder, group) {
            self.ranks.remove(&rank);
        }
        act(group);
        match rank(holder, group) {
            Some(rank) => drop(self.ranks.insert(rank)),
            None => drop(self.groups.remove(&holder)),
        }
    }
}

fn rank<G>(holder: Holder, group: &BTreeMap<u64, G>) -> Option<Rank> {
    let (oldest, _) = group.first_key_value()?;
    Some((group.len(), Reverse(*oldest), holder))
}

/// The part of an address that belongs to one subscriber (RFC 6177 section 2).
fn holder(peer: Option<SocketAddr>) -> Holder {
    Some(match peer?.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 9))
    }

    /// Has clients of these addresses wait; the position of each that loses its place.
    fn displaced(addresses: &[&str], places: usize) -> Vec<usize> {
        let mut waiting = Waiting::default();
        let mut tickets = Vec::new();
        let mut displaced = Vec::new();
        for (position, address) in addresses.iter().enumerate() {
            tickets.push(Some(waiting.enter(position, peer(address))));
            while let Some(position) = waiting.displace(places) {
                tickets[position] = None;
                displaced.push(position);
            }
        }
        assert!(waiting.count <= places);
        for ticket in tickets.into_iter().flatten() {
            waiting.leave(ticket, places);
        }
        assert_eq!((waiting.count, waiting.groups.len()), (0, 0));
        assert!(waiting.ranks.is_empty() && waiting.displaced.count() == 0);
        displaced
    }

    #[test]
    fn the_address_with_most_places_pays_longest_waiting_first() {
        let one = ["192.0.2.1"; 4];
        let addresses = [&one[..], &["192.0.2.2", "192.0.2.3"]].concat();
        assert_eq!(displaced(&addresses, 4), [0, 1]);
        assert_eq!(displaced(&one, 2), [0, 1]);
    }

    #[test]
    fn among_equals_the_longest_waiting_goes_and_never_the_newcomer() {
        let addresses = ["192.0.2.3", "192.0.2.1", "192.0.2.2"];
        assert_eq!(displaced(&addresses, 1), [0, 1]);
        let reversed = ["192.0.2.2", "192.0.2.1", "192.0.2.3"];
        assert_eq!(displaced(&reversed, 1), [0, 1]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() {
        assert_eq!(
            holder(peer("2001:db8::1")),
            holder(peer("2001:db8::ffff:0:1"))
        );
        assert_ne!(holder(peer("2001:db8::1")), holder(peer("2001:db8:0:1::1")));
        assert_eq!(holder(peer("::ffff:192.0.2.1")), holder(peer("192.0.2.1")));
        assert_eq!(holder(None), None);
    }
}
