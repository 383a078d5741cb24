//! What can be wrong with a request, and the status that answers it.

use http::StatusCode;

/// Why a request is not taken. Every fault ends its connection after the answer: after a message
/// whose framing is in doubt, nothing can be trusted to be the next request, and after one that is
/// for another host or from a foreign page, nothing is worth reading. Each displays as one sentence
/// for the person at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    RequestLine,
    EmptyLines,
    BareLineFeed,
    BareCarriageReturn,
    SpaceBeforeFirstHeader,
    /// A folded header line (`obs-fold`).
    FoldedHeader,
    SpaceBeforeColon,
    HeaderName,
    HeaderValue,
    /// A method that no server implements, because it is too long.
    MethodTooLong,
    /// `CONNECT`, which an origin server does not implement.
    Tunnel,
    /// A request target with characters that must be percent-encoded, or in none of the forms.
    Target,
    TargetTooLong,
    /// A path whose segments `..` lead above the root.
    DotSegments,
    HeadersTooLong,
    HeadersTooMany,
    Version,
    HostMissing,
    HostTwice,
    /// A `Host` that is empty, or not a host and an optional port.
    HostInvalid,
    /// A host that is not among [`Hosts`](crate::Hosts).
    HostForeign,
    /// A page whose origin is not among [`Origins`](crate::Origins).
    OriginForeign,
    /// A `Content-Length` that is not a decimal number, or several different ones.
    Length,
    LengthAndCoding,
    CodingInOldVersion,
    /// `chunked` is not the last transfer coding, or is there twice, or the list is malformed.
    CodingOrder,
    CodingUnknown,
    Expectation,
    /// A chunk size that is not `1*HEXDIG`.
    ChunkSize,
    ChunkSizeOverflow,
    ChunkExtension,
    /// Chunk extensions, or chunks so small that framing outweighs data, beyond the bound.
    ChunkOverhead,
    ChunkEnd,
    Trailer,
    TrailerTooLong,
    BodyTooLong,
    HeadTimeout,
    BodyTimeout,
}

flatpath::impl_error! {
    Fault {
        Self::RequestLine => "The request line is malformed.",
        Self::EmptyLines => "Too many empty lines before the request line.",
        Self::BareLineFeed => "A line ends without a carriage return.",
        Self::BareCarriageReturn => "A carriage return is not followed by a line feed.",
        Self::SpaceBeforeFirstHeader => "White space precedes the first header.",
        Self::FoldedHeader => "Folded headers are obsolete.",
        Self::SpaceBeforeColon => "White space precedes the colon of a header.",
        Self::HeaderName => "A header name is malformed.",
        Self::HeaderValue => "A header value contains a control character.",
        Self::MethodTooLong => "The method is not known here.",
        Self::Tunnel => "This server opens no tunnels.",
        Self::Target => "The request target is malformed.",
        Self::TargetTooLong => "The request target is too long.",
        Self::DotSegments => "The request target leads above the root.",
        Self::HeadersTooLong => "The header section is too long.",
        Self::HeadersTooMany => "There are too many headers.",
        Self::Version => "Only HTTP/1.0 and HTTP/1.1 are spoken here.",
        Self::HostMissing => "The Host header is missing.",
        Self::HostTwice => "There is more than one Host header.",
        Self::HostInvalid => "The Host header is malformed.",
        Self::HostForeign => "This server does not answer for this host.",
        Self::OriginForeign => "Pages of another origin may not do this.",
        Self::Length => "The Content-Length header is malformed.",
        Self::LengthAndCoding => "Content-Length and Transfer-Encoding exclude each other.",
        Self::CodingInOldVersion => "HTTP/1.0 has no Transfer-Encoding.",
        Self::CodingOrder => "The last transfer coding must be chunked, and only the last.",
        Self::CodingUnknown => "The transfer coding is not known here.",
        Self::Expectation => "The expectation cannot be met.",
        Self::ChunkSize => "A chunk size is malformed.",
        Self::ChunkSizeOverflow => "A chunk size is too large.",
        Self::ChunkExtension => "A chunk extension is malformed.",
        Self::ChunkOverhead => "The chunked body consists mostly of framing.",
        Self::ChunkEnd => "A chunk does not end where its size says.",
        Self::Trailer => "A trailer is malformed.",
        Self::TrailerTooLong => "The trailer section is too long.",
        Self::BodyTooLong => "The request body is too long.",
        Self::HeadTimeout => "The request head did not arrive in time.",
        Self::BodyTimeout => "The request body did not arrive in time.",
    }
}

