//! Deadlines that a protocol sets for one connection.

use std::sync::Arc;

use super::Io;
use crate::connection::shortest_ns;
use crate::server::listener_limits::ListenerLimits;

impl Io<'_> {
    /// Deadlines of this connection from now on, in place of those of its listener; `None` for
    /// these. For a protocol that learns from a request how patient it has to be. Only the times
    /// count. What the connection waits for now has its new time from where it began.
    pub fn timeouts(&mut self, own: Option<&Arc<ListenerLimits>>) {
        if !self.connection.set_timeouts(own) {
            return;
        }
        if let Some(own) = own {
            let shortest_ns = shortest_ns(&own.of_server(self.limits));
            self.common.bound_own_shortest(shortest_ns);
        }
    }
}
