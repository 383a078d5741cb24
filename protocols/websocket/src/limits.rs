//! Every bound of the crate: what a client may send, and what waits for it.

/// What a program sets; see [`WebSocket::limits`](crate::WebSocket::limits).
///
/// ```
/// use flatpath_websocket::Limits;
///
/// let limits = Limits {
///     message_bytes_max: 64 * 1024,
///     ..Limits::default()
/// };
/// # let _ = limits;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a client's message, its fragments together, inflated. A longer one ends the
    /// connection with 1009. While it arrives it counts for what one connection may hold of the
    /// server's buffers ([`flatpath::Limits::share_bytes`]), 16 MiB unless set.
    pub message_bytes_max: usize,
    /// Most frames of a message; a message with more ends the connection with 1009.
    pub fragments_max: u32,
    /// Bytes that wait for a client, in its socket and in its connection's output, before
    /// [`Socket::send`](crate::Socket::send) waits too. One message may go beyond it.
    pub queued_bytes_max: usize,
}

/// Messages of 1 MiB in 4,096 fragments; 64 KiB queued.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 1 << 20,
            fragments_max: 4096,
            queued_bytes_max: 64 * 1024,
        }
    }
}

/// The longest head of a client's frame: two bytes, an extended length, the mask.
pub(crate) const HEAD_BYTES_MAX: usize = 2 + 8 + 4;

/// Most bytes that a control frame carries (RFC 6455 section 5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// Most bytes of a close frame's reason: what the code leaves of a control frame.
pub(crate) const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// Compressed messages of one connection are inflated up to this many bytes at a time, and as far
/// as the message that goes beyond it; then others have their turn. About half a millisecond.
pub(crate) const INFLATED_BYTES_MAX: u32 = 256 * 1024;

/// Messages that wait for a busy worker, in bytes, from which on no more is read from their client:
/// what a common receive page holds. One message may go beyond it.
pub(crate) const WAITING_BYTES_MAX: usize = 16 * 1024;
