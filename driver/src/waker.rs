//! How another thread ends a wait: an eventfd that is written only when the driver's thread sleeps.
//!
//! Invariants
//! - The flag is set only between "I am about to sleep" and the return from the kernel.
//! - The thread that takes the flag down writes the eventfd; so a sleep has one write at most.
//!
//! Ordering
//! - WE1 wake: publish, fence, read the flag (`take`) -> set the flag, fence, look for work
//!   (`may_sleep`). One of the two sees the other's store.
//! - WE2 take: a late waker's exchange -> the next time the flag is set: a thread that reads the
//!   flag after that cannot see the older value. (That follows from exchanges being atomic, too;
//!   loom does not draw the conclusion.)
//!
//! Cost: a wake of a busy driver is a fence and a load.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, fence};

use rustix::event::{EventfdFlags, eventfd};

/// Ends the wait of one driver, from any thread; clones wake the same driver. Outliving the driver
/// is harmless.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sleeper: Sleeper,
    /// Writes to the eventfd: wake-ups that cost a system call.
    writes: AtomicU64,
    /// `None` in the simulation, which never sleeps.
    eventfd: Option<OwnedFd>,
}

/// The flag of the handshake, apart from the eventfd: this is what the model checker runs.
#[derive(Debug)]
struct Sleeper {
    sleeping: AtomicBool,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper {
            sleeping: AtomicBool::new(false),
        }
    }

    /// Publishes that this thread sleeps, then asks `ready`; false and the flag down if so.
    #[must_use]
    fn may_sleep(&self, ready: &dyn Fn() -> bool) -> bool {
        // ORDER: Acquire: WE2; the fence after it orders it for WE1.
        self.sleeping.swap(true, Ordering::Acquire);
        // ORDER: WE1, the sleeper's side.
        fence(Ordering::SeqCst);
        if ready() {
            self.awake();
            return false;
        }
        true
    }

    fn awake(&self) {
        // ORDER: Relaxed: it publishes nothing; a waker that misses it wakes in vain (WE1).
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// True when there is a sleeper, and this call is the one that has to wake it.
    #[must_use]
    fn take(&self) -> bool {
        // ORDER: WE1, the waker's side.
        fence(Ordering::SeqCst);
        // ORDER: Relaxed: the fence orders this load after what was published (WE1). It spares the
        // waker of a busy driver the exchange. Release: WE2.
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Release)
    }
}

impl Waker {
    /// A waker with an eventfd of its own.
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker::of(Some(eventfd)))
    }

    /// A waker for a driver that never sleeps.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated() -> Waker {
        Waker::of(None)
    }

    fn of(eventfd: Option<OwnedFd>) -> Waker {
        Waker(Arc::new(Shared {
            sleeper: Sleeper::new(),
            writes: AtomicU64::new(0),
            eventfd,
        }))
    }

    pub(crate) fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.eventfd.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Call it after publishing the work that the driver's thread should see.
    pub fn wake(&self) {
        if !self.0.sleeper.take() {
            return;
        }
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        if let Some(eventfd) = &self.0.eventfd {
            // The only failure is a counter at its limit, and then the eventfd is readable anyway.
            let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Publishes that this thread sleeps, then asks `ready`. True: go to sleep and call
    /// [`Waker::awake`] afterwards. False: there is work, and the flag is down again.
    #[must_use]
    pub(crate) fn may_sleep(&self, ready: &dyn Fn() -> bool) -> bool {
        self.0.sleeper.may_sleep(ready)
    }

    /// Back from the kernel. A write that is under way is seen as one spurious wake-up.
    pub(crate) fn awake(&self) {
        self.0.sleeper.awake();
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// The eventfd: it holds a write until a thread waits. (Not `park`: loom loses an unpark that
    /// meets a thread in `join`.)
    #[derive(Default)]
    struct Eventfd {
        written: Mutex<bool>,
        arrived: Condvar,
    }

    impl Eventfd {
        fn write(&self) {
            *self.written.lock().expect("not poisoned") = true;
            self.arrived.notify_one();
        }

        fn wait(&self) {
            let mut written = self.written.lock().expect("not poisoned");
            while !*written {
                written = self.arrived.wait(written).expect("not poisoned");
            }
            *written = false;
        }
    }

    /// Work is pushed, then the sleeper woken. Loom reports a lost wake-up as a deadlock.
    /// The model leaves out time-outs and what else ends a wait.
    fn work_is_never_slept_on(wakers: usize) {
        loom::model(move || {
            let sleeper = Arc::new(Sleeper::new());
            let work = Arc::new(AtomicUsize::new(0));
            let eventfd = Arc::new(Eventfd::default());
            let threads: Vec<_> = (0..wakers)
                .map(|_| {
                    let (sleeper, work) = (Arc::clone(&sleeper), Arc::clone(&work));
                    let eventfd = Arc::clone(&eventfd);
                    thread::spawn(move || {
                        work.fetch_add(1, Ordering::Relaxed);
                        if sleeper.take() {
                            eventfd.write();
                        }
                    })
                })
                .collect();
            let mut taken = 0;
            while taken < wakers {
                if sleeper.may_sleep(&|| work.load(Ordering::Relaxed) > 0) {
                    eventfd.wait();
                    sleeper.awake();
                }
                taken += work.swap(0, Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().expect("done");
            }
        });
    }

    #[test]
    fn loom_work_of_one_waker_is_never_slept_on() {
        work_is_never_slept_on(1);
    }

    #[test]
    fn loom_work_of_two_wakers_is_never_slept_on() {
        work_is_never_slept_on(2);
    }
}
