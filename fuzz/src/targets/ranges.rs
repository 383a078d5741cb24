//! Target `ranges`: a `Range` field for a file of some size; the input is `SIZE FIELD`.
//!
//! Holds of every input
//! - The parts lie in the file, do not overlap or touch, and are together no longer than it.
//! - They hold exactly the bytes that RFC 9110 section 14.1.2 says, for a field that it allows; a
//!   field that it does not allow asks for the whole file.
//! - Written again the parts mean the same.

use flatpath_files::limits::{RANGE_OVERLAPS_MAX, RANGES_MAX};
use flatpath_files::range::{Part, Ranges};

pub(crate) fn run(data: &[u8]) {
    let Some(space) = data.iter().position(|byte| *byte == b' ') else {
        return;
    };
    let (size, field) = (&data[..space], &data[space + 1..]);
    let Some(size) = std::str::from_utf8(size)
        .ok()
        .and_then(|size| size.parse().ok())
    else {
        return;
    };
    let found = Ranges::parse(field, size);
    let parts = match &found {
        Ranges::Whole => {
            let expected = reference(field, size);
            assert!(
                is_left_out(field, size, expected.as_deref()),
                "{expected:?} is not sent"
            );
            return;
        }
        Ranges::Unsatisfiable => {
            assert_eq!(reference(field, size), Some(vec![]), "there are such bytes");
            return;
        }
        Ranges::Single(part) => vec![*part],
        Ranges::Several(parts) => parts.clone(),
    };
    let asked = reference(field, size).expect("what is not allowed asks for the whole file");
    let mut sorted: Vec<(u64, u64)> = parts.iter().map(|part| (part.start, part.end)).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, merged(asked), "other bytes than were asked for");
    assert!(
        sorted
            .iter()
            .all(|(start, end)| start < end && *end <= size)
    );
    let total: u64 = parts.iter().map(|part| part.length()).sum();
    assert!(total <= size);

    let written: Vec<String> = parts
        .iter()
        .map(|part| format!("{}-{}", part.start, part.end - 1))
        .collect();
    let again = Ranges::parse(format!("bytes={}", written.join(",")).as_bytes(), size);
    assert_eq!(again, found);
    check_content_range(parts[0], size);
}

fn check_content_range(part: Part, size: u64) {
    let text = part.content_range(size);
    let rest = text
        .strip_prefix("bytes ")
        .and_then(|rest| rest.split_once('/'));
    let (range, whole) = rest.expect("a range and a size");
    let (first, last) = range.split_once('-').expect("two positions");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert_eq!(
        (number(first), number(last) + 1, number(whole)),
        (part.start, part.end, size)
    );
}

/// The bytes of each range in its order, in arithmetic that cannot overflow; None for a field that
/// is not allowed.
fn reference(field: &[u8], size: u64) -> Option<Vec<(u64, u64)>> {
    let text = std::str::from_utf8(field).ok()?;
    let unit = text.get(..6)?;
    let set = unit.eq_ignore_ascii_case("bytes=").then(|| &text[6..])?;
    let blank = |c: char| c.is_ascii_whitespace();
    let ranges = set.split(',').map(|range| range.trim_matches(blank));
    let ranges: Vec<&str> = ranges.filter(|range| !range.is_empty()).collect();
    let mut asked = Vec::new();
    for range in &ranges {
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            // Beyond 2^127 every number means the same.
            is_number.then(|| text.parse::<u128>().unwrap_or(u128::MAX / 2))
        };
        let size = u128::from(size);
        let (start, end) = match (first, last) {
            ("", "") => return None,
            ("", last) => (size.saturating_sub(number(last)?), size),
            (first, "") => (number(first)?, size),
            (first, last) => {
                let (start, end) = (number(first)?, number(last)?);
                // Of numbers without leading zeros the longer one is larger, whatever its length.
                let [first, last] = [first, last].map(|text| text.trim_start_matches('0'));
                let backwards = (first.len(), first) > (last.len(), last);
                (!backwards).then_some((start, (end + 1).min(size)))?
            }
        };
        if start < end {
            asked.push((u64::try_from(start).ok()?, u64::try_from(end).ok()?));
        }
    }
    (!ranges.is_empty()).then_some(asked)
}

/// Ranges sorted, and joined where they overlap or touch.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Whether the whole file is the right answer: the field is not allowed, the file is empty, or the
/// parts are not worth it.
fn is_left_out(field: &[u8], size: u64, asked: Option<&[(u64, u64)]>) -> bool {
    let Some(asked) = asked else {
        return true;
    };
    let set = field.get(b"bytes=".len()..).unwrap_or_default();
    let ranges = set.split(|byte| *byte == b',');
    let count = ranges
        .filter(|range| !range.trim_ascii().is_empty())
        .count();
    let parts = merged(asked.to_vec());
    let joined = asked.len() - parts.len();
    let cost = parts
        .iter()
        .map(|(start, end)| u128::from(end - start) + 80)
        .sum::<u128>();
    size == 0
        || count > RANGES_MAX
        || joined > RANGE_OVERLAPS_MAX
        || parts.len() > 1 && cost >= u128::from(size)
}
