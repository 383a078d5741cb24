//! Handles of the kernel's, or the simulation's, connections and listeners.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flatpath_sys::tcp::Delivery;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::lent::Lent;

/// A connection that a driver owns. A plain number: copying it copies no right to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(Handle);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    /// A descriptor of this process.
    Descriptor(RawFd),
    /// A connection of a simulation.
    Simulated(u32),
}

impl Socket {
    pub(crate) fn new(handle: Handle) -> Socket {
        Socket(handle)
    }

    /// A socket of a simulation, for tests of what only passes sockets on.
    #[doc(hidden)]
    pub fn simulated(number: u32) -> Socket {
        Socket(Handle::Simulated(number))
    }

    /// None yet: a place for one that is to be made. No driver may be given it.
    #[doc(hidden)]
    pub fn unopened() -> Socket {
        Socket(Handle::Simulated(u32::MAX))
    }

    /// The descriptor, for the driver that it is of.
    pub(crate) fn raw(self) -> RawFd {
        self.descriptor()
            .expect("a simulated socket on a real driver")
    }

    /// The number, for the simulation that it is of.
    #[cfg(feature = "simulation")]
    pub(crate) fn number(self) -> u32 {
        match self.0 {
            Handle::Descriptor(_) => unreachable!("a real socket in a simulation"),
            Handle::Simulated(number) => number,
        }
    }

    /// The descriptor, for system calls of the caller's own (peer address, options).
    /// `None` in the simulation. It stays the driver's: never close it.
    pub fn descriptor(self) -> Option<RawFd> {
        match self.0 {
            Handle::Descriptor(descriptor) => Some(descriptor),
            Handle::Simulated(_) => None,
        }
    }

    /// Where the connection comes from: one system call. `None` in the simulation, for sockets
    /// without an internet address, and when the peer is gone already.
    pub fn peer(self) -> Option<SocketAddr> {
        let descriptor = self.descriptor()?;
        // SAFETY: the borrow ends with this call, which comes between the accept and the close
        // (C4). Only the number is used: were it closed after all, the kernel would refuse it, or
        // name the peer of another connection, and no memory is touched.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        SocketAddr::try_from(rustix::net::getpeername(borrowed).ok()??).ok()
    }

    /// The address of this machine that the connection has come to: one system call. `None` in the
    /// simulation, and for sockets without an internet address.
    pub fn local(self) -> Option<SocketAddr> {
        let descriptor = self.descriptor()?;
        // SAFETY: as for `peer`.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        SocketAddr::try_from(rustix::net::getsockname(borrowed).ok()?).ok()
    }

    /// See [`Driver::delivery`](crate::Driver::delivery).
    pub(crate) fn delivery(self) -> Option<Delivery> {
        let descriptor = self.descriptor()?;
        // SAFETY: as for `peer`.
        flatpath_sys::tcp::delivery(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// See [`Driver::is_paced`](crate::Driver::is_paced).
    pub(crate) fn is_paced(self) -> bool {
        self.descriptor().is_some_and(|descriptor| {
            // SAFETY: as for `peer`.
            flatpath_sys::tcp::is_paced(unsafe { BorrowedFd::borrow_raw(descriptor) })
        })
    }

    /// See [`Driver::lend`](crate::Driver::lend).
    pub(crate) fn lend(self) -> Option<Lent> {
        let descriptor = self.descriptor()?;
        // SAFETY: as for `peer`.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        socket.try_clone_to_owned().ok().map(Lent::new)
    }

    /// See [`Driver::set_unsent_max`](crate::Driver::set_unsent_max).
    pub(crate) fn set_unsent_max(self, bytes: u32) {
        if let Some(descriptor) = self.descriptor() {
            // SAFETY: as for `peer`.
            let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
            // A socket that is not TCP's has no such bound.
            let _ = flatpath_sys::tcp::set_unsent_max(socket, bytes);
        }
    }
}

/// A socket that connections are accepted from. The caller owns it. Several drivers, of this
/// process or another one, may accept from the same socket, one after the other or at the same
/// time, each with a descriptor of its own; the kernel may give one of them most of what comes.
#[derive(Debug)]
pub struct Listener {
    source: Source,
    is_prepared: AtomicBool,
    predecessor: Option<Predecessor>,
}

#[derive(Debug)]
enum Source {
    Descriptor(Arc<OwnedFd>),
    #[cfg_attr(
        not(feature = "simulation"),
        expect(dead_code, reason = "made by it alone")
    )]
    Simulated(u32),
}

/// The process that a listener was taken over from, which may still accept from it. Clones are the
/// same fact.
///
/// Of those that wait for connections exclusively the kernel wakes the one that began first. A
/// predecessor that hangs with an accept armed takes each of these wake-ups and accepts nothing. So
/// a listener that is shared with one is polled without exclusion until it is gone.
#[derive(Clone, Debug, Default)]
pub struct Predecessor(Arc<AtomicBool>);

impl Predecessor {
    /// One that may accept.
    pub fn new() -> Predecessor {
        Predecessor::default()
    }

