//! One budget of descriptors: for connections, for files that outlive a job, and for caches.
//!
//! A file that a worker opens and closes within its job is not counted: [`DESCRIPTORS_RESERVED`]
//! has room for those. A file that is sent or written over many jobs is *held* here from before it
//! is opened until after it is closed, and each one held is a place less for connections. One that
//! stays open for the next request for it is *kept*: it is held for no address, as it cannot be
//! closed while clients are sent some of it, so there are few of these. What its owner can close at
//! any time (files open for the next call, idle pipes) is *cached*: it takes nothing from
//! connections and files, and is given back when they come near it.
//!
//! | class      | counted by               | gives way to              |
//! |------------|--------------------------|---------------------------|
//! | connection | its network thread       | newcomers, held files     |
//! | held       | [`DescriptorBudget::hold`]  | other addresses        |
//! | kept       | [`ConnectionDescriptors::keep`] | held files         |
//! | cached     | [`DescriptorBudget::cache`] | connections, held files|
//!
//! An address may hold its share of what files may have; what it wants beyond is refused. One that
//! has little beside others gets some of a reserve where all is held, and network threads end what
//! those that pay have held longest (`address_limit.rs`, `admission/long_lived.rs`). So a worker
//! never waits for what others hold.
//!
//! A file beyond the bound, or one for which active connections leave no descriptor, is refused: a
//! reply 503 with Retry-After in HTTP.
//!
//! Invariants
//! - F1: no more is held than `files_max` and the reserve, so with each held file on a connection
//!   of its own a part of the room (`CONNECTIONS_PART`, less the reserve) is left for other
//!   connections.
//! - F2: a hold is granted only if connections and files together then exceed the room by
//!   `DESCRIPTORS_SPARE` at most. So connections that rest are closed for files step by step.
//! - F3: caches leave a part of the room free (`CACHE_FREE_PART`). Where connections and files
//!   have taken it, [`DescriptorBudget::excess`] says how much the caches have to close, and the
//!   threads that wait in [`DescriptorBudget::await_excess`] are woken.
//! - F4: while there is excess and no room at all, accept and holds wait for the caches, for a
//!   bounded time.
//!
//! Ordering: all relaxed. The counts are heuristics on both sides: a network thread or a worker
//! that sees an older one is wrong by what happened in that moment, for which the reserve has room.
//!
//! Cost: an atomic update and a load per network thread for each file that is held; a load per turn
//! of a network thread, and a store in turns in which its number of connections changed.
//!
//! [`DESCRIPTORS_RESERVED`]: crate::limits::DESCRIPTORS_RESERVED

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flatpath_structures::lock::{Condition, Lock};

use crate::admission::address_limit::{AddressLimit, Cells};
use crate::limits::{
    CACHE_FREE_PART, CACHES_PATIENCE_NS, CONNECTIONS_PART, CONNECTIONS_PART_MIN, DESCRIPTORS_SPARE,
    NEWCOMERS_PART, RELIEF_PERIOD_NS,
};
use crate::observe::episode::Episode;

/// What is held at no place is for no connection.
const NO_PLACE: usize = usize::MAX;

/// The part of what files may hold that those may which stay open for the next request.
const KEPT_FILES_PART: usize = 8;

/// How often a worker looks whether the caches have given back.
const CACHES_LOOK: Duration = Duration::from_millis(2);

/// What may be held of the descriptors of this process. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct DescriptorBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// Descriptors for connections, files and caches together.
    room: usize,
    files_max: usize,
    held: AtomicUsize,
    /// The part of that for files that stay open.
    kept: AtomicUsize,
    /// What addresses hold of `files_max`, by places in the tables of all network threads.
    by_address: AddressLimit,
    /// When network threads next end what is held beyond `files_max`, in the driver's nanoseconds.
    round_ns: AtomicU64,
    cached: AtomicUsize,
    /// What the kernel missed although the counts allowed it: caches give back as much.
    missed: AtomicUsize,
    refused_room: AtomicU64,
    refused_address: AtomicU64,
    given_back: AtomicU64,
    refusals: Episode,
    returns: Episode,
    address_refusals: Episode,
    /// Connections of each network thread, as it said last.
    connections: Box<[AtomicUsize]>,
    /// The owners of caches have been woken and have not looked yet.
    woken: AtomicBool,
    sleep: Lock<()>,
    wake: Condition,
}

