//! What feeds a body while it is sent: the sender of a channel, or a broadcast to many.

use std::fmt;
use std::io::{self, Read};

use flatpath::ConnectionHandle;

use crate::broadcast::Listener;
use crate::channel::{Kind, Next, Pieces};

/// A comment, which the client of an event stream ignores (WHATWG HTML, 9.2.6).
const COMMENT: &[u8] = b":\n\n";

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
    /// From now on this connection takes from it, and is woken when there is more.
    pub(crate) fn attach(&mut self, connection: ConnectionHandle) {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.attach(connection),
            Feed::Broadcast(listener) => listener.attach(connection),
        }
    }

    /// The server drains.
    pub(crate) fn drain(&mut self) {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.drain(),
            Feed::Broadcast(listener) => listener.drain(),
        }
    }

    /// The oldest piece, which stays until [`Receiver::advance`].
    pub(crate) fn next(&mut self) -> Next {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.next(),
            Feed::Broadcast(listener) => listener.next(),
        }
    }

    /// So much of the oldest piece is on its way.
    pub(crate) fn advance(&mut self, bytes: usize) {
        match &mut self.0 {
            Feed::Channel(pieces) => pieces.advance(bytes),
            Feed::Broadcast(listener) => listener.advance(bytes),
        }
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
        loop {
            match self.next() {
                Next::Piece(piece) => {
                    let bytes = piece.len().min(room.len());
                    room[..bytes].copy_from_slice(&piece[..bytes]);
                    self.advance(bytes);
                    return Ok(bytes);
                }
                Next::Later => match &self.0 {
                    Feed::Channel(pieces) => pieces.wait(),
                    Feed::Broadcast(listener) => listener.wait(),
                },
                Next::Complete => return Ok(0),
                Next::Aborted => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
