//! The old ways in the places of ours, feature `before` only: for measurements of a whole server,
//! before and after, that differs in nothing else.
//!
//! | place    | old way                                      | original                        |
//! |----------|----------------------------------------------|---------------------------------|
//! | pool     | a walk over all buffers of a size ([`Walk`]) | `smc_buf_get_slot`              |
//! | dispatch | a locked deque, a walk over all threads      | `svc_xprt_enqueue` to Linux 6.5 |
//!
//! Single accepts need no feature: see [`Server::accept`](crate::Server::accept).
//!
//! Walked dispatch
//! - Each request is queued under a lock; then a walk tests and sets each thread's `busy` until it
//!   finds one that was idle, and wakes it. A thread that finds no work clears its `busy`, looks
//!   once more and sleeps. No batching per turn and no baton: there were none.
//! - The number of threads is fixed, as it was: start the server with as many workers at least as
//!   at most.
//!
//! Ordering
//! - E1 idle: work queued, fence, look at `busy` -> `busy` cleared, fence, look for work.
//! - E2 stop: `stop` set, then every `busy`, then unpark -> `busy` cleared, fence, look at `stop`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

use flatpath_structures::pool::{Owners, Pool, PoolConfig};

pub use flatpath_structures::pool::Walk;

/// Which old ways to use. None, if not said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// How an idle buffer is found.
    pub pool: Option<Walk>,
    /// How an idle worker is found.
    pub dispatch: Option<Walk>,
}

impl Before {
    pub(crate) fn pool(&self, config: PoolConfig, owners: Owners) -> Pool {
        match self.pool {
            Some(walk) => Pool::walked(config, owners, walk),
            None => Pool::with_owners(config, owners),
        }
    }

    pub(crate) fn dispatch(&self, workers: u32) -> Option<Walked> {
        Some(Walked::new(workers, self.dispatch?))
    }
}

/// Threads on a list, and the work that waits for them.
#[derive(Debug)]
pub(crate) struct Walked {
    work: Mutex<VecDeque<u32>>,
    entries: Box<[Entry]>,
    /// Entries that a thread has taken; those beyond are nobody's.
    joined: AtomicU32,
    walk: Walk,
    stop: AtomicBool,
}

/// One thread's descriptor, some lines from the next, as they are parts of larger ones.
#[derive(Debug)]
#[repr(align(256))]
struct Entry {
    busy: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Walked {
    fn new(workers: u32, walk: Walk) -> Walked {
        let entry = |_| Entry {
            busy: AtomicBool::new(true),
            thread: OnceLock::new(),
        };
        Walked {
            work: Mutex::default(),
            entries: (0..workers).map(entry).collect(),
            joined: AtomicU32::new(0),
            walk,
            stop: AtomicBool::new(false),
        }
    }

    /// Queues work and wakes an idle thread, if there is one.
    pub(crate) fn enqueue(&self, index: u32) {
        self.lock().push_back(index);
        // ORDER: E1.
        fence(Ordering::SeqCst);
        let joined = self.joined.load(Ordering::Relaxed) as usize;
        for entry in &self.entries[..joined.min(self.entries.len())] {
            let looks_idle = self.walk == Walk::Swap || !entry.busy.load(Ordering::Relaxed);
            // ORDER: E1: the fences order it; as strong as the original's test-and-set.
            if looks_idle && !entry.busy.swap(true, Ordering::AcqRel) {
                return entry.unpark();
            }
        }
    }

    /// The body of a thread, until the stop. More threads than there are entries leave at once.
    pub(crate) fn work(&self, run: impl Fn(u32)) {
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = self.entries.get(number as usize) else {
            return;
        };
        entry.thread.get_or_init(thread::current);
        loop {
            if let Some(index) = self.pop() {
                run(index);
                continue;
            }
            // ORDER: E1, E2.
            entry.busy.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if self.lock().is_empty() {
                // ORDER: Acquire pairs with the swap of whoever woke this thread.
                while !entry.busy.load(Ordering::Acquire) {
                    thread::park();
                }
            } else {
                // ORDER: Relaxed: busy again; who set it meanwhile wanted nothing else.
                entry.busy.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Threads leave when there is no work left.
    pub(crate) fn stop(&self) {
        // ORDER: E2: the swaps below release it.
        self.stop.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for entry in &self.entries {
            // ORDER: E2.
            entry.busy.swap(true, Ordering::AcqRel);
            entry.unpark();
        }
    }

    fn pop(&self) -> Option<u32> {
        self.lock().pop_front()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<u32>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    #[test]
    fn stress_walked_dispatch_runs_everything_once_and_stops() {
        for walk in [Walk::Swap, Walk::TestThenSwap] {
            let walked = Walked::new(4, walk);
            let sum = AtomicU64::new(0);
            thread::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|| {
                        walked.work(|index| {
                            sum.fetch_add(u64::from(index), Ordering::Relaxed);
                        });
                    });
                }
                for index in 1..=2_000 {
                    walked.enqueue(index);
                }
                let deadline = Instant::now() + Duration::from_secs(20);
                while sum.load(Ordering::Relaxed) < 2_001_000 && Instant::now() < deadline {
                    thread::yield_now();
                }
                walked.stop();
            });
            assert_eq!(sum.load(Ordering::Relaxed), 2_001_000);
        }
    }
}
