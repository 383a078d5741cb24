//! What a client does wrong, and the close code that tells it (RFC 6455 section 7.4.1).

use crate::close::code;

/// What ends a connection: its client is sent a close frame with [`Fault::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Section 5.1: a client masks every frame.
    Unmasked,
    /// Section 5.2: no extension was negotiated that gives it a meaning.
    ReservedBit,
    /// Section 5.2.
    ReservedOpcode,
    /// Section 5.2: "the minimal number of bytes MUST be used to encode the length", and the
    /// highest bit of the longest form is 0.
    Length,
    /// Section 5.5.
    Control,
    /// Section 5.4.
    Fragment,
    /// Sections 5.5.1 and 7.4: one byte, or a code that must not be sent.
    CloseCode,
    /// Section 8.1.
    Utf8,
    /// RFC 7692 section 7.2.2.
    Deflate,
    /// [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    TooLong,
    /// [`Limits::fragments_max`](crate::Limits::fragments_max).
    TooManyFragments,
    /// A deadline of the server's limits.
    TooSlow,
    /// The handler has panicked.
    Handler,
}

flatpath::impl_error! {
    Fault {
        Self::Unmasked => "a frame is not masked",
        Self::ReservedBit => "a reserved bit is set",
        Self::ReservedOpcode => "an opcode is reserved",
        Self::Length => "a length is not in its shortest form",
        Self::Control => "a control frame is fragmented or longer than 125 bytes",
        Self::Fragment => "a message begins within another, or continues none",
        Self::CloseCode => "a close frame has no valid code",
        Self::Utf8 => "text is not UTF-8",
        Self::Deflate => "a message cannot be inflated",
        Self::TooLong => "a message is too long",
        Self::TooManyFragments => "a message has too many fragments",
        Self::TooSlow => "a message takes too long to arrive",
        Self::Handler => "the message could not be handled",
    }
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
