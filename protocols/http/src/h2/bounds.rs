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

/// Frames of a header block that waits to be complete: as many as `h2` takes.
pub(super) const BLOCK_FRAMES_MAX: usize = 6;

/// Input that `h2` is given at a time: while there is no memory for what comes of it, it has no
/// more.
pub(super) const LENT_BYTES_MAX: usize = 16 * 1024;

/// Frames that `h2` is given at a time. It keeps room for as many as it has ever had at once: small
/// ones would take more than what is in them.
pub(super) const LENT_FRAMES_MAX: usize = 32;

/// What a connection holds beside its buffers, without its streams: room for frames that arrive
/// 8 KiB and that are sent 16 KiB, for headers that are decoded 4 KiB, tables of headers, and the
/// states of the connection.
pub(super) const CONNECTION_BYTES: usize = 32 * 1024;

/// Of a client that still has a table of headers, what the table holds for each byte that has
/// arrived. Its entries keep their pieces of the input, which `h2` reads into pieces of up to twice
/// that, or, if they were compressed, the pieces that they were decoded into (RFC 7541 section 5.2:
/// eight bits from five at the least).
pub(super) const TABLE_BYTES_OF_INPUT: usize = 4;

/// The largest piece of input that `h2` has: one for the largest frame.
pub(super) const PIECE_BYTES_MAX: usize = 16 * 1024;

/// What of that `CONNECTION_BYTES` has room for: a client's first requests.
pub(super) const TABLE_BYTES_FREE: usize = 8 * 1024;

/// The most that it holds: of a table of 4 KiB with 32 bytes of overhead for each entry (RFC 7541
/// section 4.1) as many entries, each in pieces of its own.
pub(super) const TABLE_BYTES_MAX: usize = 4 * 1024 / 32 * (2 * PIECE_BYTES_MAX);

/// What is charged of it at a time.
pub(super) const TABLE_STEP_BYTES: usize = 16 * 1024;

/// What a stream holds beside its buffers: the start of a body, its state and a head.
pub(super) const STREAM_BYTES: usize = UNHELD_BYTES_MAX + 2 * 1024;

/// Streams that are charged at a time.
pub(super) const STREAMS_STEP: usize = 8;

/// Requests that a client may cancel, more than it takes the answers of: work for nothing. With
/// more the connection ends.
pub(super) const CANCELLED_MAX: usize = STREAMS_MAX;

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
