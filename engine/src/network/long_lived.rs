//! Acts for `crate::admission::long_lived`: ends what addresses have held longest, where others
//! need some of what it holds.
//!
//! What a service counts by address (`admission/turns.rs`) is taken over by the newcomer at once,
//! and its connection is ended when the thread is asked.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::admission::long_lived::{Facts, Missing, Need, Standing};
use crate::connection::Connection;
use crate::limits::LONG_LIVED_ENDED_MAX;

use super::thread::{Network, peer_of};

/// A connection that is long-lived, or was.
struct Candidate<'a, D: Driver> {
    network: &'a Network<D>,
    connection: &'a Connection,
    index: u32,
}

impl<D: Driver> Facts for Candidate<'_, D> {
    fn lasts(&self) -> bool {
        let connection = self.connection;
        let has_job = self
            .network
            .thread
            .common
            .dispatcher
            .long_lived_of(self.index)
            > 0;
        has_job || !connection.is_sent() || connection.phase().is_for_client()
    }

    fn may_end(&self) -> bool {
        let admission = &self.network.thread.common.admission;
        !self.connection.is_closing() && !admission.is_leaving(self.index)
    }

    fn pays_for(&self, need: Need) -> bool {
        let (thread, index) = (&self.network.thread, self.index);
        let (common, cells) = (&thread.common, self.connection.holding.cells);
        let dispatcher = &common.dispatcher;
        match need {
            Need::Jobs => {
                dispatcher.long_lived_of(index) > 0 && dispatcher.long_lived_paid_by(cells)
            }
            Need::Files => common.files_of(index) > 0 && common.descriptors().pays(cells),
            Need::Place => {
                let address = common.admission.address(index);
                common.admission.exceeds_share(address, self.network.load())
            }
            Need::Memory => common.held_bytes(index) > 0 && common.holds_above_average(cells),
        }
    }
}

impl<D: Driver> Network<D> {
    /// Whether so much is held of a bound that connections have to be ended for it.
    fn is_overdrawn(&self) -> bool {
        let common = &self.thread.common;
        common.dispatcher.is_overdrawn() || common.descriptors().overdrawn() > 0
    }

    /// When some of what those that pay hold is ended next, if it is wanted.
    pub(super) fn next_round_ns(&self) -> Option<u64> {
        let round_ns = self.thread.common.admission.long_lived.round_ns();
        self.is_overdrawn().then_some(round_ns)
    }

    /// Ends what those that pay have held longest, while others hold more of a bound than is left.
    pub(super) fn end_overdrawn(&mut self) {
        let now_ns = self.thread.now_ns();
        if !self.is_overdrawn() || !self.thread.common.admission.long_lived.begin_round(now_ns) {
            return;
        }
        let common = &mut self.thread.common;
        let descriptors = common.descriptors();
        let has_round = descriptors.overdrawn() > 0 && descriptors.begins_round(now_ns);
        let files = match has_round {
            true => descriptors.overdrawn(),
            false => 0,
        };
        let mut missing = Missing::of(common.dispatcher.long_lived_overdrawn(), files);
        for _ in 0..LONG_LIVED_ENDED_MAX {
            if missing.is_none() {
                return;
            }
            let Some(key) = self.longest_lived(missing.needs()) else {
                break;
            };
            let common = &self.thread.common;
            let jobs = common.dispatcher.long_lived_of(key.index);
            missing.pay(jobs, common.files_of(key.index));
            self.end_long_lived(key);
        }
        if missing.has_files() {
            // What holds them may be on other network threads.
            self.thread.common.descriptors().leaves_round();
            self.thread.common.tell_others();
        }
    }

    /// The connection to end for one of the needs, as far as a search shows.
    pub(super) fn longest_lived(&mut self, needs: &[Need]) -> Option<Key> {
        let mut search = self.thread.common.admission.long_lived.search();
        loop {
            let index = self.thread.common.admission.long_lived.next(&mut search)?;
            let key = self.connections.key_at(index)?;
            let mut event = self.event(key)?;
            let is_leaving = event.thread.common.admission.is_leaving(index);
            if !event.connection.is_closing() && !is_leaving {
                // What it holds may have been taken while nothing was counted.
                event.learn_address();
            }
            let candidate = Candidate {
                network: self,
                connection: self.connections.get(key)?,
                index,
            };
            let standing = Standing::of(&candidate, needs);
            let long_lived = &mut self.thread.common.admission.long_lived;
            if long_lived.is_found((index, &mut search), standing) {
                return Some(key);
            }
        }
    }

    /// Ends the connections whose end other threads ask for ([`ConnectionEnd`]).
    ///
    /// [`ConnectionEnd`]: crate::admission::turns::ConnectionEnd
    pub(super) fn take_endings(&mut self) {
        let endings = std::mem::take(&mut *self.thread.common.mailbox().endings.lock());
        for key in endings {
            let connection = self.connections.get(key);
            if connection.is_some_and(|connection| !connection.is_closing()) {
                self.end_long_lived(key);
            }
        }
    }

    /// Ends a connection because its address holds more than its share, and others need some.
    pub(super) fn end_long_lived(&mut self, key: Key) {
        self.counters(key).connections_ended_for_address.add(1);
        let now_ns = self.thread.now_ns();
        let peer = self
            .connections
            .get(key)
            .and_then(|connection| peer_of(&self.thread.driver, connection));
        let from = &|| match peer {
            Some(peer) => format!("{} has more than its share", peer.ip()),
            None => "one has more than its share".into(),
        };
        self.thread.common.admission.note_ended(now_ns, from);
        self.on(key, |event| {
            event.thread.common.admission.long_lived.remove(key.index);
            event.end_for_others();
        });
    }
}
