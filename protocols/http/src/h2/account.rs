//! The memory of a connection beside its buffers: what `h2` and its streams hold, charged.
//!
//! `h2` does not say what it holds, but it is bounded from outside: its buffers for frames, its
//! tables of headers, and for each stream its state, a head and what is sent without a charge of
//! its own (`UNHELD_BYTES_MAX`). The rest of what passes through it is charged elsewhere: bodies
//! that arrive are copied at once, replies are in buffers or held, half a header block waits in the
//! input (`frames`).
//!
//! Cost: nothing for a request beside few others. The charge grows in steps of several streams, and
//! shrinks when all of them have ended.

use flatpath::memory::{Charge, PoolHandle};

use super::bounds::{CONNECTION_BYTES, STREAM_BYTES, STREAMS_STEP, TABLE_STEP_BYTES};

/// See the module. Dropped, it is given back.
pub(super) struct Account {
    charge: Charge,
    /// Of the charge, what is for the client's table of headers.
    table_bytes: usize,
}

/// With so many streams: one has its charge from the beginning.
fn bytes(streams: usize) -> usize {
    let streams = match streams {
        0 | 1 => 1,
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
            table_bytes: 0,
        })
    }

    /// How many streams may come beside so many; where that is none, more are charged.
    pub(super) fn room(&mut self, streams: usize, pool: PoolHandle<'_>) -> usize {
        let room = |account: &Account| {
            let bytes = account.charge.bytes() - account.table_bytes;
            (bytes.saturating_sub(CONNECTION_BYTES) / STREAM_BYTES).saturating_sub(streams)
        };
        if room(self) == 0 {
            self.grow(bytes(streams + 1) + self.table_bytes, pool);
        }
        room(self)
    }

    /// The client's table of headers is to hold at most so much. False: there is no memory for it.
    pub(super) fn holds_table(&mut self, bytes: usize, pool: PoolHandle<'_>) -> bool {
        let bytes = bytes.next_multiple_of(TABLE_STEP_BYTES);
        let more = bytes.saturating_sub(self.table_bytes);
        if more > 0 && self.grow(self.charge.bytes() + more, pool) {
            self.table_bytes = bytes;
        }
        self.table_bytes >= bytes
    }

    fn grow(&mut self, bytes: usize, pool: PoolHandle<'_>) -> bool {
        let more = pool.charge(bytes.saturating_sub(self.charge.bytes()));
        more.map(|more| self.charge.merge(more)).is_some()
    }

    /// So many streams are left, and a table that holds at most so much.
    pub(super) fn has_left(&mut self, streams: usize, table_bytes: usize) {
        if table_bytes == 0 {
            let table_bytes = std::mem::take(&mut self.table_bytes);
            self.charge.shrink_to(self.charge.bytes() - table_bytes);
        }
        if streams == 0 {
            self.charge.shrink_to(bytes(0) + self.table_bytes);
        }
    }
}
