//! Ends a connection for want of room, in its protocol's words where they can be said.

use flatpath_driver::Driver;

use crate::connection::Closing;
use crate::protocol;

use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// A connection found no room for too long: it is refused in its protocol's words and closed.
    pub(super) fn refuse(&mut self) {
        self.counters().stalls_refused.add(1);
        let connection = &mut *self.connection;
        if connection.peer().is_some() {
            // A clean end would say that nothing is missing.
            connection.close(Closing::Abort);
        } else if connection.jobs_out() > 0 || !connection.is_sent() {
            // Words in the middle of another reply would be taken for a part of it.
            self.abandon();
            self.connection.close(Closing::AfterOutput);
        } else {
            self.end_with_refusal();
        }
    }

    /// A connection is ended because of the memory it holds: in words where they can be said at
    /// once, else by a reset, as what it holds is what its peer does not read.
    pub(super) fn end_for_memory(&mut self) {
        let connection = &mut *self.connection;
        let is_busy = connection.peer().is_some()
            || connection.jobs_out() > 0
            || connection.is_closing()
            || !connection.is_sent();
        if is_busy {
            connection.close(Closing::Abort);
        } else {
            self.end_with_refusal();
        }
    }

    /// A connection is ended because others need what it holds: as for memory, but its place is
    /// wanted too, so it does not linger.
    pub(super) fn end_for_others(&mut self) {
        self.thread.admission.leaves(self.key.index);
        self.end_for_memory();
        self.connection.close_without_lingering();
    }

    fn end_with_refusal(&mut self) {
        self.abandon();
        let refusal = self.protocol().options().refusal.clone();
        if !refusal.is_empty() {
            self.connection.output_mut().push(refusal.into());
        }
        self.connection.close(Closing::Lingering);
    }

    /// Drops what the connection holds of input.
    fn abandon(&mut self) {
        let connection = &mut *self.connection;
        connection.stall_is_over();
        if connection.has_ended() {
            connection.end_told();
        }
        self.report(protocol::Event::Abandoned);
    }
}
