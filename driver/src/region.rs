//! Region: receive memory in pages, each with a count of its readers.
//!
//! | may run beside         | retain, reclaim (the driver's thread) | fragments, attachments |
//! |------------------------|-------------------------------------|------------------------|
//! | retain, reclaim          | no                                  | yes                    |
//! | fragments, attachments | yes                                 | yes                    |
//!
//! Invariants
//! - G1: a page is in one place: with the kernel (or free), with the caller as a piece that was
//!   received or is to be written, or retained. It is retained from the recycling of a piece of
//!   which something was retained until its count is 0. A page that receives share may be in all
//!   three at once, each part of it in one: the kernel writes after the pieces only.
//! - G2: a count leaves 0 only in `retain`, for a page that is out as a piece, and then it includes
//!   one reference of the piece itself. Every other reference is made from a live one. So
//!   each retention ends exactly once, with `page_idle`, and until then the page is not written to.
//! - G3: at most `retained_max` pages are retained, so `reserve_pages` always serve receives of
//!   which nothing is retained.
//! - G4: the mapping goes with the last handle, fragment or attachment; the kernel's use of it ends
//!   before the driver's handle does.
//! - G5: a region with a descriptor is sealed: no descriptor of it can change or write its pages.
//! - G6: the bytes of a piece are written to by its holder alone, and not after something of it was
//!   retained.
//!
//! Ordering
//! - GE1 idle: push of the page (Release, the count's own edge before it) -> `reclaim` (Acquire):
//!   all reading of the page comes before the kernel writes to it again.
//! - GE2 await: push of the page, fence, read `awaited` (`page_idle`) -> set `awaited`
//!   (`await_page`), fence (the driver's sleep), look at the stack (`is_relieved`): one of the two
//!   sees the other, so a page that comes back ends a wait that needs it.
//! - GE3 retained: a page is back before it counts as retained no more (`Returns`), or the last
//!   page in reserve could be retained while this one is on its way (G3).
//!
//! Cost: a `retain` is two or three atomic additions, a drop two; nothing is allocated. Four bytes
//! of count and four of link per page. Untouched pages are not in memory.

use std::cell::OnceCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use flatpath_structures::returns::Returns;
use flatpath_structures::tokens;
use flatpath_sys::mapping::{Access, Mapping, memory_file, page_size, seal_against_writing};
use rustix::io::Errno;

use crate::completion::Piece;
use crate::fragment::{Attachment, Fragment, Quota};
use crate::waker::Waker;

#[cfg(test)]
mod tests;

/// Pages of a region at most: the number of a receive buffer has 16 bits and the kernel takes no
/// more.
pub const BUFFERS_MAX: u32 = 32_768;

/// Bytes of one page at most.
pub(crate) const BUFFER_BYTES_MAX: u32 = 1 << 24;

/// The kind of a region's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Memory of this process alone.
    #[default]
    Private,
    /// A sealed memfd, which other processes can be given to map for reading.
    Shared,
}

/// How large a region is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// How many pages: a power of two, at most [`BUFFERS_MAX`].
    pub pages: u32,
    /// Bytes of one page, which one receive fills at most.
    pub page_bytes: u32,
    /// Pages that are never retained, so that there is always something to receive into.
    pub reserve_pages: u32,
    /// The kind of the memory.
    pub backing: Backing,
    /// What a receive takes that was started by
    /// [`Driver::receive_sharing`](crate::Driver::receive_sharing).
    pub small_receives: SmallReceives,
    /// What its pages are filled by.
    pub filling: Filling,
}

/// What the pages of a region are filled by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filling {
    /// Receives.
    #[default]
    Received,
    /// The caller, who takes pages with [`Driver::take_page`](crate::Driver::take_page). The kernel
    /// has none of them, and no receive may be started into them.
    Written,
}

/// What receives that may be small take of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SmallReceives {
    /// A page each.
    #[default]
    TakePages,
    /// A part of a page each, one after the other, where the kernel's incremental buffer rings
    /// work; else a page. Needs a reserve of at least two pages.
    SharePages,
}

/// 64 pages of 64 KiB, eight of them in reserve: 4 MiB for large bodies.
impl Default for RegionConfig {
    fn default() -> RegionConfig {
        RegionConfig {
            pages: 64,
            page_bytes: 64 * 1024,
            reserve_pages: 8,
            backing: Backing::Private,
            small_receives: SmallReceives::TakePages,
            filling: Filling::Received,
        }
    }
}

