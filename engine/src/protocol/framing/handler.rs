//! What answers the messages of a [`Framed`](super::Framed) protocol.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::reply::Reply;
use crate::error::NoRoom;
use crate::memory::Payload;
use crate::protocol::io::Io;

/// What a handler expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// The next message.
    Message,
    /// This number of bytes that no framing looks at, then the next message: a body whose length is
    /// in the message, of any length that the handler allows. It is gathered in pooled buffers and
    /// given to [`Handler::body`]. The reply to work that others ran beside cannot be followed by
    /// one: what came after it was taken for messages.
    Body(usize),
    /// Nothing more: no later message is begun. What comes before the end is sent, then the
    /// connection ends. In the order of messages that is what was written and the replies before;
    /// later ones that are with workers are dropped. Where replies are sent as they are ready, all
    /// that is with workers is answered first.
    Close,
}

/// Where a message, or a body, is answered; see [`Handler::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place<W = Infallible> {
    /// On the network thread, by [`Handler::message`] or [`Handler::body`].
    Here,
    /// On a worker, by [`Handler::work`], which gets this value. Later messages are begun
    /// meanwhile, as many as [`Framed::at_work_max`](super::Framed::at_work_max) allows.
    Worker(W),
    /// The same, but alone: after all messages before it, and no later one is begun before its
    /// reply is written. For work that changes the session, or how later messages are understood.
    Alone(W),
}

/// What a worker is given besides what [`Handler::place`] made: the message, or the body that
/// followed it.
#[derive(Debug, Default)]
pub struct Input {
    pub(super) message: Vec<u8>,
    pub(super) body: Payload,
}

impl Input {
    /// The message; empty for a body.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The body; empty for a message. It can be taken away (`std::mem::take`), to outlive the
    /// work; it is charged to the connection until it is dropped.
    pub fn body(&mut self) -> &mut Payload {
        &mut self.body
    }
}

