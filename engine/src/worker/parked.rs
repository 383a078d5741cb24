//! How many jobs of each listener of one network thread wait for a
//! [`Share`](crate::blocking::Share), without a worker. Workers count, the network thread reads.
//!
//! | | add, remove, tell | of, told |
//! |-|-|-|
//! | by | any worker | the network thread |
//!
//! Invariants
//! - K1: a job is removed before its index is queued, so what the network thread reads when the
//!   job has come back does not count it.
//! - K2: `tell` is before the wake-up, so that the thread looks before it sleeps.
//!
//! Ordering: K1 by the edges of the queue and the inbox, K2 by those of the waker; `told` is before
//! the counts are read.
//!
//! Cost: one load for the network thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct Parked {
    by_listener: Box<[AtomicU32]>,
    /// A count has gone up since the network thread looked.
    has_more: AtomicBool,
}

impl Parked {
    pub(super) fn new(listeners: usize) -> Parked {
        Parked {
            by_listener: (0..listeners).map(|_| AtomicU32::new(0)).collect(),
            has_more: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn of(&self, listener: u16) -> u32 {
        self.by_listener[usize::from(listener)].load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, listener: u16) {
        self.by_listener[usize::from(listener)].fetch_add(1, Ordering::Relaxed);
    }

    /// A parked job is about to be queued again.
    pub(super) fn remove(&self, listener: u16) {
        self.by_listener[usize::from(listener)].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn tell(&self) {
        // ORDER: Release: with `told`, publishes the count.
        self.has_more.store(true, Ordering::Release);
    }

    /// Whether a count has gone up since `told`.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    /// Call before the counts are read.
    pub(super) fn told(&self) {
        // ORDER: Acquire: see `tell`.
        self.has_more.swap(false, Ordering::Acquire);
    }
}
