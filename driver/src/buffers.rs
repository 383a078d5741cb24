//! Receive buffers of the drivers that read by themselves: the same count and accounting as the
//! kernel's buffer ring.
//!
//! Newest first, so that the warm buffer is used next and untouched ones stay untouched.
//!
//! Invariants
//! - B1: a buffer is in `free`, held by a receive in progress, with the caller, or retained;
//!   `places` says which of the last two.
//!
//! Cost: O(1), no allocation after set-up. The memory is touched, and so counted, when first used.

use std::cell::OnceCell;
use std::io;

use crate::completion::Piece;
use crate::region::{Region, RegionConfig};
use crate::waker::Waker;

/// Where a page is that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Free, or with the kernel, or being received into.
    Driver,
    /// With the caller, as a piece.
    Caller,
    /// With the kernel to be shared by receives, or shared by pieces that are out.
    Shared,
    /// Some of it was retained when its piece was put back.
    Retained,
}

pub(crate) struct Buffers {
    region: Region,
    region_id: u16,
    free: Vec<u16>,
    places: Box<[Place]>,
}

impl Buffers {
    /// `pages` is at most 32,768.
    pub(crate) fn new(region_id: u16, config: &RegionConfig, waker: &Waker) -> io::Result<Buffers> {
        let region = Region::new(config)?;
        region.wakes(waker);
        let count = config.pages as usize;
        Ok(Buffers {
            region,
            region_id,
            free: (0..count).rev().map(|buffer| buffer as u16).collect(),
            places: vec![Place::Driver; count].into_boxed_slice(),
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn in_use(&self) -> u32 {
        (self.places.len() - self.free.len()) as u32
    }

    /// True when no buffer is free.
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
        debug_assert_eq!(self.places[usize::from(buffer)], Place::Driver);
        // SAFETY: `take` gave it to the receive in progress, on this thread (B1).
        unsafe { self.region.space(u32::from(buffer)) }
    }

    pub(crate) fn unused(&mut self, buffer: u16) {
        self.free.push(buffer);
    }

    pub(crate) fn filled(&mut self, buffer: u16, bytes: usize) -> Piece {
        debug_assert!((1..=self.region.page_bytes() as usize).contains(&bytes));
        self.places[usize::from(buffer)] = Place::Caller;
        Piece {
            buffer,
            region_id: self.region_id,
            offset: 0,
            bytes: bytes as u32,
            region_serial: self.region.serial(),
            base: OnceCell::new(),
        }
    }

    pub(crate) fn bytes<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        self.region.bytes_of(piece)
    }

    pub(crate) fn recycle(&mut self, piece: Piece) {
        let place = &mut self.places[usize::from(piece.buffer)];
        assert!(
            *place == Place::Caller && piece.region_serial == self.region.serial(),
            "C5: piece {} is not out; it belongs to another driver",
            piece.buffer
        );
        if let Some(base) = piece.base.into_inner() {
            *place = Place::Retained;
            drop(base);
        } else {
            *place = Place::Driver;
            self.free.push(piece.buffer);
        }
    }

    /// Whether a page is awaited and there is one.
    pub(crate) fn has_awaited(&self) -> bool {
        self.region.is_awaited() && !self.free.is_empty()
    }

    /// Takes back the pages that no fragment refers to any more.
    pub(crate) fn reclaim(&mut self) {
        let (places, free) = (&mut self.places, &mut self.free);
        self.region.reclaim(|page| {
            let place = &mut places[page as usize];
            // Of a piece that was dropped instead of put back, something was retained: it is gone
            // too.
            let is_back = matches!(place, Place::Retained | Place::Caller);
            assert!(is_back, "B1: page {page} was neither kept nor out");
            *place = Place::Driver;
            free.push(page as u16);
        });
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
                assert_eq!(buffers.bytes(&piece), [piece.buffer as u8, 7]);
                buffers.recycle(piece);
            }
            assert_eq!(buffers.in_use(), 0);
        }
    }
}
