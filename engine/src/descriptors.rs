//! One budget of descriptors: for connections, for files that outlive a job, and for caches.
//!
//! A file that a worker opens and closes within its job is not counted: [`DESCRIPTORS_RESERVED`]
//! has room for those. A file that is sent or written over many jobs is *held* here from before it
//! is opened until after it is closed, and each one held is a place less for connections. What its
//! owner can close at any time (files open for the next call, idle pipes) is *cached*: it takes
//! nothing from connections and files, and is given back when they come near it.
//!
//! | class      | counted by               | gives way to              |
//! |------------|--------------------------|---------------------------|
//! | connection | its network thread       | newcomers, held files     |
//! | held       | [`DescriptorBudget::hold`]  | nothing                |
//! | cached     | [`DescriptorBudget::cache`] | connections, held files|
//!
//! A file beyond the bound, or one for which active connections leave no descriptor, is refused: a
//! reply 503 with Retry-After in HTTP.
//!
//! Invariants
//! - F1: no more is held than `files_max`, so with each held file on a connection of its own a part
//!   of the room (`CONNECTIONS_PART`) is left for other connections.
//! - F2: a hold is granted only if connections and files together then exceed the room by
//!   `DESCRIPTORS_SPARE` at most. So a crowd that rests is closed for files step by step.
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

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::episode::Episode;
use crate::limits::{
    CACHE_FREE_PART, CACHES_PATIENCE_NS, CONNECTIONS_PART, CONNECTIONS_PART_MIN, DESCRIPTORS_SPARE,
};

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
    cached: AtomicUsize,
    /// What the kernel missed although the counts allowed it: caches give back as much.
    missed: AtomicUsize,
    refused: AtomicU64,
    given_back: AtomicU64,
    refusals: Episode,
    returns: Episode,
    /// Connections of each network thread, as it said last.
    connections: Box<[AtomicUsize]>,
    /// The owners of caches have been woken and have not looked yet.
    woken: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
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
    Held,
    Cached,
}

/// The counts at a moment, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Holds refused since the start.
    pub refused: u64,
}

impl DescriptorBudget {
    /// A budget for `threads` network threads that may have `connections_max` connections together,
    /// of `room` descriptors.
    pub(crate) fn new(room: usize, connections_max: usize, threads: usize) -> DescriptorBudget {
        let least = CONNECTIONS_PART_MIN.min(room / 2);
        let part = (room / CONNECTIONS_PART).max(least);
        // Each held file may have a connection of its own, and what no connection may take is for
        // files anyway.
        let files_max = ((room - part) / 2).max(room.saturating_sub(connections_max));
        DescriptorBudget(Arc::new(Counts {
            room,
            files_max,
            held: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
            missed: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            refusals: Episode::new(),
            returns: Episode::new(),
            connections: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            woken: AtomicBool::new(false),
            sleep: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Holds `count` descriptors for what is opened next and outlives the job; `None` if there is
    /// no room for them now, which the log and [`DescriptorFigures::refused`] tell. O(network
    /// threads). Where caches have to give them back first it waits for that, a second at most, so
    /// it is not for network threads.
    #[must_use]
    pub fn hold(&self, count: usize) -> Option<DescriptorHold> {
        let counts = &self.0;
        let open = counts.open();
        let fits = |held: usize| {
            let held = held.checked_add(count)?;
            let all = open.saturating_add(held);
            let is_free = all <= counts.room.saturating_add(DESCRIPTORS_SPARE);
            (held <= counts.files_max && is_free).then_some(held)
        };
        match counts.held.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => {
                let hold = self.guard(count, Class::Held);
                self.await_caches();
                Some(hold)
            }
            Err(held) => {
                self.note_refusal(held, open);
                None
            }
        }
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
        let guard = counts.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = counts
            .wake
            .wait_timeout_while(guard, time, |()| !counts.woken.load(Relaxed));
        drop(waited);
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
    pub(crate) fn press(&self) {
        if self.excess() > 0 && !self.0.woken.swap(true, Relaxed) {
            // Taken, so that an owner that has looked and not slept yet is not missed.
            drop(self.0.sleep.lock());
            self.0.wake.notify_all();
        }
    }

    /// The kernel had no descriptor although the counts allow it: caches give some back.
    pub(crate) fn ran_out(&self) {
        self.0.missed.store(self.0.caches_free(), Relaxed);
        self.press();
    }

    /// Whether caches have what the next connection needs (F4).
    pub(crate) fn caches_block(&self) -> bool {
        let counts = &self.0;
        let cached = counts.cached.load(Relaxed);
        cached > 0 && counts.all(cached) >= counts.room
    }

    fn await_caches(&self) {
        self.press();
        let (began, patience) = (Instant::now(), Duration::from_nanos(CACHES_PATIENCE_NS));
        let counts = &self.0;
        let is_over = || {
            let cached = counts.cached.load(Relaxed);
            cached > 0 && counts.all(cached) > counts.room.saturating_add(DESCRIPTORS_SPARE)
        };
        while is_over() && began.elapsed() < patience {
            std::thread::sleep(CACHES_LOOK);
            self.press();
        }
    }

    fn note_refusal(&self, held: usize, open: usize) {
        let counts = &self.0;
        counts.refused.fetch_add(1, Relaxed);
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
            refused: self.0.refused.load(Relaxed),
        }
    }
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

/// Has the kernel make the table of this process's descriptors large enough for so many at once.
///
/// The table doubles when it is full. In a process with several threads the kernel waits each time
/// until no processor can read the old one any more (`synchronize_rcu`), tens of milliseconds on a
/// busy machine, and every thread that opens or accepts something waits with it: a crowd would stop
/// the network threads once for each doubling, at its beginning. A table never shrinks, and takes 8
/// bytes for each descriptor.
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
        DescriptorBudget::new(usize::MAX, 0, 0)
    }
}

impl Drop for DescriptorHold {
    fn drop(&mut self) {
        let counter = match self.class {
            Class::Held => &self.counts.held,
            Class::Cached => &self.counts.cached,
        };
        counter.fetch_sub(self.count, Relaxed);
    }
}

/// `held=3 held_max=72 cached=12 given_back=0 refused=0`.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_a_part_of_the_room_to_connections_however_many_are_held() {
        // As with 256 descriptors.
        let budget = DescriptorBudget::new(192, 192, 1);
        let mut holds = Vec::new();
        while let Some(hold) = budget.hold(1) {
            holds.push(hold);
            budget.connections_are(0, holds.len());
        }
        assert_eq!(holds.len(), (192 - 192 / CONNECTIONS_PART) / 2);
        assert_eq!(budget.places(), 192 - holds.len());
        assert!(budget.places() - holds.len() >= 192 / CONNECTIONS_PART);
        let figures = budget.figures();
        assert_eq!((figures.held, figures.refused), (holds.len(), 1));
        holds.pop();
        assert!(budget.hold(2).is_none());
        drop(budget.hold(1).expect("as many as were given back"));
        drop(holds);
        assert_eq!((budget.figures().held, budget.places()), (0, usize::MAX));
    }

