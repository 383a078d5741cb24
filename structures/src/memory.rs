//! Memory: blocks of a few sizes, handed out by index and returned from any thread. The one file of
//! this crate with `unsafe`.
//!
//! A [`Shelf`] keeps the blocks of one size: a depot says which are idle, a table where they are. A
//! [`Budget`] bounds the bytes of all shelves of a pool. A [`Lease`] is one block in somebody's
//! hands, and the right to it.
//!
//! Why it is sound
//! - S1: a claim, and from it a lease, is made in two ways only: for an index that the depot has
//!   just handed out, or for a block that was just put under an index that was vacant. Depot and
//!   vacant stack hand an index to one caller at a time (their I1, shown by their loom bodies). So
//!   there is at most one lease of an index, and its record and block are nobody else's. Debug
//!   builds check it with a flag per index.
//! - S2: the pointer in a place is written only when a block is put under its index, by whoever has
//!   that index alone. Depot and vacant stack order that before every later lease.
//! - S3: every record, leased or idle, holds a count on its shelf, so the shelf outlives all of
//!   them.
//! - S4: once a returned block is in the depot, its record is another's, who may free it, and with
//!   it the last count of the shelf. So the return touches nothing of either after the step that
//!   enters the index, for whose end a close waits (the depot's I5); where it must, it holds a
//!   count of its own.
//!
//! Ordering
//! - E1 budget: `release` (Release) -> `reserve` (Acquire): the index of a freed block is vacant
//!   before its bytes can be had again. There are as many indices as blocks fit the budget, so who
//!   has the bytes finds an index. The swaps in between continue the release sequence.
//! - The blocks themselves go along with their index: the edges of depot and stack.
//!
//! Teardown: `close` is called when nobody can take any more. It frees what is idle; what comes
//! back later finds the depot closed and frees itself, and the last of them frees the shelf. Where
//! the depot says that a return may have been missed, the shelf is leaked.

#![allow(
    unsafe_code,
    reason = "memory itself is handed out here, and nowhere else in the crate"
)]

use crate::depot::{Depot, Door};
use crate::number::{known_number, thread_number};
use crate::owners::Owners;
use crate::stack::{INDICES_MAX, Stack};
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, Watch, edge};

use std::alloc::{Layout, alloc_zeroed};
use std::mem::ManuallyDrop;

const RESERVE: Ordering = edge!("memory_reserve_acquire", Acquire, Relaxed);
const GIVE_BACK: Ordering = edge!("memory_give_back_release", Release, Relaxed);

/// What all shelves of a pool share.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    allocated_bytes: AtomicUsize,
    zeroes: bool,
    owners: Owners,
}

/// The blocks of one size.
#[derive(Debug)]
pub(crate) struct Shelf {
    depot: Depot,
    places: Box<[Place]>,
    block_bytes: usize,
    zeroes: bool,
    budget: Arc<Budget>,
    owners: Owners,
    /// Indices whose block was freed. Those from `fresh` on never had one.
    vacant: Stack,
    fresh: AtomicU32,
    allocated: AtomicU64,
    freed: AtomicU64,
}

/// Where the record of an index is.
#[derive(Debug)]
struct Place {
    record: AtomicPtr<Record>,
    #[cfg(debug_assertions)]
    leased: crate::sync::AtomicBool,
}

/// A block, what it needs to find its way back, and the marks of whoever has it on lease. Alone on
/// its cache line, as neighbours are in other hands.
#[derive(Debug)]
#[repr(align(64))]
struct Record {
    memory: Box<[u8]>,
    shelf: Arc<Shelf>,
    index: u32,
    /// Whom the lease is charged to; 0 for nobody, and while the block is idle.
    owner: u32,
    marks: Marks,
    watch: Watch,
}

/// How far a block was filled. All 0 when a lease begins.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) written: u32,
}

/// Counts of a shelf since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShelfCounts {
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
    /// Leases of blocks that were idle.
    pub(crate) reused: u64,
    /// Leases that ended.
    pub(crate) returned: u64,
}

/// The right to one block, which is nobody else's. Made only where the depot has just handed the
/// index out, or where a block was put under a vacant one (S1). Two words, so that it stays in
/// registers.
#[derive(Debug)]
#[must_use = "a claim that is dropped loses its block"]
pub(crate) struct Claim<'a> {
    shelf: &'a Arc<Shelf>,
    index: u32,
}

/// One block, and the right to it. Dropping it returns the block, from whatever thread.
///
/// One word: moving a wider one through memory right after it was made costs more than the depot.
#[derive(Debug)]
pub(crate) struct Lease {
    record: ManuallyDrop<Box<Record>>,
}

