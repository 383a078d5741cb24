//! How much of the memory for buffers the connections of one address, and those of one listener,
//! hold together, over all network threads, and when that is more than their share.
//!
//! The share follows what the others need: an address may have all of the budget but twice what
//! others hold or wait for, and a half in any case; a listener likewise, and three quarters in any
//! case. So clients that come through one proxy, which are one address, have everything while no
//! client comes from elsewhere, and a single small client beside them takes little off.
//!
//! Counted is what each connection held when an event was last handled for it, above the smallest
//! buffer, from a quarter of the budget in use on; and [`WAITING_BUFFERS`] for one that waits for
//! memory. Addresses are counted in a table of two rows that is keyed by a secret (a count-min
//! sketch: Cormode and Muthukrishnan, 2005): the smaller of an address's two counts is never too
//! small, and too large only where others share both of its cells.
//!
//! | may run beside | change | excess |
//! |----------------|--------|--------|
//! | both           | yes    | yes    |
//!
//! Invariants
//! - G1: each count is the sum of what is noted with the connections that are counted there.
//!
//! Ordering: relaxed. The counts order nothing; one that is read a little late stalls a connection
//! an event later, and those that are stalled are looked at again and again.
//!
//! Cost: a change is four additions, an inquiry five loads. Neither happens on the path of a
//! request while three quarters of the budget are free.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::addresses::Prefix;
use crate::limits::{ADDRESS_ROW, BUFFER_CLASSES};

/// What a connection that waits for memory counts for, in smallest buffers: its longest input.
pub(crate) const WAITING_BUFFERS: u32 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells([u16; 2]);

impl Cells {
    /// Counted for no address: the peer has none, or it was not asked for.
    const NONE: Cells = Cells([u16::MAX; 2]);
}

/// Who holds more than its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    Address,
    Listener,
}

/// See the module. All counts are in smallest buffers.
#[derive(Debug)]
pub(crate) struct Holdings {
    budget: u32,
    all: AtomicU32,
    /// By the number of the listener in the server.
    listeners: Box<[AtomicU32]>,
    rows: [Box<[AtomicU32]>; 2],
    hashers: [RandomState; 2],
}

impl Holdings {
    pub(crate) fn new(budget_bytes: usize, listeners: usize) -> Holdings {
        let row = |length| (0..length).map(|_| AtomicU32::new(0)).collect();
        Holdings {
            budget: u32::try_from(budget_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX),
            all: AtomicU32::new(0),
            listeners: row(listeners),
            rows: [row(ADDRESS_ROW), row(ADDRESS_ROW)],
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Where connections from this peer are counted.
    pub(crate) fn cells(&self, peer: Option<SocketAddr>) -> Cells {
        let prefix = Prefix::of(peer);
        if prefix == Prefix::None {
            return Cells::NONE;
        }
        Cells(self.hashers.each_ref().map(|hasher| {
            let place = hasher.hash_one(prefix) % ADDRESS_ROW as u64;
            u16::try_from(place).unwrap_or_default()
        }))
    }

    /// A connection was counted as `before` and is counted as `after` from now on.
    pub(crate) fn change(&self, listener: u16, cells: Cells, before: u32, after: u32) {
        let difference = after.wrapping_sub(before);
        let add = |count: &AtomicU32| {
            count.fetch_add(difference, Ordering::Relaxed);
        };
        add(&self.all);
        self.listeners.get(usize::from(listener)).map(add);
        for count in self.counts(cells) {
            add(count);
        }
    }

    fn counts(&self, cells: Cells) -> impl Iterator<Item = &AtomicU32> {
        let rows = self.rows.iter().zip(cells.0);
        rows.filter_map(|(row, place)| row.get(usize::from(place)))
    }

    /// Who has more than its share, and so lets connections of the two wait. For one that waits
    /// already, `waited` asks for some room below the share, so that it does not come and go.
    pub(crate) fn excess(&self, listener: u16, cells: Cells, waited: Waited) -> Option<Excess> {
        let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let all = load(&self.all);
        let exceeds = |held: u32, least: u32| {
            let others = all.saturating_sub(held);
            let share = self
                .budget
                .saturating_sub(others.saturating_mul(2))
                .max(least);
            let room = match waited {
                Waited::No => 0,
                Waited::Yes => share / 16,
            };
            held > share - room
        };
        let held = self.counts(cells).map(load).min().unwrap_or(0);
        if exceeds(held, self.budget / 2) {
            return Some(Excess::Address);
        }
        let listeners = &self.listeners;
        let held = listeners.get(usize::from(listener)).map_or(0, load);
        let is_over = listeners.len() > 1 && exceeds(held, self.budget / 4 * 3);
        is_over.then_some(Excess::Listener)
    }
}

/// Whether a connection waits for its share already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: usize = 64 * BUFFER_CLASSES[0];

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    #[test]
    fn an_address_has_all_but_twice_what_others_need_and_a_half_at_least() {
        let holdings = Holdings::new(BUDGET, 1);
        let one = holdings.cells(peer("192.0.2.1"));
        let other = holdings.cells(peer("192.0.2.2"));
        assert_ne!(one, other, "one run in 16 million fails here");
        holdings.change(0, one, 0, 64);
        assert_eq!(holdings.excess(0, one, Waited::No), None, "alone");
        for (others, share) in [(1, 62), (8, 48), (16, 32), (40, 32)] {
            holdings.change(0, other, 0, others);
            for (held, excess) in [(share, None), (share + 1, Some(Excess::Address))] {
                holdings.change(0, one, 64, held);
                assert_eq!(
                    holdings.excess(0, one, Waited::No),
                    excess,
                    "{held} by {others}"
                );
                holdings.change(0, one, held, 64);
            }
            holdings.change(0, other, others, 0);
        }
    }

    #[test]
    fn a_listener_leaves_a_quarter_and_one_alone_leaves_nothing() {
        for (listeners, excess) in [(2, Some(Excess::Listener)), (1, None)] {
            let holdings = Holdings::new(BUDGET, listeners);
            let none = holdings.cells(None);
            holdings.change(1, none, 0, 16);
            holdings.change(0, none, 0, 48);
            assert_eq!(holdings.excess(0, none, Waited::No), None);
            let waited = holdings.excess(0, none, Waited::Yes);
            assert_eq!(waited, excess, "some room is wanted first");
            holdings.change(0, none, 48, 49);
            assert_eq!(holdings.excess(0, none, Waited::No), excess);
            assert_eq!(holdings.excess(1, none, Waited::No), None);
        }
    }
}
