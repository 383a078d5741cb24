//! A socket as the rest of a program sees it: any thread sends to it.
//!
//! | may run beside          | send, try_send, close | the network thread (`flush`, `end`) |
//! |-------------------------|-----------------------|-------------------------------------|
//! | send, try_send, close   | yes                   | yes                                 |
//!
//! Frames wait in a queue under a lock. A sender that finds the network thread not yet called has
//! it called, once for all that is queued until then; the network thread moves frames to the
//! connection's output for as long as that has room.
//!
//! Invariants
//! - S1: frames are sent in the order of the calls that queued them. A close frame is the last.
//! - S2: `bytes` is the sum over the queue. A sender begins only while it is below
//!   `queued_bytes_max`.
//! - S4: nothing of a program is dropped under the lock, and what may block in its drop on no
//!   network thread: an owner of a message's bytes may use the socket (`flatpath::discard`).
//! - S3: a queue that is not empty is looked at again: `is_called` is set, or the connection's
//!   output is full and has asked for a call, or it waits for memory.
//!
//! Ordering: the handle is set before the first `flush`. A sender that does not see it has queued
//! its frame before that flush, because both hold the lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::{ConnectionHandle, Io, NoRoom, await_room, discard_bytes};

use crate::close::{Close, code};
use crate::codec::Codec;
use crate::encode::Frame;
use crate::message::Message;

/// One connection, for sending to it from any thread. A clone is the same connection. It may
/// outlive the connection: then nothing can be sent.
#[derive(Clone)]
pub struct Socket(Arc<Shared>);