/// Receive memory in pages; a handle, cheap to clone.
///
/// A received page is lent to the caller as a [`Piece`], and usually recycled in the same turn:
/// that costs no count. Bytes that outlive the turn are *retained* as [`Fragment`]s, which any
/// thread may hold and drop; the page returns to the driver when its count is 0.
#[derive(Clone)]
pub struct Region(tokens::PageRefs<RegionMemory>);

/// The memory of a region, and the stack by which idle pages return to the driver.
pub struct RegionMemory {
    base: NonNull<u8>,
    /// The mapping that `base` points to.
    _mapping: Mapping,
    page_bytes: u32,
    serial: u64,
    retained_max: u32,
    descriptor: Option<OwnedFd>,
    /// Retained pages, and pages that are idle again.
    retained: Returns,
    /// See `fills`.
    filling: AtomicU32,
    /// The driver's thread waits for a page.
    awaited: AtomicBool,
    waker: OnceLock<Waker>,
}

flatpath_structures::opaque_debug! {
    impl[] RegionMemory as "RegionMemory";
}

// SAFETY: the mapping belongs to this value alone. Which thread reads or writes a page of it is
// decided by the places of pages and their counts (G1, G2), which are atomic where threads meet.
unsafe impl Send for RegionMemory {}
// SAFETY: as above; no method hands out memory by `&self` but to holders of a count or of a piece.
unsafe impl Sync for RegionMemory {}

impl tokens::Release for RegionMemory {
    fn page_idle(&self, page: u32) {
        // ORDER: GE1 and GE3 are the structure's own edges.
        self.retained.give_back(page);
        // ORDER: GE2, the returner's side.
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed)
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }
}

