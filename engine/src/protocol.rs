//! What a listener speaks: the border between the engine and every protocol above it.
//!
//! The engine owns sockets, buffers, deadlines, workers and order of events; a [`Protocol`] owns
//! the meaning of bytes. It is called on two kinds of threads:
//!
//! | called on          | methods                                   | may block |
//! |--------------------|-------------------------------------------|-----------|
//! | the network thread | everything but `run` and `panicked`       | no        |
//! | a worker           | [`Protocol::run`], [`Protocol::panicked`] | yes       |
//!
//! Invariants
//! - P1: a session is touched by one network thread only; a job is owned by exactly one side at a
//!   time: the network thread until [`Context::dispatch`], then a worker, then the network thread
//!   again.
//! - P2: a job that comes back for a connection that is gone is given to nobody: it is reset by
//!   [`Protocol::retire`] and kept for the next request.
//! - P3: `received` is offered the same unconsumed bytes again only with more bytes behind them, or
//!   after the reason is over that it gave in [`Received::Blocked`].
//!
//! Not here: framing (a protocol crate's duty), TLS, and datagrams.

use flatpath_driver::{Piped, Region};

use crate::access_log::LogEnd;
use crate::context::{Context, Job};
use crate::descriptors::DescriptorBudget;
use crate::options::ListenerOptions;
use crate::phase::{Phase, Stall};
use crate::scope::WorkerScope;
use crate::service_socket::ServiceSocket;

/// How far a protocol has come with its input.
#[must_use = "the engine offers again what was not consumed"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: what runs one protocol inside another has to act on each.
pub enum Received {
    /// All of it was used.
    Consumed,
    /// The rest is the beginning of a message: it is offered again with more bytes behind it.
    NeedMore {
        /// Bytes used from the front.
        consumed: usize,
    },
    /// The rest could be understood, but has to wait: receiving stops, TCP does the rest, and it
    /// is offered again when the reason is over.
    Blocked {
        /// Bytes used from the front.
        consumed: usize,
        /// The reason.
        on: Stall,
    },
}

impl Received {
    /// How much of `bytes` was used, and what the rest waits for.
    #[inline]
    pub(crate) fn parts(self, bytes: usize) -> (usize, Option<Stall>) {
        match self {
            Received::Consumed => (bytes, None),
            Received::NeedMore { consumed } => (consumed.min(bytes), None),
            Received::Blocked { consumed, on } => (consumed.min(bytes), Some(on)),
        }
    }

    /// The same for an input that had `bytes` more in front, which were used.
    pub fn after(self, bytes: usize) -> Received {
        match self {
            Received::Consumed => Received::Consumed,
            Received::NeedMore { consumed } => Received::NeedMore {
                consumed: bytes + consumed,
            },
            Received::Blocked { consumed, on } => Received::Blocked {
                consumed: bytes + consumed,
                on,
            },
        }
    }
}

