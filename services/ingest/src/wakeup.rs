//! Wakes the control thread, and lets it pause.
//!
//! Invariants
//! - P1: while a producer waits for a consumer's room the control thread does not pause. It sets
//!   `pausing`, then checks for waiters under the consumer's lock; a producer joins the queue under
//!   that lock, then reads `pausing`. One of the two sees the other.
//!
//! Ordering
//! - E1 pause: the lock of the consumer, taken by both sides between their store and their load.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// See the header. The server's own, so it may be an eventfd.
#[derive(Debug)]
pub(crate) struct Wakeup {
    eventfd: OwnedFd,
    stop: AtomicBool,
    pausing: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Wakeup> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wakeup {
            eventfd,
            stop: AtomicBool::new(false),
            pausing: AtomicBool::new(false),
        })
    }

    /// Makes the control thread check everything. Never waits: a full counter wakes it as well.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// The control thread is awake.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }

    /// A producer has begun to wait for room (P1).
    pub(crate) fn end_pause(&self) {
        // ORDER: E1: the caller has had the consumer's lock since it joined the queue.
        if self.pausing.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Waits for `longest`, or until it is woken; not at all if `is_waited_for`.
    pub(crate) fn pause(&self, longest: Duration, is_waited_for: impl FnOnce() -> bool) {
        // ORDER: E1: what is called next takes the consumers' locks.
        self.pausing.store(true, Ordering::Relaxed);
        if !is_waited_for() {
            let longest = Timespec::try_from(longest).ok();
            let mut waited = [PollFd::new(&self.eventfd, PollFlags::IN)];
            // Interrupted: a shorter pause.
            let _ = poll(&mut waited, longest.as_ref());
        }
        // ORDER: relaxed; read late, it costs a needless wake-up.
        self.pausing.store(false, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        // ORDER: relaxed; the system calls order it.
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // ORDER: relaxed; the system calls order it.
        self.stop.load(Ordering::Relaxed)
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
