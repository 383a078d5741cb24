//! Content of records in pages of its listener's own, for protocols that retain all they take
//! ([`ListenerOptions::retains_all`](crate::ListenerOptions::retains_all)).
//!
//! Records cannot be retained where they were received: one that comes in parts is gathered
//! elsewhere, and what is left of a piece when its protocol stalls must not occupy a page that all
//! connections share. So such a connection receives into the common pages, and what was in its
//! records is copied to a page of the listener's region just before the protocol is called, a page
//! at most for each call. The page is free again after the call, unless some of it was retained;
//! what was not consumed stays where it came from, or in a pooled buffer, and is copied once more
//! when it is offered again. So a connection that waits holds no page of the region.
//!
//! Where no page is free the connection stalls for memory.
//!
//! Cost: a copy. Where a listener keeps less, its records are opened in place (`secure.rs`).

use flatpath_driver::{Driver, Piece};
use flatpath_structures::pool::Buffer;

use crate::phase::Stall;

use super::secure::small;
use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// Offers content that lies in a piece, from a place in it on.
    pub(super) fn offer_content(&mut self, piece: Piece, mut from: u32) {
        if self.listener.written_id == 0 || self.connection.input().is_some() {
            return self.offer(piece, from);
        }
        while piece.len() > from as usize && self.connection.takes_input() {
            let Some(page) = self.write_piece(&piece, from as usize) else {
                self.stall(Stall::Memory);
                break;
            };
            let (consumed, is_all) = self.offer_page(page);
            from += small(consumed);
            if !is_all {
                break;
            }
        }
        if piece.len() > from as usize && self.connection.may_be_offered() {
            return self.keep_remainder(piece, from);
        }
        self.thread.driver.recycle(piece);
    }

    /// Offers content that lies in a buffer: it was gathered, or kept.
    pub(super) fn offer_gathered(&mut self, mut content: Buffer) {
        if self.listener.written_id == 0 {
            return self.offer_kept(content);
        }
        while !content.is_empty() && self.connection.takes_input() {
            let Some(page) = self.write_bytes(content.filled()) else {
                self.stall(Stall::Memory);
                break;
            };
            let (consumed, is_all) = self.offer_page(page);
            content.consume_front(consumed);
            if !is_all {
                break;
            }
        }
        if !content.is_empty() && self.connection.may_be_offered() {
            self.connection.keep_input(content);
        }
    }

    /// Copies as much as a page takes of a piece, from a place in it on.
    fn write_piece(&mut self, piece: &Piece, from: usize) -> Option<Piece> {
        let mut page = self.take_page(piece.len() - from)?;
        let length = page.len();
        let driver = &self.thread.driver;
        let to = driver.region(page.region_id()).bytes_of_mut(&mut page);
        to.copy_from_slice(&driver.bytes(piece)[from..from + length]);
        Some(page)
    }

    /// The same of a buffer.
    fn write_bytes(&mut self, bytes: &[u8]) -> Option<Piece> {
        let mut page = self.take_page(bytes.len())?;
        let length = page.len();
        let to = self.thread.driver.bytes_mut(&mut page);
        to.copy_from_slice(&bytes[..length]);
        Some(page)
    }

    /// A page for so many bytes, or as many as it has.
    fn take_page(&mut self, bytes: usize) -> Option<Piece> {
        let (driver, region_id) = (&mut self.thread.driver, self.listener.written_id);
        let page_bytes = driver.region(region_id).page_bytes() as usize;
        driver.take_page(region_id, bytes.min(page_bytes))
    }

    /// Offers a page. How much of it was consumed, and whether that is all.
    fn offer_page(&mut self, page: Piece) -> (usize, bool) {
        let length = page.len();
        let (protocol, io, bytes) = self.lend(Some((&page, 0)));
        let received = protocol.received(io, bytes);
        let consumed = self.consumed_of(received, length);
        self.thread.driver.recycle(page);
        (consumed, consumed == length)
    }
}
