//! Provided-buffer rings: memory that the kernel picks receive buffers from, oldest first.
//!
//! A mapping holds the ring's entries, page-aligned; the buffers are the pages of a region. The
//! kernel reads entries up to the tail that this side publishes; a buffer number comes back with a
//! completion.
//!
//! One receive fills one buffer. Kernels from 6.12 on can fill a buffer little by little
//! (IOU_PBUF_RING_INC, which `probe` tries), but the flag that says whether a buffer is used up has
//! been missing at the end of a stream and after truncation, in several releases; a page that is
//! given back while the kernel goes on writing would break the promise of `region`. So it is not
//! used.
//!
//! Invariants
//! - B1: a buffer is with the kernel, with the caller, or kept. `places` says which; it changes in
//!   `take`, `put` and `reclaim` only, so a completion that names a buffer twice, or none of ours,
//!   is found out.
//! - B2: the memory is unmapped only after the ring that knows it has no operation left.
//!
//! - B3: at most `level` buffers are with the kernel; the others that nobody uses are `spare`. Each
//!   that the kernel fills is followed by a spare one at once.
//!
//! The kernel takes the oldest first, so a ring with all the buffers of a region would go through
//! its whole memory, cold every time. A listener's region gives it a few megabytes at a time, and
//! the one that came back last goes back first.
//!
//! Ordering
//! - E1 give: entry written, then tail stored (Release) -> the kernel's acquire load of the tail.
//!
//! Cost: put writes 16 bytes and a tail; take is a test. No system call after set-up.

use std::cell::OnceCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Piece;
use crate::buffers::Place;
use crate::refusal::Refusal;
use crate::region::{Region, RegionConfig};
use crate::waker::Waker;

/// Memory of a listener's region that is with the kernel at a time, in bytes; about what stays in
/// a cache.
const LEVEL_BYTES: u32 = 4 << 20;
/// At least so many buffers are with the kernel, if there are as many.
const LEVEL_MIN: u32 = 16;

pub(crate) struct BufferRing {
    entries: NonNull<c_void>,
    entries_bytes: usize,
    region: Region,
    group: u16,
    /// The kernel's number of the first buffer.
    first: u16,
    mask: u16,
    tail: u16,
    places: Box<[Place]>,
    out_count: u32,
    /// Most buffers that are with the kernel at a time.
    level: u32,
    with_kernel: u32,
    /// Buffers that are with nobody, the warmest last.
    spare: Vec<u16>,
}

impl BufferRing {
    /// Maps the memory and registers it; all buffers are with the kernel afterwards. The kernel
    /// knows them by numbers from `first` on, so that one number tells ring and page.
    pub(crate) fn new(
        ring: &IoUring,
        (group, first): (u16, u16),
        config: &RegionConfig,
        waker: &Waker,
    ) -> Result<Self, Refusal> {
        let buffers = BufferRing::with_flags(ring, (group, first), config, 0)?;
        buffers.region.wakes(waker);
        Ok(buffers)
    }

