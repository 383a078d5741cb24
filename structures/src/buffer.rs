//! Buffer: a block of a pool, filled from the front to the back and read from the front.
//!
//! ```text
//!   0 ........ from ............ to .................... capacity
//!     consumed      filled()        room()
//! ```
//!
//! It is an owned value, `Send` and `'static`: its address stays the same while it lives, and
//! dropping it returns the block from whatever thread. There is no other way to return it, so it
//! cannot be returned twice; using it afterwards does not compile:
//!
//! ```compile_fail,E0382
//! let pool = flatpath_structures::pool::Pool::new(Default::default());
//! let buffer = pool.take(10).expect("nothing is in use");
//! drop(buffer);
//! buffer.filled();
//! ```
//!
//! Invariants
//! - I1: `from` <= `to` <= `written` <= capacity.
//! - I2: nothing was written at or after `written`; so zeroing up to there makes all zeros again.
//!   What was lent out to be filled counts as written, whatever became of it.
//!
//! Not a ring: room in front comes back only when all was consumed.

use crate::memory::{Lease, Marks};
use std::io;

/// A block of memory on loan from a [`Pool`](crate::pool::Pool). One pointer wide.
#[derive(Debug)]
pub struct Buffer {
    lease: Lease,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(lease: Lease) -> Buffer {
        debug_assert_eq!(
            lease.marks().written,
            0,
            "a lease begins with a block of zeros"
        );
        Buffer { lease }
    }

    /// Bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.lease.memory().len()
    }

    /// What was filled and not consumed yet.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        let marks = self.lease.marks();
        &self.lease.memory()[marks.from as usize..marks.to as usize]
    }

    /// The same, to change in place.
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let (memory, marks) = self.lease.parts();
        &mut memory[marks.from as usize..marks.to as usize]
    }

    /// Whether nothing is filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lease.marks().from == self.lease.marks().to
    }

    /// Bytes that can still be added.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity() - self.lease.marks().to as usize
    }

    /// Adds as much of `bytes` as there is room for; returns how many that were.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let fitting = bytes.len().min(self.room());
        self.spare_up_to(fitting).copy_from_slice(&bytes[..fitting]);
        self.advance(fitting);
        fitting
    }

    /// All the room, to be filled from its front; [`advance`](Buffer::advance) says by how much.
    ///
    /// The bytes are initialised: zeros if the pool zeroes, otherwise whatever was there. All of it
    /// counts as written and will be zeroed; ask for less with
    /// [`spare_up_to`](Buffer::spare_up_to).
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        self.spare_up_to(usize::MAX)
    }

    /// The first `bytes_max` of the room, or all of it if it is less. See
    /// [`spare_mut`](Buffer::spare_mut).
    #[inline]
    pub fn spare_up_to(&mut self, bytes_max: usize) -> &mut [u8] {
        let bytes = bytes_max.min(self.room());
        let (memory, marks) = self.lease.parts();
        let spare = marks.to as usize..marks.to as usize + bytes;
        marks.written = marks.written.max(spare.end as u32);
        &mut memory[spare]
    }

    /// Counts the first `bytes` of the room as filled.
    ///
    /// # Panics
    /// If there is less room.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.room(), "advanced beyond the room");
        let (_, marks) = self.lease.parts();
        marks.to += bytes as u32;
        marks.written = marks.written.max(marks.to);
    }

    /// Drops the first `bytes` of what is filled. O(1): nothing moves.
    ///
    /// # Panics
    /// If less is filled.
    #[inline]
    pub fn consume_front(&mut self, bytes: usize) {
        assert!(bytes <= self.filled().len(), "consumed more than is filled");
        let (_, marks) = self.lease.parts();
        marks.from += bytes as u32;
        if marks.from == marks.to {
            self.clear();
        }
    }

    /// Drops all that is filled; the room is the capacity again. O(1): zeroing waits for the
    /// return.
    #[inline]
    pub fn clear(&mut self) {
        let (_, marks) = self.lease.parts();
        marks.from = 0;
        marks.to = 0;
    }
}

/// Writes as much as there is room for: a full buffer takes 0 bytes, which `write_all` reports as
/// `WriteZero`.
impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.append(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // Before the lease ends: the next holder must not see what was here.
        let zeroes = self.lease.zeroes() && !cfg!(drill = "buffer_returned_unzeroed");
        let (memory, marks) = self.lease.parts();
        if marks.written > 0 {
            if zeroes {
                memory[..marks.written as usize].fill(0);
            }
            *marks = Marks::default();
        }
    }
}
