//! Long-lived connections: streams, long output, bodies, waits and pairs, whose clients decide how
//! long they take; and which of them is ended where others need some of what it holds.
//!
//! A file (`descriptors.rs`), and a request that lasts (`workers/reservation.rs`), is granted at
//! once to an address that has little beside others, also beyond the bound (`address_limit.rs`).
//! The same turn, or the one in which its job is back, then ends twice as much as is to be paid for
//! of what those that pay have held longest. What was ended is given back by workers, so a round
//! follows [`RELIEF_PERIOD_NS`] later at the earliest.
//!
//! | what others need        | the longest-lived of those is ended that                     |
//! |-------------------------|--------------------------------------------------------------|
//! | requests that last      | have one, and whose address has more than the average        |
//! | descriptors of files    | the same of files                                            |
//! | a place, and none rests | are of an address with more than its share of the places     |
//! | memory, for little bulk | hold some, and whose address holds more than the average     |
//!
//! | a connection that is looked at         | stays on the list              |
//! |----------------------------------------|--------------------------------|
//! | is long-lived no more                  | no                             |
//! | is being ended, or its address has few | yes, after the others          |
//! | pays                                   | yes: it is the one to be ended |
//!
//! Invariants
//! - A connection with a job that lasts, with more output than the kernel takes at once, or in a
//!   phase that is its client's, is on the list, in the order in which the first of these began.
//!   One with none of them leaves the list when it is looked at, or with the table.
//!
//! Does not: end anything. Cost: what lasts pays one load, and a few stores where it is its
//! connection's first; a search looks at `LONG_LIVED_STEPS_MAX` connections at most.

use crate::limits::{LONG_LIVED_STEPS_MAX, RELIEF_PERIOD_NS};
use crate::lists::Order;

/// What others need, and a long-lived connection may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Requests that last.
    Jobs,
    /// Descriptors of files.
    Files,
    /// A place among the connections.
    Place,
    /// Memory for buffers.
    Memory,
}

/// A long-lived connection, or one that was.
pub(crate) trait Facts {
    /// It has a job that lasts, output that is not sent, or is in a phase of its client's.
    fn lasts(&self) -> bool;

    /// It is not being ended already.
    fn may_end(&self) -> bool;

    /// It holds some of this, and its address has more than it should.
    fn pays_for(&self, need: Need) -> bool;
}

/// What a connection is that was looked at.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is the one to be ended.
    Pays,
    /// It goes after the others.
    Stays,
    /// It is long-lived no more.
    Leaves,
}

impl Standing {
    /// Whether it is to be ended for one of the needs.
    pub(crate) fn of(facts: &impl Facts, needs: &[Need]) -> Standing {
        let pays = || needs.iter().any(|need| facts.pays_for(*need));
        match facts.lasts() {
            false => Standing::Leaves,
            true if facts.may_end() && pays() => Standing::Pays,
            true => Standing::Stays,
        }
    }
}

/// What is to be paid for, which others have got beyond a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    jobs: usize,
    files: usize,
}

impl Missing {
    /// Twice what exceeds the bounds.
    pub(crate) fn of(jobs_beyond: usize, files_beyond: usize) -> Missing {
        Missing {
            jobs: 2 * jobs_beyond,
            files: 2 * files_beyond,
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Missing::default()
    }

    /// Whether files are.
    pub(crate) fn has_files(self) -> bool {
        self.files > 0
    }

    /// A connection that is ended gives back so much.
    pub(crate) fn pay(&mut self, jobs: usize, files: usize) {
        self.jobs = self.jobs.saturating_sub(jobs);
        self.files = self.files.saturating_sub(files);
    }

    /// What is needed for it.
    pub(crate) fn needs(self) -> &'static [Need] {
        match (self.jobs > 0, self.files > 0) {
            (true, true) => &[Need::Jobs, Need::Files],
            (true, false) => &[Need::Jobs],
            (false, true) => &[Need::Files],
            (false, false) => &[],
        }
    }
}

/// A search: which connection ends it, and how many may be looked at before.
#[derive(Debug)]
pub(crate) struct Search {
    last: Option<u32>,
    left: usize,
}

/// The long-lived connections of a network thread, by their places in the table, longest first.
#[derive(Debug)]
pub(crate) struct LongLived {
    order: Order,
    /// When some of them are ended next for what is missing, at the earliest.
    round_ns: u64,
}

impl LongLived {
    pub(crate) fn new(places: usize) -> LongLived {
        LongLived {
            order: Order::new(places),
            round_ns: 0,
        }
    }

    /// A connection is long-lived; from now on, if it was not.
    #[inline]
    pub(crate) fn add(&mut self, index: u32) {
        self.order.add(index);
    }

    /// A job of it begins to last.
    pub(crate) fn begin(&mut self, index: u32) {
        self.order.push_back(index);
    }

    /// It is gone, or being ended.
    pub(crate) fn remove(&mut self, index: u32) {
        self.order.remove(index);
    }

    /// When the next round is, at the earliest.
    pub(crate) fn round_ns(&self) -> u64 {
        self.round_ns
    }

    /// Whether a round begins now. If so, it has.
    #[must_use]
    pub(crate) fn begin_round(&mut self, now_ns: u64) -> bool {
        let is_time = now_ns >= self.round_ns;
        if is_time {
            self.round_ns = now_ns.saturating_add(RELIEF_PERIOD_NS);
        }
        is_time
    }

    /// Begins to look for one to end.
    pub(crate) fn search(&self) -> Search {
        Search {
            last: self.order.last(),
            left: LONG_LIVED_STEPS_MAX,
        }
    }

