//! Concurrency limit: how many jobs may be inside at a time, so that slow ones leave workers to
//! others. A job that finds it full waits until another one leaves. Without a lock and a clock.
//!
//! Other names: semaphore, bulkhead. There are two kinds of it, and a job enters them in a chain:
//!
//! - that of the listeners of a server, here as [`Listeners`], when it is dispatched. Each listener
//!   is guaranteed a few workers, and the rest is common: a listener with more jobs inside than it
//!   is guaranteed takes the others from the common rest. In a server with one listener only what
//!   was asked for it bounds it.
//! - that of a mount, or of anything else that may block (`blocking.rs`), while a worker runs it.
//!   A job that has to wait there has left that of its listener, because it holds no worker; when
//!   it goes on, it is inside again at once. So a listener may be beyond its bound by such jobs for
//!   a while, and none of its others enters meanwhile.
//!
//! Invariants
//! - K1: `common_used` is the sum over all members of what is inside beyond the guarantee. Without
//!   [`ConcurrencyLimit::enter_beyond`] it is at most `common`.
//! - K2: a job waits only if its member may not have one more of its rank inside: another one is
//!   inside, and the caller asks for the next when that leaves.
//! - K3: jobs of one member and one rank enter in the order in which they came to wait.
//!
//! Jobs that come after others ([`Rank`]) leave half of the common rest, and of a bound of their
//! member's, to those that do not: a crowd of one address does not make others wait for a worker.
//!
//! The bound of what waits is the caller's: that of the jobs in flight, or one of its own.
//!
//! Cost: entering and leaving are O(1); `next` walks over the members, only while jobs wait.

use std::sync::atomic::{AtomicU32, Ordering};

use flatpath_structures::lock::Lock;

use crate::episode::Episode;
use crate::limits::LISTENER_PATIENCE_NS;
use crate::worker::{Rank, Ranked};

/// See the module. `T` is a job that waits.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit<T> {
    members: Vec<Member<T>>,
    guaranteed: u32,
    common: u32,
    common_used: u32,
    /// Jobs that wait, of all members.
    waiting: usize,
    /// The member whose turn it is when another one leaves.
    turn: usize,
}

#[derive(Debug)]
struct Member<T> {
    max: u32,
    inside: u32,
    waiting: Ranked<T>,
}

impl<T> ConcurrencyLimit<T> {
    /// For one member, with this bound.
    pub(crate) fn alone(max: u32) -> ConcurrencyLimit<T> {
        ConcurrencyLimit::of(1, (u32::MAX, 0), max)
    }

    /// For members that divide `places`: a quarter is guaranteed to all of them together, and one
    /// place to each at least. A single one may have them all, and more.
    pub(crate) fn divided(places: u32, members: usize) -> ConcurrencyLimit<T> {
        let count = u32::try_from(members).expect("members are few").max(1);
        let parts = match count {
            1 => (u32::MAX, 0),
            _ => {
                let guaranteed = (places / 4 / count).max(1);
                let kept = guaranteed.saturating_mul(count);
                (guaranteed, places.saturating_sub(kept))
            }
        };
        ConcurrencyLimit::of(count, parts, u32::MAX)
    }

    fn of(count: u32, (guaranteed, common): (u32, u32), max: u32) -> ConcurrencyLimit<T> {
        let member = |_| Member {
            max,
            inside: 0,
            waiting: Ranked::new(),
        };
        ConcurrencyLimit {
            members: (0..count).map(member).collect(),
            guaranteed,
            common,
            common_used: 0,
            waiting: 0,
            turn: 0,
        }
    }

    /// The member's bound from now on. A job that may enter only now does so when the next leaves
    /// (K2).
    pub(crate) fn set_max(&mut self, member: usize, max: u32) {
        self.members[member].max = max;
    }

    fn may_enter(&self, member: usize, rank: Rank) -> bool {
        let part = |whole: u32| match rank {
            Rank::Next => whole,
            Rank::AfterOthers => whole.div_ceil(2),
        };
        let Member { max, inside, .. } = self.members[member];
        inside < part(max) && (inside < self.guaranteed || self.common_used < part(self.common))
    }

    /// A job enters, if it may.
    #[inline]
    pub(crate) fn enter(&mut self, member: usize, rank: Rank) -> bool {
        let may = self.may_enter(member, rank);
        if may {
            self.enter_beyond(member);
        }
        may
    }

    /// A job enters, whatever the bound.
    pub(crate) fn enter_beyond(&mut self, member: usize) {
        let inside = &mut self.members[member].inside;
        self.common_used += u32::from(*inside >= self.guaranteed);
        *inside += 1;
    }

    /// A job that may not enter waits for that, after those of its member and rank.
    pub(crate) fn wait(&mut self, member: usize, job: T, rank: Rank) {
        let may_enter = self.may_enter(member, rank);
        debug_assert!(!may_enter, "K2: a job waits that may enter");
        self.members[member].waiting.push(job, rank);
        self.waiting += 1;
    }

    /// A job leaves. Ask for the [`next`](ConcurrencyLimit::next) until there is none.
    #[inline]
    pub(crate) fn leave(&mut self, member: usize) {
        let inside = &mut self.members[member].inside;
        debug_assert!(*inside > 0, "K1: more jobs left than entered");
        *inside -= 1;
        self.common_used -= u32::from(*inside >= self.guaranteed);
    }