/// Answers messages, on the network thread or on workers.
///
/// | called on          | methods                                                           |
/// |--------------------|-------------------------------------------------------------------|
/// | the network thread | all but `work`: must not block; one at a time for each connection |
/// | a worker           | `work`: may block; several of a connection beside each other      |
///
/// What one call on the network thread writes is sent as a whole or not at all: when it returns
/// [`NoRoom`], what it wrote is taken back, and the same message is given again once there may be
/// room. A handler changes its session after its last write.
///
/// A worker has no session. What it needs of it (a user's name, the peer that
/// [`Handler::connected`] has kept, the terms of TLS) goes along in [`Handler::Work`], and what it
/// found out comes back in the same value, to [`Handler::worked`].
///
/// ```
/// use std::net::SocketAddr;
///
/// use flatpath::framing::{Framed, Handler, Input, Lines, Next, Place, Reply};
/// use flatpath::{Io, NoRoom};
///
/// /// `user NAME` logs in, which takes a while; `who` tells who is logged in, and from where.
/// struct Login;
///
/// #[derive(Default)]
/// struct Session {
///     peer: Option<SocketAddr>,
///     user: Option<String>,
/// }
///
/// impl Handler for Login {
///     type Session = Session;
///     /// The user, once a worker has found one.
///     type Work = Option<String>;
///
///     fn connected(&self, session: &mut Session, io: &mut Io<'_>) -> Result<Next, NoRoom> {
///         session.peer = io.peer();
///         Ok(Next::Message)
///     }
///
///     fn place(&self, _: &Session, line: &[u8]) -> Place<Self::Work> {
///         match line.starts_with(b"user ") {
///             // Who is logged in decides about the messages after it.
///             true => Place::Alone(None),
///             false => Place::Here,
///         }
///     }
///
///     fn message(&self, of: &mut Session, io: &mut Io<'_>, _: &[u8]) -> Result<Next, NoRoom> {
///         let Session { user, peer } = of;
///         io.write(format!("{user:?} from {peer:?}\n").as_bytes())?;
///         Ok(Next::Message)
///     }
///
///     fn work(&self, user: &mut Self::Work, input: &mut Input, reply: &mut Reply) -> Next {
///         match &input.message()["user ".len()..] {
///             b"" => {
///                 reply.write(b"ERROR no name\n");
///                 Next::Close
///             }
///             name => {
///                 *user = Some(String::from_utf8_lossy(name).into_owned());
///                 reply.write(b"OK\n");
///                 Next::Message
///             }
///         }
///     }
///
///     fn worked(&self, session: &mut Session, user: Self::Work) {
///         session.user = user;
///     }
/// }
///
/// let login = Framed::new("login", Lines::new(100), Login);
/// # let _ = login;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer framed messages",
    label = "not a `framing::Handler`",
    note = "a function becomes a protocol by `Framed::inline` or `Framed::pooled`"
)]
pub trait Handler: Send + Sync + Sized + 'static {
    /// What one connection keeps. Keep it small, idle ones count. Dropped on the network thread.
    type Session: Default + 'static;

    /// What goes to a worker with a message, and comes back; `()` where nothing does. What is left
    /// in it at the end is dropped on the network thread, so what may block in its drop is taken
    /// out by the work, or given to [`discard`](crate::discard()).
    type Work: Send + 'static;

    /// The connection is there, and nothing of it received yet: for a greeting, or to keep
    /// [`Io::peer`] or [`Io::tls`]. Called again where the greeting found no room. By default:
    /// nothing.
    ///
    /// # Errors
    /// [`NoRoom`] as `io` gives it.
    fn connected(&self, session: &mut Self::Session, io: &mut Io<'_>) -> Result<Next, NoRoom> {
        let _ = (session, io);
        Ok(Next::Message)
    }

    /// Where a message is answered; may be asked again when it has to wait. By default: on the
    /// network thread.
    fn place(&self, session: &Self::Session, message: &[u8]) -> Place<Self::Work> {
        let _ = (session, message);
        Place::Here
    }

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

    /// The same as [`Handler::place`], for the body that [`Next::Body`] asked for.
    fn place_body(&self, session: &Self::Session, body: &Payload) -> Place<Self::Work> {
        let _ = (session, body);
        Place::Here
    }

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

    /// A message, or a body, on a worker: may block for as long as it likes. `reply` is empty; it
    /// counts for no memory budget before it is sent, so the handler bounds it. After a panic the
    /// connection ends as after [`Next::Close`], without this reply. By default: the end.
    fn work(&self, work: &mut Self::Work, input: &mut Input, reply: &mut Reply) -> Next {
        let _ = (work, input, reply);
        debug_assert!(false, "a handler has work and does none");
        Next::Close
    }

    /// What a worker leaves, on the network thread, before its reply is written; so in the order of
    /// the replies. Not called after a panic of the work. By default: it is dropped.
    fn worked(&self, session: &mut Self::Session, work: Self::Work) {
        let _ = (session, work);
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
    type Work = Infallible;

    fn message(&self, session: &mut S, io: &mut Io<'_>, message: &[u8]) -> Result<Next, NoRoom> {
        (self.0)(session, io, message)
    }
}

/// A function on workers as a handler; see [`Framed::pooled`](super::Framed::pooled).
pub struct Pooled<T>(pub(super) T);

flatpath_structures::opaque_debug! {
    impl[S, T] Inline<S, T> as "Inline";
    impl[T] Pooled<T> as "Pooled";
}

impl<T> Handler for Pooled<T>
where
    T: Fn(&[u8], &mut Reply) -> Next + Send + Sync + 'static,
{
    type Session = ();
    type Work = ();

    fn place(&self, (): &(), _: &[u8]) -> Place<()> {
        Place::Worker(())
    }

    fn message(&self, (): &mut (), _: &mut Io<'_>, _: &[u8]) -> Result<Next, NoRoom> {
        unreachable!("every message is for workers")
    }

    fn work(&self, (): &mut (), input: &mut Input, reply: &mut Reply) -> Next {
        (self.0)(input.message(), reply)
    }
}
