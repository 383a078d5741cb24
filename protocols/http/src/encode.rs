//! Bytes of replies: status lines, headers, and what ends a head.
//!
//! Writes into a [`Sink`]: scratch space that its owner reuses, or a pooled buffer of fixed size.

use flatpath::memory::Buffer;
use http::header::VARY;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::chars;
use crate::head::{RequestMeta, Spoken};

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

/// Where bytes of a reply are written.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A pooled buffer as a sink: what does not fit is dropped and remembered.
pub(crate) struct Bounded<'a> {
    buffer: &'a mut Buffer,
    overflowed: bool,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer) -> Self {
        Self {
            buffer,
            overflowed: false,
        }
    }

    /// Whether everything fitted with `spare_bytes` to spare.
    pub(crate) fn fits(&self, spare_bytes: usize) -> bool {
        !self.overflowed && self.buffer.room() >= spare_bytes
    }
}

impl Sink for Bounded<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.overflowed |= self.buffer.append(bytes) < bytes.len();
    }
}

/// The status line, its line end included.
pub(crate) fn status_line(out: &mut impl Sink, status: StatusCode) {
    let line: &[u8] = match status.as_u16() {
        200 => b"HTTP/1.1 200 OK\r\n",
        206 => b"HTTP/1.1 206 Partial Content\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        _ => return status_line_of(out, status),
    };
    out.put(line);
}

/// The status in a head.
#[inline]
pub(crate) fn status_of(head: &[u8]) -> u16 {
    const STATUS_AT: usize = b"HTTP/1.1 ".len();
    let digits = head.get(STATUS_AT..STATUS_AT + 3).unwrap_or_default();
    let value = |sum, digit: &u8| sum * 10 + u16::from(digit.wrapping_sub(b'0'));
    digits.iter().fold(0, value)
}

/// Bytes after a head.
pub(crate) fn body_bytes_of(reply: &[u8]) -> usize {
    const END: &[u8] = b"\r\n\r\n";
    let head_bytes = memchr::memmem::find(reply, END).map(|at| at + END.len());
    reply.len() - head_bytes.unwrap_or(reply.len())
}

fn status_line_of(out: &mut impl Sink, status: StatusCode) {
    out.put(b"HTTP/1.1 ");
    out.put(status.as_str().as_bytes());
    // The space is there even where no reason follows (RFC 9112 section 4).
    out.put(b" ");
    out.put(status.canonical_reason().unwrap_or("").as_bytes());
    out.put(b"\r\n");
}

/// One header line. The caller vouches for name and value.
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

/// Writes a header line as those of all replies over HTTP/1 are spelled, `Content-Type` and not
/// `content-type` as the http crate has it: for [`Reply::prebuilt`](crate::Reply::prebuilt). Names
/// are the same in any case (RFC 9110 section 5.1); clients that compare them as they are exist.
///
/// ```
/// use flatpath_http::header_line;
/// use flatpath_http::http::header::{ETAG, HeaderValue};
///
/// let mut head = b"HTTP/1.1 304 Not Modified\r\n".to_vec();
/// header_line(&mut head, &ETAG, &HeaderValue::from_static("\"x\""));
/// assert!(head.ends_with(b"\r\nETag: \"x\"\r\n"));
/// ```
pub fn header_line(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    named_header(head, name, value);
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

/// Usual length of a header line that is added.
const HEADER_BYTES_USUAL: usize = 64;

/// So many bytes of a name are put at a time: nearly all names have fewer.
const NAME_PIECE_BYTES: usize = 32;

/// Whether name and value may stand in a head.
pub(crate) fn is_header(name: &[u8], value: &[u8]) -> bool {
    chars::is_token_word(name) && chars::is_header_value(value)
}

/// A reply with these headers in place of those by the same names. `Vary` is there beside them,
/// unless the same value is.
pub(crate) fn amended(reply: &[u8], headers: &HeaderMap) -> Vec<u8> {
    let end = reply.len() - body_bytes_of(reply);
    let (head, body) = reply.split_at(end);
    let head = head.strip_suffix(b"\r\n").unwrap_or(head);
    let mut amended = Vec::with_capacity(reply.len() + headers.len() * HEADER_BYTES_USUAL);
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next();
        let name = name.and_then(|name| HeaderName::from_bytes(name).ok());
        let is_replaced = name.is_some_and(|name| match name == VARY {
            true => headers.get_all(VARY).iter().any(|it| is_line_of(line, it)),
            false => headers.contains_key(name),
        });
        if !is_replaced {
            amended.extend_from_slice(line);
        }
    }
    for (name, value) in headers {
        if !is_ours(name.as_str().as_bytes()) {
            named_header(&mut amended, name, value);
        }
    }
    amended.extend_from_slice(b"\r\n");
    amended.extend_from_slice(body);
    amended
}

/// Whether the line of a header has this value.
fn is_line_of(line: &[u8], value: &HeaderValue) -> bool {
    let own = line.splitn(2, |byte| *byte == b':').nth(1);
    own.is_some_and(|own| own.trim_ascii().eq_ignore_ascii_case(value.as_bytes()))
}

/// `Content-Length`.
pub(crate) fn length_header(out: &mut impl Sink, length: u64) {
    out.put(b"Content-Length: ");
    out.put(itoa::Buffer::new().format(length).as_bytes());
    out.put(b"\r\n");
}

/// `Transfer-Encoding: chunked`.
pub(crate) fn chunked_header(out: &mut impl Sink) {
    out.put(b"Transfer-Encoding: chunked\r\n");
}

/// The end of every head: the date, whether the connection continues (RFC 9112 section 9.3), an
/// empty line.
pub(crate) fn end_of_head(out: &mut impl Sink, date_line: &[u8], request: RequestMeta) {
    out.put(date_line);
    out.put(match (request.keep_alive, request.spoken) {
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
    fn a_reply_is_amended_by_headers_in_place_of_its_own() {
        let reply =
            b"HTTP/1.1 200 OK\r\nVary: a\r\nx-a: 1\r\nX-A: 2\r\nvary: Origin\r\nX-B: 3\r\n\r\n\
                      X-A: body\r\n\r\n";
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-a", "4"),
            ("vary", "origin"),
            ("x-c", "5"),
            ("date", "no"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let text = String::from_utf8(amended(reply, &headers)).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body, "X-A: body\r\n\r\n");
        let mut lines: Vec<_> = head.lines().collect();
        assert_eq!(lines.remove(0), "HTTP/1.1 200 OK");
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["Vary: a", "Vary: origin", "X-A: 4", "X-B: 3", "X-C: 5"]
        );
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
