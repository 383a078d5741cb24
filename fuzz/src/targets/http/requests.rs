//! Target `http_requests`: heads and bodies through the scanner, the parser and the decoder.
//!
//! Holds of every input
//! - What is found does not depend on how the input arrives in pieces.
//! - Other readings of the same bytes (`second`), as servers and proxies with laxer rules do them,
//!   find every accepted request at the same place with the same body: nothing can be smuggled.
//! - An accepted request that is written again is accepted again and is the same.

use flatpath_http::{Decoder, Fault, Framing, Limits, Piece, Scan, testing, without_dot_segments};

use super::second::{self, Manner};
use crate::random::pieces;

/// A request that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names as they were spelled, values without the white space around them.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) keep_alive: bool,
    /// Where it ends in the input.
    pub(crate) end: usize,
}

/// What an input is, from its begin to where nothing more is read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) requests: Vec<Taken>,
    /// The rule that was broken behind them.
    pub(crate) fault: Option<Fault>,
}

/// Reads requests until the input ends, a rule is broken or a request is the last of its
/// connection; the input arrives in the given pieces.
pub(crate) fn read<'a>(input: &'a [u8], pieces: impl Iterator<Item = &'a [u8]>) -> Reading {
    let mut reading = Reading::default();
    let mut arrivals = Arrivals {
        input,
        arrived: 0,
        pieces,
    };
    let mut at = 0;
    loop {
        match take(&mut arrivals, at) {
            Ok(Some(taken)) => {
                at = taken.end;
                let goes_on = taken.keep_alive;
                reading.requests.push(taken);
                if !goes_on {
                    return reading;
                }
            }
            Ok(None) => return reading,
            Err(fault) => {
                reading.fault = Some(fault);
                return reading;
            }
        }
    }
}

struct Arrivals<'a, I> {
    input: &'a [u8],
    arrived: usize,
    pieces: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Arrivals<'a, I> {
    fn next(&mut self) -> bool {
        let more = self.pieces.next();
        self.arrived += more.map_or(0, <[u8]>::len);
        more.is_some()
    }
}

fn take<'a, I: Iterator<Item = &'a [u8]>>(
    arrivals: &mut Arrivals<'a, I>,
    from: usize,
) -> Result<Option<Taken>, Fault> {
    let limits = Limits::default();
    let mut scan = Scan::new();
    let head_bytes = loop {
        let input = &arrivals.input[from..arrivals.arrived];
        if let Some(head_bytes) = scan.advance(input, &limits)? {
            break head_bytes;
        }
        if !arrivals.next() {
            return Ok(None);
        }
    };
    let head = &arrivals.input[from..from + head_bytes];
    let found = testing::with_head(head, |head| {
        let headers = head
            .headers()
            .map(|(name, value)| (name.to_owned(), value.to_vec()));
        let taken = Taken {
            method: head.method().into(),
            target: head.target().into(),
            headers: headers.collect(),
            body: Vec::new(),
            keep_alive: head.keep_alive(),
            end: from + head_bytes,
        };
        (taken, head.framing())
    })?;
    let (mut taken, framing) = found.expect("the scan found the end of this head");
    if matches!(framing, Framing::Length(length) if length > limits.body_bytes_max) {
        return Err(Fault::BodyTooLong);
    }
    let mut decoder = Decoder::new(framing);
    loop {
        let mut rest = &arrivals.input[taken.end..arrivals.arrived];
        let piece = decoder.next(&mut rest)?;
        match piece {
            Piece::Data(data) => taken.body.extend_from_slice(data),
            Piece::More => assert!(
                rest.is_empty(),
                "input is left of which nothing is expected"
            ),
            Piece::End => {}
        }
        taken.end = arrivals.arrived - rest.len();
        let bytes = u128::from(decoder.announced()) + taken.body.len() as u128;
        if bytes > u128::from(limits.body_bytes_max) {
            return Err(Fault::BodyTooLong);
        }
        match piece {
            Piece::End => return Ok(Some(taken)),
            Piece::More if !arrivals.next() => return Ok(None),
            Piece::More | Piece::Data(_) => {}
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let whole = read(data, std::iter::once(data));
    assert_eq!(read(data, pieces(data)), whole, "pieces are read otherwise");
    let mut from = 0;
    for taken in &whole.requests {
        for manner in Manner::all() {
            let found = second::read(&data[from..], manner);
            let found = found.unwrap_or_else(|| panic!("{manner:?} reads nothing in {taken:?}"));
            assert_eq!(
                from + found.bytes,
                taken.end,
                "{manner:?} finds another end: {taken:?}"
            );
            assert_eq!(found.body, taken.body, "{manner:?} finds another body");
            assert_eq!(
                without_dots(&found.line),
                format!("{} {}", taken.method, taken.target),
                "{manner:?}"
            );
        }
        write_again(taken);
        from = taken.end;
    }
}

/// A method and a target without the dot segments of its path, which no service sees.
fn without_dots(line: &str) -> String {
    let (before, query) = line.split_at(line.find('?').unwrap_or(line.len()));
    let from = before.find(' ').map_or(0, |at| at + 1);
    let authority = match before[from..].starts_with('/') {
        true => from,
        false => before.find("://").map_or(from, |at| at + 3),
    };
    let at = before[authority..].find('/').map(|at| authority + at);
    let (begin, path) = before.split_at(at.unwrap_or(before.len()));
    let path = without_dot_segments(path).expect("it was taken");
    format!("{begin}{path}{query}")
}

/// Writes a request with its body in the plainest way and reads that.
fn write_again(taken: &Taken) {
    // An HTTP/1.0 request may have no Host, and one written as 1.1 must have it.
    let has_host = taken
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let version = if has_host { "1.1" } else { "1.0" };
    let mut bytes = format!("{} {} HTTP/{version}\r\n", taken.method, taken.target).into_bytes();
    let mut headers = taken.headers.clone();
    headers.retain(|(name, _)| {
        let is_framing = ["content-length", "transfer-encoding", "expect"];
        !is_framing
            .iter()
            .any(|framing| name.eq_ignore_ascii_case(framing))
    });
    if !taken.body.is_empty() {
        let length = taken.body.len().to_string().into_bytes();
        headers.push(("Content-Length".into(), length));
    }
    for (name, value) in &headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&taken.body);
    let again = read(&bytes, std::iter::once(&bytes[..]));
    let expected = Taken {
        headers,
        end: bytes.len(),
        keep_alive: again.requests.first().is_some_and(|again| again.keep_alive),
        ..taken.clone()
    };
    assert_eq!(again.requests, [expected], "{:?}", again.fault);
}
