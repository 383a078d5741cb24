//! Huffman's code of HPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are numbers in the order of their symbols, and each
//! length begins where the one before it ended. So the lengths are all that is written down here.
//!
//! Cost: decoding is a look into a table for two symbols where both have eleven bits or fewer
//! together, as most letters and digits have; for one where that is so of it alone, as all usual
//! marks; a short loop for others. Encoding is a look into a table for each byte.

use crate::respond::sink::Sink;

/// Bits of the code of each byte.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The longest code, which the end of a string has, too.
const LENGTH_MAX: usize = 30;

/// The shortest code.
const LENGTH_MIN: usize = 5;

/// Codes up to this length, in bits, are found by one look.
const SHORT_BITS: usize = 11;

/// What follows from the lengths.
struct Code {
    /// The code of each byte.
    codes: [u32; 256],
    /// Bytes by the number of their code among all.
    symbols: [u8; 256],
    /// Of each length the first code, and where its symbols begin.
    first: [u32; LENGTH_MAX + 1],
    from: [u16; LENGTH_MAX + 1],
    counts: [u16; LENGTH_MAX + 1],
    short: [Short; 1 << SHORT_BITS],
}

/// What the next `SHORT_BITS` bits begin with, in one number, which is one load: two bytes, or one
/// and any other; the length of the first one's code, 0 where that is longer; that of both codes,
/// or of the first alone where there is one.
#[derive(Clone, Copy)]
struct Short(u32);

impl Short {
    const fn new(bytes: [u8; 2], first_bits: usize, bits: usize) -> Short {
        let [first, second] = bytes;
        Short(u32::from_le_bytes([
            first,
            second,
            first_bits as u8,
            bits as u8,
        ]))
    }

    const fn bytes(self) -> [u8; 2] {
        let [first, second, ..] = self.0.to_le_bytes();
        [first, second]
    }

    const fn first_bits(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    const fn bits(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// How many bytes.
    fn count(self) -> usize {
        1 + usize::from(self.bits() > self.first_bits())
    }
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        codes: [0; 256],
        symbols: [0; 256],
        first: [0; LENGTH_MAX + 1],
        from: [0; LENGTH_MAX + 1],
        counts: [0; LENGTH_MAX + 1],
        short: [Short(0); 1 << SHORT_BITS],
    };
    let (mut next, mut place, mut length) = (0u32, 0usize, LENGTH_MIN);
    while length <= LENGTH_MAX {
        code.first[length] = next;
        code.from[length] = place as u16;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.symbols[place] = symbol as u8;
                code.counts[length] += 1;
                if length <= SHORT_BITS {
                    let rest = SHORT_BITS - length;
                    let mut at = (next as usize) << rest;
                    let end = (next as usize + 1) << rest;
                    while at < end {
                        code.short[at] = Short::new([symbol as u8, 0], length, length);
                        at += 1;
                    }
                }
                (next, place) = (next + 1, place + 1);
            }
            symbol += 1;
        }
        (next, length) = (next << 1, length + 1);
    }
    let mut at = 0;
    while at < code.short.len() {
        // The bits after the first code, and zeros, which are no part of it.
        let first = code.short[at];
        let second = code.short[(at << first.first_bits()) % code.short.len()];
        let bits = first.first_bits() + second.first_bits();
        if first.first_bits() > 0 && second.first_bits() > 0 && bits <= SHORT_BITS {
            let bytes = [first.bytes()[0], second.bytes()[0]];
            code.short[at] = Short::new(bytes, first.first_bits(), bits);
        }
        at += 1;
    }
    code
}

/// A string that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Appends what a code says, of which each five bits are a byte at most.
///
/// # Errors
/// RFC 7541 5.2: "A padding strictly longer than 7 bits MUST be treated as a decoding error. A
/// padding not corresponding to the most significant bits of the code for the EOS symbol MUST be
/// treated as a decoding error. A Huffman-encoded string literal containing the EOS symbol MUST be
/// treated as a decoding error."
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let from = out.len();
    // Two bytes are written at a time, of which the second may be none.
    out.resize(from + input.len() * 8 / LENGTH_MIN + 1, 0);
    let decoded = decode_into(input, &mut out[from..]);
    out.truncate(from + decoded.unwrap_or(0));
    decoded.map(drop)
}

