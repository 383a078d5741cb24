//! The bounds of the HTTP crate: each one a sum, with a comment per term.
//!
//! The constants are what a buffer or a table must be able to hold; [`Limits`] holds what a server
//! may tighten when it starts. Nothing here is ever sized by a number that a peer sent.

use std::time::Duration;

/// Longest method: the longest registered one is `UPDATEREDIRECTREF` (17), rounded up.
pub const METHOD_BYTES_MAX: usize = 32;

/// Longest request target; RFC 9112 section 3 asks for request lines of at least 8000 octets.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Longest request line with its line end.
pub(crate) const REQUEST_LINE_BYTES_MAX: usize = METHOD_BYTES_MAX
    + 1 // the space after the method
    + TARGET_BYTES_MAX
    + 1 // the space after the target
    + "HTTP/1.1".len()
    + "\r\n".len();

/// Longest host that is compared with names: RFC 1035 section 2.3.4 allows 255 octets with the
/// lengths of the labels, which are 253 as text.
pub(crate) const HOST_BYTES_MAX: usize = 253;

/// Most header lines of one request.
pub const HEADERS_MAX: usize = 100;

/// Most bytes of all header lines together, with their line ends.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// Most empty lines before a request line: one is seen after the body of old clients, a few more
/// do no harm, and without a bound they would be work that is never answered.
pub const EMPTY_LINES_MAX: usize = 4;

/// Longest complete head, so also the most that is ever kept of an unfinished one.
pub const HEAD_BYTES_MAX: usize =
    EMPTY_LINES_MAX * "\r\n".len() + REQUEST_LINE_BYTES_MAX + HEADERS_BYTES_MAX + "\r\n".len();

/// Most digits of a chunk size: 16 hexadecimal digits are 64 bits.
pub(crate) const CHUNK_SIZE_DIGITS_MAX: usize = 16;

/// Framing bytes a chunked body may carry beyond what its data justifies, see
/// [`Decoder`](crate::Decoder).
pub(crate) const CHUNK_EXCESS_BYTES_MAX: u64 = 16 * 1024;

/// Framing bytes that each chunk may cost for nothing: sixteen digits, which covers size lines
/// without extensions.
pub(crate) const CHUNK_FREE_BYTES: u64 = CHUNK_SIZE_DIGITS_MAX as u64;

/// Most bytes of one chunk's size line: digits, extensions, line end.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = CHUNK_SIZE_DIGITS_MAX
    + 4 * 1024 // extensions, which no client sends
    + "\r\n".len();

/// Requests of one connection that may be in flight at once. Past it the connection stalls.
pub const PIPELINE_MAX: usize = 16;

/// Bytes of a body that is read only to find the request after it: answering early must not make
/// the connection worth less than reading on.
pub(crate) const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// Largest first buffer for a body, however long it says it is: memory follows what has arrived.
pub(crate) const BODY_FIRST_BYTES_MAX: usize = 16 * 1024;

/// Services around each other that leave a note for the worker of a request: those of a listener,
/// of a site, of a route and of its service.
pub(crate) const HEAD_NOTES_MAX: usize = 4;

/// Directories that sites which change may have tried on the network thread, all that they ever
/// had: what is beyond them goes to workers.
pub(crate) const LIVE_PLACES_MAX: usize = 256;

/// Data of a streamed body that is worth a worker.
pub(crate) const UPLOAD_PIECE_BYTES: usize = 256 * 1024;

/// The same while memory runs short: a buffer of the smallest class.
pub(crate) const UPLOAD_SHORT_BYTES: usize = 4 * 1024;

/// The same in parts: well below the fragments that a connection may hold, so that it continues
/// receiving while a worker has this many.
pub(crate) const UPLOAD_PIECE_PARTS: usize = 12;

/// Data of a streamed body that waits for its worker; with more the connection stalls.
pub(crate) const UPLOAD_WAITING_BYTES_MAX: usize = 1024 * 1024;

/// The least of a body that is moved through a pipe, in bytes: below it, the system calls that
/// takes cost more than the copies.
pub(crate) const UPLOAD_PIPE_BYTES_MIN: u32 = 64 * 1024;

/// The most that is moved so at once: what a pipe holds that every process may have.
pub(crate) const UPLOAD_PIPE_BYTES_MAX: u32 = 1024 * 1024;

/// Times that a worker writes a pipe before it lets the connection look at its state: 16 MiB.
pub(crate) const UPLOAD_REFILLS_MAX: usize = 16;

/// A receive that brings as much shows that more may have come.
pub(crate) const UPLOAD_STREAM_BYTES: usize = 32 * 1024;

