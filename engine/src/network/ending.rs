//! How connections end: deadlines, drain, and the removal itself.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Overdue};
use crate::lifecycle::Stage;
use crate::phase::Phase;
use crate::turn::end_ns;

use super::Network;

impl<D: Driver> Network<D> {
    /// Fires every deadline that has passed; arms the others anew.
    pub(super) fn fire_deadlines(&mut self) {
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.expire(self.common.turn.now_ns, &mut expired);
        for index in expired.drain(..) {
            if !self.wheel.confirm(index) {
                continue;
            }
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.clocks.armed_ns = u64::MAX;
            if let Some(overdue) = connection.overdue(&self.common.limits, self.common.turn.now_ns)
            {
                self.fire(key, overdue);
            }
            self.settle(key);
        }
        self.expired = expired;
    }

    fn fire(&mut self, key: Key, overdue: Overdue) {
        let peer_reads = matches!(overdue, Overdue::Send | Overdue::Look) && self.peer_reads(key);
        if peer_reads || overdue == Overdue::Look {
            return;
        }
        if let Overdue::Phase(phase) = overdue {
            self.call(key, |speaker, io| speaker.expired(io, phase));
            if self.has_restarted(key, phase) {
                return;
            }
        }
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.expired, true)
        {
            self.common.shared.statistics.expired.add(1);
        }
        match overdue {
            Overdue::Send | Overdue::Look => self.close(key, Closing::Abort),
            Overdue::Stall => self.refuse(key),
            Overdue::Linger => {
                // The peer had its time to read the answer; what it still sends is its own affair.
                self.close(key, Closing::Abort);
            }
            // A protocol that forgets to close would be asked for ever.
            Overdue::Phase(_) => self.close(key, Closing::AfterOutput),
        }
    }

    /// Whether the protocol wants the phase that has just expired to last another period.
    fn has_restarted(&self, key: Key, phase: Phase) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            let control = &connection.control;
            control.phase_started && control.phase == phase && control.closing == Closing::No
        })
    }

    /// Whether the peer has acknowledged bytes since the last look; then the deadline for sending
    /// begins anew. The socket of a slow reader takes nothing until about a third of what it holds,
    /// which is megabytes, has been acknowledged: that is not the peer's silence.
    fn peer_reads(&mut self, key: Key) -> bool {
        let now_ns = self.common.turn.now_ns;
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let clocks = &mut connection.clocks;
        let is_first = clocks.acked_ns == 0;
        clocks.acked_ns = now_ns;
        let Some(bytes) = self.driver.bytes_acked(connection.socket) else {
            return false;
        };
        let has_moved = bytes > std::mem::replace(&mut clocks.acked_bytes, bytes) && !is_first;
        if has_moved {
            clocks.send_ns = now_ns;
        }
        has_moved
    }

    pub(super) fn close(&mut self, key: Key, closing: Closing) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.control.close(closing);
        }
    }

    /// Follows the server from running to draining to forced.
    pub(super) fn follow_stage(&mut self) {
        let mut stage = self.common.shared.stage();
        if self.stage == Stage::Draining {
            let end = end_ns(self.drain_started_ns, self.common.limits.drain_timeout);
            if self.common.turn.now_ns >= end {
                stage = Stage::Forced;
            }
        }
        if stage <= self.stage {
            return;
        }
        let before = std::mem::replace(&mut self.stage, stage);
        self.common.desk.draining = true;
        if before == Stage::Running {
            self.drain_started_ns = self.common.turn.now_ns;
            let limits = &mut self.common.limits;
            limits.idle_timeout = limits.idle_timeout.min(limits.drain_idle_timeout);
            self.stop_listening();
        }
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        if stage == Stage::Forced && !keys.is_empty() {
            log::warn!("drain forced: {} connections cut off", keys.len());
        }
        for key in keys {
            match stage {
                Stage::Forced => self.close(key, Closing::Abort),
                _ => {
                    self.call(key, |speaker, io| speaker.draining(io));
                }
            }
            self.settle(key);
        }
    }

    /// Takes a connection out of every table. Its socket is closed already, and nothing is
    /// outstanding on it (C2).
    pub(super) fn remove(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else {
            return;
        };
        self.wheel.cancel(key.index);
        self.holders.leave(key.index, &mut connection.holds);
        self.uncount_holding(&connection);
        self.holding -= usize::from(connection.holds.pages);
        self.addresses.leave(connection.address, key.index);
        self.starved.leave(&mut connection, key.index);
        self.room.left(&mut connection, key.index);
        // Put back as soon as no input was wanted, by `release_unwanted`.
        debug_assert!(
            connection.held.is_empty(),
            "pieces go with their connection"
        );
        self.listeners[usize::from(connection.listener)]
            .speaker
            .close(connection.session);
        self.common.shared.statistics.closed.add(1);
        self.connection_left();
    }
}
