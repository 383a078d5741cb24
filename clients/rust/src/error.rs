//! Why there is no message.

use flatpath_messages::handshake::Misunderstanding;
use rustix::io::Errno;

/// What can go wrong.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, Errno),
    /// The server refused, or did not speak this protocol.
    #[error("attaching: {0}")]
    Handshake(#[from] Misunderstanding),
    /// No message came in the time that was given.
    #[error("no message came in time")]
    TimedOut,
    /// The server ended without a farewell: it was killed, or it has detached this consumer for a
    /// breach of the protocol. Messages may have been lost.
    #[error("the server is gone without a farewell: it was killed, or detached this consumer")]
    Lost,
    /// The server wrote what its own protocol does not allow.
    #[error("the server broke its protocol: {0}")]
    Broken(&'static str),
}
