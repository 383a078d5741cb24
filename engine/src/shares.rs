//! Worker shares: how many workers the jobs of each listener may occupy at a time, so that slow
//! jobs of one leave workers to the others. State of one network thread, touched by it alone.
//!
//! Each network thread has a part of the workers. Of that part each of its listeners is guaranteed
//! a few, and the rest is common: a listener that has more jobs out than it is guaranteed takes
//! the others from the common rest. A job is *out* from its dispatch until the network thread has
//! it back. One that may not go out waits here, after those of its listener that wait already;
//! each job that comes back lets out the next that may go, the listeners in turn.
//!
//! A thread does not lend its part to another: so no count is shared between threads, and a job
//! that waits here is let out by this thread's own doing. The price: a listener whose connections
//! are all on one of several threads has the part of that thread only.
//!
//! A job that waits for a [`Share`](crate::blocking::Share) holds no worker, so it is *parked*: not
//! out until it is queued again. Then it is out at once, because a place that it waited for is kept
//! for it. Its listener may be beyond its share by such jobs for a while, and nothing else of it
//! goes out meanwhile.
//!
//! Jobs that come after others ([`Rank`]) leave half of the common rest, and of a bound of their
//! listener's, to those that do not: a crowd of one address does not make others wait for a worker
//! to come back.
//!
//! Invariants
//! - H1: `common_used` is the sum over all listeners of what is out beyond the guarantee. Without
//!   resumed jobs it is at most `common`.
//! - H2: a job waits only if its listener may not have one more of its rank out. (So it cannot be forgotten:
//!   something of this thread is out, and its return looks again.)
//! - H3: jobs of one listener and one rank go out in the order in which they came.
//!
//! The bound of what waits is that of the jobs in flight. Not here: shares of mounts or clients.
//!
//! Cost: `offer` and `returned` are O(1); `next` walks over the listeners, only while jobs wait.

use crate::limits::{SHARE_LOG_NS, SHARE_PATIENCE_NS};
use crate::worker::{Rank, Waiting};

/// What decides over shares, for one network thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareRule {
    /// The workers of this thread, or `None` in a server with one listener.
    pub(crate) workers: Option<u32>,
    /// The most for each of its listeners, in their order.
    pub(crate) listeners: Vec<Option<u32>>,
}

impl ShareRule {
    /// The rule for network thread `thread` of `threads`: `wanted` has for each of its listeners
    /// the most workers that were asked for it, on all threads together.
    pub(crate) fn of(
        workers_max: u32,
        (thread, threads): (u32, u32),
        listeners_in_all: usize,
        wanted: &[Option<u32>],
    ) -> ShareRule {
        let part = |whole: u32| (whole / threads + u32::from(thread < whole % threads)).max(1);
        ShareRule {
            workers: (listeners_in_all > 1).then(|| part(workers_max)),
            listeners: wanted.iter().map(|most| most.map(part)).collect(),
        }
    }
}

/// See the module. `T` is a job.
pub(crate) struct Shares<T> {
    listeners: Vec<Share<T>>,
    guaranteed: u32,
    common: u32,
    common_used: u32,
    /// Jobs that wait, of all listeners.
    waiting: usize,
    /// The listener whose turn it is when something comes back.
    turn: usize,
}

struct Share<T> {
    max: u32,
    out: u32,
    /// Jobs that are parked; `out` does not count them.
    parked: u32,
    waiting: Waiting<T>,
    /// When jobs of it last waited, and whether that was logged.
    waited_ns: u64,
    is_logged: bool,
}

impl<T> Shares<T> {
    pub(crate) fn new(rule: &ShareRule) -> Shares<T> {
        let count = u32::try_from(rule.listeners.len()).expect("listeners are few");
        let count = count.max(1);
        let (guaranteed, common) = match rule.workers {
            None => (u32::MAX, 0),
            Some(workers) => {
                // A quarter is kept for guarantees, and one worker each at least.
                let guaranteed = (workers / 4 / count).max(1);
                let kept = guaranteed.saturating_mul(count);
                (guaranteed, workers.saturating_sub(kept))
            }
        };
        let share = |max: &Option<u32>| Share {
            max: max.unwrap_or(u32::MAX),
            out: 0,
            parked: 0,
            waiting: Waiting::new(),
            waited_ns: 0,
            is_logged: false,
        };
        Shares {
            listeners: rule.listeners.iter().map(share).collect(),
            guaranteed,
            common,
            common_used: 0,
            waiting: 0,
            turn: 0,
        }
    }

