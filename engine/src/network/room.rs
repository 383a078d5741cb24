//! Who gets a place, and who is closed for it.
//!
//! A newcomer is served before an idler: at a bound, a connection that rests (nothing of it is in
//! work, held back or on its way out) is closed for it, in its protocol's words where there are
//! any: those that have been idle longest first, then the oldest unfinished heads. What has rested
//! for less than `SPARED_NS` comes last. A newcomer for whom nothing can be closed is refused in
//! the protocol's words.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::addresses::AddressId;
use crate::connection::{Closing, Connection};
use crate::limits::{ADDRESS_STEPS_MAX, SPARED_NS};
use crate::protocol::Phase;

use super::Network;

impl<D: Driver> Network<D> {
    /// Decides over a connection that has just been accepted.
    pub(super) fn admit(&mut self, key: Key) {
        if self.open_connections() > self.limits.connections_max {
            return self.refuse_connection(key);
        }
        let per_address = self.limits.connections_per_address;
        if per_address == 0 {
            return;
        }
        let address = self.address_of(key);
        if self.addresses.connections(address) > per_address && !self.evict_of_address(address, key)
        {
            self.shared.statistics.refused_by_address.add(1);
            // What is refused does not count: it would keep the next one out for as long as it
            // takes its client to read why.
            self.addresses.leave(address, key.index);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.address = AddressId::NOWHERE;
            }
            self.refuse_connection(key);
        }
    }

    /// The address that a connection is counted in: one system call, the first time.
    ///
    /// Asked for at accept only where a limit per address is set: `getpeername` takes 0.2 to
    /// 0.3 us, one hundredth of a connection with one request, and the completion of a multishot
    /// accept has no address.
    pub(super) fn address_of(&mut self, key: Key) -> AddressId {
        let Some(connection) = self.connections.get_mut(key) else {
            return AddressId::UNKNOWN;
        };
        if connection.address == AddressId::UNKNOWN {
            let peer = self.driver.peer(connection.socket);
            connection.address = self.addresses.enter(key.index, peer);
        }
        connection.address
    }

    /// Closes the connection of an address that has been idle longest, or its oldest head that has
    /// had some time, for its connection `newcomer`. False: none of those looked at rests.
    fn evict_of_address(&mut self, address: AddressId, newcomer: Key) -> bool {
        let mut oldest: Option<(bool, u64, Key)> = None;
        let mut at = self.addresses.first(address);
        for _ in 0..ADDRESS_STEPS_MAX {
            let Some(index) = at.filter(|index| *index != newcomer.index) else {
                break;
            };
            at = self.addresses.after(index);
            // The next newcomer looks at others first.
            self.addresses.move_back(address, index);
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            let Some(connection) = self.connections.get(key) else {
                continue;
            };
            let since_ns = connection.clocks.phase_ns;
            let is_head = match connection.rests() {
                Some(Phase::Idle) => false,
                Some(_) if self.turn.now_ns >= since_ns.saturating_add(SPARED_NS) => true,
                _ => continue,
            };
            if oldest.is_none_or(|(head, ns, _)| (is_head, since_ns) < (head, ns)) {
                oldest = Some((is_head, since_ns, key));
            }
        }
        oldest.is_some_and(|(_, _, key)| self.evict(key))
    }

    /// Closes a resting connection before its time, in its protocol's words. True: it rested.
    fn evict(&mut self, key: Key) -> bool {
        let Some(phase) = self.connections.get(key).and_then(Connection::rests) else {
            return false;
        };
        self.shared.statistics.evicted.add(1);
        self.call(key, |speaker, call| speaker.expired(call, phase));
        if let Some(connection) = self.connections.get_mut(key) {
            connection.control.close(Closing::AfterOutput);
        }
        self.settle(key);
        true
    }

    fn refuse_connection(&mut self, key: Key) {
        self.shared.statistics.refused.add(1);
        if let Some(connection) = self.connections.get_mut(key) {
            let words = self.listeners[usize::from(connection.listener)]
                .speaker
                .refusal();
            connection.output.push(words.into());
            connection.control.close(Closing::Lingering);
        }
    }
}
