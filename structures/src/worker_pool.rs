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
//! | may run beside | wake_one | wait, took_work       | register, grow, drop | stop |
//! |----------------|----------|-----------------------|----------------------|------|
//! | all of them    | yes      | yes, of other workers | yes                  | yes  |
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
//!
//! Everything else is relaxed: the fences order it. The wake-up itself is sticky twice over, by
//! `notified` and by the token of the thread's own `park`; a park that returns for no reason parks
//! again.
//!
//! Cost: `wake_one` is a fence and a load while no worker is idle, and two more loads while one is
//! already on the way; otherwise one swap and the wake-up of a thread, which is the system's
//! (1 to 15 microseconds). `took_work` is a fence and a load. Nothing grows with the number of
//! workers. Registering and leaving take a lock.

use crate::stack::Stack;
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Padded, Thread, fence, lock};
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

/// What became of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A sleeping worker was notified.
    Woken,
    /// A worker is on its way to the work already, and will wake the next one.
    AlreadyAwake,
    /// All workers are busy, or there are none: see [`WorkerPool::grow`].
    NoneIdle,
}

/// Why [`Worker::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There may be work: try to take some, then call [`Worker::took_work`] if that succeeded.
    Work,
    /// Idle for too long and not needed: drop the worker.
    Retire,
    /// The pool stops and no work is left: drop the worker.
    Stop,
}

/// What a pool did so far, and its size. Counters are summed when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Whether `grow` may succeed: saves the membership's lock while the pool is full.
    may_grow: Padded<AtomicBool>,
    /// Whether there are more workers than the minimum.
    has_surplus: AtomicBool,
    entries: Table<Padded<Entry>>,
    membership: Mutex<Membership>,
}

/// What a waker needs to know of a worker. Outlives it: the next worker takes the entry over.
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
        self.add(false)
    }

    /// Like [`WorkerPool::register`], for a caller that starts a thread because
    /// [`WorkerPool::wake_one`] found no idle worker: `None` also while an earlier worker of `grow`
    /// has not yet arrived at its first [`Worker::wait`] or [`Worker::took_work`]. One load when it
    /// is `None`, as a rule.
    #[inline]
    pub fn grow(&self) -> Option<Worker> {
        if !self.may_grow() {
            return None;
        }
        self.add(true)
    }

    /// Whether [`WorkerPool::grow`] might succeed. One load; a hint, except for a caller that got
    /// [`Wake::NoneIdle`]: if it sees no room and there is some, a worker has given up its place
    /// since, and sees the work that was published before when it looks for some after its drop.
    #[inline]
    pub fn may_grow(&self) -> bool {
        self.shared.may_grow.load(Ordering::Relaxed)
    }

    fn add(&self, is_starting: bool) -> Option<Worker> {
        let index = lock(&self.shared.membership).add(&self.shared, is_starting)?;
        Some(Worker::new(self.clone(), index, is_starting))
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

    /// Whether a worker was on the idle stack at this moment. One load.
    pub fn has_idle(&self) -> bool {
        self.shared.idle.peek().is_some()
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