    /// Has these bounds from now on. A job that may go out only now does so when the next comes
    /// back (H2).
    pub(crate) fn change(&mut self, rule: &ShareRule) {
        for (share, max) in self.listeners.iter_mut().zip(&rule.listeners) {
            share.max = max.unwrap_or(u32::MAX);
        }
    }

    fn may_go(&self, listener: usize, rank: Rank) -> bool {
        let part = |whole: u32| match rank {
            Rank::Next => whole,
            Rank::AfterOthers => whole.div_ceil(2),
        };
        let share = &self.listeners[listener];
        share.out < part(share.max)
            && (share.out < self.guaranteed || self.common_used < part(self.common))
    }

    fn goes(&mut self, listener: usize) {
        let share = &mut self.listeners[listener];
        self.common_used += u32::from(share.out >= self.guaranteed);
        share.out += 1;
    }

    /// A job is to go out: it is handed back if it may, else it waits.
    #[inline]
    pub(crate) fn offer(&mut self, listener: u16, job: T, rank: Rank, now_ns: u64) -> Option<T> {
        let listener = usize::from(listener);
        if self.may_go(listener, rank) {
            self.goes(listener);
            return Some(job);
        }
        let share = &mut self.listeners[listener];
        if share.waiting.is_empty() && now_ns >= share.waited_ns.saturating_add(SHARE_LOG_NS) {
            share.is_logged = false;
        }
        share.waiting.push(job, rank, now_ns);
        self.waiting += 1;
        None
    }

    /// A job is back. Call `next` until it has nothing.
    #[inline]
    pub(crate) fn returned(&mut self, listener: u16) {
        let share = &mut self.listeners[usize::from(listener)];
        debug_assert!(share.out > 0, "H1: more jobs came back than went out");
        share.out -= 1;
        self.common_used -= u32::from(share.out >= self.guaranteed);
    }

    /// `parked` jobs of a listener are parked now. Call `next` until it has nothing.
    #[inline]
    pub(crate) fn parked(&mut self, listener: u16, parked: u32) {
        let at = usize::from(listener);
        if self.listeners[at].parked == parked {
            return;
        }
        let before = std::mem::replace(&mut self.listeners[at].parked, parked);
        (parked..before).for_each(|_| self.goes(at));
        (before..parked).for_each(|_| self.returned(listener));
    }

    /// The next job that may go out, and its listener. Listeners take turns.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<(u16, T)> {
        if self.waiting == 0 {
            return None;
        }
        let count = self.listeners.len();
        let in_turn = (self.turn..self.turn + count).map(|at| at % count);
        let mut ready = in_turn.filter_map(|at| {
            let may_go = [Rank::Next, Rank::AfterOthers].map(|rank| self.may_go(at, rank));
            let job = self.listeners[at]
                .waiting
                .pop(|rank| may_go[rank as usize])?;
            Some((at, job))
        });
        let (listener, job) = ready.next()?;
        self.turn = listener + 1;
        self.goes(listener);
        self.waiting -= 1;
        self.listeners[listener].waited_ns = now_ns;
        Some((u16::try_from(listener).expect("listeners are few"), job))
    }

    /// The listener of the job that has waited longest, and since when.
    pub(crate) fn oldest(&self) -> Option<(u16, u64)> {
        let fronts = (0..).zip(&self.listeners);
        let fronts = fronts.filter_map(|(at, share)| Some((at, share.waiting.oldest()?.1)));
        fronts.min_by_key(|(_, since_ns)| *since_ns)
    }

    /// Jobs that wait now.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The listeners whose oldest job has waited so long that it is worth a line in the log, how
    /// many wait there, and how many are out. Each once until its jobs have not waited for
    /// [`SHARE_LOG_NS`].
    pub(crate) fn overdue(&mut self, now_ns: u64) -> Vec<(usize, usize, u32)> {
        if self.waiting == 0 {
            return Vec::new();
        }
        let shares = self.listeners.iter_mut().enumerate();
        let late = shares.filter_map(|(listener, share)| {
            let (_, since_ns) = share.waiting.oldest()?;
            let is_late = now_ns >= since_ns.saturating_add(SHARE_PATIENCE_NS);
            let is_new = is_late && !std::mem::replace(&mut share.is_logged, is_late);
            is_new.then_some((listener, share.waiting.len(), share.out))
        });
        late.collect()
    }

    /// Everything that waits, whatever its share: the end of the thread. Nothing waits afterwards.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.waiting = 0;
        let waiting = self.listeners.iter_mut();
        waiting.flat_map(|share| share.waiting.drain()).collect()
    }
}

#[cfg(test)]
mod tests;
