//! Which connections last: streams, long output, bodies, waits and pairs whose clients decide how
//! long; and ending those that an address has had longest, where others need some of what it holds.
//!
//! A file (`descriptors.rs`), and a request that lasts (`worker/reservation.rs`), is granted at
//! once to an address that has little beside others, also beyond the bound (`address_limit.rs`).
//! The same turn, or the one in which its job is back, then ends twice as much as is to be paid for
//! of what those that pay have held longest. Where nothing rests, a newcomer's place among the
//! connections is made free likewise, by addresses that have more than their share of these. What
//! was ended is given back by workers, so a round follows [`RELIEF_PERIOD_NS`] later at the
//! earliest. What a service counts by address (`turns.rs`) is taken over by the newcomer at once,
//! and its connection is ended when the thread is told.
//!
//! Invariants
//! - A connection with a job that lasts, with more output than the kernel takes at once, or in a
//!   phase that is its client's, is on the list, in the order in which the first of these began;
//!   one that was looked at, and whose address does not pay, comes after the others. One with none
//!   of them leaves the list when it is looked at, or with the table.
//!
//! Cost: what lasts pays one load, and a few stores where it is its connection's first.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::admission::Bound;
use crate::connection::Connection;
use crate::episode::Price;
use crate::limits::{LASTING_ENDED_MAX, LASTING_STEPS_MAX, RELIEF_PERIOD_NS};

use super::thread::{Network, peer_of};

/// What is wanted back: requests that last, descriptors of files.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    jobs: usize,
    files: usize,
}

impl Missing {
    fn is_none(self) -> bool {
        self.jobs == 0 && self.files == 0
    }
}

impl<D: Driver> Network<D> {
    /// Whether so much is held of a bound that connections have to be ended for it.
    pub(super) fn is_overdrawn(&self) -> bool {
        let common = &self.thread.common;
        common.dispatcher.is_overdrawn() || common.shared.descriptors.overdrawn() > 0
    }

    /// When some of what those that pay hold is ended next, if it is wanted.
    pub(super) fn next_round_ns(&self) -> Option<u64> {
        self.is_overdrawn().then_some(self.lasting_round_ns)
    }

    /// Ends what those that pay have held longest, while others hold more of a bound than is left.
    pub(super) fn end_overdrawn(&mut self) {
        let now_ns = self.thread.now_ns();
        if !self.is_overdrawn() || now_ns < self.lasting_round_ns {
            return;
        }
        self.lasting_round_ns = now_ns.saturating_add(RELIEF_PERIOD_NS);
        let common = &mut self.thread.common;
        let descriptors = &common.shared.descriptors;
        let has_round = descriptors.overdrawn() > 0 && descriptors.begins_round(now_ns);
        let files = match has_round {
            true => descriptors.overdrawn(),
            false => 0,
        };
        let mut missing = Missing {
            jobs: 2 * common.dispatcher.lasting_overdrawn(),
            files: 2 * files,
        };
        if missing.is_none() {
            return;
        }
        for _ in 0..LASTING_ENDED_MAX {
            let Some(key) = self.longest_of_excess(missing) else {
                break;
            };
            let common = &self.thread.common;
            let (jobs, files) = (
                common.dispatcher.lasting_of(key.index),
                common.files_of(key.index),
            );
            missing.jobs = missing.jobs.saturating_sub(jobs);
            missing.files = missing.files.saturating_sub(files);
            self.end_lasting(key);
            if missing.is_none() {
                break;
            }
        }
        if missing.files > 0 {
            // What holds them may be on other network threads.
            self.thread.common.shared.descriptors.leaves_round();
            self.thread.common.tell_others();
        }
    }

    /// The connection that has lasted longest of those whose address pays for what is missing, as
    /// far as `LASTING_STEPS_MAX` steps show.
    fn longest_of_excess(&mut self, missing: Missing) -> Option<Key> {
        self.longest_lasting(&|network, key, connection| {
            let common = &network.thread.common;
            let cells = connection.holding.cells;
            let (dispatcher, descriptors) = (&common.dispatcher, &common.shared.descriptors);
            missing.jobs > 0
                && dispatcher.lasting_of(key.index) > 0
                && dispatcher.lasting_paid_by(cells)
                || missing.files > 0 && common.files_of(key.index) > 0 && descriptors.pays(cells)
        })
    }

    /// The same of those whose address has more than its share of the places for connections.
    pub(super) fn longest_of_crowd(&mut self) -> Option<Key> {
        self.longest_lasting(&|network, key, _| {
            let admission = &network.thread.admission;
            admission.has_crowd(admission.address(key.index), network.load())
        })
    }

    /// The same of those that hold memory, and whose address holds more of it than one on average.
    pub(super) fn longest_of_heavy(&mut self) -> Option<Key> {
        self.longest_lasting(&|network, key, connection| {
            let common = &network.thread.common;
            let holdings = &common.shared.memory.by_address;
            common.held_bytes(key.index) > 0 && holdings.is_above_average(connection.holding.cells)
        })
    }

    fn longest_lasting(
        &mut self,
        pays: &dyn Fn(&Network<D>, Key, &Connection) -> bool,
    ) -> Option<Key> {
        let last = self.thread.common.lasting.last()?;
        for _ in 0..LASTING_STEPS_MAX {
            let index = self.thread.common.lasting.first()?;
            let key = self.connections.key_at(index)?;
            let has_job = self.thread.common.dispatcher.lasting_of(index) > 0;
            // What it holds may have been taken while nothing was counted.
            let is_leaving = self.thread.admission.is_leaving(index);
            let mut event = self.event(key)?;
            let connection = &event.connection;
            let lasts = has_job || !connection.is_sent() || connection.phase().is_for_client();
            let can_be_ended = !event.connection.is_closing() && !is_leaving;
            if can_be_ended {
                event.learn_address();
            }
            let connection = self.connections.get(key)?;
            if lasts && can_be_ended && pays(self, key, connection) {
                return Some(key);
            }
            let lasting = &mut self.thread.common.lasting;
            match lasts {
                true => lasting.push_back(index),
                false => lasting.remove(index),
            }
            if index == last {
                break;
            }
        }
        None
    }

    /// Ends the connections whose end other threads ask for ([`ConnectionEnd`]).
    ///
    /// [`ConnectionEnd`]: crate::turns::ConnectionEnd
    pub(super) fn take_endings(&mut self) {
        let endings = std::mem::take(&mut *self.thread.common.mailbox().endings.lock());
        for key in endings {
            let connection = self.connections.get(key);
            if connection.is_some_and(|connection| !connection.is_closing()) {
                self.end_lasting(key);
            }
        }
    }

    /// Ends a connection because its address holds more than its share, and others need some.
    pub(super) fn end_lasting(&mut self, key: Key) {
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
        let admission = &mut self.thread.admission;
        admission.note(Bound::Lasting, now_ns, Price::Ended, from);
        self.on(key, |event| {
            event.thread.common.lasting.remove(key.index);
            event.end_for_others();
        });
    }
}
