//! Carries out what the calls to a protocol wished: output, stalls, receive, end, deadline.
//!
//! Every event of a connection ends here, once. The order matters: output first, because an empty
//! queue ends stalls; receiving next, because it decides whether a socket can be closed; the
//! deadline last, because everything before may move it.

use flatpath_driver::{Driver, Operation, OperationMode};
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Listed, Receive, Send};
use crate::limits::OUTPUT_BYTES_LOW;
use crate::phase::Stall;

use super::receive::adopt_stall;
use super::{KIND_RECEIVE, KIND_SEND, Network, user_data};

/// Calls back into the protocol within one settling; what is left waits for the next turn.
const ROUNDS_MAX: u32 = 16;

impl<D: Driver> Network<D> {
    pub(super) fn settle(&mut self, key: Key) {
        let mut rounds = 0;
        while self.settle_output(key) {
            rounds += 1;
            if rounds == ROUNDS_MAX {
                self.again.push(key);
                break;
            }
        }
        self.check_quota(key);
        self.weigh_memory(key);
        self.settle_joint(key);
        self.arrange_receive(key);
        if self.arrange_end(key) {
            self.arrange_deadline(key);
        }
    }

    /// Sends, and lets the protocol go on where output has run low. True: look again.
    fn settle_output(&mut self, key: Key) -> bool {
        self.join_if_wished(key);
        self.start_send(key);
        let now_ns = self.common.turn.now_ns;
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        if std::mem::take(&mut connection.control.phase_started) {
            connection.clocks.phase_ns = now_ns;
            connection.clocks.phase_bytes = 0;
        }
        adopt_stall(connection, now_ns);
        if connection.control.closing != Closing::No {
            connection.stalled = None;
        }
        if !connection.control.input_wanted {
            self.release_unwanted(key);
            return self.call_drained(key);
        }
        // Who waits to go on writing does so before more input can make it write other things.
        if self.call_drained(key) {
            return true;
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        match connection.stalled {
            Some(stall) if stall.is_for_room() => {
                if !std::mem::replace(&mut connection.in_waiting, true) {
                    self.waiting_for(stall).push_back(key);
                }
                false
            }
            Some(Stall::Share) => {
                let is_below = self.is_below_share(key);
                if is_below {
                    self.resume(key);
                }
                is_below
            }
            Some(Stall::Output) if connection.output.queued_bytes() <= OUTPUT_BYTES_LOW => {
                self.resume_in_turn(key)
            }
            _ => false,
        }
    }

    fn call_drained(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        // While memory runs short more is made only when less is queued: what is on its way out to
        // slow readers would take all of it otherwise.
        let low_bytes = match connection.stalled {
            // It holds its share, or its address or listener does: no more than it must.
            Some(Stall::Share) => 0,
            _ => OUTPUT_BYTES_LOW.min(self.common.shared.pools.fair_bytes()),
        };
        let due = connection.control.notify_drained
            && connection.control.closing != Closing::Abort
            && connection.output.queued_bytes() <= low_bytes;
        if due {
            connection.control.notify_drained = false;
            self.call(key, |speaker, io| speaker.drained(io));
        }
        due
    }

    /// A connection whose users hold too much receives nothing until they have given back half.
    fn check_quota(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(quota) = &connection.quota else {
            return;
        };
        let pages_max = self.listeners[usize::from(connection.listener)].pages_max;
        if !connection.holds_too_much && quota.held() >= pages_max {
            connection.holds_too_much = quota.wait_below(pages_max / 2 + 1);
            if connection.holds_too_much {
                self.common.shared.statistics.keep_stalls.add(1);
            }
        }
    }

    /// Arms or cancels the receive, as the state of the connection wants it.
    fn arrange_receive(&mut self, key: Key) {
        let room = self.peer_has_room(key);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let wanted = connection.wants_input() && room;
        match connection.receive {
            // Offered first: a connection holds no more pages than it has to.
            Receive::Off if connection.deferred => {}
            Receive::Off if connection.starved => {
                if self.stops_starving(key, wanted) && wanted {
                    self.arm_receive(key);
                }
            }
            Receive::Off if wanted => {
                if !connection.crowds || !self.waits_in_crowd(key) {
                    self.arm_receive(key);
                }
            }
            Receive::Many
                if !wanted
                    || connection.crowds
                    || connection.joint.is_some()
                    || connection.region_id != connection.receive_region_id =>
            {
                self.cancel_receive(key);
            }
            // A single receive brings one piece at most; it is cancelled only to close.
            Receive::Once if connection.control.closing != Closing::No && !wanted => {
                self.cancel_receive(key);
            }
            Receive::Off | Receive::Once | Receive::Many | Receive::Cancelling => {}
        }
    }

    pub(super) fn arm_receive(&mut self, key: Key) {
        if self.splice_from(key) && !self.peer_has_room(key) {
            // What is sent makes room, and is followed by a settling of this end.
            return;
        }
        let buffer = self.buffer_to_fill(key);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let mode = Network::<D>::receive_mode_of(connection);
        connection.receive = match mode {
            OperationMode::Single => Receive::Once,
            OperationMode::Multishot => Receive::Many,
        };
        connection.operation = connection.operation.wrapping_add(1);
        connection.receive_operation = connection.operation;
        let user_data = user_data(KIND_RECEIVE, connection.receive_operation, key);
        connection.receive_region_id = connection.region_id;
        connection.receive_shares = connection.shares;
        let (socket, region_id) = (connection.socket, connection.region_id);
        match buffer {
            Some(buffer) => self.driver.recv_into(socket, user_data, buffer),
            None if connection.shares => self.driver.receive_sharing(socket, user_data, region_id),
            None => self.driver.receive(socket, user_data, mode, region_id),
        }
    }

    fn cancel_receive(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.receive = Receive::Cancelling;
        let user_data = user_data(KIND_RECEIVE, connection.receive_operation, key);
        self.driver
            .cancel(Operation::Receive(connection.socket), user_data);
    }

    /// Ends the connection as far as its state allows. False: it is gone.
    fn arrange_end(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let received_off = connection.receive == Receive::Off;
        match connection.control.closing {
            Closing::No => true,
            Closing::AfterOutput => {
                if connection.is_sent() && received_off {
                    self.driver.close(connection.socket);
                    self.remove(key);
                    return false;
                }
                true
            }
            Closing::Lingering => self.linger(key),
            Closing::Abort => {
                if connection.send == Send::Going {
                    connection.send = Send::Cancelling;
                    let user_data = user_data(KIND_SEND, connection.send_operation, key);
                    self.driver
                        .cancel(Operation::Send(connection.socket), user_data);
                }
                if connection.send == Send::Off && received_off {
                    self.driver.abort(connection.socket);
                    self.remove(key);
                    return false;
                }
                true
            }
        }
    }

    /// FIN once all is sent, then reading on until the peer closes. False: the connection is gone.
    fn linger(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        if !connection.is_sent() {
            return true;
        }
        if connection.ended != crate::connection::Ended::No {
            if connection.receive == Receive::Off {
                self.driver.close(connection.socket);
                self.remove(key);
                return false;
            }
            return true;
        }
        if !connection.fin_sent {
            connection.fin_sent = true;
            connection.clocks.linger_ns = self.common.turn.now_ns;
            self.driver.shutdown_write(connection.socket);
            self.arrange_receive(key);
        }
        true
    }

    /// Puts the connection's earliest deadline in the wheel. A later one than the wheel holds is
    /// left: the wheel fires early and the deadline is armed anew, which costs one visit per
    /// time-out instead of two list moves per request.
    pub(super) fn arrange_deadline(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.suspend(self.common.turn.now_ns);
        let deadline_ns = connection.deadline_ns(&self.common.limits);
        if deadline_ns < connection.clocks.armed_ns {
            connection.clocks.armed_ns = deadline_ns;
            self.wheel.arm(key.index, deadline_ns);
        }
        let listed = Listed::of(connection.control.phase);
        if listed != connection.listed && listed != Listed::No {
            self.room.enter(connection, key.index);
        }
    }

    /// Calls the connections that others wanted to be called. Whom these want in turn is for the
    /// next turn, which follows at once.
    pub(super) fn call_roused(&mut self) {
        if self.common.desk.roused.is_empty() {
            return;
        }
        for id in self.common.desk.roused.take() {
            let open = self
                .connections
                .get(id.key)
                .is_some_and(|connection| connection.control.closing == Closing::No);
            if open {
                self.call(id.key, |speaker, io| speaker.roused(io));
                self.settle(id.key);
            }
        }
    }

    /// Goes on with what one settling did not finish.
    pub(super) fn settle_again(&mut self) {
        if self.again.is_empty() {
            return;
        }
        for key in std::mem::take(&mut self.again) {
            self.settle(key);
        }
    }
}
