//! Reading HTTP replies strictly: what a lenient client would overlook is a failure here.
//!
//! Refused: lines that do not end in CR LF, field names that are not tokens, both framings at once,
//! two lengths, a body where none may be, chunk sizes with anything but hexadecimal digits.

use std::fmt;

/// One reply, read whole.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The three digits.
    pub status: u16,
    /// Field names as sent, with their values.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// Whether the body's end was the connection's end.
    pub ends_with_connection: bool,
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 200;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        write!(out, "{} {:?} ", self.status, self.fields)?;
        write!(out, "and {} bytes: {body:?}", self.body.len())
    }
}

impl Reply {
    /// The value of the one field of that name; the case of letters does not matter.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self
            .fields
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "two fields {name}: {self:?}");
        first
    }

    /// Whether the field `Connection` has the option `close`.
    pub fn says_close(&self) -> bool {
        let options = self.field("connection").unwrap_or_default();
        options
            .split(',')
            .any(|option| option.trim().eq_ignore_ascii_case("close"))
    }

    /// The body as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    /// The body, from JSON.
    ///
    /// # Panics
    /// When it is not JSON, or not that of a `T`: with the reply.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        let value = serde_json::from_slice(&self.body);
        value.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Compares the status.
    ///
    /// # Panics
    /// When it is another: with the reply.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert!(self.status == status, "{status} expected: {self:?}");
        self
    }

    /// The whole reply as a text that is the same each time, for a snapshot: status, headers in the
    /// order of their names, body. Values of `Date` and of the headers named in `masked` are left
    /// out; a body that is not text is told by its length.
    pub fn snapshot(&self, masked: &[&str]) -> String {
        let mut headers: Vec<_> = self
            .fields
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        // Those of one name stay in their order.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        let is_masked = |name: &str| {
            let mut all = masked.iter().chain(&["date"]);
            all.any(|other| other.eq_ignore_ascii_case(name))
        };
        let mut text = format!("{}\n", self.status);
        for (name, value) in headers {
            let value = if is_masked(&name) { "[masked]" } else { value };
            text += &format!("{name}: {value}\n");
        }
        text.push('\n');
        match std::str::from_utf8(&self.body) {
            Ok(body) => text + body,
            Err(_) => text + &format!("[{} bytes]", self.body.len()),
        }
    }
}

/// What was asked, as far as it decides where the reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// Anything but HEAD.
    Any,
    /// HEAD: the reply has no body, whatever its length field says.
    Head,
}

/// How far the bytes so far go.
#[derive(Debug, PartialEq, Eq)]
// Exhaustive: a reply is whole or not.
pub enum Progress {
    /// More bytes are needed.
    More,
    /// A whole reply, and how many bytes it took.
    Whole(Reply, usize),
}

/// Reads one reply from the front of `bytes`; `ended` says that no more will come.
///
/// # Errors
/// The bytes are not a correct reply; says why.
pub fn read(bytes: &[u8], ended: bool, asked: Asked) -> Result<Progress, String> {
    let Some(head_end) = find(bytes, b"\r\n\r\n") else {
        check_lines(bytes)?;
        return if ended {
            Err("the connection ended within a head".into())
        } else {
            Ok(Progress::More)
        };
    };
    let head = &bytes[..head_end];
    check_lines(head)?;
    let head = std::str::from_utf8(head).map_err(|_| "a head that is not text")?;
    let mut lines = head.split("\r\n");
    let status = status_of(lines.next().unwrap_or_default())?;
    let fields = lines.map(field_of).collect::<Result<Vec<_>, _>>()?;
    let mut reply = Reply {
        status,
        fields,
        body: Vec::new(),
        ends_with_connection: false,
    };
    let rest = &bytes[head_end + 4..];
    let taken = match framing_of(&reply, asked)? {
        Framing::None => Some(0),
        Framing::Length(length) => (rest.len() >= length).then(|| {
            reply.body = rest[..length].to_vec();
            length
        }),
        Framing::Chunked => unchunk(rest, &mut reply.body)?,
        Framing::UntilEnd => ended.then(|| {
            reply.body = rest.to_vec();
            reply.ends_with_connection = true;
            rest.len()
        }),
    };
    match taken {
        Some(taken) => Ok(Progress::Whole(reply, head_end + 4 + taken)),
        None if ended => Err(format!("the connection ended within the body of {reply:?}")),
        None => Ok(Progress::More),
    }
}

enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilEnd,
}

fn framing_of(reply: &Reply, asked: Asked) -> Result<Framing, String> {
    let named = |name: &str| {
        let all = reply
            .fields
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name));
        all.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    if lengths.len() + codings.len() > 1 {
        return Err(format!("two framings at once: {reply:?}"));
    }
    let bodiless = reply.status < 200 || matches!(reply.status, 204 | 304);
    if reply.status < 200 || reply.status == 204 {
        // RFC 9110, 8.6: "A server MUST NOT send a Content-Length header field in any response with
        // a status code of 1xx (Informational) or 204 (No Content)."
        if lengths.len() + codings.len() > 0 {
            return Err(format!("a body is announced where none may be: {reply:?}"));
        }
    }
    let length = match lengths.first() {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse::<usize>().map_err(|error| error.to_string())?)
        }
        Some(other) => return Err(format!("not a length: {other:?}")),
        None => None,
    };
    if bodiless || asked == Asked::Head {
        return Ok(Framing::None);
    }
    match (length, codings.first()) {
        (Some(length), _) => Ok(Framing::Length(length)),
        (None, Some(&"chunked")) => Ok(Framing::Chunked),
        (None, Some(other)) => Err(format!("an unknown coding: {other:?}")),
        (None, None) => Ok(Framing::UntilEnd),
    }
}

