//! Limits that change while the server runs.
//!
//! New connections have the new limits at once. Of those that are open, a bounded number is looked
//! at in each turn: the wheel holds their earliest deadline by the old limits, which may be too
//! late, and an address that was not counted has to be.

use flatpath_driver::Driver;

use crate::server::lifecycle::ServerState;

use super::listening::{Listener, limit_workers, shortest_of};
use super::thread::Network;

impl<D: Driver> Network<D> {
    /// Takes over the limits that were changed last, if it has not yet.
    pub(super) fn take_limits(&mut self) {
        let common = &mut self.thread.common;
        let Some(change) = common.take_limits() else {
            return;
        };
        let threads = common.threads();
        for listener in &mut self.listeners {
            let wanted = change.listeners.get(usize::from(listener.number()));
            listener.take_limits(wanted, (common.limits(), threads));
        }
        limit_workers(common.concurrency(), common.limits(), &self.listeners);
        common.dispatcher.update_shares();
        if common.server_state() >= ServerState::Draining {
            self.shorten_idle_timeouts();
        }
        let common = &mut self.thread.common;
        let bounds = self.listeners.iter().map(Listener::bound);
        common.admission.bound_listeners(bounds);
        common.bound_shortest(shortest_of(&self.listeners));
    }

    /// Kept connections of a server that drains have less time.
    pub(super) fn shorten_idle_timeouts(&mut self) {
        self.listeners
            .iter_mut()
            .for_each(Listener::shorten_idle_timeout);
    }

    /// Looks at the next of the connections that were open when the limits changed.
    pub(super) fn relimit_connections(&mut self) {
        for index in self.thread.common.admission.next_relimited() {
            let Some(mut event) = self.event_at(index) else {
                continue;
            };
            event.arm_deadline();
            if event.thread.common.limits().connections_per_address > 0 {
                event.learn_address();
            }
        }
    }
}
