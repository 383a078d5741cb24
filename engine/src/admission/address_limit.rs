//! How much of a bound one address may have, and one listener.
//!
//! The rule, for each thing that is bounded ([`ByAddress`] lists them): an address may have all of
//! it but twice what others hold or wait for, and a half in any case; a listener likewise, and
//! three quarters in any case.
//! So clients that come through one proxy, which are one address, have everything while no client
//! comes from elsewhere, and a single small client beside them takes little off. What exceeds its
//! share waits or is refused, and what it has held longest is ended where others need it
//! (`admission/long_lived.rs`).
//!
//! A bound may have a *reserve* beyond it (`AddressLimit::with_reserve`) for addresses that have
//! little: at most half of what one has on average. A newcomer then does not wait, whether one
//! other address has all or a hundred have some each. While more than half of the reserve is in
//! use, addresses that have more than the average pay: what has lasted longest for them is ended.
//! A newcomer whose requests end soon costs the others nothing.
//!
//! Addresses are counted in a table of two rows that is keyed by a secret (a count-min sketch:
//! Cormode and Muthukrishnan, 2005): the smaller of an address's two counts is never too small, and
//! too large only where others share both of its cells. One `Cells` of a connection names its
//! place in all tables of a server. It takes a system call to find out, so nothing is counted while
//! three quarters of a bound are free; what was taken then belongs to no address, and the others
//! share what is left, until its connection's address is asked for (`AddressLimit::name`).
//!
//! | may run beside | what changes counts | what asks |
//! |----------------|---------------------|-----------|
//! | either         | yes                 | yes       |
//!
//! Invariants
//! - G1: each count is the sum of what is noted with the connections that are counted there.
//!
//! Ordering: relaxed. The counts order nothing; one that is read a little late stalls a connection
//! an event later, and those that are stalled are looked at again and again.
//!
//! Cost: a change is four additions, an inquiry six loads. Neither happens on the path of a
//! request while three quarters of a bound are free.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use crate::admission::addresses::subscriber;
pub(crate) use crate::admission::addresses::{AddressKeys, Cells};
pub use crate::admission::by_address::{ByAddress, Remedy};
use crate::limits::{ADDRESS_ROW, LIGHT_PART};

/// What a connection that waits for memory counts for, in smallest buffers: its longest input.
pub(crate) const WAITING_BUFFERS: u32 = 16;

/// How much of `capacity` an address may have beside what `others` have: all but twice as much, and
/// a half in any case.
pub fn share(capacity: usize, others: usize) -> usize {
    share_of(capacity, others, capacity / 2)
}

fn share_of(capacity: usize, others: usize, least: usize) -> usize {
    capacity.saturating_sub(others.saturating_mul(2)).max(least)
}

/// What is held for the connection at one place, and where its address is counted: one word, so
/// that what is given back is always counted where it was taken.
#[derive(Debug)]
struct Account(AtomicU64);

impl Account {
    fn new() -> Account {
        Account(AtomicU64::new(u64::from(Cells::UNKNOWN.to_bits()) << 32))
    }

    fn parts(word: u64) -> (Cells, u32) {
        (Cells::from_bits((word >> 32) as u32), word as u32)
    }

    fn read(&self) -> (Cells, u32) {
        Account::parts(self.0.load(Ordering::Relaxed))
    }

    /// Where what is added, or taken away, is counted.
    fn add(&self, count: u32) -> Cells {
        Account::parts(self.0.fetch_add(u64::from(count), Ordering::Relaxed)).0
    }

    fn remove(&self, count: u32) -> Cells {
        Account::parts(self.0.fetch_sub(u64::from(count), Ordering::Relaxed)).0
    }

    /// Where what is held was counted, and how much that is: it is counted at `cells` now.
    fn name(&self, cells: Cells) -> (Cells, u32) {
        let named = |word: u64| Some(u64::from(cells.to_bits()) << 32 | word & 0xffff_ffff);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, named);
        Account::parts(before.unwrap_or_else(|word| word))
    }
}

/// Which of the two has more than its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Address,
    Listener,
}

/// What addresses, and listeners, hold of one bound. See the module.
#[derive(Debug)]
pub(crate) struct AddressLimit {
    capacity: usize,
    reserve: usize,
    /// What is counted for addresses, those included that a peer has none of.
    all: AtomicU32,
    /// What was taken for peers whose address was not asked for.
    loose: AtomicU32,
    /// Addresses for which some is counted, or fewer, where two share a cell.
    addresses: AtomicU32,
    /// By the number of the listener in the server.
    listeners: Box<[AtomicU32]>,
    rows: [Box<[AtomicU32]>; 2],
    /// What is held for each connection, by its place.
    accounts: Box<[Account]>,
}

