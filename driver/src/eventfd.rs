//! An eventfd (eventfd(2)) that a driver polls.
//!
//! Invariants
//! - V1: what is written is taken once: reading sets the counter to zero.
//! - V2: taking never waits, whatever the blocking mode that the descriptor's owner wants.
//!
//! Cost: a write and a take are one system call each.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{IoSliceMut, ReadWriteFlags, preadv2};

use crate::completion::{Errno, Outcome};

/// The largest count (eventfd(2)).
const COUNT_MAX: u64 = u64::MAX - 1;

/// A counter that another thread, another process or a device adds to. Shared by its writers and
/// the driver that polls it, each with an `Arc`.
///
/// A driver that [polls](crate::Driver::poll_eventfd) one takes what was added, and reports how
/// much. So it stands for an interrupt: its writer needs to know the descriptor alone.
#[derive(Debug)]
pub struct Eventfd(Source);

#[derive(Debug)]
enum Source {
    Descriptor(OwnedFd),
    /// The counter itself.
    Simulated(AtomicU64),
}

impl Eventfd {
    /// A new one, at zero, that never makes its writer wait.
    ///
    /// # Errors
    /// When no descriptor or no memory is left.
    pub fn new() -> io::Result<Eventfd> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Eventfd(Source::Descriptor(descriptor)))
    }

    /// One that came from elsewhere: from another process, or made for a device. Its
    /// blocking mode is left as it is. Not for a semaphore (`EFD_SEMAPHORE`), of which a read takes
    /// one.
    ///
    /// # Errors
    /// When the descriptor is something else, or `/proc` does not tell what it is.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Eventfd> {
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        if kind.as_os_str() != "anon_inode:[eventfd]" {
            let words = format!("not an eventfd: {}", kind.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        Ok(Eventfd(Source::Descriptor(descriptor)))
    }

    /// Any descriptor in the place of one, which a watch cannot read.
    #[cfg(test)]
    pub(crate) fn of(descriptor: OwnedFd) -> Eventfd {
        Eventfd(Source::Descriptor(descriptor))
    }

    /// One for the simulation: a number, without a kernel.
    pub fn simulated() -> Eventfd {
        Eventfd(Source::Simulated(AtomicU64::new(0)))
    }

    /// The descriptor, to hand to another process; `None` in a simulation.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Source::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Source::Simulated(_) => None,
        }
    }

    /// Adds `count`; a driver that polls it completes.
    ///
    /// # Errors
    /// `WouldBlock` when the sum would not fit: as many are waiting to be taken. One that came from
    /// elsewhere in blocking mode waits instead. `InvalidInput` for `u64::MAX`.
    pub fn write(&self, count: u64) -> io::Result<()> {
        match &self.0 {
            Source::Descriptor(descriptor) => {
                rustix::io::write(descriptor, &count.to_ne_bytes())?;
                Ok(())
            }
            Source::Simulated(counter) => {
                let sum = |old: u64| old.checked_add(count).filter(|sum| *sum <= COUNT_MAX);
                // ORDER: Relaxed: a simulation has one thread.
                let added = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
                added.map_err(|_| io::ErrorKind::WouldBlock)?;
                Ok(())
            }
        }
    }

    /// Takes what was added since the last time; never waits (V2). A driver that polls it does
    /// this.
    ///
    /// # Errors
    /// AGAIN when that is nothing.
    pub fn take(&self) -> Result<u64, Errno> {
        match &self.0 {
            Source::Descriptor(descriptor) => {
                let mut bytes = [0; 8];
                // The offset that means "as read does".
                const NO_OFFSET: u64 = u64::MAX;
                preadv2(
                    descriptor,
                    &mut [IoSliceMut::new(&mut bytes)],
                    NO_OFFSET,
                    ReadWriteFlags::NOWAIT,
                )?;
                Ok(u64::from_ne_bytes(bytes))
            }
            Source::Simulated(counter) => {
                // ORDER: Relaxed: a simulation has one thread.
                match counter.swap(0, Ordering::Relaxed) {
                    0 => Err(Errno::AGAIN),
                    count => Ok(count),
                }
            }
        }
    }

    /// What a poll completes with when the eventfd may have been written to: `None` if another
    /// read has taken it, or a signal came first. A failure ends the poll.
    pub(crate) fn signalled(&self) -> Result<Option<Outcome>, Errno> {
        match self.take() {
            Ok(count) => Ok(Some(Outcome::Signalled(count))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a simulated one has something to take.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_raised(&self) -> bool {
        match &self.0 {
            Source::Descriptor(_) => false,
            Source::Simulated(counter) => counter.load(Ordering::Relaxed) > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_the_sum_of_what_was_written_and_is_taken_once() {
        for event in [Eventfd::new().expect("a descriptor"), Eventfd::simulated()] {
            assert_eq!(event.take(), Err(Errno::AGAIN));
            event.write(2).expect("room");
            event.write(40).expect("room");
            assert_eq!(event.take(), Ok(42));
            assert_eq!(event.take(), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn a_full_counter_refuses_and_does_not_wait() {
        for event in [Eventfd::new().expect("a descriptor"), Eventfd::simulated()] {
            event.write(COUNT_MAX).expect("just fits");
            let refused = event.write(1).expect_err("full");
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(event.take(), Ok(COUNT_MAX));
        }
    }

    #[test]
    fn taking_from_a_blocking_eventfd_does_not_wait() {
        let blocking = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let event = Eventfd::from_descriptor(blocking).expect("an eventfd");
        assert_eq!(event.take(), Err(Errno::AGAIN));
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        let refused = Eventfd::from_descriptor(file.into()).expect_err("a file");
        assert!(refused.to_string().contains("not an eventfd"), "{refused}");
    }
}
