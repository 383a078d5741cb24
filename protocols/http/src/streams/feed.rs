//! What feeds a body while it is sent: the sender of a channel, or a broadcast to many.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use flatpath::{ConnectionHandle, Io, NoRoom, Outbox, Refused};

use crate::respond::encode::{CHUNK_LINE_BYTES_MAX, ReplyFraming, chunk_line};
use crate::streams::broadcast::Listener;
use crate::streams::channel::{Kind, Pieces};

/// A comment, which the client of an event stream ignores (WHATWG HTML, 9.2.6).
const COMMENT: &[u8] = b":\n\n";

/// What follows from what a feed has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// No more now; the connection will be called.
    Later,
    /// There is no memory for more.
    NoMemory,
    Complete,
    Aborted,
}

/// Where a body comes from that is fed while it is sent: what
/// [`Body::Channel`](crate::Body::Channel) holds. Dropped, it is to the sender as if its client
/// were gone.
pub struct Receiver(Feed);

enum Feed {
    Channel(Pieces),
    Broadcast(Listener),
}

impl From<Pieces> for Receiver {
    fn from(pieces: Pieces) -> Self {
        Self(Feed::Channel(pieces))
    }
}

impl From<Listener> for Receiver {
    fn from(listener: Listener) -> Self {
        Self(Feed::Broadcast(listener))
    }
}

impl Receiver {
    /// From now on this connection takes from it, and is woken when there is more. Once.
    ///
    /// # Errors
    /// There is no memory for what is queued already.
    pub(crate) fn attach(&mut self, connection: ConnectionHandle) -> Result<(), NoRoom> {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.attach(connection),
            Feed::Broadcast(listener) => {
                listener.attach(connection);
                Ok(())
            }
        }
    }

    /// The server drains.
    pub(crate) fn drain(&mut self) {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.drain(),
            Feed::Broadcast(listener) => listener.drain(),
        }
    }

    /// Queues what there is room for, as much as the framing leaves.
    pub(crate) fn flush(&mut self, io: &mut Io<'_>, framing: &mut ReplyFraming) -> Fed {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.flush(io, framing),
            Feed::Broadcast(listener) => listener.flush(io, framing),
        }
    }

    /// Takes the next piece, as much of it as the framing leaves, which is one without chunks: for
    /// a connection that does not queue it yet. A short one is not charged any more.
    #[cfg(feature = "http2")]
    pub(crate) fn take(
        &mut self,
        io: &mut Io<'_>,
        framing: &mut ReplyFraming,
    ) -> Result<Bytes, Fed> {
        let mut piece = match &mut self.0 {
            Feed::Channel(pieces) => pieces.take(io, framing)?,
            Feed::Broadcast(listener) => listener.take_piece(io, framing)?,
        };
        piece.truncate(usize::try_from(framing.left()).unwrap_or(usize::MAX));
        framing.queued(piece.len() as u64);
        Ok(piece)
    }

    /// What shows both ends that the other is there, for streams that have such words.
    pub(crate) fn keep_alive(&self) -> Option<&'static [u8]> {
        match &self.0 {
            Feed::Channel(pieces) if pieces.kind() == Kind::Body => None,
            Feed::Channel(_) | Feed::Broadcast(_) => Some(COMMENT),
        }
    }
}

/// For tests and what wraps a handler: blocks until there is something.
impl Read for Receiver {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.0 {
            Feed::Channel(pieces) => pieces.read(room),
            Feed::Broadcast(listener) => listener.read(room),
        };
        match read {
            Ok(bytes) => Ok(bytes),
            Err(Fed::Aborted) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Ok(0),
        }
    }
}

/// Copies a piece that has arrived to an outbox, if there is room for it.
///
/// # Errors
/// It was not copied.
pub(crate) fn put_copy<E: Clone>(
    outbox: &Outbox<Bytes, E>,
    piece: &[u8],
) -> Result<(), Refused<()>> {
    let room = outbox.try_admit(piece.len())?;
    let copy = Bytes::copy_from_slice(piece);
    let pushed = outbox.push_admitted(copy, room);
    pushed.map_err(|_copy| Refused::Closed(()))
}

/// Queues a piece, as much of it as the framing leaves, as a chunk or as it is; all or nothing.
pub(crate) fn write_piece(
    io: &mut Io<'_>,
    piece: &Bytes,
    framing: &mut ReplyFraming,
) -> Result<(), NoRoom> {
    let cut;
    let piece = match usize::try_from(framing.left()) {
        Ok(left) if left < piece.len() => {
            cut = piece.slice(..left);
            &cut
        }
        _ => piece,
    };
    if *framing == ReplyFraming::Chunked {
        let mut line = [0; CHUNK_LINE_BYTES_MAX];
        io.write_piece(chunk_line(piece.len(), &mut line), piece, b"\r\n")?;
    } else {
        io.write_piece(b"", piece, b"")?;
    }
    framing.queued(piece.len() as u64);
    Ok(())
}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
