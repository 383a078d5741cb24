//! A socket as the rest of a program sees it: any thread sends to it.
//!
//! Frames wait in an outbox of the engine's (`flatpath::Outbox`), which has the bound, the charge,
//! the wake and the rule for network threads. The network thread moves them to the connection's
//! output for as long as that has room.
//!
//! Invariants
//! - S1: frames are sent in the order of the calls that queued them. A close frame is the last.
//! - S2: a sender begins only while less than `queued_bytes_max` wait for the client, in the queue
//!   and in the output. So one that answers each message it is given always may: no message is
//!   given to it before ([`Socket::is_full`], [`Socket::has_room_for`]).
//! - S3: a message that is compressed has its room and its charge before, as the compressor
//!   cannot take it back.

use std::fmt;
use std::sync::Arc;

use flatpath::{Admitted, Io, NoRoom, Outbox, Piece, Refused, discard_bytes};

use crate::close::{Close, code};
use crate::codec::Codec;
use crate::encode::Frame;
use crate::message::Message;

/// One connection, for sending to it from any thread. A clone is the same connection. It may
/// outlive the connection: then nothing can be sent.
///
/// ```
/// use std::time::Duration;
///
/// use flatpath_websocket::Socket;
///
/// fn tick(socket: Socket) {
///     std::thread::spawn(move || {
///         while socket.send("tick").is_ok() {
///             std::thread::sleep(Duration::from_secs(1));
///         }
///     });
/// }
/// # let _ = tick;
/// ```
#[derive(Clone)]
pub struct Socket(Arc<Shared>);

/// Why a message is not sent; it is given back.
#[derive(Debug)]
// Exhaustive: a message is refused for now or for good.
pub enum SendError {
    /// As much waits for the client as may.
    Full(Message),
    /// The connection is closed, or being closed.
    Closed(Message),
}

flatpath::impl_error! {
    SendError {
        Self::Full(..) => "the client does not read what waits for it",
        Self::Closed(..) => "the connection is closed",
    }
}

struct Shared {
    outbox: Outbox<Frame, Box<Close>>,
    subprotocol: Option<&'static str>,
    codec: Codec,
}

impl Piece for Frame {
    fn payload(&mut self) -> &mut bytes::Bytes {
        self.payload_mut()
    }

    fn payload_bytes(&self) -> usize {
        Frame::payload(self).len()
    }

    fn bytes(&self) -> usize {
        Frame::bytes(self)
    }
}

/// The message of a frame that was not taken.
fn given_back(refused: Refused<Frame>) -> SendError {
    match refused {
        Refused::Full(frame) => SendError::Full(frame.into()),
        Refused::Closed(frame) => SendError::Closed(frame.into()),
    }
}

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is queued any more.
    All,
    /// The same, and a close frame was the last.
    Closed,
    /// The output is full; it has asked for a call.
    Full,
}

impl Socket {
    pub(crate) fn new(
        queued_bytes_max: usize,
        subprotocol: Option<&'static str>,
        codec: Codec,
    ) -> Socket {
        Socket(Arc::new(Shared {
            outbox: Outbox::new(queued_bytes_max),
            subprotocol,
            codec,
        }))
    }

