//! Who gets a place, and who is closed for it.
//!
//! A newcomer is served before an idler: at a bound, a connection that rests (nothing of it is in
//! work, held back or on its way out) is closed for it, in its protocol's words where there are
//! any: those that have been idle longest first, then the oldest unfinished heads. What has rested
//! for less than `SPARED_NS` comes last. A newcomer for whom nothing can be closed is refused in
//! the protocol's words.
//!
//! The order is kept lazily. A connection is entered at the back of the list of its phase when it
//! first rests, and stays there however often it is active: only when a newcomer needs a place are
//! the oldest entries inspected, `EVICTION_STEPS_MAX` at most. One that was active since it was
//! entered moves to the back, one that does not rest leaves the list until it rests again. If all
//! that were inspected were active, the longest resting of them is closed. So a request on a kept
//! connection costs a comparison, and an eviction a bounded number of steps.

use flatpath_driver::{Driver, Errno};
use flatpath_structures::slots::Key;

use crate::addresses::AddressId;
use crate::connection::{Closing, Connection};
use crate::episode::Price;
use crate::lifecycle::ServerState;
use crate::limits::{
    CACHES_LOOK_NS, CACHES_PATIENCE_NS, CROWD_STEPS_MAX, DESCRIPTORS_SPARE, EVICTION_STEPS_MAX,
    EVICTIONS_PER_ACCEPT_MAX, FULL_PATIENCE_NS, OVERFLOW_LINGERING_MAX, OVERFLOW_MAX,
    SHED_PER_TURN_MAX, SPARE_PLACES_SHARE, SPARED_NS,
};
use crate::phase::Phase;

use super::door::Door;
use super::introduce::peer_of;
use super::thread::{Event, Network};

/// What rests and may be closed for another one.
struct Rester {
    is_head: bool,
    since_ns: u64,
    key: Key,
}

/// The one to close of two: idle ones before heads, and then what has rested longer.
fn older(left: Option<Rester>, right: Option<Rester>) -> Option<Rester> {
    let both = left.into_iter().chain(right);
    both.min_by_key(|rester| (rester.is_head, rester.since_ns))
}

fn price_of(is_paid: bool) -> Price {
    match is_paid {
        true => Price::Closed,
        false => Price::Refused,
    }
}

impl<D: Driver> Event<'_, D> {
    /// The connection is closed for another one, or refused: its place counts as free.
    pub(super) fn leaves(&mut self) {
        if !self.connection.leaves {
            let links = &mut self.thread.of_listeners;
            self.listener.uncount(links, self.key.index);
        }
        self.thread.resting.leaves(self.connection);
    }
}

