//! A worker of a pool: one thread's place in it, and the way to sleep and to leave.
//!
//! The contract, the invariants and the ordering edges are those of the pool. A worker belongs to
//! one thread at a time; it may be handed to another between two calls.

use super::{Entry, Shared, Wait, Wake, WorkerPool};
use crate::sync::{
    AtomicU64, Ordering, Thread, current, edge, fence, lock, now_ns, park, park_for,
};

const STOP: Ordering = edge!("worker_pool_stop_acquire", Acquire, Relaxed);

/// One worker's place in the pool. Dropping it leaves, and wakes the next one.
#[derive(Debug)]
pub struct Worker {
    pool: WorkerPool,
    index: u32,
    /// The thread whose handle is in the entry.
    thread: Option<Thread>,
    /// This worker set `looking`.
    is_looking: bool,
    /// This worker is counted in `active`.
    is_active: bool,
    /// This worker idled too long and gave up its entry; all that is left is to drop it.
    has_retired: bool,
}

impl Worker {
    pub(super) fn new(pool: WorkerPool, index: u32) -> Worker {
        Worker {
            pool,
            index,
            thread: None,
            is_looking: false,
            is_active: false,
            has_retired: false,
        }
    }

    /// Waits for work, or for a reason to leave. `has_work` says whether there is work to take; it
    /// is called several times and must be cheap. It may be wrong about work that another worker is
    /// taking at the moment, if that one calls [`Worker::took_work`] afterwards.
    ///
    /// Returns at once while there is work, so a worker calls it once per item. Panics of
    /// `has_work` are passed on.
    #[inline]
    pub fn wait(&mut self, has_work: impl Fn() -> bool) -> Wait {
        if self.end_look() {
            self.count_empty_wake();
        }
        if self.is_surplus() && self.pool.shared.give_up_surplus() {
            self.is_active = false;
            return self.idle(&has_work);
        }
        match self.reason(&has_work) {
            Some(wait) => wait,
            None => self.idle(&has_work),
        }
    }

    /// To be called after taking work and before doing it: wakes the next worker if `has_more` says
    /// that more work waits. `None` if not; `NoneIdle` and `Limited` are the moments to think of
    /// more workers.
    #[inline]
    pub fn took_work(&mut self, has_more: impl Fn() -> bool) -> Option<Wake> {
        let was_looking = self.end_look();
        let shared = &self.pool.shared;
        if !has_more() && !shared.is_stopping.load(Ordering::Relaxed) {
            return None;
        }
        if !was_looking {
            // ORDER: E3: work is taken before the look for an idle worker.
            fence(Ordering::SeqCst);
        }
        Some(shared.wake_head())
    }

    pub fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// Why not to sleep, while not listed.
    #[inline]
    fn reason(&mut self, has_work: impl Fn() -> bool) -> Option<Wait> {
        if self.has_retired {
            return Some(Wait::Retire);
        }
        // ORDER: E4. Before the look for work, not after it.
        let is_stopping = self.pool.shared.is_stopping.load(STOP);
        if has_work() && self.is_active_now() {
            return Some(Wait::Work);
        }
        is_stopping.then_some(Wait::Stop)
    }

    /// Whether more workers are active than may be, and this is one of them.
    #[inline]
    fn is_surplus(&self) -> bool {
        let shared = &self.pool.shared;
        let active_max = shared.active_max.load(Ordering::Relaxed);
        self.is_active && shared.active.load(Ordering::Relaxed) > active_max
    }

    /// Becomes active if it may.
    #[inline]
    fn is_active_now(&mut self) -> bool {
        self.is_active = self.is_active || self.pool.shared.take_slot();
        self.is_active
    }

