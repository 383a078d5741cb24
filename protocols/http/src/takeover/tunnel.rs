//! Tunnels: another protocol on one stream of HTTP/2 (RFC 8441), where an upgrade gives it a whole
//! connection of HTTP/1.1. For crates of protocols; `flatpath-websocket` is one.
//!
//! A [`Tunnel`] is called by its network thread only, as a [`Protocol`](flatpath::Protocol) is, and
//! its calls mean the same. What it says through a [`TunnelStream`] is carried out after the call.
//! Its work goes to workers in the jobs of HTTP, one at a time.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use flatpath::{Io, Phase, Received, Stall};

/// A conversation on a stream. Dropped, its stream is gone.
pub trait Tunnel: Send {
    /// The reply is on its way, and everything after it is the tunnel's.
    fn connected(&mut self, stream: &mut TunnelStream<'_, '_>);

    /// Bytes have arrived; as [`Protocol::received`](flatpath::Protocol::received). The client may
    /// send as many more as were consumed.
    fn received(&mut self, stream: &mut TunnelStream<'_, '_>, input: &[u8]) -> Received;

    /// The client has ended its side.
    fn input_ended(&mut self, stream: &mut TunnelStream<'_, '_>);

    /// What a worker had is back.
    fn finished(&mut self, stream: &mut TunnelStream<'_, '_>, work: Box<dyn TunnelWork>);

    /// All that was written is on its way, or the connection was woken.
    fn woken(&mut self, stream: &mut TunnelStream<'_, '_>);

    /// The server drains.
    fn draining(&mut self, stream: &mut TunnelStream<'_, '_>);

    /// The time of a phase is over. It begins again unless the stream is closed.
    fn expired(&mut self, stream: &mut TunnelStream<'_, '_>, phase: Phase);
}

/// Work of a tunnel on its way to a worker and back.
pub trait TunnelWork: Any + Send {
    /// Runs on a worker, and may block.
    fn run(&mut self);

    /// `run` has panicked.
    fn panicked(&mut self);

    /// Itself, for the tunnel to know its type again.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// What a tunnel may do to its stream while it is called.
pub struct TunnelStream<'a, 'io> {
    /// The connection, for its memory and its name: nothing is to be written to it.
    pub io: &'a mut Io<'io>,
    pub(crate) wishes: &'a mut Wishes,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    AfterOutput,
    Reset,
}

/// What a tunnel has said.
pub(crate) struct Wishes {
    pub(crate) output: VecDeque<Bytes>,
    pub(crate) phase: Phase,
    pub(crate) restarts: bool,
    pub(crate) end: Option<TunnelEnd>,
    /// And whether it comes after that of others.
    pub(crate) work: Option<(Box<dyn TunnelWork>, bool)>,
    pub(crate) stall: Option<Stall>,
    /// There is a job for its work.
    pub(crate) has_job: bool,
    pub(crate) is_working: bool,
    /// What was written last has not left.
    pub(crate) has_front: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            output: VecDeque::new(),
            phase: Phase::Idle,
            restarts: true,
            end: None,
            work: None,
            stall: None,
            has_job: false,
            is_working: false,
            has_front: false,
        }
    }
}

impl TunnelStream<'_, '_> {
    /// Queues bytes. They are charged already ([`Io::hold`]), or short.
    pub fn write(&mut self, bytes: Bytes) {
        if !bytes.is_empty() && self.wishes.end != Some(TunnelEnd::Reset) {
            self.wishes.output.push_back(bytes);
        }
    }

    /// Whether something that was written waits for the client; `woken` follows when it does not.
    pub fn has_output(&self) -> bool {
        self.wishes.has_front || !self.wishes.output.is_empty()
    }

    /// Whether a worker has work of this tunnel.
    pub fn is_working(&self) -> bool {
        self.wishes.is_working || self.wishes.work.is_some()
    }

    /// Whether [`TunnelStream::dispatch`] may be called: otherwise as many requests are in work as
    /// may be.
    pub fn has_job(&self) -> bool {
        self.wishes.has_job && !self.is_working()
    }

    /// Sends work to a worker, after that of others if it is heavy.
    pub fn dispatch(&mut self, work: Box<dyn TunnelWork>, is_heavy: bool) {
        debug_assert!(self.has_job(), "it was asked for");
        self.wishes.work = Some((work, is_heavy));
    }

    /// What waits has to wait for this; as [`Io::stall`].
    pub fn stall(&mut self, stall: Stall) {
        self.wishes.stall = Some(stall);
    }

    /// Says what the client is waited for; as [`Io::phase`].
    pub fn phase(&mut self, phase: Phase) {
        if self.wishes.phase != phase {
            self.restart_phase(phase);
        }
    }

    /// The same from now on.
    pub fn restart_phase(&mut self, phase: Phase) {
        self.wishes.phase = phase;
        self.wishes.restarts = true;
    }

    /// Ends the stream after what was written.
    pub fn close(&mut self) {
        self.wishes.end.get_or_insert(TunnelEnd::AfterOutput);
    }

    /// Resets the stream; what was written is dropped.
    pub fn abort(&mut self) {
        self.wishes.output.clear();
        self.wishes.end = Some(TunnelEnd::Reset);
    }
}

impl fmt::Debug for TunnelStream<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TunnelStream")
            .finish_non_exhaustive()
    }
}
