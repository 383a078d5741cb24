//! WorkerPool: worker threads that sleep when there is nothing to do, and are woken one at a time.
//!
//! Other names: Linux `sp_idle_threads` (SUNRPC service threads), leader/follower. The pool knows
//! nothing of the work: a worker passes a closure that looks for some. It starts no thread either;
//! a thread registers, gets a [`Worker`], and leaves by dropping it.
//!
//! Idle workers are on a stack, newest first, because the newest is warm. The waker looks at the
//! top and notifies that worker, but never removes it: only a worker itself leaves the stack, and
//! only from the top. So a burst of wakes hits the same worker, and there is no herd. A worker
//! that takes work chains the wake: if more work waits, it wakes the next worker.
//!
//! A worker is *active* from the moment it leaves the idle stack for work until it is idle again,
//! and at most `active_max` are, a number that may change at any time. While as many are active,
//! none is woken: an active worker looks for work after each item, so what waits is taken in its
//! turn. A worker that finds too many active goes idle although work waits.
//!
//! | may run beside | wake_one | wait, took_work       | register, drop | set_active_max | stop |
//! |----------------|----------|-----------------------|----------------|----------------|------|
//! | all of them    | yes      | yes, of other workers | yes            | no: one thread | yes  |
//!
//! `wait` and `took_work` belong to the thread that has the worker.
//!
//! Invariants
//! - I1: only the owner of entry `i` takes `i` off the idle stack, and only while it is the head.
//!   A buried worker that wants to leave sleeps on: the one above it looked for work after
//!   pushing itself, so that one sees whatever the buried one was woken for.
//! - I2: a worker is not listed while its owner is outside `wait`, panics included.
//! - I3: work that is published, and whose publisher got `AlreadyAwake` or `Woken`, is looked for
//!   afterwards by a worker that either takes it or wakes the next one.
//! - I4: entries are never freed, so a late waker may read one of a worker that left. It then
//!   wakes the entry's next owner for nothing, which is harmless.
//! - I5: while work is published, and its publisher got `Limited`, as many workers are active as
//!   may be, or one that stopped to be looks for work afterwards.
//!
//! Ordering
//! - E1 publish, look: publish work, `fence(SeqCst)` in `wake_one`, read the idle head, `looking`,
//!   `notified`. Against it: push oneself, `fence(SeqCst)` in `wait`, look for work. One of the
//!   two sees the other.
//! - E2 looking: clear `looking`, `fence(SeqCst)`, look for more work. A publisher that read
//!   `looking` before it was cleared had published before that look. Likewise for `notified`.
//! - E3 chain: take work, `fence(SeqCst)`, read the idle head: the queue may have looked empty to
//!   a worker that went idle while the work was being taken.
//! - E4 stop: `is_stopping` (Release) -> `wait` (Acquire), read before it looks for work: a worker
//!   that sees the stop sees the work that was published before it.
//! - E5 reset: `notified` is cleared before the look for work that decides to sleep, and a
//!   `fence(SeqCst)` comes between clearing it and testing whether one is the head: the worker that
//!   was above, and left, either sees it cleared or is seen to have left.
//! - E6 limit: stop being active, `fence(SeqCst)` in `wait`, look for work. Against it E1 of the
//!   publisher, which reads `active` after the fence. And: store `active_max`, `fence(SeqCst)` in
//!   `set_active_max`, read the idle head; against it push oneself, `fence(SeqCst)` in `wait`, read
//!   `active_max`.
//!
//! Everything else is relaxed: the fences order it. The wake-up itself is sticky twice over, by
//! `notified` and by the token of the thread's own `park`; a park that returns for no reason parks
//! again.
//!
//! Cost: `wake_one` is a fence and a load while no worker is idle, two more while as many are
//! active as may be, and two more while one is already on the way; otherwise one swap and the
//! wake-up of a thread, which is the system's (1 to 15 microseconds). `took_work` is a fence and a
//! load. Going idle and coming back count, a read-modify-write each. Nothing grows with the number
//! of workers. Registering, leaving and a new limit take a lock.

use crate::stack::Stack;
use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, Thread, fence, lock,
};
use crate::table::Table;
use membership::Membership;

pub use worker::Worker;

mod worker;
mod membership;

/// How many workers there may be, and how long the dispensable ones idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPoolLimits {
    /// Workers that stay however long they are idle.
    pub workers_min: u32,
    /// Workers at the same time, at most.
    pub workers_max: u32,
    /// How long a worker above the minimum idles before it retires. `u64::MAX`: for ever.
    pub idle_ns_max: u64,
}

/// The outcome of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a caller has to act on each.
pub enum Wake {
    /// A sleeping worker was notified.
    Woken,
    /// A worker is on its way to the work already, and will wake the next one.
    AlreadyAwake,
    /// As many workers are active as may be: one of them takes the work when it is done.
    Limited,
    /// All workers are busy, or there are none.
    NoneIdle,
}

