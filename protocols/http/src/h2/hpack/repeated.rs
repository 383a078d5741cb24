//! Values that clients say with each request, as they keep no table of ours: which host is asked,
//! what the browser is and takes. In Huffman's code, which has one code for each text, so that the
//! same code is the same text and need not be decoded again.
//!
//! Other names: a memo. Not a table of HPACK: no block can name what is in it, and a block reads
//! the same with it and without.
//!
//! Invariants
//! - R1: what is kept of a code is what it decodes to. One that is broken is not kept.
//! - R2: only values of names that carry no secret are kept, and none that its client wants in no
//!   table: how long one takes says whether another client of the thread has said all of it.
//!
//! Cost: a value that is there is compared and copied, a tenth of what decoding takes; one that is
//! not is copied twice beside. Of a network thread, at most 20 KB once such values have come.

use super::huffman::{self, Broken};
use super::table::Entry;

/// Codes that are shorter are decoded as soon as found, and longer ones are not usual.
const CODE_BYTES: std::ops::RangeInclusive<usize> = 8..=255;

/// Of the same name that many values are kept, by the lengths of their codes.
const VALUES: usize = 4;

/// How many names there are in [`row`].
const NAMES: usize = 5;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// None until there is something to keep.
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    code: Vec<u8>,
    text: Vec<u8>,
}

/// Where values of this name are, if they are kept (R2).
fn row(name: Entry) -> Option<usize> {
    match name.index() {
        // `:authority`, `accept-encoding`, `accept-language`, `accept`, `user-agent`.
        1 => Some(0),
        16 => Some(1),
        17 => Some(2),
        19 => Some(3),
        58 => Some(4),
        _ => None,
    }
}

impl Repeated {
    /// Appends what the code of a value of this name says, as [`huffman::decode`].
    pub(super) fn decode(
        &mut self,
        name: Entry,
        code: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let row = row(name).filter(|_| CODE_BYTES.contains(&code.len()));
        let Some(row) = row else {
            return huffman::decode(code, out);
        };
        if self.places.is_empty() {
            self.places.resize_with(NAMES * VALUES, Place::default);
        }
        let place = &mut self.places[row * VALUES + code.len() % VALUES];
        if place.code == code {
            out.extend_from_slice(&place.text);
            return Ok(());
        }
        let from = out.len();
        huffman::decode(code, out)?;
        for (kept, new) in [(&mut place.code, code), (&mut place.text, &out[from..])] {
            kept.clear();
            kept.extend_from_slice(new);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::STATIC_ENTRIES;
    use super::*;

    fn entry(index: usize) -> Entry {
        Entry::of(index).expect("an entry")
    }

    #[test]
    fn model_each_code_says_what_it_says_without_what_is_kept() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut repeated = Repeated::default();
        // Few, so that they come again, some of them broken, and some that differ in a byte.
        let first: Vec<u8> = (0..12).map(|_| random.u8(..)).collect();
        let codes: Vec<Vec<u8>> = (0..60)
            .map(|at| match at % 3 {
                0 => (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
                1 => first
                    .iter()
                    .map(|byte| byte ^ (random.u8(..8) / 7))
                    .collect(),
                // Digits have codes of five bits, and so do eight of them in five bytes.
                _ => [0x00, 0x44, 0x32, 0x14, 0xc7].repeat(2 + random.usize(..3)),
            })
            .collect();
        let (mut texts, mut broken) = (0, 0);
        for _ in 0..5000 {
            let (name, code) = (random.usize(1..=STATIC_ENTRIES), random.choice(&codes));
            let code = code.expect("one of them");
            let (mut own, mut other) = (b"before".to_vec(), b"before".to_vec());
            let said = repeated.decode(entry(name), code, &mut own);
            assert_eq!(said, huffman::decode(code, &mut other), "R1 {code:?}");
            match said {
                Ok(()) => assert_eq!(own, other, "R1 {code:?}"),
                Err(Broken) => broken += 1,
            }
            texts += usize::from(said.is_ok());
            assert!(repeated.places.len() <= NAMES * VALUES);
        }
        assert!(texts > 1000 && broken > 1000, "{texts} {broken}");
        assert!(repeated.places.iter().all(|it| it.code.len() <= 255));
    }

    #[test]
    fn a_value_that_comes_again_is_not_decoded_again() {
        let (mut repeated, mut out) = (Repeated::default(), Vec::new());
        let code = [0x00, 0x44, 0x32, 0x14, 0xc7].repeat(2);
        for _ in 0..2 {
            out.clear();
            repeated.decode(entry(58), &code, &mut out).expect("digits");
        }
        let place = repeated.places.iter_mut().find(|it| it.code == code);
        place.expect("it is kept").text = b"known".to_vec();
        out.clear();
        repeated.decode(entry(58), &code, &mut out).expect("digits");
        assert_eq!(out, b"known");
        // Another name has its own.
        out.clear();
        repeated.decode(entry(19), &code, &mut out).expect("digits");
        assert_ne!(out, b"known");
    }

    #[test]
    fn no_secret_is_kept() {
        let rows: Vec<&str> = (1..=STATIC_ENTRIES)
            .map(entry)
            .filter(|name| row(*name).is_some())
            .map(Entry::name)
            .collect();
        let names = [
            ":authority",
            "accept-encoding",
            "accept-language",
            "accept",
            "user-agent",
        ];
        assert_eq!(rows, names, "R2");
        assert_eq!(names.len(), NAMES);
    }
}
