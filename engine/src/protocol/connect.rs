//! A connection that is to be opened, as a value, and why one could not be.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use flatpath_driver::{Errno, Remote};

use crate::protocol::hand_over::HandOver;

/// How long the peer's answer to a connect is awaited, unless the protocol says otherwise: as long
/// as three SYNs take that are lost, which the kernel sends again after 1, 3 and 7 seconds
/// (`TCP_TIMEOUT_INIT`, net/ipv4/tcp_timer.c).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is to be opened: see [`Connector::to`](crate::Connector::to).
#[derive(Debug)]
#[must_use = "nothing is opened without Io::connect"]
pub struct Connect {
    pub(crate) remote: Remote,
    pub(crate) begin: HandOver,
    pub(crate) timeout: Duration,
    /// The session of the handshake that comes before.
    pub(crate) secure: Option<HandOver>,
}

impl Connect {
    /// To there, with a session that begins so.
    pub(crate) fn new(remote: Remote, begin: HandOver) -> Connect {
        Connect {
            remote,
            begin,
            timeout: CONNECT_TIMEOUT,
            secure: None,
        }
    }

    /// For how long the peer's answer is awaited, from the turn in which the connection is opened:
    /// 10 seconds unless set. The kernel's own patience is about two minutes
    /// (`net.ipv4.tcp_syn_retries`).
    pub fn timeout(self, timeout: Duration) -> Connect {
        Connect { timeout, ..self }
    }
}

/// What was wished in this turn, oldest first, with the listener of the connection that wished it.
pub(crate) type Wishes = VecDeque<(u16, Connect)>;

/// Why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectError {
    /// How far it had come.
    pub step: ConnectStep,
    /// What was in the way.
    pub reason: ConnectReason,
    /// More of it, for people: what TLS has said.
    words: Option<Arc<str>>,
}

impl ConnectError {
    pub(crate) fn new(step: ConnectStep, reason: ConnectReason) -> ConnectError {
        ConnectError {
            step,
            reason,
            words: None,
        }
    }

    /// The same with more words.
    #[cfg(feature = "tls")]
    pub(crate) fn saying(self, words: &str) -> ConnectError {
        ConnectError {
            words: Some(words.into()),
            ..self
        }
    }
}

/// How far a connection had come that could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectStep {
    /// This server had no room for it: nothing was sent.
    Room,
    /// The connection itself.
    Connect,
    /// Its TLS.
    Tls,
}

/// What was in the way of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// The server does not speak TLS.
    NoTls,
    /// No version, cipher or protocol is in common.
    NothingInCommon,
    /// The server's certificate does not hold: it is not for the name, has expired, or is of an
    /// authority that is not known.
    Certificate,
    /// The server has ended the handshake: it wants a certificate of this side, for one.
    Refused,
    /// The connection has ended before the handshake did.
    CutOff,
    /// Anything else.
    Other,
}

/// What was in the way of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectReason {
    /// The server is ended by force: `drain_timeout` is over, or a second signal has come. While it
    /// drains in order, connections are opened: a request that is under way may need one.
    Draining,
    /// As many connections as there are places, and none that rests.
    NoPlace,
    /// The process, or the machine, has no descriptor for it.
    NoDescriptor,
    /// The kernel has no memory for it, or connections of the network thread wait for memory.
    NoMemory,
    /// No local port is free for another connection to there (EADDRNOTAVAIL).
    NoPort,
    /// No process listens there (ECONNREFUSED; of a Unix socket ENOENT, too).
    Refused,
    /// There is no way to there (EHOSTUNREACH, ENETUNREACH and their like).
    Unreachable,
    /// Nothing came back in time: [`Connect::timeout`], or the kernel's patience (ETIMEDOUT).
    TimedOut,
    /// As many connections wait at the Unix socket as its listener takes (EAGAIN).
    Busy,
    /// TLS could not be agreed on.
    Tls(TlsFault),
    /// The kernel said something else: the number of the error, of errno(3).
    Other(i32),
}

impl ConnectReason {
    /// What the kernel's word means.
    pub(crate) fn of(errno: Errno) -> ConnectReason {
        match errno {
            Errno::MFILE | Errno::NFILE => ConnectReason::NoDescriptor,
            Errno::NOMEM | Errno::NOBUFS => ConnectReason::NoMemory,
            Errno::ADDRNOTAVAIL => ConnectReason::NoPort,
            Errno::CONNREFUSED | Errno::NOENT => ConnectReason::Refused,
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => {
                ConnectReason::Unreachable
            }
            Errno::TIMEDOUT => ConnectReason::TimedOut,
            Errno::AGAIN => ConnectReason::Busy,
            other => ConnectReason::Other(other.raw_os_error()),
        }
    }
}

impl fmt::Display for ConnectReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ConnectReason::Draining => "this server is being ended",
            ConnectReason::NoPlace => "this server has as many connections as it may",
            ConnectReason::NoDescriptor => "this server has no descriptor for it",
            ConnectReason::NoMemory => "this server has no memory for it",
            ConnectReason::NoPort => "no local port is free for it",
            ConnectReason::Refused => "no process listens there",
            ConnectReason::Unreachable => "there is no way to it",
            ConnectReason::TimedOut => "nothing came back in time",
            ConnectReason::Busy => "as many connections wait there as its listener takes",
            ConnectReason::Tls(fault) => match fault {
                TlsFault::NoTls => "the server does not speak TLS",
                TlsFault::NothingInCommon => "no version, cipher or protocol is in common",
                TlsFault::Certificate => "the server's certificate does not hold",
                TlsFault::Refused => "the server has ended the handshake",
                TlsFault::CutOff => "the connection has ended within the handshake",
                TlsFault::Other => "the handshake has failed",
            },
            ConnectReason::Other(errno) => {
                return io::Error::from_raw_os_error(*errno).fmt(formatter);
            }
        })
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            ConnectStep::Room => "not connected",
            ConnectStep::Connect => "connecting failed",
            ConnectStep::Tls => "TLS failed",
        };
        write!(formatter, "{step}: {}", self.reason)?;
        match &self.words {
            Some(words) => write!(formatter, " ({words})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_have_a_meaning_each() {
        for (errno, reason) in [
            (Errno::MFILE, ConnectReason::NoDescriptor),
            (Errno::NOBUFS, ConnectReason::NoMemory),
            (Errno::ADDRNOTAVAIL, ConnectReason::NoPort),
            (Errno::CONNREFUSED, ConnectReason::Refused),
            (Errno::NOENT, ConnectReason::Refused),
            (Errno::NETUNREACH, ConnectReason::Unreachable),
            (Errno::TIMEDOUT, ConnectReason::TimedOut),
            (Errno::AGAIN, ConnectReason::Busy),
            (
                Errno::ACCESS,
                ConnectReason::Other(Errno::ACCESS.raw_os_error()),
            ),
        ] {
            assert_eq!(ConnectReason::of(errno), reason);
        }
    }

    #[test]
    fn an_error_says_the_step_and_the_reason() {
        let error = |step, reason| ConnectError::new(step, reason).to_string();
        assert_eq!(
            error(ConnectStep::Connect, ConnectReason::Refused),
            "connecting failed: no process listens there"
        );
        assert_eq!(
            error(ConnectStep::Room, ConnectReason::NoPlace),
            "not connected: this server has as many connections as it may"
        );
        let denied = ConnectReason::Other(Errno::ACCESS.raw_os_error());
        let denied = error(ConnectStep::Connect, denied);
        assert!(denied.contains("Permission denied"), "{denied}");
    }
}
