//! Bytes out: one send at a time per connection, each with all that is queued.
//!
//! Nothing follows from most replies' going out: the connection rests until its peer speaks again.
//! So a turn is not made for that alone ([`AfterSend::Rest`]): it is noted with what comes next,
//! after `RESTING_NS_MAX` at the latest. Where anything waits for it, it ends the wait: more
//! output, a protocol that wants to write, an end, a drain, a connection that waits for memory.
//!
//! A send is a copy to the socket, made before the next turn: a thousand long ones take tens of
//! milliseconds. So in one turn long ones are started up to `LONG_SENDS_BYTES`; the others wait
//! ([`Wait::Send`]) for the next turn, which follows at once. Short replies never wait.
//!
//! Of a long file one send carries 256 KiB, or a window of 2 MiB where that is cheaper
//! (`connection/output/taking.rs`), so it has its turn for each. What is not in the
//! kernel's cache is read by a worker first (`ahead.rs`). How much of it the kernel takes at a time
//! is for `wide.rs` to say.

use flatpath_driver::{AfterSend, Completion, Driver, Errno, Outcome};

use crate::connection::output::Taken;
use crate::limits::SHORT_SEND_BYTES_MAX;
use crate::network::waits::Wait;

use super::reconcile::Fate;
use super::thread::{Event, Thread};
use super::user_data::{KIND_SEND, user_data};

impl<D: Driver> Event<'_, D> {
    /// Starts the next send, if there is something to send and none is going, or has it wait.
    pub(super) fn start_send(&mut self) {
        if !self.connection.output().has_waiting() {
            return self.connection.output_mut().release_unused();
        }
        if !self.connection.may_send() {
            if self.connection.writes_after_end() {
                self.connection.drop_output();
            }
            return;
        }
        if self.connection.output().awaits_disk() {
            return;
        }
        if self.sends_in_turn() {
            self.connection.output_mut().compact();
            return self.wait(Wait::Send);
        }
        self.send_now();
    }

    /// Whether the send is long, and others that are long are first.
    pub(super) fn sends_in_turn(&self) -> bool {
        let is_long = self.connection.output().queued_bytes() > SHORT_SEND_BYTES_MAX;
        is_long && (!self.thread.sends.may_send_long() || !self.thread.waits.is_empty(Wait::Send))
    }

    pub(super) fn send_now(&mut self) {
        let list = &mut self.thread.sends.list;
        match self.connection.output_mut().take(list) {
            Taken::Next { has_file } => {
                let bytes = list.bytes();
                let taken_bytes = match bytes > SHORT_SEND_BYTES_MAX {
                    true => self.fit_socket(bytes, has_file),
                    false => bytes,
                };
                self.send_list(bytes, taken_bytes);
            }
            Taken::Asks(window) => {
                if self.ask_for(window) {
                    self.send_now();
                }
            }
            Taken::Reading => {}
        }
    }

    /// Sends what is in the list, of which the socket takes `taken_bytes` in this turn. The last
    /// send of a connection closes the socket in the same system call.
    pub(super) fn send_list(&mut self, bytes: usize, taken_bytes: usize) {
        self.thread.sends.count(taken_bytes);
        let connection = &mut *self.connection;
        let then = if connection.is_at_last_send() {
            AfterSend::Close
        } else if bytes <= SHORT_SEND_BYTES_MAX && !connection.is_spliced() {
            let now_ns = self.thread.now_ns();
            self.thread.timers.short_send(now_ns);
            AfterSend::Rest
        } else {
            AfterSend::KeepOpen
        };
        let operation = connection.begin_send(self.thread.common.turn.now_ns);
        let user_data = user_data(KIND_SEND, operation, self.key);
        let socket = connection.socket();
        let Thread { driver, sends, .. } = &mut *self.thread;
        driver.send(socket, user_data, &mut sends.list, then);
    }

    /// The end of an event: what waits for a send to complete has that end the next wait.
    pub(super) fn reconcile_hurry(&mut self) {
        if self.connection.awaits_send() {
            self.thread.waits.hurry();
        }
    }

    /// Notes what a send has done, or a connect.
    pub(super) fn note_sent(&mut self, completion: Completion) -> Fate {
        let connection = &mut *self.connection;
        let was_connecting = connection.is_connecting();
        if !completion.more {
            connection.send_ended();
        }
        match completion.outcome {
            Outcome::Sent { bytes, closed } => {
                let common = &self.thread.common;
                connection.note_sent(bytes, common.turn.now_ns);
                let counters = common.counters(connection.listener());
                counters.sent_bytes.add(bytes as u64);
                if closed {
                    return Fate::Gone;
                }
            }
            Outcome::Connected => return self.connected(),
            Outcome::Failed(errno) if was_connecting => {
                return self.connect_failed(errno);
            }
            Outcome::Failed(errno) => {
                if errno != Errno::CANCELED {
                    log::debug!("send failed: {errno}");
                }
                connection.drop_output();
            }
            other => {
                debug_assert!(false, "a send neither accepts nor receives");
                self.thread.discard(other);
            }
        }
        Fate::Stays
    }
}
