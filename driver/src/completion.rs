//! The results of a wait: completions, and the received bytes they carry.

use std::cell::OnceCell;

use flatpath_structures::tokens::Pinned;
pub use rustix::io::Errno;

use flatpath_structures::pool::Buffer;
use flatpath_sys::udp::Envelope;

use crate::region::RegionMemory;
use crate::socket::Socket;

/// Something that happened to an operation.
#[derive(Debug)]
#[must_use = "a completion may carry a connection or a buffer"]
pub struct Completion {
    /// The user_data the operation was started with.
    pub user_data: u64,
    /// True unless the operation has ended; only this tells.
    pub more: bool,
    pub outcome: Outcome,
}

impl Completion {
    pub(crate) fn new(user_data: u64, more: bool, outcome: Outcome) -> Completion {
        Completion {
            user_data,
            more,
            outcome,
        }
    }

    /// The operation has ended.
    pub(crate) fn last(user_data: u64, outcome: Outcome) -> Completion {
        Completion::new(user_data, false, outcome)
    }
}

/// The outcome of an operation.
#[derive(Debug)]
// Exhaustive: a caller of `Driver::wait` owns what each outcome brings.
pub enum Outcome {
    /// Accept: a connection, the caller's to use and close, whatever `more` says.
    Accepted(Socket),
    /// Connect: the socket carries a connection from now on.
    Connected,
    /// Receive: bytes, to be recycled whatever `more` says.
    Received(Piece),
    /// recv_into: the buffer, with what was there after what it held; unchanged if nothing was.
    ReceivedInto(Buffer),
    /// Receive of datagrams: one of them, whose piece is to be recycled whatever `more` says.
    Datagram(Box<Datagram>),
    /// Receive and recv_into: the peer sends no more.
    EndOfStream,
    /// Send: progress.
    Sent {
        /// Bytes the kernel took since the last completion of this send.
        bytes: usize,
        /// The socket is closed and may not be used again; only ever in the final completion.
        closed: bool,
    },
    /// Poll: how much was written to the eventfd since the last time; never zero.
    Signalled(u64),
    /// The operation failed. The socket is still open.
    Failed(Errno),
}

impl Outcome {
    /// What a recv_into comes to, which has read into its buffer without waiting: where nothing was
    /// there the buffer comes back as it was; at the end of the stream and on failure it is
    /// dropped.
    #[inline]
    pub(crate) fn of_recv_into(mut buffer: Buffer, read: Result<usize, Errno>) -> Outcome {
        match read {
            Ok(0) => Outcome::EndOfStream,
            Ok(bytes) => {
                buffer.advance(bytes);
                Outcome::ReceivedInto(buffer)
            }
            Err(Errno::AGAIN | Errno::INTR) => Outcome::ReceivedInto(buffer),
            Err(errno) => Outcome::Failed(errno),
        }
    }
}

/// A datagram that was received.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "the caller owns what is in it")]
pub struct Datagram {
    /// Its bytes, to be recycled; `None` if it has none.
    pub piece: Option<Piece>,
    /// Where it came from and to, and whether it is whole.
    pub envelope: Envelope,
}

/// Received bytes in one of the driver's buffers. Not `Clone`, so it cannot be recycled twice.
#[must_use = "a piece is a buffer of the driver and must be recycled"]
pub struct Piece {
    pub(crate) buffer: u16,
    /// The driver's number of the region.
    pub(crate) region_id: u16,
    /// Where its bytes begin in the page.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// Names the region; no other region has it.
    pub(crate) region_serial: u64,
    /// The piece's own reference to its page, from the first fragment on.
    pub(crate) base: OnceCell<Pinned<RegionMemory>>,
}

impl Piece {
    /// How many bytes were received; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Keeps its first `bytes` bytes, which are not all of it and not none.
    pub fn truncate(&mut self, bytes: usize) {
        debug_assert!(bytes > 0 && bytes <= self.len(), "a piece is never empty");
        self.bytes = self.bytes.min(bytes as u32);
    }

    /// Which of the driver's regions it lies in; 0 is the common one.
    pub fn region_id(&self) -> u16 {
        self.region_id
    }
}

/// Without the region's serial number, which differs from run to run.
impl std::fmt::Debug for Piece {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Piece")
            .field("region_id", &self.region_id)
            .field("buffer", &self.buffer)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
