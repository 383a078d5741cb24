//! What can be wrong with a request, and the status that says so.

use http::StatusCode;

/// Why a request cannot be taken. Every fault ends its connection after the answer: after a
/// message whose framing is in doubt, nothing can be trusted to be the next request. Each displays
/// as one sentence for the person at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The request line is not `method SP target SP version`.
    #[error("The request line is malformed.")]
    RequestLine,
    /// More empty lines before the request line than anyone needs.
    #[error("Too many empty lines before the request line.")]
    EmptyLines,
    /// A line feed without its carriage return.
    #[error("A line ends without a carriage return.")]
    BareLineFeed,
    /// A carriage return without its line feed.
    #[error("A carriage return is not followed by a line feed.")]
    BareCarriageReturn,
    /// White space between the request line and the first header.
    #[error("White space precedes the first header.")]
    SpaceBeforeFirstHeader,
    /// A folded header line (`obs-fold`).
    #[error("Folded headers are obsolete.")]
    FoldedHeader,
    /// White space between a header name and its colon.
    #[error("White space precedes the colon of a header.")]
    SpaceBeforeColon,
    /// A header name that is not a token, or no colon at all.
    #[error("A header name is malformed.")]
    HeaderName,
    /// A control character in a header value.
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
    /// The request target is longer than the server takes.
    #[error("The request target is too long.")]
    TargetTooLong,
    /// The header section is longer than the server takes.
    #[error("The header section is too long.")]
    HeadersTooLong,
    /// More header lines than the server takes.
    #[error("There are too many headers.")]
    HeadersTooMany,
    /// A major version other than 1.
    #[error("Only HTTP/1.0 and HTTP/1.1 are spoken here.")]
    Version,
    /// No `Host` in an HTTP/1.1 request.
    #[error("The Host header is missing.")]
    HostMissing,
    /// More than one `Host` line.
    #[error("There is more than one Host header.")]
    HostTwice,
    /// A `Host` that is not a host and an optional port.
    #[error("The Host header is malformed.")]
    HostInvalid,
    /// A `Content-Length` that is not a decimal number, or several different ones.
    #[error("The Content-Length header is malformed.")]
    Length,
    /// Both `Content-Length` and `Transfer-Encoding`.
    #[error("Content-Length and Transfer-Encoding exclude each other.")]
    LengthAndCoding,
    /// `Transfer-Encoding` in an HTTP/1.0 request.
    #[error("HTTP/1.0 has no Transfer-Encoding.")]
    CodingInOldVersion,
    /// `chunked` is not the last transfer coding, or is there twice, or the list is malformed.
    #[error("The last transfer coding must be chunked, and only the last.")]
    CodingOrder,
    /// A transfer coding other than `chunked`.
    #[error("The transfer coding is not known here.")]
    CodingUnknown,
    /// An `Expect` other than `100-continue`.
    #[error("The expectation cannot be met.")]
    Expectation,
    /// A chunk size that is not `1*HEXDIG`.
    #[error("A chunk size is malformed.")]
    ChunkSize,
    /// A chunk size that no 64-bit number holds.
    #[error("A chunk size is too large.")]
    ChunkSizeOverflow,
    /// A chunk extension without a name, or with a control character.
    #[error("A chunk extension is malformed.")]
    ChunkExtension,
    /// Chunk extensions, or chunks so small that framing outweighs data, beyond the bound.
    #[error("The chunked body consists mostly of framing.")]
    ChunkOverhead,
    /// Chunk data without its line end.
    #[error("A chunk does not end where its size says.")]
    ChunkEnd,
    /// A malformed trailer line.
    #[error("A trailer is malformed.")]
    Trailer,
    /// More trailer bytes than the server takes.
    #[error("The trailer section is too long.")]
    TrailerTooLong,
    /// The body is longer than the server takes.
    #[error("The request body is too long.")]
    BodyTooLong,
    /// The head did not arrive in time.
    #[error("The request head did not arrive in time.")]
    HeadTimeout,
    /// The body did not arrive in time.
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
