//! Calls from one connection of a network thread to another, before the turn ends.

use std::cell::RefCell;
use std::rc::Rc;

use crate::connection_handle::{ConnectionHandle, ConnectionId};

/// Calls connections of this network thread that nothing has happened to: what one of them does may
/// concern another. For a [`ThreadState`](crate::Protocol::ThreadState) to keep; it stays on its
/// thread.
#[derive(Clone, Debug, Default)]
pub struct LocalWaker(Rc<RefCell<Vec<ConnectionId>>>);

impl LocalWaker {
    /// Lets [`Protocol::notified`](crate::Protocol::notified) be called for a connection, once for
    /// each time this is, before the turn ends. Does nothing if the connection is gone by then.
    pub fn wake(&self, end: ConnectionHandle) {
        self.0.borrow_mut().push(end.0);
    }

    /// What was notified since the last call.
    pub(crate) fn take(&self) -> Vec<ConnectionId> {
        std::mem::take(&mut *self.0.borrow_mut())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
