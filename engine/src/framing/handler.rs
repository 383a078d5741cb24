//! What answers the messages of a [`Framed`](super::Framed) protocol.

use std::marker::PhantomData;

use crate::error::NoRoom;
use crate::io::Io;
use crate::memory::Payload;

/// What a handler expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next message.
    Message,
    /// So many bytes that no framing looks at, then the next message: a body whose length the
    /// message told, of any length that the handler allows. It is gathered in pooled buffers and
    /// given to [`Handler::body`].
    Body(usize),
    /// Nothing more: what was written is sent, then the connection ends.
    Close,
}

/// Answers messages.
///
/// What one call writes is sent as a whole or not at all: when it returns [`NoRoom`], what it wrote
/// is taken back, and the same message is given again once there may be room. A handler changes its
/// session after its last write.
pub trait Handler: Send + Sync + Sized + 'static {
    /// What one connection keeps. Keep it small, idle ones count.
    type Session: Default + 'static;

    /// A message, on the network thread: must not block. `io` is what to write the reply to.
    ///
    /// # Errors
    /// [`NoRoom`] as `io` gives it.
    fn message(
        &self,
        session: &mut Self::Session,
        io: &mut Io<'_>,
        message: &[u8],
    ) -> Result<Next, NoRoom>;

    /// The body that [`Next::Body`] asked for, on the network thread. By default: the end.
    ///
    /// # Errors
    /// [`NoRoom`] as `io` gives it.
    fn body(
        &self,
        session: &mut Self::Session,
        io: &mut Io<'_>,
        body: &Payload,
    ) -> Result<Next, NoRoom> {
        let _ = (session, io, body);
        debug_assert!(false, "a handler asks for bodies and takes none");
        Ok(Next::Close)
    }

    /// Whether a message goes to a worker, to [`Handler::work`], instead of [`Handler::message`].
    /// By default: none.
    fn is_pooled(&self, session: &Self::Session, message: &[u8]) -> bool {
        let _ = (session, message);
        false
    }

    /// A message on a worker: may block for as long as it likes. `reply` is empty; it counts for
    /// no memory budget, so the handler bounds it.
    fn work(&self, message: &[u8], reply: &mut Vec<u8>) {
        let _ = (message, reply);
    }
}

/// A function on the network thread as a handler; see [`Framed::inline`](super::Framed::inline).
pub struct Inline<S, T>(pub(super) T, pub(super) PhantomData<fn() -> S>);

impl<S, T> Handler for Inline<S, T>
where
    S: Default + 'static,
    T: Fn(&mut S, &mut Io<'_>, &[u8]) -> Result<Next, NoRoom> + Send + Sync + 'static,
{
    type Session = S;

    fn message(&self, session: &mut S, io: &mut Io<'_>, message: &[u8]) -> Result<Next, NoRoom> {
        (self.0)(session, io, message)
    }
}

/// A function on workers as a handler; see [`Framed::pooled`](super::Framed::pooled).
pub struct Pooled<T>(pub(super) T);

impl<T> Handler for Pooled<T>
where
    T: Fn(&[u8], &mut Vec<u8>) + Send + Sync + 'static,
{
    type Session = ();

    fn message(&self, (): &mut (), _: &mut Io<'_>, _: &[u8]) -> Result<Next, NoRoom> {
        unreachable!("every message is pooled")
    }

    fn is_pooled(&self, (): &(), _: &[u8]) -> bool {
        true
    }

    fn work(&self, message: &[u8], reply: &mut Vec<u8>) {
        (self.0)(message, reply);
    }
}
