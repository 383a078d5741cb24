//! A holder's ledger: one word per token, in slots that are made as they are needed.
//!
//! A word is a generation and either a page (live) or the next free slot (free). Only the owner of
//! the ledger makes a slot live; any thread with a handle may make it free, once.
//!
//! | may run beside | take | free locally | free remotely | sweep |
//! |----------------|------|--------------|---------------|-------|
//! | take, free locally, sweep | no: one owner | no | yes | no |
//! | free remotely  | yes  | yes          | yes           | yes   |
//!
//! Invariants and ordering edges are those of the tokens.
//!
//! Slots are in chunks that double: 16, 32, 64 and so on. 8 bytes per slot. The first chunk is part
//! of the ledger, so that a holder of few tokens has one allocation and finds them at once; the
//! others are made when first needed, and kept until the ledger goes.

use crate::sync::{AtomicU32, AtomicU64, Ordering, edge};
use std::sync::OnceLock;

/// Slots in the first chunk; each further one has twice as many.
const CHUNK_SLOTS: u32 = 16;
const CHUNKS: usize = 16;
const FURTHER_CHUNKS: usize = CHUNKS - 1;
/// Slots in all chunks.
pub(super) const SLOTS_MAX: u32 = CHUNK_SLOTS * ((1 << CHUNKS) - 1);

/// The low half of a live word; the rest of that half is the page.
const LIVE: u32 = 1 << 31;
/// The link of the last free slot.
const END: u32 = LIVE - 1;
pub(super) const PAGES_MAX: u32 = END;

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

type Chunk = OnceLock<Box<[AtomicU64]>>;

#[derive(Debug)]
pub(super) struct Ledger {
    first: [AtomicU64; CHUNK_SLOTS as usize],
    further: OnceLock<Box<[Chunk; FURTHER_CHUNKS]>>,
    /// Slots that returners freed, newest first.
    returned: AtomicU32,
    /// The generation of fresh slots. It differs from holder to holder, so that a foreign token
    /// does not fit by chance.
    generation: u32,
}

/// The owner's half: which slots it has not used yet, and which came back to it.
#[derive(Debug)]
pub(super) struct FreeSlots {
    first: u32,
    fresh: u32,
    slots_max: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    generation: u32,
    low: u32,
}

impl Ledger {
    pub(super) fn new(generation: u32) -> Ledger {
        Ledger {
            first: std::array::from_fn(|_| fresh_slot(generation)),
            further: OnceLock::new(),
            returned: AtomicU32::new(END),
            generation,
        }
    }

    /// Picks a free slot; its generation and its number. `None` if all are live.
    #[inline]
    pub(super) fn pick(&self, free: &mut FreeSlots) -> Option<(u32, u32)> {
        if free.first == END && self.returned.load(Ordering::Relaxed) != END {
            // ORDER: TE2. The whole stack, so that it has no ABA problem.
            free.first = self.returned.swap(END, TAKE_RETURNED);
        }
        if free.first == END {
            return self.fresh(free);
        }
        let slot = free.first;
        let word = Word::of(self.made(slot).load(Ordering::Relaxed));
        free.first = word.low;
        Some((slot, word.generation))
    }

    #[cold]
    fn fresh(&self, free: &mut FreeSlots) -> Option<(u32, u32)> {
        if free.fresh == free.slots_max {
            return None;
        }
        let slot = free.fresh;
        let (chunk, _) = place(slot);
        if let Some(further) = chunk.checked_sub(1) {
            let slots = CHUNK_SLOTS << chunk;
            self.further.get_or_init(Box::default)[further]
                .get_or_init(|| (0..slots).map(|_| fresh_slot(self.generation)).collect());
        }
        free.fresh += 1;
        Some((slot, self.generation))
    }

    /// Puts a slot that was picked, and not made live, on the free list.
    pub(super) fn unpick(&self, free: &mut FreeSlots, slot: u32, generation: u32) {
        let word = Word {
            generation,
            low: free.first,
        };
        // ORDER: T5. Relaxed: the slot was never seen live, and only the owner reads the link.
        self.made(slot).store(word.bits(), Ordering::Relaxed);
        free.first = slot;
    }

    /// Makes a slot that was picked live. From here on the token may be returned.
    #[inline]
    pub(super) fn publish(&self, slot: u32, generation: u32, page: u32) {
        let word = Word {
            generation,
            low: LIVE | page,
        };
        // ORDER: TE1. The page is counted already.
        self.made(slot).store(word.bits(), TAKE);
    }

    /// Frees a slot for its owner. The page that it named; `None` if it does not live in this
    /// generation.
    #[inline]
    pub(super) fn free(
        &self,
        free: &mut FreeSlots,
        slot: u32,
        generation: u32,
        mode: Mode,
    ) -> Option<u32> {
        let cell = self.cell(slot)?;
        let page = self.claim(cell, generation, free.first, mode)?;
        free.first = slot;
        Some(page)
    }

