//! The entries of one provided-buffer ring: a page-aligned array that the kernel reads up to the
//! tail which this side publishes.
//!
//! Ordering
//! - RE1 give: entry written, then tail stored (Release) -> the kernel's acquire load of the tail.
//!
//! Cost: 16 bytes for each entry, written when it is given, and a store of the tail. No system call
//! after set-up.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use flatpath_sys::mapping::Mapping;
use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::refusal::Refusal;

pub(super) struct Entries {
    mapping: Mapping,
    /// The kernel's number of the ring.
    pub(super) group: u16,
    mask: u16,
    tail: u16,
}

impl Entries {
    /// Registers a ring of `count` entries, a power of two of at most 32,768, without any buffer.
    /// It is unmapped by the drop, which comes after the io_uring's last operation on it.
    pub(super) fn register(
        ring: &IoUring,
        group: u16,
        count: u32,
        flags: u16,
    ) -> Result<Entries, Refusal> {
        let mapping = Mapping::private(count as usize * size_of::<BufRingEntry>())
            .map_err(|error| Refusal::of_error("mapping a receive buffer ring", &error))?;
        let address = mapping.base().as_ptr() as u64;
        let submitter = ring.submitter();
        // SAFETY: the address is page-aligned and has room for the entries; it stays mapped.
        unsafe { submitter.register_buf_ring_with_flags(address, count as u16, group, flags) }
            .map_err(|error| Refusal::of_error("registering a receive buffer ring", &error))?;
        Ok(Entries {
            mapping,
            group,
            mask: (count - 1) as u16,
            tail: 0,
        })
    }

    /// Writes the next entry, which must not be one that the kernel may read: fewer than the count
    /// are within. The kernel sees it after `publish`.
    pub(super) fn give(&mut self, address: NonNull<u8>, bytes: u32, number: u16) {
        let place = usize::from(self.tail & self.mask);
        // SAFETY: the place is below the count; the mapping has that many entries.
        let mut entry = unsafe { self.mapping.base().cast::<BufRingEntry>().add(place) };
        // SAFETY: initialised (zeroed or written before), and not read by the kernel: it is beyond
        // the tail, as fewer than the count are within.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(address.as_ptr() as u64);
        entry.set_len(bytes);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
    }

    pub(super) fn publish(&self) {
        // SAFETY: the mapping begins with an initialised (zeroed) entry.
        let tail =
            unsafe { BufRingEntry::tail(self.mapping.base().cast::<BufRingEntry>().as_ptr()) };
        // SAFETY: aligned, within the mapping, and accessed by both sides atomically only.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // ORDER: RE1: the entries before their tail.
        tail.store(self.tail, Ordering::Release);
    }
}