impl Fault {
    /// The last one.
    const LAST: usize = Self::BodyTimeout as usize;

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
            Self::HostForeign => StatusCode::MISDIRECTED_REQUEST,
            Self::OriginForeign => StatusCode::FORBIDDEN,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTimeout | Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// In a word, for metrics and the access log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::RequestLine => "request_line",
            Self::EmptyLines => "empty_lines",
            Self::BareLineFeed => "bare_line_feed",
            Self::BareCarriageReturn => "bare_carriage_return",
            Self::SpaceBeforeFirstHeader => "space_before_first_header",
            Self::FoldedHeader => "folded_header",
            Self::SpaceBeforeColon => "space_before_colon",
            Self::HeaderName => "header_name",
            Self::HeaderValue => "header_value",
            Self::MethodTooLong => "method_too_long",
            Self::Tunnel => "tunnel",
            Self::Target => "target",
            Self::TargetTooLong => "target_too_long",
            Self::DotSegments => "dot_segments",
            Self::HeadersTooLong => "headers_too_long",
            Self::HeadersTooMany => "headers_too_many",
            Self::Version => "version",
            Self::HostMissing => "host_missing",
            Self::HostTwice => "host_twice",
            Self::HostInvalid => "host_invalid",
            Self::HostForeign => "host_foreign",
            Self::OriginForeign => "origin_foreign",
            Self::Length => "length",
            Self::LengthAndCoding => "length_and_coding",
            Self::CodingInOldVersion => "coding_in_old_version",
            Self::CodingOrder => "coding_order",
            Self::CodingUnknown => "coding_unknown",
            Self::Expectation => "expectation",
            Self::ChunkSize => "chunk_size",
            Self::ChunkSizeOverflow => "chunk_size_overflow",
            Self::ChunkExtension => "chunk_extension",
            Self::ChunkOverhead => "chunk_overhead",
            Self::ChunkEnd => "chunk_end",
            Self::Trailer => "trailer",
            Self::TrailerTooLong => "trailer_too_long",
            Self::BodyTooLong => "body_too_long",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
        }
    }
}

/// Each of them, in their order.
const ALL: &[Fault] = &[
    Fault::RequestLine,
    Fault::EmptyLines,
    Fault::BareLineFeed,
    Fault::BareCarriageReturn,
    Fault::SpaceBeforeFirstHeader,
    Fault::FoldedHeader,
    Fault::SpaceBeforeColon,
    Fault::HeaderName,
    Fault::HeaderValue,
    Fault::MethodTooLong,
    Fault::Tunnel,
    Fault::Target,
    Fault::TargetTooLong,
    Fault::DotSegments,
    Fault::HeadersTooLong,
    Fault::HeadersTooMany,
    Fault::Version,
    Fault::HostMissing,
    Fault::HostTwice,
    Fault::HostInvalid,
    Fault::HostForeign,
    Fault::OriginForeign,
    Fault::Length,
    Fault::LengthAndCoding,
    Fault::CodingInOldVersion,
    Fault::CodingOrder,
    Fault::CodingUnknown,
    Fault::Expectation,
    Fault::ChunkSize,
    Fault::ChunkSizeOverflow,
    Fault::ChunkExtension,
    Fault::ChunkOverhead,
    Fault::ChunkEnd,
    Fault::Trailer,
    Fault::TrailerTooLong,
    Fault::BodyTooLong,
    Fault::HeadTimeout,
    Fault::BodyTimeout,
];

/// What metrics count them by, in their order.
pub(crate) const REASONS: [&str; ALL.len()] = {
    let (mut reasons, mut at) = ([""; ALL.len()], 0);
    while at < ALL.len() {
        assert!(ALL[at] as usize == at, "each is in its place");
        reasons[at] = ALL[at].reason();
        at += 1;
    }
    reasons
};

const _: () = assert!(
    ALL.len() <= flatpath::statistics::REFUSAL_REASONS_MAX && ALL.len() == Fault::LAST + 1,
    "each is counted"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_reason_of_its_own_that_a_label_can_be() {
        for (at, reason) in REASONS.iter().enumerate() {
            assert!(!REASONS[..at].contains(reason), "{reason}");
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(
                !reason.is_empty() && reason.bytes().all(is_plain),
                "{reason}"
            );
        }
    }
}
