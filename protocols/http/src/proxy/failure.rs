//! Why a request got no reply from its upstream: the status that its client gets, and the words of
//! the line in the log.

use std::time::Duration;

use flatpath::{ConnectError, ConnectReason, ConnectStep};
use http::StatusCode;

use super::codec::ReplyFault;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection could not be had.
    Connect(ConnectError),
    /// The connection ended before a byte of the reply.
    Closed,
    /// The reply is none.
    Reply(ReplyFault),
    /// No byte of the reply has come in time.
    FirstByte,
    /// The reply has stopped in its midst, or takes longer than any may.
    Stopped,
    /// This server has no memory for it.
    NoMemory,
    /// No server had room, and as many requests wait as may.
    QueueFull,
    /// No server had room in time.
    QueueTime,
}

impl Failure {
    /// What the client gets.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Connect(error) => match (error.step, &error.reason) {
                (ConnectStep::Room, _) => StatusCode::SERVICE_UNAVAILABLE,
                (_, ConnectReason::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            },
            Self::Closed | Self::Reply(_) => StatusCode::BAD_GATEWAY,
            Self::FirstByte | Self::Stopped => StatusCode::GATEWAY_TIMEOUT,
            Self::NoMemory | Self::QueueFull | Self::QueueTime => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether it is the server's, and counts for its health.
    pub(crate) fn is_of_server(&self) -> bool {
        match self {
            Self::Connect(error) => error.step != ConnectStep::Room,
            Self::Closed | Self::Reply(_) | Self::FirstByte | Self::Stopped => true,
            Self::NoMemory | Self::QueueFull | Self::QueueTime => false,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Connect(error) => error.to_string(),
            Self::Closed => "it closed the connection without a reply".into(),
            Self::Reply(fault) => format!("its reply is not taken: {fault}"),
            Self::FirstByte => "it has sent nothing in time".into(),
            Self::Stopped => "its reply has not come to its end in time".into(),
            Self::NoMemory => "this server has no memory for the request".into(),
            Self::QueueFull => "no server has room, and as many requests wait as may".into(),
            Self::QueueTime => "no server had room in time".into(),
        }
    }
}

/// Writes the one line about it: which upstream and server, the step, the time, the request and
/// what its client got.
pub(crate) fn log(
    failure: &Failure,
    (upstream, server): (&str, Option<&str>),
    (request, after): (&str, Duration),
    got: &str,
) {
    let words = failure.words();
    let milliseconds = after.as_millis();
    let of_request = format!("{words}; after {milliseconds} ms, {request}: {got}");
    match server {
        Some(server) => log::warn!("upstream {upstream}, server {server}: {of_request}"),
        None => log::warn!("upstream {upstream}: {of_request}"),
    }
}