impl AddressLimit {
    /// A bound of `capacity`, for as many listeners, and for connections with `places`; one that
    /// does not count for these has none.
    pub(crate) fn new(capacity: usize, listeners: usize, places: usize) -> AddressLimit {
        let row = |length| (0..length).map(|_| AtomicU32::new(0)).collect();
        AddressLimit {
            capacity,
            reserve: 0,
            all: AtomicU32::new(0),
            loose: AtomicU32::new(0),
            addresses: AtomicU32::new(0),
            listeners: row(listeners),
            rows: [row(ADDRESS_ROW), row(ADDRESS_ROW)],
            accounts: (0..places).map(|_| Account::new()).collect(),
        }
    }

    /// Adds a reserve beyond the bound, for addresses that have little.
    pub(crate) fn with_reserve(self, reserve: usize) -> AddressLimit {
        AddressLimit { reserve, ..self }
    }

    /// A connection was counted as `before` and is counted as `after` from now on.
    pub(crate) fn change(&self, listener: u16, cells: Cells, before: u32, after: u32) {
        let difference = after.wrapping_sub(before);
        if let Some(count) = self.listeners.get(usize::from(listener)) {
            count.fetch_add(difference, Ordering::Relaxed);
        }
        self.add(cells, difference);
    }

    /// The connection at a place holds `count` more. What is for no connection has no place.
    pub(crate) fn take(&self, place: usize, count: u32) {
        let account = self.accounts.get(place);
        let cells = account.map_or(Cells::NONE, |account| account.add(count));
        self.add(cells, count);
    }

    /// As much of that is given back, by any thread, perhaps when the connection is gone.
    pub(crate) fn give(&self, place: usize, count: u32) {
        let account = self.accounts.get(place);
        let cells = account.map_or(Cells::NONE, |account| account.remove(count));
        self.add(cells, count.wrapping_neg());
    }

    /// Counts what is held for the connection at a place, and what it comes to hold, at `cells`.
    pub(crate) fn name(&self, place: usize, cells: Cells) {
        if let Some(account) = self.accounts.get(place) {
            let (before, held) = account.name(cells);
            self.add(cells, held);
            self.add(before, held.wrapping_neg());
        }
    }

    /// Where the connection at a place is counted, and how much it holds. One load.
    pub(crate) fn at(&self, place: usize) -> (Cells, u32) {
        let account = self.accounts.get(place);
        account.map_or((Cells::NONE, 0), Account::read)
    }

    fn add(&self, cells: Cells, difference: u32) {
        let sum = match cells {
            Cells::UNKNOWN => &self.loose,
            _ => &self.all,
        };
        sum.fetch_add(difference, Ordering::Relaxed);
        for (row, count) in self.counts(cells).enumerate() {
            let before = count.fetch_add(difference, Ordering::Relaxed);
            let holds = [before, before.wrapping_add(difference)].map(|held| held > 0);
            // A cell changes between the two in turn, so the sum is exact whichever changes it.
            match (row, holds) {
                (0, [false, true]) => self.addresses.fetch_add(1, Ordering::Relaxed),
                (0, [true, false]) => self.addresses.fetch_sub(1, Ordering::Relaxed),
                _ => continue,
            };
        }
    }

    fn counts(&self, cells: Cells) -> impl Iterator<Item = &AtomicU32> {
        let rows = self.rows.iter().zip(cells.0);
        rows.filter_map(|(row, place)| row.get(usize::from(place)))
    }

    /// How much an address holds, or more, where others share its cells.
    pub(crate) fn held(&self, cells: Cells) -> u32 {
        let counts = self.counts(cells).map(load);
        counts.min().unwrap_or(0)
    }

    /// Whether some is held for peers whose address was not asked for.
    #[cfg(test)]
    pub(crate) fn has_loose(&self) -> bool {
        load(&self.loose) > 0
    }

    /// Whether an address would have more than its share with `more` than it has.
    pub(crate) fn exceeds(&self, cells: Cells, more: usize) -> bool {
        self.exceeds_of(self.capacity, cells, more)
    }

    /// The same where so much may be had that is asked for.
    pub(crate) fn exceeds_of(&self, bound: usize, cells: Cells, more: usize) -> bool {
        let held = self.held(cells) as usize;
        let others = (load(&self.all) as usize).saturating_sub(held);
        let capacity = bound.saturating_sub(load(&self.loose) as usize);
        let share = share_of(capacity, others, bound / 2);
        cells.is_address() && held.saturating_add(more) > share
    }

    /// What an address holds on average, this one included. What was taken before addresses were
    /// asked for counts as that of one more: most of a burst is.
    fn average(&self, held: u32) -> u32 {
        let loose = load(&self.loose);
        let others = u32::from(held == 0) + u32::from(loose > 0);
        let addresses = load(&self.addresses) + others;
        (load(&self.all) + loose) / addresses.max(1)
    }

