//! Bytes of replies: status and fields, and what ends a head.
//!
//! The head of a reply is a status and fields until it is written ([`HeadOut`]): as lines of text
//! for a client of HTTP/1, for one of HTTP/2 as fields of a block. Neither is read again. It goes
//! into a [`Sink`]: scratch space that its owner reuses, or a pooled buffer of fixed size.

use http::{HeaderName, HeaderValue, StatusCode};

#[cfg(feature = "http2")]
use crate::h2::hpack;
use crate::head::chars;
use crate::head::{RequestMeta, Spoken};
use crate::respond::sink::Sink;

/// How the body of a reply is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFraming {
    Length(u64),
    Chunked,
    /// By the end of the connection.
    CloseDelimited,
}

impl ReplyFraming {
    /// Bytes of the body that may follow.
    pub(crate) fn left(self) -> u64 {
        match self {
            Self::Length(left) => left,
            Self::Chunked | Self::CloseDelimited => u64::MAX,
        }
    }

    /// Counts bytes of the body that were queued, [`left`](Self::left) at most.
    pub(crate) fn queued(&mut self, bytes: u64) {
        if let Self::Length(left) = self {
            *left -= bytes;
        }
    }
}

/// Room for what [`end_of_head`] writes: `Date`, the longer `Connection`, the empty line.
pub(crate) const END_OF_HEAD_BYTES: usize = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len()
    + "Connection: keep-alive\r\n".len()
    + "\r\n".len();

/// The head of a reply while it is written.
pub(crate) struct HeadOut<'o, O: Sink> {
    out: &'o mut O,
    spoken: Spoken,
}

impl<'o, O: Sink> HeadOut<'o, O> {
    /// Writes the status.
    pub(crate) fn begin(out: &'o mut O, spoken: Spoken, status: StatusCode) -> Self {
        match spoken {
            Spoken::Http10 | Spoken::Http11 => status_line(out, status),
            // RFC 8441 5: it opens the tunnel, and there is nothing to be switched.
            #[cfg(feature = "http2")]
            Spoken::Http2 if status == StatusCode::SWITCHING_PROTOCOLS => {
                hpack::put_status(out, 200);
            }
            #[cfg(feature = "http2")]
            Spoken::Http2 => hpack::put_status(out, status.as_u16()),
        }
        Self { out, spoken }
    }

    /// One field of a response. The caller vouches for name and value, here and below.
    pub(crate) fn field(&mut self, name: &HeaderName, value: &HeaderValue) {
        match self.spoken {
            Spoken::Http10 | Spoken::Http11 => named_header(self.out, name, value),
            #[cfg(feature = "http2")]
            Spoken::Http2 => self.spelled(name.as_str().as_bytes(), value.as_bytes()),
        }
    }

    /// One field whose name is spelled as text has it. Over HTTP/2 those are left out that only a
    /// connection means.
    pub(crate) fn spelled(&mut self, name: &[u8], value: &[u8]) {
        match self.spoken {
            Spoken::Http10 | Spoken::Http11 => header(self.out, name, value),
            #[cfg(feature = "http2")]
            Spoken::Http2 if is_of_connection(name) => {}
            #[cfg(feature = "http2")]
            Spoken::Http2 => hpack::put_field(self.out, name, value),
        }
    }

    /// `Content-Length`.
    pub(crate) fn length(&mut self, length: u64) {
        let mut digits = itoa::Buffer::new();
        self.spelled(b"Content-Length", digits.format(length).as_bytes());
    }
}

/// RFC 9113 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing connection-specific
/// header fields."
#[cfg(feature = "http2")]
pub(crate) fn is_of_connection(name: &[u8]) -> bool {
    let spelled: &[u8] = match name.len() {
        7 => b"upgrade",
        10 if matches!(name[0], b'c' | b'C') => b"connection",
        10 => b"keep-alive",
        16 => b"proxy-connection",
        17 => b"transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(spelled)
}

/// The status line, its line end included.
fn status_line(out: &mut impl Sink, status: StatusCode) {
    let line: &[u8] = match status.as_u16() {
        200 => b"HTTP/1.1 200 OK\r\n",
        206 => b"HTTP/1.1 206 Partial Content\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        _ => return status_line_of(out, status),
    };
    out.put(line);
}

fn status_line_of(out: &mut impl Sink, status: StatusCode) {
    out.put(b"HTTP/1.1 ");
    out.put(status.as_str().as_bytes());
    // The space is there even where no reason follows (RFC 9112 section 4).
    out.put(b" ");
    out.put(status.canonical_reason().unwrap_or("").as_bytes());
    out.put(b"\r\n");
}

/// One header line.
pub(crate) fn header(out: &mut impl Sink, name: &[u8], value: &[u8]) {
    debug_assert!(
        is_header(name, value),
        "a malformed header would split the reply"
    );
    out.put(name);
    out.put(b": ");
    out.put(value);
    out.put(b"\r\n");
}

/// One header line of a response, whose name is spelled as those that are ours.
pub(crate) fn named_header(out: &mut impl Sink, name: &HeaderName, value: &HeaderValue) {
    let (name, value) = (name.as_str(), value.as_bytes());
    match spelling(name) {
        Some(spelled) => header(out, spelled.as_bytes(), value),
        None => {
            put_spelled(out, name.as_bytes());
            out.put(b": ");
            out.put(value);
            out.put(b"\r\n");
        }
    }
}

/// How RFCs spell a name in small letters: the headers that most replies have, and those that do
/// not just begin each word with a capital letter.
fn spelling(name: &str) -> Option<&'static str> {
    Some(match name {
        "cache-control" => "Cache-Control",
        "content-encoding" => "Content-Encoding",
        "content-range" => "Content-Range",
        "content-security-policy" => "Content-Security-Policy",
        "content-type" => "Content-Type",
        "etag" => "ETag",
        "last-modified" => "Last-Modified",
        "location" => "Location",
        "server" => "Server",
        "set-cookie" => "Set-Cookie",
        "te" => "TE",
        "vary" => "Vary",
        "www-authenticate" => "WWW-Authenticate",
        "x-content-type-options" => "X-Content-Type-Options",
        _ => return None,
    })
}

