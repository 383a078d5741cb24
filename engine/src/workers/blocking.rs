//! Limits for calls that may block for a common reason: they must not take all of the workers.
//!
//! A file system that hangs keeps every worker that asks it. Jobs that are about to ask one enter
//! its [`BlockingLimit`] first, and at most half of the workers are inside at a time, or fewer if
//! it was made by [`BlockingLimit::at_most`]. A job that finds the limit full waits without a
//! worker: it is put back where it lay ([`Entry::Parked`]) and runs again from its beginning when
//! its turn has come. Where nothing inside has moved for a while, or too many wait, it is refused
//! ([`Entry::Refused`]) and answers in its protocol's words.
//!
//! Jobs that wait for a stuck limit are sent back by the housekeeper (`watch`).
//!
//! | may run beside | enter | leave (drop of [`Permit`]) | refuse_stuck |
//! |----------------|-------|----------------------------|--------------|
//! | each of them   | yes   | yes                        | yes          |
//!
//! Invariants
//! - T1: jobs wait only while the limit is full (K2 of `concurrency_limit`); one that leaves hands
//!   its place to the oldest of them.
//! - T2: a waiting job's index is in no queue, mailbox or free list. It lies in its place of the
//!   table, and goes back to the queue once (see W1 of `worker`).
//! - T3: within one run a job takes at most one place in a limit, and waits for one at most once. A
//!   job that asks again while it is inside enters without another place; one that was told
//!   `Parked` gets the same answer again.
//!
//! Ordering: everything is under one lock. A job is parked after it was put in its place, and the
//! limit is looked at again then, so that no leaving is missed.
//!
//! A job that waits here has left the limit of its listener until it is queued again.
//!
//! Cost: a lock, a reading of the clock and a small allocation to enter; the first two to leave.

mod visitor;
mod watch;

mod mounts;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use flatpath_structures::lock::{Guard, Lock};

use crate::observe::episode::Episode;
use crate::workers::Rank;
use crate::workers::concurrency_limit::ConcurrencyLimit;

pub(crate) use visitor::Visitor;

/// Of the workers, one in this many may be inside.
const WORKERS_DIVISOR: u32 = 2;

/// A concurrency limit for calls that may block for a common reason, such as one mount. A clone is
/// the same limit.
#[derive(Clone, Debug)]
pub struct BlockingLimit(Arc<Inner>);

/// Bounds on what waits for a limit.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// Jobs that wait for a place inside; more are refused.
    pub waiting_max: usize,
    /// A full limit that no job has entered or left for this time is stuck: no job waits for it.
    pub stuck_after: Duration,
}

/// Counts of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingFigures {
    /// Workers inside now.
    pub inside: u32,
    /// Jobs that wait now.
    pub waiting: usize,
    /// Jobs that had to wait, ever.
    pub waited: u64,
    /// Jobs that were refused, ever.
    pub refused: u64,
}

/// The outcome for a job that asks to enter.
#[derive(Debug)]
#[must_use]
// Exhaustive: a job has to act on each.
pub enum Entry {
    /// It is inside until this is dropped.
    Entered(Permit),
    /// It has to return at once, without effect: it runs again when there is room.
    Parked,
    /// It must not ask, and should say that it is busy.
    Refused,
}

/// A job's permit to be inside, given back when dropped; of a job that has asked again, with the
/// last of them.
#[derive(Debug)]
pub struct Permit(Arc<Taken>);

/// A place that a job has.
#[derive(Debug)]
struct Taken {
    limit: BlockingLimit,
}

#[derive(Debug)]
struct Inner {
    name: String,
    limits: WaitLimits,
    inside_max: u32,
    state: Lock<State>,
    /// It is full.
    full: Episode,
}

#[derive(Debug)]
struct State {
    limit: ConcurrencyLimit<Parked>,
    /// Jobs that were told `Parked` and do not wait in `limit` yet.
    parking: usize,
    moved: Instant,
    waited: u64,
    refused: u64,
}

/// All jobs are of one member of the concurrency limit.
const ONLY: usize = 0;

/// Where jobs that wait for a limit lie.
pub(crate) trait Home: Send + Sync {
    fn workers_max(&self) -> u32;
    /// Queues a job again, with its place in the limit if it has one.
    fn resume(&self, index: u32, grant: Option<Permit>);
}

/// A job that waits, and where it lies.
struct Parked {
    home: Weak<dyn Home>,
    index: u32,
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Parked").field(&self.index).finish()
    }
}

impl BlockingLimit {
    /// A limit with no job inside; `name` is what the log calls it.
    pub fn new(name: impl Into<String>, limits: WaitLimits) -> Self {
        Self::at_most(u32::MAX, name, limits)
    }

