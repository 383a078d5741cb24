//! How the kernel writes a path in its table of mounts (`/proc/self/mountinfo`, proc(5)).
//!
//! Does not: read the table, or interpret its lines; what a caller needs of them differs.

/// A field of the table: space, tab, line end, backslash and, in options, comma and `=` are written
/// as `\` and three octal digits. What is no such escape stays as it is.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut left = field;
    while let Some((byte, rest)) = left.split_first() {
        let escaped = rest.get(..3).filter(|_| *byte == b'\\').and_then(octal);
        plain.push(escaped.unwrap_or(*byte));
        left = if escaped.is_some() { &rest[3..] } else { rest };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let all_octal = digits.iter().all(|digit| matches!(digit, b'0'..=b'7'));
    let text = std::str::from_utf8(digits).ok().filter(|_| all_octal)?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_escapes_of_a_byte_are_replaced() {
        let cases: [(&[u8], &[u8]); 7] = [
            (b"", b""),
            (b"/a\\040b\\011\\134c", b"/a b\t\\c"),
            (b"\\377\\400", b"\xff\\400"),
            (b"\\04", b"\\04"),
            (b"\\+12\\089", b"\\+12\\089"),
            (b"\\", b"\\"),
            (b"\\\\040", b"\\ "),
        ];
        for (field, plain) in cases {
            assert_eq!(unescape(field), plain);
        }
    }
}
