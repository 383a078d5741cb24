//! A response body that any thread feeds while it is sent: bounded, with back-pressure, and without
//! a thread that waits.
//!
//! The handler keeps the [`Sender`] or gives it to another thread, and returns the body. The
//! connection's session keeps the other end (`feed`, `push`): the network thread takes from it what
//! its output has room for, and is called again by its [`ConnectionHandle`] when there is more.
//!
//! | may run beside | `Sender`           | the network thread |
//! |----------------|--------------------|--------------------|
//! | `Sender`       | yes, from a thread | yes                |
//!
//! Invariants
//! - H1: what waits is at most `bytes_max`, or one piece that is longer.
//! - H2: callbacks, wakes and drops of the sender's own run outside of the lock; see
//!   `flatpath::discard`.
//! - H3: a receiver that found nothing is woken by the piece or the end that comes next.
//!
//! Cost: a lock that is held for a push or a pop; a piece is shared, not copied, up to the output.
//! A stream that waits is this, 300 bytes, and no thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flatpath::{ConnectionHandle, await_room, guarded};

/// A function of the sender's.
struct OnEvent(Box<dyn Fn() + Send + Sync>);

struct Channel {
    state: Mutex<State>,
    /// Room for a sender that waits, or an end.
    changed: Condvar,
    bytes_max: usize,
    kind: Kind,
}

/// What the pieces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Parts of a body that its sender ends.
    Body,
    /// Events without end: a drain ends them, and comments keep them alive.
    Events,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<End>,
    is_gone: bool,
    is_draining: bool,
    /// The receiver has found nothing, and waits (H3).
    awaits: bool,
    /// A piece was refused: the sender wants to know of room.
    was_full: bool,
    /// The connection that sends it, once it does.
    connection: Option<ConnectionHandle>,
    on_event: Option<Arc<OnEvent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Aborted,
}

impl OnEvent {
    /// A panic ends here: it may be called by a drop, within another panic.
    fn call(self: Arc<Self>) {
        if flatpath::contain(|| (self.0)()).is_none() {
            log::error!("the function of a response's sender panicked");
        }
        flatpath::discard_last(self);
    }
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the sender, in whichever way it waits.
    fn notify_sender(&self, state: MutexGuard<'_, State>) {
        let on_event = state.on_event.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(on_event) = on_event {
            on_event.call();
        }
    }

    fn end(&self, end: End) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.end = Some(end); // OURS: a name.
            self.wake_receiver(state);
        }
    }

    fn wake_receiver(&self, mut state: MutexGuard<'_, State>) {
        if !std::mem::take(&mut state.awaits) {
            return;
        }
        let connection = state.connection.clone();
        drop(state);
        match connection {
            Some(connection) => connection.wake(),
            None => self.changed.notify_all(),
        }
    }
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
pub struct Sender(Arc<Channel>);

impl Sender {
    /// Adds a piece; waits while `bytes_max` wait to be sent. Empty pieces are left out. A network
    /// thread (an inline handler, say) must not wait: there a full body is an error.
    ///
    /// # Errors
    /// [`SendError`] when the client is gone, or when a network thread would have to wait.
    pub fn send(&self, piece: impl Into<Bytes>) -> Result<(), SendError> {
        let mut piece = guarded(piece.into());
        loop {
            piece = match self.add(self.0.lock(), piece) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(SendError::Closed),
                Err(TrySendError::Full(piece)) => piece,
            };
            let is_full = |state: &State| state.was_full && !state.is_gone;
            if await_room(self.0.lock(), &self.0.changed, is_full).is_err() {
                return Err(SendError::Full);
            }
        }
    }

    /// Adds a piece if there is room for it. Empty pieces are left out.
    ///
    /// # Errors
    /// Gives the piece back when as much waits as may, or the client is gone.
    pub fn try_send(&self, piece: impl Into<Bytes>) -> Result<(), TrySendError> {
        let piece = guarded(piece.into());
        self.add(self.0.lock(), piece)
    }

    fn add(&self, mut state: MutexGuard<'_, State>, piece: Bytes) -> Result<(), TrySendError> {
        if state.is_gone {
            return Err(TrySendError::Closed(piece));
        }
        // H1.
        if state.bytes > 0 && state.bytes.saturating_add(piece.len()) > self.0.bytes_max {
            state.was_full = true;
            return Err(TrySendError::Full(piece));
        }
        if !piece.is_empty() {
            state.bytes += piece.len();
            state.pieces.push_back(piece);
            self.0.wake_receiver(state);
        }
        Ok(())
    }

    /// Whether the client is gone: nothing that is sent reaches it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_gone
    }

    /// Whether the server drains: what ends soon is sent whole; what has not ended when the time
    /// for draining is up is cut off.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.lock().is_draining
    }

    /// Calls a function when something has happened that the sender may wait for: the client is
    /// gone, the server drains, or there is room again after [`TrySendError::Full`]. It runs on the
    /// network thread and must not block; it is called at once if it is too late for one of the
    /// first two. One function: the latest counts.
    pub fn on_event(&self, act: impl Fn() + Send + Sync + 'static) {
        let act = Arc::new(OnEvent(Box::new(act)));
        let mut state = self.0.lock();
        let is_late = state.is_gone || state.is_draining;
        let before = match state.is_gone {
            // Nothing else will happen.
            true => None,
            false => state.on_event.replace(Arc::clone(&act)),
        };
        drop(state);
        if let Some(before) = before {
            flatpath::discard_last(before);
        }
        if is_late {
            act.call();
        }
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
pub(crate) struct Pieces(Arc<Channel>);

/// What a body that is fed from elsewhere has next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Piece(Bytes),
    /// Nothing yet; the connection will be woken.
    Later,
    Complete,
    Aborted,
}

