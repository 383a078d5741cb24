//! Byte ranges (RFC 9110, 14): from a `Range` header to the parts of a file to send.
//!
//! Decisions where the RFC leaves room
//! - A header that is malformed, in another unit, or present twice is ignored: the whole file is
//!   sent.
//! - So is one with more than `RANGES_MAX` ranges, or with more than `RANGE_OVERLAPS_MAX` that
//!   overlap or touch: no honest client sends those (14.2 allows it).
//! - Ranges that overlap or touch are joined; the parts keep the order of their first mention.
//! - Of an empty file everything is sent, which is nothing: some clients ask for a range always,
//!   and a 416 would report an error where there is none.
//! - When the parts with their part heads would be longer than the file, the file is sent.
//!
//! Why not the crate `headers`: `docs/headers.md`.
//!
//! So no request makes this server send more bytes than the file has, however it is written.
//!
//! Cost: linear in the header, and quadratic in its at most `RANGES_MAX` ranges.

use flatpath_http::header_values::elements;

use crate::headers::digits;
use crate::limits::{RANGE_OVERLAPS_MAX, RANGES_MAX};

/// What a part's head costs at least: boundary, type, `Content-Range` and line ends.
const PART_HEAD_BYTES_MIN: u64 = 80;

/// Consecutive bytes of a file; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

/// What to send for a `Range` header.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: RFC 9110 section 14.2 has no other.
pub enum Ranges {
    /// The whole file, as if there were no such header. 200.
    Whole,
    /// One part. 206 with `Content-Range`.
    Single(Part),
    /// Several parts that do not overlap, at least two. 206 as `multipart/byteranges`.
    Several(Vec<Part>),
    /// None of the ranges has a byte of this file. 416.
    Unsatisfiable,
}

impl Part {
    /// Bytes in it.
    pub fn length(self) -> u64 {
        self.end - self.start
    }

    /// The value of `Content-Range` for a file of `size` bytes.
    pub fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.start, self.end - 1)
    }
}

impl Ranges {
    /// Reads a `Range` header for a file of `size` bytes.
    pub fn parse(value: &[u8], size: u64) -> Self {
        match parts_of(value, size) {
            Some(parts) => Self::of(parts, size),
            None => Self::Whole,
        }
    }

    fn of(parts: Vec<Part>, size: u64) -> Self {
        match parts.as_slice() {
            [] => Self::Unsatisfiable,
            [part] => Self::Single(*part),
            several => {
                let cost = |part: &Part| part.length().saturating_add(PART_HEAD_BYTES_MIN);
                let bytes = several.iter().map(cost).fold(0, u64::saturating_add);
                if size <= bytes {
                    Self::Whole
                } else {
                    Self::Several(parts)
                }
            }
        }
    }
}

/// The value of `Content-Range` in a 416.
pub(crate) fn unsatisfied(size: u64) -> String {
    format!("bytes */{size}")
}

/// The parts that a header asks for; `None` where it is ignored.
fn parts_of(value: &[u8], size: u64) -> Option<Vec<Part>> {
    // Units are case-insensitive.
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    if size == 0 || !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut parts = Vec::new();
    let (mut count, mut overlaps) = (0, 0);
    // RFC 9110, 5.6.1: empty list elements are to be ignored, within reason.
    for range in elements(set) {
        let part = part_of(range, size)?;
        if part.start < part.end {
            overlaps += join(&mut parts, part);
        }
        count += 1;
        if count > RANGES_MAX || overlaps > RANGE_OVERLAPS_MAX {
            return None;
        }
    }
    (count > 0).then_some(parts)
}

/// One range, cut to the size of the file; empty or backwards if none of it is in the file. `None`
/// if it is malformed.
fn part_of(range: &[u8], size: u64) -> Option<Part> {
    let hyphen = range.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&range[..hyphen], &range[hyphen + 1..]);
    let (start, end) = match (first, last) {
        (b"", last) => (size.saturating_sub(number(last)?), size),
        (first, b"") => (number(first)?, size),
        (first, last) if is_above(first, last) => return None,
        (first, last) => (number(first)?, number(last)?.saturating_add(1).min(size)),
    };
    Some(Part { start, end })
}

/// What is too large for us is larger than any file.
fn number(text: &[u8]) -> Option<u64> {
    Some(digits(text)?.parse().unwrap_or(u64::MAX))
}

/// Whether one number is larger than another, also where neither fits a word.
fn is_above(digits: &[u8], other: &[u8]) -> bool {
    let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let (digits, other) = (&digits[zeros(digits)..], &other[zeros(other)..]);
    (digits.len(), digits) > (other.len(), other)
}

