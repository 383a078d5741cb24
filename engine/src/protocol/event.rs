//! What happens to a connection, or to its network thread, besides bytes that arrive.
//!
//! Each variant says what has happened and what a protocol may answer; [`Event::by_default`] is the
//! one place that says what follows where it answers nothing. Their order is in `protocol.rs`.

use flatpath_driver::{Piped, Region};

use crate::protocol::connect::ConnectError;
use crate::protocol::io::Io;
use crate::protocol::phase::Phase;

/// What has happened to a connection; see [`Protocol::event`](crate::Protocol::event).
///
/// The connection's [`Io`] takes every answer: what to write, whether it ends, which deadline it
/// has. A later version may have more events, for which [`Event::by_default`] is right.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// TLS is established: [`Io::tls`] has what was agreed on. By default: nothing.
    Secured,
    /// The connection has been accepted, or [handed over](Io::hand_over) by another protocol, or
    /// [opened](Io::connect), and nothing of it was received here yet. [`Io::peer`] says where it
    /// comes from. To refuse it, close it, at once or after a reply: nothing of it is received
    /// then. By default: nothing.
    Connected,
    /// Bytes have arrived and lie in a pipe, as [`Io::receive_piped`] has asked for: all of them
    /// are taken. [`Io::stall`] has no more received. What is written here is sent after the next
    /// event. By default the connection is aborted: a protocol that asks for a pipe answers this.
    Piped(Piped),
    /// The peer has sent its last byte; these bytes were not consumed and never will be. The
    /// connection stays open for output until the protocol closes it. By default:
    /// [`Io::close_after_output`].
    InputEnded(&'a [u8]),
    /// Output has fallen to the low-water mark; comes once after each [`Io::notify_output_low`]. By
    /// default: nothing.
    OutputLow,
    /// The deadline of this phase has passed. [`Io::restart_phase`] with the same phase gives it
    /// another period; otherwise the connection is closed after its output, which is the default.
    /// It is closed either way where its place is wanted for another ([`Io::is_evicted`]).
    Expired(Phase),
    /// The server has begun to drain. A session with a request finishes it and tells its client.
    /// One without may close, or wait in [`Phase::Idle`] for one that is on its way: that deadline
    /// is shorter now. [`Io::draining`] is true from the beginning on. By default:
    /// [`Io::close_after_output`].
    ///
    /// For a connection that has just been accepted, or whose PROXY header or handshake of TLS has
    /// just come to its end, this comes after its first bytes were given, or when it has said
    /// nothing for as long as
    /// [`Limits::drain_idle_timeout`](crate::Limits::drain_idle_timeout). For one that was handed
    /// over it comes after what had arrived was given: its client may be one that only listens.
    Draining,
    /// Connections wait for memory, and this one holds more than the smallest buffer: what the
    /// session has gathered should move to where it is written, if it can. By default: nothing.
    MemoryShort,
    /// The engine ends this connection for lack of memory, in the words of
    /// [`ListenerOptions::refusal`](crate::ListenerOptions::refusal) where no other reply is under
    /// way. What the session holds of the request is to be dropped now: the connection may stay for
    /// a while until its peer has read. By default: nothing.
    Abandoned,
    /// A thread has woken the connection
    /// ([`ConnectionHandle::wake`](crate::ConnectionHandle::wake)). Comes once for any number of
    /// wakes before it; a wake during or after it is another. By default: nothing.
    Woken,
    /// The connection is spliced ([`Io::splice`]). What is written here is sent before the first
    /// byte of the other. By default: nothing.
    Spliced,
    /// The connection could not be spliced and is as it was ([`Io::splice`]). By default:
    /// [`Io::close_after_output`].
    SpliceRefused,
    /// A connection could not be [opened](Io::connect), for this reason. Its session has had no
    /// event before, and `closed` follows: what is written here goes nowhere. By default: nothing.
    ConnectFailed(ConnectError),
}

impl Event<'_> {
    /// What the engine does for a protocol that has no answer of its own.
    pub fn by_default(self, io: &mut Io<'_>) {
        match self {
            Event::InputEnded(_) | Event::Expired(_) | Event::Draining | Event::SpliceRefused => {
                io.close_after_output();
            }
            Event::Piped(piped) => {
                debug_assert!(piped.is_empty(), "a protocol asks for pipes and takes none");
                io.abort();
            }
            Event::Secured
            | Event::Connected
            | Event::OutputLow
            | Event::MemoryShort
            | Event::Abandoned
            | Event::Woken
            | Event::Spliced
            | Event::ConnectFailed(_) => {}
        }
    }
}

/// What has happened to a network thread; see
/// [`Protocol::thread_event`](crate::Protocol::thread_event).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ThreadEvent<'a> {
    /// The listener's own region ([`ListenerOptions::region`](crate::ListenerOptions::region))
    /// exists on this thread. Comes before any connection, once; not for a protocol without an
    /// address ([`Successor`](crate::Successor)).
    RegionMade {
        /// The number of the network thread.
        thread: usize,
        /// The region; a clone keeps its memory.
        region: &'a Region,
    },
    /// The end of a turn in which one of this protocol's connections was called.
    TurnEnded,
}
