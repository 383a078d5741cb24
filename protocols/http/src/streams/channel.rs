//! A response body that any thread feeds while it is sent: bounded, with back-pressure, and without
//! a thread that waits.
//!
//! The handler keeps the [`Sender`] or gives it to another thread, and returns the body. The
//! connection's session keeps the other end (`feed`, `push`). Between them is an outbox of the
//! engine's (`flatpath::Outbox`), which has the bound, the charge, the wake and the end.
//!
//! Cost: a lock that is held for a push; a piece is shared, not copied, up to the output. A stream
//! that waits is this, 300 bytes, and no thread.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use flatpath::{ConnectionHandle, Flushed, Io, NoRoom, Outbox, Refused};

use crate::respond::encode::ReplyFraming;
use crate::streams::feed::{Fed, put_copy, write_piece};

/// What the pieces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Parts of a body that its sender ends.
    Body,
    /// Events without end: a drain ends them, and comments keep them alive.
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Aborted,
}

/// Why [`Sender::send`] has not taken a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No more is sent: the client is gone, or its server, or a drain has ended a stream of events.
    Closed,
    /// As much waits as may, and the caller is a network thread, which must not wait.
    Full,
}

flatpath::impl_error! {
    SendError {
        Self::Closed => "this response takes no more: its client is gone, or the server drains",
        Self::Full => "the client of this response has not read what waits for it",
    }
}

/// Why [`Sender::try_send`] has not taken a piece, which it gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: a piece is refused for now or for good.
pub enum TrySendError {
    /// As much waits as may.
    Full(Bytes),
    /// No more is sent, as with [`SendError`].
    Closed(Bytes),
}

flatpath::impl_error! {
    TrySendError {
        Self::Full(..) => "the client of this response has not read what waits for it",
        Self::Closed(..) => "this response takes no more: its client is gone, or the server drains",
    }
}

/// Feeds a response body; see [`Body::channel`](crate::Body::channel). Dropped, it ends the body.
///
/// ```
/// use flatpath_http::{Body, Response};
///
/// fn rows() -> Response {
///     let (sender, body) = Body::channel(64 * 1024);
///     std::thread::spawn(move || {
///         for row in 0..1_000_000 {
///             if sender.send(format!("{row}\n")).is_err() {
///                 return; // the client is gone
///             }
///         }
///     });
///     Response::new(body)
/// }
/// # let _ = rows;
/// ```
#[must_use = "dropped, it ends the body"]
pub struct Sender(Arc<Outbox<Bytes, End>>);

impl Sender {
    /// Adds a piece; waits while `bytes_max` wait to be sent, or while there is no memory for more
    /// that waits. Empty pieces are left out. A network thread (an inline handler, say) must not
    /// wait: there a full body is an error.
    ///
    /// # Errors
    /// [`SendError`] when the client is gone, or when a network thread would have to wait.
    pub fn send(&self, piece: impl Into<Bytes>) -> Result<(), SendError> {
        let piece = piece.into();
        if piece.is_empty() {
            return self.nothing().map_err(|()| SendError::Closed);
        }
        self.0.push(piece).map_err(|refused| match refused {
            Refused::Full(piece) => {
                flatpath::discard_bytes(piece);
                SendError::Full
            }
            Refused::Closed(piece) => {
                flatpath::discard_bytes(piece);
                SendError::Closed
            }
        })
    }

    /// Adds a piece if there is room for it. Empty pieces are left out.
    ///
    /// # Errors
    /// Gives the piece back when as much waits as may, there is no memory for more, or the client
    /// is gone.
    pub fn try_send(&self, piece: impl Into<Bytes>) -> Result<(), TrySendError> {
        let piece = piece.into();
        if piece.is_empty() {
            return self.nothing().map_err(|()| TrySendError::Closed(piece));
        }
        self.0.try_push(piece).map_err(|refused| match refused {
            Refused::Full(piece) => TrySendError::Full(piece),
            Refused::Closed(piece) => TrySendError::Closed(piece),
        })
    }