    fn end_activity(&mut self) {
        if std::mem::take(&mut self.is_active) {
            // ORDER: E6. Relaxed: a fence comes before the next look for work, or for a worker.
            self.pool.shared.active.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sleeps until there is a reason not to.
    #[cold]
    fn idle(&mut self, has_work: &impl Fn() -> bool) -> Wait {
        self.end_activity();
        self.show_thread();
        let mut clock = IdleClock::start(&self.pool.shared);
        loop {
            let slept = Listed::push(self, &mut clock).stay_unless(has_work);
            if slept == Slept::Notified {
                self.begin_look();
            }
            // ORDER: E1, E2. Off the stack, then the look for work.
            fence(Ordering::SeqCst);
            if let Some(wait) = self.reason(has_work) {
                return wait;
            }
            if self.end_look() {
                self.count_empty_wake();
            }
            if slept == Slept::TimedOut {
                if self.retire() {
                    return Wait::Retire;
                }
                clock = IdleClock::start(&self.pool.shared);
            }
        }
    }

    /// Puts this thread's handle in the entry, if another or none is there.
    fn show_thread(&mut self) {
        let current = current();
        if self
            .thread
            .as_ref()
            .is_none_or(|thread| thread.id() != current.id())
        {
            *lock(&self.entry().thread) = Some(current.clone());
            self.thread = Some(current);
        }
    }

    fn entry(&self) -> &Entry {
        self.pool.shared.entries.at(self.index)
    }

    /// From now on wakers rely on this worker, although it is off the stack.
    fn begin_look(&mut self) {
        self.is_looking = true;
        // ORDER: E2. Relaxed: seen late it is of no use, and does no harm either.
        self.pool.shared.looking.store(true, Ordering::Relaxed);
        add_one(&self.entry().wakes);
    }

    /// Wakers no longer rely on this worker. Returns whether they did; then they may have skipped a
    /// wake, and the caller looks for work once more.
    #[inline]
    fn end_look(&mut self) -> bool {
        let was_looking = std::mem::replace(&mut self.is_looking, false);
        if was_looking {
            self.pool.shared.looking.store(false, Ordering::Relaxed);
            // ORDER: E2: `looking` is cleared before the last look.
            fence(Ordering::SeqCst);
        }
        was_looking
    }

    fn count_empty_wake(&self) {
        add_one(&self.entry().wakes_that_found_nothing);
    }

    /// Retires, if the pool can do without. Gives up the entry then.
    fn retire(&mut self) -> bool {
        let shared = &self.pool.shared;
        self.has_retired = lock(&shared.membership).retire(shared, self.index);
        self.has_retired
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if cfg!(loom) && std::thread::panicking() {
            // A model check failed; loom's stack is gone already.
            return;
        }
        debug_assert!(
            self.has_retired || !self.pool.shared.idle.is_listed(self.index),
            "I2: leaves while listed"
        );
        self.end_look();
        self.end_activity();
        let shared = &self.pool.shared;
        if !self.has_retired {
            lock(&shared.membership).release(shared, self.index);
        }
        // ORDER: E1. The stop, and wakes that this worker absorbed, go to the next one.
        fence(Ordering::SeqCst);
        if !self.has_retired {
            shared.wake_head();
        } else if let Some(head) = shared.idle.peek() {
            // Work was looked for after leaving the stack. The next worker may have idled too long
            // as well, but was buried: it looks at the clock, and sleeps on if it has not.
            shared.entries.at(head).unpark();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    NotAtAll,
    Notified,
    TimedOut,
}

/// A worker on the idle stack. Off it again when this is dropped, a panic of `has_work` included.
struct Listed<'a> {
    shared: &'a Shared,
    entry: &'a Entry,
    index: u32,
    clock: &'a mut IdleClock,
    is_off: bool,
}

impl<'a> Listed<'a> {
    fn push(worker: &'a Worker, clock: &'a mut IdleClock) -> Listed<'a> {
        let (shared, entry, index) = (&*worker.pool.shared, worker.entry(), worker.index);
        // ORDER: E5. A notification from now on is for this stay.
        entry.notified.store(false, Ordering::Relaxed);
        shared.idle.push(index);
        // ORDER: E1. Between being listed and the look for work.
        fence(Ordering::SeqCst);
        Listed {
            shared,
            entry,
            index,
            clock,
            is_off: false,
        }
    }

    /// Sleeps unless there is work or the pool stops, and leaves the stack.
    fn stay_unless(mut self, has_work: &impl Fn() -> bool) -> Slept {
        // ORDER: E6. The limit after the fence of `push`.
        let has_reason =
            self.shared.is_stopping.load(Ordering::Relaxed) || has_work() && self.shared.has_slot();
        self.leave(has_reason)
    }

    /// Leaves the stack, as soon as this worker is its head, but not before a reason to.
    fn leave(&mut self, has_reason: bool) -> Slept {
        let mut slept = Slept::NotAtAll;
        let mut may_leave = has_reason;
        // I1: a worker that fails to remove itself is buried; the one above it looked for work
        // after pushing itself.
        while !(may_leave && self.shared.idle.pop_if_head(self.index)) {
            slept = self.sleep();
            may_leave = true;
            // ORDER: E5. `notified` is clear before the head is tested.
            fence(Ordering::SeqCst);
        }
        self.is_off = true;
        slept
    }

    /// Parks until notified, or until the time is up.
    fn sleep(&mut self) -> Slept {
        // Before parking: other code of this thread may have used up the token of the park.
        // ORDER: E5. Relaxed: the fence comes in `leave`.
        if self.entry.notified.swap(false, Ordering::Relaxed) {
            return Slept::Notified;
        }
        loop {
            self.clock.park();
            // ORDER: E5: cleared before the look, as above.
            if self.entry.notified.swap(false, Ordering::Relaxed) {
                return Slept::Notified;
            }
            if self.clock.is_over() {
                return Slept::TimedOut;
            }
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        // A model check failed; loom's stack is gone already.
        let is_torn_down = cfg!(loom) && std::thread::panicking();
        if !self.is_off && !is_torn_down {
            self.leave(true);
        }
    }
}

/// How long a worker has been idle. Without a deadline while it is needed anyhow.
struct IdleClock {
    deadline_ns: Option<u64>,
    period_ns: u64,
}

impl IdleClock {
    fn start(shared: &Shared) -> IdleClock {
        let period_ns = shared.limits.idle_ns_max;
        // No more workers than the minimum sleep without a deadline: the one of them that
        // registered last has seen, then or later, that there were more.
        let is_dispensable = period_ns != u64::MAX && shared.has_surplus.load(Ordering::Relaxed);
        let deadline_ns = is_dispensable.then(|| now_ns().saturating_add(period_ns));
        IdleClock {
            deadline_ns,
            period_ns,
        }
    }

    fn park(&self) {
        match self.deadline_ns {
            None => park(),
            // Over already, but buried: look again after another period, or when the one above
            // retires.
            Some(deadline_ns) => match deadline_ns.saturating_sub(now_ns()) {
                0 => park_for(self.period_ns),
                left_ns => park_for(left_ns),
            },
        }
    }

    fn is_over(&self) -> bool {
        self.deadline_ns
            .is_some_and(|deadline_ns| now_ns() >= deadline_ns)
    }
}

/// Counts in a word that only this thread writes.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
