//! Which connections have a place: the state of a network thread, and the verdicts.
//!
//! What is known here are numbers and enums: a connection is its index in the table. The files of
//! this folder decide, and `network/admission.rs` alone acts.
//!
//! | file           | state                                       | verdict                       |
//! |----------------|---------------------------------------------|-------------------------------|
//! | admission.rs   | places: which rest, which leave; listeners  | which one is closed           |
//! | claim.rs       | a newcomer on its way to a place            | [`Step`](claim::Step)         |
//! | accepting.rs   | accept of each socket, and the patience     | `Next`, `Then`, `Waits`       |
//! | addresses.rs   | connections by address                      |                               |
//! | arrivals.rs    | accepted, and not admitted yet              | which one is next             |
//! | descriptors.rs | descriptors of the process, for all threads | whether some may be held      |
//! | long_lived.rs  | what clients make long                      | which one is ended            |
//! | opening.rs     |                                             | whether one may be opened     |
//! | parting.rs     |                                             | how a connection is ended     |
//!
//! A newcomer is served before an idler: at a bound, a connection that rests (nothing of it is in
//! work, held back or on its way out) is closed for it: those that have been idle longest first,
//! then the oldest unfinished heads. One that lingers, its last reply sent, counts as idle. What
//! has rested for less than `SPARED_NS` comes last. A newcomer is refused if no connection can be
//! closed for it.
//!
//! | a connection               | is on a list | counts for the limits | ends with             |
//! |----------------------------|--------------|-----------------------|-----------------------|
//! | is busy                    | perhaps      | yes                   | [`Admission::rests`]  |
//! | rests, idle or with a head | its phase's  | yes                   | its next request      |
//! | leaves: closed for another | none         | no                    | [`Admission::left`]   |
//! | leaves: refused            | none         | no, nor its address   | [`Admission::left`]   |
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
//! `EVICTION_STEPS_MAX` entries at most, or `PAYER_STEPS_MAX` of one address or listener.

pub mod address_limit;
pub(crate) mod answered;
pub(crate) mod by_address;
pub(crate) mod turns;
pub(crate) mod accepting;
pub(crate) mod addresses;
pub(crate) mod arrivals;
pub(crate) mod claim;
pub mod descriptors;
pub(crate) mod long_lived;
pub(crate) mod opening;
pub(crate) mod parting;

use std::ops::Range;

use crate::admission::address_limit::share;
use crate::limits::{
    DESCRIPTORS_SPARE, EVICTION_STEPS_MAX, OVERFLOW_LINGERING_MAX, RELIMITED_PER_TURN,
    SPARE_PLACES_SHARE, SPARED_NS,
};
use crate::lists::{Links, List};
use crate::observe::episode::{BoundEpisode, Price};
use crate::protocol::phase::Phase;

use accepting::{KernelError, Settled};
use addresses::{Address, AddressId, Addresses};
use long_lived::LongLived;

/// The listener of a connection that was not accepted.
const NO_LISTENER: u16 = u16::MAX;

/// A bound whose shortage the log has lines of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Places,
    Addresses,
    Listeners,
    Descriptors,
    LongLived,
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

/// Whether places are to be made free for a newcomer.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// There are enough places.
    Enough,
    /// This connection is to be closed for it.
    Close(u32),
    /// There is no place, and nothing has rested for long.
    Short,
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
    name: &'static str,
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
    /// Connections that this server has opened, or is to, and that are not leaving.
    opened: usize,
    addresses: Addresses,
    listeners: Vec<OfListener>,
    /// Links of their lists; for no connection where no listener is bounded.
    listener_links: Links,
    /// Connections that the descriptors allow, known since the kernel had none left.
    descriptors_allow: usize,
    /// Since when every place is taken and nothing rests; 0 for not now.
    full_since_ns: u64,
    /// What the decisions on accept were made for last, if they hold on.
    settled: Option<Settled>,
    /// The first place whose connection has not been looked at since limits changed.
    relimited: u32,
    /// Connections whose clients decide how long they take, longest first.
    pub(crate) long_lived: LongLived,
    /// Files are short of descriptors: each client that takes one needs a known address.
    counts_addresses: bool,
    /// The connection that is called now is closed because its place is wanted.
    evicts: bool,
    episodes: [BoundEpisode; 5],
}

