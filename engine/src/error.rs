//! Why a server could not start or had to end, and why a write could not be queued.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use flatpath_driver::Refusal;

/// No buffer could be had within the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl std::fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the memory budget for buffers is used up")
    }
}

impl std::error::Error for NoRoom {}

/// Why a server could not start, or ended other than by a drain.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server has no listener: there is nothing to serve.
    NoListener,
    /// An address given to [`Server::listen`](crate::Server::listen) could not be understood.
    Address {
        /// As it was given.
        address: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// The kernel refused to listen there.
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        cause: io::Error,
    },
    /// io_uring was asked for by name and this machine refuses it.
    Uring(Refusal),
    /// A driver could not be made or gave up.
    Driver(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// The limits contradict each other or the machine.
    Limits(String),
    /// Signals could not be watched.
    Signals(io::Error),
    /// The server has ended, but not all of its threads: some were blocked when the time for the
    /// end was over. They stay until whatever blocks them is over, with what they hold; a process
    /// that has nothing else to do should exit.
    LeftBehind {
        /// The threads; never empty.
        left: Vec<LeftBehind>,
        /// What had made a network thread give up, if that is why the server ended.
        cause: Option<io::Error>,
    },
}

/// A thread that did not end in time: a handler has not returned, or a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Which one: `a worker`, or `network thread 0`.
    pub thread: String,
    /// The name of the protocol that it ran, as far as is known.
    pub listener: Option<&'static str>,
    /// How long it had been at it: since a worker's job was dispatched, or since the beginning of a
    /// network thread's turn.
    pub busy: Duration,
}

impl std::fmt::Display for LeftBehind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.thread)?;
        if let Some(listener) = self.listener {
            write!(formatter, ", at work for listener {listener}")?;
        }
        write!(formatter, ", busy for {:.1} s", self.busy.as_secs_f64())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::NoListener => formatter.write_str("no listener was named"),
            Error::Address { address, cause } => {
                write!(
                    formatter,
                    "{address} is not an address to listen on: {cause}"
                )
            }
            Error::Bind { address, cause } => {
                write!(formatter, "cannot listen on {address}: {cause}")
            }
            Error::Uring(refusal) => write!(formatter, "io_uring is refused: {refusal}"),
            Error::Driver(cause) => write!(formatter, "the driver failed: {cause}"),
            Error::Thread(cause) => write!(formatter, "a thread could not be started: {cause}"),
            Error::Limits(what) => formatter.write_str(what),
            Error::Signals(cause) => write!(formatter, "signals cannot be watched: {cause}"),
            Error::LeftBehind { left, cause } => {
                if let Some(cause) = cause {
                    write!(formatter, "the driver failed: {cause}; ")?;
                }
                formatter.write_str("threads did not end in time and were left behind")?;
                for (number, thread) in left.iter().enumerate() {
                    formatter.write_str(if number == 0 { ": " } else { "; " })?;
                    write!(formatter, "{thread}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Address { cause, .. }
            | Error::Bind { cause, .. }
            | Error::Driver(cause)
            | Error::Thread(cause)
            | Error::Signals(cause) => Some(cause),
            Error::LeftBehind { cause, .. } => cause.as_ref().map(|cause| cause as _),
            Error::NoListener | Error::Uring(_) | Error::Limits(_) => None,
        }
    }
}
