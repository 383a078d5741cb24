//! Which connection is meant, wherever something of it travels; and how any thread has it called.
//!
//! | may run beside | `wake`, all of a handle | the network thread |
//! |----------------|-------------------------|--------------------|
//! | `wake`         | yes, from any thread    | yes                |
//!
//! Ordering: what a thread wrote before `wake` is seen by the `Event::Woken` that follows
//! (`network/wakes.rs`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use flatpath_structures::pool::{Charge, PoolHandle};
use flatpath_structures::slots::Key;

use crate::network::wakes::Wakes;

/// A connection of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) key: Key,
    pub(crate) thread: u16,
    pub(crate) listener: u16,
}

/// Names a connection of a running server, and lets any thread have it called. It names nothing
/// once the connection is gone, and may outlive the server. See [`Io::handle`](crate::Io::handle).
///
/// A program keeps it where events come from: a subscription, a timer thread, another connection.
/// What it has to say lies in a place of its own (a channel, a lock); the handle says "look there".
#[derive(Clone)]
pub struct ConnectionHandle {
    pub(crate) id: ConnectionId,
    wakes: Arc<Wakes>,
}

impl ConnectionHandle {
    pub(crate) fn new(id: ConnectionId, wakes: &Arc<Wakes>) -> ConnectionHandle {
        ConnectionHandle {
            id,
            wakes: Arc::clone(wakes),
        }
    }

    /// Has the connection's protocol get [`Event::Woken`](crate::Event::Woken), once,
    /// however often this is called before. A [`Stall::Outside`](crate::Stall::Outside) of it ends
    /// then. Called on its own network thread, within a turn: before the turn ends, in most cases.
    /// Does nothing if the connection is gone, is being closed, or is spliced.
    ///
    /// Cost: O(1), without a lock and without memory; a system call only when the network thread
    /// sleeps.
    pub fn wake(&self) {
        self.wakes.wake(self.id.key);
    }

    /// Charges bytes to the connection for as long as they are referenced; see [`Pools::hold`].
    pub(crate) fn hold(&self, bytes: Bytes) -> Result<Bytes, Bytes> {
        self.wakes
            .memory
            .pools
            .hold(self.id.thread, self.id.key.index, bytes)
    }

    /// Bulk memory without a buffer.
    pub(crate) fn charge(&self, bytes: usize) -> Option<Charge> {
        self.bulk().charge(bytes)
    }

    /// Whether the connection would hold more with these bytes than one of many had better hold.
    pub(crate) fn is_beyond_fair_part(&self, bytes: usize) -> bool {
        let pools = &self.wakes.memory.pools;
        let held_bytes = || pools.held_bytes(self.id.thread, self.id.key.index);
        pools.counts_addresses() && held_bytes() + bytes > pools.fair_bytes()
    }

    fn bulk(&self) -> PoolHandle<'_> {
        self.wakes
            .memory
            .pools
            .bulk(self.id.thread, self.id.key.index)
    }

    /// Charges bytes that all connections of the server may have, for as long as they are
    /// referenced; `None` when there is no bulk memory for them.
    #[doc(hidden)]
    #[must_use]
    pub fn hold_common(&self, bytes: &Bytes) -> Option<Bytes> {
        self.wakes.memory.pools.hold_common(bytes)
    }

    /// Whether both connections are on one network thread, so that they can be spliced.
    pub fn is_same_thread(&self, other: &ConnectionHandle) -> bool {
        Arc::ptr_eq(&self.wakes, &other.wakes)
    }
}

impl PartialEq for ConnectionHandle {
    fn eq(&self, other: &ConnectionHandle) -> bool {
        self.id == other.id && self.is_same_thread(other)
    }
}

impl Eq for ConnectionHandle {}

impl fmt::Debug for ConnectionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = formatter.debug_tuple("ConnectionHandle");
        tuple.field(&self.id).finish()
    }
}
