//! Heads of replies, from the rest of the crate to HTTP/2: what was written as one of HTTP/1.1 is
//! taken apart. What only one connection means (RFC 9113 section 8.2.2) is left out.
//!
//! Cost: one copy of the head, unless it was taken apart lately. Names and values are slices of
//! that copy, as `h2` keeps some of them in its table while the connection lasts: a buffer would
//! last as long.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode, Version};
use memchr::memmem::Finder;

use crate::encode;
use crate::names::Names;

static END_OF_HEAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// Headers of a reply for which there is room at once: as many as one of a file has.
const HEADERS_USUAL: usize = 12;

/// Heads of replies that a network thread has taken apart more than once: those of files that are
/// asked for again and again are the same for a second.
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
    text: Bytes,
    response: Response<()>,
}

/// Heads that are kept.
const PLACES: usize = 16;

/// Longer ones are not.
const KEPT_BYTES_MAX: usize = 1024;

impl Heads {
    /// Takes a reply apart, as this crate or a service has written it: its head, and what follows
    /// that. `None`: it is not a reply.
    pub(crate) fn response(
        &mut self,
        reply: &Bytes,
        names: &mut Names,
    ) -> Option<(Response<()>, Bytes)> {
        let end = END_OF_HEAD.find(reply)? + 4;
        let (text, rest) = (&reply[..end], reply.slice(end..));
        let hash = hash_of(text);
        let place = &mut self.places[hash as usize % PLACES];
        if let Some(known) = &place.known
            && known.text == text
        {
            return Some((known.response.clone(), rest));
        }
        let text = Bytes::copy_from_slice(text);
        let response = response_of(&text, names)?;
        // A head that comes once is not worth a copy, and takes no other's place.
        let comes_again = std::mem::replace(&mut place.hash, hash) == hash;
        if comes_again && text.len() <= KEPT_BYTES_MAX {
            let response = response.clone();
            place.known = Some(Box::new(Known { text, response }));
        }
        Some((response, rest))
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

fn response_of(head: &Bytes, names: &mut Names) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(encode::status_of(head)).ok()?;
    *response.version_mut() = Version::HTTP_2;
    response.headers_mut().try_reserve(HEADERS_USUAL).ok()?;
    let mut at = memchr::memchr(b'\n', head)? + 1;
    loop {
        let end = at + memchr::memchr(b'\r', &head[at..])?;
        let line = &head[at..end];
        at = end + 2;
        if line.is_empty() {
            return Some(response);
        }
        let colon = memchr::memchr(b':', line)?;
        let name = names.name(std::str::from_utf8(&line[..colon]).ok()?)?;
        if is_of_connection(&name) {
            continue;
        }
        let value = head.slice_ref(line[colon + 1..].trim_ascii());
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        response.headers_mut().try_append(name, value).ok()?;
    }
}

/// RFC 9113 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing connection-specific
/// header fields."
fn is_of_connection(name: &header::HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_taken_apart_and_loses_what_its_connection_means() {
        let reply = Bytes::from_static(
            b"HTTP/1.1 404 Not Found\r\nETag: \"x\"\r\nVary: \r\nVary: b\r\nConnection: close\r\n\
            Transfer-Encoding: chunked\r\nKeep-Alive: 1\r\nContent-Length: 2\r\n\r\nno",
        );
        let (mut heads, mut names) = (Heads::default(), Names::new());
        for _ in 0..3 {
            let taken = heads.response(&reply, &mut names);
            check_not_found(taken.expect("a reply"));
        }
        let other = Bytes::from(String::from_utf8_lossy(&reply).replace("\"x\"", "\"y\""));
        let (response, _) = heads.response(&other, &mut names).expect("a reply");
        assert_eq!(response.headers()["etag"], "\"y\"");
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
                let taken = heads.response(&Bytes::from_static(text.as_bytes()), &mut Names::new());
                assert!(taken.is_none(), "{text:?}");
            }
        }
    }

    #[test]
    fn heads_that_come_again_are_kept_and_take_each_others_places() {
        let (mut heads, mut names) = (Heads::default(), Names::new());
        for number in 0..10 * PLACES {
            let text = format!("HTTP/1.1 200 OK\r\nX: {number}\r\n\r\nbody");
            let reply = Bytes::from(text);
            for _ in 0..3 {
                let (response, body) = heads.response(&reply, &mut names).expect("a reply");
                assert_eq!(response.headers()["x"], number.to_string());
                assert_eq!(body, "body");
            }
        }
        let kept = heads.places.iter().filter(|place| place.known.is_some());
        assert!(kept.count() > PLACES / 2);
    }

    #[test]
    fn heads_that_come_once_are_not_kept() {
        let (mut heads, mut names) = (Heads::default(), Names::new());
        for number in 0..10 * PLACES {
            let reply = Bytes::from(format!("HTTP/1.1 200 OK\r\nX: {number}\r\n\r\n"));
            assert!(heads.response(&reply, &mut names).is_some());
        }
        assert!(heads.places.iter().all(|place| place.known.is_none()));
    }

    fn check_not_found((response, body): (Response<()>, Bytes)) {
        assert_eq!(response.status(), 404);
        let mut headers: Vec<_> = response.headers().iter().collect();
        headers.sort_by_key(|(name, _)| name.as_str().to_owned());
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("content-length", b"2"),
            ("etag", b"\"x\""),
            ("vary", b""),
            ("vary", b"b"),
        ];
        assert_eq!(headers, expected);
        assert_eq!(body, "no");
    }
}