/// The same, into room for one more than the most that it can be; how much it is.
fn decode_into(mut input: &[u8], room: &mut [u8]) -> Result<usize, Broken> {
    // The next bits, the first of them the highest, `count` of them taken from the input; the
    // others are zeros, or what the input has next.
    let (mut bits, mut count, mut done) = (0u64, 0usize, 0);
    loop {
        if !input.is_empty() {
            let word = input.first_chunk().copied().unwrap_or_else(|| {
                let mut word = [0; 8];
                word[..input.len()].copy_from_slice(input);
                word
            });
            bits |= u64::from_be_bytes(word) >> count;
            let bytes = input.len().min((63 - count) / 8);
            (count, input) = (count + 8 * bytes, &input[bytes..]);
        }
        while count >= SHORT_BITS {
            let short = CODE.short[(bits >> (64 - SHORT_BITS)) as usize];
            if short.bits() == 0 {
                break;
            }
            room[done..done + 2].copy_from_slice(&short.bytes());
            (bits, done) = (bits << short.bits(), done + short.count());
            count -= short.bits();
        }
        if count < LENGTH_MAX && !input.is_empty() {
            continue;
        }
        let short = CODE.short[(bits >> (64 - SHORT_BITS)) as usize];
        let found = match short.first_bits() {
            0 => long(bits),
            first_bits => Some((short.bytes()[0], first_bits)),
        };
        let Some((symbol, length)) = found.filter(|(_, length)| *length <= count) else {
            break;
        };
        room[done] = symbol;
        (bits, count, done) = (bits << length, count - length, done + 1);
    }
    // What is left is padding: ones.
    let is_padding = input.is_empty() && count < 8 && bits == !(u64::MAX >> count);
    is_padding.then_some(done).ok_or(Broken)
}

/// A symbol whose code is longer than a look finds. `None`: of the code for the end, or there are
/// not as many bits.
fn long(bits: u64) -> Option<(u8, usize)> {
    (SHORT_BITS + 1..=LENGTH_MAX).find_map(|length| {
        let nth = ((bits >> (64 - length)) as u32).checked_sub(CODE.first[length])?;
        let is_one = nth < u32::from(CODE.counts[length]);
        let place = usize::from(CODE.from[length]) + nth as usize;
        is_one.then(|| (CODE.symbols[place], length))
    })
}

/// The length of a string's code in bytes.
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    let bits = text.iter().map(|byte| usize::from(LENGTHS[*byte as usize]));
    bits.sum::<usize>().div_ceil(8)
}

/// Writes the code of a string.
pub(super) fn encode(text: &[u8], out: &mut impl Sink) {
    let (mut bits, mut count) = (0u64, 0usize);
    let (mut piece, mut filled) = ([0; PIECE_BYTES], 0);
    for byte in text {
        let length = usize::from(LENGTHS[*byte as usize]);
        bits = bits << length | u64::from(CODE.codes[*byte as usize]);
        count += length;
        if count >= 32 {
            count -= 32;
            piece[filled..filled + 4].copy_from_slice(&((bits >> count) as u32).to_be_bytes());
            filled += 4;
        }
        if filled == PIECE_BYTES {
            out.put(&piece);
            filled = 0;
        }
    }
    // The end's code is of ones.
    let padding = (8 - count % 8) % 8;
    bits = bits << padding | ((1 << padding) - 1);
    count += padding;
    while count > 0 {
        count -= 8;
        piece[filled] = (bits >> count) as u8;
        filled += 1;
    }
    out.put(&piece[..filled]);
}

