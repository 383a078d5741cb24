//! What comes out of a wait: completions, and the received bytes they carry.

pub use rustix::io::Errno;

use crate::Socket;

/// Something that happened to an operation.
#[derive(Debug)]
#[must_use = "a completion may carry a connection or a buffer"]
pub struct Completion {
    /// The token the operation was started with.
    pub token: u64,
    /// True while the operation lives on; the only sign of it.
    pub more: bool,
    /// What happened.
    pub outcome: Outcome,
}

/// What happened to an operation.
#[derive(Debug)]
pub enum Outcome {
    /// Accept: a connection, the caller's to use and close, whatever `more` says.
    Accepted(Socket),
    /// Receive: bytes, to be put back whatever `more` says.
    Received(Piece),
    /// Receive: the peer sends no more.
    EndOfStream,
    /// Send: progress.
    Sent {
        /// Bytes the kernel took since the last completion of this send.
        bytes: usize,
        /// The socket is closed and may not be used again; only ever in the final completion.
        closed: bool,
    },
    /// The operation failed. The socket is still open.
    Failed(Errno),
}

/// Received bytes in one of the driver's buffers. Not `Clone`, so it cannot be put back twice.
#[derive(Debug)]
#[must_use = "a piece is a buffer of the driver and must be put back"]
pub struct Piece {
    pub(crate) buffer: u16,
    pub(crate) bytes: u32,
}

impl Piece {
    /// How many bytes were received; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.bytes as usize
    }
}
