//! The bounds of a connection that speaks HTTP/2.

use crate::connection::pending_body::{BodyMode, PendingBody};

/// Streams of a connection that may be open or have a job with a worker: the least that RFC 9113
/// section 6.5.2 recommends.
pub(super) const STREAMS_MAX: usize = 100;

/// Bytes of a body that a client may send before it has to wait: one piece of an upload. All of it
/// is charged as it arrives.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The same for all streams of a connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes that are said before they are queued: one frame's.
pub(super) const OUT_BYTES_HIGH: usize = 16 * 1024;

/// Bytes of a body that one stream sends before others do.
pub(super) const SENT_AT_ONCE_BYTES: usize = 16 * 1024;

/// The same where there are no others.
pub(super) const SENT_ALONE_BYTES: usize = 256 * 1024;

/// Bytes of a body that are not charged while they are on their way. All streams together have less
/// of them than the output has room for, and what has to wait is charged.
pub(super) const UNHELD_BYTES_MAX: usize = 2 * 1024;

const _: () = assert!(
    STREAMS_MAX * UNHELD_BYTES_MAX < flatpath::limits::OUTPUT_BYTES_HIGH,
    "what is not charged leaves in the same call"
);

/// Frames of a header block: two, by the bytes it may have, and some for a client that sends what
/// it has.
pub(super) const BLOCK_FRAMES_MAX: usize = 6;

/// What a connection holds beside its buffers and its client's table, without its streams.
pub(super) const CONNECTION_BYTES: usize = 528;

/// What a stream holds beside its buffers: the start of a body, its state and a head.
pub(super) const STREAM_BYTES: usize = 2 * 1024;

/// Streams that are charged at a time.
pub(super) const STREAMS_STEP: usize = 8;

/// Requests that a client may cancel, more than it takes the answers of: work for nothing. With
/// more the connection ends.
pub(super) const CANCELLED_MAX: usize = STREAMS_MAX;

/// Streams that a client may break rules in; with more the connection ends.
pub(super) const FAULTY_STREAMS_MAX: usize = 64;

/// The latest streams that this side has reset, of which more may be on its way.
pub(super) const RESETS_KEPT: usize = 8;

/// Bytes of frames that do nothing (PING, SETTINGS, windows, frames that are empty or unknown) for
/// which a client has to do nothing, and those for each byte of what does something. With more the
/// connection ends.
pub(super) const IDLE_BYTES_FREE: u64 = 1024 * 1024;
pub(super) const IDLE_BYTES_PART: u64 = 8;

/// Signals of priority that are kept of streams that have not begun.
pub(super) const EARLY_MAX: usize = 8;

/// Whether a body is taken piece by piece.
pub(super) fn is_streamed(pending: &PendingBody) -> bool {
    matches!(pending.mode, BodyMode::Streamed | BodyMode::Abandoned)
}
