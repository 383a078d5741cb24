//! The end of a connection, at the request of any thread: because what it holds of something that
//! is shared out by address is needed by another one.
//!
//! | may run beside | end | the network thread |
//! |----------------|-----|--------------------|
//! | end            | yes | yes                |
//!
//! Does nothing for a connection that is gone, or is being closed. Cost: a lock and a wake.

use std::sync::{Arc, Weak};

use crate::connection_handle::ConnectionId;
use crate::worker::Shared;

/// The connection of a job while a worker runs it: see
/// [`WorkerScope::connection`](crate::WorkerScope::connection).
#[derive(Clone, Copy)]
pub struct JobConnection<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) home: ConnectionId,
}

impl JobConnection<'_> {
    /// What ends the connection, from any thread and at any time, because others need what it
    /// holds.
    #[must_use]
    pub fn end(&self) -> ConnectionEnd {
        ConnectionEnd(Some((Arc::downgrade(self.shared), self.home)))
    }
}

/// Ends a connection for others; see [`JobConnection::end`]. By default that of none.
#[derive(Clone, Default)]
pub struct ConnectionEnd(Option<(Weak<Shared>, ConnectionId)>);

flatpath_structures::opaque_debug! {
    impl[] ConnectionEnd as "ConnectionEnd";
    impl[] JobConnection<'_> as "JobConnection";
}

impl ConnectionEnd {
    /// The connection ends in its thread's next turn: what it is being sent breaks off.
    pub fn end(&self) {
        let known = self.0.as_ref();
        if let Some((shared, home)) = known.and_then(|(it, home)| Some((it.upgrade()?, *home))) {
            shared.end_for_others(home);
        }
    }
}
