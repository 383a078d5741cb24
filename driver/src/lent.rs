//! What a socket receives, lent to another thread: that moves it into a pipe, as often as it has
//! written what lay there, until it is taken back.
//!
//! A worker that puts a stream in a file needs its network thread for nothing between two windows,
//! and a hand-over costs more than a third of the copy of a mebibyte.
//!
//! | may run beside | `splice_into` | `take_back`                        |
//! |----------------|---------------|------------------------------------|
//! | `splice_into`  | no: a lock    | waits for a call that never blocks |
//!
//! Invariants
//! - N1: after `take_back` nothing is taken from the socket here: both hold the lock. So bytes stay
//!   in order for a lender that takes it back before it receives.
//! - N2: the descriptor is a duplicate, which keeps the connection open: a lender takes it back
//!   before it closes the socket.
//! - N3: no call waits: what is moved has come already, and nothing else receives (N1).
//!
//! Cost: two system calls to lend and to take back, and two for each window.

use std::fmt;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use flatpath_structures::lock::Lock;
use rustix::io::ioctl_fionread;
use rustix::pipe::{SpliceFlags, splice};

/// See the module. Clones are the same loan.
#[derive(Clone)]
pub struct Lent(Arc<Lock<Option<Box<dyn Stream>>>>);

/// What can be lent: a socket, or a simulated one.
pub(crate) trait Stream: Send {
    /// As [`Lent::splice_into`].
    fn splice_into(&self, pipe: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> usize;
}

impl Stream for OwnedFd {
    fn splice_into(&self, pipe: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> usize {
        let there = usize::try_from(ioctl_fionread(self).unwrap_or(0)).unwrap_or(usize::MAX);
        if there < *bytes.start() {
            return 0;
        }
        let most = there.min(*bytes.end());
        splice(self.as_fd(), None, pipe, None, most, SpliceFlags::NONBLOCK).unwrap_or(0)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lent").finish_non_exhaustive()
    }
}

impl Lent {
    pub(crate) fn new(stream: impl Stream + 'static) -> Lent {
        Lent(Arc::new(Lock::new(Some(Box::new(stream)))))
    }

    /// Ends the loan.
    pub fn take_back(&self) {
        let stream = self.0.lock().take();
        drop(stream);
    }

    /// Whether it has not been taken back.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_out(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Moves what has come into an empty pipe: no less than the one bound, no more than the other.
    /// How many bytes; 0 where less is there, the loan has ended, or the stream has.
    pub(crate) fn splice_into(&self, pipe: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> usize {
        match &*self.0.lock() {
            Some(stream) => stream.splice_into(pipe, bytes),
            None => 0,
        }
    }
}
