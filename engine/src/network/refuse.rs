//! Ends a connection for lack of room, or for what it holds, as `crate::admission::parting` says.

use flatpath_driver::Driver;

use crate::admission::parting::{Facts, Parting, Reason};
use crate::connection::Closing;
use crate::protocol;

use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// A connection found no room for too long.
    pub(super) fn refuse(&mut self) {
        self.counters().stalls_refused.add(1);
        self.part(Reason::NoRoom);
    }

    /// A connection is ended because of the memory it holds.
    pub(super) fn end_for_memory(&mut self) {
        self.part(Reason::Holds);
    }

    /// A connection is ended because others need what it holds: as for memory, but its place is
    /// wanted too, so it does not linger.
    pub(super) fn end_for_others(&mut self) {
        self.thread.common.admission.leaves(self.key.index);
        self.part(Reason::Holds);
        self.connection.close_without_lingering();
    }

    fn part(&mut self, reason: Reason) {
        let connection = &*self.connection;
        let facts = Facts {
            is_spliced: connection.is_spliced(),
            is_replying: connection.jobs_out() > 0 || !connection.is_sent(),
            is_closing: connection.is_closing(),
        };
        match Parting::of(reason, facts) {
            Parting::Reset => self.connection.close(Closing::Abort),
            Parting::AfterOutput => {
                self.abandon();
                self.connection.close(Closing::AfterOutput);
            }
            Parting::InWords => self.end_with_refusal(),
        }
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
            connection.end_reported();
        }
        self.report(protocol::Event::Abandoned);
    }
}
