//! One spelling for each path: what routes and requests are compared in.
//!
//! | in a path or a route                            | here                          | RFC 3986 |
//! |-------------------------------------------------|-------------------------------|----------|
//! | an escape of an unreserved character, `%61`     | the character                 | 6.2.2.2  |
//! | another escape, `%2f` or `%c3`                  | with upper-case digits        | 6.2.2.1  |
//! | what comes as an escape only: `é`, a space, `<` | the escapes of its bytes      | 2.4      |
//! | what some clients escape and others do not, `"` | the character                 | (none)   |
//! | a percent sign without two digits               | `%25`                         | (none)   |
//! | a reserved character, `/` or `:`                | as it is: escaped it is other | 2.2      |
//!
//! Cost: a path without a percent sign is in this spelling already, which takes one search for that
//! sign; another is copied.

use crate::head::chars::{self, PathText};

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// A byte of a path, as it was spelled.
#[derive(Clone, Copy)]
enum Spelled {
    Raw(u8),
    Escaped(u8),
}

impl Spelled {
    /// The byte, where it stands for itself; else its escape has to be written.
    fn plain(self) -> Option<u8> {
        match self {
            Self::Raw(byte) => is_accepted(byte).then_some(byte),
            Self::Escaped(byte) => (is_accepted(byte) && !is_reserved(byte)).then_some(byte),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Raw(byte) | Self::Escaped(byte) => byte,
        }
    }

    /// How many bytes it took.
    fn bytes(self) -> usize {
        match self {
            Self::Raw(_) => 1,
            Self::Escaped(_) => 3,
        }
    }
}

/// What a request may have in its path as it is; a percent sign begins an escape.
fn is_accepted(byte: u8) -> bool {
    byte != b'%' && chars::path_text(&[byte]) != PathText::Other
}

/// `gen-delims` and `sub-delims` (RFC 3986 section 2.2).
fn is_reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

/// The bytes of a text, escapes resolved.
fn spelled(text: &str) -> impl Iterator<Item = Spelled> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let escaped = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let next = match escaped {
            Some((high, low)) => Spelled::Escaped((high << 4 | low) as u8),
            None => Spelled::Raw(*rest.first()?),
        };
        rest = &rest[next.bytes()..];
        Some(next)
    })
}

fn escape(byte: u8, into: &mut String) {
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    into.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

/// The path of a request in this spelling; none where it has no percent sign.
#[inline]
pub(super) fn of_path(path: &str) -> Option<String> {
    memchr::memchr(b'%', path.as_bytes()).map(|_| respelled(path))
}

#[cold]
fn respelled(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for next in spelled(path) {
        match next.plain() {
            Some(byte) => text.push(char::from(byte)),
            None => escape(next.byte(), &mut text),
        }
    }
    text
}

/// How many bytes of a path the first `bytes` are that it has in this spelling.
pub(super) fn bytes_of(path: &str, bytes: usize) -> usize {
    let (mut here, mut there) = (0, 0);
    for next in spelled(path) {
        if here >= bytes {
            break;
        }
        here += if next.plain().is_some() { 1 } else { 3 };
        there += next.bytes();
    }
    there
}

/// The path of a route in this spelling. Names of parameters stay as they are.
///
/// # Errors
/// What no path has.
pub(super) fn of_route(path: &str) -> Result<String, &'static str> {
    let (mut text, mut rest) = (String::with_capacity(path.len()), path);
    while !rest.is_empty() {
        let (literal, braces) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
        add_literal(literal, &mut text)?;
        let (braces, behind) = braces.split_at(braces_bytes(braces));
        text += braces;
        rest = behind;
    }
    Ok(text)
}

/// The bytes of a parameter at the begin of a text, or of the two braces that mean one.
fn braces_bytes(text: &str) -> usize {
    match text.as_bytes() {
        [b'{', b'{', ..] | [b'}', b'}', ..] => 2,
        // One that is not closed is refused later.
        [b'{', ..] => text.find('}').map_or(text.len(), |at| at + 1),
        _ => text.len().min(1),
    }
}

fn add_literal(literal: &str, text: &mut String) -> Result<(), &'static str> {
    for next in spelled(literal) {
        match (next, next.plain()) {
            (Spelled::Raw(b'?'), _) => return Err("a `?` begins a query, which no route has"),
            (Spelled::Raw(b'#'), _) => return Err("a `#` begins a fragment, which no request has"),
            // The tree's spelling of a brace.
            (_, Some(brace @ (b'{' | b'}'))) => text.extend([char::from(brace); 2]),
            (_, Some(byte)) => text.push(char::from(byte)),
            (_, None) => escape(next.byte(), text),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_spelling() {
        for (path, is) in [
            ("/%61%7e%2D%5F%2e", "/a~-_."),
            ("/a%2fb%3a%2b", "/a%2Fb%3A%2B"),
            ("/%c3%A9%20", "/%C3%A9%20"),
            ("/%22%7b%7d%7c%5c%5e", "/\"{}|\\^"),
            ("/%3c%3E%60", "/%3C%3E%60"),
            ("/%2541", "/%2541"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%g1%a", "/%25g1%25a"),
            ("/%%61", "/%25a"),
            ("*%00", "*%00"),
        ] {
            let text = of_path(path).expect("it has a percent sign");
            assert_eq!(text, is, "{path}");
            assert_eq!(of_path(&text).unwrap_or_else(|| text.clone()), text);
        }
        assert_eq!(of_path("/a+b:c\"{"), None);
    }

    #[test]
    fn routes_are_spelled_as_the_paths_that_they_match() {
        for (route, is) in [
            ("/caf\u{e9}", "/caf%C3%A9"),
            (
                "/caf%c3%a9/{caf\u{e9}}/{*r\u{e9}st}",
                "/caf%C3%A9/{caf\u{e9}}/{*r\u{e9}st}",
            ),
            ("/%61 b<", "/a%20b%3C"),
            ("/{{a}}/%7b{id}%7D", "/{{a}}/{{{id}}}"),
            ("/100%", "/100%25"),
            ("/a:b%3a\"|", "/a:b%3A\"|"),
            ("/{", "/{"),
            ("/a}b", "/a}b"),
            ("", ""),
        ] {
            assert_eq!(of_route(route).as_deref(), Ok(is), "{route}");
        }
        assert!(of_route("/a?b").is_err() && of_route("/a#b").is_err());
        assert_eq!(of_route("/a%3fb%23").as_deref(), Ok("/a%3Fb%23"));
    }

    #[test]
    fn model_a_part_of_a_path_is_found_in_both_spellings() {
        let mut random = fastrand::Rng::with_seed(3);
        let parts = ["a", "/", "%61", "%2f", "%c3", "%", "%4", "\"", "%22", "+"];
        for _ in 0..10_000 {
            let parts: Vec<&str> = (0..random.usize(..12))
                .map(|_| random.choice(parts).expect("some"))
                .collect();
            let path = parts.concat();
            let Some(text) = of_path(&path) else { continue };
            assert_eq!(bytes_of(&path, text.len()), path.len(), "{path}");
            for (at, _) in path.match_indices('/') {
                let before = of_path(&path[..at]).map_or(at, |text| text.len());
                assert_eq!(bytes_of(&path, before), at, "{path}");
            }
        }
    }
}
