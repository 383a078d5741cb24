//! Atomics, threads and locks: the only file that names `std`'s, spin's, loom's or shuttle's.
//!
//! | build | atomics and threads | sees weak memory | sees spurious wake-ups |
//! |-------|---------------------|------------------|------------------------|
//! | (default) | `std`, and `spin`'s lock | as the machine | as the machine |
//! | `--cfg loom` | loom | yes, all interleavings up to a bound | no |
//! | `--cfg shuttle` | shuttle | no | yes, random schedules |
//!
//! Two rules come from loom. It is blind to plain fields, so whatever two threads may touch is one
//! of these atomics. And it takes a `SeqCst` access for an acquire-release one: a store-then-look
//! handshake uses [`fence`], or [`look_fence`] where the store is a read-modify-write.

#![allow(
    unused_imports,
    dead_code,
    reason = "one set for three builds; none of them uses it all"
)]

pub use self::above::{Condition, Guard, Lock, ReadWriteLock};
pub(crate) use self::imp::*;

/// The ordering of a named edge, or a weaker one while the drill of that name runs.
///
/// `edge!("stack_push_publish", Release, Relaxed)` is `Ordering::Release`, except in a build with
/// `--cfg drill="stack_push_publish"`; `drill.toml` names the test that must then fail.
macro_rules! edge {
    ($name:tt, $ordering:ident, $drilled:ident) => {
        if cfg!(drill = $name) {
            $crate::sync::Ordering::$drilled
        } else {
            $crate::sync::Ordering::$ordering
        }
    };
}
pub(crate) use edge;

