//! Receive buffers of the drivers that read by themselves: the same count and accounting as the
//! kernel's buffer ring.
//!
//! Newest first, so that the warm buffer is used next and untouched ones stay untouched.
//!
//! Invariants
//! - EB1: a buffer is in `free`, held by a receive in progress, with the caller as a [`Piece`], or
//!   retained. A piece is recycled once at most, as it is no `Clone`; one that is dropped instead
//!   takes its buffer along, unless something of it was retained.
//!
//! Cost: O(1), no allocation after set-up. The memory is touched, and so counted, when first used.

use std::io;

use crate::completion::Piece;
use crate::region::{Region, RegionConfig};
use crate::waker::Waker;

pub(crate) struct Buffers {
    region: Region,
    region_id: u16,
    free: Vec<u16>,
}

impl Buffers {
    /// `pages` is at most 32,768.
    pub(crate) fn new(region_id: u16, config: &RegionConfig, waker: &Waker) -> io::Result<Buffers> {
        let region = Region::new(config)?;
        region.wakes(waker);
        Ok(Buffers {
            region,
            region_id,
            free: (0..config.pages).rev().map(|page| page as u16).collect(),
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.region.pages() - self.free()
    }

    /// True when no buffer is free.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Buffers that can be received into.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// A free buffer to receive into; goes back with `unused` or to the caller with `filled`.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(crate) fn space(&mut self, buffer: u16) -> &mut [u8] {
        // SAFETY: `take` gave it to the receive in progress, on this thread (EB1).
        unsafe { self.region.space(u32::from(buffer)) }
    }

    pub(crate) fn unused(&mut self, buffer: u16) {
        self.free.push(buffer);
    }

    pub(crate) fn filled(&mut self, buffer: u16, bytes: usize) -> Piece {
        self.region.piece(self.region_id, buffer, 0, bytes as u32)
    }

    /// A free buffer for the caller to write.
    pub(crate) fn take_page(&mut self, bytes: usize) -> Option<Piece> {
        let buffer = self.take()?;
        Some(self.filled(buffer, bytes))
    }

    pub(crate) fn recycle(&mut self, piece: Piece) {
        self.region.check(&piece);
        // Retained pages come back with `reclaim`.
        if piece.base.into_inner().is_none() {
            self.free.push(piece.buffer);
        }
    }

    /// Whether a page is awaited and there is one.
    pub(crate) fn has_awaited(&self) -> bool {
        self.region.is_awaited() && !self.free.is_empty()
    }

    /// Takes back the pages that no fragment refers to any more.
    pub(crate) fn reclaim(&mut self) {
        self.region.reclaim(|page| self.free.push(page as u16));
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.region.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_is_given_out_once_and_comes_back() {
        let config = RegionConfig {
            pages: 4,
            page_bytes: 16,
            reserve_pages: 0,
            ..RegionConfig::default()
        };
        let mut buffers = Buffers::new(0, &config, &Waker::simulated()).expect("memory");
        for _ in 0..3 {
            let mut pieces = vec![];
            while let Some(buffer) = buffers.take() {
                buffers.space(buffer)[..2].copy_from_slice(&[buffer as u8, 7]);
                pieces.push(buffers.filled(buffer, 2));
            }
            assert_eq!(pieces.len(), 4);
            assert_eq!(buffers.in_use(), 4);
            for piece in pieces {
                assert_eq!(buffers.region().bytes_of(&piece), [piece.buffer as u8, 7]);
                buffers.recycle(piece);
            }
            assert_eq!(buffers.in_use(), 0);
        }
    }
}
