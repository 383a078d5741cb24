//! Fields to a block (RFC 7541 section 6): those of the static table, the others as literals that
//! no table gets. Nothing is kept from one field to the next.
//!
//! Values that are worth it are in Huffman's code; short ones are as they are, because a byte saved
//! is not worth the look.

use super::huffman;
use super::table::{index_of, of_static};

/// Strings that are shorter are not compressed.
const HUFFMAN_BYTES_MIN: usize = 8;

/// The pseudo-header of replies, with which each block begins (RFC 9113 section 8.3.2).
pub(crate) fn put_status(out: &mut Vec<u8>, status: u16) {
    let known = (8..=14)
        .find(|index| of_static(*index).and_then(|(_, value)| value.parse().ok()) == Some(status));
    match known {
        Some(index) => out.push(0x80 | index as u8),
        None => {
            let digits = [status / 100, status / 10 % 10, status % 10];
            out.extend_from_slice(&[0x08, 3]);
            out.extend(digits.map(|digit| b'0' + digit as u8));
        }
    }
}

/// A field that no table gets. The name may be spelled with capital letters, which HTTP/2 has not
/// (RFC 9113 section 8.2).
pub(crate) fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut small = [0; NAME_BYTES_MAX];
    let known = small.get_mut(..name.len()).and_then(|small| {
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        index_of(small)
    });
    match known {
        Some(index) => put_integer(out, 0x00, 4, index),
        None => {
            out.push(0);
            put_integer(out, 0x00, 7, name.len());
            let from = out.len();
            out.extend_from_slice(name);
            out[from..].make_ascii_lowercase();
        }
    }
    put_string(out, value);
}

/// Names of the static table are not longer.
const NAME_BYTES_MAX: usize = 32;

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() >= HUFFMAN_BYTES_MIN {
        let bytes = huffman::encoded_bytes(text);
        if bytes < text.len() {
            put_integer(out, 0x80, 7, bytes);
            return huffman::encode(text, out);
        }
    }
    put_integer(out, 0x00, 7, text.len());
    out.extend_from_slice(text);
}

/// RFC 7541 section 5.1.
fn put_integer(out: &mut Vec<u8>, first: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
