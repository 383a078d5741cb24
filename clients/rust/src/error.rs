//! Why there is no message.

use std::fmt;

use flatpath_messages::handshake::Misunderstanding;
use rustix::io::Errno;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A system call failed.
    System(&'static str, Errno),
    /// The server said no, or did not speak this protocol.
    Handshake(Misunderstanding),
    /// Nothing came in the time that was given.
    TimedOut,
    /// The server wrote what its own protocol does not allow.
    Broken(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System(what, errno) => write!(formatter, "{what}: {errno}"),
            Error::Handshake(why) => write!(formatter, "attaching: {why}"),
            Error::TimedOut => formatter.write_str("nothing came in time"),
            Error::Broken(what) => write!(formatter, "the server broke its protocol: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Misunderstanding> for Error {
    fn from(why: Misunderstanding) -> Error {
        Error::Handshake(why)
    }
}
