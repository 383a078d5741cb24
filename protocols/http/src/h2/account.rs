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

use super::bounds::{CONNECTION_BYTES, STREAM_BYTES, STREAMS_STEP};

/// See the module. Dropped, it is given back.
pub(super) struct Account(Charge);

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
        pool.charge(bytes(0)).map(Account)
    }

    /// How many streams may come beside so many; where that is none, more are charged.
    pub(super) fn room(&mut self, streams: usize, pool: PoolHandle<'_>) -> usize {
        let room = |account: &Account| {
            let bytes = account.0.bytes().saturating_sub(CONNECTION_BYTES);
            (bytes / STREAM_BYTES).saturating_sub(streams)
        };
        if room(self) == 0
            && let Some(more) = pool.charge(bytes(streams + 1).saturating_sub(self.0.bytes()))
        {
            self.0.merge(more);
        }
        room(self)
    }

    /// So many streams are left.
    pub(super) fn has_left(&mut self, streams: usize) {
        if streams == 0 {
            self.0.shrink_to(bytes(0));
        }
    }
}
