//! Mutations of seeds without coverage: what CI runs, the same on every machine.
//!
//! Small changes mostly, because a change of everything is refused by the first rule. What each
//! format is made of comes from the seeds themselves: parts of one are put into another.

use crate::random::Random;
use crate::seeds::Seed;

/// No input becomes longer, in bytes.
pub const BYTES_MAX: usize = 8 * 1024;

/// Bytes and words at which parsers err.
const TOKENS: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"-",
    b"\"",
    b"%",
    b"\0",
    b"\xff",
    b"0",
    b"1",
    b"9",
    b"+1",
    b"0x",
    b"18446744073709551615",
    b"18446744073709551616",
    b"4294967295",
    b"2147483648",
    b"\0\0\0\0",
    b"\0\0\0\x01",
    b"\0\0\0\x04",
    b"\x80\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
];

/// A seed with one to four changes.
#[must_use]
pub fn mutated(seeds: &[Seed], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].bytes.clone();
    for _ in 0..=random.below(4) {
        change(&mut bytes, seeds, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Seed], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + 1 + random.below(16)).min(bytes.len());
    match random.below(9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.byte(),
        2 if at < bytes.len() => drop(bytes.drain(at..end)),
        3 if at < bytes.len() => {
            let part = bytes[at..end].to_vec();
            insert(bytes, at, &part);
        }
        4 => bytes.truncate(at),
        5 => insert(bytes, at, TOKENS[random.below(TOKENS.len())]),
        6 => {
            let token = TOKENS[random.below(TOKENS.len())];
            let end = (at + token.len()).min(bytes.len());
            bytes.splice(at..end, token.iter().copied());
        }
        7 => {
            let other = &seeds[random.below(seeds.len())].bytes;
            let from = random.below(other.len() + 1);
            let end = (from + 1 + random.below(64)).min(other.len());
            insert(bytes, at, &other[from..end]);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())].bytes;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    bytes.splice(at..at, part.iter().copied());
}