    #[test]
    fn it_is_roomy_until_half_of_what_files_may_hold_is_held() {
        let budget = DescriptorBudget::new(192, 192, 1);
        let files_max = budget.figures().held_max;
        let half = budget.hold(files_max / 2).expect("room");
        assert!(budget.is_roomy());
        let more = budget.hold(1).expect("room");
        assert!(!budget.is_roomy());
        drop((half, more));
        assert!(budget.is_roomy() && DescriptorBudget::default().is_roomy());
    }

    #[test]
    fn connections_that_fill_the_room_leave_files_the_spare_alone() {
        let budget = DescriptorBudget::new(192, 192, 2);
        budget.connections_are(0, 100);
        budget.connections_are(1, 92);
        let holds: Vec<_> = std::iter::from_fn(|| budget.hold(1)).collect();
        assert_eq!(holds.len(), DESCRIPTORS_SPARE);
        // Each network thread closes what rests until this many are left.
        assert_eq!(budget.places(), (192 - DESCRIPTORS_SPARE) / 2);
        budget.connections_are(0, 90);
        assert!(budget.hold(10).is_some());
    }

    #[test]
    fn what_connections_may_not_take_is_for_files() {
        assert_eq!(DescriptorBudget::new(192, 10, 1).figures().held_max, 182);
        let budget = DescriptorBudget::default();
        assert!(budget.hold(1 << 40).is_some());
    }

    #[test]
    fn the_smallest_room_has_some_for_files() {
        // Of the least with which a server starts, half is reserved.
        let room = crate::limits::DESCRIPTORS_MIN as usize / 2;
        assert!(DescriptorBudget::new(room, room, 1).hold(3).is_some());
        assert!(DescriptorBudget::new(0, 0, 1).hold(1).is_none());
    }

    #[test]
    fn caches_give_back_what_connections_and_files_come_near_to() {
        // As with 256 descriptors: 12 of them are left free.
        let budget = DescriptorBudget::new(192, 192, 1);
        let mut cached: Vec<_> = (0..60).map(|_| budget.cache(2)).collect();
        budget.connections_are(0, 60);
        assert_eq!((budget.excess(), budget.caches_block()), (0, false));
        assert_eq!(budget.await_excess(Duration::ZERO), 0);
        budget.connections_are(0, 66);
        assert_eq!((budget.excess(), budget.caches_block()), (6, false));
        let hold = budget.hold(6).expect("caches give way");
        assert_eq!((budget.excess(), budget.caches_block()), (12, true));
        let wished = budget.await_excess(Duration::from_secs(60));
        assert_eq!(wished, 24, "and as much again as is left free");
        drop(cached.split_off(60 - wished / 2));
        budget.gave_back(wished);
        assert_eq!((budget.excess(), budget.caches_block()), (0, false));
        let figures = budget.figures();
        assert_eq!((figures.cached, figures.given_back), (96, 24));
        budget.connections_are(0, 192);
        assert_eq!(budget.excess(), 96, "no more than there is");
        drop((cached, hold));
        assert_eq!((budget.excess(), budget.figures().cached), (0, 0));
    }

    #[test]
    fn what_the_kernel_misses_is_given_back_once() {
        let budget = DescriptorBudget::new(192, 192, 1);
        let _cached = budget.cache(100);
        budget.ran_out();
        assert_eq!(budget.excess(), 12);
        assert_eq!(budget.await_excess(Duration::from_secs(60)), 24);
        assert_eq!(budget.await_excess(Duration::ZERO), 0);
    }

    #[test]
    fn a_hold_waits_for_caches_and_not_for_ever() {
        let budget = DescriptorBudget::new(192, 192, 1);
        let cached = budget.cache(200);
        let owner = budget.clone();
        let closer = std::thread::spawn(move || {
            while owner.await_excess(Duration::from_secs(60)) == 0 {}
            drop(cached);
        });
        assert!(budget.hold(2).is_some());
        closer.join().expect("it was woken");
        let _stuck = budget.cache(300);
        assert!(budget.hold(2).is_some(), "the kernel decides then");
    }
}
