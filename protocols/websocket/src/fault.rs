//! What a client does wrong, and the close code that tells it (RFC 6455 section 7.4.1).

use thiserror::Error;

use crate::close::code;

/// What ends a connection: its client is sent a close frame with [`Fault::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// Section 5.1: a client masks every frame.
    #[error("a frame is not masked")]
    Unmasked,
    /// Section 5.2: no extension was negotiated that gives it a meaning.
    #[error("a reserved bit is set")]
    ReservedBit,
    /// Section 5.2.
    #[error("an opcode is reserved")]
    ReservedOpcode,
    /// Section 5.2: "the minimal number of bytes MUST be used to encode the length", and the
    /// highest bit of the longest form is 0.
    #[error("a length is not in its shortest form")]
    Length,
    /// Section 5.5.
    #[error("a control frame is fragmented or longer than 125 bytes")]
    Control,
    /// Section 5.4.
    #[error("a message begins within another, or continues none")]
    Fragment,
    /// Sections 5.5.1 and 7.4: one byte, or a code that must not be sent.
    #[error("a close frame has no valid code")]
    CloseCode,
    /// Section 8.1.
    #[error("text is not UTF-8")]
    Utf8,
    /// RFC 7692 section 7.2.2.
    #[error("a message cannot be inflated")]
    Deflate,
    /// [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    #[error("a message is too long")]
    TooLong,
    /// [`Limits::fragments_max`](crate::Limits::fragments_max).
    #[error("a message has too many fragments")]
    TooManyFragments,
    /// A deadline of the server's limits.
    #[error("a message takes too long to arrive")]
    TooSlow,
    /// The handler has panicked.
    #[error("the message could not be handled")]
    Handler,
}

impl Fault {
    /// What a close frame says of it.
    pub fn code(self) -> u16 {
        match self {
            Fault::Utf8 | Fault::Deflate => code::INVALID_DATA,
            Fault::TooLong | Fault::TooManyFragments => code::TOO_BIG,
            Fault::TooSlow => code::POLICY,
            Fault::Handler => code::INTERNAL_ERROR,
            _ => code::PROTOCOL_ERROR,
        }
    }
}
