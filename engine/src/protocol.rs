//! What a listener speaks: the border between the engine and every protocol above it.
//!
//! The engine owns sockets, buffers, deadlines, workers and the order of events; a [`Protocol`]
//! owns the meaning of bytes. Its methods by the thread that calls them:
//!
//! | thread             | methods                                        | for          | blocks |
//! |--------------------|------------------------------------------------|--------------|--------|
//! | any                | [`Protocol::options`]                          | the listener | never  |
//! | the server's start | [`Protocol::starts`]                           | the server   | never  |
//! | the network thread | [`PerThread::new`], [`Protocol::thread_event`] | the thread   | never  |
//! | the network thread | [`Protocol::received`], [`Protocol::event`],   | a connection | never  |
//! |                    | [`Protocol::finished`], [`Protocol::closed`]   |              |        |
//! | the network thread | [`Protocol::retire`]                           | a job        | never  |
//! | a worker           | [`Protocol::run`], [`Protocol::panicked`]      | a job        | may    |
//!
//! # The calls of a connection
//!
//! ```text
//! Session::default ─► Secured ─► Connected ─► received │ event │ finished ─► closed ─► drop
//!                    (with TLS)                   │         ▲
//!                                              dispatch ► run │ run, panicked
//! ```
//!
//! - P4: `Connected` is the first event, but for `Secured` where the listener has TLS. A connection
//!   that is refused before has neither.
//! - P5: `closed` is called once, after every other call. Jobs that are still with workers come
//!   back through `retire`.
//! - P6: bytes are given in the order in which they came. `InputEnded` comes once, after the last
//!   of them was given and while nothing stalls the input.
//! - P7: once the protocol has closed the connection ([`Io`](crate::Io) has the ways to), what
//!   arrives is not given, and neither `InputEnded` nor `Woken` comes; a stall from before may
//!   end with a call of `received`. Jobs come back, unless it was aborted.
//! - P8: from `Spliced` on only `Expired`, `Draining` and `closed` come.
//! - P9: each [`Context::dispatch`] is followed by a `run`, by one more whenever the job has waited
//!   for a [mount](crate::blocking), and then by one `finished` or one `retire`, unless
//!   [`Context::withdraw`] takes the job back before.
//! - P10: a connection that this server opens ([`Connector`](crate::Connector)) has `Connected` or
//!   `ConnectFailed` as its first event, and `closed` alone after the latter; `closed` alone, too,
//!   where the table of connections is full to its last place.
//!
//! # Panics
//!
//! | in                                      | costs                                           |
//! |-----------------------------------------|-------------------------------------------------|
//! | `options` in a call of `Server::listen` | what the caller of that makes of it             |
//! | `options` later                         | the start; new limits are taken without them    |
//! | `starts`                                | what the caller of the start makes of it        |
//! | `PerThread::new`, `RegionMade`          | the start; for a successor its first connection |
//! | `Session::default`                      | the connection, which is closed                 |
//! | `received`, `event`, `finished`         | the connection, which is aborted                |
//! | `run`                                   | the request: `panicked` makes the reply         |
//! | `panicked`                              | the reply: the job comes back as it is          |
//! | `retire`                                | the job, which is not used again                |
//! | `closed`, `TurnEnded`, a drop           | nothing more                                    |
//!
//! Invariants
//! - P1: a session is touched by one network thread only; a job is owned by exactly one side at a
//!   time: the network thread until [`Context::dispatch`], then a worker, then the network thread
//!   again.
//! - P2: a job that comes back for a connection that is gone is given to no session: it is reset by
//!   [`Protocol::retire`] and kept for the next request.
//! - P3: `received` is given the same unconsumed bytes again only with more bytes after them, or
//!   after the reason is over that it gave in [`Received::Blocked`].
//!
//! Not here: TLS, datagrams, and how the network thread comes to call a protocol. Framing
//! ([`framing`]) and the calls of a protocol without its types (`erased.rs`) have their own pages.

pub(crate) mod common;
pub(crate) mod connection_handle;
pub(crate) mod connect;
pub(crate) mod connector;
pub(crate) mod context;
pub(crate) mod discard;
pub mod framing;
pub(crate) mod hand_over;
pub(crate) mod io;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod payload;
pub(crate) mod phase;
pub(crate) mod successor;
pub(crate) mod tls_terms;
pub(crate) mod turn;
pub(crate) mod erased;
mod event;

use crate::admission::descriptors::DescriptorBudget;
use crate::observe::access_log::LogEnd;
use crate::protocol::context::{Context, Job};
use crate::protocol::phase::Stall;
use crate::server::options::ListenerOptions;
use crate::workers::scope::WorkerScope;

