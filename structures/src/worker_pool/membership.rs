//! The cold half of a pool: which entries have a worker.
//!
//! One lock around plain fields. Nothing here runs while workers take work: they read `is_stopping`
//! of the pool, which is written under this lock, and come here only to register or to leave.
//!
//! Invariants
//! - J1: `workers` <= `workers_max`, and each of them has an entry. A worker that has retired gives
//!   its entry up before it is dropped, so that a newcomer may take the place at once: work that
//!   finds no idle worker at that moment is not stranded.
//! - J2: the pool's `is_stopping`, `may_grow` and `has_surplus` follow every change.
//!
//! Cost: O(1) under the lock.

use super::Shared;
use crate::sync::{Ordering, edge, lock};

const STOP: Ordering = edge!("worker_pool_stop_release", Release, Relaxed);

#[derive(Debug, Default)]
pub(super) struct Membership {
    workers: u32,
    /// Entries used so far, and those of them that are free again.
    touched: u32,
    vacant: Vec<u32>,
    is_stopping: bool,
}

impl Membership {
    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    pub(super) fn touched(&self) -> u32 {
        self.touched
    }

    fn has_surplus(&self, shared: &Shared) -> bool {
        self.workers > shared.limits.workers_min
    }

    /// An entry for a newcomer, if there is room.
    pub(super) fn add(&mut self, shared: &Shared) -> Option<u32> {
        if self.is_stopping || self.workers == shared.limits.workers_max {
            return None;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            // J1: fewer than `workers_max` entries are in use.
            self.touched += 1;
            self.touched - 1
        });
        self.workers += 1;
        self.publish(shared);
        Some(index)
    }

    /// How many workers may be active.
    pub(super) fn limit(&mut self, shared: &Shared, active_max: u32) {
        if !self.is_stopping {
            // ORDER: E6 of the pool: the caller's fence comes next.
            shared.active_max.store(active_max, Ordering::Relaxed);
            self.publish(shared);
        }
    }

    pub(super) fn stop(&mut self, shared: &Shared) {
        self.is_stopping = true;
        // All help with the work that is left; a worker that sees the stop sees this.
        // ORDER: E4 of the pool: published by the next store.
        shared.active_max.store(u32::MAX, Ordering::Relaxed);
        // ORDER: E4 of the pool.
        shared.is_stopping.store(true, STOP);
        self.publish(shared);
    }

    /// Whether the caller, which idled too long, is not needed. If so, its entry is gone.
    pub(super) fn retire(&mut self, shared: &Shared, index: u32) -> bool {
        let retires = self.has_surplus(shared);
        if retires {
            self.release(shared, index);
        }
        retires
    }

    /// Gives back the entry of a worker, which is off the idle stack for good.
    pub(super) fn release(&mut self, shared: &Shared, index: u32) {
        *lock(&shared.entries.at(index).thread) = None;
        self.workers -= 1;
        self.vacant.push(index);
        self.publish(shared);
    }

    /// What the pool reads without the lock follows every change (J2).
    fn publish(&self, shared: &Shared) {
        let workers_max = shared.limits.workers_max;
        let is_limited = shared.active_max.load(Ordering::Relaxed) < workers_max;
        let may_grow = !self.is_stopping && (is_limited || self.workers < workers_max);
        // ORDER: relaxed; both are hints, see `WorkerPool::may_grow` and `IdleClock`.
        shared.may_grow.store(may_grow, Ordering::Relaxed);
        let has_surplus = self.has_surplus(shared);
        shared.has_surplus.store(has_surplus, Ordering::Relaxed);
    }
}
