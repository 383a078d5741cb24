//! From the bytes of a complete head to a [`Head`]: httparse, and every rule it leaves open.
//!
//! httparse finds the words of the lines. Around it stand: [`Scan`](crate::Scan) before (line ends,
//! lengths, counts), and here the target, the host and the framing rules (RFC 9112 sections 3, 5
//! and 6). Only when httparse refuses a head is it looked at again to name the rule it broke: that
//! path is cold.
//!
//! Does not look at bodies; see [`Decoder`](crate::Decoder).

use http::Version;

use crate::chars;
use crate::fault::Fault;
use crate::framing;
use crate::head::{Head, HeaderIndex, HeaderSlots, KnownHeader};
use crate::limits::{Limits, METHOD_BYTES_MAX};
use crate::target::{self, parse_target};

/// Parses a complete head: `input` begins with it, and [`Scan::advance`](crate::Scan::advance)
/// found that it takes `head_bytes`.
///
/// # Errors
/// The rule that was broken. The connection must end after the answer.
///
/// # Panics
/// When `input` is shorter than `head_bytes`.
pub fn parse<'a>(
    input: &'a [u8],
    head_bytes: usize,
    slots: &'a mut HeaderSlots<'a>,
    limits: &Limits,
) -> Result<Head<'a>, Fault> {
    let whole = &input[..head_bytes];
    let text = &whole[empty_lines_bytes(whole)..];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(text, &mut slots.headers) {
        Ok(httparse::Status::Complete(bytes)) if bytes == text.len() => {}
        Ok(_) => return Err(Fault::RequestLine),
        Err(error) => return Err(name_the_rule(error, text)),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Fault::RequestLine);
    };
    let version = if minor == 0 {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    };
    let headers: &'a [httparse::Header<'a>] = request.headers;
    if method.len() > METHOD_BYTES_MAX {
        return Err(Fault::MethodTooLong);
    }
    if target.len() > limits.target_bytes_max {
        return Err(Fault::TargetTooLong);
    }
    // Its target has a form of its own, and no answer but this one.
    if method == "CONNECT" {
        return Err(Fault::Tunnel);
    }
    let parsed = parse_target(method, target)?;

    let first = note_known(headers)?;
    let host = check_host(headers, &first, version)?;
    let message = framing::of_message(headers, &first, version)?;
    Ok(Head {
        method,
        target,
        form: parsed.form,
        path: parsed.path,
        // RFC 9112 3.2.2: "the origin server MUST ignore the received Host header (if any)
        // and instead use the host information of the request-target".
        authority: parsed.authority.unwrap_or(host),
        version,
        headers,
        first,
        framing: message.framing,
        keep_alive: message.keep_alive,
        expect_continue: message.expect_continue,
        bytes: head_bytes,
    })
}

/// Copies a head that [`parse`] refused for its version, with 1.1 in the stead of a later minor
/// version. RFC 9110 2.5: "A recipient that receives a message with a major version number that it
/// implements and a minor version number higher than what it implements SHOULD process the message
/// as if it was in the highest minor version within that major version to which the recipient is
/// conformant." False: it is no such head, and nothing was copied.
#[cold]
pub(crate) fn copy_as_1_1(head: &[u8], copy: &mut Vec<u8>) -> bool {
    let text_at = empty_lines_bytes(head);
    let line_bytes = memchr::memchr(b'\n', &head[text_at..]).unwrap_or_default();
    let line = &head[text_at..text_at + line_bytes];
    let [
        ..,
        b' ',
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        b'1',
        b'.',
        b'2'..=b'9',
        b'\r',
    ] = line
    else {
        return false;
    };
    copy.clear();
    copy.extend_from_slice(head);
    copy[text_at + line_bytes - 2] = b'1';
    true
}

/// Bytes of the empty lines before the request line.
fn empty_lines_bytes(head: &[u8]) -> usize {
    let mut rest = head;
    while let Some(behind) = rest.strip_prefix(b"\r\n") {
        rest = behind;
    }
    head.len() - rest.len()
}

fn note_known(headers: &[httparse::Header<'_>]) -> Result<HeaderIndex, Fault> {
    let mut first = HeaderIndex::none();
    for (index, header) in headers.iter().enumerate() {
        if let Some(known) = KnownHeader::from_name(header.name) {
            // RFC 9112 3.2: "A server MUST respond with a 400 (Bad Request) status code to ... any
            // request message that contains more than one Host header line".
            if !first.note(known, index) && known == KnownHeader::Host {
                return Err(Fault::HostTwice);
            }
        }
    }
    Ok(first)
}

fn check_host<'a>(
    headers: &'a [httparse::Header<'a>],
    first: &HeaderIndex,
    version: Version,
) -> Result<&'a str, Fault> {
    let Some(index) = first.index(KnownHeader::Host) else {
        return if version == Version::HTTP_10 {
            Ok("")
        } else {
            Err(Fault::HostMissing)
        };
    };
    target::host_and_port(headers[index].value).ok_or(Fault::HostInvalid)
}

/// Which rule a head broke that httparse refused. Cold.
#[cold]
fn name_the_rule(error: httparse::Error, text: &[u8]) -> Fault {
    let line_bytes = memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1);
    let (line, headers) = text.split_at(line_bytes);
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    if memchr::memchr(b'\r', line).is_some() {
        return Fault::BareCarriageReturn;
    }
    match (request_line_fault(line), error) {
        (Some(fault), _) => fault,
        (None, httparse::Error::TooManyHeaders) => Fault::HeadersTooMany,
        // The line has its three words, and of those only the target is not looked at above.
        (None, httparse::Error::Token) => Fault::Target,
        (None, _) => header_fault(headers),
    }
}

/// What is wrong with a request line, its target aside.
fn request_line_fault(line: &[u8]) -> Option<Fault> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next().unwrap_or_default());
    let version = words.next().unwrap_or_default();
    if !chars::is_token_word(method) || target.is_empty() || words.next().is_some() {
        return Some(Fault::RequestLine);
    }
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => None,
        // A version that could be one is refused as such, anything else as a malformed line.
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Some(Fault::Version)
        }
        _ => Some(Fault::RequestLine),
    }
}

fn header_fault(headers: &[u8]) -> Fault {
    let mut is_first = true;
    for line in headers.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        if memchr::memchr(b'\r', line).is_some() {
            return Fault::BareCarriageReturn;
        }
        if let [b' ' | b'\t', ..] = line {
            return if is_first {
                Fault::SpaceBeforeFirstHeader
            } else {
                Fault::FoldedHeader
            };
        }
        is_first = false;
        if line.is_empty() {
            break;
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return Fault::HeaderName;
        };
        let (name, value) = line.split_at(colon);
        if !chars::is_token_word(name) {
            let trimmed = name.trim_ascii_end();
            let has_space = trimmed.len() < name.len() && chars::is_token_word(trimmed);
            return if has_space {
                Fault::SpaceBeforeColon
            } else {
                Fault::HeaderName
            };
        }
        if !chars::is_header_value(value) {
            return Fault::HeaderValue;
        }
    }
    Fault::HeaderName
}