impl Admission {
    /// For connections with indices below `capacity`. `listeners` gives the name of each listener,
    /// and the most connections that it may have.
    pub(crate) fn new(
        capacity: usize,
        listeners: impl Iterator<Item = (&'static str, usize)>,
    ) -> Admission {
        let mut admission = Admission {
            places: Vec::new(),
            capacity,
            links: Links::new(capacity),
            idle: List::default(),
            heads: List::default(),
            leaving: 0,
            opened: 0,
            addresses: Addresses::new(capacity),
            listeners: Vec::new(),
            listener_links: Links::new(0),
            descriptors_allow: usize::MAX,
            full_since_ns: 0,
            settled: None,
            relimited: u32::try_from(capacity).unwrap_or(u32::MAX),
            long_lived: LongLived::new(capacity),
            counts_addresses: false,
            evicts: false,
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
    pub(crate) fn bound_listeners(
        &mut self,
        listeners: impl Iterator<Item = (&'static str, usize)>,
    ) {
        let of_listener = |(name, max)| OfListener {
            name,
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

    /// Limits have changed: all connections that are open are to be looked at.
    pub(crate) fn begin_relimit(&mut self) {
        self.relimited = 0;
    }

    /// The places whose connections are looked at in this turn, as limits have changed.
    pub(crate) fn next_relimited(&mut self) -> Range<u32> {
        let end = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        let next = self.relimited.saturating_add(RELIMITED_PER_TURN).min(end);
        std::mem::replace(&mut self.relimited, next)..next
    }

    /// Whether connections are left to look at.
    pub(crate) fn is_relimiting(&self) -> bool {
        (self.relimited as usize) < self.capacity
    }

    /// A connection is in the table, and counted at no address before that is known. `is_named`:
    /// no PROXY header is to name its client first.
    pub(crate) fn enter(&mut self, index: u32, listener: u16, is_named: bool) {
        let address = match is_named {
            true => AddressId::UNKNOWN,
            false => AddressId::UNNAMED,
        };
        self.put(index, address, listener);
        let links = &mut self.listener_links;
        count(&mut self.listeners, links, listener, index);
    }

    /// The same for one that this server opens: it counts for no address and no listener.
    pub(crate) fn enter_opened(&mut self, index: u32) {
        self.put(index, AddressId::NOWHERE, NO_LISTENER);
        self.opened += 1;
    }

    fn put(&mut self, index: u32, address: AddressId, listener: u16) {
        if self.places.len() <= index as usize {
            self.places.resize(index as usize + 1, None);
        }
        self.places[index as usize] = Some(Place {
            address,
            listener,
            listed: None,
            leaves: false,
        });
    }

    /// The PROXY header of a connection has named its client.
    pub(crate) fn is_named(&mut self, index: u32) {
        if let Some(place) = self.place_mut(index)
            && place.address == AddressId::UNNAMED
        {
            place.address = AddressId::UNKNOWN;
        }
    }

    /// A connection has left the table.
    pub(crate) fn left(&mut self, index: u32) {
        self.long_lived.remove(index);
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
    fn refuse(&mut self, index: u32) {
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
    fn may_linger(&self) -> bool {
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
        let Some(of_listener) = self.listeners.get_mut(usize::from(listener)) else {
            debug_assert_eq!(listener, NO_LISTENER, "a listener of this thread");
            self.opened -= 1;
            return;
        };
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
    fn is_half_full(&self, load: Load) -> bool {
        self.counted(load) > load.max / 2
    }

    /// Whether so few places are free that idle connections are closed.
    fn is_short(&self, load: Load) -> bool {
        self.counted(load) + load.max / SPARE_PLACES_SHARE > load.max
    }

    /// Whether more connections count than there are places.
    fn is_beyond(&self, load: Load) -> bool {
        self.counted(load) > load.max
    }

    /// Whether a place is to be made free for a newcomer, which is counted.
    fn room(&mut self, load: Load, rests: impl Rests) -> Room {
        if !self.is_short(load) {
            return Room::Enough;
        }
        match self.longest_resting(load.now_ns, SPARED_NS, rests) {
            Some(index) => Room::Close(index),
            None if self.is_beyond(load) => Room::Short,
            // While places are left, those that rest only for now keep theirs.
            None => Room::Enough,
        }
    }

    /// The connection to close for a newcomer: the longest idle one if it has rested for a while,
    /// else the oldest head that has, else whichever of the two has rested longer (beside many that
    /// come back at once, a client between two requests is the one that rests least); none that has
    /// rested for less than `rested_ns`.
    fn longest_resting(
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

    /// The kernel has no descriptor for another connection, for this cause. For a while the limit
    /// is somewhat below the number of connections now, so that workers find descriptors for files.
    /// Which connection is to be closed, if one rests.
    #[must_use]
    pub(crate) fn no_descriptor(
        &mut self,
        load: Load,
        cause: KernelError,
        rests: impl Rests,
    ) -> Option<u32> {
        let (open, now_ns) = (load.open, load.now_ns);
        let spare = DESCRIPTORS_SPARE.min(open.div_ceil(4));
        self.descriptors_allow = open.saturating_sub(spare).max(1);
        let victim = self.longest_resting(now_ns, 0, rests);
        let price = match victim {
            Some(_) => Price::Closed,
            None => Price::Refused,
        };
        let limit = || format!("the kernel says {cause} with {open} connections open");
        self.note(Bound::Descriptors, now_ns, price, &limit);
        if let Some(index) = victim {
            self.leaves(index);
        }
        victim
    }

    /// Where a connection is counted; unknown until [`Admission::learn`].
    pub(crate) fn address(&self, index: u32) -> AddressId {
        self.place(index)
            .map_or(AddressId::UNKNOWN, |place| place.address)
    }

    /// A connection comes from this address, and is counted there from now on, unless it was
    /// refused or its client is not named yet.
    pub(crate) fn learn(&mut self, index: u32, address: Address) {
        if self.address(index) == AddressId::UNKNOWN
            && let Some(Some(place)) = self.places.get_mut(index as usize)
        {
            place.address = self.addresses.enter(index, address);
        }
    }

    /// Connections of an address that are counted.
    fn connections_of(&self, address: AddressId) -> usize {
        self.addresses.connections(address)
    }

    /// Whether the addresses of all connections that count are known. Those that were opened have
    /// none that counts.
    fn knows_all(&self, load: Load) -> bool {
        self.addresses.entered() + self.opened >= self.counted(load)
    }

    /// Whether the addresses of connections that were there before places ran short are to be
    /// asked for, little by little.
    pub(crate) fn asks_addresses(&self, load: Load) -> bool {
        self.is_half_full(load) && !self.knows_all(load)
    }

    /// Whether an address has more than its share of the places for connections. Alone it has all.
    pub(crate) fn exceeds_share(&self, address: AddressId, load: Load) -> bool {
        let own = self.addresses.connections(address);
        let known = self.addresses.entered();
        let others = known.saturating_sub(own);
        // Those whose address was not asked for yet belong to no one.
        let loose = self.counted(load).saturating_sub(known);
        let capacity = load.max.saturating_sub(loose);
        own > 0 && others > 0 && own > share(capacity, others)
    }

    /// The most connections of a listener, if it has more.
    fn listener_exceeds(&self, listener: u16) -> Option<usize> {
        let of_listener = self.listeners.get(usize::from(listener))?;
        (of_listener.open > of_listener.max).then_some(of_listener.max)
    }

    /// Something that lasts was ended for others; `limit` says whose.
    pub(crate) fn note_ended(&mut self, now_ns: u64, limit: &dyn Fn() -> String) {
        self.note(Bound::LongLived, now_ns, Price::Ended, limit);
    }

    /// A bound was met; `limit` says where it lies.
    fn note(&mut self, bound: Bound, now_ns: u64, price: Price, limit: &dyn Fn() -> String) {
        self.episodes[bound as usize].note(now_ns, price, limit);
    }

    /// Whether files are short of descriptors: each client that takes one needs a known address.
    #[inline]
    pub(crate) fn counts_addresses(&self) -> bool {
        self.counts_addresses
    }

    /// They are, or are no more.
    pub(crate) fn count_addresses(&mut self, counts: bool) {
        self.counts_addresses = counts;
    }

    /// Whether the connection that is called now is closed because its place is wanted.
    pub(crate) fn evicts(&self) -> bool {
        self.evicts
    }

    /// Begins or ends such a call.
    pub(crate) fn evict(&mut self, evicts: bool) {
        self.evicts = evicts;
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
    if let Some(of_listener) = listeners.get_mut(usize::from(listener))
        && of_listener.is_bounded()
    {
        of_listener.open += 1;
        links.push_back(&mut of_listener.list, index);
    }
}

#[cfg(test)]
mod tests;
