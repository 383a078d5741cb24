//! Which connection is meant, wherever something of it travels.

use flatpath_structures::slots::Key;

/// A connection of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) key: Key,
    pub(crate) thread: u16,
    pub(crate) listener: u16,
}

/// Names a connection of a running server, for [`Io::splice`](crate::Io::splice). It names
/// nothing once the connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHandle(pub(crate) ConnectionId);

impl ConnectionHandle {
    /// Whether both connections are on one network thread, so that they can be spliced.
    pub fn shares_thread(self, other: ConnectionHandle) -> bool {
        self.0.thread == other.0.thread
    }
}
