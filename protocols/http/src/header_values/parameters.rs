//! Parameters of a header: `; name=value; name="value"` (RFC 9110 section 5.6.6).

use crate::head::chars::is_token_word;

/// The elements of a comma-separated list in which text may be quoted. One whose quotation does not
/// end goes on to the end of the value.
pub(crate) fn quoted_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let elements = value.split(move |byte| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'"' if !was_escaped => is_quoted = !is_quoted,
            b'\\' if is_quoted => is_escaped = !was_escaped,
            _ => {}
        }
        *byte == b',' && !is_quoted
    });
    let elements = elements.map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty())
}

/// The value of a header without its parameters, and these.
pub(crate) fn parameters(value: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let (of_type, rest) = value.split_at(end);
    (
        of_type.trim_ascii(),
        Parameters {
            rest,
            is_first: false,
        },
    )
}

/// Parameters of a header: `; name=value`, where the value may be quoted.
pub(crate) struct Parameters<'a> {
    rest: &'a [u8],
    /// What comes next needs no semicolon before it.
    is_first: bool,
}

/// What follows is no parameter.
pub(crate) struct Malformed;

type Parameter<'a> = (&'a [u8], Vec<u8>);

impl<'a> Parameters<'a> {
    /// Those that an element of a list consists of: `name=value; name=value`.
    pub(crate) fn of_element(element: &'a [u8]) -> Self {
        Self {
            rest: element,
            is_first: true,
        }
    }

    /// Not an `Iterator`: after an error there is nothing more to ask for.
    pub(crate) fn next(&mut self) -> Option<Result<Parameter<'a>, Malformed>> {
        self.rest = self.rest.trim_ascii_start();
        let (first, rest) = match std::mem::take(&mut self.is_first) {
            true => (&b';', self.rest),
            false => self.rest.split_first()?,
        };
        let rest = rest.trim_ascii();
        if *first == b';' && rest.is_empty() {
            return None;
        }
        let parsed = match first {
            b';' => parameter(rest),
            _ => None,
        };
        Some(parsed.ok_or(Malformed).map(|(parameter, rest)| {
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
