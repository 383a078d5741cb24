//! Pages of receive memory: which connections keep common pages while they are stalled, and which
//! wait for one.
//!
//! What has come for a stalled connection and finds no buffer stays in its pages. Stalled
//! connections, whatever they wait for, and fragments that users retain may have common pages as
//! long as a part (`HELD_PAGES_LEFT_PART`) is left to the others. A connection that comes to keep
//! more then has its pages copied to buffers, which are charged to it; where there are too few of
//! these it is refused at once.
//!
//! A connection whose receive found no page (NOBUFS) waits for one. It is armed again, oldest
//! first, as many in a turn as there are free pages. Pages come back in this thread and in any
//! other, so while a connection is left the driver awaits pages; a wait for the kernel then does
//! not last while one is free. The server does not read from such a connection, so its phase stands
//! still meanwhile (`Connection::suspend`).
//!
//! | facts                                             | verdict            |
//! |---------------------------------------------------|--------------------|
//! | it keeps more than before, and the part is taken  | [`Verdict::Refuse`] |
//! | the same, spliced: its pair was promised the page | [`Verdict::Go`]    |
//! | it keeps no more than before                      | [`Verdict::Go`]    |
//! | one waits, a page is free                         | [`Rearm::Arm`]     |
//! | one waits, none is free or the turn has done many | [`Rearm::Await`]   |
//! | none waits                                        | [`Rearm::Done`]    |
//!
//! Invariants
//! - S1: a connection is on a list, that of the region and the kind of page that it wants, exactly
//!   while it waits for such a page: its owner reports both ends. So the lists hold no more than
//!   the connections.
//! - S2: `kept` is the sum of what the holdings of all connections say.
//!
//! Cost: O(1) for each call.

use crate::limits::{HELD_PAGES_LEFT_PART, STARVED_PER_TURN_MAX};
use crate::lists::{Links, List};
use crate::server::options;

use super::holding::{Holding, Verdict};

/// The pages that a receive goes to: a region, and whether a page may be shared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageKind(u16);

impl PageKind {
    /// Whole pages of the region that all have in common.
    pub(crate) const COMMON: PageKind = PageKind(0);

    pub(crate) fn new(region_id: u16, shares: bool) -> PageKind {
        PageKind(region_id << 1 | u16::from(shares))
    }

    /// What a protocol chooses, of a listener whose own region is `region_id`, or 0.
    pub(crate) fn of(pages: options::Pages, region_id: u16) -> PageKind {
        match pages {
            options::Pages::Common => PageKind::COMMON,
            options::Pages::Listener => PageKind::new(region_id, false),
            options::Pages::Shared => PageKind::new(region_id, true),
        }
    }

    pub(crate) fn of_index(index: usize) -> PageKind {
        PageKind(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Its place among all kinds, of which there are two for each region.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(crate) fn region_id(self) -> u16 {
        self.0 >> 1
    }

    pub(crate) fn shares(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A connection that keeps common pages, or did, and the region of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Pages that the connection keeps while it is stalled.
    pub(crate) pages: usize,
    pub(crate) is_spliced: bool,
    /// Pages of the region.
    pub(crate) all: usize,
    /// Those that users retain.
    pub(crate) retained: usize,
}

/// What is to be done for the connections that wait for pages of a kind.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rearm {
    /// This one receives again: it has waited longest.
    Arm(u32),
    /// The driver is to await pages of the kind (S1).
    Await,
    Done,
}

/// The pages of one network thread. See the module.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Common pages with input of stalled connections (S2).
    kept: usize,
    /// Connections that wait, oldest first, by the kind of page (S1).
    lists: Vec<List>,
    links: Links,
    waiting: usize,
}

impl Pages {
    pub(super) fn new(places: usize, region_count: usize) -> Pages {
        Pages {
            kept: 0,
            lists: vec![List::default(); 2 * region_count],
            links: Links::new(places),
            waiting: 0,
        }
    }

    /// Whether a connection would be refused for the common pages that it keeps after an event.
    pub(crate) fn exceeds(&self, holding: &Holding, kept: &Kept) -> bool {
        let before = usize::from(holding.pages);
        let taken = self.kept - before + kept.pages + kept.retained;
        let is_over = taken > kept.all - kept.all / HELD_PAGES_LEFT_PART;
        kept.pages > before && is_over && !kept.is_spliced
    }

    /// Charges a connection for the common pages that it keeps after an event.
    pub(crate) fn charge(&mut self, holding: &mut Holding, kept: Kept) -> Verdict {
        let verdict = match self.exceeds(holding, &kept) {
            true => Verdict::Refuse,
            false => Verdict::Go,
        };
        let pages = u16::try_from(kept.pages).unwrap_or(u16::MAX);
        let before = std::mem::replace(&mut holding.pages, pages);
        self.kept = self.kept + usize::from(pages) - usize::from(before);
        verdict
    }

