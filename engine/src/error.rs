//! Why a server could not start or had to end.

use std::io;
use std::net::SocketAddr;

use flatpath_driver::Refusal;

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
            Error::NoListener | Error::Uring(_) | Error::Limits(_) => None,
        }
    }
}
