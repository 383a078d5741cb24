//! Provided-buffer ring: memory that the kernel picks receive buffers from, oldest first.
//!
//! One mapping holds the ring's entries, page-aligned, and behind them the buffers. The kernel
//! reads entries up to the tail that this side publishes; a buffer number comes back with a
//! completion.
//!
//! Invariants
//! - B1: a buffer is with the kernel or with the caller. `is_out` says which; it changes in `take`
//!   and `put` only, so a completion that names a buffer twice, or none of ours, is found out.
//! - B2: the memory is unmapped only after the ring that knows it has no operation left.
//!
//! Ordering
//! - E1 give: entry written, then tail stored (Release) -> the kernel's acquire load of the tail.
//!
//! Cost: put writes 16 bytes and a tail; take is a test. No system call after set-up.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Piece;
use crate::refusal::Refusal;

/// The only buffer group.
pub(crate) const GROUP: u16 = 0;

pub(crate) struct BufferRing {
    base: NonNull<c_void>,
    mapped_bytes: usize,
    /// Where the buffers begin, in bytes from `base`.
    buffers_at: usize,
    buffer_bytes: usize,
    mask: u16,
    tail: u16,
    out: Box<[bool]>,
    out_count: u32,
}

impl BufferRing {
    /// Maps the memory and registers it; all buffers are with the kernel afterwards.
    pub(crate) fn new(ring: &IoUring, count: u32, buffer_bytes: u32) -> Result<Self, Refusal> {
        BufferRing::with_flags(ring, count, buffer_bytes, 0)
    }

    /// The same with flags of the kernel's, which `probe` tries.
    pub(crate) fn with_flags(
        ring: &IoUring,
        count: u32,
        buffer_bytes: u32,
        flags: u16,
    ) -> Result<Self, Refusal> {
        let mut buffers = BufferRing::map(count, buffer_bytes)
            .map_err(|errno| Refusal::of("mapping receive buffers", errno))?;
        // Power of two up to 32,768, checked with the configuration.
        let entries = count as u16;
        // SAFETY: the address is page-aligned and has room for the entries; B2 keeps it mapped.
        let registered = unsafe {
            let address = buffers.base.as_ptr() as u64;
            ring.submitter()
                .register_buf_ring_with_flags(address, entries, GROUP, flags)
        };
        registered
            .map_err(|error| Refusal::of_error("registering a receive buffer ring", &error))?;
        for buffer in 0..entries {
            buffers.give(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn map(count: u32, buffer_bytes: u32) -> Result<BufferRing, Errno> {
        let page = rustix::param::page_size();
        let entries = count as usize;
        let buffer_bytes = buffer_bytes as usize;
        let buffers_at = (entries * size_of::<BufRingEntry>()).next_multiple_of(page);
        let mapped_bytes = buffers_at + (entries * buffer_bytes).next_multiple_of(page);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping aliases nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                protection,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        // A child must not share, or copy, memory that the kernel writes to. Old kernels and odd
        // sandboxes may not know the advice; then only a child that misbehaves is affected.
        // SAFETY: the range is the mapping just made, and keeps its contents in this process.
        let _ = unsafe { madvise(base.as_ptr(), mapped_bytes, Advice::LinuxDontFork) };
        Ok(BufferRing {
            base,
            mapped_bytes,
            buffers_at,
            buffer_bytes,
            mask: (count - 1) as u16,
            tail: 0,
            out: vec![false; entries].into_boxed_slice(),
            out_count: 0,
        })
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.out_count
    }

    /// A completion named this buffer: it is the caller's now.
    pub(crate) fn take(&mut self, buffer: u16, bytes: u32) -> Piece {
        let out = &mut self.out[usize::from(buffer)];
        assert!(!*out, "B1: the kernel gave out buffer {buffer} twice");
        debug_assert!(
            bytes as usize <= self.buffer_bytes,
            "more bytes than a buffer has"
        );
        *out = true;
        self.out_count += 1;
        Piece { buffer, bytes }
    }

    /// The caller gives a buffer back.
    pub(crate) fn put(&mut self, piece: Piece) {
        let out = &mut self.out[usize::from(piece.buffer)];
        assert!(
            *out,
            "C5: piece {} is not out; it belongs to another driver",
            piece.buffer
        );
        *out = false;
        self.out_count -= 1;
        self.give(piece.buffer);
        self.publish();
    }

    pub(crate) fn bytes(&self, piece: &Piece) -> &[u8] {
        assert!(
            self.out[usize::from(piece.buffer)],
            "C5: the piece is of another driver"
        );
        let length = (piece.bytes as usize).min(self.buffer_bytes);
        let address = self.address(piece.buffer);
        // SAFETY: B1: the buffer is with the caller, so the kernel does not write to it until
        // `put`, which takes the piece that this borrow rests on. It lies within the mapping.
        unsafe { std::slice::from_raw_parts(address.as_ptr(), length) }
    }

    fn address(&self, buffer: u16) -> NonNull<u8> {
        let offset = self.buffers_at + usize::from(buffer) * self.buffer_bytes;
        debug_assert!(offset + self.buffer_bytes <= self.mapped_bytes);
        // SAFETY: the offset is within the mapping, as buffer numbers are below the count (B1
        // indexes `out` with them first).
        unsafe { self.base.cast::<u8>().add(offset) }
    }

    /// Writes the next entry; the kernel sees it after `publish`.
    fn give(&mut self, buffer: u16) {
        let address = self.address(buffer).as_ptr() as u64;
        let place = usize::from(self.tail & self.mask);
        // SAFETY: the place is below the count; the mapping begins with that many entries.
        let mut entry = unsafe { self.base.cast::<BufRingEntry>().add(place) };
        // SAFETY: initialised (zeroed or written before), and not read by the kernel: it is beyond
        // the tail, as at most `count` entries are within.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the mapping begins with an initialised (zeroed) entry.
        let tail = unsafe { BufRingEntry::tail(self.base.cast::<BufRingEntry>().as_ptr()) };
        // SAFETY: aligned, within the mapping, and accessed by both sides atomically only.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // ORDER: E1.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: B2, kept by the driver's Drop; no borrow outlives self.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping");
    }
}
