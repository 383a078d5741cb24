//! Eventfds that a network thread is to look at, and what it has of each.
//!
//! Invariants
//! - V1: an entry is in the queue at most once, and whoever changes what is wanted puts it there
//!   afterwards; so the thread sees the last word, however often it changed.
//! - V2: the queue has room for every entry of its thread that was ever wanted, so that only the
//!   first look can fail for want of memory.
//! - V3: a queue that is closed takes nothing: nobody would look.
//!
//! Ordering
//! - V-E1 listed: push, then `any` set (Release) -> `take` clears it (Acquire). The waker's fences
//!   order `any` before the sleep test.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath_driver::Eventfd;

use crate::pairing::ends::Refused;
use crate::pairing::gate::Gate;

/// What a network thread has of an eventfd.
pub(crate) struct WatchEntry {
    pub(crate) event: Arc<Eventfd>,
    pub(crate) gate: Gate,
    pub(crate) wanted: AtomicBool,
    /// Stands in the queue; changed under its lock.
    is_listed: AtomicBool,
    /// The thread's number of it; for the thread alone.
    pub(crate) place: AtomicU64,
    _member: Member,
}

impl WatchEntry {
    /// One that nobody wants yet, for the thread with this queue.
    pub(crate) fn new(event: Eventfd, queue: &WatchQueue) -> WatchEntry {
        WatchEntry {
            event: Arc::new(event),
            gate: Gate::default(),
            wanted: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            place: AtomicU64::new(u64::MAX),
            _member: queue.member(),
        }
    }

    /// Whether it is connected, as far as this thread knows by now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct WatchQueue {
    list: Mutex<List>,
    any: AtomicBool,
    /// Sources that may be listed.
    members: Arc<AtomicUsize>,
}

/// What an entry may need besides a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Room for this and all later looks at it (V2).
    Room,
}

/// One that may be listed.
struct Member(Arc<AtomicUsize>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct List {
    sources: Vec<Arc<WatchEntry>>,
    is_closed: bool,
    is_out_of_memory: bool,
}

impl List {
    fn make_room(&mut self, members: usize) -> Result<(), Refused> {
        if self.is_out_of_memory {
            return Err(Refused::NoMemory);
        }
        let more = members.saturating_sub(self.sources.len());
        self.sources
            .try_reserve(more)
            .map_err(|_| Refused::NoMemory)
    }
}

impl WatchQueue {
    fn member(&self) -> Member {
        self.members.fetch_add(1, Ordering::Relaxed);
        Member(Arc::clone(&self.members))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // Nothing under the lock panics half way.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, source: &Arc<WatchEntry>, need: Need) -> Result<(), Refused> {
        let mut list = self.list();
        if list.is_closed {
            return Err(Refused::ShutDown);
        }
        if need == Need::Room {
            list.make_room(self.members.load(Ordering::Relaxed))?;
        }
        if !source.is_listed.load(Ordering::Relaxed) {
            if list.sources.len() == list.sources.capacity() {
                return Err(Refused::NoMemory);
            }
            list.sources.push(Arc::clone(source));
            // ORDER: Relaxed: under the lock.
            source.is_listed.store(true, Ordering::Relaxed);
        }
        // ORDER: V-E1.
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there is something to take.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<Arc<WatchEntry>> {
        // ORDER: V-E1.
        if !self.any() || !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list();
        // Its room stays (V2).
        let sources: Vec<_> = list.sources.drain(..).collect();
        // Under the lock, and before anybody looks at what is wanted (V1).
        for source in &sources {
            // ORDER: Relaxed: under the lock.
            source.is_listed.store(false, Ordering::Relaxed);
        }
        sources
    }

    /// The thread ends: nothing is taken from now on (V3).
    pub(crate) fn close(&self) {
        let mut list = self.list();
        list.is_closed = true;
        list.sources = Vec::new();
    }

    /// From now on there is no memory for it, or there is again; for simulations.
    pub(crate) fn starve(&self, is_out_of_memory: bool) {
        self.list().is_out_of_memory = is_out_of_memory;
    }
}
