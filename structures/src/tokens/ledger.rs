//! A holder's ledger: one word per token, in slots that are made as they are needed.
//!
//! A word is a generation and either a page (live) or the next free slot (free), 32 bits together.
//! Page and link share the low bits, as many as the larger of the two needs in this region and for
//! this holder; the generation has what is left. Only the owner of the ledger makes a slot live;
//! any thread with a handle may make it free, once. A token carries the live word, so that it is
//! checked with one comparison, generation and page alike.
//!
//! | may run beside | take | free locally | free remotely | sweep |
//! |----------------|------|--------------|---------------|-------|
//! | take, free locally, sweep | no: one owner | no | yes | no |
//! | free remotely  | yes  | yes          | yes           | yes   |
//!
//! Invariants and ordering edges are those of the tokens.

use super::cells::Cells;
use crate::sync::{AtomicU32, Ordering, edge};

/// Slots of a ledger, at most. A link is one of these or [`Layout::end`].
pub(super) const SLOTS_MAX: u32 = (1 << 20) - 16;
/// So that a generation has 7 bits at least.
pub(super) const PAGES_MAX: u32 = 1 << 24;

/// The bit of a live word.
const LIVE: u32 = 1 << 31;

const TAKE: Ordering = edge!("tokens_take_release", Release, Relaxed);
const FREE: Ordering = edge!("tokens_free_acquire", Acquire, Relaxed);
const PUSH: Ordering = edge!("tokens_push_release", Release, Relaxed);
const TAKE_RETURNED: Ordering = edge!("tokens_take_returned_acquire", Acquire, Relaxed);

/// How far the end of a token moves its slot's generation.
const GENERATION_STEP: u32 = 1;

/// Whether other threads than the owner may free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// There never was another handle: plain stores do.
    Alone,
    Shared,
}

#[derive(Debug)]
pub(super) struct Ledger {
    cells: Cells,
    /// Slots that returners freed, newest first.
    returned: AtomicU32,
    layout: Layout,
}

/// The owner's half: which slots it has not used yet, and which came back to it.
#[derive(Debug)]
pub(super) struct FreeSlots {
    first: u32,
    fresh: u32,
    bound: Bound,
}

/// How many slots there may be, and the [`Mode`] in the highest bit: with it a holder would not fit
/// into half a cache line.
#[derive(Clone, Copy, Debug)]
struct Bound(u32);

const SHARED: u32 = 1 << 31;

/// Which bits of a word are what: `LIVE`, the generation, and below, as this mask says, page or
/// link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout(u32);

/// A free slot that was picked for a token.
#[derive(Debug)]
pub(super) struct Picked<'a> {
    cell: &'a AtomicU32,
    slot: u32,
    /// Its word without a link.
    generation: u32,
}

impl Ledger {
    /// The ledger of a holder. Those whose tokens carry the same tag begin with different
    /// generations: `round` tells them apart.
    pub(super) fn new(layout: Layout, round: u32) -> Ledger {
        Ledger {
            cells: Cells::new(layout.first_generation(round)),
            returned: AtomicU32::new(layout.end()),
            layout,
        }
    }

