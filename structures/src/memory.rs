//! Memory: blocks of a few sizes, handed out by index and returned from any thread. The one file of
//! this crate with `unsafe`.
//!
//! A [`SizeClass`] keeps the blocks of one size: a depot says which are idle, a table where they
//! are. A [`Budget`] bounds the bytes of all size classes of a pool. An [`OwnedBlock`] is one block
//! and the right to use it.
//!
//! Why it is sound
//! - M1: a claim, and from it an owned block, is made in two ways only: for an index that the depot
//!   has just handed out, or for a block that was just put under a vacant index. Depot and vacant
//!   stack hand an index to one caller at a time (D1 and K1, shown by their loom bodies). So at
//!   most one owner of an index exists, and no other has header and block. Debug builds check it
//!   with a flag per index.
//! - M2: the pointer in a slot is written only when a block is put under its index, by the thread
//!   that has that index alone. Depot and vacant stack order that before every later claim.
//! - M3: every header, of an owned or an idle block, holds a count on its size class, so the size
//!   class outlives all of them.
//! - M4: once a returned block is in the depot, its header is another thread's, which may free it,
//!   and with it the last count of the size class. So the return touches neither after the step
//!   that commits the index, for whose end a close waits (the depot's D4); where it must, it holds
//!   a count of its own.
//!
//! Ordering
//! - ME1 budget: `release` (Release) -> `reserve` (Acquire): the index of a freed block is vacant
//!   before its bytes can be had again. As many indices exist as blocks fit the budget, so a thread
//!   that has the bytes finds an index. The swaps in between continue the release sequence.
//! - The blocks themselves go along with their index: the edges of depot and stack.
//!
//! Teardown: `close` is called when no thread can take any more. It frees what is idle; what comes
//! back later finds the depot closed and frees itself, and the last of them frees the size class.
//! Where the depot reports that a return may have been missed, the size class is leaked.

#![allow(
    unsafe_code,
    reason = "memory itself is handed out here, and nowhere else in the crate"
)]

use crate::depot::{Depot, PutSlot};
use crate::number::{known_number, thread_number};
use crate::owners::Owners;
use crate::stack::{INDICES_MAX, Stack};
use crate::sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, Watch, edge};

use std::alloc::{Layout, alloc_zeroed};
use std::mem::ManuallyDrop;

const RESERVE: Ordering = edge!("memory_reserve_acquire", Acquire, Relaxed);
const GIVE_BACK: Ordering = edge!("memory_give_back_release", Release, Relaxed);

/// State that all size classes of a pool share.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    allocated_bytes: AtomicUsize,
    /// The part of it that is charged without a block.
    charged_bytes: AtomicUsize,
    zeroes: bool,
    owners: Owners,
}

/// The blocks of one size.
#[derive(Debug)]
pub(crate) struct SizeClass {
    depot: Depot,
    slots: Box<[Slot]>,
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

/// Where the header of an index is.
#[derive(Debug)]
struct Slot {
    header: AtomicPtr<BlockHeader>,
    #[cfg(debug_assertions)]
    owned: crate::sync::AtomicBool,
}

/// A block, what it needs to find its way back, and the marks of its user. Alone on
/// its cache line, as neighbours are in other hands.
#[derive(Debug)]
#[repr(align(64))]
struct BlockHeader {
    memory: Box<[u8]>,
    size_class: Arc<SizeClass>,
    index: u32,
    /// The owner charged with the block; 0 for none, and while the block is idle.
    owner: u32,
    marks: Marks,
    watch: Watch,
}

/// How far a block is filled, `from` and `to`: 0 when it is handed out. `written` is for the life
/// of the block.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) written: u32,
}

/// Counts of a size class since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeClassCounts {
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
    /// Blocks handed out that were idle.
    pub(crate) reused: u64,
    pub(crate) returned: u64,
}

/// The sole right to one block. Made only where the depot has just handed the
/// index out, or where a block was put under a vacant one (M1). Two words, so that it stays in
/// registers.
#[derive(Debug)]
#[must_use = "a claim that is dropped loses its block"]
pub(crate) struct Claim<'a> {
    size_class: &'a Arc<SizeClass>,
    index: u32,
}

/// One block, and the right to it. Dropping it returns the block, from whatever thread.
///
/// One word: moving a wider one through memory right after it was made costs more than the depot.
#[derive(Debug)]
pub(crate) struct OwnedBlock {
    header: ManuallyDrop<Box<BlockHeader>>,
}

impl Budget {
    /// `zeroes`: whether room of a block is zeroed before it is lent.
    pub(crate) fn new(bytes_max: usize, zeroes: bool, owners: Owners) -> Budget {
        Budget {
            bytes_max,
            allocated_bytes: AtomicUsize::new(0),
            charged_bytes: AtomicUsize::new(0),
            zeroes,
            owners,
        }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes of all blocks, owned and idle, and of all charges.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are charged without a block.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charged_bytes.load(Ordering::Relaxed)
    }

    /// Counts reserved bytes as charged to an owner.
    pub(crate) fn charged(&self, owner: u32, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.owners.add(owner, bytes);
    }

