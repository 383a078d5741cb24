//! Receive buffers: the same count and accounting as the kernel's buffer ring, in ordinary memory.
//!
//! Newest first, so that the warm buffer is used next and untouched ones stay untouched.
//!
//! Invariants
//! - B1: a buffer is in `free`, held by a receive in progress, or with the caller (`out`).
//!
//! Cost: O(1), no allocation after set-up. The memory is touched, and so counted, when first used.

use crate::completion::Piece;

pub(crate) struct Buffers {
    memory: Box<[u8]>,
    buffer_bytes: usize,
    free: Vec<u16>,
    out: Box<[bool]>,
}

impl Buffers {
    /// `count` is at most 32,768.
    pub(crate) fn new(count: u32, buffer_bytes: u32) -> Buffers {
        let (count, buffer_bytes) = (count as usize, buffer_bytes as usize);
        Buffers {
            memory: vec![0; count * buffer_bytes].into_boxed_slice(),
            buffer_bytes,
            free: (0..count).rev().map(|buffer| buffer as u16).collect(),
            out: vec![false; count].into_boxed_slice(),
        }
    }

    pub(crate) fn in_use(&self) -> u32 {
        (self.out.len() - self.free.len()) as u32
    }

    /// True when no buffer is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// A free buffer to receive into; goes back with `unused` or to the caller with `filled`.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(crate) fn space(&mut self, buffer: u16) -> &mut [u8] {
        let start = usize::from(buffer) * self.buffer_bytes;
        &mut self.memory[start..start + self.buffer_bytes]
    }

    pub(crate) fn unused(&mut self, buffer: u16) {
        self.free.push(buffer);
    }

    pub(crate) fn filled(&mut self, buffer: u16, bytes: usize) -> Piece {
        debug_assert!((1..=self.buffer_bytes).contains(&bytes));
        self.out[usize::from(buffer)] = true;
        Piece {
            buffer,
            bytes: bytes as u32,
        }
    }

    pub(crate) fn bytes(&self, piece: &Piece) -> &[u8] {
        assert!(
            self.out[usize::from(piece.buffer)],
            "C5: the piece is of another driver"
        );
        let start = usize::from(piece.buffer) * self.buffer_bytes;
        &self.memory[start..start + piece.len()]
    }

    pub(crate) fn put(&mut self, piece: Piece) {
        let out = &mut self.out[usize::from(piece.buffer)];
        assert!(
            *out,
            "C5: piece {} is not out; it belongs to another driver",
            piece.buffer
        );
        *out = false;
        self.free.push(piece.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_is_given_out_once_and_comes_back() {
        let mut buffers = Buffers::new(4, 16);
        for _ in 0..3 {
            let mut pieces = vec![];
            while let Some(buffer) = buffers.take() {
                buffers.space(buffer)[..2].copy_from_slice(&[buffer as u8, 7]);
                pieces.push(buffers.filled(buffer, 2));
            }
            assert_eq!(pieces.len(), 4);
            assert_eq!(buffers.in_use(), 4);
            for piece in pieces {
                assert_eq!(buffers.bytes(&piece), [piece.buffer as u8, 7]);
                buffers.put(piece);
            }
            assert_eq!(buffers.in_use(), 0);
        }
    }
}