pub(crate) fn channel(bytes_max: usize, kind: Kind) -> (Sender, Pieces) {
    let channel = Arc::new(Channel {
        state: Mutex::default(),
        changed: Condvar::new(),
        bytes_max,
        kind,
    });
    (Sender(Arc::clone(&channel)), Pieces(channel))
}

impl Pieces {
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Blocks until there is something.
    pub(crate) fn wait(&self) {
        let mut state = self.0.lock();
        while state.awaits {
            let changed = self.0.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From now on this connection takes from it.
    pub(crate) fn attach(&self, connection: ConnectionHandle) {
        self.0.lock().connection = Some(connection);
    }

    pub(crate) fn drain(&self) {
        let mut state = self.0.lock();
        if !std::mem::replace(&mut state.is_draining, true) {
            if self.0.kind == Kind::Events {
                // What waits is sent, and nothing after it.
                state.end.get_or_insert(End::Complete);
                state.is_gone = true;
            }
            self.0.notify_sender(state);
        }
    }

    /// The oldest piece, which stays until [`Pieces::advance`].
    pub(crate) fn next(&self) -> Next {
        let mut state = self.0.lock();
        if state.end == Some(End::Aborted) {
            return Next::Aborted;
        }
        match (state.pieces.front(), state.end) {
            (Some(piece), _) => Next::Piece(piece.clone()),
            (None, Some(_)) => Next::Complete,
            (None, None) => {
                state.awaits = true;
                Next::Later
            }
        }
    }

    /// So much of the oldest piece is on its way.
    pub(crate) fn advance(&self, bytes: usize) {
        let mut state = self.0.lock();
        let taken = state.pieces.front_mut().map(|piece| piece.split_to(bytes));
        if taken.is_some() {
            state.bytes -= bytes;
        }
        let is_used_up = state.pieces.front().is_some_and(Bytes::is_empty);
        let used_up = match is_used_up {
            true => state.pieces.pop_front(),
            false => None,
        };
        let has_room = state.bytes <= self.0.bytes_max / 2;
        if has_room && std::mem::take(&mut state.was_full) {
            self.0.notify_sender(state);
        } else {
            drop(state);
        }
        drop((taken, used_up));
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_gone = true;
        let pieces = std::mem::take(&mut state.pieces);
        let connection = state.connection.take();
        state.bytes = 0;
        // The last event.
        let on_event = state.on_event.take();
        drop(state);
        self.0.changed.notify_all();
        drop(connection);
        if let Some(on_event) = on_event {
            on_event.call();
        }
        drop(pieces);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn pieces_come_in_order_and_then_the_end() {
        let (sender, receiver) = channel(100, Kind::Body);
        assert_eq!(receiver.next(), Next::Later);
        for piece in ["a", "", "b"] {
            sender.send(piece).expect("room");
        }
        drop(sender);
        for piece in ["a", "b"] {
            assert_eq!(receiver.next(), Next::Piece(piece.into()));
            receiver.advance(1);
        }
        assert_eq!(receiver.next(), Next::Complete);
    }

    #[test]
    fn what_waits_is_bounded_and_one_long_piece_is_taken() {
        let (sender, receiver) = channel(10, Kind::Body);
        sender.try_send(vec![0; 100]).expect("alone");
        let back = sender.try_send("late").expect_err("full");
        assert_eq!(back, TrySendError::Full("late".into()));
        receiver.advance(100);
        sender.try_send("0123456789").expect("room");
        assert!(sender.try_send("x").is_err());
    }

    #[test]
    fn a_sender_that_waits_goes_on_with_room_and_ends_with_its_client() {
        let (sender, receiver) = channel(4, Kind::Body);
        let thread = thread::spawn(move || (0..1000).try_for_each(|_| sender.send("abcd")));
        for _ in 0..500 {
            while receiver.next() == Next::Later {
                thread::yield_now();
            }
            receiver.advance(4);
        }
        drop(receiver);
        let sent = thread.join().expect("no panic");
        assert_eq!(sent, Err(SendError::Closed));
    }

    #[test]
    fn the_sender_is_told_of_room_of_a_drain_and_of_the_end_once_each() {
        let (sender, receiver) = channel(4, Kind::Body);
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        sender.on_event(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        sender.try_send("abcd").expect("room");
        receiver.advance(4);
        assert_eq!(count.load(Ordering::Relaxed), 0, "it was never full");
        sender.try_send("abcd").expect("room");
        sender.try_send("efgh").expect_err("full");
        receiver.advance(4);
        receiver.drain();
        receiver.drain();
        assert!(sender.is_draining() && !sender.is_closed());
        drop(receiver);
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert!(sender.is_closed());
    }

    #[test]
    fn what_is_aborted_is_not_complete() {
        let (sender, receiver) = channel(4, Kind::Body);
        sender.send("abcd").expect("room");
        sender.abort();
        assert_eq!(receiver.next(), Next::Aborted);
    }

    #[test]
    fn events_end_with_a_drain_after_what_waits() {
        let (sender, receiver) = channel(100, Kind::Events);
        sender.send("last").expect("room");
        receiver.drain();
        assert_eq!(sender.send("late"), Err(SendError::Closed));
        assert_eq!(receiver.next(), Next::Piece("last".into()));
        receiver.advance(4);
        assert_eq!(receiver.next(), Next::Complete);
    }
}
