//! How another thread ends a wait: an eventfd that is written only when the driver's thread sleeps.
//!
//! Invariants
//! - W1: the flag is set only between "I am about to sleep" and the return from the kernel.
//! - W2: who takes the flag down writes the eventfd; so there is one write per sleep at most.
//!
//! Ordering
//! - E1 wake: publish, fence, read the flag (`wake`) -> set the flag, fence, look for work (`sleep`).
//!   One of the two sees the other's store.
//!
//! Cost: a wake of a busy driver is a fence and a load.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

/// Ends the wait of one driver, from any thread.
pub trait Wake: Send + Sync {
    /// Call after publishing the work that the driver's thread should see.
    fn wake(&self);
}

/// A driver's waker; clones wake the same driver. Outliving the driver is harmless.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sleeping: AtomicBool,
    /// Writes to the eventfd: wake-ups that cost a system call.
    writes: AtomicU64,
    /// `None` in the simulation, which never sleeps.
    eventfd: Option<OwnedFd>,
}

impl Waker {
    /// A waker with an eventfd of its own.
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker::of(Some(eventfd)))
    }

    /// A waker for a driver that never sleeps.
    pub(crate) fn simulated() -> Waker {
        Waker::of(None)
    }

    fn of(eventfd: Option<OwnedFd>) -> Waker {
        let shared = Shared {
            sleeping: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            eventfd,
        };
        Waker(Arc::new(shared))
    }

    pub(crate) fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.eventfd.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Publishes that this thread sleeps, then asks `ready`. True: go to sleep and call
    /// [`Waker::awake`] afterwards. False: there is work, and the flag is down again.
    #[must_use]
    pub(crate) fn may_sleep(&self, ready: &dyn Fn() -> bool) -> bool {
        self.0.sleeping.store(true, Ordering::Relaxed);
        // ORDER: E1, the sleeper's side.
        fence(Ordering::SeqCst);
        if ready() {
            self.awake();
            return false;
        }
        true
    }

    /// Back from the kernel. A write that is under way meanwhile is seen as one spurious wake-up.
    pub(crate) fn awake(&self) {
        self.0.sleeping.store(false, Ordering::Relaxed);
    }
}

impl Wake for Waker {
    fn wake(&self) {
        // ORDER: E1, the waker's side.
        fence(Ordering::SeqCst);
        // ORDER: Relaxed: the fence orders the flag against what was published; the eventfd carries
        // the wake-up itself.
        if !self.0.sleeping.load(Ordering::Relaxed)
            || !self.0.sleeping.swap(false, Ordering::Relaxed)
        {
            return;
        }
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        if let Some(eventfd) = &self.0.eventfd {
            // The only failure is a counter at its limit, and then the eventfd is readable anyway.
            let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }
}
