//! Turns: pieces of work that last as long as their clients take, of which there are few, such as
//! archives that are being read. One address may have all of them that no other wants.
//!
//! The rule is that of `address_limit.rs`: an address may have all turns but twice what others
//! have, and a half in any case. A client that finds none, and whose address has at most half of
//! what one has on average, takes one over: what has lasted longest for an address with more than
//! the average. Its memory goes over at once, and the connection that loses it is ended; so the
//! newcomer does not wait. Until that connection's work is dropped, a moment later, there is one
//! more than may be. Clients without an address are one address.
//!
//! Addresses are compared as they are, because there are few: no sketch is needed.
//!
//! | may run beside | begin | is_lost | drop of [`Turn`] |
//! |----------------|-------|---------|------------------|
//! | each of them   | yes   | yes     | yes              |
//!
//! Invariants
//! - TU1: of each limit there are at most `max` turns, each with its hold.
//! - TU2: a turn that was lost holds nothing, and its connection was told to end, once.
//!
//! Cost: a lock and a few walks over the turns. Not for what is done with each request.

use std::net::IpAddr;
use std::sync::Arc;

use flatpath_structures::lock::Lock;

use crate::admission::address_limit::share;
use crate::admission::by_address::ByAddress;
use crate::memory::share::ShareHold;

/// Who gets a turn.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Where it comes from, as far as that is known: see
    /// [`subscriber`](crate::admission::address_limit::subscriber).
    pub address: Option<IpAddr>,
    /// What ends its connection where it loses the turn.
    pub end: ConnectionEnd,
}

/// Ends a connection for others, from any thread and at any time; see
/// [`JobConnection::end`](crate::JobConnection::end). By default that of none.
#[derive(Clone, Default)]
pub struct ConnectionEnd(Option<Arc<dyn Fn() + Send + Sync>>);

flatpath_structures::opaque_debug! {
    impl[] ConnectionEnd as "ConnectionEnd";
}

impl ConnectionEnd {
    /// One that does this.
    pub(crate) fn by(end: impl Fn() + Send + Sync + 'static) -> ConnectionEnd {
        ConnectionEnd(Some(Arc::new(end)))
    }

    /// The connection ends in its thread's next turn: what it is being sent breaks off.
    pub fn end(&self) {
        if let Some(end) = &self.0 {
            end();
        }
    }
}

/// A number of turns at a time, of one kind of work. A clone is the same limit.
#[derive(Clone, Debug)]
pub struct TurnLimit(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    what: ByAddress,
    max: usize,
}

impl TurnLimit {
    /// At most `max` at a time of what is shared out so.
    #[must_use]
    pub fn new(what: ByAddress, max: usize) -> TurnLimit {
        TurnLimit(Arc::new(Limit { what, max }))
    }
}

/// All turns that take memory from one part of a share. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Lock<List>>);

#[derive(Debug, Default)]
struct List {
    /// Those that have lasted longest first.
    entries: Vec<Entry>, // OURS: as many as their limits allow.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    limit: TurnLimit,
    client: Client,
    hold: ShareHold,
}

/// A turn, until it is dropped or lost.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    number: u64,
}

impl Turns {
    /// A turn with what `hold` finds for it, or with what another one loses. `None`: the client has
    /// to come again.
    pub(crate) fn begin(
        &self,
        limit: &TurnLimit,
        client: Client,
        hold: impl FnOnce() -> Option<ShareHold>,
    ) -> Option<Turn> {
        let mut list = self.0.lock();
        let (own, all) = list.held(limit, client.address);
        let others = all - own;
        if others > 0 && own + 1 > share(limit.0.max, others) {
            return None;
        }
        let is_full = all >= limit.0.max;
        let found = if is_full { None } else { hold() };
        let (hold, loser) = match found {
            Some(hold) => (hold, None),
            None => {
                let at = list.payer(is_full.then_some(limit), client.address)?;
                let entry = list.entries.remove(at);
                (entry.hold, Some(entry.client))
            }
        };
        let number = list.next;
        list.next += 1;
        list.entries.push(Entry {
            number,
            limit: limit.clone(),
            client,
            hold,
        });
        drop(list);
        if let Some(loser) = loser {
            log::info!("{}: one is ended for a newcomer", limit.0.what.name());
            loser.end.end();
        }
        Some(Turn {
            turns: self.clone(),
            number,
        })
    }
}

impl List {
    /// Turns of a limit that an address has, and all.
    fn held(&self, limit: &TurnLimit, address: Option<IpAddr>) -> (usize, usize) {
        let of_limit = || self.entries.iter().filter(|entry| entry.is_of(limit));
        let own = of_limit().filter(|entry| entry.client.address == address);
        (own.count(), of_limit().count())
    }