    /// The same with at most `inside_max` jobs inside, and at least one: for work that is heavy on
    /// the processor.
    pub fn at_most(inside_max: u32, name: impl Into<String>, limits: WaitLimits) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            limits,
            inside_max: inside_max.max(1),
            state: Lock::new(State {
                limit: ConcurrencyLimit::alone(1),
                parking: 0,
                moved: Instant::now(),
                waited: 0,
                refused: 0,
            }),
            full: Episode::until_ended(),
        }))
    }

    /// What the log calls it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Asks for a place inside, for the job that a worker runs.
    pub(crate) fn enter_for(&self, job: &mut Visitor) -> Entry {
        // A job waits once in a run (T3).
        if job.parked.is_some() {
            return Entry::Parked;
        }
        if let Some(inside) = job.place_in(self) {
            return Entry::Entered(inside);
        }
        if let Some(granted) = job.granted.take_if(|granted| granted.0.limit.is(self)) {
            return job.enters(granted);
        }
        let mut state = self.state();
        if state.enter(self.permits(job.workers_max)) {
            drop(state);
            return job.enters(self.permit());
        }
        let entry = if self.is_stuck(&state) || state.waiting() >= self.0.limits.waiting_max {
            state.refused += 1;
            Entry::Refused
        } else {
            state.parking += 1;
            state.waited += 1;
            job.parked = Some(self.clone());
            Entry::Parked
        };
        let inside = state.limit.inside(ONLY);
        drop(state);
        if self.0.full.begins() {
            log::warn!(
                "{}: {inside} workers are in it, which is the limit: others wait or are refused",
                self.0.name
            );
        }
        entry
    }

    /// Sends the jobs that wait for a stuck limit back to workers, which find it stuck.
    fn refuse_stuck(&self) {
        let mut state = self.state();
        let is_stuck = self.is_stuck(&state);
        let waiting = state.limit.take_waiting(|_| is_stuck);
        drop(state);
        for parked in waiting {
            if let Some(home) = parked.home.upgrade() {
                home.resume(parked.index, None);
            }
        }
    }

    /// What it holds and has done.
    pub fn figures(&self) -> BlockingFigures {
        let state = self.state();
        BlockingFigures {
            inside: state.limit.inside(ONLY),
            waiting: state.waiting(),
            waited: state.waited,
            refused: state.refused,
        }
    }

    /// A job that was told `Parked` lies in its place again: it waits, or has its turn at once.
    pub(crate) fn park(&self, home: Arc<dyn Home>, index: u32) {
        let mut state = self.state();
        state.parking -= 1;
        if state.enter(self.permits(home.workers_max())) {
            drop(state);
            return home.resume(index, Some(self.permit()));
        }
        let home = Arc::downgrade(&home);
        state.limit.wait(ONLY, Parked { home, index }, Rank::Next);
        let is_first = state.limit.waiting() == 1;
        drop(state);
        if is_first {
            watch::add(self);
        }
    }

    /// Whether a job waits in its place.
    fn is_waited_for(&self) -> bool {
        self.state().limit.waiting() > 0
    }

    /// A job that was told `Parked` does not wait after all.
    pub(crate) fn give_up(&self) {
        self.state().parking -= 1;
    }

    /// Permits in a server with `workers_max` workers: at least one, and where there are two
    /// workers, one stays free.
    fn permits(&self, workers_max: u32) -> u32 {
        let part = (workers_max / WORKERS_DIVISOR).max(1);
        part.min(self.0.inside_max)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn permit(&self) -> Permit {
        Permit(Arc::new(Taken {
            limit: self.clone(),
        }))
    }

    fn is_stuck(&self, state: &State) -> bool {
        state.moved.elapsed() >= self.0.limits.stuck_after
    }

    fn state(&self) -> Guard<'_, State> {
        // Nothing that could panic runs under the lock.
        self.0.state.lock()
    }

    /// Hands a place to the oldest job that waits (T1), or gives it up.
    fn leave(&self) {
        let mut state = self.state();
        state.moved = Instant::now();
        state.limit.leave(ONLY);
        while let Some(parked) = state.limit.next() {
            if let Some(home) = parked.home.upgrade() {
                drop(state);
                return home.resume(parked.index, Some(self.permit()));
            }
            state.limit.leave(ONLY);
        }
        let (inside, refused) = (state.limit.inside(ONLY), state.refused);
        drop(state);
        // The episode is over when none is left, so that a limit at its bound is logged once.
        if inside == 0 && self.0.full.end().is_some() {
            log::info!(
                "{}: no worker is in it any more ({refused} refused so far)",
                self.0.name
            );
        }
    }
}

impl State {
    /// Whether a job enters while there are `permits`.
    fn enter(&mut self, permits: u32) -> bool {
        self.limit.set_max(ONLY, permits);
        let enters = self.limit.enter(ONLY, Rank::Next);
        if enters {
            self.moved = Instant::now();
        }
        enters
    }

    fn waiting(&self) -> usize {
        self.limit.waiting() + self.parking
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.limit.leave();
    }
}

#[cfg(test)]
mod tests;
