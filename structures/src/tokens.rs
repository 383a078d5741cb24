//! Tokens: references of holders to pages of a region; a page is reused when none is left.
//!
//! Other names: Linux `net_iov` user references, io_uring zero-copy receive `user_refs`. A region
//! is a number of pages with one counter each. Data in a page is handed to a holder (a connection,
//! an attached process) as a token, and the holder gives the token back when it is done. It may
//! hold many, the same page several times. Whatever it holds when it dies is taken back, exactly.
//!
//! | who         | may                                   | threads |
//! |-------------|---------------------------------------|---------|
//! | [`PageRefs`]  | admit holders, pin pages              | any, clones share it |
//! | [`Holder`]  | take, give back; its end is the sweep | one at a time (`&mut`) |
//! | [`Returner`]| give back, beside the holder          | any, clones share it |
//! | [`Pinned`]  | keep one page in use                  | any |
//!
//! A token is (generation, page, holder's tag, slot), and a place in the holder's own ledger has to
//! agree. So a token that was returned already, was made up, or belongs to another holder is
//! refused without harm, and two tokens of one page are two. Not here: the memory of the pages.
//!
//! Invariants
//! - T1: the counter of a page is the number of live ledger slots that name it, plus its pins.
//!   The thread that turns a live slot free owns exactly one decrement; a compare-and-swap
//!   decides which thread.
//!   Hence no counter goes below 0, whatever a peer sends.
//! - T2: the page is counted before the token is visible, and counted off after the slot is free.
//! - T3: a slot's generation changes when it becomes free. It has the bits of a word of 32 that
//!   `live`, and the larger of page and slot, leave: 12 where a holder of up to 524,287 tokens has
//!   a region of 2 GiB in pages of 4 KiB. It wraps after so many uses of that slot. A token that
//!   is late by just that many returns another one if the slot names the same page again: a token
//!   of that page and of the same holder, never of another one.
//! - T4: the opening and every holder are users. `attach` fails when there is none, so nothing is
//!   taken after the last one. The memory lives as long as any handle.
//! - T5: slots on the free list belong to the holder; slots that returners gave back wait on a
//!   stack of their own, which the holder takes whole. The links are in the free slots.
//!
//! Ordering
//! - TE1 take: word of the slot (Release) -> return (Acquire): the page's count.
//! - TE2 hand back: push of a returned slot (Release) -> the holder's swap (Acquire): its link.
//! - TE3 reuse: decrement (Release) -> the decrement that reaches 0, and `uses` (Acquire): what the
//!   users of the page did with it comes before its reuse.
//! - TE4 users: the last user goes (Release) -> the region is seen closed (Acquire): all sweeps.
//!   `attach` increments only what is not 0. A returner is no user: a sweep leaves it what it has
//!   claimed, and may be over before that is counted off (TE3 says when it is).
//!
//! Cost: take and return are O(1): two atomic operations as long as there is no `Returner`, three
//! with one. The end of a holder is O(slots it ever had at a time), whatever the size of the
//! region. A holder without tokens takes 32 bytes, one with 16 takes 136, one with 1,000 takes 4.5
//! KiB: 4 bytes per token, rounded up to 64 tokens, and an eighth of that for finding them (see
//! `cells`). A region takes 4 bytes per page.

use crate::sync::{Arc, AtomicBool, AtomicU32, Ordering, edge};
use std::fmt;

pub use holder::{Holder, Pinned, Returner};

mod cells;
mod holder;
mod ledger;

/// Most tokens of one holder: 1,048,560.
const TOKENS_MAX: u32 = ledger::SLOTS_MAX;
/// Most pages of a region: 64 GiB of 4 KiB pages.
pub const PAGES_MAX: u32 = ledger::PAGES_MAX;

/// A page with more references than this takes no more, long before its counter overflows.
const USES_MAX: u32 = 1 << 31;

const COUNT_OFF: Ordering = edge!("tokens_count_off_acquire", AcqRel, Release);
const USES: Ordering = edge!("tokens_uses_acquire", Acquire, Relaxed);
const DISMISS: Ordering = edge!("tokens_dismiss_release", Release, Relaxed);
const IS_CLOSED: Ordering = edge!("tokens_is_closed_acquire", Acquire, Relaxed);

/// Notified when the last reference to a page is gone.
pub trait Release: Send + Sync + 'static {
    /// The last reference to `page` is gone. Called by whichever thread gave it back; must neither
    /// block nor panic.
    fn page_idle(&self, page: u32);
}

/// Ignores it.
impl Release for () {
    fn page_idle(&self, _page: u32) {}
}

impl<F: Fn(u32) + Send + Sync + 'static> Release for F {
    fn page_idle(&self, page: u32) {
        self(page);
    }
}

/// Names one reference to one page, for the holder that took it. Any word is accepted from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageToken(u64);

impl PageToken {
    /// The token as one word, for the wire.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The inverse of [`PageToken::to_u64`]. A forged token is refused when it is given back.
    #[inline]
    pub const fn from_u64(word: u64) -> PageToken {
        PageToken(word)
    }
}

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    NoSuchPage,
    TooManyTokens,
    /// It has 2^31 references.
    PageCrowded,
}

crate::impl_error! {
    TakeError {
        Self::NoSuchPage => "the region has no such page",
        Self::TooManyTokens => "the holder has as many tokens as it may",
        Self::PageCrowded => "the page has too many references",
    }
}

