//! Why there is no message.

use flatpath_messages::handshake::Misunderstanding;
use rustix::io::Errno;

/// What can go wrong.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A system call failed.
    System(&'static str, Errno),
    /// The server refused, or did not speak this protocol.
    Handshake(Misunderstanding),
    /// No message came in the time that was given.
    TimedOut,
    /// The server ended unexpectedly: it was killed, or it has detached this consumer for a
    /// breach of the protocol. Messages may have been lost.
    Lost,
    /// The server wrote what its own protocol does not allow.
    Broken(&'static str),
}

flatpath_structures::impl_error! {
    Error {
        Self::System(what, cause) => "{what}: {cause}",
        Self::Handshake(cause) => "attaching: {cause}",
        Self::TimedOut => "no message came in time",
        Self::Lost =>
            "the server ended unexpectedly: it was killed, or detached this consumer",
        Self::Broken(what) => "the server broke its protocol: {what}",
    }
    source { Self::Handshake(cause) => cause }
}

impl From<Misunderstanding> for Error {
    fn from(cause: Misunderstanding) -> Error {
        Error::Handshake(cause)
    }
}