/// Descriptors that are held or cached; dropped, they are given back. Drop it after the file.
#[derive(Debug)]
pub struct DescriptorHold {
    counts: Arc<Counts>,
    count: usize,
    class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// For the connection at a place of the tables of all network threads.
    Held(usize),
    Kept,
    Cached,
}

/// The budget as a job of one connection sees it: what is held counts for the client's address.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionDescriptors<'a> {
    pub(crate) budget: &'a DescriptorBudget,
    pub(crate) place: usize,
}

impl ConnectionDescriptors<'_> {
    /// Holds `count` descriptors for what is opened next and outlives the job; `None` if there is
    /// no room for them now, or the client's address has its share: see
    /// [`DescriptorBudget::hold`].
    #[must_use]
    pub fn hold(&self, count: usize) -> Option<DescriptorHold> {
        self.budget.hold_for(self.place, count)
    }

    /// Holds `count` descriptors for a file that stays open for later requests. `None` where
    /// more than half of what files may hold is held, or an eighth of it is kept so already, or
    /// caches are to close what they have. O(network threads).
    #[must_use]
    pub fn keep(&self, count: usize) -> Option<DescriptorHold> {
        self.budget.keep(count)
    }
}

/// As for a connection without an address.
impl<'a> From<&'a DescriptorBudget> for ConnectionDescriptors<'a> {
    fn from(budget: &'a DescriptorBudget) -> ConnectionDescriptors<'a> {
        ConnectionDescriptors {
            budget,
            place: NO_PLACE,
        }
    }
}

/// The counts at a moment, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorFigures {
    /// Descriptors for connections, files and caches together.
    pub room: usize,
    /// Connections, those included that were accepted and wait to be let in.
    pub connections: usize,
    /// Descriptors of files that are held now.
    pub held: usize,
    /// The most that there may be.
    pub held_max: usize,
    /// Descriptors of caches now.
    pub cached: usize,
    /// Descriptors that caches have closed for others since the start.
    pub given_back: u64,
    /// Files refused since the start, because there was no descriptor for them.
    pub refused_room: u64,
    /// Because their address held its share of the descriptors.
    pub refused_address: u64,
}

impl DescriptorBudget {
    /// A budget for `threads` network threads that may have `connections_max` connections together,
    /// of `room` descriptors. Their tables have `places` together.
    pub(crate) fn new(
        room: usize,
        connections_max: usize,
        (threads, places): (usize, usize),
    ) -> DescriptorBudget {
        let least = CONNECTIONS_PART_MIN.min(room / 2);
        let part = (room / CONNECTIONS_PART).max(least);
        // Each held file may have a connection of its own, and what no connection may take is for
        // files anyway.
        let files_max = ((room - part) / 2).max(room.saturating_sub(connections_max));
        DescriptorBudget(Arc::new(Counts {
            room,
            files_max,
            held: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            by_address: AddressLimit::new(files_max, 0, places)
                .with_reserve(files_max / NEWCOMERS_PART),
            round_ns: AtomicU64::new(0),
            cached: AtomicUsize::new(0),
            missed: AtomicUsize::new(0),
            refused_room: AtomicU64::new(0),
            refused_address: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            refusals: Episode::new(),
            returns: Episode::new(),
            address_refusals: Episode::new(),
            connections: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            woken: AtomicBool::new(false),
            sleep: Lock::default(),
            wake: Condition::new(),
        }))
    }

