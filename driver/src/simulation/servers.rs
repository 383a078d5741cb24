//! The servers of the simulated network that connections are opened to, as values: what one
//! answers, which connections it has, and how far one has come that is being opened.
//!
//! `connect.rs` makes them, and acts by them; the world keeps them.
//!
//! Invariant: a connection is in the `waiting` of one server at most, and only while it stands.

use std::collections::VecDeque;
use std::time::Duration;

use crate::remote::Remote;

/// What a simulated server does with connections that are opened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It accepts.
    Accepts,
    /// It accepts so much later.
    AcceptsAfter(Duration),
    /// No process listens (ECONNREFUSED).
    Refuses,
    /// Nothing comes back, as behind a firewall that drops: the connect waits until it is
    /// cancelled.
    IsSilent,
    /// It accepts, and then its machine is off: the connection stays half open.
    Vanishes,
    /// It accepts, and resets the connection at its first byte.
    ResetsAtFirstByte,
}

/// A server that connections are opened to.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) remote: Remote,
    pub(super) answer: Answer,
    /// Connections that stand, and that the test has not taken.
    pub(super) waiting: VecDeque<u32>,
}

/// How far a connection has come that is being opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) remote: Remote,
    /// When the peer's answer is there; `None` before the connect, and for none ever.
    pub(super) answered_ns: Option<u64>,
    pub(super) answer: Answer,
}
