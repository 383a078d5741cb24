//! Bytes out: one send at a time per connection, each with all that is queued.
//!
//! A send is a copy to the socket, made before the next turn: a thousand long ones take tens of
//! milliseconds. So in one turn long ones are started up to [`LONG_SENDS_BYTES`]; the others wait
//! in a queue for the next turn, which follows at once. Short replies never wait.
//!
//! Invariants
//! - L1: a connection is in the queue once (`send_waits`) or not at all; one that is gone is
//!   skipped.
//! - L2: while the queue is not empty no wait lasts.

use std::collections::VecDeque;

use flatpath_driver::{AfterSend, Completion, Driver, Errno, Outcome};
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection, Receive, Send};
use crate::limits::{LONG_SENDS_BYTES, SHORT_SEND_BYTES_MAX};

use super::{KIND_SEND, Network, user_data};

/// Connections with much to send, oldest first.
#[derive(Debug, Default)]
pub(super) struct LongSends {
    waiting: VecDeque<Key>,
    /// Started in this turn.
    bytes: usize,
}

impl LongSends {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn may_send(connection: &Connection) -> bool {
    connection.send == Send::Off && connection.control.closing != Closing::Abort
}

impl<D: Driver> Network<D> {
    /// Starts the next send, if there is something to send and none is going, or has it wait.
    pub(super) fn start_send(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.output.has_waiting() {
            return connection.output.release_unused();
        }
        if !may_send(connection) {
            return;
        }
        let sends = &mut self.long_sends;
        let is_long = connection.output.queued_bytes() > SHORT_SEND_BYTES_MAX;
        if is_long && (!sends.is_empty() || sends.bytes >= LONG_SENDS_BYTES) {
            if !std::mem::replace(&mut connection.send_waits, true) {
                sends.waiting.push_back(key);
            }
            return;
        }
        self.send_now(key);
    }

    /// The end of a turn: starts long sends, those that have waited longest first.
    pub(super) fn run_long_sends(&mut self) {
        while self.long_sends.bytes < LONG_SENDS_BYTES {
            let Some(key) = self.long_sends.waiting.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.send_waits = false;
            if may_send(connection) && connection.output.has_waiting() {
                self.send_now(key);
            }
            self.settle(key);
        }
        self.long_sends.bytes = 0;
    }

    /// The last send of a connection closes the socket in the same system call.
    fn send_now(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        self.long_sends.bytes += connection.output.queued_bytes();
        let list = connection.output.take();
        let last = connection.control.closing == Closing::AfterOutput
            && connection.receive == Receive::Off
            && !connection.output.has_waiting();
        let after = if last {
            AfterSend::Close
        } else {
            AfterSend::KeepOpen
        };
        connection.send = Send::Going;
        connection.clocks.send_ns = self.common.turn.now_ns;
        connection.operation = connection.operation.wrapping_add(1);
        connection.send_operation = connection.operation;
        let user_data = user_data(KIND_SEND, connection.send_operation, key);
        self.driver.send(connection.socket, user_data, list, after);
    }

    pub(super) fn send_completed(&mut self, key: Key, completion: Completion) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !completion.more {
            connection.send = Send::Off;
            // A late completion of this send must find nothing: the number moves on.
            connection.send_operation = connection.send_operation.wrapping_add(1);
        }
        match completion.outcome {
            Outcome::Sent { bytes, closed } => {
                connection.output.sent(bytes);
                connection.progress(bytes);
                connection.clocks.send_ns = self.common.turn.now_ns;
                if closed {
                    return self.remove(key);
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
                self.discard(other);
            }
        }
        self.settle(key);
        // What this end has sent is room for the other to receive.
        if let Some(peer) = self.peer_of(key) {
            self.touch(key);
            self.touch(peer);
            self.settle(peer);
        }
    }
}