    /// The same with flags of the kernel's, which `probe` tries.
    pub(crate) fn with_flags(
        ring: &IoUring,
        (group, first): (u16, u16),
        config: &RegionConfig,
        flags: u16,
    ) -> Result<Self, Refusal> {
        let mut buffers = BufferRing::map((group, first), config)
            .map_err(|errno| Refusal::of("mapping receive buffers", errno))?;
        // Power of two up to 32,768, checked with the region.
        let entries = config.pages as u16;
        // SAFETY: the address is page-aligned and has room for the entries; B2 keeps it mapped.
        let registered = unsafe {
            let address = buffers.entries.as_ptr() as u64;
            ring.submitter()
                .register_buf_ring_with_flags(address, entries, group, flags)
        };
        registered
            .map_err(|error| Refusal::of_error("registering a receive buffer ring", &error))?;
        for buffer in (0..entries).rev() {
            buffers.spare.push(buffer);
        }
        while buffers.with_kernel < buffers.level
            && let Some(buffer) = buffers.spare.pop()
        {
            buffers.give(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn map((group, first): (u16, u16), config: &RegionConfig) -> Result<BufferRing, Errno> {
        let region = Region::new(config)?;
        let page = rustix::param::page_size();
        let count = config.pages as usize;
        let entries_bytes = (count * size_of::<BufRingEntry>()).next_multiple_of(page);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping aliases nothing.
        let entries = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                entries_bytes,
                protection,
                MapFlags::PRIVATE,
            )
        }?;
        let entries = NonNull::new(entries).ok_or(Errno::NOMEM)?;
        // As for the region's own memory.
        // SAFETY: the range is the mapping just made, and keeps its contents in this process.
        let _ = unsafe { madvise(entries.as_ptr(), entries_bytes, Advice::LinuxDontFork) };
        Ok(BufferRing {
            entries,
            entries_bytes,
            region,
            group,
            first,
            mask: (config.pages - 1) as u16,
            tail: 0,
            places: vec![Place::Driver; count].into_boxed_slice(),
            out_count: 0,
            level: match group {
                // Short bursts of many connections: none should find the ring empty.
                0 => config.pages,
                _ => (LEVEL_BYTES / config.page_bytes)
                    .max(LEVEL_MIN)
                    .min(config.pages),
            },
            with_kernel: 0,
            spare: Vec::with_capacity(count),
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Buffers that can be received into: the kernel's, and the spare ones that follow them.
    pub(crate) fn free(&self) -> u32 {
        self.places.len() as u32 - self.out_count
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.out_count
    }

    /// Whether a number of the kernel's names one of these buffers.
    pub(crate) fn has(&self, number: u16) -> bool {
        number
            .checked_sub(self.first)
            .is_some_and(|buffer| usize::from(buffer) < self.places.len())
    }

    /// A completion named this buffer: it is the caller's now.
    pub(crate) fn take(&mut self, number: u16, bytes: u32) -> Piece {
        let buffer = number - self.first;
        let place = &mut self.places[usize::from(buffer)];
        assert!(
            *place == Place::Driver,
            "B1: the kernel gave out buffer {buffer} twice"
        );
        let bytes_max = self.region.page_bytes();
        debug_assert!(bytes <= bytes_max, "more bytes than a buffer has");
        *place = Place::Caller;
        self.out_count += 1;
        self.with_kernel -= 1;
        if let Some(spare) = self.spare.pop() {
            self.give(spare);
            self.publish();
        }
        Piece {
            buffer,
            group: self.group,
            bytes: bytes.min(bytes_max),
            region: self.region.id(),
            base: OnceCell::new(),
        }
    }

    /// The caller gives a buffer back.
    pub(crate) fn put(&mut self, piece: Piece) {
        let place = &mut self.places[usize::from(piece.buffer)];
        assert!(
            *place == Place::Caller && piece.region == self.region.id(),
            "C5: piece {} is not out; it belongs to another driver",
            piece.buffer
        );
        if let Some(base) = piece.base.into_inner() {
            *place = Place::Kept;
            drop(base);
            return;
        }
        *place = Place::Driver;
        self.out_count -= 1;
        self.put_back(piece.buffer);
        self.publish();
    }

    /// B3.
    fn put_back(&mut self, buffer: u16) {
        if self.with_kernel < self.level {
            self.give(buffer);
        } else {
            self.spare.push(buffer);
        }
    }

    /// Gives the kernel the pages that nobody keeps any more. True when receives had found none
    /// before.
    pub(crate) fn reclaim(&mut self) -> bool {
        let Some(region) = self.region.clone_if_idle() else {
            return false;
        };
        let starved = region.reclaim(|page| {
            let place = &mut self.places[page as usize];
            assert_eq!(*place, Place::Kept, "B1: page {page} was not kept");
            *place = Place::Driver;
            self.out_count -= 1;
            self.put_back(page as u16);
        });
        self.publish();
        starved
    }

    pub(crate) fn bytes<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        self.region.bytes_of(piece)
    }

    /// Writes the next entry; the kernel sees it after `publish`.
    fn give(&mut self, buffer: u16) {
        let address = self.region.address(u32::from(buffer)).as_ptr() as u64;
        let place = usize::from(self.tail & self.mask);
        // SAFETY: the place is below the count; the mapping has that many entries.
        let mut entry = unsafe { self.entries.cast::<BufRingEntry>().add(place) };
        // SAFETY: initialised (zeroed or written before), and not read by the kernel: it is beyond
        // the tail, as at most `count` entries are within.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(address);
        entry.set_len(self.region.page_bytes());
        entry.set_bid(self.first + buffer);
        self.tail = self.tail.wrapping_add(1);
        self.with_kernel += 1;
    }

    fn publish(&self) {
        // SAFETY: the mapping begins with an initialised (zeroed) entry.
        let tail = unsafe { BufRingEntry::tail(self.entries.cast::<BufRingEntry>().as_ptr()) };
        // SAFETY: aligned, within the mapping, and accessed by both sides atomically only.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // ORDER: E1.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        self.region.close();
        // SAFETY: B2, kept by the driver's Drop; no borrow outlives self.
        let unmapped = unsafe { munmap(self.entries.as_ptr(), self.entries_bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping");
    }
}
