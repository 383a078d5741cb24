//! Fields to a block (RFC 7541 section 6): those of the static table, the others as literals that
//! no table gets. Nothing is kept from one field to the next.
//!
//! Values that are worth it are in Huffman's code; short ones are as they are, because a byte saved
//! is not worth the look.

use super::huffman;
use super::table::index_of;
use crate::respond::sink::Sink;

/// Strings that are shorter are not compressed.
const HUFFMAN_BYTES_MIN: usize = 8;

/// The pseudo-header of replies, with which each block begins (RFC 9113 section 8.3.2).
pub(crate) fn put_status(out: &mut impl Sink, status: u16) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digit = |number: u16| b'0' + (number % 10) as u8;
            return out.put(&[
                0x08,
                3,
                digit(status / 100),
                digit(status / 10),
                digit(status),
            ]);
        }
    };
    out.put(&[0x80 | index]);
}

/// A field that no table gets. The name may be spelled with capital letters, which HTTP/2 has not
/// (RFC 9113 section 8.2).
pub(crate) fn put_field(out: &mut impl Sink, name: &[u8], value: &[u8]) {
    let mut small = [0; NAME_PIECE_BYTES];
    let known = small.get_mut(..name.len()).and_then(|small| {
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        index_of(small)
    });
    match known {
        Some(index) => put_integer(out, 0x00, 4, index),
        None => {
            out.put(&[0]);
            put_integer(out, 0x00, 7, name.len());
            for piece in name.chunks(NAME_PIECE_BYTES) {
                let small = &mut small[..piece.len()];
                small.copy_from_slice(piece);
                small.make_ascii_lowercase();
                out.put(small);
            }
        }
    }
    put_string(out, value);
}

/// Names of the static table are not longer.
const NAME_PIECE_BYTES: usize = 32;

fn put_string(out: &mut impl Sink, text: &[u8]) {
    if text.len() >= HUFFMAN_BYTES_MIN {
        let bytes = huffman::encoded_bytes(text);
        if bytes < text.len() {
            put_integer(out, 0x80, 7, bytes);
            return huffman::encode(text, out);
        }
    }
    put_integer(out, 0x00, 7, text.len());
    out.put(text);
}

/// RFC 7541 section 5.1.
fn put_integer(out: &mut impl Sink, first: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        return out.put(&[first | value as u8]);
    }
    out.put(&[first | mask as u8]);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.put(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    out.put(&[rest as u8]);
}