    /// Whether an address holds at most half of what one does on average, but for `own` of it.
    pub(crate) fn has_little(&self, cells: Cells, own: u32) -> bool {
        let held = self.held(cells);
        let average = self.average(held);
        cells.is_address() && average > 0 && held.saturating_sub(own) * 2 <= average
    }

    /// Whether an address holds more than one does on average.
    pub(crate) fn is_above_average(&self, cells: Cells) -> bool {
        let held = self.held(cells);
        cells.is_address() && held > self.average(held)
    }

    /// Whether an address holds next to nothing: so little that a quarter of the bound is enough
    /// for dozens of such addresses.
    pub(crate) fn is_light(&self, cells: Cells) -> bool {
        cells.is_address() && (self.held(cells) as usize) < self.capacity / LIGHT_PART
    }

    /// Whether addresses are to be known where so much is in use: a quarter of the bound.
    pub(crate) fn counts_addresses(&self, used: usize) -> bool {
        used.saturating_mul(4) >= self.capacity
    }

    /// How much may be in use in all where an address wants `more` and `used` are in use: the
    /// bound, and the reserve for one that has little. `None`: it would have more than its share.
    pub(crate) fn bound_for(&self, cells: Cells, more: usize, used: usize) -> Option<usize> {
        if !self.counts_addresses(used) {
            return Some(self.capacity);
        }
        let reserve = match self.has_little(cells, 0) {
            true => self.reserve,
            false => 0,
        };
        (!self.exceeds(cells, more)).then(|| self.capacity.saturating_add(reserve))
    }

    /// How much of `used` exceeds the bound and half of the reserve: others have to give it back.
    pub(crate) fn overdrawn(&self, used: usize) -> usize {
        used.saturating_sub(self.capacity.saturating_add(self.reserve / 2))
    }

    /// Who has more than its share, and so lets connections of the two wait. For one that waits
    /// already, `waited` asks for some room below the share, so that it does not come and go.
    pub(crate) fn over(&self, listener: u16, cells: Cells, waited: Waited) -> Option<Over> {
        let all = load(&self.all);
        let capacity = self.capacity;
        let exceeds = |held: u32, least: usize| {
            let others = all.saturating_sub(held);
            let share = share_of(capacity, others as usize, least);
            let room = match waited {
                Waited::No => 0,
                Waited::Yes => share / 16,
            };
            held as usize > share - room
        };
        if exceeds(self.held(cells), capacity / 2) {
            return Some(Over::Address);
        }
        let listeners = &self.listeners;
        let held = listeners.get(usize::from(listener)).map_or(0, load);
        let is_over = listeners.len() > 1 && exceeds(held, capacity / 4 * 3);
        is_over.then_some(Over::Listener)
    }
}

fn load(count: &AtomicU32) -> u32 {
    count.load(Ordering::Relaxed)
}