/// A name in small letters with a capital letter at the beginning of each word.
fn put_spelled(out: &mut impl Sink, name: &[u8]) {
    let rest = match name.strip_prefix(b"sec-websocket-") {
        Some(rest) => {
            out.put(b"Sec-WebSocket-");
            rest
        }
        None => name,
    };
    let mut is_first = true;
    for piece in rest.chunks(NAME_PIECE_BYTES) {
        let mut bytes = [0; NAME_PIECE_BYTES];
        let bytes = &mut bytes[..piece.len()];
        bytes.copy_from_slice(piece);
        for byte in &mut *bytes {
            if is_first {
                byte.make_ascii_uppercase();
            }
            is_first = *byte == b'-';
        }
        out.put(bytes);
    }
}

/// So many bytes of a name are put at a time: nearly all names have fewer.
const NAME_PIECE_BYTES: usize = 32;

/// Whether name and value may stand in a head.
fn is_header(name: &[u8], value: &[u8]) -> bool {
    chars::is_token_word(name) && chars::is_header_value(value)
}

/// The end of every head: the date, and over HTTP/1 whether the connection continues (RFC 9112
/// section 9.3) and an empty line.
pub(crate) fn end_of_head(out: &mut impl Sink, date: &[u8], request: RequestMeta) {
    out.put(date);
    out.put(match (request.keep_alive, request.spoken) {
        #[cfg(feature = "http2")]
        (_, Spoken::Http2) => return,
        (false, _) => b"Connection: close\r\n\r\n",
        (true, Spoken::Http11) => b"\r\n",
        (true, _) => b"Connection: keep-alive\r\n\r\n",
    });
}

/// Headers that say how a message is framed or when it was sent: those are ours to write.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    let ours: &[u8] = match name.len() {
        4 => b"date",
        7 => b"trailer",
        10 if name[0] | 0x20 == b'k' => b"keep-alive",
        10 => b"connection",
        14 => b"content-length",
        17 => b"transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(ours)
}

/// The longest line before a chunk, of 16 hexadecimal digits.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = 16 + 2;

/// The line before a chunk of so many bytes: its length in hexadecimal digits.
pub(crate) fn chunk_line(bytes: usize, line: &mut [u8; CHUNK_LINE_BYTES_MAX]) -> &[u8] {
    *line = *b"                \r\n";
    let mut left = bytes;
    for digit in line[..16].iter_mut().rev() {
        *digit = b"0123456789abcdef"[left % 16];
        left /= 16;
        if left == 0 {
            break;
        }
    }
    line.trim_ascii_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_have_a_reason_or_an_empty_one() {
        let line = |code| {
            let mut out = Vec::new();
            status_line(&mut out, StatusCode::from_u16(code).expect("a valid code"));
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(line(200), "HTTP/1.1 200 OK\r\n");
        assert_eq!(line(404), "HTTP/1.1 404 Not Found\r\n");
        assert_eq!(line(503), "HTTP/1.1 503 Service Unavailable\r\n");
        assert_eq!(line(599), "HTTP/1.1 599 \r\n");
    }

    #[test]
    fn the_short_cut_lines_are_the_general_ones() {
        for code in [200, 206, 304, 404] {
            let status = StatusCode::from_u16(code).expect("a valid code");
            let (mut short, mut general) = (Vec::new(), Vec::new());
            status_line(&mut short, status);
            status_line_of(&mut general, status);
            assert_eq!(short, general);
        }
    }

    #[test]
    fn names_are_spelled_in_one_way() {
        for (name, is) in [
            ("content-type", "Content-Type"),
            ("etag", "ETag"),
            ("www-authenticate", "WWW-Authenticate"),
            ("sec-websocket-accept", "Sec-WebSocket-Accept"),
            ("x-a--b", "X-A--B"),
            ("x", "X"),
            ("x-content-type-options", "X-Content-Type-Options"),
            ("te", "TE"),
            ("content-security-policy", "Content-Security-Policy"),
            ("retry-after", "Retry-After"),
            ("sec-websocket-protocol", "Sec-WebSocket-Protocol"),
            (
                "a-name-that-is-longer-than-one-piece-is",
                "A-Name-That-Is-Longer-Than-One-Piece-Is",
            ),
        ] {
            let mut out = Vec::new();
            let value = HeaderValue::from_static("v");
            named_header(&mut out, &HeaderName::from_static(name), &value);
            assert_eq!(
                String::from_utf8(out).expect("ASCII"),
                format!("{is}: v\r\n")
            );
        }
    }

    #[test]
    fn framing_headers_are_ours_in_any_case() {
        let names = [
            "Date",
            "CONNECTION",
            "keep-alive",
            "content-length",
            "Transfer-Encoding",
        ];
        assert!(names.iter().all(|name| is_ours(name.as_bytes())));
        let others = [
            "",
            "etag",
            "content-type",
            "last-modified",
            "Data",
            "connectiom",
        ];
        assert!(!others.iter().any(|name| is_ours(name.as_bytes())));
    }
}