    /// Sends a message, and waits while the client does not read what waits for it, or there is no
    /// memory for more that waits: for as long as the server's `write_timeout` lets it. A network
    /// thread must not wait: called on one, as by any inline handler, this is [`Socket::try_send`].
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = message.into();
        match self.0.codec.compresses(&message) {
            false => self.0.outbox.push(plain(message)).map_err(given_back),
            true => {
                let admitted = self.0.outbox.admit(message.bytes().len());
                self.compressed(message, admitted)
            }
        }
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = message.into();
        match self.0.codec.compresses(&message) {
            false => self.0.outbox.try_push(plain(message)).map_err(given_back),
            true => {
                let admitted = self.0.outbox.try_admit(message.bytes().len());
                self.compressed(message, admitted)
            }
        }
    }

    /// Closes the connection after what was sent so far: the client is told `code` and `reason`,
    /// and has the server's `head_timeout` to answer. Does nothing to a socket that is closing.
    ///
    /// # Panics
    /// For a code that must not be sent: below 1000, 1004 to 1006, 1015 to 2999, from 5000 on.
    pub fn close(&self, code: u16, reason: &str) {
        assert!(
            crate::close::may_be_sent(code),
            "{code} is no close code that may be sent"
        );
        self.finish(&Close::new(code, reason));
    }

    /// Whether nothing more can be sent.
    pub fn is_closed(&self) -> bool {
        self.0.outbox.is_closed()
    }

    /// The subprotocol that was chosen; see
    /// [`WebSocket::subprotocols`](crate::WebSocket::subprotocols).
    pub fn subprotocol(&self) -> Option<&'static str> {
        self.0.subprotocol
    }

    /// Bytes that wait for the client, here and in the connection's output.
    pub fn queued_bytes(&self) -> usize {
        self.0.outbox.waiting_bytes()
    }

    /// Compresses a message that was admitted, and queues it.
    fn compressed(
        &self,
        message: Message,
        admitted: Result<Admitted, Refused<()>>,
    ) -> Result<(), SendError> {
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(Refused::Full(())) => return Err(SendError::Full(message)),
            Err(Refused::Closed(())) => return Err(SendError::Closed(message)),
        };
        // A network thread does not wait for the compressor that another sender uses: its message
        // goes out as it is. Other senders wait, for their order.
        let Some((frame, in_order)) = self.0.codec.compress(&message) else {
            let pushed = self.0.outbox.push_admitted(plain(message), admitted);
            return pushed.map_err(|frame| SendError::Closed(frame.into()));
        };
        let pushed = self.0.outbox.push_admitted(frame, admitted);
        drop(in_order);
        if pushed.is_err() {
            return Err(SendError::Closed(message));
        }
        discard_bytes(message.into_bytes());
        Ok(())
    }

    /// Queues the close frame, which is the last. False: there is one already.
    pub(crate) fn finish(&self, close: &Close) -> bool {
        self.0.outbox.push_last(Frame::close(close))
    }

    /// The connection is there: it is called for what is queued from now on.
    ///
    /// # Errors
    /// There is no memory for what is queued already.
    pub(crate) fn connected(&self, io: &Io<'_>) -> Result<(), NoRoom> {
        self.0.outbox.attach(io.handle())
    }

    /// Runs a handler on the network thread, which looks at the queue after it without being
    /// called.
    pub(crate) fn inline<R>(&self, act: impl FnOnce() -> R) -> R {
        self.0.outbox.receiver_looks();
        act()
    }

    /// Whether so much is in the output that its client is to read first (S2): less will do while
    /// memory is short. The connection is called when it has.
    pub(crate) fn is_full(&self, io: &mut Io<'_>) -> bool {
        io.common_is_full(self.0.outbox.bytes_max())
    }

    /// Whether a worker's answer of about so many bytes would find room (S2).
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.0.outbox.has_room_for(bytes)
    }

    /// Moves what is queued to the output.
    ///
    /// # Errors
    /// [`NoRoom`] when there is no memory for it: what is left waits for that.
    pub(crate) fn flush(&self, io: &mut Io<'_>) -> Result<Flushed, NoRoom> {
        let mut is_closed = false;
        let flushed = self.0.outbox.flush(io, |io, frame| {
            io.write_piece(frame.head(), frame.payload(), b"")?;
            is_closed |= frame.is_close();
            Ok(true)
        });
        match flushed {
            flatpath::Flushed::NoMemory => Err(NoRoom),
            flatpath::Flushed::Full => Ok(Flushed::Full),
            _ if is_closed => Ok(Flushed::Closed),
            _ => Ok(Flushed::All),
        }
    }

    /// Takes the next frame for a client whose frames are not in the output of a connection. Full:
    /// it was one that others may follow.
    ///
    /// # Errors
    /// As [`Socket::flush`].
    pub(crate) fn take(
        &self,
        io: &mut Io<'_>,
        mut write: impl FnMut(&Frame),
    ) -> Result<Flushed, NoRoom> {
        let mut is_closed = false;
        let flushed = self.0.outbox.take(io, |frame| {
            write(frame);
            is_closed |= frame.is_close();
        });
        match flushed {
            flatpath::Flushed::NoMemory => Err(NoRoom),
            _ if is_closed => Ok(Flushed::Closed),
            flatpath::Flushed::Full | flatpath::Flushed::Stopped => Ok(Flushed::Full),
            flatpath::Flushed::All | flatpath::Flushed::Ended => Ok(Flushed::All),
        }
    }

    /// Writes the close frame at once, in place of all that is queued.
    ///
    /// # Errors
    /// As [`Socket::flush`].
    pub(crate) fn last_words(&self, io: &mut Io<'_>, close: &Close) -> Result<(), NoRoom> {
        let frame = Frame::close(close);
        io.reply(|io| {
            io.write(frame.head())?;
            io.write(frame.payload())
        })
    }

    /// Frees what helps only while messages are sent.
    pub(crate) fn rest(&self) {
        self.0.codec.rest();
    }

    /// The connection has ended, or will without another word: why. Only the first reason counts.
    pub(crate) fn end(&self, close: Close) {
        self.0.outbox.close(Some(Box::new(close)));
    }

    /// The same; why it has ended.
    pub(crate) fn ended(&self) -> Close {
        self.end(Close::unsaid(code::ABNORMAL));
        let ended = self.0.outbox.ended();
        ended.map_or(Close::unsaid(code::ABNORMAL), |ended| *ended)
    }
}

/// The frame of a message that is not compressed.
fn plain(message: Message) -> Frame {
    let opcode = message.opcode();
    Frame::new(opcode, message.into_bytes())
}

impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Socket");
        fields.field("is_closed", &self.is_closed());
        fields.field("queued_bytes", &self.queued_bytes());
        fields.finish()
    }
}

impl PartialEq for Socket {
    fn eq(&self, other: &Socket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Socket {}