/// Data shorter than this is copied where framing surrounds it: chunks may be of one byte.
pub(crate) const UPLOAD_COPY_BYTES_MAX: usize = 1024;

/// A body announced with more than this is received into the listener's own pages.
pub(crate) const UPLOAD_LARGE_BYTES: u64 = 32 * 1024;

/// How long the answer of a time-out may wait for a worker, which does what layers around it do to
/// responses. Then it goes without them.
pub(crate) const TIME_OUT_GRACE: Duration = Duration::from_millis(100);

/// Buffer for the head of a pooled reply, taken before the request is dispatched.
pub(crate) const REPLY_BUFFER_BYTES: usize = 4 * 1024;

/// Longest head of a reply.
pub(crate) const REPLY_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Room that must be there before a service may answer inline: a small reply.
pub(crate) const INLINE_REPLY_BYTES: usize = 512;

/// Data of a streamed body that one run of a worker reads.
pub(crate) const STREAM_CHUNK_BYTES: usize = 64 * 1024 - 64;

/// The same when a connection had better hold less than that, see
/// [`flatpath::memory::PoolHandle::fair_bytes`].
pub(crate) const STREAM_SHORT_BYTES: usize = 16 * 1024 - 64;

/// The same when it had better hold nothing: as much as the smallest buffer holds, so that a socket
/// which takes nothing keeps no more.
pub(crate) const STREAM_SCARCE_BYTES: usize = 4 * 1024 - 64;

/// Heads and chunks up to this many bytes are copied after other output when there is any.
pub(crate) const GATHER_BYTES_MAX: usize = 4 * 1024;

/// Scratch space for inline replies that grew larger than this is given back.
pub(crate) const SCRATCH_KEPT_MAX: usize = 64 * 1024;

/// Recycled things of one kind that a network thread keeps.
pub(crate) const SPARES_MAX: usize = 1024;

/// Replies count as sent, in the access log, when no more of the connection's output than this is
/// left: less than a socket takes at once.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request line that could not be read which the access log has at most.
pub const MALFORMED_LOGGED_BYTES_MAX: usize = 1024;

/// What a server may set, in bytes but for the number of headers.
///
/// ```
/// use flatpath_http::{Http, Limits};
///
/// let limits = Limits {
///     body_bytes_max: 1 << 20,
///     ..Limits::default()
/// };
/// let http = Http::pooled(|body: String| body).limits(limits);
/// # let _ = http;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request target, at most [`TARGET_BYTES_MAX`]; a longer one is answered with 414.
    pub target_bytes_max: usize,
    /// Most bytes of header lines, at most [`HEADERS_BYTES_MAX`]; more are answered with 431.
    pub headers_bytes_max: usize,
    /// Most header lines, at most [`HEADERS_MAX`]; more are answered with 431.
    pub headers_max: usize,
    /// Longest request body; a longer one is answered with 413.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            target_bytes_max: TARGET_BYTES_MAX,
            headers_bytes_max: HEADERS_BYTES_MAX,
            headers_max: HEADERS_MAX,
            body_bytes_max: 1024 * 1024,
        }
    }
}

impl Limits {
    /// The same limits, each brought down to what the crate's buffers can hold.
    #[must_use]
    pub(crate) fn within_bounds(self) -> Self {
        Self {
            target_bytes_max: self.target_bytes_max.min(TARGET_BYTES_MAX),
            headers_bytes_max: self.headers_bytes_max.min(HEADERS_BYTES_MAX),
            headers_max: self.headers_max.min(HEADERS_MAX),
            body_bytes_max: self.body_bytes_max,
        }
    }

    /// Longest request line, its line end included, under these limits.
    pub(crate) fn line_bytes_max(&self) -> usize {
        REQUEST_LINE_BYTES_MAX - TARGET_BYTES_MAX + self.target_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_of_eight_thousand_octets_fit() {
        const { assert!(REQUEST_LINE_BYTES_MAX >= 8000) }
        assert_eq!(Limits::default().line_bytes_max(), REQUEST_LINE_BYTES_MAX);
    }

    #[test]
    fn limits_above_the_bounds_are_brought_down() {
        let wished = Limits {
            target_bytes_max: usize::MAX,
            headers_bytes_max: usize::MAX,
            headers_max: usize::MAX,
            body_bytes_max: u64::MAX,
        };
        let granted = wished.within_bounds();
        assert_eq!(granted.target_bytes_max, TARGET_BYTES_MAX);
        assert_eq!(granted.headers_bytes_max, HEADERS_BYTES_MAX);
        assert_eq!(granted.headers_max, HEADERS_MAX);
        assert_eq!(granted.body_bytes_max, u64::MAX);
    }
}
