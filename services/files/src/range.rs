//! Byte ranges (RFC 9110, 14): from a `Range` header to the parts of a file to send.
//!
//! Decisions where the RFC leaves room
//! - A header that is malformed, in another unit, or present twice is ignored: the whole file is
//!   sent.
//! - So is one with more than `RANGES_MAX` ranges, or with more than `RANGE_OVERLAPS_MAX` that
//!   overlap or touch: no honest client sends those (14.2 allows it).
//! - Ranges that overlap or touch are joined; the parts keep the order of their first mention.
//! - Of an empty file everything is sent, which is nothing: some clients ask for a range always,
//!   and a 416 tells them of an error where there is none.
//! - When the parts with their part heads would be longer than the file, the file is sent.
//!
//! So no request makes this server send more bytes than the file has, however it is written.
//!
//! Cost: linear in the header, and quadratic in its at most `RANGES_MAX` ranges.

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
        let Some(set) = range_set(value) else {
            return Self::Whole;
        };
        if size == 0 {
            return Self::Whole;
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut seen = 0;
        let mut overlaps = 0;
        // RFC 9110, 5.6.1: empty list elements are to be ignored, within reason.
        let ranges = set.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for range in ranges.filter(|range| !range.is_empty()) {
            seen += 1;
            match part_of(range, size) {
                Err(Malformed) => return Self::Whole,
                Ok(Some(part)) => overlaps += join(&mut parts, part),
                Ok(None) => {}
            }
            if seen > RANGES_MAX || overlaps > RANGE_OVERLAPS_MAX {
                return Self::Whole;
            }
        }
        if seen == 0 {
            return Self::Whole;
        }
        Self::of(parts, size)
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

struct Malformed;

/// What follows `bytes=`. Units are case-insensitive.
fn range_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// One range, cut to the size of the file; `None` when nothing of it is there.
fn part_of(range: &[u8], size: u64) -> Result<Option<Part>, Malformed> {
    let hyphen = range
        .iter()
        .position(|byte| *byte == b'-')
        .ok_or(Malformed)?;
    let (first, last) = (&range[..hyphen], &range[hyphen + 1..]);
    let (start, end) = match (first.is_empty(), last.is_empty()) {
        (true, true) => return Err(Malformed),
        (true, false) => (size.saturating_sub(number(last)?), size),
        (false, true) => (number(first)?, size),
        (false, false) => {
            let (start, end) = (number(first)?, number(last)?);
            if is_above(first, last) {
                return Err(Malformed);
            }
            (start, end.saturating_add(1).min(size))
        }
    };
    Ok((start < end).then_some(Part { start, end }))
}

/// `1*DIGIT`, and nothing else. What is too large for us is larger than any file.
fn number(digits: &[u8]) -> Result<u64, Malformed> {
    let mut value: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Malformed);
        }
        value = value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }
    Ok(value)
}

/// Whether one number is larger than another, also where neither fits a word.
fn is_above(digits: &[u8], other: &[u8]) -> bool {
    let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let (digits, other) = (&digits[zeros(digits)..], &other[zeros(other)..]);
    (digits.len(), digits) > (other.len(), other)
}

/// Adds a part; joins it with those it overlaps or touches, and says how many those were.
fn join(parts: &mut Vec<Part>, part: Part) -> usize {
    let touches = |other: &Part| part.start <= other.end && other.start <= part.end;
    let Some(first) = parts.iter().position(touches) else {
        parts.push(part);
        return 0;
    };
    let mut joined = part;
    let mut count = 0;
    // The parts kept so far do not touch each other, so those that the joined part touches are
    // those that the new part touches.
    for other in parts.iter().filter(|other| touches(other)) {
        joined.start = joined.start.min(other.start);
        joined.end = joined.end.max(other.end);
        count += 1;
    }
    let mut index = 0;
    parts.retain(|other| {
        let is_kept = index == first || !touches(other);
        index += 1;
        is_kept
    });
    parts[first] = joined;
    count
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