    /// Frees a slot on behalf of its owner, from any thread.
    #[inline]
    pub(super) fn free_remotely(&self, slot: u32, generation: u32) -> Option<u32> {
        let cell = self.cell(slot)?;
        let mut first = self.returned.load(Ordering::Relaxed);
        let page = self.claim(cell, generation, first, Mode::Shared)?;
        // ORDER: TE2. Release: the owner reads the link.
        while let Err(now) =
            self.returned
                .compare_exchange_weak(first, slot, PUSH, Ordering::Relaxed)
        {
            first = now;
            let word = Word {
                generation: generation.wrapping_add(GENERATION_STEP),
                low: first,
            };
            // ORDER: TE2. Relaxed: the push publishes it.
            cell.store(word.bits(), Ordering::Relaxed);
        }
        Some(page)
    }

    /// Frees everything that is live and says which pages it named. The owner takes no more.
    pub(super) fn sweep(&self, free: &FreeSlots, mode: Mode, mut page_freed: impl FnMut(u32)) {
        self.used(free).for_each(|cell| {
            let word = Word::of(cell.load(Ordering::Relaxed));
            if !word.is_live() {
                return;
            }
            let page = match mode {
                // No other thread has a handle, nor will one look here again.
                Mode::Alone => Some(word.page()),
                Mode::Shared => self.claim(cell, word.generation, END, mode),
            };
            if let Some(page) = page {
                page_freed(page);
            }
        });
    }

    /// Live slots. O(slots).
    pub(super) fn live(&self, free: &FreeSlots) -> u32 {
        let words = self.used(free).map(|cell| cell.load(Ordering::Relaxed));
        words.filter(|word| Word::of(*word).is_live()).count() as u32
    }

    /// Calls `visit` with the page of each live slot. O(slots).
    pub(super) fn live_pages(&self, free: &FreeSlots, mut visit: impl FnMut(u32)) {
        self.used(free).for_each(|cell| {
            let word = Word::of(cell.load(Ordering::Relaxed));
            if word.is_live() {
                visit(word.page());
            }
        });
    }

    /// The slots that were ever used, a chunk at a time.
    fn used(&self, free: &FreeSlots) -> impl Iterator<Item = &AtomicU64> {
        let further = self.further.get().into_iter().flat_map(|chunks| &**chunks);
        let further = further.filter_map(OnceLock::get).map(|chunk| &**chunk);
        let chunks = std::iter::once(&self.first[..]).chain(further);
        chunks.flatten().take(free.fresh as usize)
    }

    /// What was allocated beside the ledger.
    pub(super) fn further_bytes(&self) -> usize {
        let Some(chunks) = self.further.get() else {
            return 0;
        };
        let slots = chunks.iter().filter_map(OnceLock::get);
        size_of_val(&**chunks) + slots.map(|chunk| size_of_val(&**chunk)).sum::<usize>()
    }

    /// Turns a live word of this generation into a free one. Of several threads, one succeeds: T1.
    #[inline]
    fn claim(&self, cell: &AtomicU64, generation: u32, link: u32, mode: Mode) -> Option<u32> {
        let bits = cell.load(Ordering::Relaxed);
        let word = Word::of(bits);
        if !word.is_live() || word.generation != generation {
            return None;
        }
        let freed = Word {
            generation: generation.wrapping_add(GENERATION_STEP),
            low: link,
        }
        .bits();
        if mode == Mode::Alone {
            // ORDER: T5. Relaxed: no other thread has a handle.
            cell.store(freed, Ordering::Relaxed);
        } else {
            // ORDER: TE1. Acquire: the page was counted before the slot became live.
            cell.compare_exchange(bits, freed, FREE, Ordering::Relaxed)
                .ok()?;
        }
        Some(word.page())
    }

    /// A slot that was used before.
    #[inline]
    fn made(&self, slot: u32) -> &AtomicU64 {
        self.cell(slot)
            .expect("the chunk of a slot that was used is there")
    }

    /// A slot of any number.
    #[inline]
    fn cell(&self, slot: u32) -> Option<&AtomicU64> {
        match self.first.get(slot as usize) {
            Some(cell) => Some(cell),
            None => self.further_cell(slot),
        }
    }

    fn further_cell(&self, slot: u32) -> Option<&AtomicU64> {
        let (chunk, offset) = place(slot);
        let chunks = self.further.get()?;
        chunks.get(chunk.checked_sub(1)?)?.get()?.get(offset)
    }
}

impl FreeSlots {
    pub(super) fn new(slots_max: u32) -> FreeSlots {
        FreeSlots {
            first: END,
            fresh: 0,
            slots_max,
        }
    }
}

impl Word {
    #[inline]
    fn of(bits: u64) -> Word {
        Word {
            generation: (bits >> 32) as u32,
            low: bits as u32,
        }
    }

    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.low)
    }

    #[inline]
    fn is_live(self) -> bool {
        self.low & LIVE != 0
    }

    /// Of a live one.
    #[inline]
    fn page(self) -> u32 {
        self.low & !LIVE
    }
}

fn fresh_slot(generation: u32) -> AtomicU64 {
    let low = END;
    AtomicU64::new(Word { generation, low }.bits())
}

/// The chunk of a slot and its place there.
#[inline]
pub(super) fn place(slot: u32) -> (usize, usize) {
    let number = slot + CHUNK_SLOTS;
    let chunk = number.ilog2() - CHUNK_SLOTS.ilog2();
    (chunk as usize, (number - (CHUNK_SLOTS << chunk)) as usize)
}