    /// Holds `count` descriptors for what is opened next and outlives the job; `None` if there is
    /// no room for them now, which the log and [`DescriptorFigures::refused_room`] tell. O(network
    /// threads). Where caches have to give them back first it waits for that, a second at most, so
    /// it is not for network threads.
    #[must_use]
    pub fn hold(&self, count: usize) -> Option<DescriptorHold> {
        self.hold_for(NO_PLACE, count)
    }

    /// The same for a connection: its address may hold its share, and use the reserve while it has
    /// little.
    pub(crate) fn hold_for(&self, place: usize, count: usize) -> Option<DescriptorHold> {
        let counts = &self.0;
        let open = counts.open();
        let (cells, _) = counts.by_address.at(place);
        let held = counts.held.load(Relaxed);
        let held_max = counts.by_address.bound_for(cells, count, held);
        if held_max.is_none() && held.saturating_add(count) <= counts.files_max {
            self.note_address_refusal();
            return None;
        }
        let held_max = held_max.unwrap_or(counts.files_max);
        let fits = |held: usize| {
            let held = held.checked_add(count)?;
            let all = open.saturating_add(held);
            let is_free = all <= counts.room.saturating_add(DESCRIPTORS_SPARE);
            (held <= held_max && is_free).then_some(held)
        };
        match counts.held.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => {
                counts.by_address.take(place, few(count));
                let hold = self.guard(count, Class::Held(place));
                self.await_caches();
                Some(hold)
            }
            Err(held) => {
                self.note_refusal(held, open);
                None
            }
        }
    }

    /// See [`ConnectionDescriptors::keep`].
    fn keep(&self, count: usize) -> Option<DescriptorHold> {
        let counts = &self.0;
        let kept_max = counts.files_max / KEPT_FILES_PART;
        let fits = |kept: usize| kept.checked_add(count).filter(|kept| *kept <= kept_max);
        let is_free = self.is_roomy() && self.excess() == 0;
        if !is_free || counts.kept.fetch_update(Relaxed, Relaxed, fits).is_err() {
            return None;
        }
        counts.held.fetch_add(count, Relaxed);
        Some(self.guard(count, Class::Kept))
    }

    /// Counts `count` descriptors of what its owner can close at any time, and does when
    /// [`DescriptorBudget::excess`] asks for it. Never refused: it may be what a call needs now.
    /// O(1).
    #[must_use]
    pub fn cache(&self, count: usize) -> DescriptorHold {
        self.0.cached.fetch_add(count, Relaxed);
        self.guard(count, Class::Cached)
    }

    fn guard(&self, count: usize, class: Class) -> DescriptorHold {
        DescriptorHold {
            counts: Arc::clone(&self.0),
            count,
            class,
        }
    }

    /// Cached descriptors that are to be closed now (F3). O(network threads), and one load where
    /// nothing is cached.
    pub fn excess(&self) -> usize {
        let counts = &self.0;
        let cached = counts.cached.load(Relaxed);
        if cached == 0 {
            return 0;
        }
        let missed = counts.missed.load(Relaxed);
        let over = counts.all(cached).saturating_sub(counts.caches_end());
        over.max(missed).min(cached)
    }

    /// Waits until there is excess, for `time` at most. Returns how much the caller should close:
    /// more than the excess, so that the next newcomers find room, too; 0 for none.
    pub fn await_excess(&self, time: Duration) -> usize {
        let counts = &self.0;
        let guard = counts.sleep.lock();
        if !counts.woken.load(Relaxed) {
            drop(counts.wake.wait_for(guard, time));
        }
        counts.woken.store(false, Relaxed);
        match self.excess() {
            0 => 0,
            excess => {
                counts.missed.store(0, Relaxed);
                excess.saturating_add(counts.caches_free())
            }
        }
    }

    /// A cache has closed `count` descriptors because there was excess.
    pub fn gave_back(&self, count: usize) {
        let counts = &self.0;
        counts.given_back.fetch_add(count as u64, Relaxed);
        if count > 0 && counts.returns.begins() {
            log::info!(
                "descriptors: caches close files for connections and transfers; {} of {} in use \
                 without them (raise ulimit -n or LimitNOFILE=)",
                counts.all(0),
                counts.room,
            );
        }
    }

    /// Wakes the owners of caches if there is excess. O(network threads), and one load where
    /// nothing is cached.
    pub(crate) fn wake_caches(&self) {
        if self.excess() > 0 && !self.0.woken.swap(true, Relaxed) {
            // Taken, so that an owner that has looked and not slept yet is not missed.
            drop(self.0.sleep.lock());
            self.0.wake.notify_all();
        }
    }

    /// The kernel had no descriptor although the counts allow it: caches give some back.
    pub(crate) fn ran_out(&self) {
        self.0.missed.store(self.0.caches_free(), Relaxed);
        self.wake_caches();
    }

    /// Whether caches are to give back, or have what the next connection needs. One load where
    /// nothing is cached.
    pub(crate) fn caches_give_way(&self) -> bool {
        self.excess() > 0 || self.caches_block()
    }

    /// Whether caches have what the next connection needs (F4).
    pub(crate) fn caches_block(&self) -> bool {
        let counts = &self.0;
        let cached = counts.cached.load(Relaxed);
        cached > 0 && counts.all(cached) >= counts.room
    }

    fn await_caches(&self) {
        self.wake_caches();
        let (began, patience) = (Instant::now(), Duration::from_nanos(CACHES_PATIENCE_NS));
        let counts = &self.0;
        let is_over = || {
            let cached = counts.cached.load(Relaxed);
            cached > 0 && counts.all(cached) > counts.room.saturating_add(DESCRIPTORS_SPARE)
        };
        while is_over() && began.elapsed() < patience {
            std::thread::sleep(CACHES_LOOK);
            self.wake_caches();
        }
    }

    /// Whether addresses are to be known: a quarter of what files may hold is held.
    pub(crate) fn counts_addresses(&self) -> bool {
        self.0
            .by_address
            .counts_addresses(self.0.held.load(Relaxed))
    }

    /// How many held descriptors others have to give back.
    pub(crate) fn overdrawn(&self) -> usize {
        self.0.by_address.overdrawn(self.0.held.load(Relaxed))
    }

    /// What is held for the connection with this place in all tables. One load.
    pub(crate) fn held_by(&self, place: usize) -> usize {
        self.0.by_address.at(place).1 as usize
    }

    /// Counts what is held for the connection at a place, and what it comes to hold, at `cells`.
    pub(crate) fn name(&self, place: usize, cells: Cells) {
        self.0.by_address.name(place, cells);
    }

    /// Whether some is held for connections whose address was not asked for.
    #[cfg(test)]
    fn has_loose(&self) -> bool {
        self.0.by_address.has_loose()
    }

    /// Whether an address holds more than one does on average.
    pub(crate) fn pays(&self, cells: Cells) -> bool {
        self.0.by_address.is_above_average(cells)
    }

    /// Whether the calling network thread is the one that ends files' connections in this round.
    /// What it has ended is given back by workers, a moment later.
    pub(crate) fn begins_round(&self, now_ns: u64) -> bool {
        let next_ns = now_ns.saturating_add(RELIEF_PERIOD_NS);
        let begins = |round_ns| (now_ns >= round_ns).then_some(next_ns);
        let round = &self.0.round_ns;
        round.fetch_update(Relaxed, Relaxed, begins).is_ok()
    }

    /// It has found too few: another thread may begin one at once.
    pub(crate) fn leaves_round(&self) {
        self.0.round_ns.store(0, Relaxed);
    }

    fn note_address_refusal(&self) {
        let counts = &self.0;
        counts.refused_address.fetch_add(1, Relaxed);
        if counts.address_refusals.begins() {
            log::warn!(
                "descriptors for files: an address has its share of {}; what it asks for beyond \
                 that is refused, that of others is not",
                counts.files_max,
            );
        }
    }

    fn note_refusal(&self, held: usize, open: usize) {
        let counts = &self.0;
        counts.refused_room.fetch_add(1, Relaxed);
        if counts.refusals.begins() {
            log::warn!(
                "descriptors for files: {held} of {} in use beside {open} connections; downloads, \
                 uploads and consumers that find none are refused (raise ulimit -n or \
                 LimitNOFILE=)",
                counts.files_max,
            );
        }
    }

    /// Whether at most half of what files may hold is held.
    pub(crate) fn is_roomy(&self) -> bool {
        self.0.held.load(Relaxed) <= self.0.files_max / 2
    }

    /// Connections that one of the network threads has room for beside the files.
    pub(crate) fn places(&self) -> usize {
        let counts = &self.0;
        match counts.held.load(Relaxed) {
            0 => usize::MAX,
            held => counts.room.saturating_sub(held) / counts.connections.len().max(1),
        }
    }

    /// Network thread `thread` has `open` connections now.
    pub(crate) fn connections_are(&self, thread: usize, open: usize) {
        if let Some(own) = self.0.connections.get(thread)
            && own.load(Relaxed) != open
        {
            own.store(open, Relaxed);
        }
    }

    pub(crate) fn figures(&self) -> DescriptorFigures {
        DescriptorFigures {
            room: self.0.room,
            connections: self.0.open(),
            held: self.0.held.load(Relaxed),
            held_max: self.0.files_max,
            cached: self.0.cached.load(Relaxed),
            given_back: self.0.given_back.load(Relaxed),
            refused_room: self.0.refused_room.load(Relaxed),
            refused_address: self.0.refused_address.load(Relaxed),
        }
    }
}

