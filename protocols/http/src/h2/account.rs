//! The memory of a connection beside its buffers: what its session and its streams hold, charged.
//!
//! | what                                   | charged                                      |
//! |----------------------------------------|----------------------------------------------|
//! | the session                            | from its beginning                           |
//! | the client's table of headers          | from the first block until it is given up    |
//! | a stream: its state, a head, a start of a body | in steps of several, until none is left |
//!
//! Bodies that arrive are charged where they are kept, replies are in buffers or held, half a
//! header block waits in the input.

use flatpath::memory::{Charge, PoolHandle};

use super::bounds::{CONNECTION_BYTES, STREAM_BYTES, STREAMS_STEP};
use super::hpack::TABLE_HELD_BYTES;

/// See the module. Dropped, it is given back.
pub(super) struct Account {
    charge: Charge,
    /// Whether the client's table is part of it.
    has_table: bool,
}

/// With this many streams.
fn bytes(streams: usize) -> usize {
    let streams = match streams {
        0 | 1 => streams,
        more => more.next_multiple_of(STREAMS_STEP),
    };
    CONNECTION_BYTES + streams * STREAM_BYTES
}

impl Account {
    /// That of a connection without a request. `None`: there is no memory for it.
    pub(super) fn open(pool: PoolHandle<'_>) -> Option<Account> {
        let charge = pool.charge(bytes(0))?;
        Some(Account {
            charge,
            has_table: false,
        })
    }

    fn table_bytes(&self) -> usize {
        match self.has_table {
            true => TABLE_HELD_BYTES,
            false => 0,
        }
    }

    /// Whether there is memory for one more stream.
    pub(super) fn has_room(&mut self, streams: usize, pool: PoolHandle<'_>) -> bool {
        let wanted = CONNECTION_BYTES + (streams + 1) * STREAM_BYTES + self.table_bytes();
        self.charge.bytes() >= wanted || self.grow(bytes(streams + 1) + self.table_bytes(), pool)
    }

    /// The client's table is made. False: there is no memory for it.
    pub(super) fn holds_table(&mut self, pool: PoolHandle<'_>) -> bool {
        self.has_table = self.has_table || self.grow(self.charge.bytes() + TABLE_HELD_BYTES, pool);
        self.has_table
    }

    fn grow(&mut self, bytes: usize, pool: PoolHandle<'_>) -> bool {
        let more = pool.charge(bytes.saturating_sub(self.charge.bytes()));
        more.map(|more| self.charge.merge(more)).is_some()
    }

    /// Gives back what is not needed for the streams that are left, and for the client's table.
    pub(super) fn has_left(&mut self, streams: usize, has_table: bool) {
        if self.has_table && !has_table {
            self.charge
                .shrink_to(self.charge.bytes() - TABLE_HELD_BYTES);
            self.has_table = false;
        }
        if streams == 0 {
            self.charge.shrink_to(bytes(0) + self.table_bytes());
        }
    }
}
