//! Acts for `crate::admission::claim`: asks where newcomers come from, closes and refuses.

use flatpath_driver::Driver;
use flatpath_structures::slots::{Key, Slots};

use crate::admission::Rests;
use crate::admission::accepting::KernelError;
use crate::admission::claim::{Cause, Claim, Refusal, Step};
use crate::admission::long_lived::Need;
use crate::connection::{Closing, Connection};
use crate::protocol;
use crate::server::lifecycle::ServerState;

use super::piped::PIPE_DESCRIPTORS;
use super::thread::Network;

/// What rests among the connections of a table.
pub(super) fn resting(connections: &mut Slots<Connection>) -> impl Rests {
    |index| connections.at_mut(index)?.1.rests_since()
}

impl<D: Driver> Network<D> {
    /// A connection claims its place: [`Claim::newcomer`] or [`Claim::client`].
    pub(super) fn admit(&mut self, key: Key, claim: fn(u32, u16, usize) -> Claim) {
        let per_address_max = self.thread.common.limits().connections_per_address;
        if let Some(connection) = self.connections.get(key) {
            let claim = claim(key.index, connection.listener(), per_address_max);
            if let Some(refusal) = self.carry_out(claim) {
                self.refuse_connection(refusal);
            }
        }
    }

    /// Does what is to be done for a claim, step by step, but for its refusal.
    #[must_use]
    pub(super) fn carry_out(&mut self, mut claim: Claim) -> Option<Refusal> {
        loop {
            let (load, rests) = (self.load(), resting(&mut self.connections));
            let admission = &mut self.thread.common.admission;
            match admission.next_step(&mut claim, load, rests) {
                Step::Learn(index) => {
                    if let Some(mut event) = self.event_at(index) {
                        event.ask_address();
                    }
                }
                Step::Close(index) => self.evict(index),
                Step::EndLongestLived => {
                    let victim = self.longest_lived(&[Need::Place]);
                    claim.ended(victim.is_some());
                    if let Some(victim) = victim {
                        self.end_long_lived(victim);
                    }
                }
                Step::Refuse(refusal) => return Some(refusal),
                Step::Done => return None,
            }
        }
    }

    /// Closes what rests while files hold descriptors that connections have places for.
    pub(super) fn make_room_for_files(&mut self) {
        let open = self.open_connections();
        let descriptors = self.thread.common.descriptors();
        descriptors.connections_are(usize::from(self.thread.common.number()), open);
        if descriptors.excess() > 0 {
            descriptors.gave_back(PIPE_DESCRIPTORS * self.thread.pipes.close_idle());
            descriptors.wake_caches();
        }
        let drains = self.thread.common.server_state() >= ServerState::Draining;
        if open > descriptors.places() && !drains {
            let refused = self.carry_out(Claim::files());
            debug_assert!(refused.is_none(), "files claim no place");
        }
    }

    /// The kernel has no descriptor for another connection.
    pub(super) fn free_descriptor(&mut self, error: KernelError) {
        let (load, rests) = (self.load(), resting(&mut self.connections));
        let common = &mut self.thread.common;
        let victim = common.admission.no_descriptor(load, error, rests);
        common.descriptors().ran_out();
        if let Some(victim) = victim {
            self.evict(victim);
        }
    }

    /// Closes a resting connection before its time, in its protocol's words. It is counted as
    /// leaving already.
    fn evict(&mut self, index: u32) {
        let Some((key, connection)) = self.connections.at_mut(index) else {
            return;
        };
        let Some(phase) = connection.rests() else {
            debug_assert!(false, "what is closed for others rests");
            return;
        };
        let lingers = connection.lingers();
        self.counters(key).connections_evicted.add(1);
        self.on(key, |event| {
            if !lingers {
                event.thread.common.admission.evict(true);
                event.report(protocol::Event::Expired(phase));
                event.thread.common.admission.evict(false);
            }
            // Its place is wanted now: it does not linger.
            event.connection.close_without_lingering();
        });
    }

    /// Refuses a newcomer, in the words of what it would say first: those of its listener's
    /// protocol, or of TLS before that.
    fn refuse_connection(&mut self, refusal: Refusal) {
        let Some(event) = self.event_at(refusal.index) else {
            return;
        };
        let counters = event.counters();
        match refusal.cause {
            Cause::Room => counters.refused_room.add(1),
            Cause::Address => counters.refused_address.add(1),
        }
        let words = match event.listener.handshake() {
            0 => event.listener.protocol().options().refusal.clone(),
            number => {
                let handshakes = event.thread.successors.get(number);
                handshakes.options().refusal.clone()
            }
        };
        event.connection.output_mut().push(words.into());
        event.connection.close(match refusal.lingers {
            true => Closing::Lingering,
            false => Closing::AfterOutput,
        });
    }
}
