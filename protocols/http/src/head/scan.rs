//! Finding the end of a head in input that arrives in pieces.
//!
//! [`Scan`] remembers where it stopped, so a head that arrives one byte at a time costs as much as
//! one that arrives whole: each byte is looked at once. It also enforces what concerns lines:
//! every line feed has its carriage return, lengths and counts are within the limits, the first
//! byte can begin a request. It does not look inside lines; `parse` does, once, when the head is
//! complete.
//!
//! Invariants
//! - The verdict depends on the bytes alone, never on how they were split: all of them are
//!   judged in order, and a limit is a position.
//! - `scanned` never moves back, and never past what was offered.
//!
//! Cost: one `memchr` per line.

use crate::head::chars;
use crate::head::fault::Fault;
use crate::limits::{EMPTY_LINES_MAX, HEAD_BYTES_MAX, Limits, METHOD_BYTES_MAX};

/// The state of the search for the end of one head; 8 bytes, kept per connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Bytes looked at so far.
    scanned: u16,
    /// Where the current line begins.
    line_from: u16,
    /// Where the header section begins; 0 while the request line is unfinished.
    headers_from: u16,
    /// Empty lines before the request line, then header lines.
    lines: u16,
}

impl Scan {
    /// A search at the beginning of a head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True until the first byte was looked at.
    #[must_use]
    pub(crate) fn is_untouched(&self) -> bool {
        self.scanned == 0
    }

    /// Continues in `input`, which must begin with everything offered before. Returns the length of
    /// the head with its empty line, or None when more input is needed.
    ///
    /// # Errors
    /// The [`Fault`] of the first line that breaks a rule.
    pub fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        debug_assert!(
            input.len() >= self.scanned as usize,
            "input offered again was shorter"
        );
        loop {
            let line_from = self.line_from as usize;
            let in_headers = self.headers_from != 0;
            if !in_headers && !may_begin_request(&input[line_from..]) {
                return Err(Fault::RequestLine);
            }
            let end_max = self.line_end_max(limits);
            let window_end = input.len().min(end_max);
            let from = (self.scanned as usize).min(window_end);
            let Some(found) = memchr::memchr(b'\n', &input[from..window_end]) else {
                if input.len() >= end_max {
                    return Err(self.too_long(input));
                }
                self.scanned = position(window_end);
                return Ok(None);
            };
            let feed = from + found;
            if feed == line_from || input[feed - 1] != b'\r' {
                return Err(Fault::BareLineFeed);
            }
            let is_empty = feed == line_from + 1;
            self.scanned = position(feed + 1);
            self.line_from = self.scanned;
            if in_headers && is_empty {
                return Ok(Some(feed + 1));
            }
            if !in_headers && !is_empty {
                (self.headers_from, self.lines) = (self.line_from, 0);
                continue;
            }
            self.lines += 1;
            if in_headers && self.lines as usize > limits.headers_max {
                return Err(Fault::HeadersTooMany);
            }
            if !in_headers && self.lines as usize > EMPTY_LINES_MAX {
                return Err(Fault::EmptyLines);
            }
        }
    }

    /// The first position at which the current line is too long to end.
    fn line_end_max(&self, limits: &Limits) -> usize {
        let end_max = if self.headers_from == 0 {
            self.line_from as usize + limits.line_bytes_max()
        } else {
            self.headers_from as usize + limits.headers_bytes_max + "\r\n".len()
        };
        // Limits that were not brought within their bounds.
        end_max.min(POSITION_MAX)
    }

    fn too_long(&self, input: &[u8]) -> Fault {
        if self.headers_from != 0 {
            return Fault::HeadersTooLong;
        }
        let line = &input[self.line_from as usize..];
        let method_bytes = line
            .iter()
            .take_while(|byte| chars::is_token(**byte))
            .count();
        match line.get(method_bytes) {
            _ if method_bytes > METHOD_BYTES_MAX => Fault::MethodTooLong,
            Some(b' ') => Fault::TargetTooLong,
            _ => Fault::RequestLine,
        }
    }
}

