//! Where the inbox of a connection finds its pages and buffers: with the driver of its thread, and
//! in the pools.
//!
//! A buffer for what a call has left is a small request on its way if it is short, and may come
//! from the reserve. What is longer can wait, and so can the rest of a body: for these there is
//! bulk memory alone, and where there is none the page is held.
//!
//! Cost: a supply is made for a call of the inbox that needs one, from two loads.

use flatpath_driver::{Driver, Piece};
use flatpath_structures::pool::{Buffer, PoolHandle};

use crate::connection::{Chunk, Inbox, Supply};
use crate::limits::BUFFER_CLASSES;
use crate::protocol::phase::Phase;

use super::thread::{Event, Thread};

/// See the module.
pub(super) struct Pages<'a, D: Driver> {
    driver: &'a mut D,
    pool: PoolHandle<'a>,
    phase: Phase,
}

impl<D: Driver> Supply<Piece> for Pages<'_, D> {
    fn bytes<'a>(&'a self, page: &'a Piece) -> &'a [u8] {
        self.driver.bytes(page)
    }

    fn recycle(&mut self, page: Piece) {
        self.driver.recycle(page);
    }

    fn take(&self, bytes: usize) -> Option<Buffer> {
        let pool = if bytes <= BUFFER_CLASSES[0] && self.phase != Phase::Body {
            self.pool
        } else {
            self.pool.for_bulk()
        };
        pool.take(bytes).filter(|buffer| buffer.room() >= bytes)
    }
}

impl<D: Driver> Event<'_, D> {
    /// The inbox of the connection, and what it needs of the thread.
    pub(super) fn inbox(&mut self) -> (&mut Inbox, Pages<'_, D>) {
        let Thread { driver, common, .. } = &mut *self.thread;
        let supply = Pages {
            driver,
            pool: common.pool(self.key.index),
            phase: self.connection.phase(),
        };
        (self.connection.inbox_mut(), supply)
    }

    /// A buffer for input of this many bytes.
    pub(super) fn take_input_buffer(&mut self, bytes: usize) -> Option<Buffer> {
        self.inbox().1.take(bytes)
    }

    /// Where a chunk lies.
    pub(super) fn chunk_bytes<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        match chunk {
            Chunk::Page(piece, from) => &self.thread.driver.bytes(piece)[*from as usize..],
            Chunk::Buffer(buffer) => buffer.filled(),
            Chunk::Empty => &[],
        }
    }

    /// Gives back a chunk that is used up, or that no protocol takes.
    pub(super) fn release(&mut self, chunk: Chunk) {
        if let Chunk::Page(piece, _) = chunk {
            self.thread.driver.recycle(piece);
        }
    }
}