/// Bytes of a code that are written at a time, with room for the rest of one.
const PIECE_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_bytes(text));
        out
    }

    /// RFC 7541 appendix C.4 and C.6.
    #[test]
    fn strings_are_those_of_the_rfc() {
        let pairs: [(&str, &[u8]); 5] = [
            (
                "www.example.com",
                b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            ),
            ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            ("302", b"\x64\x02"),
            (
                "Mon, 21 Oct 2013 20:13:21 GMT",
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\
                \x1b\xff",
            ),
            ("", b""),
        ];
        for (text, code) in pairs {
            assert_eq!(encoded(text.as_bytes()), code, "{text}");
            assert_eq!(decoded(code).as_deref(), Ok(text.as_bytes()));
        }
    }

    /// The last code of appendix B, one that is long, and the end's, which is the next.
    #[test]
    fn codes_are_those_of_the_appendix() {
        for (byte, code) in [
            (b'0', 0x0),
            (b'&', 0xf8),
            (b'\\', 0x7fff0),
            (0x16, 0x3fff_fffe),
            (0xf9, 0x0fff_fffe),
        ] {
            assert_eq!(CODE.codes[usize::from(byte)], code, "{byte}");
        }
        let last = CODE.first[LENGTH_MAX] + u32::from(CODE.counts[LENGTH_MAX]);
        assert_eq!(last, (1 << LENGTH_MAX) - 1);
    }

    /// The byte whose code these bits, `count` of them, begin with, and its length.
    fn begins_with(bits: u32, count: usize) -> Option<(u8, usize)> {
        (0..=255).find_map(|byte: u8| {
            let length = usize::from(LENGTHS[usize::from(byte)]);
            let rest = count.checked_sub(length)?;
            (bits >> rest == CODE.codes[usize::from(byte)]).then_some((byte, length))
        })
    }

    #[test]
    fn a_look_finds_all_that_its_bits_begin_with_of_two_bytes() {
        for (at, short) in CODE.short.iter().enumerate() {
            let Some((first, first_bits)) = begins_with(at as u32, SHORT_BITS) else {
                assert_eq!((short.first_bits(), short.bits()), (0, 0), "{at:#b}");
                continue;
            };
            let rest = SHORT_BITS - first_bits;
            let second = begins_with(at as u32 & ((1 << rest) - 1), rest);
            let bits = first_bits + second.map_or(0, |(_, bits)| bits);
            assert_eq!(short.bytes()[0], first, "{at:#b}");
            assert_eq!(short.first_bits(), first_bits, "{at:#b}");
            assert_eq!(short.bits(), bits, "{at:#b}");
            assert_eq!(short.count(), 1 + usize::from(second.is_some()), "{at:#b}");
            assert!(second.is_none_or(|(byte, _)| byte == short.bytes()[1]));
        }
    }

    #[test]
    fn every_byte_comes_back_at_each_place() {
        for byte in 0..=255u8 {
            for before in 0..9 {
                let text = [&b"aaaaaaaa"[..before], &[byte, b'~', byte]].concat();
                assert_eq!(decoded(&encoded(&text)), Ok(text));
            }
        }
    }

    #[test]
    fn model_strings_come_back_and_broken_ones_are_refused() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let length = random.usize(..40);
            let usual = random.bool();
            let byte = |_| match usual {
                true => random.alphanumeric() as u8,
                false => random.u8(..),
            };
            let text: Vec<u8> = (0..length).map(byte).collect();
            let mut code = encoded(&text);
            assert_eq!(decoded(&code).as_ref(), Ok(&text));
            // What is read is written in the same way.
            let at = random.usize(..=code.len());
            code.insert(at, random.u8(..));
            if let Ok(other) = decoded(&code) {
                assert_eq!(encoded(&other), code);
            }
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(b"\xf3").as_deref(), Ok(&b"x"[..]));
        for broken in [
            &b"\xf2"[..],
            b"\xf3\xff",
            b"\xff",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\xfc",
            b"\xf3\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(decoded(broken), Err(Broken), "{broken:x?}");
        }
    }
}
