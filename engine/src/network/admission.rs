//! Does what `admission.rs` says of newcomers: asks where they come from, closes and refuses.

use flatpath_driver::{Driver, Errno};
use flatpath_structures::slots::{Key, Slots};

use crate::admission::addresses::AddressId;
use crate::admission::long_lived::Need;
use crate::admission::{Bound, Payers, Rests, Room};
use crate::connection::{Closing, Connection};
use crate::episode::Price;
use crate::lifecycle::ServerState;
use crate::limits::{
    CACHES_LOOK_NS, CACHES_PATIENCE_NS, EVICTIONS_PER_ACCEPT_MAX, FULL_PATIENCE_NS,
    SHED_PER_TURN_MAX, SPARED_NS,
};
use crate::protocol;

use super::piped::PIPE_DESCRIPTORS;
use super::thread::{Network, peer_of};

fn price_of(is_paid: bool) -> Price {
    match is_paid {
        true => Price::Closed,
        false => Price::Refused,
    }
}

/// What rests among the connections of a table.
fn resting(connections: &mut Slots<Connection>) -> impl Rests {
    |index| connections.at_mut(index)?.1.rests_since()
}

impl<D: Driver> Network<D> {
    /// Decides over a connection that has just been accepted.
    pub(super) fn admit(&mut self, key: Key) {
        if !self.pays_for_itself(key) {
            return self.refuse_connection(key);
        }
        let mut is_paid = false;
        for _ in 0..EVICTIONS_PER_ACCEPT_MAX {
            let (load, rests) = (self.load(), resting(&mut self.connections));
            match self.thread.admission.room(load, rests) {
                Room::Enough => break,
                Room::Close(index) => is_paid |= self.close_for_place(index),
                Room::Short => {
                    if let Some(victim) = self.longest_lived(&[Need::Place]) {
                        self.end_long_lived(victim);
                        is_paid = true;
                    } else if let Some(index) = self.longest_resting(0) {
                        is_paid |= self.close_for_place(index);
                    } else {
                        break;
                    }
                }
            }
        }
        let load = self.load();
        if self.thread.admission.is_beyond(load) && !is_paid {
            self.note_places(Price::Refused);
            self.counters(key).refused_room.add(1);
            return self.refuse_connection(key);
        }
        if self.admit_to_listener(key) && !self.awaits_header(key) {
            self.admit_address(key);
        }
    }

    /// Where places are short, an address that has more than its share of them pays for its
    /// newcomers with its own connections. False: none of them rests, and it is refused.
    ///
    /// From half of the places in use on each newcomer's address is asked for; those that were
    /// there before are counted little by little (`check_memory`).
    fn pays_for_itself(&mut self, key: Key) -> bool {
        let load = self.load();
        if !self.thread.admission.is_half_full(load) || self.awaits_header(key) {
            return true;
        }
        let address = self.address_of(key);
        let admission = &self.thread.admission;
        if !admission.is_short(load) || !admission.has_crowd(address, load) {
            return true;
        }
        let (own, max) = (admission.connections_of(address), load.max);
        let limit = &|| format!("one has {own} of {max} on this network thread, its share");
        self.pays(Payers::Address(address), key, (Bound::Addresses, limit))
    }

    /// False: its listener has as many connections as it may, and it is refused.
    fn admit_to_listener(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let number = connection.listener();
        let Some(max) = self.thread.admission.listener_exceeds(number) else {
            return true;
        };
        let name = self.listeners[usize::from(number)].protocol.options().name;
        let limit = &|| format!("{name} has {max} on this network thread");
        let is_paid = self.pays(Payers::Listener(number), key, (Bound::Listeners, limit));
        if !is_paid {
            self.refuse_connection(key);
        }
        is_paid
    }

    pub(super) fn admit_address(&mut self, key: Key) {
        let max = self.thread.common.limits.connections_per_address;
        if max == 0 {
            return;
        }
        let address = self.address_of(key);
        if self.thread.admission.connections_of(address) <= max {
            return;
        }
        let limit = &|| format!("one has {max} on this network thread");
        if !self.pays(Payers::Address(address), key, (Bound::Addresses, limit)) {
            self.refuse_connection(key);
        }
    }

    /// Closes a connection of the payers for their connection `newcomer`. False: none of those
    /// looked at rests, and the newcomer counts as refused.
    fn pays(
        &mut self,
        payers: Payers,
        newcomer: Key,
        (bound, limit): (Bound, &dyn Fn() -> String),
    ) -> bool {
        let now_ns = self.thread.now_ns();
        let rests = resting(&mut self.connections);
        let admission = &mut self.thread.admission;
        let payer = admission.payer(payers, newcomer.index, now_ns, rests);
        let is_paid = payer.is_some_and(|index| self.evict(index));
        let admission = &mut self.thread.admission;
        admission.note(bound, now_ns, price_of(is_paid), limit);
        if !is_paid {
            let counters = self.counters(newcomer);
            match payers {
                Payers::Address(_) => counters.refused_address.add(1),
                Payers::Listener(_) => counters.refused_room.add(1),
            }
        }
        is_paid
    }

    /// The address that a connection is counted in: one system call, the first time.
    ///
    /// Asked for at accept only where a limit per address is set: `getpeername` takes 0.2 to
    /// 0.3 us, one hundredth of a connection with one request, and the completion of a multishot
    /// accept has no address.
    pub(super) fn address_of(&mut self, key: Key) -> AddressId {
        let Some(connection) = self.connections.get(key) else {
            return AddressId::UNKNOWN;
        };
        let known = self.thread.admission.address(key.index);
        if known != AddressId::UNKNOWN {
            return known;
        }
        let peer = peer_of(&self.thread.driver, connection);
        self.thread.admission.learn(key.index, peer)
    }