    /// The next job that may enter, which is inside then. Members take turns.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        let count = self.members.len();
        let mut in_turn = (self.turn..self.turn + count).map(|at| at % count);
        let (member, job) = in_turn.find_map(|at| {
            let may_enter = [Rank::Next, Rank::AfterOthers].map(|rank| self.may_enter(at, rank));
            let waiting = &mut self.members[at].waiting;
            Some((at, waiting.pop(|rank| may_enter[rank as usize])?))
        })?;
        self.turn = member + 1;
        self.enter_beyond(member);
        self.waiting -= 1;
        Some(job)
    }

    /// Takes the jobs that wait and are `wanted`, each member's oldest first; they do not enter.
    pub(crate) fn take_waiting(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let members = self.members.iter_mut();
        let taken: Vec<T> = members
            .flat_map(|member| member.waiting.take(&wanted))
            .collect();
        self.waiting -= taken.len();
        taken
    }

    pub(crate) fn inside(&self, member: usize) -> u32 {
        self.members[member].inside
    }

    /// Jobs that wait, of all members.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The jobs of a member that wait.
    pub(crate) fn waiting_of(&self, member: usize) -> &Ranked<T> {
        &self.members[member].waiting
    }
}

/// The concurrency limit of the listeners of a server, by their numbers. Jobs are the indices of
/// their places in the table of `worker.rs`, where those lie that wait.
///
/// Any thread may call any of it: everything is under one lock, for some ten nanoseconds.
#[derive(Debug)]
pub(crate) struct Listeners {
    limit: Lock<ConcurrencyLimit<Waiting>>,
    /// Jobs that wait, for those that only want to know whether there are any.
    waiting: AtomicU32,
    /// Of each listener: its jobs waited for long.
    waits: Box<[Episode]>,
}

#[derive(Debug)]
struct Waiting {
    index: u32,
    since_ns: u64,
}

/// A listener whose jobs wait for long, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongWait {
    pub(crate) listener: usize,
    pub(crate) waiting: usize,
    pub(crate) inside: u32,
}

impl Listeners {
    pub(crate) fn new(workers_max: u32, listeners: usize) -> Listeners {
        Listeners {
            limit: Lock::new(ConcurrencyLimit::divided(workers_max, listeners)),
            waiting: AtomicU32::new(0),
            waits: (0..listeners).map(|_| Episode::new()).collect(),
        }
    }

    /// The most workers for a listener, if there is such a bound; 0 is as 1.
    pub(crate) fn set_max(&self, listener: usize, max: Option<u32>) {
        let max = max.unwrap_or(u32::MAX).max(1);
        self.limit.lock().set_max(listener, max);
    }

    /// A job enters; or it waits where it lies, and `waits` is called before any other thread can
    /// find it: then false.
    #[inline]
    pub(crate) fn enter(
        &self,
        (listener, rank): (usize, Rank),
        (index, now_ns): (u32, u64),
        waits: impl FnOnce(),
    ) -> bool {
        let mut limit = self.limit.lock();
        let enters = limit.enter(listener, rank);
        if !enters {
            waits();
            let since_ns = now_ns;
            limit.wait(listener, Waiting { index, since_ns }, rank);
            self.note_waiting(&limit);
        }
        enters
    }

    /// A job goes on that was parked meanwhile.
    pub(crate) fn enter_beyond(&self, listener: usize) {
        self.limit.lock().enter_beyond(listener);
    }

    /// A job leaves: `enters` is called with each that enters instead. Whether any does.
    #[inline]
    pub(crate) fn leave(&self, listener: usize, enters: impl Fn(u32)) -> bool {
        let mut limit = self.limit.lock();
        limit.leave(listener);
        let mut any = false;
        while let Some(next) = limit.next() {
            self.note_waiting(&limit);
            drop(limit);
            enters(next.index);
            any = true;
            limit = self.limit.lock();
        }
        any
    }

    /// Takes the jobs that wait and whose index is `wanted`: they wait no more, and are not inside.
    pub(crate) fn take_waiting(&self, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut limit = self.limit.lock();
        let taken = limit.take_waiting(|waiting| wanted(waiting.index));
        self.note_waiting(&limit);
        taken.into_iter().map(|job| job.index).collect()
    }

    /// Jobs that wait now. One load.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        // ORDER: Relaxed: the lock orders what is counted, and nobody sleeps on this.
        self.waiting.load(Ordering::Relaxed)
    }

    fn note_waiting(&self, limit: &ConcurrencyLimit<Waiting>) {
        let waiting = u32::try_from(limit.waiting()).unwrap_or(u32::MAX);
        // ORDER: Relaxed: see `waiting`.
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// The listeners whose oldest job has waited for [`LISTENER_PATIENCE_NS`], each once for an
    /// [`Episode`] of such waits.
    pub(crate) fn long_waits(&self, now_ns: u64) -> Vec<LongWait> {
        let limit = self.limit.lock();
        let waits = self.waits.iter().enumerate().filter_map(|(at, episode)| {
            let waiting = limit.waiting_of(at);
            let since_ns = waiting.fronts().map(|job| job.since_ns).min()?;
            let is_long = now_ns >= since_ns.saturating_add(LISTENER_PATIENCE_NS);
            (is_long && episode.begins_at(now_ns)).then(|| LongWait {
                listener: at,
                waiting: waiting.len(),
                inside: limit.inside(at),
            })
        });
        waits.collect()
    }
}

#[cfg(test)]
mod tests;