    /// Gives charged bytes back.
    pub(crate) fn discharged(&self, owner: u32, bytes: usize) {
        self.owners.subtract(owner, bytes);
        self.charged_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.release(bytes);
    }

    pub(crate) fn reserve(&self, bytes: usize) -> bool {
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

impl SizeClass {
    /// A size class without blocks, of blocks of `block_bytes`.
    ///
    /// # Panics
    /// If that is 0 or above `isize::MAX`.
    pub(crate) fn new(block_bytes: usize, budget: Arc<Budget>) -> SizeClass {
        assert!(
            block_bytes > 0 && isize::try_from(block_bytes).is_ok(),
            "a block of no use"
        );
        let blocks_max = (budget.bytes_max / block_bytes).min(INDICES_MAX as usize) as u32;
        SizeClass {
            depot: Depot::new(blocks_max),
            slots: (0..blocks_max).map(|_| Slot::new()).collect(),
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

    pub(crate) fn counts(&self) -> SizeClassCounts {
        // In this order, so that a snapshot while blocks move counts rather too many as owned.
        let freed = self.freed.load(Ordering::Relaxed);
        let (reused, returned) = self.depot.tally();
        let allocated = self.allocated.load(Ordering::Relaxed);
        SizeClassCounts {
            allocated,
            freed,
            reused,
            returned,
        }
    }

    /// Claims an idle block, if there is one.
    #[inline(always)]
    pub(crate) fn reuse(size_class: &Arc<SizeClass>) -> Option<Claim<'_>> {
        let index = match size_class.depot.take_near(known_number()) {
            Some(index) => index,
            None => size_class.take_otherwise()?,
        };
        Some(Claim { size_class, index })
    }

    // Not inlined, here and below: calls on the short path make it save registers, and each saved
    // one is a store that the next swap must wait for.
    #[cold]
    #[inline(never)]
    fn take_otherwise(&self) -> Option<u32> {
        self.depot.take(thread_number())
    }

    /// Claims an idle block that another thread keeps at hand. Costs a system call if there is one.
    pub(crate) fn reuse_last(size_class: &Arc<SizeClass>) -> Option<Claim<'_>> {
        let index = size_class.depot.take_last(thread_number())?;
        Some(Claim { size_class, index })
    }

    /// Claims an idle block for removal; not counted as reused.
    pub(crate) fn withdraw(size_class: &Arc<SizeClass>) -> Option<Claim<'_>> {
        let index = size_class.depot.withdraw()?;
        Some(Claim { size_class, index })
    }

    /// Allocates a block of zeros, if budget and system allow, and claims it.
    pub(crate) fn allocate(size_class: &Arc<SizeClass>) -> Option<Claim<'_>> {
        if !size_class.budget.reserve(size_class.block_bytes) {
            return None;
        }
        let Some(index) = SizeClass::new_block(size_class) else {
            size_class.budget.release(size_class.block_bytes);
            return None;
        };
        size_class.allocated.fetch_add(1, Ordering::Relaxed);
        Some(Claim { size_class, index })
    }

    /// Frees every idle block; a block that comes back later frees itself. No thread takes any
    /// more.
    pub(crate) fn close(size_class: &Arc<SizeClass>) {
        let is_settled = size_class
            .depot
            .close(|index| Claim { size_class, index }.into_block().free());
        if !is_settled {
            // A count that is never given up: a returning thread may still write to the depot.
            std::mem::forget(Arc::clone(size_class));
        }
    }

    /// After a close: frees what was pushed on the depot's stack until then.
    #[cold]
    fn free_stacked(size_class: &Arc<SizeClass>) {
        size_class
            .depot
            .empty(|index| Claim { size_class, index }.into_block().free());
    }

    /// Puts a new block under an index that has none, and returns the index.
    fn new_block(size_class: &Arc<SizeClass>) -> Option<u32> {
        let index = size_class
            .vacant
            .pop()
            .or_else(|| size_class.next_fresh())?;
        let Some(memory) = zeros(size_class.block_bytes) else {
            size_class.vacant.push(index);
            return None;
        };
        let header = Box::new(BlockHeader {
            memory,
            size_class: Arc::clone(size_class),
            index,
            owner: 0,
            marks: Marks::default(),
            watch: Watch::new(),
        });
        size_class.slots[index as usize]
            .header
            // ORDER: Relaxed: the depot or the vacant stack publishes the index (M2).
            .store(Box::into_raw(header), Ordering::Relaxed);
        Some(index)
    }

