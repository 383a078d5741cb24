//! How lines of the access log look, and how text of clients is escaped in them.
//!
//! Cost: room for the whole line is made once; text is looked at sixteen bytes at a time, and
//! copied as it is where nothing is to be escaped, as nearly always.

use std::io::Write;
use std::time::Duration;

use super::{ConnectionLine, LogFormat, LoggedPeer, RequestLine};
use crate::protocol::tls_terms::TlsTerms;
use crate::protocol::turn::Turn;

/// Bytes of a line beside those of its texts, generously.
const LINE_BYTES: usize = 256;

/// What nginx writes where a client left before its reply began.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What all lines begin with.
#[derive(Clone, Copy)]
pub(super) struct Begin<'a> {
    pub(super) time: &'a [u8],
    pub(super) listener: &'a str,
    /// Empty: it is not known.
    pub(super) peer: &'a [u8],
    /// What has named the peer.
    pub(super) proxy: Option<&'a [u8]>,
    pub(super) tls: Option<&'a TlsTerms>,
}

/// What the log needs to know of a connection that has a line of its own.
#[derive(Debug)]
pub(crate) struct Logged {
    peer: LoggedPeer,
    since_ns: u64,
    received_bytes: u64,
}

impl Logged {
    /// It begins now.
    pub(crate) fn begin(peer: LoggedPeer, now_ns: u64) -> Logged {
        Logged {
            peer,
            since_ns: now_ns,
            received_bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
    }

    pub(super) fn peer(&self) -> &LoggedPeer {
        &self.peer
    }

    /// Its line, of a connection that ends now.
    pub(super) fn line(&self, turn: Turn, sent_bytes: u64) -> ConnectionLine {
        ConnectionLine {
            duration: Duration::from_nanos(turn.now_ns.saturating_sub(self.since_ns)),
            received_bytes: self.received_bytes,
            sent_bytes,
        }
    }
}

pub(super) fn request(
    out: &mut Vec<u8>,
    format: LogFormat,
    begin: Begin<'_>,
    line: &RequestLine<'_>,
) {
    let texts = [
        Some(line.target),
        line.malformed,
        line.referer,
        line.user_agent,
        line.route,
        line.id,
    ];
    out.reserve(LINE_BYTES + texts.into_iter().flatten().map(<[u8]>::len).sum::<usize>());
    match format {
        LogFormat::Combined => combined_request(out, begin, line),
        LogFormat::Json => json_request(out, begin, line),
    }
}

pub(super) fn connection(
    out: &mut Vec<u8>,
    format: LogFormat,
    begin: Begin<'_>,
    line: &ConnectionLine,
) {
    match format {
        LogFormat::Combined => {
            combined_begin(out, begin);
            out.extend_from_slice(b"connection ");
            escape_combined(out, begin.listener.as_bytes());
            out.extend_from_slice(b"\" 200 ");
            number(out, line.sent_bytes);
            out.extend_from_slice(b" \"-\" \"-\"\n");
        }
        LogFormat::Json => {
            json_begin(out, begin);
            out.extend_from_slice(b",\"received\":");
            number(out, line.received_bytes);
            out.extend_from_slice(b",\"sent\":");
            number(out, line.sent_bytes);
            seconds(out, line.duration);
            json_end(out, begin);
        }
    }
}

fn combined_begin(out: &mut Vec<u8>, begin: Begin<'_>) {
    out.extend_from_slice(match begin.peer {
        [] => b"-",
        peer => peer,
    });
    out.extend_from_slice(b" - ");
    match begin.tls.and_then(TlsTerms::certificate) {
        Some(client) if !client.subject().is_empty() => {
            escape_word(out, client.subject().as_bytes());
        }
        _ => out.push(b'-'),
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(begin.time);
    out.extend_from_slice(b"] \"");
}

fn combined_request(out: &mut Vec<u8>, begin: Begin<'_>, line: &RequestLine<'_>) {
    combined_begin(out, begin);
    if let Some(malformed) = line.malformed.filter(|text| !text.is_empty()) {
        escape_combined(out, malformed);
    } else if line.method.is_empty() {
        out.push(b'-');
    } else {
        escape_combined(out, line.method);
        out.push(b' ');
        escape_combined(out, line.target);
        out.push(b' ');
        out.extend_from_slice(line.version.as_bytes());
    }
    out.extend_from_slice(b"\" ");
    let status = match line.status {
        0 => CLIENT_CLOSED_REQUEST,
        status => status,
    };
    number(out, u64::from(status));
    out.push(b' ');
    number(out, line.body_bytes);
    for text in [line.referer, line.user_agent] {
        match text {
            None | Some([]) => out.extend_from_slice(b" \"-\""),
            Some(text) => {
                out.extend_from_slice(b" \"");
                escape_combined(out, text);
                out.push(b'"');
            }
        }
    }
    if let Some(reason) = line.reason {
        out.extend_from_slice(b" \"");
        escape_combined(out, reason.as_bytes());
        out.push(b'"');
    }
    out.push(b'\n');
}

fn json_begin(out: &mut Vec<u8>, begin: Begin<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(begin.time);
    out.extend_from_slice(b"\",\"listener\":\"");
    escape_json(out, begin.listener.as_bytes());
    out.extend_from_slice(b"\",\"peer\":");
    json_text(out, (!begin.peer.is_empty()).then_some(begin.peer));
    json_known(out, b",\"proxy\":", begin.proxy);
}

fn json_request(out: &mut Vec<u8>, begin: Begin<'_>, line: &RequestLine<'_>) {
    json_begin(out, begin);
    let is_known = !line.method.is_empty();
    let version = line.version.as_bytes();
    for (name, value) in [
        (&b",\"method\":"[..], is_known.then_some(line.method)),
        (b",\"target\":", is_known.then_some(line.target)),
        (b",\"version\":", is_known.then_some(version)),
        (b",\"referer\":", line.referer),
        (b",\"user_agent\":", line.user_agent),
    ] {
        out.extend_from_slice(name);
        json_text(out, value);
    }
    json_known(out, b",\"malformed\":", line.malformed);
    json_known(out, b",\"reason\":", line.reason.map(str::as_bytes));
    json_known(out, b",\"route\":", line.route);
    json_known(out, b",\"id\":", line.id);
    out.extend_from_slice(b",\"status\":");
    number(out, u64::from(line.status));
    out.extend_from_slice(b",\"bytes\":");
    number(out, line.body_bytes);
    seconds(out, line.duration);
    out.extend_from_slice(match line.is_aborted {
        true => b",\"aborted\":true",
        false => b",\"aborted\":false",
    });
    json_end(out, begin);
}

fn json_end(out: &mut Vec<u8>, begin: Begin<'_>) {
    if let Some(terms) = begin.tls {
        let client = terms.certificate().map(|it| it.subject().as_bytes());
        for (name, value) in [
            (
                &b",\"tls\":{\"version\":"[..],
                Some(terms.version().as_bytes()),
            ),
            (b",\"cipher\":", Some(terms.cipher().as_bytes())),
        ] {
            out.extend_from_slice(name);
            json_text(out, value);
        }
        out.extend_from_slice(match terms.is_resumed() {
            true => b",\"resumed\":true",
            false => b",\"resumed\":false",
        });
        for (name, value) in [
            (&b",\"protocol\":"[..], terms.protocol()),
            (b",\"client\":", client),
        ] {
            out.extend_from_slice(name);
            json_text(out, value);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"}\n");
}

/// To the microsecond.
fn seconds(out: &mut Vec<u8>, duration: Duration) {
    out.extend_from_slice(b",\"seconds\":");
    number(out, duration.as_secs());
    let (mut digits, mut left) = (*b".000000", duration.subsec_micros());
    for digit in digits[1..].iter_mut().rev() {
        *digit += (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&digits);
}

fn json_text(out: &mut Vec<u8>, text: Option<&[u8]>) {
    let Some(text) = text else {
        return out.extend_from_slice(b"null");
    };
    out.push(b'"');
    escape_json(out, text);
    out.push(b'"');
}

/// A field that is there where it is known.
fn json_known(out: &mut Vec<u8>, name: &[u8], text: Option<&[u8]>) {
    if text.is_some() {
        out.extend_from_slice(name);
        json_text(out, text);
    }
}

/// Decimal digits.
fn number(out: &mut Vec<u8>, mut value: u64) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Printable ASCII but for quotes and backslashes: the same in both formats.
fn is_plain(byte: u8) -> bool {
    // Without branches, so that a window of bytes is compared at once.
    (byte.wrapping_sub(0x20) < 0x7f - 0x20) & (byte != b'"') & (byte != b'\\')
}

fn all_plain(text: &[u8]) -> bool {
    const WINDOW: usize = 16;
    let are_plain = |all: bool, byte: &u8| all & is_plain(*byte);
    // Of a length that the compiler knows, which makes it a few instructions.
    let is_plain_window = |window: &[u8; WINDOW]| window.iter().fold(true, are_plain);
    match text.last_chunk() {
        Some(last) => {
            let (windows, _) = text.as_chunks();
            windows.iter().all(is_plain_window) && is_plain_window(last)
        }
        None => text.iter().fold(true, are_plain),
    }
}

fn escape_combined(out: &mut Vec<u8>, text: &[u8]) {
    if all_plain(text) {
        return out.extend_from_slice(text);
    }
    for &byte in text {
        match is_plain(byte) {
            true => out.push(byte),
            false => push_hex(out, b"\\x", byte),
        }
    }
}

/// As a field that ends with a space.
fn escape_word(out: &mut Vec<u8>, text: &[u8]) {
    let mut parts = text.split(|byte| *byte == b' ');
    escape_combined(out, parts.next().unwrap_or_default());
    for part in parts {
        push_hex(out, b"\\x", b' ');
        escape_combined(out, part);
    }
}

fn push_hex(out: &mut Vec<u8>, before: &[u8], byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(before);
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

fn escape_json(out: &mut Vec<u8>, text: &[u8]) {
    if all_plain(text) {
        return out.extend_from_slice(text);
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                // C0, DEL and C1: a terminal takes U+009B for the beginning of a command. All are
                // below U+0100.
                control if control.is_control() => push_hex(out, b"\\u00", control as u8),
                other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// The time in UTC at these seconds after 1970: `22/Nov/2026:16:40:00 +0000`, or
/// `2026-11-22T16:40:00Z`.
pub(super) fn time(out: &mut Vec<u8>, format: LogFormat, seconds: u64) {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let written = match format {
        LogFormat::Combined => {
            let month = MONTHS[month - 1];
            write!(
                out,
                "{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000"
            )
        }
        LogFormat::Json => {
            write!(
                out,
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
            )
        }
    };
    debug_assert!(written.is_ok(), "memory takes what is written");
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn civil(days: u64) -> (u64, usize, u64) {
    // Years begin in March, so that the odd day is the last one: eras of 400 years since 0000-03.
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_ERA: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, from_january) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + u64::from(from_january <= 2);
    (year, from_january as usize, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_wherever_it_is() {
        for bytes in 1..50 {
            let mut text = vec![b'a'; bytes];
            assert!(all_plain(&text));
            for at in 0..bytes {
                text[at] = b'"';
                assert!(!all_plain(&text), "{at} of {bytes}");
                text[at] = b'a';
            }
        }
        for byte in 0..=255 {
            let is_plain = byte == b' ' || byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
            assert_eq!(all_plain(&[byte; 17]), is_plain, "{byte}");
        }
        assert!(all_plain(b""));
    }

    #[test]
    fn a_refused_request_has_what_came_of_its_line_and_the_reason() {
        let begin = Begin {
            time: b"T",
            listener: "http",
            peer: b"",
            proxy: None,
            tls: None,
        };
        let written = |format, line: &RequestLine<'_>| {
            let mut out = Vec::new();
            request(&mut out, format, begin, line);
            String::from_utf8(out).expect("text")
        };
        let malformed = RequestLine {
            malformed: Some(b"GET \"/\" \x16\n"),
            status: 400,
            reason: Some("request_line"),
            ..RequestLine::default()
        };
        let combined = written(LogFormat::Combined, &malformed);
        let words = r#"- - - [T] "GET \x22/\x22 \x16\x0A" 400 0 "-" "-" "request_line""#;
        assert_eq!(combined, format!("{words}\n"));
        let json = written(LogFormat::Json, &malformed);
        let words = r#""malformed":"GET \"/\" \u0016\u000A","reason":"request_line","status":400"#;
        assert!(
            json.contains(words) && json.contains(r#""method":null"#),
            "{json}"
        );
        let nothing_came = RequestLine {
            malformed: Some(b""),
            ..malformed
        };
        let combined = written(LogFormat::Combined, &nothing_came);
        assert!(combined.contains("] \"-\" 400 "), "{combined}");
        let whole = RequestLine {
            method: b"GET",
            target: b"/../a",
            version: "HTTP/1.1",
            malformed: None,
            ..malformed
        };
        let combined = written(LogFormat::Combined, &whole);
        assert!(combined.contains("] \"GET /../a HTTP/1.1\" 400 0 \"-\" \"-\" \"request_line\"\n"));
    }

    #[test]
    fn days_have_their_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_723, (2024, 1, 1)),
            (19_782, (2024, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