/// A value alone on its pair of cache lines: the processor fetches lines in pairs of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a store-then-look handshake needs between its `SeqCst` read-modify-write and its `SeqCst`
/// look.
///
/// Nothing on the machine: two `SeqCst` accesses stay in order. Loom models fences but not `SeqCst`
/// accesses, so there it is the fence. The other side of the handshake uses [`fence`] in both.
#[inline(always)]
pub(crate) fn look_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Marks plain memory that a structure hands from one thread to the next, which loom cannot see: a
/// thread that reads or writes that memory calls this as well, and loom then demands that the last
/// access of another thread comes before. Nothing in the other builds.
#[derive(Debug)]
pub(crate) struct Watch(#[cfg(loom)] loom::cell::UnsafeCell<()>);

impl Watch {
    #[inline(always)]
    pub(crate) fn new() -> Watch {
        Watch(
            #[cfg(loom)]
            loom::cell::UnsafeCell::new(()),
        )
    }

    #[inline(always)]
    pub(crate) fn read(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }

    #[inline(always)]
    pub(crate) fn write(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }
}

/// Locks, whether or not a thread panicked while it held the lock: what these locks guard stays
/// usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

mod above {
    use std::sync::{
        Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        TryLockError,
    };
    use std::time::Duration;

    /// The lock of everything above the structures: `std`'s, and what it guards stays usable when
    /// a thread panics while it holds the lock. So nothing under it may panic half way through a
    /// change.
    ///
    /// No structure uses it, and no model checker sees it.
    #[derive(Debug, Default)]
    pub struct Lock<T: ?Sized>(Mutex<T>);

    /// Holds a [`Lock`] until it is dropped.
    pub type Guard<'a, T> = MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// A lock that guards `value`.
        pub const fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        /// The value, which nothing else can reach any more.
        pub fn into_inner(self) -> T {
            let inner = self.0.into_inner();
            inner.unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T: ?Sized> Lock<T> {
        /// Waits for the lock.
        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            let guard = self.0.lock();
            guard.unwrap_or_else(PoisonError::into_inner)
        }

        /// The lock, unless another thread holds it.
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// The value, by the only reference to it.
        pub fn get_mut(&mut self) -> &mut T {
            let value = self.0.get_mut();
            value.unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A [`Lock`] that any number of threads may hold to read.
    #[derive(Debug, Default)]
    pub struct ReadWriteLock<T: ?Sized>(RwLock<T>);

    impl<T> ReadWriteLock<T> {
        /// A lock that guards `value`.
        pub const fn new(value: T) -> ReadWriteLock<T> {
            ReadWriteLock(RwLock::new(value))
        }
    }

    impl<T: ?Sized> ReadWriteLock<T> {
        /// Waits until no thread writes.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            let guard = self.0.read();
            guard.unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits until no other thread reads or writes.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            let guard = self.0.write();
            guard.unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A condition variable of a [`Lock`].
    #[derive(Debug, Default)]
    pub struct Condition(Condvar);

    impl Condition {
        /// One that no thread waits for.
        pub const fn new() -> Condition {
            Condition(Condvar::new())
        }

        /// Lets the lock go until a notification, or for no reason: the caller looks again.
        pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
            let woken = self.0.wait(guard);
            woken.unwrap_or_else(PoisonError::into_inner)
        }

        /// The same, until the value is not `is_awaited` any more.
        pub fn wait_while<'a, T>(
            &self,
            guard: Guard<'a, T>,
            is_awaited: impl FnMut(&mut T) -> bool,
        ) -> Guard<'a, T> {
            let woken = self.0.wait_while(guard, is_awaited);
            woken.unwrap_or_else(PoisonError::into_inner)
        }

        /// The same, for at most `time`.
        pub fn wait_for<'a, T>(&self, guard: Guard<'a, T>, time: Duration) -> Guard<'a, T> {
            let woken = self.0.wait_timeout(guard, time);
            woken.unwrap_or_else(PoisonError::into_inner).0
        }

        /// Wakes one of the threads that wait.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all of them.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    /// A lock around what it guards, for critical sections of some ten nanoseconds. One atomic
    /// operation for both ends of one, where a mutex needs two; a waiter spins, then yields the
    /// processor, and there is no fairness. Nothing that may block runs under it.
    pub(crate) use spin::mutex::SpinMutex as Brief;
    pub(crate) use spin::mutex::SpinMutexGuard as BriefGuard;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
    pub(crate) use std::thread::{JoinHandle, Thread, current, park, spawn, yield_now};

    /// Looks at a brief lock before the processor is given away: a little more than one critical
    /// section.
    const LOOKS_MAX: u32 = 64;

    #[inline]
    pub(crate) fn lock_briefly<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
        match brief.try_lock() {
            Some(guard) => guard,
            None => wait_for(brief, yield_now),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for<T>(brief: &Brief<T>, yield_now: impl Fn()) -> BriefGuard<'_, T> {
        let mut looks = 0_u32;
        loop {
            // Looks before it swaps: only a look leaves the line with the holder, who writes it.
            if !brief.is_locked()
                && let Some(guard) = brief.try_lock()
            {
                return guard;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_MAX) {
                yield_now();
            } else {
                spin_loop();
            }
        }
    }

    /// Parks for at most `nanoseconds`; may return early, for a wake-up or for no reason.
    pub(crate) fn park_for(nanoseconds: u64) {
        std::thread::park_timeout(std::time::Duration::from_nanos(nanoseconds));
    }

    /// Nanoseconds of a clock that never goes back, counted from its first reading in this process.
    pub(crate) fn now_ns() -> u64 {
        static FIRST: OnceLock<std::time::Instant> = OnceLock::new();
        let elapsed = FIRST.get_or_init(std::time::Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::testing::within_deadline;

        #[test]
        fn a_waiter_gives_its_processor_away_so_that_the_holder_can_run() {
            within_deadline(|| {
                let brief = Brief::new(1);
                // The holder runs, and unlocks, only when the waiter yields.
                let held = std::cell::Cell::new(brief.try_lock());
                let guard = wait_for(&brief, || drop(held.take()));
                assert_eq!(*guard, 1);
            });
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use super::lock as lock_briefly;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Arc, Mutex, Mutex as Brief, MutexGuard, MutexGuard as BriefGuard};
    pub(crate) use loom::thread::{JoinHandle, Thread, current, park, spawn, yield_now};
    pub(crate) use loom::thread_local;

    /// `std`'s cell behind a flag that loom sees. For cells with one writer: two that write
    /// together would be ordered by `std` alone.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> OnceLock<T> {
            OnceLock {
                is_set: AtomicBool::new(false),
                value: std::sync::OnceLock::new(),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            if self.is_set.load(Ordering::Acquire) {
                self.value.get()
            } else {
                None
            }
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let value = self.value.get_or_init(make);
            self.is_set.store(true, Ordering::Release);
            value
        }
    }

    /// Loom explores no spin that does not yield.
    pub(crate) fn spin_loop() {
        yield_now();
    }

    /// The time is up at once, after the other threads had their chance.
    pub(crate) fn park_for(_nanoseconds: u64) {
        yield_now();
    }

    /// Time stands still in a model.
    pub(crate) fn now_ns() -> u64 {
        0
    }
}

#[cfg(all(shuttle, not(loom)))]
mod imp {
    pub(crate) use super::lock as lock_briefly;
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use shuttle::sync::{
        Arc, Mutex, Mutex as Brief, MutexGuard, MutexGuard as BriefGuard,
    };
    pub(crate) use shuttle::thread::{JoinHandle, Thread, current, park, spawn, yield_now};
    pub(crate) use shuttle::thread_local;
    pub(crate) use std::sync::OnceLock;

    /// Parks until woken or until shuttle decides that the time is up.
    pub(crate) fn park_for(nanoseconds: u64) {
        shuttle::thread::park_timeout(std::time::Duration::from_nanos(nanoseconds));
    }

    /// Time stands still in a model.
    pub(crate) fn now_ns() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Lock, ReadWriteLock};

    #[test]
    fn a_lock_of_readers_outlives_a_panic_of_its_writer() {
        let lock = ReadWriteLock::new(1);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock.write() = 2;
            let _writes = lock.write();
            panic!("as a test");
        }));
        assert!(broken.is_err());
        let (one, other) = (lock.read(), lock.read());
        assert_eq!((*one, *other), (2, 2));
        drop((one, other));
        *lock.write() = 3;
        assert_eq!(*lock.read(), 3);
    }

    #[test]
    fn a_lock_outlives_a_panic_under_it() {
        let lock = Lock::new(1);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 2;
            panic!("as a test");
        }));
        assert!(broken.is_err());
        assert_eq!(*lock.lock(), 2);
        assert_eq!(lock.try_lock().map(|value| *value), Some(2));
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(lock.into_inner(), 2);
    }

    #[test]
    fn a_condition_is_waited_for_under_the_lock() {
        let (lock, changed) = (Lock::new(0), Condition::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock.lock() = 1;
                changed.notify_all();
            });
            let mut value = lock.lock();
            while *value == 0 {
                value = changed.wait(value);
            }
            value = changed.wait_while(value, |value| *value == 0);
            value = changed.wait_for(value, std::time::Duration::from_millis(1));
            assert_eq!(*value, 1);
        });
    }
}
