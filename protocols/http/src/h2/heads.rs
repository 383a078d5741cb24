//! Heads of replies, from the rest of the crate to HTTP/2: what was written as one of HTTP/1.1 is
//! written as a block. What only one connection means (RFC 9113 section 8.2.2) is left out.
//!
//! Cost: a look at each byte, unless the head was written lately: then a comparison and a copy.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::hpack::{put_field, put_status};
use crate::encode;

static END_OF_HEAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// Heads of replies that a network thread has written more than once: those of files that are asked
/// for again and again are the same for a second.
///
/// Cost: a hash over a few words of the head, and one comparison.
#[derive(Default)]
pub(crate) struct Heads {
    places: [Place; PLACES],
}

#[derive(Default)]
struct Place {
    /// Of the latest head that was not known.
    hash: u64,
    known: Option<Box<Known>>,
}

struct Known {
    text: Vec<u8>,
    block: Vec<u8>,
}

/// Heads that are kept.
const PLACES: usize = 16;

/// Longer ones are not.
const KEPT_BYTES_MAX: usize = 1024;

/// Where the head of a reply ends, as this crate or a service has written it. `None`: it is none.
pub(super) fn end_of(reply: &[u8]) -> Option<usize> {
    Some(END_OF_HEAD.find(reply)? + 4)
}

impl Heads {
    /// Appends a head as a block. `None`: it is not a head, and what was appended means nothing.
    pub(super) fn put_block(&mut self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let hash = hash_of(text);
        let place = &mut self.places[hash as usize % PLACES];
        if let Some(known) = &place.known
            && known.text == text
        {
            out.extend_from_slice(&known.block);
            return Some(());
        }
        let from = out.len();
        put_status(out, encode::status_of(text));
        put_fields(text, out)?;
        // A head that comes once is not worth a copy, and takes no other's place.
        let comes_again = std::mem::replace(&mut place.hash, hash) == hash;
        if comes_again && text.len() <= KEPT_BYTES_MAX {
            place.known = Some(Box::new(Known {
                text: text.to_vec(),
                block: out[from..].to_vec(),
            }));
        }
        Some(())
    }

    /// The same of the head of an upgrade, which opens a tunnel: there is nothing to be switched
    /// (RFC 8441 section 5).
    pub(super) fn put_tunnel(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        put_status(out, 200);
        put_fields(text, out)
    }
}

/// From the length and a word at each quarter: heads of one service differ in some of them.
fn hash_of(text: &[u8]) -> u64 {
    let word = |at: usize| {
        let at = at.min(text.len().saturating_sub(8));
        let word = text[at..].first_chunk().copied();
        u64::from_le_bytes(word.unwrap_or_default())
    };
    let quarter = text.len() / 4;
    let words = [quarter, 2 * quarter, 3 * quarter].map(word);
    let mixed = words.into_iter().fold(text.len() as u64, |mixed, word| {
        (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mixed >> 32
}

/// The lines after the first one.
fn put_fields(head: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut at = memchr::memchr(b'\n', head)? + 1;
    loop {
        let end = at + memchr::memchr(b'\r', &head[at..])?;
        let line = &head[at..end];
        at = end + 2;
        if line.is_empty() {
            return Some(());
        }
        let colon = memchr::memchr(b':', line)?;
        let name = &line[..colon];
        if !is_of_connection(name) {
            put_field(out, name, line[colon + 1..].trim_ascii());
        }
    }
}

/// RFC 9113 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing connection-specific
/// header fields."
pub(super) fn is_of_connection(name: &[u8]) -> bool {
    let spelled: &[u8] = match name.len() {
        7 => b"upgrade",
        10 if matches!(name[0], b'c' | b'C') => b"connection",
        10 => b"keep-alive",
        16 => b"proxy-connection",
        17 => b"transfer-encoding",
        _ => return false,
    };
    name.eq_ignore_ascii_case(spelled)
}

#[cfg(test)]
mod tests {
    use super::super::hpack::{Decoder, FieldList};
    use super::*;

    fn block(heads: &mut Heads, text: &str) -> Option<Vec<(String, String)>> {
        let mut out = Vec::new();
        heads.put_block(text.as_bytes(), &mut out)?;
        let mut list = FieldList::default();
        list.begin(usize::MAX);
        Decoder::default()
            .decode(&out, &mut list)
            .expect("what is written is right");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(
            list.iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
        )
    }

    #[test]
    fn a_head_is_written_and_loses_what_its_connection_means() {
        let reply = "HTTP/1.1 404 Not Found\r\nETag: \"x\"\r\nVary: \r\nVary: b\r\n\
            Connection: close\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 1\r\nUpgrade: x\r\n\
            Proxy-Connection: x\r\nContent-Length: 2\r\n\r\n";
        let expected = [
            (":status", "404"),
            ("etag", "\"x\""),
            ("vary", ""),
            ("vary", "b"),
            ("content-length", "2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut heads = Heads::default();
        for _ in 0..3 {
            let found = block(&mut heads, reply).expect("a head");
            assert_eq!(found, expected);
        }
        let other = reply.replace("\"x\"", "\"y\"");
        let found = block(&mut heads, &other).expect("a head");
        assert_eq!(found[1].1, "\"y\"");
        let with_body = format!("{reply}no");
        assert_eq!(end_of(with_body.as_bytes()), Some(reply.len()));
    }

    #[test]
    fn of_what_is_no_reply_nothing_is_kept() {
        let mut heads = Heads::default();
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nno end",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            for _ in 0..2 {
                assert_eq!(block(&mut heads, text), None, "{text:?}");
            }
        }
    }

    #[test]
    fn heads_that_come_again_are_kept_and_take_each_others_places() {
        let mut heads = Heads::default();
        for number in 0..10 * PLACES {
            let text = format!("HTTP/1.1 200 OK\r\nX: {number}\r\n\r\n");
            for _ in 0..3 {
                let found = block(&mut heads, &text).expect("a head");
                assert_eq!(found[1], ("x".to_owned(), number.to_string()));
            }
        }
        let kept = heads.places.iter().filter(|place| place.known.is_some());
        assert!(kept.count() > PLACES / 2);
    }

    #[test]
    fn heads_that_come_once_are_not_kept() {
        let mut heads = Heads::default();
        for number in 0..10 * PLACES {
            let text = format!("HTTP/1.1 200 OK\r\nX: {number}\r\n\r\n");
            assert!(block(&mut heads, &text).is_some());
        }
        assert!(heads.places.iter().all(|place| place.known.is_none()));
    }
}
