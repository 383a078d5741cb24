//! The bounds of a connection that speaks HTTP/2, and what all of its parts need.

use std::task::{Context, Waker};

use crate::pending_body::{BodyMode, PendingBody};

/// What a client begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Streams of a connection that may be open or have a job with a worker: the least that RFC 9113
/// section 6.5.2 recommends.
pub(super) const STREAMS_MAX: usize = 100;

/// Bytes of a body that a client may send before it has to wait: one piece of an upload. All of it
/// is charged as it arrives.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The same for all streams of a connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of a reply's body that `h2` has at most.
pub(super) const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Buffer for output: the largest frame that every client takes (RFC 9113 section 4.2).
pub(super) const OUTPUT_BUFFER_BYTES: usize = 16 * 1024;

/// Bytes of a body that are not charged while they are on their way. All streams together have less
/// of them than the output has room for, and what has to wait is charged.
pub(super) const UNHELD_BYTES_MAX: usize = 2 * 1024;

const _: () = assert!(
    STREAMS_MAX * UNHELD_BYTES_MAX < flatpath::limits::OUTPUT_BYTES_HIGH,
    "what is not charged leaves in the same call"
);

/// Streams that a client may break rules in; with more the connection ends.
pub(super) const FAULTY_STREAMS_MAX: usize = 64;

/// What `h2` is polled with: see `session`.
pub(super) fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Whether a body is taken piece by piece.
pub(super) fn is_streamed(pending: &PendingBody) -> bool {
    matches!(pending.mode, BodyMode::Streamed | BodyMode::Abandoned)
}
