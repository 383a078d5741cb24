//! Handles of tokens: to hold them, to give them back from elsewhere, and to keep a page in use.
//!
//! The contract, the invariants and the ordering edges are those of the tokens.

use super::ledger::{FreeSlots, Layout, Ledger};
use super::{PageRefs, PageToken, Release, TakeError};
use crate::sync::Arc;
use std::fmt;

/// A token: the live word of its slot, tag of the holder, slot.
const SLOT_BITS: u32 = 20;
const TAG_BITS: u32 = 12;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// Holds tokens of a region. Dropping it gives back what it still holds.
pub struct Holder<R: Release = ()> {
    refs: PageRefs<R>,
    /// Made with the first token or returner.
    ledger: Option<Arc<Ledger>>,
    free: FreeSlots,
    serial: u32,
}

impl<R: Release> Holder<R> {
    pub(super) fn new(refs: PageRefs<R>, serial: u32, tokens_max: u32) -> Holder<R> {
        let free = FreeSlots::new(Layout::new(refs.pages(), tokens_max), tokens_max);
        Holder {
            refs,
            ledger: None,
            free,
            serial,
        }
    }

    /// Takes a token of `page`. No other holder can have it or return it. O(1).
    ///
    /// # Errors
    /// [`TakeError`] says whether the page, the holder or the region is the reason.
    #[inline]
    pub fn take(&mut self, page: u32) -> Result<PageToken, TakeError> {
        let (refs, serial) = (&self.refs, self.serial);
        let new = |free: &FreeSlots| new_ledger(refs, free, serial);
        let ledger = self.ledger.get_or_insert_with(|| new(&self.free));
        let picked = ledger.pick(&mut self.free, round(serial));
        let picked = picked.ok_or(TakeError::TooManyTokens)?;
        if let Err(error) = refs.shared.count_on(page) {
            ledger.unpick(&mut self.free, picked);
            return Err(error);
        }
        // ORDER: the page is counted before (T2, TE1).
        let (slot, word) = ledger.publish(picked, page);
        Ok(PageToken(
            u64::from(word) << 32 | u64::from(tag(serial) | slot),
        ))
    }

    /// Gives a token back. `false` if this holder does not hold it: it was given back before, was
    /// made up, or is another holder's. O(1).
    #[inline]
    pub fn give_back(&mut self, token: PageToken) -> bool {
        let Some(ledger) = &self.ledger else {
            return false;
        };
        let Some((word, slot)) = fields(token, self.serial) else {
            return false;
        };
        match ledger.free(&mut self.free, slot, word) {
            Some(page) => {
                self.refs.shared.count_off(page);
                true
            }
            None => false,
        }
    }

    /// A handle that gives back for this holder from any thread. Costs every later return of the
    /// holder one more atomic operation.
    pub fn returner(&mut self) -> Returner<R> {
        self.free.share();
        let serial = self.serial;
        let new = || new_ledger(&self.refs, &self.free, serial);
        let ledger = self.ledger.get_or_insert_with(new);
        Returner {
            refs: self.refs.clone(),
            ledger: Arc::clone(ledger),
            serial,
        }
    }

    /// Tokens held at this moment. O(slots used so far); for display.
    pub fn held(&self) -> u32 {
        self.ledger
            .as_ref()
            .map_or(0, |ledger| ledger.live(&self.free))
    }

    /// Calls `visit` with the page of each token held at this moment, once per token. O(slots used
    /// so far); for display.
    pub fn held_pages(&self, visit: impl FnMut(u32)) {
        if let Some(ledger) = &self.ledger {
            ledger.live_pages(&self.free, visit);
        }
    }

    /// Memory of this holder's bookkeeping, this struct included.
    pub fn bookkeeping_bytes(&self) -> usize {
        // The two counts of the `Arc` stand before the ledger.
        let ledger = |ledger: &Arc<Ledger>| {
            2 * size_of::<usize>() + size_of::<Ledger>() + ledger.further_bytes()
        };
        size_of::<Holder<R>>() + self.ledger.as_ref().map_or(0, ledger)
    }

    /// The region whose pages these are.
    pub fn refs(&self) -> &PageRefs<R> {
        &self.refs
    }
}

/// The sweep: gives back exactly what is still held, once, whatever returners do meanwhile.
impl<R: Release> Drop for Holder<R> {
    fn drop(&mut self) {
        let shared = &self.refs.shared;
        if let Some(ledger) = &self.ledger {
            ledger.sweep(&self.free, |page| shared.count_off(page));
        }
        shared.dismiss();
    }
}

impl<R: Release> fmt::Debug for Holder<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Holder")
            .field("serial", &self.serial)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// Gives tokens back for a holder, from any thread. Outlives the holder harmlessly: then everything
/// is refused.
pub struct Returner<R: Release = ()> {
    refs: PageRefs<R>,
    ledger: Arc<Ledger>,
    serial: u32,
}

impl<R: Release> Returner<R> {
    /// Like [`Holder::give_back`].
    #[inline]
    pub fn give_back(&self, token: PageToken) -> bool {
        let Some((word, slot)) = fields(token, self.serial) else {
            return false;
        };
        match self.ledger.free_remotely(slot, word) {
            Some(page) => {
                self.refs.shared.count_off(page);
                true
            }
            None => false,
        }
    }
}

impl<R: Release> Clone for Returner<R> {
    fn clone(&self) -> Returner<R> {
        let (refs, ledger) = (self.refs.clone(), Arc::clone(&self.ledger));
        Returner {
            refs,
            ledger,
            serial: self.serial,
        }
    }
}

impl<R: Release> fmt::Debug for Returner<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Returner")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// Keeps a page in use until it is dropped.
pub struct Pinned<R: Release = ()> {
    refs: PageRefs<R>,
    page: u32,
}

impl<R: Release> Pinned<R> {
    pub(super) fn new(refs: PageRefs<R>, page: u32) -> Pinned<R> {
        Pinned { refs, page }
    }

    pub fn page(&self) -> u32 {
        self.page
    }

    /// The region whose page it is.
    pub fn refs(&self) -> &PageRefs<R> {
        &self.refs
    }
}

impl<R: Release> Drop for Pinned<R> {
    fn drop(&mut self) {
        self.refs.shared.count_off(self.page);
    }
}

impl<R: Release> fmt::Debug for Pinned<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pinned")
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

#[cold]
fn new_ledger<R: Release>(refs: &PageRefs<R>, free: &FreeSlots, serial: u32) -> Arc<Ledger> {
    let layout = Layout::new(refs.pages(), free.slots_max());
    Arc::new(Ledger::new(layout, round(serial)))
}

#[inline]
fn tag(serial: u32) -> u32 {
    (serial % (1 << TAG_BITS)) << SLOT_BITS
}

/// How often all tags were in use before.
#[inline]
fn round(serial: u32) -> u32 {
    serial >> TAG_BITS
}

/// The word and the slot, if the token carries the tag of the holder.
#[inline]
fn fields(token: PageToken, serial: u32) -> Option<(u32, u32)> {
    let low = token.0 as u32;
    let is_own = low & !SLOT_MASK == tag(serial);
    is_own.then_some(((token.0 >> 32) as u32, low & SLOT_MASK))
}
