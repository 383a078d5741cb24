//! Walked list, feature `before` only: the way of finding an idle block that the depot replaces.
//!
//! All blocks of a size stand on one list, those in use too; whoever needs one walks it under the
//! read lock and takes the first whose `used` it can swap. Original: Linux SMC's `smc_buf_get_slot`
//! (`down_read`, `list_for_each_entry`, `cmpxchg(&used, 0, 1)`). For measurements of a whole server
//! with the old way in the place of the new one; never in a build without the feature.
//!
//! | may run beside | take | put | add, remove | close |
//! |----------------|------|-----|-------------|-------|
//! | all of them    | yes  | yes | yes: waits  | once  |
//!
//! Invariants
//! - I1: an index whose `used` is 1 is held by one caller: who swapped it from 0, or who added it.
//! - I2: only the holder of an index puts or removes it.
//!
//! Ordering
//! - E1 publish: `put` (Release) -> the swap in `take` (Acquire): what the holder wrote.
//! - E2 close: `put`, fence, look at `closed` -> `closed` set, fence, `take` until there is none.
//!
//! Cost: `take` is O(blocks of the size), which is the point. In its favour: the list is a vector,
//! which a processor fetches ahead better than the original's links, and `put` takes no lock.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, RwLock, fence};
use std::sync::PoisonError;

/// How a walk takes the entry it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Compare-and-swap on each entry, as published: a write to every line.
    Swap,
    /// The cheap fix: look first, swap only what looks free.
    TestThenSwap,
}

/// One per index, alone on its line as the original's descriptors are.
#[derive(Debug)]
#[repr(align(64))]
struct Descriptor {
    used: AtomicU32,
}

/// The list of one size.
#[derive(Debug)]
pub(crate) struct Walked {
    list: RwLock<Vec<u32>>,
    descriptors: Box<[Descriptor]>,
    walk: Walk,
    closed: AtomicBool,
    taken: AtomicU64,
    put: AtomicU64,
}

impl Walked {
    /// An empty list for the indices below `capacity`.
    pub(crate) fn new(capacity: u32, walk: Walk) -> Walked {
        let descriptor = |_| Descriptor {
            used: AtomicU32::new(1),
        };
        Walked {
            list: RwLock::new(Vec::new()),
            descriptors: (0..capacity).map(descriptor).collect(),
            walk,
            closed: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            put: AtomicU64::new(0),
        }
    }

    /// The first idle index, which the caller then holds; counted as taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let found = self.withdraw();
        if found.is_some() {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The same, not counted.
    pub(crate) fn withdraw(&self) -> Option<u32> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let is_mine = |index: &&u32| {
            let used = &self.descriptors[**index as usize].used;
            let looks_idle = self.walk == Walk::Swap || used.load(Ordering::Relaxed) == 0;
            // ORDER: E1.
            looks_idle
                && used
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        list.iter().find(is_mine).copied()
    }

    /// Makes an index idle. `true` if the list was closed: the caller takes and frees what is idle.
    ///
    /// The caller holds something that keeps the list alive.
    pub(crate) fn put(&self, index: u32) -> bool {
        self.put.fetch_add(1, Ordering::Relaxed);
        let used = &self.descriptors[index as usize].used;
        // ORDER: E1.
        used.store(0, Ordering::Release);
        // ORDER: E2.
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Relaxed)
    }

    /// Appends a new index, held by the caller.
    pub(crate) fn add(&self, index: u32) {
        // ORDER: Relaxed: the lock publishes it, and only the holder changes it.
        self.descriptors[index as usize]
            .used
            .store(1, Ordering::Relaxed);
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.push(index);
    }

    /// Takes an index, held by the caller, off the list.
    pub(crate) fn remove(&self, index: u32) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|listed| *listed != index);
    }

    /// From now on a `put` tells its caller to free what is idle.
    pub(crate) fn close(&self) {
        // ORDER: Relaxed: the fence orders it (E2).
        self.closed.store(true, Ordering::Relaxed);
        // ORDER: E2.
        fence(Ordering::SeqCst);
    }

    /// How many indices were taken, and how many given back.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let put = self.put.load(Ordering::Relaxed);
        (self.taken.load(Ordering::Relaxed), put)
    }
}

#[cfg(test)]
mod tests {
    use crate::pool::{Buffer, Pool, PoolConfig, Walk, Zero};

    fn pools() -> [Pool; 2] {
        [Walk::Swap, Walk::TestThenSwap].map(|walk| {
            let config = PoolConfig {
                classes: vec![64],
                budget_bytes: 64 * 16,
                zero: Zero::WrittenOnPut,
            };
            Pool::walked(config, crate::pool::Owners::new(0), walk)
        })
    }

    #[test]
    fn a_walked_pool_hands_out_each_block_once_and_reuses_them() {
        for pool in pools() {
            let mut held: Vec<_> = (0..16).map_while(|_| pool.take(1)).collect();
            assert!(held.len() == 16 && pool.take(1).is_none());
            assert_eq!(held[3].append(b"secret"), 6);
            held.clear();
            let again: Vec<_> = (0..16).map_while(|_| pool.take(1)).collect();
            assert!(again.iter().all(Buffer::is_empty));
            let statistics = pool.statistics();
            assert_eq!((statistics.allocated, statistics.reused), (16, 16));
            assert_eq!(statistics.in_use_bytes, 64 * 16);
        }
    }

    #[test]
    fn a_block_of_a_walked_pool_may_outlive_it() {
        for pool in pools() {
            let held = pool.take(1).expect("nothing is in use");
            drop(pool.take(1));
            drop(pool);
            drop(held);
        }
    }

    #[test]
    fn stress_no_two_threads_hold_one_block_of_a_walked_pool() {
        for pool in pools() {
            std::thread::scope(|scope| {
                for mark in 1..=4_u8 {
                    let pool = &pool;
                    scope.spawn(move || {
                        for _ in 0..2_000 {
                            let Some(mut buffer) = pool.take(1) else {
                                continue;
                            };
                            buffer.append(&[mark; 8]);
                            assert_eq!(buffer.filled(), [mark; 8]);
                        }
                    });
                }
            });
            assert_eq!(pool.statistics().in_use_bytes, 0);
            pool.trim(0);
            assert_eq!(pool.allocated_bytes(), 0);
        }
    }
}