    /// Closes what rests while files hold descriptors that connections have places for.
    pub(super) fn make_room_for_files(&mut self) {
        let open = self.open_connections();
        let descriptors = &self.thread.common.shared.descriptors;
        descriptors.connections_are(usize::from(self.thread.common.number), open);
        if descriptors.excess() > 0 {
            descriptors.gave_back(PIPE_DESCRIPTORS * self.thread.pipes.close_idle());
            descriptors.press();
        }
        if open <= descriptors.places() || self.thread.common.server_state >= ServerState::Draining
        {
            return;
        }
        for _ in 0..SHED_PER_TURN_MAX {
            if !self.thread.admission.is_beyond(self.load()) {
                break;
            }
            // What rests only for now keeps its place.
            if let Some(index) = self.longest_resting(SPARED_NS) {
                self.close_for_place(index);
            } else if let Some(victim) = self.longest_lived(&[Need::Place]) {
                self.end_long_lived(victim);
            } else {
                // The next file is refused instead.
                break;
            }
        }
    }

    /// Whether another connection may be accepted now. Caches that have what it needs get some
    /// time to give it back.
    pub(super) fn accepts(&mut self) -> bool {
        let load = self.load();
        let is_full = self.thread.admission.counted(load) >= load.max;
        let waits = self.thread.common.shared.descriptors.caches_block()
            || is_full
                && self.longest_resting(0).is_none()
                && self.longest_lived(&[Need::Place]).is_none();
        let patience_ns = self.accept_patience_ns();
        self.thread.admission.accepts(load, waits, patience_ns)
    }

    fn accept_patience_ns(&self) -> u64 {
        match self.thread.common.shared.descriptors.caches_block() {
            true => CACHES_PATIENCE_NS,
            false => FULL_PATIENCE_NS,
        }
    }

    /// How long until accept is armed without anything happening before; `None` for never.
    pub(super) fn accepts_in_ns(&self) -> Option<u64> {
        let patience_ns = self.accept_patience_ns();
        let admission = &self.thread.admission;
        let wait_ns = admission.accepts_in_ns(self.load(), patience_ns)?;
        Some(match self.thread.common.shared.descriptors.caches_block() {
            true => wait_ns.min(CACHES_LOOK_NS),
            false => wait_ns,
        })
    }

    fn longest_resting(&mut self, rested_ns: u64) -> Option<u32> {
        let now_ns = self.thread.now_ns();
        let rests = resting(&mut self.connections);
        let admission = &mut self.thread.admission;
        admission.longest_resting(now_ns, rested_ns, rests)
    }

    /// The kernel has no descriptor for another connection.
    pub(super) fn no_descriptor(&mut self, errno: Errno) {
        self.door = None;
        let victim = self.longest_resting(0);
        let price = price_of(victim.is_some());
        let (open, now_ns) = (self.open_connections(), self.thread.now_ns());
        let limit = &|| format!("accept says {errno} with {open} connections open");
        let admission = &mut self.thread.admission;
        admission.note(Bound::Descriptors, now_ns, price, limit);
        admission.no_descriptor(open);
        self.thread.common.shared.descriptors.ran_out();
        if let Some(victim) = victim {
            self.evict(victim);
        }
    }

    /// Closes a resting connection because places are short. True: it rested.
    fn close_for_place(&mut self, index: u32) -> bool {
        let is_closed = self.evict(index);
        self.note_places(Price::Closed);
        is_closed
    }

    /// Closes a resting connection before its time, in its protocol's words. True: it rested.
    fn evict(&mut self, index: u32) -> bool {
        let Some((key, connection)) = self.connections.at_mut(index) else {
            return false;
        };
        let Some(phase) = connection.rests() else {
            return false;
        };
        let lingers = connection.lingers();
        self.counters(key).connections_evicted.add(1);
        self.on(key, |event| {
            event.thread.admission.leaves(index);
            if !lingers {
                event.thread.common.evicts = true;
                event.report(protocol::Event::Expired(phase));
                event.thread.common.evicts = false;
            }
            // Its place is wanted now: it does not linger.
            event.connection.close_without_lingering();
        });
        true
    }

    /// Refuses a newcomer, in the words of what it would say first: those of its listener's
    /// protocol, or of TLS before that. The caller counts it.
    fn refuse_connection(&mut self, key: Key) {
        let lingers = self.thread.admission.may_linger();
        let Some(event) = self.event(key) else {
            return;
        };
        let words = match event.listener.handshake {
            0 => event.listener.protocol.options().refusal.clone(),
            number => {
                let handshakes = event.thread.successors.get(number);
                handshakes.options().refusal.clone()
            }
        };
        event.connection.output_mut().push(words.into());
        event.connection.close(match lingers {
            true => Closing::Lingering,
            false => Closing::AfterOutput,
        });
        event.thread.admission.refuse(key.index);
    }

    fn note_places(&mut self, price: Price) {
        let load = self.load();
        let admission = &mut self.thread.admission;
        let (counted, max) = (admission.counted(load), load.max);
        let limit = &|| format!("{counted} of {max} on this network thread");
        admission.note(Bound::Places, load.now_ns, price, limit);
    }
}