/// Whether a line can be a request line or an empty one, as far as it is there. A client that
/// speaks something else (TLS, say) is refused at once and not when its time is up.
fn may_begin_request(line: &[u8]) -> bool {
    match line {
        // A bare line feed gets its own name further on.
        [] | [b'\r'] | [b'\r', b'\n', ..] | [b'\n', ..] => true,
        [first, ..] => chars::is_token(*first),
    }
}

const _: () = assert!(
    HEAD_BYTES_MAX < POSITION_MAX,
    "a position in a head takes 16 bits"
);

const POSITION_MAX: usize = u16::MAX as usize;

fn position(at: usize) -> u16 {
    debug_assert!(at <= POSITION_MAX, "no line may end later");
    at as u16
}

/// Bytes of the empty lines before the request line.
pub(crate) fn empty_lines_bytes(head: &[u8]) -> usize {
    let mut rest = head;
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        rest = after;
    }
    head.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(input: &[u8]) -> Result<Option<usize>, Fault> {
        Scan::new().advance(input, &Limits::default())
    }

    #[test]
    fn a_head_ends_after_its_empty_line() {
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA: b\r\n\r\nbody"), Ok(Some(24)));
        assert_eq!(whole(b"GET / HTTP/1.1\r\n\r\n"), Ok(Some(18)));
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA: b\r\n\r"), Ok(None));
        assert_eq!(whole(b""), Ok(None));
    }

    #[test]
    fn each_byte_is_looked_at_once_when_they_come_one_by_one() {
        let input = b"\r\nGET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
        let mut scan = Scan::new();
        for end in 0..input.len() {
            assert_eq!(scan.advance(&input[..end], &Limits::default()), Ok(None));
            assert_eq!(scan.scanned as usize, end, "it waits where it stopped");
        }
        assert_eq!(
            scan.advance(input, &Limits::default()),
            Ok(Some(input.len()))
        );
    }

    #[test]
    fn a_line_at_its_limit_passes_and_one_byte_more_does_not() {
        let limits = Limits {
            target_bytes_max: 10,
            ..Limits::default()
        };
        let room = limits.line_bytes_max();
        let mut line = vec![b'x'; room - 2];
        line[..4].copy_from_slice(b"GET ");
        line.extend_from_slice(b"\r\n");
        assert_eq!(Scan::new().advance(&line, &limits), Ok(None));
        line.insert(5, b'x');
        assert_eq!(
            Scan::new().advance(&line, &limits),
            Err(Fault::TargetTooLong)
        );
        line.truncate(room);
        assert_eq!(
            Scan::new().advance(&line, &limits),
            Err(Fault::TargetTooLong)
        );
        line.truncate(room - 1);
        assert_eq!(Scan::new().advance(&line, &limits), Ok(None));
    }

    #[test]
    fn a_header_section_at_its_limit_passes_and_one_byte_more_does_not() {
        let limits = Limits {
            headers_bytes_max: 64,
            ..Limits::default()
        };
        let head = |value_bytes: usize| {
            let mut head = b"GET / HTTP/1.1\r\nA: ".to_vec();
            head.resize(head.len() + value_bytes, b'v');
            head.extend_from_slice(b"\r\n\r\n");
            head
        };
        let fits = head(64 - "A: \r\n".len());
        assert_eq!(Scan::new().advance(&fits, &limits), Ok(Some(fits.len())));
        let exceeds = head(64 - "A: \r\n".len() + 1);
        assert_eq!(
            Scan::new().advance(&exceeds, &limits),
            Err(Fault::HeadersTooLong)
        );
    }

    #[test]
    fn a_client_that_speaks_tls_is_told_at_once() {
        assert_eq!(whole(b"\x16"), Err(Fault::RequestLine));
        assert_eq!(whole(b"\r\n\x16\x03\x01"), Err(Fault::RequestLine));
    }
}
