//! A request body on its way from the connection of its client to one that passes it on.
//!
//! The client's connection puts what arrives, the other one takes it, each on its network thread:
//! no worker is on the way. Between them is an outbox of the engine's (`flatpath::Outbox`), which
//! has the bound, the charge, the wake and the end.
//!
//! | side      | calls                                    | is woken for                    |
//! |-----------|------------------------------------------|---------------------------------|
//! | client    | those of [`Incoming`]                    | room, or that the body may come |
//! | the other | `attach`, `flush`, [`Passage::go_on`]    | a piece, or the end             |
//!
//! Invariants
//! - PA1: at most the bound and one piece wait ([`PASSAGE_BYTES`]); with more, nothing is received
//!   of the client (`Stall::Outside`).
//! - PA2: the body ends once: complete, with its trailers, or aborted, which whatever drops the
//!   client's side does.
//! - PA3: a client that waits for `100 Continue` hears it when the other side says so, and not
//!   before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use flatpath::lock::Lock;
use flatpath::{ConnectionHandle, Flushed, Io, NoRoom, Outbox, Refused, Stall};
use http::HeaderMap;

use crate::streams::feed::put_copy;

/// What may wait between the two connections, in bytes.
pub(crate) const PASSAGE_BYTES: usize = 64 * 1024;

/// How a body has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// All of it has come, and these trailers after it.
    Complete(HeaderMap),
    /// It never will.
    Aborted,
}

/// See the module.
pub(crate) struct Passage {
    outbox: Outbox<Bytes, BodyEnd>,
    goes_on: AtomicBool,
    client: Lock<Option<ConnectionHandle>>,
}

impl Passage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            outbox: Outbox::new(PASSAGE_BYTES),
            goes_on: AtomicBool::new(false),
            client: Lock::default(),
        })
    }

    /// This connection takes from it, and is called when there is more.
    ///
    /// # Errors
    /// There is no memory for what waits.
    pub(crate) fn attach(&self, taker: ConnectionHandle) -> Result<(), NoRoom> {
        self.outbox.attach(taker)
    }

    /// Moves pieces to the output of the taker, each by `write`, and how that ended.
    pub(crate) fn flush(
        &self,
        io: &mut Io<'_>,
        mut write: impl FnMut(&mut Io<'_>, &Bytes) -> Result<(), NoRoom>,
    ) -> (Flushed, Option<BodyEnd>) {
        let flushed = self.outbox.flush(io, |io, piece| {
            write(io, piece)?;
            Ok(true)
        });
        (flushed, self.outbox.ended())
    }

    /// The taker wants the body: a client that waits to hear that may send it.
    pub(crate) fn go_on(&self) {
        // ORDER: the wake that follows is what the client's look comes after.
        if !self.goes_on.swap(true, Ordering::Release)
            && let Some(client) = &*self.client.lock()
        {
            client.wake();
        }
    }

    /// The taker wants no more of it.
    pub(crate) fn close(&self) {
        self.outbox.close(None);
    }
}

/// The client's side: dropped, the body is aborted unless it is complete.
pub(crate) struct Incoming {
    passage: Arc<Passage>,
    /// The last piece found no room.
    is_held: bool,
}

impl Incoming {
    pub(crate) fn new(passage: Arc<Passage>) -> Self {
        Self {
            passage,
            is_held: false,
        }
    }

    /// This connection puts into it, and is woken when there is room again.
    pub(crate) fn attach_client(&self, client: &ConnectionHandle) {
        let woken = client.clone();
        self.passage.outbox.on_event(move || woken.wake());
        *self.passage.client.lock() = Some(client.clone());
    }

    /// Whether the client may send the body, as far as it waits to hear that.
    pub(crate) fn goes_on(&self) -> bool {
        // ORDER: see `Passage::go_on`.
        self.passage.goes_on.load(Ordering::Acquire)
    }

    /// Whether what has come waits for room.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// More of the body. `Some` when it has to wait and was not taken. What comes for a taker that
    /// wants no more is dropped.
    pub(crate) fn put(&mut self, data: &[u8]) -> Option<Stall> {
        self.is_held = false;
        if data.is_empty() {
            return None;
        }
        match put_copy(&self.passage.outbox, data) {
            Ok(()) | Err(Refused::Closed(())) => None,
            Err(Refused::Full(())) => {
                self.is_held = true;
                Some(Stall::Outside)
            }
        }
    }

    /// All of it has come.
    pub(crate) fn complete(&self, trailers: HeaderMap) {
        self.passage.outbox.end(BodyEnd::Complete(trailers));
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // The first reason counts.
        self.passage.outbox.end(BodyEnd::Aborted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_goes_on_with_room() {
        let passage = Passage::new();
        let mut incoming = Incoming::new(Arc::clone(&passage));
        let piece = vec![b'x'; PASSAGE_BYTES / 2];
        assert_eq!(incoming.put(&piece), None);
        assert_eq!(incoming.put(&piece), None);
        assert_eq!(incoming.put(b"late"), Some(Stall::Outside));
        assert!(incoming.is_held());
        assert!(passage.outbox.pop().is_some());
        assert_eq!(incoming.put(b"late"), None);
        assert!(!incoming.is_held());
    }

    #[test]
    fn a_body_ends_once_and_complete_only_if_it_is() {
        for is_complete in [true, false] {
            let passage = Passage::new();
            let mut incoming = Incoming::new(Arc::clone(&passage));
            assert_eq!(incoming.put(b"some"), None);
            if is_complete {
                incoming.complete(HeaderMap::new());
            }
            drop(incoming);
            let expected = match is_complete {
                true => BodyEnd::Complete(HeaderMap::new()),
                false => BodyEnd::Aborted,
            };
            assert_eq!(passage.outbox.ended(), Some(expected), "PA2");
        }
    }

    #[test]
    fn what_comes_for_a_taker_that_wants_no_more_is_dropped() {
        let passage = Passage::new();
        let mut incoming = Incoming::new(Arc::clone(&passage));
        passage.close();
        for _ in 0..10 {
            assert_eq!(incoming.put(&[0; PASSAGE_BYTES]), None);
        }
    }

    #[test]
    fn the_body_may_come_once_its_taker_has_said_so() {
        let passage = Passage::new();
        let incoming = Incoming::new(Arc::clone(&passage));
        assert!(!incoming.goes_on());
        passage.go_on();
        assert!(incoming.goes_on(), "PA3");
    }
}