/// Takes a chunked body off `bytes`; `None` when it is not whole yet. Nothing is copied before it
/// is: a long body is looked at many times.
fn unchunk(bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<usize>, String> {
    let mut chunks = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else {
            return Ok(None);
        };
        let size = chunk_size(&bytes[at..at + line])?;
        at += line + 2;
        // The last chunk is followed by trailers, of which none are expected, and an empty line.
        let Some(chunk) = bytes.get(at..at + size + 2) else {
            return Ok(None);
        };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk that does not end where it said".into());
        }
        at += size + 2;
        if size == 0 {
            body.extend(chunks.concat());
            return Ok(Some(at));
        }
        chunks.push(&chunk[..size]);
    }
}

fn chunk_size(digits: &[u8]) -> Result<usize, String> {
    let text = std::str::from_utf8(digits).map_err(|_| "a chunk size that is not text")?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("not a chunk size: {text:?}"));
    }
    usize::from_str_radix(text, 16).map_err(|error| error.to_string())
}

fn status_of(line: &str) -> Result<u16, String> {
    let wrong = || format!("not a status line: {line:?}");
    let rest = line.strip_prefix("HTTP/1.1 ").ok_or_else(wrong)?;
    let (digits, reason) = rest.split_at_checked(3).ok_or_else(wrong)?;
    if !reason.starts_with(' ') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    digits.parse().map_err(|_| wrong())
}

fn field_of(line: &str) -> Result<(String, String), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| format!("not a field: {line:?}"))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\0', '\r']) {
        return Err(format!("not a field: {line:?}"));
    }
    Ok((name.into(), value.trim_matches([' ', '\t']).into()))
}

/// Every line feed has a carriage return before it and the other way round.
fn check_lines(head: &[u8]) -> Result<(), String> {
    let lone = |at: usize, byte: u8| match byte {
        b'\n' => at == 0 || head[at - 1] != b'\r',
        b'\r' => head.get(at + 1).is_some_and(|&next| next != b'\n'),
        _ => false,
    };
    match head.iter().enumerate().find(|(at, byte)| lone(*at, **byte)) {
        Some((at, _)) => Err(format!("a line that does not end in CR LF, at byte {at}")),
        None => Ok(()),
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (Reply, usize) {
        match read(text.as_bytes(), false, Asked::Any) {
            Ok(Progress::Whole(reply, taken)) => (reply, taken),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_reply_is_whole_exactly_at_its_last_byte() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
        ] {
            for length in 0..text.len() {
                let part = &text.as_bytes()[..length];
                assert_eq!(
                    read(part, false, Asked::Any),
                    Ok(Progress::More),
                    "{length} of {text:?}"
                );
                assert!(
                    read(part, true, Asked::Any).is_err(),
                    "{length} of {text:?}"
                );
            }
            assert_eq!(whole(&format!("{text}HTTP/1.1")).1, text.len());
        }
    }

    #[test]
    fn fields_are_found_whatever_their_case() {
        let (reply, _) =
            whole("HTTP/1.1 204 No Content\r\nX-Size:  7 \r\nconnection: a, Close\r\n\r\n");
        assert_eq!(reply.field("x-size"), Some("7"));
        assert!(reply.says_close());
    }

    #[test]
    fn a_reply_without_length_ends_with_the_connection() {
        let text = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert_eq!(read(text, false, Asked::Any), Ok(Progress::More));
        let Ok(Progress::Whole(reply, _)) = read(text, true, Asked::Any) else {
            panic!()
        };
        assert_eq!(
            (reply.body.as_slice(), reply.ends_with_connection),
            (&b"abc"[..], true)
        );
    }

    #[test]
    fn a_reply_to_head_has_no_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert!(
            matches!(read(text, false, Asked::Head), Ok(Progress::Whole(_, 38))),
            "{}",
            text.len()
        );
    }

    #[test]
    fn a_snapshot_is_sorted_and_has_nothing_of_the_moment() {
        let (reply, _) = whole(
            "HTTP/1.1 200 OK\r\nX-B: 2\r\nDate: now\r\nETag: \"a\"\r\nx-b: 1\r\n\
             Content-Length: 2\r\n\r\nhi",
        );
        let head = "200\ncontent-length: 2\ndate: [masked]\netag: [masked]\nx-b: 2\nx-b: 1\n\n";
        assert_eq!(reply.snapshot(&["ETag"]), format!("{head}hi"));
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff";
        let Ok(Progress::Whole(reply, _)) = read(bytes, false, Asked::Any) else {
            panic!()
        };
        assert_eq!(reply.snapshot(&[]), "200\ncontent-length: 1\n\n[1 bytes]");
    }

    #[test]
    fn incorrect_replies_are_refused() {
        for text in [
            "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcde\r\n0\r\n\r\n",
        ] {
            assert!(
                read(text.as_bytes(), false, Asked::Any).is_err(),
                "{text:?}"
            );
        }
    }
}