    /// Adds a copy of a piece, which is not empty, if there is room for it: it is not copied
    /// before.
    ///
    /// # Errors
    /// As with [`try_send`](Self::try_send).
    pub(crate) fn try_copy(&self, piece: &[u8]) -> Result<(), Refused<()>> {
        put_copy(&self.0, piece)
    }

    fn nothing(&self) -> Result<(), ()> {
        if self.is_closed() { Err(()) } else { Ok(()) }
    }

    /// Whether the client is gone: nothing that is sent reaches it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether the server drains: what ends soon is sent whole; what has not ended when the time
    /// for draining is up is cut off.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Calls a function when something has happened that the sender may wait for: the client is
    /// gone, the server drains, or there is room again after [`TrySendError::Full`]. It runs on the
    /// network thread and must not block; it is called at once if it is too late for one of the
    /// first two. One function: the latest counts.
    pub fn on_event(&self, act: impl Fn() + Send + Sync + 'static) {
        self.0.on_event(act);
    }

    /// Cuts the body off: the client sees that it is not complete. What waits may be lost.
    pub fn abort(self) {
        self.0.end(End::Aborted);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.end(End::Complete);
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// The other end. Dropped, it tells the sender that the client is gone.
pub(crate) struct Pieces {
    outbox: Arc<Outbox<Bytes, End>>,
    /// What is left of the piece that is being read without a connection.
    front: Bytes,
    kind: Kind,
}

pub(crate) fn channel(bytes_max: usize, kind: Kind) -> (Sender, Pieces) {
    let outbox = Arc::new(Outbox::new(bytes_max));
    let pieces = Pieces {
        outbox: Arc::clone(&outbox),
        front: Bytes::new(),
        kind,
    };
    (Sender(outbox), pieces)
}

impl Pieces {
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// From now on this connection takes from it. Once.
    ///
    /// # Errors
    /// There is no memory for what the handler has queued.
    pub(crate) fn attach(&self, connection: ConnectionHandle) -> Result<(), NoRoom> {
        self.outbox.attach(connection)
    }

    pub(crate) fn drain(&self) {
        // What waits is sent, and no event after it.
        let end = (self.kind == Kind::Events).then_some(End::Complete);
        self.outbox.drain(end);
    }

    /// Queues what there is room for, as much as the framing leaves.
    pub(crate) fn flush(&self, io: &mut Io<'_>, framing: &mut ReplyFraming) -> Fed {
        if self.outbox.ended() == Some(End::Aborted) {
            return Fed::Aborted;
        }
        if framing.left() == 0 {
            return Fed::Complete;
        }
        let flushed = self.outbox.flush(io, |io, piece| {
            write_piece(io, piece, framing)?;
            Ok(framing.left() > 0)
        });
        match flushed {
            Flushed::Ended => self.end().unwrap_or(Fed::Complete),
            Flushed::All | Flushed::Full => Fed::Later,
            Flushed::NoMemory => Fed::NoMemory,
            Flushed::Stopped => Fed::Complete,
        }
    }

    /// The next piece, or what has come instead.
    #[cfg(feature = "http2")]
    pub(crate) fn take(&self, io: &mut Io<'_>, framing: &ReplyFraming) -> Result<Bytes, Fed> {
        if self.outbox.ended() == Some(End::Aborted) {
            return Err(Fed::Aborted);
        }
        if framing.left() == 0 {
            return Err(Fed::Complete);
        }
        let mut taken = None;
        let flushed = self
            .outbox
            .take(io, |piece: &Bytes| taken = Some(piece.clone()));
        taken.ok_or_else(|| match flushed {
            Flushed::Ended => self.end().unwrap_or(Fed::Complete),
            Flushed::All | Flushed::Full | Flushed::Stopped => Fed::Later,
            Flushed::NoMemory => Fed::NoMemory,
        })
    }

    fn end(&self) -> Option<Fed> {
        self.outbox.ended().map(|end| match end {
            End::Complete => Fed::Complete,
            End::Aborted => Fed::Aborted,
        })
    }

    /// Without a connection: some of the next piece, or what has come instead; blocks until there
    /// is something.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> Result<usize, Fed> {
        while self.front.is_empty() {
            if self.outbox.ended() == Some(End::Aborted) {
                return Err(Fed::Aborted);
            }
            // Before the look: what is sent comes before the end.
            let end = self.end();
            match self.outbox.pop() {
                Some(piece) => self.front = piece,
                None => match end {
                    Some(end) => return Err(end),
                    None => self.outbox.wait(),
                },
            }
        }
        let bytes = self.front.len().min(room.len());
        room[..bytes].copy_from_slice(&self.front.split_to(bytes));
        Ok(bytes)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.outbox.close(None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn read(pieces: &mut Pieces, bytes: usize) -> Result<String, Fed> {
        let mut room = vec![0; bytes];
        let read = pieces.read(&mut room)?;
        Ok(String::from_utf8_lossy(&room[..read]).into())
    }

    #[test]
    fn pieces_come_in_order_and_then_the_end() {
        let (sender, mut pieces) = channel(100, Kind::Body);
        for piece in ["a", "", "b"] {
            sender.send(piece).expect("room");
        }
        drop(sender);
        for piece in ["a", "b"] {
            assert_eq!(read(&mut pieces, 10), Ok(piece.into()));
        }
        assert_eq!(read(&mut pieces, 10), Err(Fed::Complete));
    }

    #[test]
    fn what_waits_is_bounded_and_one_long_piece_is_taken() {
        let (sender, mut pieces) = channel(10, Kind::Body);
        sender.try_send(vec![0; 100]).expect("alone");
        let back = sender.try_send("late").expect_err("full");
        assert_eq!(back, TrySendError::Full("late".into()));
        assert!(read(&mut pieces, 100).is_ok());
        sender.try_send("0123456789").expect("room");
        assert!(sender.try_send("x").is_err());
    }

    #[test]
    fn a_sender_that_waits_goes_on_with_room_and_ends_with_its_client() {
        let (sender, mut pieces) = channel(4, Kind::Body);
        let thread = thread::spawn(move || (0..1000).try_for_each(|_| sender.send("abcd")));
        for _ in 0..500 {
            assert_eq!(read(&mut pieces, 4), Ok("abcd".into()));
        }
        drop(pieces);
        let sent = thread.join().expect("no panic");
        assert_eq!(sent, Err(SendError::Closed));
    }

    #[test]
    fn the_sender_is_told_of_room_of_a_drain_and_of_the_end_once_each() {
        let (sender, mut pieces) = channel(4, Kind::Body);
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        sender.on_event(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        sender.try_send("abcd").expect("room");
        assert!(read(&mut pieces, 4).is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 0, "it was never full");
        sender.try_send("abcd").expect("room");
        sender.try_send("efgh").expect_err("full");
        assert!(read(&mut pieces, 4).is_ok());
        pieces.drain();
        pieces.drain();
        assert!(sender.is_draining() && !sender.is_closed());
        drop(pieces);
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert!(sender.is_closed());
    }

    #[test]
    fn what_is_aborted_is_not_complete() {
        let (sender, mut pieces) = channel(4, Kind::Body);
        sender.send("abcd").expect("room");
        sender.abort();
        assert_eq!(read(&mut pieces, 4), Err(Fed::Aborted));
    }

    #[test]
    fn events_end_with_a_drain_after_what_waits() {
        let (sender, mut pieces) = channel(100, Kind::Events);
        sender.send("last").expect("room");
        pieces.drain();
        assert_eq!(sender.send("late"), Err(SendError::Closed));
        assert_eq!(read(&mut pieces, 10), Ok("last".into()));
        assert_eq!(read(&mut pieces, 10), Err(Fed::Complete));
    }
}