/// Why [`Worker::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a worker has to act on each.
pub enum Wait {
    /// There may be work: try to take some, then call [`Worker::took_work`] if that succeeded.
    Work,
    /// Idle for too long and not needed: drop the worker.
    Retire,
    /// The pool stops and no work is left: drop the worker.
    Stop,
}

/// Counts of a pool, and its size. Counters are summed when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerPoolStatistics {
    /// Workers now, without those about to leave.
    pub workers: u32,
    /// Workers on the idle stack now, roughly.
    pub idle: u32,
    /// Times that a worker was woken.
    pub wakes: u64,
    /// How many of these found no work.
    pub wakes_that_found_nothing: u64,
}

/// A pool of worker threads; a handle, cheap to clone. See the module's header.
///
/// A worker's loop, and a producer:
///
/// ```
/// use flatpath_structures::worker_pool::{WorkerPool, WorkerPoolLimits, Wait};
/// use std::sync::{Arc, Mutex};
///
/// let queue = Arc::new(Mutex::new(Vec::new()));
/// let limits = WorkerPoolLimits { workers_min: 1, workers_max: 4, idle_ns_max: 5_000_000_000 };
/// let pool = WorkerPool::new(limits);
/// let mut worker = pool.register().expect("below the maximum");
/// let work = Arc::clone(&queue);
/// let worker = std::thread::spawn(move || {
///     let is_waiting = || !work.lock().unwrap().is_empty();
///     let mut sum = 0;
///     while worker.wait(is_waiting) == Wait::Work {
///         let Some(item) = work.lock().unwrap().pop() else { continue };
///         worker.took_work(is_waiting);
///         sum += item;
///     }
///     sum
/// });
/// queue.lock().unwrap().push(42);
/// pool.wake_one();
/// pool.stop();
/// assert_eq!(worker.join().unwrap(), 42);
/// ```
#[derive(Clone, Debug)]
pub struct WorkerPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: WorkerPoolLimits,
    idle: Stack,
    /// Some worker left the idle stack because it was notified, and has not taken work yet.
    looking: Padded<AtomicBool>,
    /// Workers leave once there is no work left. Written under the membership's lock, read
    /// without.
    is_stopping: Padded<AtomicBool>,
    /// Workers that are not idle.
    active: Padded<AtomicU32>,
    /// Most of them; beyond any number once the pool stops. Written under the membership's lock.
    active_max: AtomicU32,
    /// Whether there is room for more of them, or for another worker. Written under the
    /// membership's lock.
    may_grow: Padded<AtomicBool>,
    /// Whether there are more workers than the minimum.
    has_surplus: AtomicBool,
    entries: Table<Padded<Entry>>,
    membership: Mutex<Membership>,
}

/// A worker, as a waker sees it. Outlives the worker: the next worker takes the entry over.
#[derive(Debug)]
struct Entry {
    notified: AtomicBool,
    thread: Mutex<Option<Thread>>,
    // Written by the owner only, so that counting costs no read-modify-write.
    wakes: AtomicU64,
    wakes_that_found_nothing: AtomicU64,
}

impl WorkerPool {
    /// A pool without workers.
    ///
    /// # Panics
    /// If the minimum is above the maximum, the maximum is 0, or it is above what a stack can link.
    pub fn new(limits: WorkerPoolLimits) -> WorkerPool {
        assert!(limits.workers_max > 0, "a pool without room for a worker");
        assert!(
            limits.workers_min <= limits.workers_max,
            "minimum above the maximum"
        );
        let shared = Shared {
            limits,
            idle: Stack::new(limits.workers_max),
            looking: Padded(AtomicBool::new(false)),
            is_stopping: Padded(AtomicBool::new(false)),
            active: Padded(AtomicU32::new(0)),
            active_max: AtomicU32::new(limits.workers_max),
            may_grow: Padded(AtomicBool::new(true)),
            has_surplus: AtomicBool::new(false),
            entries: Table::new(limits.workers_max, |_| Padded(Entry::new())),
            membership: Mutex::new(Membership::default()),
        };
        WorkerPool {
            shared: Arc::new(shared),
        }
    }

    /// Wakes one idle worker, unless one is on its way. Call it after publishing work; once for a
    /// batch is enough, because a worker that takes work wakes the next one.
    #[inline]
    pub fn wake_one(&self) -> Wake {
        // ORDER: E1. Between the caller's publication and the look at the idle head.
        fence(Ordering::SeqCst);
        self.shared.wake_head()
    }

    /// A new worker; `None` when the pool is full or stopping. The worker may be made on one thread
    /// and moved to another before it waits.
    pub fn register(&self) -> Option<Worker> {
        let index = lock(&self.shared.membership).add(&self.shared)?;
        Some(Worker::new(self.clone(), index))
    }