/// Pages that are handed out by tokens; a handle, cheap to clone. See the module's header.
///
/// ```
/// use flatpath_structures::tokens::PageRefs;
///
/// let refs = PageRefs::new(1024, |page: u32| println!("page {page} may be reused"));
/// let mut connection = refs.attach(64).expect("open");
/// let token = connection.take(7).expect("below its bound");
/// let remote = connection.returner();
/// std::thread::spawn(move || assert!(remote.give_back(token))).join().unwrap();
/// assert!(!connection.give_back(token), "once is enough");
/// assert_eq!(refs.uses(7), 0);
/// ```
pub struct PageRefs<R: Release = ()> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    /// References per page.
    counts: Box<[AtomicU32]>,
    /// The opening, until it is closed, and the holders.
    users: AtomicU32,
    is_open: AtomicBool,
    /// Numbers the holders.
    serial: AtomicU32,
    release: R,
}

impl<R: Release> PageRefs<R> {
    /// A region of `pages` pages, none in use, open to holders. `release` is notified of each page
    /// whose last reference goes.
    ///
    /// # Panics
    /// If `pages` is above [`PAGES_MAX`].
    pub fn new(pages: u32, release: R) -> PageRefs<R> {
        assert!(pages <= PAGES_MAX, "more pages than a token can name");
        let shared = Shared {
            counts: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            users: AtomicU32::new(1),
            is_open: AtomicBool::new(true),
            serial: AtomicU32::new(0),
            release,
        };
        PageRefs {
            shared: Arc::new(shared),
        }
    }

    /// Admits a holder of at most `tokens_max` tokens at a time, 1,048,560 at most. `None` if
    /// the region was closed and its last holder has gone.
    pub fn attach(&self, tokens_max: u32) -> Option<Holder<R>> {
        self.shared.admit().then(|| {
            let serial = self.shared.serial.fetch_add(1, Ordering::Relaxed);
            Holder::new(self.clone(), serial, tokens_max.min(TOKENS_MAX))
        })
    }

    /// Ends the opening: after the last holder has ended, none attaches. Later calls do nothing.
    pub fn close(&self) {
        // ORDER: relaxed; it only picks the call that dismisses the opening.
        if self.shared.is_open.swap(false, Ordering::Relaxed) {
            self.shared.dismiss();
        }
    }

    /// Whether no holder can attach any more. Then every holder has ended, and what it had is given
    /// back, except for what a [`Returner`] gives back at this moment: it has claimed the token,
    /// and counts off the page soon. Ask [`PageRefs::uses`] of a page that is to be reused.
    pub fn is_closed(&self) -> bool {
        // ORDER: TE4: acquires the sweeps of all users.
        self.shared.users.load(IS_CLOSED) == 0
    }

    /// Keeps `page` in use while its tokens are handed out: the first one may be back before the
    /// second one is taken. `None` if there is no such page or it is crowded.
    pub fn pin(&self, page: u32) -> Option<Pinned<R>> {
        self.shared.count_on(page).ok()?;
        Some(Pinned::new(self.clone(), page))
    }

    /// References to `page` at this moment, 0 if there is no such page.
    pub fn uses(&self, page: u32) -> u32 {
        let count = self.shared.counts.get(page as usize);
        // ORDER: TE3. Acquire: a thread that sees 0 may reuse the page.
        count.map_or(0, |count| count.load(USES))
    }

    pub fn pages(&self) -> u32 {
        self.shared.counts.len() as u32
    }

    pub fn release(&self) -> &R {
        &self.shared.release
    }
}

impl<R: Release> Clone for PageRefs<R> {
    fn clone(&self) -> PageRefs<R> {
        PageRefs {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R: Release> fmt::Debug for PageRefs<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PageRefs")
            .field("pages", &self.pages())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<R: Release> Shared<R> {
    /// One more user, unless there is none.
    fn admit(&self) -> bool {
        let one_more = |users: u32| match users {
            0 => None,
            _ => users.checked_add(1),
        };
        let relaxed = Ordering::Relaxed;
        self.users.fetch_update(relaxed, relaxed, one_more).is_ok()
    }

    fn dismiss(&self) {
        // ORDER: TE4. After the sweep.
        self.users.fetch_sub(1, DISMISS);
    }

    #[inline]
    fn count_on(&self, page: u32) -> Result<(), TakeError> {
        let count = self
            .counts
            .get(page as usize)
            .ok_or(TakeError::NoSuchPage)?;
        // ORDER: relaxed; TE1 publishes it.
        if count.fetch_add(1, Ordering::Relaxed) >= USES_MAX {
            // Others may come this far at the same time, but not 2^31 of them.
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(TakeError::PageCrowded);
        }
        Ok(())
    }

    /// Gives up one reference, which the caller owns.
    #[inline]
    fn count_off(&self, page: u32) {
        // ORDER: TE3: what was done with the page.
        let uses = self.counts[page as usize].fetch_sub(1, COUNT_OFF);
        if cfg!(any(debug_assertions, loom, shuttle)) {
            assert_ne!(
                uses, 0,
                "T1: page {page} was given back more often than taken"
            );
        }
        if uses == 1 {
            self.release.page_idle(page);
        }
    }
}

#[cfg(test)]
mod tests;
