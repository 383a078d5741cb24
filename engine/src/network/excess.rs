//! Shares of memory for addresses and for listeners: who is counted, who stalls, who goes on.
//!
//! A connection is counted with its address and its listener (`address_limit.rs`) from a quarter
//! of the budget in use on. One that comes to hold more than before while either has more than its
//! share is stalled as if it had its own ([`Stall::Share`]): its input waits, that of others does
//! not. It is looked at again in each turn, every ten milliseconds at least, so what other threads
//! give back is seen without a wake-up. Its stall has the deadline of any other: where all that an
//! address holds are halves of what it never completes, they are refused one after the other.
//!
//! Its peer's address is asked for when a connection is counted first: one system call.

use flatpath_driver::Driver;

use crate::address_limit::{Cells, Excess, WAITING_BUFFERS, Waited};
use crate::connection::Connection;
use crate::phase::Stall;
use crate::waits::Wait;

use super::thread::{Event, Network, peer_of};

impl<D: Driver> Event<'_, D> {
    /// Counts what the connection holds, and what it waits for, with its address and listener.
    pub(super) fn count_holding(&mut self) {
        let is_weighed = self.thread.common.shared.pools.is_weighed();
        // Its socket may be closed by now: the driver cannot say whose it is.
        let sends_last = self.connection.is_sending_last();
        let holds = &mut self.connection.holds;
        let waits = if holds.waits { WAITING_BUFFERS } else { 0 };
        let after = match is_weighed || holds.counted > 0 {
            true => holds.buffers.saturating_add(waits),
            false => 0,
        };
        let is_unknown = holds.cells == Cells::UNKNOWN;
        if holds.counted == after || is_unknown && sends_last {
            return;
        }
        if is_unknown {
            self.learn_address();
        }
        let holds = &mut self.connection.holds;
        let before = std::mem::replace(&mut holds.counted, after);
        let number = self.listener.number;
        let holdings = &self.thread.common.shared.holdings;
        holdings.change(number, holds.cells, before, after);
    }

    /// Finds out where the connection's address is counted. One system call.
    pub(super) fn learn_address(&mut self) {
        let peer = peer_of(&self.thread.driver, self.connection);
        let holds = &mut self.connection.holds;
        self.thread.common.learn(holds, self.key.index, peer);
    }

    /// Which of its address and its listener has more than its share.
    pub(super) fn excess(&self, waited: Waited) -> Option<Excess> {
        let holds = &self.connection.holds;
        if holds.counted == 0 {
            return None;
        }
        let holdings = &self.thread.common.shared.holdings;
        holdings.excess(self.listener.number, holds.cells, waited)
    }

    /// Stalls a connection that has come to hold more, if its address or listener has its share.
    pub(super) fn stall_in_excess(&mut self) {
        let Some(excess) = self.excess(Waited::No) else {
            return;
        };
        if !self.connection.takes_input() || self.connection.peer().is_some() {
            return;
        }
        let now_ns = self.thread.common.turn.now_ns;
        self.connection.stall(Stall::Share, now_ns);
        self.wait(Wait::Share);
        self.note_excess(excess);
        // What it has gathered it may be able to hand on.
        self.call(|protocol, io| protocol.pressed(io));
        self.wait(Wait::Again);
    }

    /// Counts a stall, and logs one line for each episode.
    fn note_excess(&mut self, excess: Excess) {
        let now_ns = self.thread.common.turn.now_ns;
        let common = &self.thread.common;
        let counters = common.counters(self.connection.listener());
        let holders = &mut self.thread.holders;
        match excess {
            Excess::Address => {
                counters.address_share_stalls.add(1);
                let who = &|| match peer_of(&self.thread.driver, self.connection) {
                    Some(peer) => format!("from {}", peer.ip()),
                    None => "from an unknown address".into(),
                };
                holders.note_excess(excess, now_ns, who);
            }
            Excess::Listener => {
                counters.listener_share_stalls.add(1);
                let name = self.listener.protocol.name();
                let who = &|| format!("at listener {name}");
                holders.note_excess(excess, now_ns, who);
            }
        }
    }
}

impl<D: Driver> Network<D> {
    /// A connection is gone and counts no more.
    pub(super) fn uncount_holding(&self, connection: &Connection) {
        let holds = &connection.holds;
        if holds.counted > 0 {
            let number = self.listeners[usize::from(connection.listener())].number;
            let holdings = &self.thread.common.shared.holdings;
            holdings.change(number, holds.cells, holds.counted, 0);
        }
    }
}