/// A protocol with its service, as a listener has it.
///
/// Where messages are found by a length or an end, [`Framed`](crate::framing::Framed) is shorter.
///
/// ```
/// use flatpath::{Context, Protocol, Received};
///
/// /// Says everything twice.
/// struct Twice;
///
/// impl Protocol for Twice {
///     type ThreadState = ();
///     type Session = ();
///     type Job = ();
///
///     fn name(&self) -> &'static str {
///         "twice"
///     }
///
///     fn thread_state(&self) {}
///
///     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
///         match context.write(&input.repeat(2)) {
///             Ok(()) => Received::Consumed,
///             Err(flatpath::NoRoom) => Received::Blocked {
///                 consumed: 0,
///                 on: flatpath::Stall::Memory,
///             },
///         }
///     }
/// }
/// # let _ = Twice;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a protocol that a server can listen with",
    label = "not a protocol",
    note = "HTTP is one: `Http::service(router)` of `flatpath-http`",
    note = "frames of your own are one: `Framed`"
)]
pub trait Protocol: Send + Sync + Sized + 'static {
    /// What one network thread keeps for this listener: caches, scratch space. Never shared.
    type ThreadState: 'static;
    /// What one connection keeps. Made by `Default` at accept; keep it small, idle ones count.
    type Session: Default + 'static;
    /// One request on its way to a worker and back. Recycled: after warm-up none is allocated.
    type Job: Default + Send + 'static;

    /// The word in `listening NAME ADDR` and in logs.
    fn name(&self) -> &'static str;

    /// What the listener needs; asked before the first connection.
    fn options(&self) -> ListenerOptions {
        ListenerOptions::default()
    }

    /// The server starts. What the protocol keeps open beside its connections and for longer than a
    /// job is counted in `descriptors` from now on. So many network threads accept for it: fewer
    /// than the server has where it has fewer sockets. Called once, before any other thread knows
    /// the protocol.
    fn starts(&self, descriptors: &DescriptorBudget, network_threads: usize) {
        let _ = (descriptors, network_threads);
    }

    /// Sockets that the service accepts from itself: they are handed over with the listener's, and
    /// their files are removed at the end. Asked once, at the start.
    fn service_sockets(&self) -> Vec<ServiceSocket> {
        Vec::new()
    }

    /// Called once on each network thread.
    fn thread_state(&self) -> Self::ThreadState;

    /// A connection has been accepted, and nothing of it received yet.
    /// [`Io::peer`](crate::Io::peer) says where it comes from. To refuse it, close it here, at once
    /// or after some last words: nothing of it is received then. By default: nothing.
    fn connected(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// TLS is established: [`Io::tls`](crate::Io::tls) has what was agreed on. Called before
    /// [`Protocol::connected`], of connections with TLS alone. By default: nothing.
    fn secured(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// Bytes have arrived. Uses whole messages, or what it can, from the front of `input` and
    /// returns how far that was. The rest is kept and offered again (P3); at most
    /// [`INPUT_BYTES_MAX`](crate::limits::INPUT_BYTES_MAX) are kept: a protocol refuses a message
    /// whose unconsumed part would not fit. `input` is empty when a stall for room is over that
    /// left nothing unconsumed.
    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received;

    /// Bytes have arrived and lie in a pipe, as [`Io::receive_piped`](crate::Io::receive_piped) has
    /// asked for: all of them are taken. Why nothing more is to be received, if so. What is written
    /// here is sent after the next event. By default the connection is aborted: a protocol that
    /// asks for a pipe has this.
    fn received_piped(&self, context: &mut Context<'_, Self>, piped: Piped) -> Option<Stall> {
        debug_assert!(piped.is_empty(), "{} asked for no pipe", self.name());
        context.abort();
        None
    }

    /// The peer has sent its last byte; `left` was not consumed and never will be. The connection
    /// stays open for output until the protocol closes it. By default: close after the output.
    fn input_ended(&self, context: &mut Context<'_, Self>, left: &[u8]) {
        let _ = left;
        context.close_after_output();
    }

    /// Runs one job on a worker; may block for as long as it likes. A protocol that dispatches
    /// nothing leaves this, `panicked` and `finished` as they are.
    fn run(&self, job: &mut Self::Job, scope: &mut WorkerScope<'_>) {
        let _ = (job, scope);
        debug_assert!(false, "{} dispatches jobs and runs none", self.name());
    }

    /// `run` panicked and the panic was caught: turn the job into the protocol's word for it.
    fn panicked(&self, job: &mut Self::Job) {
        let _ = job;
    }

    /// A job has come back. Ends with [`Context::recycle`], or with [`Context::dispatch`] to let a
    /// worker go on with it.
    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.recycle(job);
    }

    /// Makes a job that comes back to no connection fit for reuse: drops what it holds.
    fn retire(&self, thread: &mut Self::ThreadState, job: &mut Self::Job) {
        let _ = (thread, job);
    }

    /// Output has fallen to the low-water mark; called once after each
    /// [`Io::notify_drained`](crate::Io::notify_drained).
    fn drained(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// The deadline of `phase` has passed. [`Io::restart_phase`](crate::Io::restart_phase) with the
    /// same phase gives it another period; otherwise the connection is closed after its output,
    /// which is the default. It is closed either way where its place is wanted for another.
    fn expired(&self, context: &mut Context<'_, Self>, phase: Phase) {
        let _ = phase;
        context.close_after_output();
    }

    /// The server has begun to drain. A session with a request finishes it and tells its client.
    /// One without may close, or wait in [`Phase::Idle`] for one that is on its way: that deadline
    /// is shorter now. [`Io::draining`](crate::Io::draining) is true from the beginning on. By
    /// default: close after the output.
    ///
    /// For a connection that has just been accepted, or whose PROXY header or handshake of TLS has
    /// just come to its end, this is called after its first bytes were offered, or when it has said
    /// nothing for as long as [`Limits::drain_idle_timeout`](crate::Limits::drain_idle_timeout).
    /// One that was handed over is told after what had come was offered: its client may be one that
    /// only listens.
    fn draining(&self, context: &mut Context<'_, Self>) {
        context.close_after_output();
    }

    /// Connections wait for memory, and this one holds more than the smallest buffer: what the
    /// session has gathered should go on to where it is written, if it can. By default: nothing.
    fn pressed(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// The engine ends this connection for want of memory, in the words of
    /// [`ListenerOptions::refusal`] where no other reply is under way. What the session holds of
    /// the request is to be dropped now: the connection may stay for a while until its peer has
    /// read. By default: nothing.
    fn abandoned(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// The connection was woken; see [`ConnectionHandle::wake`](crate::ConnectionHandle::wake).
    /// Called once for any number of wakes before it; a wake during or after it is another. By
    /// default: nothing.
    fn notified(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// The connection is spliced; see [`Io::splice`](crate::Io::splice). What is written here goes
    /// out before the first byte of the other. From now on only `expired`, `draining` and `closed`
    /// are called.
    fn spliced(&self, context: &mut Context<'_, Self>) {
        let _ = context;
    }

    /// The connection could not be spliced and is as it was; see
    /// [`Io::splice`](crate::Io::splice). By default it is closed after its output.
    fn splice_refused(&self, context: &mut Context<'_, Self>) {
        context.close_after_output();
    }

    /// The region of network thread `thread` exists. Called on that thread, before any connection.
    fn region_made(&self, thread: usize, region: &Region) {
        let _ = (thread, region);
    }

    /// The end of a turn in which one of this listener's connections was called.
    fn turn_ended(&self, thread: &mut Self::ThreadState) {
        let _ = thread;
    }

    /// The session is about to be closed, and the server has an access log: what it has not logged
    /// of its requests has its lines now. By default: nothing.
    fn log_rest(&self, session: &mut Self::Session, log: LogEnd<'_>) {
        let _ = (session, log);
    }

    /// The connection is gone. Its jobs that are still with workers come back through `retire`. The
    /// session is dropped after this, on the network thread: what may block in its drop goes to
    /// [`discard`](crate::discard()) here.
    fn closed(&self, thread: &mut Self::ThreadState, session: &mut Self::Session) {
        let _ = (thread, session);
    }
}
