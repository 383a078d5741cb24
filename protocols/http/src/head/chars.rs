//! Classes of characters, from the grammars of RFC 9110 and RFC 3986.
//!
//! Cost: one table load per byte; of header values a few instructions for eight bytes.

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const PATH: u8 = 4;
const QUERY: u8 = 8;
const HOST: u8 = 16;
/// All but what a dot may be spelled with.
const NO_DOT: u8 = 32;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        if byte.is_ascii_alphanumeric() || is_one_of(byte, b"!#$%&'*+-.^_`|~") {
            table[at] |= TOKEN;
        }
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            table[at] |= VALUE;
        }
        // RFC 3986 would have more of these percent-encoded, but browsers send them as they are
        // (the URL standard's path and query sets). The http crate draws nearly the same lines.
        if byte.is_ascii_graphic() && !is_one_of(byte, b"#<>?`") {
            table[at] |= PATH;
        }
        // What is not ASCII is UTF-8 here: a target is text.
        if byte >= 0x80 || byte.is_ascii_graphic() && !is_one_of(byte, b"#<>\"") {
            table[at] |= QUERY;
        }
        if byte.is_ascii_alphanumeric() || is_one_of(byte, b"-._~!$&'()*+,;=") {
            table[at] |= HOST;
        }
        if !is_one_of(byte, b".%") {
            table[at] |= NO_DOT;
        }
        at += 1;
    }
    table
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

fn is_in(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Those of these classes that all bytes are in.
fn common(bytes: &[u8], classes: u8) -> u8 {
    let both = |classes, byte: &u8| classes & CLASSES[usize::from(*byte)];
    bytes.iter().fold(classes, both)
}

fn all_in(bytes: &[u8], class: u8) -> bool {
    common(bytes, class) != 0
}

/// `tchar`, what methods and header names are made of.
pub(crate) fn is_token(byte: u8) -> bool {
    is_in(byte, TOKEN)
}

/// A non-empty run of `tchar`.
pub(crate) fn is_token_word(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all_in(bytes, TOKEN)
}

/// Header values: visible characters, space, tab and everything from 0x80 up.
pub(crate) fn is_header_value(bytes: &[u8]) -> bool {
    // The last eight overlap those before them.
    let are_plain = bytes.last_chunk().is_some_and(|last| {
        let (words, _) = bytes.as_chunks();
        words.iter().all(are_visible) && are_visible(last)
    });
    are_plain || all_in(bytes, VALUE)
}

/// Whether none of these is a control character, of which a value may have a tab. Where one is,
/// those after it may be taken for such as well.
fn are_visible(bytes: &[u8; 8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte that was less than another one, if both have none.
    let below = |word: u64, other: u64| word.wrapping_sub(EACH * other) & !word & (EACH << 7);
    let word = u64::from_le_bytes(*bytes);
    below(word, 0x20) | below(word ^ (EACH * 0x7f), 1) == 0
}

/// What the characters of a text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathText {
    /// Those of the path of a request target, and no dot among them.
    NoDots,
    /// Those of a path, some of which are dots or percent signs.
    MayHaveDots,
    /// Others.
    Other,
}

/// What may be the path of a request target.
#[inline]
pub(crate) fn path_text(bytes: &[u8]) -> PathText {
    const BOTH: u8 = PATH | NO_DOT;
    match common(bytes, BOTH) {
        BOTH => PathText::NoDots,
        PATH => PathText::MayHaveDots,
        _ => PathText::Other,
    }
}

/// The query of a request target.
pub(crate) fn is_query(bytes: &[u8]) -> bool {
    all_in(bytes, QUERY)
}

/// `unreserved` and `sub-delims`, what registered names are made of beside `%`.
pub(crate) fn is_host(byte: u8) -> bool {
    is_in(byte, HOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::uri::PathAndQuery;

    #[test]
    fn the_http_crate_takes_every_target_that_is_taken_here() {
        for byte in 0..=255u8 {
            if path_text(&[byte]) != PathText::Other {
                assert!(
                    PathAndQuery::try_from(&[b'/', byte][..]).is_ok(),
                    "path {byte:#x}"
                );
            }
            if byte.is_ascii() && is_query(&[byte]) {
                assert!(
                    PathAndQuery::try_from(&[b'/', b'?', byte][..]).is_ok(),
                    "query {byte:#x}"
                );
            }
        }
    }

    #[test]
    fn a_query_is_any_text() {
        for text in ["\u{e9}", "q=\u{4e2d}\u{6587}&x", "\u{10ffff}"] {
            let target = format!("/?{text}");
            assert!(is_query(text.as_bytes()), "{text}");
            assert!(PathAndQuery::try_from(&*target).is_ok(), "{text}");
            assert_eq!(path_text(text.as_bytes()), PathText::Other, "{text}");
        }
    }

    #[test]
    fn characters_that_would_be_dropped_or_split_lines_are_in_no_class() {
        for byte in [b'\r', b'\n', 0, 0x7f] {
            assert!(!is_header_value(&[byte]) && !is_query(&[byte]));
            assert_eq!(path_text(&[byte]), PathText::Other);
            assert!(!is_token(byte) && !is_host(byte));
        }
        assert!(path_text(b"#") == PathText::Other && !is_query(b"#"));
    }

    #[test]
    fn a_value_is_one_wherever_in_it_each_byte_is() {
        for byte in 0..=255u8 {
            for length in 1..40 {
                for at in 0..length {
                    let mut value = vec![b'v'; length];
                    value[at] = byte;
                    let expected = is_in(byte, VALUE);
                    assert_eq!(is_header_value(&value), expected, "{byte:#x} at {at}");
                }
            }
        }
        assert!(is_header_value(b"\t\x80 and\ta \xff~ long value"));
        assert!(!is_header_value(b"\t and \x7f in a long value"));
    }

    #[test]
    fn empty_words_are_values_and_paths_but_not_tokens() {
        assert!(is_header_value(b"") && is_query(b""));
        assert_eq!(path_text(b""), PathText::NoDots);
        assert!(!is_token_word(b""));
    }
}