impl Budget {
    /// `zeroes`: whether what was written in a block is to be zeroed before its lease ends.
    pub(crate) fn new(bytes_max: usize, zeroes: bool, owners: Owners) -> Budget {
        Budget {
            bytes_max,
            allocated_bytes: AtomicUsize::new(0),
            zeroes,
            owners,
        }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes of all blocks, leased and idle.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let add = |allocated: usize| {
            allocated
                .checked_add(bytes)
                .filter(|&sum| sum <= self.bytes_max)
        };
        self.allocated_bytes
            .fetch_update(RESERVE, Ordering::Relaxed, add)
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        self.allocated_bytes.fetch_sub(bytes, GIVE_BACK);
    }
}

impl Shelf {
    /// An empty shelf for blocks of `block_bytes`.
    ///
    /// # Panics
    /// If that is 0 or above `isize::MAX`.
    pub(crate) fn new(block_bytes: usize, budget: Arc<Budget>) -> Shelf {
        assert!(
            block_bytes > 0 && isize::try_from(block_bytes).is_ok(),
            "a block of no use"
        );
        let blocks_max = (budget.bytes_max / block_bytes).min(INDICES_MAX as usize) as u32;
        Shelf {
            depot: Depot::new(blocks_max),
            places: (0..blocks_max).map(|_| Place::new()).collect(),
            block_bytes,
            zeroes: budget.zeroes,
            owners: budget.owners.clone(),
            budget,
            vacant: Stack::new(blocks_max),
            fresh: AtomicU32::new(0),
            allocated: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(crate) fn counts(&self) -> ShelfCounts {
        // In this order, so that a snapshot while blocks move counts rather too many as leased.
        let freed = self.freed.load(Ordering::Relaxed);
        let (reused, returned) = self.depot.tally();
        let allocated = self.allocated.load(Ordering::Relaxed);
        ShelfCounts {
            allocated,
            freed,
            reused,
            returned,
        }
    }

    /// Claims an idle block, if there is one.
    #[inline(always)]
    pub(crate) fn reuse(shelf: &Arc<Shelf>) -> Option<Claim<'_>> {
        let index = match shelf.depot.take_near(known_number()) {
            Some(index) => index,
            None => shelf.take_otherwise()?,
        };
        Some(Claim { shelf, index })
    }

    // Not inlined, here and below: calls on the short path make it save registers, and each saved
    // one is a store that the next swap must wait for.
    #[cold]
    #[inline(never)]
    fn take_otherwise(&self) -> Option<u32> {
        self.depot.take(thread_number())
    }

    /// Claims an idle block for removal; not counted as reused.
    pub(crate) fn withdraw(shelf: &Arc<Shelf>) -> Option<Claim<'_>> {
        let index = shelf.depot.take_aside()?;
        Some(Claim { shelf, index })
    }

    /// Allocates a block of zeros, if budget and system allow, and claims it.
    pub(crate) fn allocate(shelf: &Arc<Shelf>) -> Option<Claim<'_>> {
        if !shelf.budget.reserve(shelf.block_bytes) {
            return None;
        }
        let Some(index) = Shelf::new_block(shelf) else {
            shelf.budget.release(shelf.block_bytes);
            return None;
        };
        shelf.allocated.fetch_add(1, Ordering::Relaxed);
        Some(Claim { shelf, index })
    }

    /// Frees every idle block and lets those that come back free themselves. Nobody takes any more.
    pub(crate) fn close(shelf: &Arc<Shelf>) {
        let is_settled = shelf
            .depot
            .close(|index| Claim { shelf, index }.lease().free());
        if !is_settled {
            // A count that is never given up: a returning thread may still write to the depot.
            std::mem::forget(Arc::clone(shelf));
        }
    }

    /// After a close: frees what somebody pushed on the depot's stack meanwhile.
    #[cold]
    fn free_stacked(shelf: &Arc<Shelf>) {
        shelf
            .depot
            .drain(|index| Claim { shelf, index }.lease().free());
    }

    /// Puts a new block under an index that has none, and returns the index.
    fn new_block(shelf: &Arc<Shelf>) -> Option<u32> {
        let index = shelf.vacant.pop().or_else(|| shelf.next_fresh())?;
        let Some(memory) = zeros(shelf.block_bytes) else {
            shelf.vacant.push(index);
            return None;
        };
        let record = Box::new(Record {
            memory,
            shelf: Arc::clone(shelf),
            index,
            owner: 0,
            marks: Marks::default(),
            watch: Watch::new(),
        });
        shelf.places[index as usize]
            .record
            // ORDER: Relaxed: the depot or the vacant stack publishes the index (S2).
            .store(Box::into_raw(record), Ordering::Relaxed);
        Some(index)
    }

    fn next_fresh(&self) -> Option<u32> {
        let next = |fresh| (fresh < self.places.len() as u32).then_some(fresh + 1);
        self.fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()
    }
}

/// A block of zeros; `None` if the system has no memory. The system's zero pages are not touched.
fn zeros(bytes: usize) -> Option<Box<[u8]>> {
    let layout = Layout::array::<u8>(bytes)
        .ok()
        .filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not 0.
    let pointer = unsafe { alloc_zeroed(layout) };
    if pointer.is_null() {
        return None;
    }
    let block = std::ptr::slice_from_raw_parts_mut(pointer, bytes);
    // SAFETY: allocated by the global allocator with the layout of this slice, initialised to 0.
    Some(unsafe { Box::from_raw(block) })
}