    fn next_fresh(&self) -> Option<u32> {
        let next = |fresh| (fresh < self.slots.len() as u32).then_some(fresh + 1);
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

impl Slot {
    fn new() -> Slot {
        Slot {
            header: AtomicPtr::new(std::ptr::null_mut()),
            #[cfg(debug_assertions)]
            owned: crate::sync::AtomicBool::new(false),
        }
    }

    #[inline]
    fn note_owned(&self) {
        #[cfg(debug_assertions)]
        assert!(
            // ORDER: Relaxed: a check of debug builds; it orders nothing.
            !self.owned.swap(true, Ordering::Relaxed),
            "a second block of one block (M1)"
        );
    }
}

impl Claim<'_> {
    #[inline]
    pub(crate) fn block_bytes(&self) -> usize {
        self.size_class.block_bytes
    }

    /// Takes the block itself.
    #[inline(always)]
    pub(crate) fn into_block(self) -> OwnedBlock {
        let slot = &self.size_class.slots[self.index as usize];
        slot.note_owned();
        let header = slot.header.load(Ordering::Relaxed);
        // SAFETY: the pointer came from `Box::into_raw` (M2), and no other thread has the right to
        // what it points to (M1).
        let header = unsafe { Box::from_raw(header) };
        OwnedBlock {
            header: ManuallyDrop::new(header),
        }
    }
}

impl OwnedBlock {
    #[inline]
    pub(crate) fn zeroes(&self) -> bool {
        self.header.size_class.zeroes
    }

    #[inline]
    pub(crate) fn memory(&self) -> &[u8] {
        self.header.watch.read();
        &self.header.memory
    }

    #[inline]
    pub(crate) fn marks(&self) -> &Marks {
        self.header.watch.read();
        &self.header.marks
    }

    /// The block and its marks, to write.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut Marks) {
        let header = &mut **self.header;
        header.watch.write();
        (&mut header.memory, &mut header.marks)
    }

    /// Counts the block for `owner` until it is returned.
    #[inline]
    pub(crate) fn charge(&mut self, owner: u32) {
        debug_assert_eq!(self.header.owner, 0, "a block is charged once");
        self.header.watch.write();
        self.header.owner = owner;
        let size_class = &self.header.size_class;
        size_class.owners.add(owner, size_class.block_bytes);
    }

    #[inline]
    fn discharge(&mut self) {
        let owner = self.header.owner;
        if owner > 0 {
            self.header.watch.write();
            self.header.owner = 0;
            let size_class = &self.header.size_class;
            size_class.owners.subtract(owner, size_class.block_bytes);
        }
    }

    /// Frees the block instead of returning it.
    pub(crate) fn free(self) {
        let mut block = ManuallyDrop::new(self);
        block.discharge();
        block.note_returned();
        // SAFETY: `block` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut block.header) }.free();
    }

    #[inline]
    fn note_returned(&self) {
        #[cfg(debug_assertions)]
        {
            let slot = &self.header.size_class.slots[self.header.index as usize];
            // ORDER: Relaxed: a check of debug builds; it orders nothing.
            let was_owned = slot.owned.swap(false, Ordering::Relaxed);
            assert!(was_owned, "returned without a block (M1)");
        }
    }
}

impl BlockHeader {
    /// Frees the block, makes its index vacant, and drops its count, last.
    #[expect(
        clippy::boxed_local,
        reason = "headers live in boxes, and end with them"
    )]
    fn free(self: Box<BlockHeader>) {
        let BlockHeader {
            memory,
            size_class,
            index,
            watch,
            ..
        } = *self;
        watch.write();
        drop(memory);
        size_class.freed.fetch_add(1, Ordering::Relaxed);
        size_class.vacant.push(index);
        size_class.budget.release(size_class.block_bytes);
    }
}

impl Drop for OwnedBlock {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the last use of this right, which the callee continues.
        let header = unsafe { ManuallyDrop::take(&mut self.header) };
        give_back(Box::into_raw(header));
    }
}

/// Returns a block; the right to it is the caller's, who gives it up.
///
/// A call, whose argument is in a register: where the code of all this is part of the caller's, the
/// compiler moves the block there through memory, and the next take waits for that.
#[inline(never)]
fn give_back(header: *mut BlockHeader) {
    // SAFETY: from `Box::into_raw` in `drop`, with the sole right to it.
    let header = unsafe { Box::from_raw(header) };
    // Not dropped: after `commit` neither the header nor its size class is touched (M4).
    let mut block = ManuallyDrop::new(OwnedBlock {
        header: ManuallyDrop::new(header),
    });
    block.discharge();
    block.note_returned();
    let size_class = &block.header.size_class;
    match size_class.depot.reserve_near(known_number()) {
        Some(reservation) => reservation.commit(block.header.index),
        None => block.return_otherwise(),
    }
}

impl OwnedBlock {
    /// The long path of `drop`.
    #[cold]
    #[inline(never)]
    fn return_otherwise(&mut self) {
        let (size_class, index) = (&self.header.size_class, self.header.index);
        match size_class.depot.reserve(thread_number()) {
            // After `commit` neither the header nor its size_class is touched (M4).
            PutSlot::Reserved(reservation) => reservation.commit(index),
            PutSlot::Shared => {
                // A count of our own, as the block's is gone with the index (M4).
                let size_class = Arc::clone(size_class);
                if size_class.depot.put_shared(index) {
                    SizeClass::free_stacked(&size_class);
                }
            }
            PutSlot::Closed => {
                SizeClass::free_stacked(size_class);
                // SAFETY: the index was refused, so the header is still ours; this is its last use.
                unsafe { ManuallyDrop::take(&mut self.header) }.free();
            }
        }
    }
}

#[cfg(test)]
mod tests;