/// Why a message is not sent; it is given back.
#[derive(Debug)]
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
    state: Mutex<State>,
    has_room: Condvar,
    handle: OnceLock<ConnectionHandle>,
    subprotocol: Option<&'static str>,
    queued_bytes_max: usize,
    codec: Codec,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Frame>,
    bytes: usize,
    /// The network thread will look at the queue.
    is_called: bool,
    /// Nothing more is queued.
    is_closing: bool,
    /// Nothing more is sent.
    is_over: bool,
    /// Threads that wait for room.
    waiting: u32,
    /// In a box: an open socket is smaller.
    ended: Option<Box<Close>>,
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
            state: Mutex::default(),
            has_room: Condvar::new(),
            handle: OnceLock::new(),
            subprotocol,
            queued_bytes_max,
            codec,
        }))
    }

    /// Sends a message, and waits while the client does not read what waits for it: for as long as
    /// the server's `write_timeout` lets it. A network thread must not wait: called on one, as by
    /// any inline handler, this is [`Socket::try_send`].
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = self.prepared(message);
        let is_full = |state: &State| !state.is_closing && state.bytes >= self.0.queued_bytes_max;
        let mut state = self.state();
        if is_full(&state) {
            state.waiting += 1;
            let waited = await_room(state, &self.0.has_room, is_full);
            let has_room = waited.is_ok();
            state = waited.unwrap_or_else(|state| state);
            state.waiting -= 1;
            if !has_room {
                return Err(SendError::Full(message));
            }
        }
        self.queue(state, message)
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = self.prepared(message);
        let state = self.state();
        if !state.is_closing && state.bytes >= self.0.queued_bytes_max {
            return Err(SendError::Full(message));
        }
        self.queue(state, message)
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
        self.state().is_closing
    }

    /// The subprotocol that was chosen; see
    /// [`WebSocket::subprotocols`](crate::WebSocket::subprotocols).
    pub fn subprotocol(&self) -> Option<&'static str> {
        self.0.subprotocol
    }

    /// Bytes that wait for the client here. More may be in the connection's output.
    pub fn queued_bytes(&self) -> usize {
        self.state().bytes
    }

    /// What is to be sent, before the lock: the conversion is the program's own. What is compressed
    /// is used up by that.
    fn prepared(&self, message: impl Into<Message>) -> Message {
        let message = message.into();
        if self.0.codec.compresses(&message) {
            return message;
        }
        message.guarded()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, state: MutexGuard<'_, State>, message: Message) -> Result<(), SendError> {
        if state.is_closing {
            return Err(SendError::Closed(message));
        }
        let codec = &self.0.codec;
        if !codec.compresses(&message) {
            self.push(state, plain(message));
            return Ok(());
        }
        // A network thread does not wait for the compressor that another sender uses: its message
        // goes out as it is. Other senders wait, for their order.
        drop(state);
        let Some((frame, in_order)) = codec.compress(&message) else {
            return self.queue_plain(message.guarded());
        };
        let state = self.state();
        if state.is_closing {
            return Err(SendError::Closed(message));
        }
        self.push(state, frame);
        drop(in_order);
        discard_bytes(message.into_bytes());
        Ok(())
    }

    fn queue_plain(&self, message: Message) -> Result<(), SendError> {
        let state = self.state();
        if state.is_closing {
            return Err(SendError::Closed(message));
        }
        self.push(state, plain(message));
        Ok(())
    }

    fn push(&self, mut state: MutexGuard<'_, State>, frame: Frame) {
        state.bytes += frame.bytes();
        state.queue.push_back(frame);
        let calls = !std::mem::replace(&mut state.is_called, true);
        drop(state);
        if calls && let Some(handle) = self.0.handle.get() {
            handle.wake();
        }
    }

    /// Queues the close frame, which is the last. False: there is one already.
    pub(crate) fn finish(&self, close: &Close) -> bool {
        let mut state = self.state();
        if state.is_closing {
            return false;
        }
        state.is_closing = true;
        self.push(state, Frame::close(close));
        self.0.has_room.notify_all();
        true
    }

    /// The connection is there: it is called for what is queued from now on.
    pub(crate) fn connected(&self, io: &Io<'_>) {
        let is_first = self.0.handle.set(io.handle()).is_ok();
        debug_assert!(is_first, "a socket has one connection");
    }

    /// Runs a handler on the network thread, which looks at the queue after it without being
    /// called.
    pub(crate) fn inline<R>(&self, act: impl FnOnce() -> R) -> R {
        self.state().is_called = true;
        act()
    }

    /// Moves what is queued to the output. The frames are out of the queue meanwhile, and what is
    /// left of them goes back to its front: the lock is not held while they are written and
    /// dropped.
    ///
    /// # Errors
    /// [`NoRoom`] when there is no memory for it: what is left waits for that (S3).
    pub(crate) fn flush(&self, io: &mut Io<'_>) -> Result<Flushed, NoRoom> {
        let mut state = self.state();
        state.is_called = false;
        if state.queue.is_empty() {
            return Ok(Flushed::All);
        }
        let mut frames = std::mem::take(&mut state.queue);
        drop(state);
        let (bytes, outcome) = write_all(io, &mut frames);
        let mut state = self.state();
        if state.is_over {
            // It has ended meanwhile, and counts nothing.
            drop(state);
            drop(frames);
            return outcome;
        }
        state.bytes -= bytes;
        // What was sent meanwhile comes after it; of neither is anything dropped.
        frames.append(&mut state.queue);
        if !frames.is_empty() {
            std::mem::swap(&mut state.queue, &mut frames);
        }
        if state.waiting > 0 && state.bytes < self.0.queued_bytes_max {
            self.0.has_room.notify_all();
        }
        outcome
    }

    /// Writes the close frame at once, in place of all that is queued.
    ///
    /// # Errors
    /// As [`Socket::flush`].
    pub(crate) fn last_words(&self, io: &mut Io<'_>, close: &Close) -> Result<(), NoRoom> {
        write(io, &Frame::close(close))
    }

    /// Frees what helps only while messages are sent.
    pub(crate) fn rest(&self) {
        self.0.codec.rest();
    }

    /// The connection has ended, or will without another word: why. Only the first reason counts.
    pub(crate) fn end(&self, close: Close) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| Box::new(close));
        (state.is_closing, state.is_over) = (true, true);
        let frames = std::mem::take(&mut state.queue);
        state.bytes = 0;
        drop(state);
        self.0.has_room.notify_all();
        drop(frames);
    }

    /// The same; why it has ended.
    pub(crate) fn ended(&self) -> Close {
        self.end(Close::unsaid(code::ABNORMAL));
        let ended = self.state().ended.clone();
        ended.map_or(Close::unsaid(code::ABNORMAL), |ended| *ended)
    }
}

/// The frame of a message that is not compressed, and guarded.
fn plain(message: Message) -> Frame {
    let opcode = message.opcode();
    Frame::new(opcode, message.into_bytes())
}

/// Queues as many frames as the connection has room for, and drops these; their bytes, and how far
/// it came.
fn write_all(io: &mut Io<'_>, frames: &mut VecDeque<Frame>) -> (usize, Result<Flushed, NoRoom>) {
    let (mut bytes, mut flushed) = (0, Flushed::All);
    while let Some(frame) = frames.front() {
        if io.output_is_full() {
            io.notify_drained();
            return (bytes, Ok(Flushed::Full));
        }
        if io.bin_is_full() || write(io, frame).is_err() {
            return (bytes, Err(NoRoom));
        }
        if frame.is_close() {
            flushed = Flushed::Closed;
        }
        bytes += frame.bytes();
        frames.pop_front();
    }
    (bytes, Ok(flushed))
}

/// Queues a frame for the connection, as a whole or not at all.
fn write(io: &mut Io<'_>, frame: &Frame) -> Result<(), NoRoom> {
    if frame.payload().is_empty() {
        return io.write(frame.head());
    }
    io.reply(|io| {
        io.write(frame.head())?;
        match frame.payload() {
            // Without a count of the clones that it does not need.
            few if few.len() <= SHARED_COPY_BYTES_MAX => io.write(few),
            many => io.write_shared(many.clone()),
        }
    })
}

impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Socket");
        fields.field("connection", &self.0.handle.get());
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