impl Region {
    /// Maps the memory. Nothing is touched yet.
    ///
    /// # Errors
    /// The kernel's error; INVAL for sizes that no driver takes.
    pub(crate) fn new(config: &RegionConfig) -> io::Result<Region> {
        static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);
        check(config)?;
        let bytes = config.pages as usize * config.page_bytes as usize;
        let (mapping, descriptor) = match config.backing {
            Backing::Private => (Mapping::private(bytes)?, None),
            Backing::Shared => {
                let (mapping, descriptor) = map_shared(bytes)?;
                (mapping, Some(descriptor))
            }
        };
        let pages = RegionMemory {
            base: mapping.base().cast(),
            _mapping: mapping,
            page_bytes: config.page_bytes,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            retained_max: config.pages.saturating_sub(config.reserve_pages),
            descriptor,
            retained: Returns::new(config.pages),
            filling: AtomicU32::new(u32::MAX),
            awaited: AtomicBool::new(false),
            waker: OnceLock::new(),
        };
        Ok(Region(tokens::PageRefs::new(config.pages, pages)))
    }

    pub(crate) fn from_tokens(tokens: tokens::PageRefs<RegionMemory>) -> Region {
        Region(tokens)
    }

    fn of(&self) -> &RegionMemory {
        self.0.release()
    }

    /// Names the region; no two of one process have the same.
    pub fn serial(&self) -> u64 {
        self.of().serial
    }

    /// How many pages there are.
    pub fn pages(&self) -> u32 {
        self.0.pages()
    }

    /// Bytes of one page.
    pub fn page_bytes(&self) -> u32 {
        self.of().page_bytes
    }

    /// Bytes of all pages. Page `n` begins at byte `n * page_bytes` of the descriptor.
    pub fn bytes(&self) -> usize {
        self.pages() as usize * self.page_bytes() as usize
    }

    /// The memory as a descriptor, sealed against writing (G5); `None` for private memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.of().descriptor.as_ref().map(AsFd::as_fd)
    }

    /// Pages retained at this moment.
    pub fn retained(&self) -> u32 {
        let pages = self.of();
        let retained = pages.retained.lent();
        // A page that is being filled may have the driver's own count, and no other.
        let filling = pages.filling.load(Ordering::Relaxed);
        let only_ours = filling < self.pages() && self.0.uses(filling) == 1;
        retained.saturating_sub(u32::from(only_ours))
    }

    /// Which page is filled by several receives and has a count of the driver's own, for
    /// [`Region::retained`].
    pub(crate) fn fills(&self, page: Option<u32>) {
        let page = page.unwrap_or(u32::MAX);
        // ORDER: relaxed: for display.
        self.of().filling.store(page, Ordering::Relaxed);
    }

    /// Most pages that may be retained at a time (G3).
    pub fn retained_max(&self) -> u32 {
        self.of().retained_max
    }

    /// For a user that is given tokens of fragments, `tokens_max` at a time. `None` when the driver
    /// is gone.
    pub fn attach(&self, tokens_max: u32) -> Option<Attachment> {
        self.0.attach(tokens_max)
    }

    /// Retains bytes of a piece beyond its recycling. `None` when as many pages are retained as may
    /// be (G3).
    ///
    /// # Panics
    /// When the piece is of another region, or the range is empty or beyond the piece.
    pub fn retain(&self, piece: &Piece, range: Range<usize>, quota: &Quota) -> Option<Fragment> {
        self.check(piece);
        assert!(
            range.start < range.end && range.end <= piece.len(),
            "no such bytes in the piece"
        );
        let page = u32::from(piece.buffer);
        if piece.base.get().is_none() {
            let pages = self.of();
            // G2: the piece is out, so no other thread can raise this count from 0, and on a page
            // that pieces share it returns there only when all of them are recycled.
            let is_first = self.0.uses(page) == 0;
            if is_first && pages.retained.lent() >= pages.retained_max {
                return None;
            }
            let base = self.0.pin(page)?;
            if is_first {
                pages.retained.lend();
            }
            let first = piece.base.set(base);
            debug_assert!(first.is_ok(), "it was looked at just now");
        }
        let pin = self.0.pin(page)?;
        let length = (range.end - range.start) as u32;
        let offset = piece.offset + range.start as u32;
        Some(Fragment::new(pin, quota, offset, length))
    }

    /// The bytes of a piece.
    ///
    /// # Panics
    /// When the piece is of another region.
    pub fn bytes_of<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        self.check(piece);
        // SAFETY: the piece is out for as long as it is borrowed (G1), and has these bytes.
        unsafe {
            self.of()
                .bytes(u32::from(piece.buffer), piece.offset, piece.bytes)
        }
    }

    /// The bytes of a piece, to be changed where they lie.
    ///
    /// # Panics
    /// When the piece is of another region, or something of it was retained.
    pub fn bytes_of_mut<'a>(&'a self, piece: &'a mut Piece) -> &'a mut [u8] {
        self.check(piece);
        assert!(piece.base.get().is_none(), "G6: others read it");
        let (page, bytes) = (u32::from(piece.buffer), piece.bytes as usize);
        assert!(page < self.pages(), "no such page");
        // SAFETY: the page is one of the mapping's, and a piece lies within its page.
        let start = unsafe { self.of().address(page, piece.offset) };
        // SAFETY: the piece is out and borrowed, and nothing of it is retained (G6), so no
        // other has its bytes. Other pieces of its page have other bytes (G1).
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
    }

    /// Received bytes, which are the caller's from now on.
    pub(crate) fn piece(&self, region_id: u16, buffer: u16, offset: u32, bytes: u32) -> Piece {
        assert!(bytes <= self.page_bytes() - offset, "more than a page has");
        Piece {
            buffer,
            region_id,
            offset,
            bytes,
            region_serial: self.serial(),
            base: OnceCell::new(),
        }
    }

    /// Asserts that it is ours, and not recycled yet (C5).
    #[track_caller]
    pub(crate) fn check(&self, piece: &Piece) {
        let (is_ours, buffer) = (piece.region_serial == self.serial(), piece.buffer);
        assert!(is_ours, "C5: piece {buffer} is of another driver or region");
    }

    /// The page to receive into.
    ///
    /// # Safety
    /// The page is free: not with the kernel, not out, not retained; and the caller alone uses it.
    #[expect(
        clippy::mut_from_ref,
        reason = "a page is its holder's, not the region's"
    )]
    pub(crate) unsafe fn space(&self, page: u32) -> &mut [u8] {
        let address = self.address(page).as_ptr();
        // SAFETY: within the mapping; no other thread reads or writes a free page (G1).
        unsafe { std::slice::from_raw_parts_mut(address, self.page_bytes() as usize) }
    }

    /// Where a page is.
    pub(crate) fn address(&self, page: u32) -> NonNull<u8> {
        assert!(page < self.pages(), "no such page");
        // SAFETY: the page is one of the mapping's.
        unsafe { self.of().address(page, 0) }
    }

    /// The driver to wake when a page comes back that it awaits.
    pub(crate) fn wakes(&self, waker: &Waker) {
        // A region has one driver.
        let _ = self.of().waker.set(waker.clone());
    }

    /// From now on, until [`Region::waited`], a page that comes back wakes the driver.
    pub(crate) fn await_page(&self) {
        // ORDER: GE2, the driver's side; the fence is that of its sleep (`may_sleep`).
        self.of().awaited.store(true, Ordering::Relaxed);
    }

    /// The wait is over.
    pub(crate) fn waited(&self) {
        // ORDER: relaxed: it only spares wake-ups, and this thread is awake.
        self.of().awaited.store(false, Ordering::Relaxed);
    }

    /// Whether a page is awaited.
    pub(crate) fn is_awaited(&self) -> bool {
        // ORDER: relaxed: this thread alone writes it.
        self.of().awaited.load(Ordering::Relaxed)
    }

    /// Whether a page is awaited and one has come back. For `ready`, after its fence (GE2).
    pub(crate) fn is_relieved(&self) -> bool {
        self.is_awaited() && !self.of().retained.is_empty()
    }

    /// A handle, if there are pages to take back. O(1).
    pub(crate) fn clone_if_idle(&self) -> Option<Region> {
        (!self.of().retained.is_empty()).then(|| self.clone())
    }

    /// Hands every page whose count is 0 to `take_back`. O(1) when there is none.
    #[inline]
    pub(crate) fn reclaim(&self, mut take_back: impl FnMut(u32)) {
        if self.of().retained.is_empty() {
            return;
        }
        while let Some(page) = self.of().retained.pop() {
            // ORDER: GE1: `uses` acquires. It cannot be otherwise (G2).
            assert_eq!(self.0.uses(page), 0, "G2: page {page} is idle and in use");
            take_back(page);
        }
    }

    /// The driver is gone: `attach` fails from now on.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Region")
            .field("serial", &self.serial())
            .field("pages", &self.pages())
            .field("page_bytes", &self.page_bytes())
            .field("retained", &self.retained())
            .finish_non_exhaustive()
    }
}

