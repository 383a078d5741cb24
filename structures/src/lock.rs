//! A lock for critical sections of some ten nanoseconds: spins a little, then yields the processor.
//!
//! Not a mutex: a waiter burns its time slices until the holder comes back, and there is no queue
//! of waiters, so no fairness. Nothing that may block or take long runs under it.
//!
//! Ordering
//! - E1 hand-over: dropping the guard (Release) -> `lock` (Acquire).

use crate::sync::{AtomicBool, LOOKS_MAX, Ordering, Padded, edge, spin_loop, yield_now};

const LOCK: Ordering = edge!("lock_acquire", Acquire, Relaxed);
const UNLOCK: Ordering = edge!("unlock_release", Release, Relaxed);

#[derive(Debug)]
pub(crate) struct Lock {
    held: Padded<AtomicBool>,
}

/// Holds the lock until it is dropped.
#[must_use = "the lock is held only while the guard lives"]
#[derive(Debug)]
pub(crate) struct Guard<'a>(&'a Lock);

impl Lock {
    pub(crate) fn new() -> Lock {
        Lock {
            held: Padded(AtomicBool::new(false)),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        if !self.try_hold() {
            self.wait();
        }
        Guard(self)
    }

    #[inline]
    fn try_hold(&self) -> bool {
        self.held
            .compare_exchange(false, true, LOCK, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        // Looks before it swaps: only a look leaves the line with the holder, who must write it.
        while self.held.load(Ordering::Relaxed) || !self.try_hold() {
            looks += 1;
            if looks.is_multiple_of(LOOKS_MAX) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, UNLOCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicU32};
    use crate::testing::race;

    #[test]
    fn loom_what_was_written_under_the_lock_is_seen_by_the_next_holder() {
        let add_one = |state: &(Lock, AtomicU32)| {
            let _guard = state.0.lock();
            // Two steps on purpose: the lock alone must keep them together.
            let count = state.1.load(Ordering::Relaxed);
            state.1.store(count + 1, Ordering::Relaxed);
        };
        race(
            || Arc::new((Lock::new(), AtomicU32::new(0))),
            add_one,
            add_one,
            |state, (), ()| assert_eq!(state.1.load(Ordering::Relaxed), 2),
        );
    }

    #[test]
    #[cfg(not(loom))]
    fn shuttle_four_holders_of_the_lock_go_one_at_a_time() {
        crate::testing::model(|| {
            let state = Arc::new((Lock::new(), AtomicU32::new(0)));
            let threads = [(); 4].map(|()| {
                let state = Arc::clone(&state);
                crate::sync::spawn(move || {
                    for _ in 0..3 {
                        let _guard = state.0.lock();
                        let count = state.1.load(Ordering::Relaxed);
                        state.1.store(count + 1, Ordering::Relaxed);
                    }
                })
            });
            threads.into_iter().for_each(crate::testing::join);
            assert_eq!(state.1.load(Ordering::Relaxed), 12);
        });
    }
}
