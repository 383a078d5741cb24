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
//! - `from` <= `to` <= `written` <= capacity.
//! - Nobody has written at or after `written` since the block was made, this holder or one before:
//!   there it is zeros. What was lent out to be filled counts as written, whatever became of it.
//! - What a holder before has left is never shown (P3 of the pool): what is filled was written by
//!   this one, and room is zeroed when it is lent as bytes. Who writes before it reads needs no
//!   zeros: `append` and
//!   [`overwrite_mut`](Buffer::overwrite_mut).
//!
//! Not a ring: room in front comes back only when all was consumed.

use crate::memory::OwnedBlock;
use std::io;

/// A block of memory on loan from a [`Pool`](crate::pool::Pool). One pointer wide.
#[derive(Debug)]
pub struct Buffer {
    block: OwnedBlock,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(block: OwnedBlock) -> Buffer {
        debug_assert_eq!(block.marks().to, 0, "a block begins empty");
        Buffer { block }
    }

    /// Counts it for an owner, from now until it is returned.
    #[inline]
    pub(crate) fn charge(&mut self, owner: u32) {
        self.block.charge(owner);
    }

    /// Bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.memory().len()
    }

    /// The bytes that were filled and not consumed yet.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        let marks = self.block.marks();
        &self.block.memory()[marks.from as usize..marks.to as usize]
    }

    /// The same, to change in place.
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let (memory, marks) = self.block.parts();
        &mut memory[marks.from as usize..marks.to as usize]
    }

    /// Whether nothing is filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.block.marks().from == self.block.marks().to
    }

    /// Bytes that can still be added.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity() - self.block.marks().to as usize
    }

    /// Adds as much of `bytes` as there is room for; returns how many that were.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let (memory, marks) = self.block.parts();
        let room = &mut memory[marks.to as usize..];
        let fitting = bytes.len().min(room.len());
        room[..fitting].copy_from_slice(&bytes[..fitting]);
        marks.to += fitting as u32;
        marks.written = marks.written.max(marks.to);
        fitting
    }

    /// All the room, to be filled from its front; [`advance`](Buffer::advance) says by how much.
    ///
    /// The bytes are zeros if the pool zeroes, otherwise whatever was there. That is what it costs:
    /// ask for less with [`spare_up_to`](Buffer::spare_up_to), or for none with
    /// [`overwrite_mut`](Buffer::overwrite_mut).
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        self.spare_up_to(usize::MAX)
    }

    /// The first `bytes_max` of the room, or all of it if it is less. See
    /// [`spare_mut`](Buffer::spare_mut).
    #[inline]
    pub fn spare_up_to(&mut self, bytes_max: usize) -> &mut [u8] {
        let bytes = bytes_max.min(self.room());
        let zeroes = self.block.zeroes();
        let (memory, marks) = self.block.parts();
        let spare = marks.to as usize..marks.to as usize + bytes;
        if zeroes {
            let written = spare.end.min(marks.written as usize);
            memory[spare.start.min(written)..written].fill(0);
        }
        marks.written = marks.written.max(spare.end as u32);
        &mut memory[spare]
    }

    /// All the room, for what writes it without reading, as a system call does;
    /// [`advance`](Buffer::advance) then says how much that was. Nothing is zeroed: beyond what is
    /// written lies what a holder before may have left, so it is lent to nobody else.
    #[inline]
    pub fn overwrite_mut(&mut self) -> &mut [u8] {
        let (memory, marks) = self.block.parts();
        let room = &mut memory[marks.to as usize..];
        marks.written = marks.to + room.len() as u32;
        room
    }

    /// Counts the first `bytes` of the room as filled.
    ///
    /// # Panics
    /// If there is less room.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.room(), "advanced beyond the room");
        let (_, marks) = self.block.parts();
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
        let (_, marks) = self.block.parts();
        marks.from += bytes as u32;
        if marks.from == marks.to {
            self.clear();
        }
    }

    /// Keeps the first `bytes` of what is filled, and drops the others. O(1).
    ///
    /// # Panics
    /// If less is filled.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        assert!(bytes <= self.filled().len(), "kept more than is filled");
        let (_, marks) = self.block.parts();
        marks.to = marks.from + bytes as u32;
    }

    /// Drops all that is filled; the room is the capacity again. O(1).
    #[inline]
    pub fn clear(&mut self) {
        let (_, marks) = self.block.parts();
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
        // The next holder begins with nothing filled.
        self.clear();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::pool::{Pool, PoolConfig, Zero};

    fn pool(bytes: usize) -> Pool {
        Pool::new(PoolConfig {
            classes: vec![bytes],
            budget_bytes: bytes,
            zero: Zero::WhenLent,
        })
    }

    /// What a holder leaves: ten bytes that it wrote, and six that were lent to it.
    fn used(pool: &Pool) {
        let mut buffer = pool.take(64).expect("room");
        buffer.append(&[1; 10]);
        buffer.spare_up_to(6).fill(2);
    }

    #[test]
    fn room_is_zeroed_when_it_is_lent_and_only_as_far_as_it_was_written() {
        let pool = pool(64);
        used(&pool);
        let mut buffer = pool.take(64).expect("room");
        // Behind the buffer's back: what it does not know of, it does not zero.
        buffer.block.parts().0[16..].fill(9);
        buffer.append(b"mine");
        assert_eq!(buffer.spare_up_to(8), [0; 8]);
        assert_eq!(
            buffer.block.memory()[12..16],
            [2; 4],
            "not lent, so not zeroed"
        );
        assert_eq!(buffer.spare_mut()[8..12], [0; 4]);
        assert_eq!(buffer.block.memory()[16..], [9; 48], "nobody wrote there");
        assert_eq!(buffer.filled(), b"mine");
    }

    #[test]
    fn what_was_lent_counts_as_written_whatever_became_of_it() {
        let lend: [fn(&mut crate::pool::Buffer); 2] = [
            |buffer| buffer.spare_mut()[15] = 7,
            |buffer| buffer.overwrite_mut()[15] = 7,
        ];
        for lend in lend {
            let pool = pool(16);
            let mut buffer = pool.take(16).expect("room");
            lend(&mut buffer);
            assert!(buffer.is_empty());
            drop(buffer);
            let mut buffer = pool.take(16).expect("room");
            assert_eq!(buffer.spare_mut(), [0; 16]);
        }
    }

    #[test]
    fn what_is_overwritten_is_not_zeroed_first() {
        let pool = pool(64);
        used(&pool);
        let mut buffer = pool.take(64).expect("room");
        assert!(buffer.is_empty(), "a new holder has nothing filled");
        buffer.append(b"head");
        let room = buffer.overwrite_mut();
        assert_eq!((room.len(), room[0]), (60, 1));
        room[..4].copy_from_slice(b"body");
        buffer.advance(4);
        assert_eq!(buffer.filled(), b"headbody");
    }

    #[test]
    #[should_panic = "advanced beyond the room"]
    fn a_buffer_is_not_filled_beyond_its_room() {
        let pool = pool(16);
        pool.take(16).expect("room").advance(17);
    }

    #[test]
    #[should_panic = "consumed more than is filled"]
    fn no_more_is_consumed_than_is_filled() {
        let pool = pool(16);
        let mut buffer = pool.take(16).expect("room");
        buffer.append(b"four");
        buffer.consume_front(5);
    }

    #[test]
    fn a_full_buffer_takes_nothing_more() {
        use std::io::Write;
        let pool = pool(4);
        let mut buffer = pool.take(4).expect("room");
        assert_eq!(buffer.append(b"abcdef"), 4);
        assert_eq!(buffer.append(b"g"), 0);
        let error = buffer.write_all(b"h").expect_err("full");
        assert_eq!(error.kind(), std::io::ErrorKind::WriteZero);
    }
}