pub use event::{Event, ThreadEvent};

/// How far a protocol has come with its input.
#[must_use = "the engine offers again what was not consumed"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: what runs one protocol inside another has to act on each.
pub enum Received {
    /// All of it was used.
    Consumed,
    /// The rest is the beginning of a message: it is given again, followed by more bytes.
    NeedMore {
        /// Bytes used from the front.
        consumed: usize,
    },
    /// The rest could be understood, but has to wait: receiving stops, TCP does the rest, and it
    /// is given again when the reason is over.
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
/// Three types and [`received`](Protocol::received) are all that one needs; the other methods are
/// for protocols that have jobs, a state of each network thread, or an answer of their own to an
/// [`Event`]. Where messages are found by a length or an end,
/// [`Framed`](crate::protocol::framing::Framed) is shorter.
///
/// ```
/// use flatpath::limits::INPUT_BYTES_MAX;
/// use flatpath::{Context, Event, Job, Phase, Protocol, Received, Stall, WorkerScope};
///
/// struct Words; // Answers each line with the number of its words, which a worker counts.
///
/// impl Protocol for Words {
///     type ThreadState = ();
///     type Session = ();
///     type Job = String; // a line, and then its reply
///
///     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
///         let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
///             if input.len() >= INPUT_BYTES_MAX {
///                 context.abort(); // no more is kept: the line would never be whole
///             }
///             return Received::NeedMore { consumed: 0 };
///         };
///         let Some(mut job) = context.job() else {
///             return Received::Blocked { consumed: 0, on: Stall::Jobs };
///         };
///         job.push_str(&String::from_utf8_lossy(&input[..end]));
///         context.dispatch(job);
///         Received::Blocked { consumed: end + 1, on: Stall::Pipeline } // until it is back
///     }
///
///     fn run(&self, job: &mut String, _: &mut WorkerScope<'_>) {
///         *job = format!("{}\n", job.split_whitespace().count()); // it may block
///     }
///
///     fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
///         context.restart_phase(Phase::Idle);
///         match context.write(job.as_bytes()) {
///             Ok(()) if context.draining() => context.close_after_output(),
///             Ok(()) => {}
///             Err(flatpath::NoRoom) => context.abort(),
///         }
///         job.clear();
///         context.recycle(job);
///     }
///
///     fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
///         match event {
///             Event::Draining if context.jobs_out() > 0 => {} // its reply is the last one
///             other => other.by_default(context),
///         }
///     }
/// }
/// # flatpath_test::each_seed(20, |seed| {
/// #     let conditions = flatpath_test::Conditions::rough(seed);
/// #     let mut server = flatpath_test::TestServer::new(conditions, Words);
/// #     let client = server.connect();
/// #     client.write(b"two words\nand three more\n\nlast");
/// #     assert_eq!(server.read_exact(&client, 6), b"2\n3\n0\n");
/// #     client.write(b" one \n");
/// #     client.shutdown_write();
/// #     assert_eq!(server.read_to_end(&client), b"2\n");
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a protocol that a server can listen with",
    label = "not a protocol",
    note = "HTTP is one: `Http::service(router)` of `flatpath-http`",
    note = "frames of your own are one: `Framed`"
)]
pub trait Protocol: Send + Sync + Sized + 'static {
    /// What one network thread keeps for this listener: caches, scratch space. Never shared. Made
    /// by `Default`, or from the protocol ([`PerThread`]).
    type ThreadState: PerThread<Self>;
    /// What one connection keeps. Made by `Default` at accept; keep it small, idle ones count.
    type Session: Default + 'static;
    /// One request on its way to a worker and back. Recycled: after warm-up none is allocated.
    type Job: Default + Send + 'static;

    /// What the listener is and needs: its name, memory, limits. Asked in the call of
    /// `Server::listen`, on each network thread before its first connection, and with new limits;
    /// each time the answer is the same.
    fn options(&self) -> ListenerOptions {
        ListenerOptions::default()
    }

    /// The server starts. Descriptors that the protocol keeps open beside its connections and for
    /// longer than a job are counted in `descriptors` from now on. `network_threads` is the number
    /// of those that accept for it: fewer than the server has where it has fewer sockets. Called
    /// once, before any other thread knows the protocol.
    fn starts(&self, descriptors: &DescriptorBudget, network_threads: usize) {
        let _ = (descriptors, network_threads);
    }

    /// Something has happened that concerns the network thread and none of its connections. By
    /// default: nothing.
    fn thread_event(&self, thread: &mut Self::ThreadState, event: ThreadEvent<'_>) {
        let _ = (thread, event);
    }

    /// Bytes have arrived. Uses whole messages, or what it can, from the front of `input` and
    /// returns how far that was. The rest is kept and given again (P3); at most
    /// [`INPUT_BYTES_MAX`](crate::limits::INPUT_BYTES_MAX) are kept: a protocol refuses a message
    /// whose unconsumed part would not fit. `input` is empty when a stall for room is over that
    /// left nothing unconsumed.
    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received;

    /// Something else has happened to a connection; [`Event`] has what, and what may be answered.
    /// By default: [`Event::by_default`], which is the last arm of any other answer.
    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        event.by_default(context);
    }

    /// Runs one job on a worker; may block for as long as it likes. A protocol that dispatches
    /// nothing leaves this, `panicked` and `finished` as they are.
    fn run(&self, job: &mut Self::Job, scope: &mut WorkerScope<'_>) {
        let _ = (job, scope);
        debug_assert!(
            false,
            "{} dispatches jobs and runs none",
            type_word::<Self>()
        );
    }

    /// `run` panicked and the panic was caught: turn the job into the protocol's word for it.
    fn panicked(&self, job: &mut Self::Job) {
        let _ = job;
    }

    /// A job has come back. Ends with [`Context::recycle`], or with [`Context::dispatch`] to let a
    /// worker continue with it.
    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.recycle(job);
    }

    /// Makes a job that comes back to no connection fit for reuse: drops what it holds.
    fn retire(&self, thread: &mut Self::ThreadState, job: &mut Self::Job) {
        let _ = (thread, job);
    }

    /// The connection is gone, or has another protocol now. Where the server has an access log,
    /// `log` takes the lines of requests that have none yet. The session is dropped after this, on
    /// the network thread: what may block in its drop goes to [`discard`](crate::discard()) here.
    fn closed(
        &self,
        thread: &mut Self::ThreadState,
        session: &mut Self::Session,
        log: Option<LogEnd<'_>>,
    ) {
        let _ = (thread, session, log);
    }
}