/// Descriptors are fewer than 2^32.
fn few(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Counts {
    fn open(&self) -> usize {
        self.connections.iter().map(|open| open.load(Relaxed)).sum()
    }

    /// Connections, files and as much of caches.
    fn all(&self, cached: usize) -> usize {
        let held = self.held.load(Relaxed);
        self.open().saturating_add(held).saturating_add(cached)
    }

    /// What caches leave free.
    fn caches_free(&self) -> usize {
        (self.room / CACHE_FREE_PART).max(DESCRIPTORS_SPARE.min(self.room / 2))
    }

    /// Where connections, files and caches together end.
    fn caches_end(&self) -> usize {
        self.room - self.caches_free()
    }
}

/// Has the kernel make this process's table of descriptors large enough for this number at once.
///
/// The table doubles when it is full. In a process with several threads the kernel waits each time
/// until no processor can read the old one any more (`synchronize_rcu`), tens of milliseconds on a
/// busy machine, and every thread that opens or accepts something waits with it: connections that
/// come at once would stop the network threads for each doubling, at their beginning. A table never
/// shrinks, and takes 8 bytes for each descriptor.
///
/// An error is none of the server's: then the table grows as it is needed.
pub(crate) fn make_table(count: u64) {
    let highest = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    let any = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    // Both are closed at once.
    let made = any.and_then(|any| rustix::io::fcntl_dupfd_cloexec(&any, highest));
    if let Err(cause) = made {
        log::debug!("the table of descriptors grows as it is needed: {cause}");
    }
}

/// A budget without bounds.
impl Default for DescriptorBudget {
    fn default() -> DescriptorBudget {
        DescriptorBudget::new(usize::MAX, 0, (0, 0))
    }
}

impl Drop for DescriptorHold {
    fn drop(&mut self) {
        let counts = &self.counts;
        match self.class {
            Class::Held(place) => {
                counts.held.fetch_sub(self.count, Relaxed);
                counts.by_address.give(place, few(self.count));
            }
            Class::Kept => {
                counts.held.fetch_sub(self.count, Relaxed);
                counts.kept.fetch_sub(self.count, Relaxed);
            }
            Class::Cached => {
                counts.cached.fetch_sub(self.count, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