    /// Whether there may be another worker, or more active ones than now. One load; a hint, except
    /// for a caller that got [`Wake::NoneIdle`]: if it sees no room and there is some, a worker has
    /// given up its place since, and sees the work that was published before when it looks for some
    /// after its drop.
    #[inline]
    pub fn may_grow(&self) -> bool {
        self.shared.may_grow.load(Ordering::Relaxed)
    }

    /// How many workers may be active from now on, at least one: wakes one if that may be. Those
    /// beyond it go idle after what they do now. Takes a lock. Without effect once the pool stops.
    pub fn set_active_max(&self, active_max: u32) {
        lock(&self.shared.membership).limit(&self.shared, active_max.max(1));
        // ORDER: E6. Between the new limit and the look at the idle head.
        fence(Ordering::SeqCst);
        self.shared.wake_head();
    }

    /// How many workers may be active. One load.
    pub fn active_max(&self) -> u32 {
        let active_max = self.shared.active_max.load(Ordering::Relaxed);
        active_max.min(self.shared.limits.workers_max)
    }

    /// Workers that are not idle at this moment. One load.
    pub fn active(&self) -> u32 {
        self.shared.active.load(Ordering::Relaxed)
    }

    /// Workers finish the work there is and leave; none registers any more. Does not wait.
    ///
    /// Work that is published before is done first; work published afterwards may be left over.
    pub fn stop(&self) {
        lock(&self.shared.membership).stop(&self.shared);
        // ORDER: E1, with the stop for work. The head leaves and wakes the next one.
        fence(Ordering::SeqCst);
        self.shared.wake_head();
    }

    /// Workers now, without those about to leave. Takes a lock.
    pub fn workers(&self) -> u32 {
        lock(&self.shared.membership).workers()
    }

    /// Whether a worker was on the idle stack at this moment, and might be active. Three loads.
    pub fn has_idle(&self) -> bool {
        self.shared.idle.peek().is_some() && self.shared.has_slot()
    }

    /// Sizes and counters. O(workers); for display.
    pub fn statistics(&self) -> WorkerPoolStatistics {
        let (workers, touched) = {
            let membership = lock(&self.shared.membership);
            (membership.workers(), membership.touched())
        };
        let mut sum = WorkerPoolStatistics {
            workers,
            ..WorkerPoolStatistics::default()
        };
        for index in 0..touched {
            let entry = self.shared.entries.at(index);
            sum.idle += u32::from(self.shared.idle.is_listed(index));
            sum.wakes += entry.wakes.load(Ordering::Relaxed);
            sum.wakes_that_found_nothing += entry.wakes_that_found_nothing.load(Ordering::Relaxed);
        }
        sum
    }
}

impl Shared {
    /// Notifies the newest idle worker. The caller made its fence.
    #[inline]
    fn wake_head(&self) -> Wake {
        let Some(head) = self.idle.peek() else {
            return Wake::NoneIdle;
        };
        // ORDER: E6. Relaxed: the fence before is what makes skipping safe.
        if !self.has_slot() {
            return Wake::Limited;
        }
        // ORDER: E2. Relaxed: the fence before is what makes skipping safe.
        if self.looking.load(Ordering::Relaxed) {
            return Wake::AlreadyAwake;
        }
        let entry = self.entries.at(head);
        // ORDER: E2. The load saves the swap of a line that the head is about to write.
        if entry.notified.load(Ordering::Relaxed) || entry.notified.swap(true, Ordering::Relaxed) {
            return Wake::AlreadyAwake;
        }
        entry.unpark();
        Wake::Woken
    }

    /// Whether one more worker may be active.
    #[inline]
    fn has_slot(&self) -> bool {
        self.active.load(Ordering::Relaxed) < self.active_max.load(Ordering::Relaxed)
    }

    /// One more worker is active, unless as many are as may be.
    fn take_slot(&self) -> bool {
        let active_max = self.active_max.load(Ordering::Relaxed);
        self.change_active(|active| (active < active_max).then_some(active + 1))
    }

    /// One worker less is active, if more are than may be.
    fn give_up_surplus(&self) -> bool {
        let active_max = self.active_max.load(Ordering::Relaxed);
        self.change_active(|active| (active > active_max).then(|| active - 1))
    }

    fn change_active(&self, change: impl Fn(u32) -> Option<u32>) -> bool {
        // ORDER: E6. Relaxed: the fences order it.
        let changed = self
            .active
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        changed.is_ok()
    }
}

impl Entry {
    fn new() -> Entry {
        Entry {
            notified: AtomicBool::new(false),
            thread: Mutex::new(None),
            wakes: AtomicU64::new(0),
            wakes_that_found_nothing: AtomicU64::new(0),
        }
    }

    #[cold]
    fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