impl<D: Driver> Network<D> {
    /// Decides over a connection that has just been accepted.
    pub(super) fn admit(&mut self, key: Key) {
        let max = self.places();
        if !self.pays_for_itself(key, max) {
            return self.refuse_connection(key);
        }
        let mut is_paid = false;
        for _ in 0..EVICTIONS_PER_ACCEPT_MAX {
            let counted = self.counted_connections();
            if counted + max / SPARE_PLACES_SHARE <= max {
                break;
            }
            if let Some(victim) = self.longest_resting(SPARED_NS) {
                is_paid |= self.evict(victim);
                self.note_places(Price::Closed);
            } else if counted <= max {
                // As long as there are places, those that rest only for now keep theirs.
                break;
            } else if let Some(victim) = self.longest_of_crowd() {
                self.end_lasting(victim);
                is_paid = true;
            } else if let Some(victim) = self.longest_resting(0) {
                is_paid |= self.evict(victim);
                self.note_places(Price::Closed);
            } else {
                break;
            }
        }
        if self.counted_connections() > max && !is_paid {
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
    /// there before are counted little by little (`count_holders`).
    fn pays_for_itself(&mut self, key: Key, max: usize) -> bool {
        let counted = self.counted_connections();
        if counted <= max / 2 || self.awaits_header(key) {
            return true;
        }
        let address = self.address_of(key);
        let is_short = counted + max / SPARE_PLACES_SHARE > max;
        if !is_short || !self.has_crowd(address) {
            return true;
        }
        let own = self.addresses.connections(address);
        let is_paid = self.evict_of_address(address, key);
        let now_ns = self.thread.common.turn.now_ns;
        let limit = || format!("one has {own} of {max} on this network thread, its share");
        self.thread
            .resting
            .addresses
            .note(now_ns, price_of(is_paid), limit);
        if !is_paid {
            self.counters(key).refused_address.add(1);
        }
        is_paid
    }

    /// False: its listener has as many connections as it may, and it is refused.
    fn admit_to_listener(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let number = usize::from(connection.listener());
        let listener = &self.listeners[number];
        if listener.connections_open <= listener.connections_max {
            return true;
        }
        let (name, max) = (listener.protocol.name(), listener.connections_max);
        let is_paid = self.evict_of_listener(number, key);
        let price = price_of(is_paid);
        let now_ns = self.thread.common.turn.now_ns;
        let limit = || format!("{name} has {max} on this network thread");
        self.thread.resting.listeners.note(now_ns, price, limit);
        if !is_paid {
            self.counters(key).refused_room.add(1);
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
        if self.addresses.connections(address) <= max {
            return;
        }
        let is_paid = self.evict_of_address(address, key);
        let price = price_of(is_paid);
        let now_ns = self.thread.common.turn.now_ns;
        let limit = || format!("one has {max} on this network thread");
        self.thread.resting.addresses.note(now_ns, price, limit);
        if !is_paid {
            self.counters(key).refused_address.add(1);
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
            let peer = peer_of(&self.thread.driver, connection);
            connection.address = self.addresses.enter(key.index, peer);
        }
        connection.address
    }

    /// Closes the connection of an address that has been idle longest, or its oldest head that has
    /// had some time, for its connection `newcomer`. False: none of those looked at rests.
    fn evict_of_address(&mut self, address: AddressId, newcomer: Key) -> bool {
        let mut oldest = None;
        let mut at = self.addresses.first(address);
        for _ in 0..CROWD_STEPS_MAX {
            let Some(index) = at.filter(|index| *index != newcomer.index) else {
                break;
            };
            at = self.addresses.after(index);
            // The next newcomer looks at others first.
            self.addresses.move_back(address, index);
            oldest = older(oldest, self.rester(index));
        }
        oldest.is_some_and(|found| self.evict(found.key))
    }

    /// The same for a listener that has as many connections as it may.
    fn evict_of_listener(&mut self, listener: usize, newcomer: Key) -> bool {
        let mut oldest = None;
        let mut at = self.listeners[listener].connections.first();
        for _ in 0..CROWD_STEPS_MAX {
            let Some(index) = at.filter(|index| *index != newcomer.index) else {
                break;
            };
            let links = &mut self.thread.of_listeners;
            at = links.after(index);
            links.move_back(&mut self.listeners[listener].connections, index);
            oldest = older(oldest, self.rester(index));
        }
        oldest.is_some_and(|found| self.evict(found.key))
    }

    /// A connection that may be closed for a newcomer of its own address or listener.
    fn rester(&self, index: u32) -> Option<Rester> {
        let key = self.connections.key_at(index)?;
        let connection = self.connections.get(key)?;
        let since_ns = connection.phase_ns();
        let spared_until_ns = since_ns.saturating_add(SPARED_NS);
        let is_head = match connection.rests()? {
            Phase::Idle => false,
            _ if self.thread.common.turn.now_ns >= spared_until_ns => true,
            _ => return None,
        };
        Some(Rester {
            is_head,
            since_ns,
            key,
        })
    }

    /// Connections that there are places for now.
    pub(super) fn places(&self) -> usize {
        let descriptors_allow = self.thread.resting.descriptors_allow;
        let beside_files = self.thread.common.shared.descriptors.places().max(1);
        self.thread
            .common
            .limits
            .connections_max
            .min(descriptors_allow)
            .min(beside_files)
    }

    /// Whether nothing has changed that tending the door depends on.
    pub(super) fn door_is_quiet(&self) -> bool {
        let descriptors = &self.thread.common.shared.descriptors;
        let now = Door {
            open: self.open_connections(),
            beside_files: descriptors.places(),
            has_room: true,
        };
        let is_settled = now == self.door && !self.accepts_are_due;
        is_settled
            && self.next_episode_end_ns.is_none()
            && descriptors.excess() == 0
            && !descriptors.caches_block()
    }

    /// The end of a turn, for the connections that are there and those that want to come.
    pub(super) fn tend_door(&mut self) {
        self.make_room_for_files();
        self.update_accepts();
        self.end_episodes();
        let common = &mut self.thread.common;
        common.counts_addresses = common.shared.descriptors.is_weighed();
        self.door = Door {
            open: self.open_connections(),
            beside_files: self.thread.common.shared.descriptors.places(),
            has_room: self.counted_connections() < self.places(),
        };
    }

    /// Closes what rests while files hold descriptors that connections have places for.
    pub(super) fn make_room_for_files(&mut self) {
        let open = self.open_connections();
        let descriptors = &self.thread.common.shared.descriptors;
        descriptors.connections_are(usize::from(self.thread.common.number), open);
        if descriptors.excess() > 0 {
            descriptors.gave_back(2 * self.pipes.close_idle());
            descriptors.press();
        }
        if open <= descriptors.places() || self.thread.common.server_state >= ServerState::Draining
        {
            return;
        }
        for _ in 0..SHED_PER_TURN_MAX {
            if self.counted_connections() <= self.places() {
                break;
            }
            // What rests only for now keeps its place.
            if let Some(victim) = self.longest_resting(SPARED_NS) {
                self.evict(victim);
                self.note_places(Price::Closed);
            } else if let Some(victim) = self.longest_of_crowd() {
                self.end_lasting(victim);
            } else {
                // The next file is refused instead.
                break;
            }
        }
    }

    /// Connections that count for the limit (O3).
    pub(super) fn counted_connections(&self) -> usize {
        self.open_connections() - self.thread.resting.leaving
    }

    /// Whether another connection may be accepted now. At the limit one may while something rests
    /// that can be closed for it, and after a moment's patience, to be refused. Caches that have
    /// what it needs get as long to give it back.
    pub(super) fn accepts(&mut self) -> bool {
        let max = self.places();
        let is_blocked = self.thread.common.shared.descriptors.caches_block();
        if self.counted_connections() < max && !is_blocked {
            self.thread.resting.full_since_ns = 0;
        } else if is_blocked
            || self.longest_resting(0).is_none() && self.longest_of_crowd().is_none()
        {
            if self.thread.resting.full_since_ns == 0 {
                self.thread.resting.full_since_ns = self.thread.common.turn.now_ns.max(1);
            }
            let patience_ns = self.accept_patience_ns();
            if self.thread.common.turn.now_ns
                < self
                    .thread
                    .resting
                    .full_since_ns
                    .saturating_add(patience_ns)
            {
                return false;
            }
        }
        self.open_connections() < max + OVERFLOW_MAX
    }

    fn accept_patience_ns(&self) -> u64 {
        match self.thread.common.shared.descriptors.caches_block() {
            true => CACHES_PATIENCE_NS,
            false => FULL_PATIENCE_NS,
        }
    }

    /// How long until accept is armed without anything happening before; `None` for never.
    pub(super) fn accepts_in_ns(&self, now_ns: u64) -> Option<u64> {
        let max = self.places();
        if self.open_connections() >= max + OVERFLOW_MAX {
            return None;
        }
        let wait_ns = match self.thread.resting.full_since_ns {
            0 => 0,
            since_ns => (since_ns + self.accept_patience_ns()).saturating_sub(now_ns),
        };
        if self.thread.common.shared.descriptors.caches_block() {
            return Some(wait_ns.min(CACHES_LOOK_NS));
        }
        Some(wait_ns)
    }

    /// The connection to close for a newcomer: the longest idle one if it has rested for a while,
    /// else the oldest head that has, else whichever of the two has rested longer (beside a crowd
    /// that comes back at once, a client between two requests is the one that rests least); none
    /// that has rested for less than `rested_ns`.
    fn longest_resting(&mut self, rested_ns: u64) -> Option<Key> {
        let now_ns = self.thread.common.turn.now_ns;
        let idle = self.oldest_of(Phase::Idle);
        let head = self.oldest_of(Phase::Head);
        let has_rested = |found: &(u64, Key), for_ns| found.0.saturating_add(for_ns) <= now_ns;
        let spared = idle
            .filter(|found| has_rested(found, SPARED_NS))
            .or(head.filter(|found| has_rested(found, SPARED_NS)));
        let longer = || idle.into_iter().chain(head).min_by_key(|found| found.0);
        let found = spared.or_else(longer)?;
        has_rested(&found, rested_ns).then_some(found.1)
    }

    /// The one that has rested longest in `phase`, as far as `EVICTION_STEPS_MAX` entries show, and
    /// since when.
    fn oldest_of(&mut self, phase: Phase) -> Option<(u64, Key)> {
        let mut oldest: Option<(u64, Key)> = None;
        for _ in 0..EVICTION_STEPS_MAX {
            let index = self.thread.resting.list(phase).first();
            let Some(key) = index.and_then(|index| self.connections.key_at(index)) else {
                break;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                break;
            };
            if connection.rests() != Some(phase) {
                self.thread.resting.forget(connection, key.index);
                continue;
            }
            let since_ns = connection.phase_ns();
            if oldest.is_none_or(|(oldest_ns, _)| since_ns < oldest_ns) {
                oldest = Some((since_ns, key));
            }
            if since_ns == connection.listed_ns {
                // All after it were entered, or seen, later.
                break;
            }
            self.thread.resting.enter(connection, key.index);
        }
        oldest
    }

    /// The kernel has no descriptor for another connection. For a while the limit is somewhat below
    /// the connections that there are now, so that workers find descriptors for files.
    pub(super) fn no_descriptor(&mut self, errno: Errno) {
        self.accepts_are_due = true;
        let victim = self.longest_resting(0);
        let price = match victim {
            Some(_) => Price::Closed,
            None => Price::Refused,
        };
        let now_ns = self.thread.common.turn.now_ns;
        let open = self.open_connections();
        let limit = || format!("accept says {errno} with {open} connections open");
        self.thread.resting.descriptors.note(now_ns, price, limit);
        let spare = DESCRIPTORS_SPARE.min(open.div_ceil(4));
        self.thread.resting.descriptors_allow = open.saturating_sub(spare).max(1);
        self.thread.common.shared.descriptors.ran_out();
        if let Some(victim) = victim {
            self.evict(victim);
        }
    }

    /// Closes a resting connection before its time, in its protocol's words. True: it rested.
    fn evict(&mut self, key: Key) -> bool {
        let Some(phase) = self.connections.get(key).and_then(Connection::rests) else {
            return false;
        };
        self.counters(key).connections_evicted.add(1);
        self.on(key, |event| {
            event.leaves();
            event.call(|protocol, io| protocol.expired(io, phase));
            // Its place is wanted now: it does not linger.
            event.connection.close_without_lingering();
        });
        true
    }

    /// Refuses a newcomer in its protocol's words; the caller counts it.
    fn refuse_connection(&mut self, key: Key) {
        let lingers = self.thread.resting.leaving < OVERFLOW_LINGERING_MAX;
        let Some(mut event) = self.event(key) else {
            return;
        };
        let connection = &mut *event.connection;
        let words = event.listener.protocol.options().refusal.clone();
        connection.output_mut().push(words.into());
        connection.close(match lingers {
            true => Closing::Lingering,
            false => Closing::AfterOutput,
        });
        event.leaves();
        let connection = &mut *event.connection;
        // It would keep the next one of its address out while its client reads why.
        let address = std::mem::replace(&mut connection.address, AddressId::NOWHERE);
        self.addresses.leave(address, key.index);
    }

    fn note_places(&mut self, price: Price) {
        let (now_ns, max) = (self.thread.common.turn.now_ns, self.places());
        let counted = self.counted_connections();
        let limit = || format!("{counted} of {max} on this network thread");
        self.thread.resting.places.note(now_ns, price, limit);
    }

    /// Ends the episodes that are over.
    pub(super) fn end_episodes(&mut self) {
        let now_ns = self.thread.common.turn.now_ns;
        let (resting, holders) = (&mut self.thread.resting, &mut self.thread.holders);
        for episode in resting.episodes().into_iter().chain(holders.episodes()) {
            episode.end(now_ns);
        }
        if resting.descriptors.end_ns().is_none() {
            resting.descriptors_allow = usize::MAX;
        }
    }

    /// When the next episode may be over.
    pub(super) fn episode_end_ns(&mut self) -> Option<u64> {
        let (resting, holders) = (&mut self.thread.resting, &mut self.thread.holders);
        let episodes = resting.episodes().into_iter().chain(holders.episodes());
        episodes.filter_map(|episode| episode.end_ns()).min()
    }
}
