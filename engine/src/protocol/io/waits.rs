//! What a connection waits for, as its protocol says it: phases with their deadlines, and stalls.

use std::time::Duration;

use super::Io;
use crate::protocol::phase::{Phase, Stall};

impl Io<'_> {
    /// Says what the connection waits for now, which sets its deadline. Saying the same phase again
    /// does not move the deadline; [`Io::restart_phase`] does.
    pub fn phase(&mut self, phase: Phase) {
        if self.connection.phase() != phase {
            self.restart_phase(phase);
        }
    }

    /// Starts a phase anew although it may be the current one: the next request's head, say.
    pub fn restart_phase(&mut self, phase: Phase) {
        self.connection.start_phase(phase, self.common.turn.now_ns);
        if phase.is_for_client() {
            self.common.admission.long_lived.add(self.key.index);
        }
    }

    /// Says what the connection waits for, and when that is over, in the time of `Turn::now`: for
    /// a protocol that waits for several things at a time, each with a deadline of its own
    /// ([`Pace`](crate::Pace), [`Io::time_of`]).
    pub fn phase_until(&mut self, phase: Phase, end: Duration) {
        let end_ns = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        self.connection
            .start_phase_until(phase, end_ns, self.limits);
        if phase.is_for_client() {
            self.common.admission.long_lived.add(self.key.index);
        }
    }

    /// How long the connection may be in a phase, by [its own deadlines](Io::timeouts) where it has
    /// some; `None` for no limit.
    pub fn time_of(&self, phase: Phase) -> Option<Duration> {
        self.connection.limits_within(self.limits).of_phase(phase)
    }

    /// Offers no input until a reason is over that arose outside of
    /// [`Protocol::received`](crate::Protocol::received), which returns its own.
    pub fn stall(&mut self, stall: Stall) {
        // A spliced one has no input that its protocol could leave.
        if !self.connection.is_spliced() {
            self.common.stall(self.connection, stall);
        }
    }
}