impl RegionMemory {
    /// Where in memory byte `offset` of a page is.
    ///
    /// # Safety
    /// It is in the mapping.
    unsafe fn address(&self, page: u32, offset: u32) -> NonNull<u8> {
        let start = page as usize * self.page_bytes as usize + offset as usize;
        // SAFETY: promised by the caller.
        unsafe { self.base.add(start) }
    }

    /// Copies `bytes` into a page, `offset` bytes from its beginning.
    ///
    /// # Safety
    /// The caller holds the only count of the page, and no thread reads that part of it meanwhile.
    ///
    /// # Panics
    /// When the bytes do not fit.
    pub(crate) unsafe fn write(&self, page: u32, offset: u32, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        assert!(end <= self.page_bytes as usize, "beyond the page");
        // SAFETY: pages that are counted are in the mapping.
        let target = unsafe { self.address(page, offset) };
        // SAFETY: room for the bytes, checked; the source is a borrow, and so cannot be that part
        // of the page, which by contract is not read.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
    }

    /// The bytes of a page that is counted.
    ///
    /// # Safety
    /// The caller holds a count of the page, or its piece, for as long as the result is used, and
    /// the bytes were received.
    pub(crate) unsafe fn bytes(&self, page: u32, offset: u32, length: u32) -> &[u8] {
        debug_assert!(offset + length <= self.page_bytes, "bytes beyond the page");
        // SAFETY: pages that are counted are in the mapping.
        let start = unsafe { self.address(page, offset) };
        // SAFETY: within the mapping; G2: a page that is counted, or out as a piece, is not written
        // to, and other mappings of it cannot write (G5).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length as usize) }
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn page_bytes(&self) -> u32 {
        self.page_bytes
    }
}

fn check(config: &RegionConfig) -> io::Result<()> {
    let whole = config.backing == Backing::Private
        || (config.page_bytes as usize).is_multiple_of(page_size());
    let possible = config.pages.is_power_of_two()
        && config.pages <= BUFFERS_MAX
        && (1..=BUFFER_BYTES_MAX).contains(&config.page_bytes);
    if whole && possible {
        Ok(())
    } else {
        Err(Errno::INVAL.into())
    }
}

/// Shared memory, sealed after it is mapped: this mapping stays writable (G5).
fn map_shared(bytes: usize) -> io::Result<(Mapping, OwnedFd)> {
    let file = memory_file("flatpath-region", bytes)?;
    let mapping = Mapping::of_file(&file, bytes, Access::Write)?;
    seal_against_writing(&file)?;
    Ok((mapping, file))
}