/// What one network thread keeps for a listener whose protocol is `P`.
///
/// Every type with a `Default` is that. A type without one is made from the protocol:
///
/// ```
/// use flatpath::{Context, PerThread, Protocol, Received};
///
/// struct Motto(&'static str);
///
/// struct Line(String);
///
/// impl PerThread<Motto> for Line {
///     fn new(motto: &Motto) -> Line {
///         Line(format!("{}\n", motto.0))
///     }
/// }
///
/// impl Protocol for Motto {
///     type ThreadState = Line;
///     type Session = ();
///     type Job = ();
///
///     fn received(&self, context: &mut Context<'_, Self>, _: &[u8]) -> Received {
///         context.io.write_held(context.thread.0.clone().into());
///         context.close_lingering();
///         Received::Consumed
///     }
/// }
/// # let mut server = flatpath_test::TestServer::new(
/// #     flatpath_test::Conditions::calm(1), Motto("keep it small"));
/// # let client = server.connect();
/// # client.write(b"?");
/// # assert_eq!(server.read_to_end(&client), b"keep it small\n");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state that a network thread can keep for `{P}`",
    label = "has no `Default`",
    note = "derive `Default`, or implement `PerThread<{P}>` to make it from the protocol"
)]
pub trait PerThread<P>: Sized + 'static {
    /// Called once on each network thread, before its first connection; of a protocol without an
    /// address ([`Successor`](crate::Successor)), at the first hand-over there.
    fn new(protocol: &P) -> Self;
}

impl<P, T: Default + 'static> PerThread<P> for T {
    fn new(_: &P) -> T {
        T::default()
    }
}

/// The options of a protocol, with a name.
pub(crate) fn options_of<P: Protocol>(protocol: &P) -> ListenerOptions {
    // CONTAINED: by the start, which fails, by `Successors`, or by a change of limits.
    let mut options = protocol.options();
    if options.name.is_empty() {
        options.name = type_word::<P>();
    }
    options
}

/// The name of a protocol's type, without its path and the types within it.
fn type_word<P>() -> &'static str {
    let path = std::any::type_name::<P>();
    let outer = path.split('<').next().unwrap_or(path);
    outer.rsplit("::").next().unwrap_or(outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Generic<T>(std::marker::PhantomData<fn() -> T>);

    impl<T: 'static> Protocol for Generic<T> {
        type ThreadState = ();
        type Session = ();
        type Job = ();

        fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
            Received::Consumed
        }
    }

    #[test]
    fn a_protocol_without_a_name_has_that_of_its_type() {
        let protocol = Generic::<Vec<Option<u8>>>(std::marker::PhantomData);
        assert_eq!(options_of(&protocol).name, "Generic");
    }
}