    /// Picks a free slot. `None` if all are live.
    #[inline]
    pub(super) fn pick(&self, free: &mut FreeSlots, round: u32) -> Option<Picked<'_>> {
        let end = self.layout.end();
        if free.first == end && self.returned.load(Ordering::Relaxed) != end {
            // ORDER: TE2. The whole stack, so that it has no ABA problem.
            free.first = self.returned.swap(end, TAKE_RETURNED);
        }
        if free.first == end {
            return self.fresh(free, round);
        }
        let slot = free.first;
        let cell = self.cells.get(slot);
        let cell = cell.expect("the cell of a slot that was used is there");
        // ORDER: T5. Relaxed: the owner wrote it, or TE2 has brought it.
        let word = cell.load(Ordering::Relaxed);
        free.first = self.layout.low(word);
        let generation = word ^ free.first;
        Some(Picked {
            cell,
            slot,
            generation,
        })
    }

    #[inline]
    fn fresh(&self, free: &mut FreeSlots, round: u32) -> Option<Picked<'_>> {
        if free.fresh == free.bound.slots_max() {
            return None;
        }
        let (slot, generation) = (free.fresh, self.layout.first_generation(round));
        let cell = self.cells.made(slot, generation);
        free.fresh += 1;
        Some(Picked {
            cell,
            slot,
            generation,
        })
    }

    /// Puts a slot that was picked, and not made live, on the free list.
    pub(super) fn unpick(&self, free: &mut FreeSlots, picked: Picked<'_>) {
        let word = picked.generation | free.first;
        // ORDER: T5. Relaxed: the slot was never seen live, and only the owner reads the link.
        picked.cell.store(word, Ordering::Relaxed);
        free.first = picked.slot;
    }

    /// Makes a slot that was picked live; its number and its word. From here on the token may be
    /// returned.
    #[inline]
    pub(super) fn publish(&self, picked: Picked<'_>, page: u32) -> (u32, u32) {
        let word = LIVE | picked.generation | page;
        // ORDER: TE1. The page is counted already.
        picked.cell.store(word, TAKE);
        (picked.slot, word)
    }

    /// Frees a slot for its owner. The page that it named; `None` unless it has this live word.
    #[inline]
    pub(super) fn free(&self, free: &mut FreeSlots, slot: u32, word: u32) -> Option<u32> {
        let cell = self.cells.get(slot)?;
        let page = self.claim(cell, word, free.first, free.bound.mode())?;
        free.first = slot;
        Some(page)
    }

    /// Frees a slot on behalf of its owner, from any thread.
    #[inline]
    pub(super) fn free_remotely(&self, slot: u32, word: u32) -> Option<u32> {
        let cell = self.cells.get(slot)?;
        let mut first = self.returned.load(Ordering::Relaxed);
        let page = self.claim(cell, word, first, Mode::Shared)?;
        // ORDER: TE2. Release: the owner reads the link.
        while let Err(now) =
            self.returned
                .compare_exchange_weak(first, slot, PUSH, Ordering::Relaxed)
        {
            first = now;
            let word = self.layout.freed(word, first);
            // ORDER: TE2. Relaxed: the push publishes it.
            cell.store(word, Ordering::Relaxed);
        }
        Some(page)
    }

    /// Frees everything that is live and says which pages it named. The owner takes no more.
    pub(super) fn sweep(&self, free: &FreeSlots, mut page_freed: impl FnMut(u32)) {
        let mode = free.bound.mode();
        self.cells.each_used(free.fresh, |cell| {
            let word = cell.load(Ordering::Relaxed);
            if word & LIVE == 0 {
                return;
            }
            let page = match mode {
                // No other thread has a handle, nor will one look here again.
                Mode::Alone => Some(self.layout.low(word)),
                Mode::Shared => self.claim(cell, word, self.layout.end(), mode),
            };
            if let Some(page) = page {
                page_freed(page);
            }
        });
    }

    /// Live slots. O(slots).
    pub(super) fn live(&self, free: &FreeSlots) -> u32 {
        let mut count = 0;
        self.live_pages(free, |_| count += 1);
        count
    }

    /// Calls `visit` with the page of each live slot. O(slots).
    pub(super) fn live_pages(&self, free: &FreeSlots, mut visit: impl FnMut(u32)) {
        self.cells.each_used(free.fresh, |cell| {
            let word = cell.load(Ordering::Relaxed);
            if word & LIVE != 0 {
                visit(self.layout.low(word));
            }
        });
    }

    /// What was allocated beside the ledger.
    pub(super) fn further_bytes(&self) -> usize {
        self.cells.further_bytes()
    }

    /// Turns `word`, which a token carries, into a free one with this link, and says which page it
    /// named. Of several threads, one succeeds: T1.
    #[inline]
    fn claim(&self, cell: &AtomicU32, word: u32, link: u32, mode: Mode) -> Option<u32> {
        if word & LIVE == 0 || cell.load(Ordering::Relaxed) != word {
            return None;
        }
        let freed = self.layout.freed(word, link);
        if mode == Mode::Alone {
            // ORDER: T5. Relaxed: no other thread has a handle.
            cell.store(freed, Ordering::Relaxed);
        } else {
            // ORDER: TE1. Acquire: the page was counted before the slot became live.
            cell.compare_exchange(word, freed, FREE, Ordering::Relaxed)
                .ok()?;
        }
        Some(self.layout.low(word))
    }
}

impl FreeSlots {
    pub(super) fn new(layout: Layout, slots_max: u32) -> FreeSlots {
        FreeSlots {
            first: layout.end(),
            fresh: 0,
            bound: Bound(slots_max),
        }
    }

    pub(super) fn slots_max(&self) -> u32 {
        self.bound.slots_max()
    }

    /// From now on other threads may free slots.
    pub(super) fn share(&mut self) {
        self.bound.0 |= SHARED;
    }
}

impl Bound {
    fn slots_max(self) -> u32 {
        self.0 & !SHARED
    }

    #[inline]
    fn mode(self) -> Mode {
        match self.0 & SHARED {
            0 => Mode::Alone,
            _ => Mode::Shared,
        }
    }
}

impl Layout {
    /// For a holder of so many slots, in a region of so many pages.
    pub(super) fn new(pages: u32, slots_max: u32) -> Layout {
        // Pages are below their number; a slot is as well, and its number is the end of a list.
        let largest = pages.saturating_sub(1) | slots_max | 1;
        Layout(u32::MAX >> largest.leading_zeros())
    }

    /// The link of the last free slot.
    #[inline]
    fn end(self) -> u32 {
        self.0
    }

    /// Page or link.
    #[inline]
    fn low(self, word: u32) -> u32 {
        word & self.0
    }

    /// The generation of a slot that was never used, at its place in a word.
    fn first_generation(self, round: u32) -> u32 {
        // An odd factor: in 2 to the power of its bits rounds, each generation comes once.
        let number = round.wrapping_mul(0x9e37_79b1);
        number.wrapping_mul(self.0 + 1) & !LIVE
    }

    /// What becomes of a live word.
    #[inline]
    fn freed(self, word: u32, link: u32) -> u32 {
        // One more than all ones below carries into the generation, and that may carry into the bit
        // `LIVE`, which goes.
        let generation = (word | self.0).wrapping_add(GENERATION_STEP);
        generation & !LIVE | link
    }

    /// The live word of the next token of a slot, of the same page.
    #[cfg(test)]
    pub(super) fn next(self, word: u32) -> u32 {
        LIVE | self.freed(word, 0) | self.low(word)
    }
}

const _: () = assert!(SLOTS_MAX <= super::cells::CELLS_MAX && SLOTS_MAX < PAGES_MAX);
