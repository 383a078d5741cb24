//! Bytes out: one send at a time per connection, each with all that is queued.
//!
//! Nothing follows from most replies' going out: the connection rests until its peer speaks again.
//! So a turn is not made for that alone ([`AfterSend::Rest`]): it is noted with what comes next,
//! after [`RESTING_NS_MAX`] at the latest. Where anything waits for it, it ends the wait: more
//! output, a protocol that wants to write, an end, a drain, a connection that waits for memory.
//!
//! A send is a copy to the socket, made before the next turn: a thousand long ones take tens of
//! milliseconds. So in one turn long ones are started up to [`LONG_SENDS_BYTES`]; the others wait
//! ([`Wait::Send`]) for the next turn, which follows at once. Short replies never wait.

use flatpath_driver::{AfterSend, Completion, Driver, Errno, Outcome};

use crate::connection::{Closing, Connection, Send};
use crate::limits::{LONG_SENDS_BYTES, RESTING_NS_MAX, SHORT_SEND_BYTES_MAX};

use super::thread::{Event, Fate, Network, Thread};
use super::user_data::{KIND_SEND, user_data};
use super::waits::Wait;

fn may_send(connection: &Connection) -> bool {
    connection.send == Send::Off && connection.control.closing != Closing::Abort
}

/// Whether nothing is to be done when what is being sent has been sent.
fn rests_then(connection: &Connection) -> bool {
    !connection.output.has_waiting()
        && !connection.has_wishes()
        && connection.control.closing == Closing::No
        && connection.control.becomes.is_none()
}

impl<D: Driver> Event<'_, D> {
    /// Starts the next send, if there is something to send and none is going, or has it wait.
    pub(super) fn start_send(&mut self) {
        if !self.connection.output.has_waiting() {
            return self.connection.output.release_unused();
        }
        if !may_send(self.connection) {
            return;
        }
        let is_long = self.connection.output.queued_bytes() > SHORT_SEND_BYTES_MAX;
        if is_long
            && (self.thread.long_send_bytes >= LONG_SENDS_BYTES
                || !self.thread.waits.is_empty(Wait::Send))
        {
            return self.wait(Wait::Send);
        }
        self.send_now();
    }

    /// The last send of a connection closes the socket in the same system call.
    fn send_now(&mut self) {
        let connection = &mut *self.connection;
        let bytes = connection.output.queued_bytes();
        self.thread.long_send_bytes += bytes;
        connection.output.take(&mut self.thread.list);
        let then = if connection.is_at_last_send() {
            AfterSend::Close
        } else if bytes <= SHORT_SEND_BYTES_MAX && connection.peer.is_none() {
            self.thread.rested_ns = self.thread.now_ns() + RESTING_NS_MAX;
            self.thread.due(self.thread.rested_ns);
            AfterSend::Rest
        } else {
            AfterSend::KeepOpen
        };
        connection.send = Send::Going;
        connection.clocks.send_ns = self.thread.common.turn.now_ns;
        connection.operation = connection.operation.wrapping_add(1);
        connection.send_operation = connection.operation;
        let user_data = user_data(KIND_SEND, connection.send_operation, self.key);
        let Thread { driver, list, .. } = &mut *self.thread;
        driver.send(connection.socket, user_data, list, then);
    }

    /// The end of an event: what waits for a send to complete has that end the next wait.
    pub(super) fn reconcile_hurry(&mut self) {
        let connection = &*self.connection;
        if connection.send == Send::Going && !rests_then(connection) {
            self.thread.waits.hurry();
        }
    }

    pub(super) fn send_completed(&mut self, completion: Completion) -> Fate {
        match self.note_sent(completion) {
            Fate::Stays => self.reconcile(),
            fate => fate,
        }
    }

    /// Notes what a send has done.
    pub(super) fn note_sent(&mut self, completion: Completion) -> Fate {
        let connection = &mut *self.connection;
        if !completion.more {
            connection.send = Send::Off;
            // A late completion of this send must find nothing: the number moves on.
            connection.send_operation = connection.send_operation.wrapping_add(1);
        }
        match completion.outcome {
            Outcome::Sent { bytes, closed } => {
                connection.output.sent(bytes);
                connection.progress(bytes);
                let counters = self.thread.common.counters(connection.listener);
                counters.sent_bytes.add(bytes as u64);
                connection.clocks.send_ns = self.thread.common.turn.now_ns;
                if closed {
                    return Fate::Gone;
                }
            }
            Outcome::Failed(errno) => {
                if errno != Errno::CANCELED {
                    log::debug!("send failed: {errno}");
                }
                connection.output.clear();
                connection.control.close(Closing::Abort);
            }
            other => {
                debug_assert!(false, "a send neither accepts nor receives");
                self.thread.discard(other);
            }
        }
        Fate::Stays
    }
}

impl<D: Driver> Network<D> {
    /// The end of a turn: starts long sends, those that have waited longest first.
    pub(super) fn run_long_sends(&mut self) {
        while self.thread.long_send_bytes < LONG_SENDS_BYTES
            && let Some(key) = self.next_waiting(Wait::Send)
        {
            self.on(key, |event| {
                if may_send(event.connection) && event.connection.output.has_waiting() {
                    event.send_now();
                }
            });
        }
    }
}
