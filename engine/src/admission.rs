//! Who gets a place, and who is closed for it: the state, and the verdicts.
//!
//! A newcomer is served before an idler: at a bound, a connection that rests (nothing of it is in
//! work, held back or on its way out) is closed for it: those that have been idle longest first,
//! then the oldest unfinished heads. One that lingers, its last reply sent, counts as idle. What
//! has rested for less than `SPARED_NS` comes last. A newcomer is refused if no connection can be
//! closed for it. This file only decides; `network/admission.rs` acts. It knows a connection by its
//! index in the table alone.
//!
//! A connection goes to the back of its list when its phase begins, if it was put there
//! `REST_STEP_NS` before or earlier: so the order is exact but for that time, and what rests for
//! less is spared anyway. A connection that no longer rests stays on its list until a search for
//! the longest idle one finds it there. It is listed again when it next rests.
//!
//! Invariants
//! - X1: a connection is on the list that its place names, and leaves it with the table.
//! - X2: every connection that rests is on the list of its phase, unless it leaves.
//! - X3: `leaving` counts the connections that were closed for others, or refused, and are still in
//!   the table. They do not count for the limit, but never more than `OVERFLOW_MAX` are beyond it.
//! - X4: the connections of a bounded listener that are not leaving are on its list.
//!
//! Cost: O(1) for a connection that begins to rest, four times a second at most; a search inspects
//! `EVICTION_STEPS_MAX` entries at most, or `CROWD_STEPS_MAX` of one address or listener.

pub(crate) mod addresses;
pub(crate) mod arrivals;
pub mod descriptors;
pub(crate) mod long_lived;

use std::net::SocketAddr;

use crate::address_limit::share;
use crate::episode::{BoundEpisode, Price};
use crate::limits::{
    CROWD_STEPS_MAX, DESCRIPTORS_SPARE, EVICTION_STEPS_MAX, OVERFLOW_LINGERING_MAX, OVERFLOW_MAX,
    SPARE_PLACES_SHARE, SPARED_NS,
};
use crate::lists::{Links, List};
use crate::phase::Phase;

use addresses::{AddressId, Addresses};

/// A bound whose shortage the log has lines of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Places,
    Addresses,
    Listeners,
    Descriptors,
    Lasting,
}

/// How full a network thread is, at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Connections that hold a descriptor.
    pub(crate) open: usize,
    /// Those that there are places for now.
    pub(crate) max: usize,
    pub(crate) now_ns: u64,
}

/// How a newcomer comes by its place.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There are enough places.
    Enough,
    /// This connection is to be closed for it.
    Close(u32),
    /// There is no place, and nothing has rested for long.
    Short,
}

/// Who pays for a newcomer: connections of its address, or of its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payers {
    Address(AddressId),
    Listener(u16),
}

/// In which phase the connection at a place rests, and since when; `None` if it does not. Then it
/// is reported with [`Admission::rests`] again when it does.
pub(crate) trait Rests: FnMut(u32) -> Option<(Phase, u64)> {}

impl<F: FnMut(u32) -> Option<(Phase, u64)>> Rests for F {}

/// What is known of the connection at a place.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: AddressId,
    listener: u16,
    /// The list that it is on: that of [`Phase::Idle`] or of [`Phase::Head`] (X1).
    listed: Option<Phase>,
    /// It was closed for another or refused, and counts for no limit any more (X3).
    leaves: bool,
}

/// The connections of a listener, if they are bounded (X4).
#[derive(Debug)]
struct OfListener {
    list: List,
    open: usize,
    max: usize,
}

impl OfListener {
    fn is_bounded(&self) -> bool {
        self.max < usize::MAX
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Vec<Option<Place>>,
    capacity: usize,
    links: Links,
    idle: List,
    heads: List,
    leaving: usize,
    addresses: Addresses,
    listeners: Vec<OfListener>,
    /// Links of their lists; for no connection where no listener is bounded.
    listener_links: Links,
    /// Connections that the descriptors allow, known since the kernel had none left.
    descriptors_allow: usize,
    /// Since when every place is taken and nothing rests; 0 for not now.
    full_since_ns: u64,
    episodes: [BoundEpisode; 5],
}

impl Admission {
    /// For connections with indices below `capacity`. `listeners` gives the most connections of
    /// each listener.
    pub(crate) fn new(capacity: usize, listeners: impl Iterator<Item = usize>) -> Admission {
        let mut admission = Admission {
            places: Vec::new(),
            capacity,
            links: Links::new(capacity),
            idle: List::default(),
            heads: List::default(),
            leaving: 0,
            addresses: Addresses::new(capacity),
            listeners: Vec::new(),
            listener_links: Links::new(0),
            descriptors_allow: usize::MAX,
            full_since_ns: 0,
            episodes: [
                "connection limit",
                "connections per address",
                "connections of a listener",
                "descriptors",
                "requests that last",
            ]
            .map(BoundEpisode::new),
        };
        admission.bound_listeners(listeners);
        admission
    }