    /// The turn that one of this address takes over, of a limit or of any.
    fn payer(&self, limit: Option<&TurnLimit>, address: Option<IpAddr>) -> Option<usize> {
        let is_concerned = |entry: &&Entry| limit.is_none_or(|limit| entry.is_of(limit));
        let concerned = || self.entries.iter().filter(is_concerned);
        let of = |address| {
            let own = concerned().filter(|entry| entry.client.address == address);
            own.count()
        };
        let mut addresses: Vec<_> = concerned().map(|entry| entry.client.address).collect();
        addresses.push(address);
        addresses.sort_unstable();
        addresses.dedup();
        let average = concerned().count() / addresses.len();
        if average == 0 || of(address) * 2 > average {
            return None;
        }
        self.entries
            .iter()
            .position(|entry| is_concerned(&entry) && of(entry.client.address) > average)
    }
}

impl Entry {
    fn is_of(&self, limit: &TurnLimit) -> bool {
        Arc::ptr_eq(&self.limit.0, &limit.0)
    }
}

impl Turn {
    /// Whether another client has taken it over: its work is to end.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let list = self.turns.0.lock();
        list.entries.iter().all(|entry| entry.number != self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut list = self.turns.0.lock();
        let at = list.entries.iter();
        let at = { at }.position(|entry| entry.number == self.number);
        let entry = at.map(|at| list.entries.remove(at));
        drop(list);
        // What it held is given back without the lock.
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::share::{MemoryShare, SharePart};

    const MAX: usize = 4;

    fn from(host: u8) -> Client {
        Client {
            address: Some([192, 0, 2, host].into()),
            end: ConnectionEnd::default(),
        }
    }

    fn limit() -> TurnLimit {
        TurnLimit::new(ByAddress::Archives, MAX)
    }

    fn lost(turns: &[Turn]) -> usize {
        turns.iter().filter(|turn| turn.is_lost()).count()
    }

    #[test]
    fn one_address_has_all_and_each_newcomer_takes_over_what_has_lasted_longest() {
        let (part, limit) = (SharePart::default(), limit());
        let begin = |host| part.turn(&limit, from(host), 1);
        let all: Vec<_> = std::iter::from_fn(|| begin(1)).collect();
        assert_eq!((all.len(), lost(&all)), (MAX, 0), "alone it has all");
        let mut others = Vec::new();
        for (host, left) in [(2, 3), (2, 2), (3, 1)] {
            others.push(begin(host).expect("it has little"));
            assert_eq!(all.len() - lost(&all), left, "for {host}");
        }
        assert!(all[..3].iter().all(Turn::is_lost), "the longest first");
        assert!(
            begin(1).is_none() && begin(2).is_none(),
            "each has its share"
        );
        others.push(begin(4).expect("the second has two"));
        assert_eq!((lost(&all), lost(&others)), (3, 1));
        assert!(begin(5).is_none(), "each of four has one");
        drop(all);
        assert!(begin(5).is_some());
    }

    #[test]
    fn what_is_free_is_left_to_others_beyond_a_half() {
        let (part, limit) = (SharePart::default(), limit());
        let begin = |host| part.turn(&limit, from(host), 1);
        let _other = begin(2).expect("free");
        let own: Vec<_> = std::iter::from_fn(|| begin(1)).collect();
        assert_eq!(own.len(), 2);
        assert!(begin(3).is_some());
    }

    #[test]
    fn a_newcomer_takes_over_memory_where_that_is_short_and_not_the_number() {
        let share = MemoryShare::new(20);
        let part = share.part(0);
        let sites = [limit(), limit()];
        let one: Vec<_> = std::iter::from_fn(|| part.turn(&sites[0], from(1), 10)).collect();
        assert_eq!((one.len(), share.held_bytes()), (2, 20));
        let other = part.turn(&sites[1], from(2), 10);
        assert_eq!((lost(&one), share.held_bytes()), (1, 20));
        assert!(one[0].is_lost() && other.is_some());
        drop(one);
        assert_eq!(
            share.held_bytes(),
            10,
            "what was lost is not given back twice"
        );
        drop(other);
        assert_eq!(share.held_bytes(), 0);
    }

    #[test]
    fn clients_without_an_address_are_one() {
        let (part, limit) = (SharePart::default(), limit());
        let begin = || part.turn(&limit, Client::default(), 1);
        let all: Vec<_> = std::iter::from_fn(begin).collect();
        assert_eq!(all.len(), MAX);
        assert!(part.turn(&limit, from(1), 1).is_some());
        assert_eq!(lost(&all), 1);
    }
}
