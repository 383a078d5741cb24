//! Content of records in pages of its listener's own, for protocols that retain all they take
//! ([`ListenerOptions::retains_all`](crate::ListenerOptions::retains_all)).
//!
//! Records cannot be retained where they were received: one that comes in parts is put together
//! elsewhere, and what is left of a page when its protocol stalls must not occupy one that all
//! connections share. So such a connection receives into the common pages, and a chunk of it,
//! whatever that lies in, is copied to a page of the listener's region just before the protocol is
//! called, a page at most for each call. The page is free again after the call, unless some of it
//! was retained; what was not consumed stays in the inbox, and is copied once more when it is next.
//! So a connection that waits holds no page of the region.
//!
//! Where no page is free the connection stalls for memory.
//!
//! Cost: a copy. Where a listener keeps less, its records are opened in place (`secure.rs`).

use flatpath_driver::{Driver, Piece};

use crate::connection::Chunk;
use crate::protocol::phase::Stall;

use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// Whether the protocol is called with pages that are written here.
    pub(super) fn writes_pages(&self) -> bool {
        self.listener.written_id() != 0 && self.connection.is_secured()
    }

    /// Gives the protocol a chunk, page by page, and keeps what it leaves.
    pub(super) fn give_written(&mut self, mut chunk: Chunk) {
        while chunk.bytes() > 0 && self.connection.takes_input() {
            let Some(page) = self.write_page(&chunk) else {
                self.stall(Stall::Memory);
                break;
            };
            let length = page.len();
            let (protocol, io, bytes) = self.lend(Some((&page, 0)));
            let received = protocol.received(io, bytes);
            let consumed = self.consumed_of(received, length);
            self.thread.driver.recycle(page);
            chunk.consume(consumed);
            if consumed < length {
                break;
            }
        }
        self.keep(chunk);
    }

    /// Copies as much of a chunk as a page takes.
    fn write_page(&mut self, chunk: &Chunk) -> Option<Piece> {
        let (driver, region_id) = (&mut self.thread.driver, self.listener.written_id());
        let page_bytes = driver.region(region_id).page_bytes() as usize;
        let length = chunk.bytes().min(page_bytes);
        let mut page = driver.take_page(region_id, length)?;
        let bytes = &self.chunk_bytes(chunk)[..length];
        let region = self.thread.driver.region(region_id);
        region.bytes_of_mut(&mut page).copy_from_slice(bytes);
        Some(page)
    }
}
