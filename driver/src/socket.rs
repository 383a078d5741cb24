//! Handles of what the kernel, or the simulation, keeps: connections and listeners.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A connection that a driver owns. A plain number: copying it copies no right to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(Handle);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    /// An ordinary descriptor of this process.
    Descriptor(RawFd),
    /// A place in the direct descriptor table of one ring.
    Slot(u32),
    /// A connection of a simulation.
    Simulated(u32),
}

impl Socket {
    pub(crate) fn new(handle: Handle) -> Socket {
        Socket(handle)
    }

    pub(crate) fn handle(self) -> Handle {
        self.0
    }

    /// The ordinary descriptor, for system calls of the caller's own (peer address, options). `None`
    /// for direct descriptors and in the simulation. It stays the driver's: never close it.
    pub fn descriptor(self) -> Option<RawFd> {
        match self.0 {
            Handle::Descriptor(descriptor) => Some(descriptor),
            Handle::Slot(_) | Handle::Simulated(_) => None,
        }
    }
}

/// A socket that connections are accepted from. The caller owns it; it may serve several drivers of
/// the same kind in turn or at once (each with a `try_clone` of the descriptor).
#[derive(Debug)]
pub struct Listener {
    source: Source,
    mode: AtomicU8,
}

#[derive(Debug)]
enum Source {
    Descriptor(OwnedFd),
    Simulated(u32),
}

/// Which blocking mode a driver wants its listener in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Blocking = 1,
    NonBlocking = 2,
}

impl Listener {
    /// A listening stream socket. Drivers set its blocking mode when they first accept from it.
    pub fn new(descriptor: OwnedFd) -> Listener {
        Listener {
            source: Source::Descriptor(descriptor),
            mode: AtomicU8::new(0),
        }
    }

    /// The descriptor; `None` in the simulation.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Source::Simulated(_) => None,
        }
    }
}