/// Whether a connection waits for its share already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::SocketAddr;

    use crate::Random;

    use super::*;

    const CAPACITY: usize = 64;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    #[test]
    fn an_address_has_all_but_twice_what_others_need_and_a_half_at_least() {
        let limit = AddressLimit::new(CAPACITY, 1, 0);
        let (one, other) = (Cells::apart(2)[0], Cells::apart(2)[1]);
        limit.change(0, one, 0, 64);
        assert_eq!(limit.over(0, one, Waited::No), None, "alone");
        assert!(!limit.exceeds(one, 0) && limit.exceeds(one, 1));
        for (others, share) in [(1, 62), (8, 48), (16, 32), (40, 32)] {
            limit.change(0, other, 0, others);
            for (held, over) in [(share, None), (share + 1, Some(Over::Address))] {
                limit.change(0, one, 64, held);
                let found = limit.over(0, one, Waited::No);
                assert_eq!(found, over, "{held} by {others}");
                assert_eq!(limit.exceeds(one, 0), over.is_some());
                limit.change(0, one, held, 64);
            }
            limit.change(0, other, others, 0);
        }
    }

    #[test]
    fn a_listener_leaves_a_quarter_and_one_alone_leaves_nothing() {
        for (listeners, over) in [(2, Some(Over::Listener)), (1, None)] {
            let limit = AddressLimit::new(CAPACITY, listeners, 0);
            limit.change(1, Cells::NONE, 0, 16);
            limit.change(0, Cells::NONE, 0, 48);
            assert_eq!(limit.over(0, Cells::NONE, Waited::No), None);
            let waited = limit.over(0, Cells::NONE, Waited::Yes);
            assert_eq!(waited, over, "some room is wanted first");
            limit.change(0, Cells::NONE, 48, 49);
            assert_eq!(limit.over(0, Cells::NONE, Waited::No), over);
            assert_eq!(limit.over(1, Cells::NONE, Waited::No), None);
        }
    }

    #[test]
    fn a_peer_without_an_address_has_no_share_and_counts_for_the_others() {
        let limit = AddressLimit::new(CAPACITY, 0, 0);
        limit.take(usize::MAX, 60);
        assert!(!limit.exceeds(Cells::NONE, 4) && !limit.exceeds(Cells::UNKNOWN, 4));
        let one = Cells::apart(1)[0];
        assert!(!limit.exceeds(one, 32) && limit.exceeds(one, 33));
    }

    #[test]
    fn an_address_has_little_or_much_beside_the_average_of_those_that_have_some() {
        let limit = AddressLimit::new(CAPACITY, 0, 0);
        let [one, other, newcomer] = [0, 1, 2].map(|place| Cells::apart(3)[place]);
        let beside = |cells, own| (limit.has_little(cells, own), limit.is_above_average(cells));
        assert_eq!(beside(one, 0), (false, false), "nobody has any");
        limit.change(0, one, 0, 20);
        assert_eq!(beside(one, 0), (false, false), "it is the average");
        limit.change(0, other, 0, 4);
        // 24 among two, and among three.
        assert_eq!(beside(one, 0), (false, true));
        assert_eq!(beside(other, 0), (true, false));
        assert_eq!(beside(newcomer, 0), (true, false));
        limit.change(0, other, 4, 10);
        assert_eq!(beside(other, 0), (false, false), "15 on average");
        assert_eq!(beside(other, 3), (true, false), "without the three");
        limit.change(0, one, 20, 0);
        assert_eq!(beside(newcomer, 0), (true, false), "10 among two");
        limit.change(0, other, 10, 0);
        assert_eq!(load(&limit.addresses), 0);
        limit.change(0, Cells::UNKNOWN, 0, 40);
        assert_eq!(beside(newcomer, 0), (true, false), "beside a burst");
        limit.change(0, one, 0, 10);
        assert_eq!(beside(one, 0), (true, false), "25 on average");
        assert_eq!(beside(Cells::UNKNOWN, 0), (false, false));
        limit.change(0, Cells::UNKNOWN, 40, 0);
        limit.change(0, one, 10, 0);
        limit.change(0, Cells::NONE, 0, 50);
        assert_eq!(beside(Cells::NONE, 0), (false, false));
        assert_eq!(beside(Cells::UNKNOWN, 0), (false, false));
    }

    #[test]
    fn one_subscriber_is_one_address() {
        let of = |text| subscriber(peer(text).expect("one")).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:0:1:ffff::9"), "2001:db8:0:1::");
    }

    /// With addresses that share no cell the sketch is exact.
    #[test]
    fn model_shares_agree_with_exact_counts_and_all_comes_back() {
        for seed in 1..20 {
            let mut random = Random::new(seed);
            let limit = AddressLimit::new(100, 0, 6);
            let mut names = Cells::apart(4);
            names.extend([Cells::NONE, Cells::UNKNOWN]);
            for (place, cells) in names.iter().enumerate() {
                limit.name(place, *cells);
            }
            let mut held: Vec<(usize, u32)> = Vec::new();
            for step in 0..500 {
                if random.below(2) == 0 || held.is_empty() {
                    // The first address takes most.
                    let who = random.below(2 * names.len()).saturating_sub(names.len());
                    let count = random.below(24) as u32;
                    limit.take(who, count);
                    held.push((who, count));
                } else {
                    let (who, count) = held.swap_remove(random.below(held.len()));
                    limit.give(who, count);
                }
                // A connection's address is found out, or it goes before what it holds.
                if random.below(8) == 0 {
                    let cells = [names[4], Cells::UNKNOWN][random.below(2)];
                    limit.name(4, cells);
                    limit.name(4, names[4]);
                }
                let mut sums: HashMap<usize, usize> = HashMap::new();
                for (who, count) in &held {
                    *sums.entry(*who).or_default() += *count as usize;
                }
                let of = |who: usize| sums.get(&who).copied().unwrap_or(0);
                let counted: usize = (0..5).map(of).sum();
                let capacity = 100_usize.saturating_sub(of(5));
                for (who, cells) in names.iter().enumerate().take(4) {
                    let most = 50.max(capacity.saturating_sub(2 * (counted - of(who))));
                    for more in [0, 1, 5] {
                        let expected = of(who) + more > most;
                        let found = limit.exceeds(*cells, more);
                        assert_eq!(found, expected, "seed {seed}, step {step}, {who}");
                    }
                }
            }
            held.drain(..)
                .for_each(|(who, count)| limit.give(who, count));
            assert_eq!((load(&limit.all), load(&limit.loose)), (0, 0));
            let rows = limit.rows.iter().flatten();
            assert!(rows.into_iter().all(|count| load(count) == 0), "G1");
            assert_eq!(load(&limit.addresses), 0);
        }
    }
}
