//! Why a bench did not come to its end.

use std::fmt;
use std::io;

/// What stood in the way.
#[derive(Debug)]
pub enum Error {
    /// The server under test did not start, or ended early.
    Server(String),
    /// A client of the server under test could not work.
    Clients(io::Error),
    /// This machine does not have what a row needs.
    Unavailable(String),
    /// A plot could not be written.
    Plot(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(what) => write!(formatter, "the server under test: {what}"),
            Self::Clients(cause) => write!(formatter, "the clients: {cause}"),
            Self::Unavailable(what) => formatter.write_str(what),
            Self::Plot(what) => write!(formatter, "a plot: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Clients(cause) => Some(cause),
            Self::Server(_) | Self::Unavailable(_) | Self::Plot(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Self {
        Self::Clients(cause)
    }
}
