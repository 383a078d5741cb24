//! What can be wrong with a request, and the status that answers it.

use http::StatusCode;

/// Why a request cannot be taken. Every fault ends its connection after the answer: after a
/// message whose framing is in doubt, nothing can be trusted to be the next request. Each displays
/// as one sentence for the person at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("The request line is malformed.")]
    RequestLine,
    #[error("Too many empty lines before the request line.")]
    EmptyLines,
    #[error("A line ends without a carriage return.")]
    BareLineFeed,
    #[error("A carriage return is not followed by a line feed.")]
    BareCarriageReturn,
    #[error("White space precedes the first header.")]
    SpaceBeforeFirstHeader,
    /// A folded header line (`obs-fold`).
    #[error("Folded headers are obsolete.")]
    FoldedHeader,
    #[error("White space precedes the colon of a header.")]
    SpaceBeforeColon,
    #[error("A header name is malformed.")]
    HeaderName,
    #[error("A header value contains a control character.")]
    HeaderValue,
    /// A method that no server implements, because it is too long.
    #[error("The method is not known here.")]
    MethodTooLong,
    /// `CONNECT`, which an origin server does not implement.
    #[error("This server opens no tunnels.")]
    Tunnel,
    /// A request target with characters that must be percent-encoded, or in none of the forms.
    #[error("The request target is malformed.")]
    Target,
    #[error("The request target is too long.")]
    TargetTooLong,
    #[error("The header section is too long.")]
    HeadersTooLong,
    #[error("There are too many headers.")]
    HeadersTooMany,
    #[error("Only HTTP/1.0 and HTTP/1.1 are spoken here.")]
    Version,
    #[error("The Host header is missing.")]
    HostMissing,
    #[error("There is more than one Host header.")]
    HostTwice,
    /// A `Host` that is not a host and an optional port.
    #[error("The Host header is malformed.")]
    HostInvalid,
    /// A `Content-Length` that is not a decimal number, or several different ones.
    #[error("The Content-Length header is malformed.")]
    Length,
    #[error("Content-Length and Transfer-Encoding exclude each other.")]
    LengthAndCoding,
    #[error("HTTP/1.0 has no Transfer-Encoding.")]
    CodingInOldVersion,
    /// `chunked` is not the last transfer coding, or is there twice, or the list is malformed.
    #[error("The last transfer coding must be chunked, and only the last.")]
    CodingOrder,
    #[error("The transfer coding is not known here.")]
    CodingUnknown,
    #[error("The expectation cannot be met.")]
    Expectation,
    /// A chunk size that is not `1*HEXDIG`.
    #[error("A chunk size is malformed.")]
    ChunkSize,
    #[error("A chunk size is too large.")]
    ChunkSizeOverflow,
    #[error("A chunk extension is malformed.")]
    ChunkExtension,
    /// Chunk extensions, or chunks so small that framing outweighs data, beyond the bound.
    #[error("The chunked body consists mostly of framing.")]
    ChunkOverhead,
    #[error("A chunk does not end where its size says.")]
    ChunkEnd,
    #[error("A trailer is malformed.")]
    Trailer,
    #[error("The trailer section is too long.")]
    TrailerTooLong,
    #[error("The request body is too long.")]
    BodyTooLong,
    #[error("The request head did not arrive in time.")]
    HeadTimeout,
    #[error("The request body did not arrive in time.")]
    BodyTimeout,
}

impl Fault {
    /// The status that answers this fault.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::MethodTooLong | Self::Tunnel | Self::CodingUnknown => StatusCode::NOT_IMPLEMENTED,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadersTooLong | Self::HeadersTooMany | Self::TrailerTooLong => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTimeout | Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
