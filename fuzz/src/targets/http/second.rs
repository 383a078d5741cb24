//! Other readings of a request: what a lenient server or proxy before or after ours would see.
//!
//! Smuggling needs two parties that disagree about where a request ends. Ours refuses whatever they
//! could disagree about, so all of these find the same in what it accepts. They are written to be
//! simple and lax, and share no code with the parser.

/// What a reader does with what the RFC forbids, or leaves to the recipient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// A carriage return alone ends a line too; else only a line feed does.
    returns_end_lines: bool,
    /// A message with Content-Length has that length, also when it is chunked.
    length_wins: bool,
    /// Of several values the last counts; else the first.
    last_counts: bool,
    /// A line that begins with a blank belongs to the header before it.
    folds: bool,
    /// Chunks, if the word is anywhere in the header; else only if it is all of it.
    chunked_anywhere: bool,
    /// Numbers are read as `strtoul` does: blanks and a sign before, anything after.
    loose_numbers: bool,
}

/// A request as one manner sees it.
pub(crate) struct Found {
    /// Method and target.
    pub(crate) line: String,
    pub(crate) body: Vec<u8>,
    pub(crate) bytes: usize,
}

impl Manner {
    /// Every combination.
    pub(crate) fn all() -> impl Iterator<Item = Manner> {
        (0_u32..64).map(|bits| {
            let has = |bit: u32| bits & (1 << bit) != 0;
            Manner {
                returns_end_lines: has(0),
                length_wins: has(1),
                last_counts: has(2),
                folds: has(3),
                chunked_anywhere: has(4),
                loose_numbers: has(5),
            }
        })
    }

    /// The first line of `input` without its end, and the bytes behind it.
    fn line<'a>(&self, input: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let ends = |byte: &u8| *byte == b'\n' || self.returns_end_lines && *byte == b'\r';
        let end = input.iter().position(ends)?;
        let (line, mut rest) = (&input[..end], &input[end + 1..]);
        if input[end] == b'\r' && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
    }

    fn number(&self, text: &[u8], radix: u32) -> Option<usize> {
        let mut text = text;
        if self.loose_numbers {
            text = text.trim_ascii_start();
            text = text.strip_prefix(b"+").unwrap_or(text);
            if radix == 16 {
                text = text.strip_prefix(b"0x").unwrap_or(text);
            }
            let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
            let digits = text.iter().take_while(|byte| is_digit(byte)).count();
            text = &text[..digits];
        }
        usize::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
    }

    /// The value of a header that counts.
    fn value(&self, headers: &[(Vec<u8>, Vec<u8>)], name: &str) -> Option<Vec<u8>> {
        let is_it = |header: &&(Vec<u8>, Vec<u8>)| header.0.eq_ignore_ascii_case(name.as_bytes());
        let mut same = headers.iter().filter(is_it);
        let counts = if self.last_counts {
            same.next_back()
        } else {
            same.next()
        };
        counts.map(|header| header.1.clone())
    }

    fn is_chunked(&self, headers: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let value = self.value(headers, "transfer-encoding").unwrap_or_default();
        let value = value.to_ascii_lowercase();
        if self.chunked_anywhere {
            value.windows(7).any(|window| window == b"chunked")
        } else {
            value == b"chunked"
        }
    }

    fn chunks<'a>(&self, input: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
        let (mut body, mut rest) = (Vec::new(), input);
        loop {
            let (line, behind) = self.line(rest)?;
            let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = self.number(size.trim_ascii(), 16)?;
            if size == 0 {
                rest = behind;
                break;
            }
            body.extend_from_slice(behind.get(..size)?);
            let (empty, behind) = self.line(&behind[size..])?;
            if !empty.is_empty() {
                return None;
            }
            rest = behind;
        }
        loop {
            let (trailer, behind) = self.line(rest)?;
            rest = behind;
            if trailer.is_empty() {
                return Some((body, rest));
            }
        }
    }
}

/// The request that `input` begins with, read in one manner.
pub(crate) fn read(input: &[u8], manner: Manner) -> Option<Found> {
    let mut rest = input;
    let first = loop {
        let (line, behind) = manner.line(rest)?;
        rest = behind;
        if !line.is_empty() {
            break line;
        }
    };
    let mut words = first
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let (method, target) = (words.next()?, words.next()?);
    let mut headers: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let (line, behind) = manner.line(rest)?;
        rest = behind;
        if line.is_empty() {
            break;
        }
        if manner.folds
            && line[0].is_ascii_whitespace()
            && let Some(last) = headers.last_mut()
        {
            last.1.extend_from_slice(line);
            continue;
        }
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        headers.push((line[..colon].trim_ascii().to_vec(), value.to_vec()));
    }
    let length = manner.value(&headers, "content-length");
    let is_chunked = manner.is_chunked(&headers) && !(manner.length_wins && length.is_some());
    let (body, rest) = match length {
        _ if is_chunked => manner.chunks(rest)?,
        Some(length) => {
            // Of a list of equal numbers each counts: RFC 9110 section 8.6.
            let number = length
                .split(|byte| *byte == b',')
                .next()
                .unwrap_or_default();
            let (body, behind) = rest.split_at_checked(manner.number(number.trim_ascii(), 10)?)?;
            (body.to_vec(), behind)
        }
        None => (Vec::new(), rest),
    };
    let line = [method, target].map(String::from_utf8_lossy).join(" ");
    Some(Found {
        line,
        body,
        bytes: input.len() - rest.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(input: &str) -> Vec<Option<usize>> {
        let ends = Manner::all().map(|manner| {
            let found = read(input.as_bytes(), manner);
            found.map(|found| found.bytes)
        });
        ends.collect()
    }

    #[test]
    fn the_readings_disagree_about_what_smugglers_send() {
        for input in [
            "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc",
            "POST / HTTP/1.1\r\nContent-Length: 2 0\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rContent-Length: 3\r\n\r\nabc",
            "GET / HTTP/1.1\r\nA: b\r\n Content-Length: 3\r\n\r\nabc",
        ] {
            let ends = ends(input);
            assert!(ends.iter().any(|end| *end != ends[0]), "{input:?}");
        }
    }
}