    /// The next one to be looked at.
    pub(crate) fn next(&self, search: &mut Search) -> Option<u32> {
        search.left = search.left.checked_sub(1)?;
        search.last.and_then(|_| self.order.first())
    }

    /// Whether this one, which was looked at, ends the search: it is found. If not, it goes after
    /// the others, or off the list.
    #[must_use]
    pub(crate) fn is_found(&mut self, (index, search): (u32, &mut Search), it: Standing) -> bool {
        match it {
            Standing::Pays => return true,
            Standing::Stays => self.order.push_back(index),
            Standing::Leaves => self.order.remove(index),
        }
        search.last = search.last.filter(|last| *last != index);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a connection is, and what it pays for.
    #[derive(Clone, Copy)]
    struct One {
        lasts: bool,
        may_end: bool,
        pays_for: &'static [Need],
    }

    impl Facts for One {
        fn lasts(&self) -> bool {
            self.lasts
        }

        fn may_end(&self) -> bool {
            self.may_end
        }

        fn pays_for(&self, need: Need) -> bool {
            self.pays_for.contains(&need)
        }
    }

    const JOBS: One = One {
        lasts: true,
        may_end: true,
        pays_for: &[Need::Jobs],
    };

    /// The one that is found, and what was looked at before it.
    fn search(
        list: &mut LongLived,
        needs: &[Need],
        of: &dyn Fn(u32) -> One,
    ) -> (Option<u32>, usize) {
        let (mut search, mut looks) = (list.search(), 0);
        while let Some(index) = list.next(&mut search) {
            let standing = Standing::of(&of(index), needs);
            if list.is_found((index, &mut search), standing) {
                return (Some(index), looks);
            }
            looks += 1;
        }
        (None, looks)
    }

    #[test]
    fn the_longest_of_those_that_pay_is_found() {
        let brief = One {
            lasts: false,
            ..JOBS
        };
        let ending = One {
            may_end: false,
            ..JOBS
        };
        let files = One {
            pays_for: &[Need::Files],
            ..JOBS
        };
        let ones = [brief, ending, files, JOBS, JOBS];
        let all = [Need::Jobs, Need::Files];
        let rows: [(&[Need], _); 6] = [
            (&[], (None, 5)),
            (&[Need::Place], (None, 5)),
            (&[Need::Memory], (None, 5)),
            (&[Need::Jobs], (Some(3), 3)),
            (&[Need::Files], (Some(2), 2)),
            (&all, (Some(2), 2)),
        ];
        for (needs, expected) in rows {
            let mut list = LongLived::new(5);
            (0..5).for_each(|index| list.add(index));
            list.add(0);
            let of = |index: u32| ones[index as usize];
            assert_eq!(search(&mut list, needs, &of), expected, "{needs:?}");
            // The first has left; those that were looked at come after the others.
            let left = expected.1.clamp(0, 4);
            let (_, again) = search(&mut list, &[], &of);
            assert_eq!(again, 4, "{needs:?}, {left}");
        }
    }

    #[test]
    fn those_that_were_looked_at_come_after_the_others() {
        let mut list = LongLived::new(4);
        (0..4).for_each(|index| list.add(index));
        let second = |index: u32| One {
            may_end: index == 1,
            ..JOBS
        };
        assert_eq!(search(&mut list, &[Need::Jobs], &second), (Some(1), 1));
        assert_eq!(search(&mut list, &[Need::Jobs], &|_| JOBS), (Some(1), 0));
        list.remove(1);
        assert_eq!(search(&mut list, &[Need::Jobs], &|_| JOBS), (Some(2), 0));
        list.begin(2);
        assert_eq!(search(&mut list, &[Need::Jobs], &|_| JOBS), (Some(3), 0));
    }

    #[test]
    fn a_search_ends_where_it_began_or_after_a_bound() {
        let count = LONG_LIVED_STEPS_MAX as u32 + 1;
        let mut list = LongLived::new(count as usize);
        (0..count).for_each(|index| list.add(index));
        let none = search(&mut list, &[], &|_| JOBS);
        assert_eq!(none, (None, LONG_LIVED_STEPS_MAX));
        let next = search(&mut list, &[Need::Jobs], &|_| JOBS);
        assert_eq!(next, (Some(count - 1), 0), "the next one continues");
        let mut empty = LongLived::new(1);
        assert_eq!(search(&mut empty, &[Need::Jobs], &|_| JOBS), (None, 0));
    }

    #[test]
    fn twice_what_is_missing_is_paid_for() {
        let mut missing = Missing::of(1, 2);
        assert_eq!(missing.needs(), [Need::Jobs, Need::Files]);
        missing.pay(1, 0);
        assert!(missing.needs() == [Need::Jobs, Need::Files] && missing.has_files());
        missing.pay(0, 3);
        assert!(missing.has_files(), "one is left of four");
        missing.pay(0, 9);
        assert!(missing.needs() == [Need::Jobs] && !missing.has_files());
        missing.pay(1, 0);
        assert!(missing.is_none() && missing.needs().is_empty());
        assert_eq!(Missing::of(0, 1).needs(), [Need::Files]);
    }

    #[test]
    fn a_round_follows_a_period_later() {
        let mut list = LongLived::new(1);
        assert!(list.begin_round(5) && !list.begin_round(4 + RELIEF_PERIOD_NS));
        assert_eq!(list.round_ns(), 5 + RELIEF_PERIOD_NS);
        assert!(list.begin_round(5 + RELIEF_PERIOD_NS));
    }
}