    /// How many connections each listener may have from now on.
    pub(crate) fn bound_listeners(&mut self, listeners: impl Iterator<Item = usize>) {
        let of_listener = |max| OfListener {
            list: List::default(),
            open: 0,
            max,
        };
        self.listeners = listeners.map(of_listener).collect();
        let is_any_bounded = self.listeners.iter().any(OfListener::is_bounded);
        self.listener_links = Links::new(if is_any_bounded { self.capacity } else { 0 });
        for (index, place) in (0..).zip(&self.places) {
            if let Some(place) = place.filter(|place| !place.leaves) {
                let links = &mut self.listener_links;
                count(&mut self.listeners, links, place.listener, index);
            }
        }
    }

    fn place(&self, index: u32) -> Option<&Place> {
        self.places.get(index as usize)?.as_ref()
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Place> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// A connection is in the table.
    pub(crate) fn enter(&mut self, index: u32, listener: u16) {
        if self.places.len() <= index as usize {
            self.places.resize(index as usize + 1, None);
        }
        self.places[index as usize] = Some(Place {
            address: AddressId::UNKNOWN,
            listener,
            listed: None,
            leaves: false,
        });
        let links = &mut self.listener_links;
        count(&mut self.listeners, links, listener, index);
    }

    /// A connection has left the table.
    pub(crate) fn left(&mut self, index: u32) {
        self.unlist(index);
        if let Some(place) = self.places[index as usize].take() {
            self.addresses.leave(place.address, index);
            if place.leaves {
                self.leaving -= 1;
            } else {
                self.uncount(place.listener, index);
            }
        }
    }

    /// A connection is being closed for another one, or refused (X3): its place counts as free, so
    /// closing it once more would make no room.
    pub(crate) fn leaves(&mut self, index: u32) {
        if let Some(place) = self.place_mut(index)
            && !std::mem::replace(&mut place.leaves, true)
        {
            let listener = place.listener;
            self.leaving += 1;
            self.uncount(listener, index);
            self.unlist(index);
        }
    }

    /// The same for one that is refused: it would keep the next one of its address out while its
    /// client reads why.
    pub(crate) fn refuse(&mut self, index: u32) {
        self.leaves(index);
        if let Some(place) = self.place_mut(index) {
            let address = std::mem::replace(&mut place.address, AddressId::NOWHERE);
            self.addresses.leave(address, index);
        }
    }

    pub(crate) fn is_leaving(&self, index: u32) -> bool {
        self.place(index).is_some_and(|place| place.leaves)
    }

    /// Whether one that is refused may linger, so that its client can read why.
    pub(crate) fn may_linger(&self) -> bool {
        self.leaving < OVERFLOW_LINGERING_MAX
    }

    /// A phase has begun in which a connection may rest: [`Phase::Idle`] or [`Phase::Head`].
    #[inline]
    pub(crate) fn rests(&mut self, index: u32, phase: Phase) {
        let Some(Some(place)) = self.places.get_mut(index as usize) else {
            return;
        };
        if place.listed == Some(phase) {
            let list = list_of(&mut self.idle, &mut self.heads, phase);
            return self.links.move_back(list, index);
        }
        self.list(index, phase);
    }

    fn list(&mut self, index: u32, phase: Phase) {
        self.unlist(index);
        if let Some(place) = self.place_mut(index)
            && !place.leaves
        {
            place.listed = Some(phase);
            let list = list_of(&mut self.idle, &mut self.heads, phase);
            self.links.push_back(list, index);
        }
    }

    fn unlist(&mut self, index: u32) {
        if let Some(place) = self.place_mut(index)
            && let Some(phase) = place.listed.take()
        {
            let list = list_of(&mut self.idle, &mut self.heads, phase);
            self.links.remove(list, index);
        }
    }

    fn uncount(&mut self, listener: u16, index: u32) {
        let of_listener = &mut self.listeners[usize::from(listener)];
        if of_listener.is_bounded() {
            of_listener.open -= 1;
            let list = &mut of_listener.list;
            self.listener_links.remove(list, index);
        }
    }

    /// Connections that there are places for, of `connections_max`, where files leave descriptors
    /// for `beside_files`.
    pub(crate) fn places(&self, connections_max: usize, beside_files: usize) -> usize {
        let descriptors = self.descriptors_allow.min(beside_files.max(1));
        connections_max.min(descriptors)
    }

    /// Connections that count for the limit (X3).
    pub(crate) fn counted(&self, load: Load) -> usize {
        load.open - self.leaving
    }

    /// Whether more than half of the places are taken. From then on the address of each newcomer is
    /// looked up.
    pub(crate) fn is_half_full(&self, load: Load) -> bool {
        self.counted(load) > load.max / 2
    }

    /// Whether so few places are free that idle connections are closed.
    pub(crate) fn is_short(&self, load: Load) -> bool {
        self.counted(load) + load.max / SPARE_PLACES_SHARE > load.max
    }

    /// Whether more connections count than there are places.
    pub(crate) fn is_beyond(&self, load: Load) -> bool {
        self.counted(load) > load.max
    }

    /// How a newcomer, which is counted, comes by its place.
    pub(crate) fn room(&mut self, load: Load, rests: impl Rests) -> Room {
        if !self.is_short(load) {
            return Room::Enough;
        }
        match self.longest_resting(load.now_ns, SPARED_NS, rests) {
            Some(index) => Room::Close(index),
            None if self.is_beyond(load) => Room::Short,
            // As long as there are places, those that rest only for now keep theirs.
            None => Room::Enough,
        }
    }

    /// The connection to close for a newcomer: the longest idle one if it has rested for a while,
    /// else the oldest head that has, else whichever of the two has rested longer (beside a crowd
    /// that comes back at once, a client between two requests is the one that rests least); none
    /// that has rested for less than `rested_ns`.
    pub(crate) fn longest_resting(
        &mut self,
        now_ns: u64,
        rested_ns: u64,
        mut rests: impl Rests,
    ) -> Option<u32> {
        let idle = self.oldest_of(Phase::Idle, &mut rests);
        let head = self.oldest_of(Phase::Head, &mut rests);
        let has_rested = |found: &(u64, u32), for_ns| found.0.saturating_add(for_ns) <= now_ns;
        let spared = idle
            .filter(|found| has_rested(found, SPARED_NS))
            .or(head.filter(|found| has_rested(found, SPARED_NS)));
        let longer = || idle.into_iter().chain(head).min_by_key(|found| found.0);
        let found = spared.or_else(longer)?;
        has_rested(&found, rested_ns).then_some(found.1)
    }

    /// The one that has rested longest in `phase`, as far as `EVICTION_STEPS_MAX` entries show, and
    /// since when.
    fn oldest_of(&mut self, phase: Phase, rests: &mut impl Rests) -> Option<(u64, u32)> {
        for _ in 0..EVICTION_STEPS_MAX {
            let index = list_of(&mut self.idle, &mut self.heads, phase).first()?;
            match rests(index) {
                None => self.unlist(index),
                Some((own, since_ns)) if own == phase => return Some((since_ns, index)),
                Some((own, _)) => self.list(index, own),
            }
        }
        None
    }

    /// Whether another connection may be accepted now. At the limit one may while something can be
    /// closed for it, and after some patience, to be refused; `waits` says that it is to wait.
    pub(crate) fn accepts(&mut self, load: Load, waits: bool, patience_ns: u64) -> bool {
        if !waits {
            if self.counted(load) < load.max {
                self.full_since_ns = 0;
            }
        } else {
            if self.full_since_ns == 0 {
                self.full_since_ns = load.now_ns.max(1);
            }
            if load.now_ns < self.full_since_ns.saturating_add(patience_ns) {
                return false;
            }
        }
        load.open < load.max + OVERFLOW_MAX
    }

    /// How long until accept is armed without anything happening before; `None` for never.
    pub(crate) fn accepts_in_ns(&self, load: Load, patience_ns: u64) -> Option<u64> {
        if load.open >= load.max + OVERFLOW_MAX {
            return None;
        }
        Some(match self.full_since_ns {
            0 => 0,
            since_ns => (since_ns + patience_ns).saturating_sub(load.now_ns),
        })
    }

    /// The kernel has no descriptor for another connection. For a while the limit is somewhat below
    /// the connections that there are now, so that workers find descriptors for files.
    pub(crate) fn no_descriptor(&mut self, open: usize) {
        let spare = DESCRIPTORS_SPARE.min(open.div_ceil(4));
        self.descriptors_allow = open.saturating_sub(spare).max(1);
    }

    /// Where a connection is counted; unknown until [`Admission::learn`].
    pub(crate) fn address(&self, index: u32) -> AddressId {
        self.place(index)
            .map_or(AddressId::UNKNOWN, |place| place.address)
    }

    /// A connection comes from `peer`, and is counted there from now on.
    pub(crate) fn learn(&mut self, index: u32, peer: Option<SocketAddr>) -> AddressId {
        let address = self.addresses.enter(index, peer);
        if let Some(place) = self.place_mut(index) {
            place.address = address;
        }
        address
    }

    /// Connections of an address that are counted.
    pub(crate) fn connections_of(&self, address: AddressId) -> usize {
        self.addresses.connections(address)
    }

    /// Whether the addresses of all connections that count are known.
    pub(crate) fn knows_all(&self, load: Load) -> bool {
        self.addresses.entered() >= self.counted(load)
    }

    /// Whether an address has more than its share of the places for connections. Alone it has all.
    pub(crate) fn has_crowd(&self, address: AddressId, load: Load) -> bool {
        let own = self.addresses.connections(address);
        let known = self.addresses.entered();
        let others = known.saturating_sub(own);
        // Those whose address was not asked for yet belong to no one.
        let loose = self.counted(load).saturating_sub(known);
        let capacity = load.max.saturating_sub(loose);
        own > 0 && others > 0 && own > share(capacity, others)
    }

    /// The most connections of a listener, if it has more.
    pub(crate) fn listener_exceeds(&self, listener: u16) -> Option<usize> {
        let of_listener = &self.listeners[usize::from(listener)];
        (of_listener.open > of_listener.max).then_some(of_listener.max)
    }

    /// The connection of the payers to close for one of theirs, `newcomer`: the one that has been
    /// idle longest, or the oldest head that has had some time. `None`: none of those looked at
    /// rests.
    pub(crate) fn payer(
        &mut self,
        payers: Payers,
        newcomer: u32,
        now_ns: u64,
        mut rests: impl Rests,
    ) -> Option<u32> {
        let mut oldest: Option<(bool, u64, u32)> = None;
        let mut at = match payers {
            Payers::Address(id) => self.addresses.first(id),
            Payers::Listener(number) => self.listeners[usize::from(number)].list.first(),
        };
        for _ in 0..CROWD_STEPS_MAX {
            let Some(index) = at.filter(|index| *index != newcomer) else {
                break;
            };
            // The next newcomer looks at others first.
            match payers {
                Payers::Address(id) => {
                    at = self.addresses.after(index);
                    self.addresses.move_back(id, index);
                }
                Payers::Listener(number) => {
                    at = self.listener_links.after(index);
                    let list = &mut self.listeners[usize::from(number)].list;
                    self.listener_links.move_back(list, index);
                }
            }
            if let Some((phase, since_ns)) = rests(index) {
                let is_head = phase != Phase::Idle;
                if !is_head || now_ns >= since_ns.saturating_add(SPARED_NS) {
                    oldest = oldest.into_iter().chain([(is_head, since_ns, index)]).min();
                }
            }
        }
        oldest.map(|(_, _, index)| index)
    }

    /// A bound was met; `limit` says where it lies.
    pub(crate) fn note(
        &mut self,
        bound: Bound,
        now_ns: u64,
        price: Price,
        limit: &dyn Fn() -> String,
    ) {
        self.episodes[bound as usize].note(now_ns, price, limit);
    }

    /// Ends the episodes that are over.
    pub(crate) fn end_episodes(&mut self, now_ns: u64) {
        for episode in &mut self.episodes {
            episode.end(now_ns);
        }
        if self.episodes[Bound::Descriptors as usize]
            .end_ns()
            .is_none()
        {
            self.descriptors_allow = usize::MAX;
        }
    }

    /// When the next episode may be over.
    pub(crate) fn episode_end_ns(&self) -> Option<u64> {
        self.episodes.iter().filter_map(BoundEpisode::end_ns).min()
    }
}

fn list_of<'a>(idle: &'a mut List, heads: &'a mut List, phase: Phase) -> &'a mut List {
    match phase {
        Phase::Idle => idle,
        _ => heads,
    }
}

/// Counts a connection for its listener, if that is bounded.
fn count(listeners: &mut [OfListener], links: &mut Links, listener: u16, index: u32) {
    let of_listener = &mut listeners[usize::from(listener)];
    if of_listener.is_bounded() {
        of_listener.open += 1;
        links.push_back(&mut of_listener.list, index);
    }
}

#[cfg(test)]
mod tests;
