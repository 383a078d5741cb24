//! How connections end: deadlines, drain, and the removal itself.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::Closing;
use crate::deadlines::{Overdue, shortest_ns};
use crate::lifecycle::ServerState;
use crate::listener::DynProtocol;
use crate::phase::Phase;
use crate::turn::end_ns;

use super::thread::{Event, Network};

impl<D: Driver> Event<'_, D> {
    fn fire(&mut self, overdue: Overdue) {
        let peer_reads = matches!(overdue, Overdue::Send | Overdue::Look) && self.peer_reads();
        if peer_reads || overdue == Overdue::Look {
            return;
        }
        if let Overdue::Phase(phase) = overdue {
            self.call(|protocol, io| protocol.expired(io, phase));
            if self.has_restarted(phase) {
                return;
            }
        }
        if !std::mem::replace(&mut self.connection.expired, true) {
            self.thread.common.shared.statistics.expired.add(1);
        }
        let control = &mut self.connection.control;
        match overdue {
            // The peer had its time to read the answer; what it still sends is its own affair.
            Overdue::Send | Overdue::Look | Overdue::Linger => control.close(Closing::Abort),
            Overdue::Stall => self.refuse(),
            // A protocol that forgets to close would be asked for ever.
            Overdue::Phase(_) => control.close(Closing::AfterOutput),
        }
    }

    /// Whether the protocol wants the phase that has just expired to last another period.
    fn has_restarted(&self, phase: Phase) -> bool {
        let control = &self.connection.control;
        control.phase_started && control.phase == phase && control.closing == Closing::No
    }

    /// Whether the peer has acknowledged bytes since the last look; then the deadline for sending
    /// begins anew. The socket of a slow reader takes nothing until about a third of what it holds,
    /// which is megabytes, has been acknowledged: that is not the peer's silence.
    fn peer_reads(&mut self) -> bool {
        let now_ns = self.thread.common.turn.now_ns;
        let clocks = &mut self.connection.clocks;
        let is_first = clocks.acked_ns == 0;
        clocks.acked_ns = now_ns;
        let Some(bytes) = self.thread.driver.bytes_acked(self.connection.socket) else {
            return false;
        };
        let has_moved = bytes > std::mem::replace(&mut clocks.acked_bytes, bytes) && !is_first;
        if has_moved {
            clocks.send_ns = now_ns;
        }
        has_moved
    }
}

impl<D: Driver> Network<D> {
    /// Fires every deadline that has passed; arms the others anew.
    pub(super) fn fire_deadlines(&mut self) {
        let mut expired = std::mem::take(&mut self.expired);
        let now_ns = self.thread.common.turn.now_ns;
        self.thread.wheel.expire(now_ns, &mut expired);
        for index in expired.drain(..) {
            if !self.thread.wheel.confirm(index) {
                continue;
            }
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            self.on(key, |event| {
                event.connection.clocks.armed_ns = u64::MAX;
                let limits = &event.thread.common.limits;
                if let Some(overdue) = event.connection.overdue(limits, now_ns) {
                    event.fire(overdue);
                }
            });
        }
        self.expired = expired;
    }

    /// Follows the server from running to draining to forced.
    pub(super) fn follow_state(&mut self) {
        let mut server_state = self.thread.common.shared.server_state();
        if self.server_state == ServerState::Draining {
            let common = &self.thread.common;
            let end = end_ns(self.drain_started_ns, common.limits.drain_timeout);
            if self.thread.common.turn.now_ns >= end {
                server_state = ServerState::Forced;
            }
        }
        if server_state <= self.server_state {
            return;
        }
        let before = std::mem::replace(&mut self.server_state, server_state);
        let common = &mut self.thread.common;
        common.dispatcher.draining = true;
        if before == ServerState::Running {
            self.drain_started_ns = common.turn.now_ns;
            let limits = &mut common.limits;
            limits.idle_timeout = limits.idle_timeout.min(limits.drain_idle_timeout);
            self.thread.shortest_ns = shortest_ns(limits);
            self.stop_listening();
        }
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        if server_state == ServerState::Forced && !keys.is_empty() {
            log::warn!("drain forced: {} connections cut off", keys.len());
        }
        for key in keys {
            self.on(key, |event| match server_state {
                ServerState::Forced => event.connection.control.close(Closing::Abort),
                _ => event.call(|protocol, io| protocol.draining(io)),
            });
        }
    }

    /// Takes a connection out of every table. Its socket is closed already, and nothing is
    /// outstanding on it (C2).
    pub(super) fn remove(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else {
            return;
        };
        self.thread.wheel.cancel(key.index);
        self.thread.holders.leave(key.index, &mut connection.holds);
        self.uncount_holding(&connection);
        self.thread.pages_held -= usize::from(connection.holds.pages);
        self.addresses.leave(connection.address, key.index);
        self.thread.starved.leave(&mut connection, key.index);
        self.thread.resting.left(&mut connection, key.index);
        // Put back as soon as no input was wanted, by `release_unwanted`.
        debug_assert!(
            connection.held.is_empty(),
            "pieces go with their connection"
        );
        let protocol: &mut dyn DynProtocol = match connection.successor {
            0 => &mut *self.listeners[usize::from(connection.listener)].protocol,
            number => self.thread.successors.get(number),
        };
        protocol.close(connection.session);
        self.thread.common.shared.statistics.closed.add(1);
        self.connection_left();
    }
}
