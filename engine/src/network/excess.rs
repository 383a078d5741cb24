//! Shares of memory for addresses and for listeners: who is counted, who stalls, who goes on.
//!
//! A connection is counted with its address and its listener (`holdings.rs`) from a quarter of the
//! budget in use on. One that comes to hold more than before while either has more than its share
//! is stalled as if it had its own ([`Stall::Share`]): its input waits, that of others does not. It
//! is looked at again in each turn, every ten milliseconds at least, so what other threads give
//! back is seen without a wake-up. Its stall has the deadline of any other: where all that an
//! address holds are halves of what it never completes, they are refused one after the other.
//!
//! Its peer's address is asked for when a connection is counted first: one system call.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::Connection;
use crate::holdings::{Excess, WAITING_BUFFERS, Waited};
use crate::limits::{COUNTED_PER_LOOK, SHARE_LOG_NS};
use crate::phase::Stall;

use super::Network;

/// What a network thread keeps for this.
#[derive(Debug, Default)]
pub(super) struct Excesses {
    /// The place in the table where holders are counted next that were not yet.
    hand: u32,
    /// When lines were last logged: for addresses, for listeners; 0 for never.
    address_ns: u64,
    listener_ns: u64,
}

impl<D: Driver> Network<D> {
    /// Counts what a connection holds, and what it waits for, with its address and listener.
    pub(super) fn count_holding(&mut self, key: Key) {
        let is_weighed = self.common.shared.pools.fair_bytes() != usize::MAX;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let holds = &mut connection.holds;
        let waits = if holds.waits { WAITING_BUFFERS } else { 0 };
        let after = match is_weighed || holds.counted > 0 {
            true => holds.buffers.saturating_add(waits),
            false => 0,
        };
        let before = std::mem::replace(&mut holds.counted, after);
        if before == after {
            return;
        }
        let holdings = &self.common.shared.holdings;
        if !std::mem::replace(&mut holds.has_cells, true) {
            holds.cells = holdings.cells(self.driver.peer(connection.socket));
        }
        let number = self.listener_numbers[usize::from(connection.listener)];
        holdings.change(number, holds.cells, before, after);
    }

    /// Counts those that have held their buffers since less than a quarter was in use: a part of
    /// the table each time.
    pub(super) fn count_holders(&mut self) {
        if self.common.shared.pools.fair_bytes() == usize::MAX {
            return;
        }
        let places = self.connections.capacity();
        for _ in 0..COUNTED_PER_LOOK.min(places) {
            let index = self.excesses.hand;
            self.excesses.hand = (index + 1) % places;
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            let holds = self.connections.get(key).map(|connection| connection.holds);
            if holds.is_some_and(|holds| holds.buffers > 0 && holds.counted == 0) {
                self.count_holding(key);
            }
        }
    }

    /// A connection is gone and counts no more.
    pub(super) fn uncount_holding(&self, connection: &Connection) {
        let holds = &connection.holds;
        if holds.counted > 0 {
            let number = self.listener_numbers[usize::from(connection.listener)];
            let holdings = &self.common.shared.holdings;
            holdings.change(number, holds.cells, holds.counted, 0);
        }
    }

    /// Which of its address and its listener has more than its share.
    pub(super) fn excess(&self, key: Key, waited: Waited) -> Option<Excess> {
        let connection = self.connections.get(key)?;
        let holds = &connection.holds;
        if holds.counted == 0 {
            return None;
        }
        let number = self.listener_numbers[usize::from(connection.listener)];
        self.common
            .shared
            .holdings
            .excess(number, holds.cells, waited)
    }

    /// Stalls a connection that has come to hold more, if its address or listener has its share.
    pub(super) fn stall_in_excess(&mut self, key: Key) {
        let Some(excess) = self.excess(key, Waited::No) else {
            return;
        };
        let now_ns = self.common.turn.now_ns;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.takes_input() || connection.joint.is_some() {
            return;
        }
        connection.stall(Stall::Share, now_ns);
        if !std::mem::replace(&mut connection.in_waiting, true) {
            self.waiting_share.push_back(key);
        }
        self.tell_excess(key, excess);
        // What it has gathered it may be able to hand on.
        self.call(key, |speaker, io| speaker.pressed(io));
        self.again.push(key);
    }

    /// Counts a stall, and logs one line for each episode.
    fn tell_excess(&mut self, key: Key, excess: Excess) {
        let statistics = &self.common.shared.statistics;
        let (counter, line_ns) = match excess {
            Excess::Address => (
                &statistics.address_share_stalls,
                &mut self.excesses.address_ns,
            ),
            Excess::Listener => (
                &statistics.listener_share_stalls,
                &mut self.excesses.listener_ns,
            ),
        };
        counter.add(1);
        let now_ns = self.common.turn.now_ns.max(1);
        let before_ns = std::mem::replace(line_ns, now_ns);
        if before_ns > 0 && now_ns.saturating_sub(before_ns) < SHARE_LOG_NS {
            return;
        }
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let name = self.listeners[usize::from(connection.listener)]
            .speaker
            .name();
        match excess {
            Excess::Address => {
                let peer = self.driver.peer(connection.socket);
                let peer = peer.map_or_else(|| "?".into(), |peer| peer.ip().to_string());
                log::warn!(
                    "connections from {peer} hold their share of the memory for buffers; their \
                     input waits, that of others does not"
                );
            }
            Excess::Listener => log::warn!(
                "connections of listener {name} hold its share of the memory for buffers; their \
                 input waits, that of others does not"
            ),
        }
    }
}