    /// It accepts no more.
    pub fn leave(&self) {
        // ORDER: Relaxed: a fact that publishes nothing; seen late, it costs a few more polls.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it accepts no more.
    pub fn is_gone(&self) -> bool {
        // ORDER: Relaxed: see `leave`.
        self.0.load(Ordering::Relaxed)
    }
}

/// A listener while its predecessor may accept from it.
#[derive(Clone, Debug)]
pub(crate) struct SharedListener {
    pub(crate) descriptor: Arc<OwnedFd>,
    pub(crate) predecessor: Predecessor,
}

/// Connections that one listener brings in one turn at most, where the driver accepts them itself:
/// a millisecond of it. The caller orders crowds by address, and cannot order what is still in the
/// backlog.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 512;

/// Which blocking mode a driver wants a socket in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Blocking = 1,
    NonBlocking = 2,
}

impl Listener {
    /// A listening stream socket. Drivers make it non-blocking when they first accept from it: the
    /// mode belongs to the socket, which a driver of another kind in another process may use too.
    /// It is closed when the last reference is gone.
    pub fn new(descriptor: impl Into<Arc<OwnedFd>>) -> Listener {
        Listener {
            source: Source::Descriptor(descriptor.into()),
            is_prepared: AtomicBool::new(false),
            predecessor: None,
        }
    }

    /// The same socket, which was taken over from another process.
    #[must_use]
    pub fn taken_over_from(self, predecessor: Predecessor) -> Listener {
        Listener {
            predecessor: Some(predecessor),
            ..self
        }
    }

    /// The socket and its predecessor, while that is not gone.
    pub(crate) fn shared(&self) -> Option<SharedListener> {
        let predecessor = self.predecessor.clone().filter(|it| !it.is_gone())?;
        let Source::Descriptor(descriptor) = &self.source else {
            return None;
        };
        Some(SharedListener {
            descriptor: Arc::clone(descriptor),
            predecessor,
        })
    }

    /// Makes the kernel hold a new connection back until its first bytes are there
    /// (`TCP_DEFER_ACCEPT`, tcp(7)): accept and the first receive then take one turn instead of
    /// two, and a silent client costs no descriptor. One that is still silent after about a
    /// second is accepted nevertheless. Does nothing in the simulation.
    ///
    /// # Errors
    /// That of setsockopt(2); the listener works as before.
    pub fn defer_accept(&self) -> io::Result<()> {
        match &self.source {
            Source::Descriptor(descriptor) => flatpath_sys::tcp::defer_accept(descriptor),
            Source::Simulated(_) => Ok(()),
        }
    }

    /// Whether it listens: one that is bound may do so later. One system call.
    pub fn listens(&self) -> bool {
        match &self.source {
            Source::Descriptor(descriptor) => {
                rustix::net::sockopt::socket_acceptconn(descriptor).unwrap_or(true)
            }
            Source::Simulated(_) => true,
        }
    }

    /// The descriptor; `None` in the simulation.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Source::Simulated(_) => None,
        }
    }

    /// Accepts what has come, without waiting: a listener of a driver does not block once it was
    /// prepared.
    pub(crate) fn accept_waiting(&self, flags: SocketFlags) -> Option<OwnedFd> {
        loop {
            match accept_with(self.descriptor()?, flags) {
                Ok(socket) => return Some(socket),
                // The connection is gone already: on to the next one.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return None,
            }
        }
    }

    /// A listener of a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(number: u32) -> Listener {
        Listener {
            source: Source::Simulated(number),
            is_prepared: AtomicBool::new(true),
            predecessor: None,
        }
    }

    /// The number of a simulated listener.
    ///
    /// # Panics
    /// When it is a real one.
    #[cfg(feature = "simulation")]
    pub(crate) fn number(&self) -> u32 {
        match &self.source {
            Source::Descriptor(_) => unreachable!("a real listener in a simulation"),
            Source::Simulated(number) => *number,
        }
    }

    /// The descriptor, not blocking. Costs system calls the first time only.
    ///
    /// # Panics
    /// When the listener is a simulated one.
    pub(crate) fn prepare(&self, system_calls: &mut u64) -> RawFd {
        let Source::Descriptor(descriptor) = &self.source else {
            unreachable!("a simulated listener on a real driver")
        };
        // ORDER: Relaxed: a fact about the descriptor, which publishes nothing; setting it twice is
        // harmless.
        if !self.is_prepared.swap(true, Ordering::Relaxed) {
            *system_calls += 2;
            if let Err(error) = set_mode(descriptor, Mode::NonBlocking) {
                log::warn!("setting the blocking mode of a listener: {error}");
            }
        }
        descriptor.as_raw_fd()
    }
}

/// Has the close that follows send RST: one system call.
pub(crate) fn reset_at_close(socket: impl AsFd) {
    // Fails only on what is no socket; then there is nothing to reset.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

/// Ends the sending direction (FIN): one system call.
pub(crate) fn end_writing(socket: impl AsFd) {
    // ENOTCONN: the peer was faster, and the next receive reports it.
    let _ = shutdown(socket, Shutdown::Write);
}

/// Sets the blocking mode of a socket: two system calls.
pub(crate) fn set_mode(descriptor: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    fcntl_setfl(
        descriptor,
        match mode {
            Mode::Blocking => flags - OFlags::NONBLOCK,
            Mode::NonBlocking => flags | OFlags::NONBLOCK,
        },
    )
}
