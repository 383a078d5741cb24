//! Parameters of a header: `; name=value; name="value"` (RFC 9110 section 5.6.6).

use super::rejection::MultipartRejection;
use crate::chars::is_token_word;

/// The value of a header without its parameters, and these.
pub(super) fn parameters(value: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let (of_type, rest) = value.split_at(end);
    (of_type.trim_ascii(), Parameters { rest })
}

/// Parameters of a header: `; name=value`, where the value may be quoted.
pub(super) struct Parameters<'a> {
    rest: &'a [u8],
}

type Parameter<'a> = (&'a [u8], Vec<u8>);

impl<'a> Parameters<'a> {
    /// Not an `Iterator`: after an error there is nothing more to ask for.
    pub(super) fn next(&mut self) -> Option<Result<Parameter<'a>, MultipartRejection>> {
        self.rest = self.rest.trim_ascii_start();
        let (first, rest) = self.rest.split_first()?;
        let rest = rest.trim_ascii();
        if *first == b';' && rest.is_empty() {
            return None;
        }
        let parsed = match first {
            b';' => parameter(rest),
            _ => None,
        };
        let malformed = MultipartRejection::Malformed("a parameter of a header");
        Some(parsed.ok_or(malformed).map(|(parameter, rest)| {
            self.rest = rest;
            parameter
        }))
    }
}

/// The parameter that this begins with, and what follows.
fn parameter(text: &[u8]) -> Option<(Parameter<'_>, &[u8])> {
    let equals = memchr::memchr(b'=', text)?;
    let (name, rest) = (
        text[..equals].trim_ascii_end(),
        text[equals + 1..].trim_ascii_start(),
    );
    if !is_token_word(name) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix(b"\"") else {
        let is_end = |byte: &u8| *byte == b';' || byte.is_ascii_whitespace();
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        return (!value.contains(&b'"')).then(|| ((name, value.to_vec()), rest));
    };
    let (mut value, mut at) = (Vec::new(), 0);
    loop {
        match quoted[at..] {
            [] => return None,
            [b'"', ..] => return Some(((name, value), &quoted[at + 1..])),
            // Any other backslash is one: browsers send those of a file name as they are.
            [b'\\', escaped @ (b'"' | b'\\'), ..] => {
                value.push(escaped);
                at += 2;
            }
            [byte, ..] => {
                value.push(byte);
                at += 1;
            }
        }
    }
}
