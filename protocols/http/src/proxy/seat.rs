//! One connection to a server, as the others know it: where a request is put for it.
//!
//! | who                        | does                                                         |
//! |----------------------------|--------------------------------------------------------------|
//! | the connection of a client | puts a trip into it, once it has taken it from those that    |
//! |                            | are idle, or made it for a new connection; then wakes it     |
//! | its own connection         | takes the trip, when it is called or when it ends            |
//!
//! Invariant
//! - US1: a seat has one trip at most, and only while it is in no list of idle connections. So a
//!   trip that is put into it is taken once: by the connection, or by its end.

use std::sync::{Arc, OnceLock};

use flatpath::ConnectionHandle;
use flatpath::lock::Lock;

/// See the module. `T` is a trip.
pub(crate) struct Seat<T> {
    pub(crate) server: usize,
    /// The network thread of both connections.
    pub(crate) thread: usize,
    trip: Lock<Option<Arc<T>>>,
    connection: OnceLock<ConnectionHandle>,
}

impl<T> Seat<T> {
    /// Of a connection to this server that is to be opened for this trip.
    pub(crate) fn new((server, thread): (usize, usize), trip: Arc<T>) -> Arc<Self> {
        Arc::new(Self {
            server,
            thread,
            trip: Lock::new(Some(trip)),
            connection: OnceLock::new(),
        })
    }

    /// The connection stands, and is this one.
    pub(crate) fn connected(&self, connection: ConnectionHandle) {
        let _once = self.connection.set(connection);
    }

    /// Puts a trip into it, and has the connection look.
    pub(crate) fn put(&self, trip: Arc<T>) {
        let before = self.trip.lock().replace(trip);
        debug_assert!(before.is_none(), "US1: one trip at a time");
        self.wake();
    }

    /// Has the connection look. One that does not stand yet looks when it does.
    pub(crate) fn wake(&self) {
        if let Some(connection) = self.connection.get() {
            connection.wake();
        }
    }

    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.trip.lock().take()
    }
}