/// Adds a part, joined with those it overlaps or touches, and returns how many those were.
fn join(parts: &mut Vec<Part>, mut part: Part) -> usize {
    // The parts kept so far do not touch each other, so those that the joined part touches are
    // those that the new part touches.
    let Part { start, end } = part;
    let touches = |other: &Part| start <= other.end && other.start <= end;
    let place = parts.iter().position(touches).unwrap_or(parts.len());
    let before = parts.len();
    parts.retain(|other| {
        if touches(other) {
            part.start = part.start.min(other.start);
            part.end = part.end.max(other.end);
        }
        !touches(other)
    });
    let joined = before - parts.len();
    parts.insert(place, part);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64) -> Part {
        Part { start, end }
    }

    fn parse(value: &str, size: u64) -> Ranges {
        Ranges::parse(value.as_bytes(), size)
    }

    #[test]
    fn single_ranges_are_cut_to_the_file() {
        for (value, start, end) in [
            ("bytes=0-0", 0, 1),
            ("bytes=0-499", 0, 500),
            ("bytes=500-", 500, 10_000),
            ("bytes=-500", 9_500, 10_000),
            ("bytes=-20000", 0, 10_000),
            ("bytes=9999-", 9_999, 10_000),
            ("bytes=9990-99999", 9_990, 10_000),
            ("BYTES=0-1", 0, 2),
            ("bytes= 0-1 ", 0, 2),
            ("bytes=,0-1,,", 0, 2),
            ("bytes=0-18446744073709551615", 0, 10_000),
            ("bytes=0-99999999999999999999999999", 0, 10_000),
            ("bytes=20000-,0-1", 0, 2),
            ("bytes=18446744073709551616-99999999999999999999,0-1", 0, 2),
            ("bytes=4-0005", 4, 6),
        ] {
            assert_eq!(
                parse(value, 10_000),
                Ranges::Single(part(start, end)),
                "{value}"
            );
        }
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=5-0004",
            "bytes=99999999999999999999-18446744073709551616",
            "bytes=0-1,99999999999999999999-18446744073709551616",
            "bytes=1",
            "bytes=0-1,x",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=0x0-1",
            "bytes=1 -2",
            "lines=0-1",
            "bytes 0-1",
            "bytes=0-1;2-3",
            " bytes=0-1",
            "octets=0-",
        ] {
            assert_eq!(parse(value, 10_000), Ranges::Whole, "{value}");
        }
    }

    #[test]
    fn ranges_without_a_byte_of_the_file_are_unsatisfiable() {
        for value in [
            "bytes=10000-",
            "bytes=10000-10001",
            "bytes=-0",
            "bytes=-0,20000-",
        ] {
            assert_eq!(parse(value, 10_000), Ranges::Unsatisfiable, "{value}");
        }
        assert_eq!(unsatisfied(10_000), "bytes */10000");
    }

    #[test]
    fn of_an_empty_file_everything_is_sent() {
        for value in ["bytes=0-", "bytes=-5", "bytes=0-0,5-9"] {
            assert_eq!(parse(value, 0), Ranges::Whole, "{value}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order() {
        let expected = vec![part(500, 600), part(0, 1), part(9_000, 10_000)];
        assert_eq!(
            parse("bytes=500-599, 0-0, -1000", 10_000),
            Ranges::Several(expected)
        );
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_joined_at_their_first_place() {
        let expected = vec![part(500, 700), part(0, 10)];
        assert_eq!(
            parse("bytes=500-599,0-9,600-699", 10_000),
            Ranges::Several(expected)
        );
        let bridged = vec![part(0, 300), part(900, 910)];
        assert_eq!(
            parse("bytes=0-99,900-909,200-299,50-250", 10_000),
            Ranges::Several(bridged)
        );
        assert_eq!(parse("bytes=0-5,3-9", 10_000), Ranges::Single(part(0, 10)));
    }

    #[test]
    fn sets_that_only_an_attacker_sends_are_ignored() {
        assert_eq!(parse("bytes=0-,0-,0-,0-", 10_000), Ranges::Whole);
        let many = |count: u64| {
            let ranges = (0..count).map(|at| format!("{0}-{0}", at * 1_000));
            format!("bytes={}", ranges.collect::<Vec<_>>().join(","))
        };
        assert!(matches!(parse(&many(32), 1 << 40), Ranges::Several(parts) if parts.len() == 32));
        assert_eq!(parse(&many(33), 1 << 40), Ranges::Whole);
        let absent = format!("bytes={}", "99999-,".repeat(33));
        assert_eq!(parse(&absent, 10), Ranges::Whole);
    }

    #[test]
    fn parts_that_would_cost_more_than_the_file_are_not_worth_it() {
        assert_eq!(parse("bytes=0-0,2-2", 150), Ranges::Whole);
        assert_eq!(
            parse("bytes=0-0,-1", 163),
            Ranges::Several(vec![part(0, 1), part(162, 163)])
        );
    }

    #[test]
    fn model_no_header_ever_asks_for_more_than_the_file() {
        let pieces = [
            "0",
            "9",
            "-",
            ",",
            "50",
            "99",
            "100",
            "18446744073709551615",
            " ",
        ];
        let mut random = fastrand::Rng::with_seed(42);
        for _ in 0..50_000 {
            let mut value = String::from("bytes=");
            for _ in 0..12 {
                value.push_str(random.choice(&pieces).expect("there are some"));
            }
            for size in [0, 1, 100, 1_000, u64::MAX] {
                let parts = match parse(&value, size) {
                    Ranges::Whole | Ranges::Unsatisfiable => continue,
                    Ranges::Single(part) => vec![part],
                    Ranges::Several(parts) => parts,
                };
                assert!(
                    parts
                        .iter()
                        .all(|part| part.start < part.end && part.end <= size)
                );
                let total: u64 = parts.iter().map(|part| part.length()).sum();
                assert!(total <= size, "{value} of {size}");
                let mut sorted = parts;
                sorted.sort_by_key(|part| part.start);
                let apart = sorted.windows(2).all(|pair| pair[0].end < pair[1].start);
                assert!(apart, "{value} of {size}");
            }
        }
    }
}
