//! Bytes out: one send at a time per connection, each with all that is queued.

use flatpath_driver::{Completion, Driver, Errno, Outcome, Then};
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Receive, Send};

use super::{KIND_SEND, Network, token};

impl<D: Driver> Network<D> {
    /// Starts the next send, if there is something to send and none is going. The last one of a
    /// connection closes the socket in the same system call.
    pub(super) fn start_send(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.output.has_waiting() {
            return connection.output.release_unused();
        }
        if connection.send != Send::Off || connection.control.closing == Closing::Abort {
            return;
        }
        let list = connection.output.take();
        let last = connection.control.closing == Closing::AfterOutput
            && connection.receive == Receive::Off
            && !connection.output.has_waiting();
        let then = if last { Then::Close } else { Then::Keep };
        connection.send = Send::Going;
        connection.clocks.send_ns = self.turn.now_ns;
        connection.operation = connection.operation.wrapping_add(1);
        connection.send_operation = connection.operation;
        let token = token(KIND_SEND, connection.send_operation, key);
        self.driver.send(connection.socket, token, list, then);
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
                connection.clocks.send_ns = self.turn.now_ns;
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