    /// A connection is gone, and what it kept with it.
    pub(super) fn gone(&mut self, holding: &mut Holding) {
        self.kept -= usize::from(std::mem::take(&mut holding.pages));
    }

    /// A connection waits for a page from now on.
    pub(crate) fn wait(&mut self, index: u32, kind: PageKind) {
        self.waiting += 1;
        self.links.push_back(&mut self.lists[kind.index()], index);
    }

    /// It does not any more.
    pub(crate) fn end_wait(&mut self, index: u32, kind: PageKind) {
        self.waiting -= 1;
        self.links.remove(&mut self.lists[kind.index()], index);
    }

    /// Whether any connection waits for a page.
    pub(crate) fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// The kinds of pages that there are.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = PageKind> + use<> {
        (0..self.lists.len()).map(PageKind::of_index)
    }

    /// What to do next for those that wait for a page of a kind, of which `free` are free, where
    /// this turn has `looked` at some of them already.
    pub(crate) fn next(&self, kind: PageKind, free: u32, looked: usize) -> Rearm {
        match self.lists[kind.index()].first() {
            None => Rearm::Done,
            Some(index) if free > 0 && looked < STARVED_PER_TURN_MAX => Rearm::Arm(index),
            Some(_) => Rearm::Await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region of 16 pages, of which 12 may be kept and retained.
    fn kept(pages: usize, retained: usize) -> Kept {
        Kept {
            pages,
            is_spliced: false,
            all: 16,
            retained,
        }
    }

    #[test]
    fn one_that_comes_to_keep_more_than_the_part_allows_is_refused() {
        // What others keep, what it kept before and keeps now, what users retain: the verdict.
        let rows = [
            (0, 0, 12, 0, Verdict::Go),
            (0, 0, 13, 0, Verdict::Refuse),
            (0, 0, 1, 12, Verdict::Refuse),
            (11, 0, 1, 0, Verdict::Go),
            (12, 0, 1, 0, Verdict::Refuse),
            (12, 2, 2, 0, Verdict::Go),
            (12, 2, 1, 0, Verdict::Go),
            (12, 2, 3, 0, Verdict::Refuse),
        ];
        for (others, before, now, retained, expected) in rows {
            let mut pages = Pages::new(4, 1);
            let [mut one, mut other] = [Holding::default(); 2];
            let _ = pages.charge(&mut other, kept(others, 0));
            let _ = pages.charge(&mut one, kept(before, 0));
            let case = format!("{others}, {before} to {now}, {retained}");
            let found = pages.charge(&mut one, kept(now, retained));
            assert_eq!(found, expected, "{case}");
            let spliced = Kept {
                is_spliced: true,
                ..kept(16, 16)
            };
            assert_eq!(pages.charge(&mut one, spliced), Verdict::Go, "{case}");
            pages.gone(&mut one);
            assert_eq!(pages.kept, others, "S2: {case}");
            pages.gone(&mut one);
            pages.gone(&mut other);
            assert_eq!(pages.kept, 0, "S2: {case}");
        }
    }

    #[test]
    fn those_that_wait_for_a_page_are_armed_oldest_first_while_one_is_free() {
        let mut pages = Pages::new(8, 2);
        let own = PageKind::new(1, true);
        assert!(!pages.any_waits());
        assert_eq!(pages.next(PageKind::COMMON, 1, 0), Rearm::Done);
        pages.wait(5, PageKind::COMMON);
        pages.wait(2, PageKind::COMMON);
        pages.wait(3, own);
        assert_eq!(pages.kinds().count(), 4, "two for each region");
        let rows = [
            (PageKind::COMMON, 1, 0, Rearm::Arm(5)),
            (PageKind::COMMON, 0, 0, Rearm::Await),
            (PageKind::COMMON, 9, STARVED_PER_TURN_MAX - 1, Rearm::Arm(5)),
            (PageKind::COMMON, 9, STARVED_PER_TURN_MAX, Rearm::Await),
            (own, 1, 0, Rearm::Arm(3)),
            (PageKind::new(1, false), 1, 0, Rearm::Done),
        ];
        for (kind, free, looked, expected) in rows {
            assert_eq!(pages.next(kind, free, looked), expected, "{kind:?} {free}");
        }
        pages.end_wait(5, PageKind::COMMON);
        assert_eq!(pages.next(PageKind::COMMON, 1, 0), Rearm::Arm(2));
        pages.end_wait(2, PageKind::COMMON);
        pages.end_wait(3, own);
        assert!(!pages.any_waits());
    }
}