impl Place {
    fn new() -> Place {
        Place {
            record: AtomicPtr::new(std::ptr::null_mut()),
            #[cfg(debug_assertions)]
            leased: crate::sync::AtomicBool::new(false),
        }
    }

    #[inline]
    fn note_leased(&self) {
        #[cfg(debug_assertions)]
        assert!(
            // ORDER: Relaxed: a check of debug builds; it orders nothing.
            !self.leased.swap(true, Ordering::Relaxed),
            "a second lease of one block (S1)"
        );
    }
}

impl Claim<'_> {
    #[inline]
    pub(crate) fn block_bytes(&self) -> usize {
        self.shelf.block_bytes
    }

    /// Takes the block itself.
    #[inline(always)]
    pub(crate) fn lease(self) -> Lease {
        let place = &self.shelf.places[self.index as usize];
        place.note_leased();
        let record = place.record.load(Ordering::Relaxed);
        // SAFETY: the pointer came from `Box::into_raw` (S2), and nobody else has the right to what
        // it points to (S1).
        let record = unsafe { Box::from_raw(record) };
        Lease {
            record: ManuallyDrop::new(record),
        }
    }
}

impl Lease {
    #[inline]
    pub(crate) fn zeroes(&self) -> bool {
        self.record.shelf.zeroes
    }

    #[inline]
    pub(crate) fn memory(&self) -> &[u8] {
        self.record.watch.read();
        &self.record.memory
    }

    #[inline]
    pub(crate) fn marks(&self) -> &Marks {
        self.record.watch.read();
        &self.record.marks
    }

    /// The block and its marks, to write.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut Marks) {
        let record = &mut **self.record;
        record.watch.write();
        (&mut record.memory, &mut record.marks)
    }

    /// Counts the block for `owner` until the lease ends.
    #[inline]
    pub(crate) fn charge(&mut self, owner: u32) {
        debug_assert_eq!(self.record.owner, 0, "a lease is charged once");
        self.record.watch.write();
        self.record.owner = owner;
        let shelf = &self.record.shelf;
        shelf.owners.add(owner, shelf.block_bytes);
    }

    #[inline]
    fn discharge(&mut self) {
        let owner = self.record.owner;
        if owner > 0 {
            self.record.watch.write();
            self.record.owner = 0;
            let shelf = &self.record.shelf;
            shelf.owners.subtract(owner, shelf.block_bytes);
        }
    }

    /// Frees the block instead of returning it.
    pub(crate) fn free(self) {
        let mut lease = ManuallyDrop::new(self);
        lease.discharge();
        lease.note_returned();
        // SAFETY: `lease` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut lease.record) }.free();
    }

    #[inline]
    fn note_returned(&self) {
        #[cfg(debug_assertions)]
        {
            let place = &self.record.shelf.places[self.record.index as usize];
            // ORDER: Relaxed: a check of debug builds; it orders nothing.
            let was_leased = place.leased.swap(false, Ordering::Relaxed);
            assert!(was_leased, "returned without a lease (S1)");
        }
    }
}

impl Record {
    /// Frees the block, makes its index vacant, and drops its count, last.
    #[expect(
        clippy::boxed_local,
        reason = "records live in boxes, and end with them"
    )]
    fn free(self: Box<Record>) {
        let Record {
            memory,
            shelf,
            index,
            watch,
            ..
        } = *self;
        watch.write();
        drop(memory);
        shelf.freed.fetch_add(1, Ordering::Relaxed);
        shelf.vacant.push(index);
        shelf.budget.release(shelf.block_bytes);
    }
}

impl Drop for Lease {
    #[inline(always)]
    fn drop(&mut self) {
        self.discharge();
        self.note_returned();
        match self.record.shelf.depot.door_near(known_number()) {
            // After `enter` neither the record nor its shelf is touched (S4).
            Some(entrance) => entrance.enter(self.record.index),
            None => self.return_otherwise(),
        }
    }
}

impl Lease {
    /// What `drop` does where the short path does not lead.
    #[cold]
    #[inline(never)]
    fn return_otherwise(&mut self) {
        let (shelf, index) = (&self.record.shelf, self.record.index);
        match shelf.depot.door(thread_number()) {
            // After `enter` neither the record nor its shelf is touched (S4).
            Door::Slot(entrance) => entrance.enter(index),
            Door::Aside => {
                // A count of our own, as the block's is gone with the index (S4).
                let shelf = Arc::clone(shelf);
                if shelf.depot.put_aside(index) {
                    Shelf::free_stacked(&shelf);
                }
            }
            Door::Closed => {
                Shelf::free_stacked(shelf);
                // SAFETY: the index was refused, so the record is still ours; this is its last use.
                unsafe { ManuallyDrop::take(&mut self.record) }.free();
            }
        }
    }
}

#[cfg(test)]
mod tests;
