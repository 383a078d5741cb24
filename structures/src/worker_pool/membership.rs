//! The cold half of a pool: who is in it, who was asked to leave, who waits for that.
//!
//! One lock around plain fields. Nothing here runs while workers take work: they read `orders`, a
//! word that is written under this lock, and come here only to join or to leave.
//!
//! Invariants
//! - I1: `workers` <= `workers_max`, and each of them has an entry. Who is about to leave has none
//!   any more, so that a newcomer may take the place at once: work that finds nobody idle at that
//!   moment is not stranded.
//! - I2: `requested` - `answered` = `wanted` + victims that did not leave yet. A worker that leaves
//!   for another reason answers a request as well, so that none outlives the last worker.
//! - I3: `orders` says `VICTIM` exactly while `wanted` > 0, and `STOP` once `is_stopping`.
//!
//! Cost: O(1) under the lock, plus one wake-up for each thread that waits for a departure.

use super::{STOP, Shared, VICTIM, WorkerPool};
use crate::sync::{Mutex, Ordering, Thread, current, edge, lock, now_ns, park_for};

const ORDERS: Ordering = edge!("worker_pool_orders_release", Release, Relaxed);

/// How a worker stands on the membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A worker with an entry.
    Working,
    /// Idled too long. About to leave, without an entry.
    Retired,
    /// Owes its departure to one request of `stop_one`. About to leave, without an entry.
    Victim,
}

#[derive(Debug, Default)]
pub(super) struct Membership {
    workers: u32,
    /// Workers that are no workers any more, but not dropped yet.
    leaving: u32,
    /// Entries used so far, and those of them that are free again.
    touched: u32,
    vacant: Vec<u32>,
    /// A worker of `grow` has not arrived yet.
    is_starting: bool,
    is_stopping: bool,
    /// Requests that no worker has claimed yet.
    wanted: u32,
    requested: u64,
    answered: u64,
    waiters: Vec<Thread>,
}

impl Membership {
    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    pub(super) fn touched(&self) -> u32 {
        self.touched
    }

    pub(super) fn is_empty(&self) -> bool {
        self.workers + self.leaving == 0
    }

    fn has_surplus(&self, shared: &Shared) -> bool {
        self.workers > shared.limits.workers_min
    }

    /// An entry for a newcomer, if there is room.
    pub(super) fn add(&mut self, shared: &Shared, is_starting: bool) -> Option<u32> {
        let is_early = is_starting && self.is_starting;
        if self.is_stopping || is_early || self.workers == shared.limits.workers_max {
            return None;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            // I1: fewer than `workers_max` entries are in use.
            self.touched += 1;
            self.touched - 1
        });
        self.workers += 1;
        self.is_starting |= is_starting;
        self.publish(shared);
        Some(index)
    }

    pub(super) fn arrive(&mut self, shared: &Shared) {
        self.is_starting = false;
        self.publish(shared);
    }

    pub(super) fn stop(&mut self, shared: &Shared) {
        self.is_stopping = true;
        self.publish(shared);
    }

    /// One more worker shall leave. The number of the request, unless all were asked already.
    pub(super) fn request(&mut self, shared: &Shared) -> Option<u64> {
        let on_their_way = self.requested - self.answered;
        if on_their_way >= self.present() {
            return None;
        }
        self.wanted += 1;
        self.requested += 1;
        self.publish(shared);
        Some(self.requested)
    }

    /// Whether the caller is the victim of a request from now on. If so, its entry is gone.
    pub(super) fn claim(&mut self, shared: &Shared, index: u32) -> bool {
        let is_wanted = self.wanted > 0;
        if is_wanted {
            self.wanted -= 1;
            self.leaving += 1;
            self.release(shared, index);
        }
        is_wanted
    }

    /// Whether the caller, who idled too long, is not needed. If so, its entry is gone.
    pub(super) fn retire(&mut self, shared: &Shared, index: u32) -> bool {
        let retires = self.has_surplus(shared);
        if retires {
            self.leaving += 1;
            self.release(shared, index);
        }
        retires
    }

    /// The worker is gone: tells those who wait for a departure.
    pub(super) fn leave(&mut self, shared: &Shared, index: u32, state: State) {
        match state {
            State::Working => self.release(shared, index),
            State::Retired | State::Victim => self.leaving -= 1,
        }
        if state == State::Victim {
            self.answered += 1;
        } else if self.wanted > 0 {
            self.wanted -= 1;
            self.answered += 1;
            self.publish(shared);
        }
        self.waiters.drain(..).for_each(|waiter| waiter.unpark());
    }

    /// Gives back the entry of a worker, which is off the idle stack for good.
    fn release(&mut self, shared: &Shared, index: u32) {
        *lock(&shared.entries.at(index).thread) = None;
        self.workers -= 1;
        self.vacant.push(index);
        self.publish(shared);
    }

    fn present(&self) -> u64 {
        u64::from(self.workers) + u64::from(self.leaving)
    }

    /// I3, and the hints.
    fn publish(&self, shared: &Shared) {
        let stop = if self.is_stopping { STOP } else { 0 };
        let victim = if self.wanted > 0 { VICTIM } else { 0 };
        // ORDER: E4 of the pool.
        shared.orders.store(stop | victim, ORDERS);
        let is_full = self.workers == shared.limits.workers_max;
        let may_grow = !(is_full || self.is_starting || self.is_stopping);
        // ORDER: relaxed; both are hints, see `grow` and `IdleClock`.
        shared.may_grow.store(may_grow, Ordering::Relaxed);
        let has_surplus = self.has_surplus(shared);
        shared.has_surplus.store(has_surplus, Ordering::Relaxed);
    }
}

/// A request that a worker leave; made by [`WorkerPool::stop_one`]. It stands even if this is
/// dropped.
///
/// It keeps the pool's storage alive, so it may outlast the last worker and every other handle.
#[derive(Debug)]
#[must_use = "the request stands; this is how to wait for it"]
pub struct StopHandle {
    pool: WorkerPool,
    number: u64,
}

impl StopHandle {
    pub(super) fn new(pool: WorkerPool, number: u64) -> StopHandle {
        StopHandle { pool, number }
    }

    /// Waits until as many workers left as were asked to, this request included, at most
    /// `timeout_ns`. Returns whether they have; may be called again.
    pub fn wait(&self, timeout_ns: u64) -> bool {
        let number = self.number;
        let has_left = |membership: &Membership| membership.answered >= number;
        wait_until(&self.pool.shared.membership, timeout_ns, has_left)
    }
}

/// Waits until `is_done`, which some departure makes true, at most `timeout_ns`.
pub(super) fn wait_until(
    membership: &Mutex<Membership>,
    timeout_ns: u64,
    is_done: impl Fn(&Membership) -> bool,
) -> bool {
    let deadline_ns = now_ns().saturating_add(timeout_ns);
    let this = current();
    loop {
        let left_ns = deadline_ns.saturating_sub(now_ns());
        {
            let mut membership = lock(membership);
            let done = is_done(&membership);
            // Every departure takes the handles out; this one is in at most once.
            membership.waiters.retain(|waiter| waiter.id() != this.id());
            if done || left_ns == 0 {
                return done;
            }
            membership.waiters.push(this.clone());
        }
        park_for(left_ns);
    }
}
