//! What wakes the desk, and lets it pause.
//!
//! Invariants
//! - P1: while somebody waits for a consumer's room the desk does not pause. It says that it will,
//!   then looks whether somebody waits, under the consumer's lock; who begins to wait does so under
//!   that lock, then looks whether the desk pauses. One of the two sees the other.
//!
//! Ordering
//! - E1 pause: the lock of the consumer, taken by both sides between their store and their load.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes the desk; the server's own, so it may be an eventfd.
#[derive(Debug)]
pub(crate) struct Doorbell {
    eventfd: OwnedFd,
    stop: AtomicBool,
    pausing: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Doorbell> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell {
            eventfd,
            stop: AtomicBool::new(false),
            pausing: AtomicBool::new(false),
        })
    }

    /// Makes the desk look at everything. Never waits: a full counter wakes it as well.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// The desk has been woken.
    pub(crate) fn answer(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }

    /// Somebody has begun to wait for room (P1).
    pub(crate) fn somebody_waits(&self) {
        // ORDER: E1: the caller has had the consumer's lock since it joined the queue.
        if self.pausing.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// The desk looks at nothing for so long, or until it is rung for; unless `is_waited_for`.
    pub(crate) fn pause(&self, longest: Duration, is_waited_for: impl FnOnce() -> bool) {
        // ORDER: E1: what is called next takes the consumers' locks.
        self.pausing.store(true, Ordering::Relaxed);
        if !is_waited_for() {
            let longest = Timespec::try_from(longest).ok();
            let mut waited = [PollFd::new(&self.eventfd, PollFlags::IN)];
            // Interrupted: a shorter pause.
            let _ = poll(&mut waited, longest.as_ref());
        }
        // ORDER: relaxed; a ring too many is all it costs to be seen late.
        self.pausing.store(false, Ordering::Relaxed);
    }

    /// The desk is to end.
    pub(crate) fn stop(&self) {
        // ORDER: relaxed; the system calls order it.
        self.stop.store(true, Ordering::Relaxed);
        self.ring();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // ORDER: relaxed; the system calls order it.
        self.stop.load(Ordering::Relaxed)
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
