//! From the bytes of a complete head to a [`Head`]: httparse, and every rule it leaves open.
//!
//! httparse finds the words of the lines. [`Scan`](crate::Scan) has checked line ends, lengths and
//! counts before; here follow the target, the host and the framing rules (RFC 9112 sections 3, 5
//! and 6). Only when httparse refuses a head is it looked at again, to name the rule it broke.

use std::cell::Cell;

use http::Version;

use crate::head::chars;
use crate::head::dots;
use crate::head::fault::Fault;
use crate::head::framing;
use crate::head::scan::{Scan, empty_lines_bytes};
use crate::head::target::parse_target;
use crate::head::{Head, HeaderSlots, header_slots};
use crate::limits::{Limits, METHOD_BYTES_MAX};

/// Parses a complete head. The connection must end after the answer to a head that breaks a rule,
/// which is for [`parse_mended`] to judge. `known_host` obeys the rules: it is of an earlier head,
/// or empty.
pub(crate) fn parse<'a>(
    head: &'a [u8],
    slots: &'a mut HeaderSlots<'a>,
    limits: &Limits,
    known_host: &str,
) -> Result<Head<'a>, Fault> {
    let text = &head[empty_lines_bytes(head)..];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(text, slots) {
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
    let message = framing::of_message(headers, version, known_host)?;
    Ok(Head {
        method,
        target,
        spelled: target,
        form: parsed.form,
        // RFC 9112 3.2.2: "the origin server MUST ignore the received Host header (if any)
        // and instead use the host information of the request-target".
        authority: parsed.authority.map_or(message.host, str::as_bytes),
        host_is_known: message.host_is_known && parsed.authority.is_none(),
        path: parsed.path,
        query: parsed.query,
        version,
        headers,
        first: message.first,
        framing: message.framing,
        keep_alive: message.keep_alive,
        asks_upgrade: message.asks_upgrade,
        expect_continue: message.expect_continue,
        bytes: head.len(),
        mount: "",
        route: None,
        peer: None,
        tls: None,
        site: None,
        notes: Cell::default(),
    })
}

/// The same for a head that [`parse`] has refused: as `mended`, if that is all that is wrong with
/// it, without the dot segments of its target and as one of 1.1.
///
/// # Errors
/// What is wrong with it; [`Fault::DotSegments`]: they lead above the root.
#[cold]
pub(crate) fn parse_mended<'a>(
    (head, mended): (&'a [u8], &'a mut Vec<u8>),
    fault: Fault,
    slots: &'a mut HeaderSlots<'a>,
    limits: &Limits,
    known_host: &str,
) -> Result<Head<'a>, Fault> {
    match fault {
        Fault::DotSegments => {}
        Fault::Version if later_minor(head).is_some() => {}
        fault => return Err(fault),
    }
    let spelled = dots::remove_from_head(head, mended)?;
    if let Some(at) = later_minor(mended) {
        mended[at] = b'1';
    }
    let parsed = parse(mended, slots, limits, known_host)?;
    Ok(Head {
        spelled,
        bytes: head.len(),
        ..parsed
    })
}

/// Where the minor version of a request line is, if that is one from 1.2 to 1.9. RFC 9110 2.5: "A
/// recipient that receives a message with a major version number that it implements and a minor
/// version number higher than what it implements SHOULD process the message as if it was in the
/// highest minor version within that major version to which the recipient is conformant."
fn later_minor(head: &[u8]) -> Option<usize> {
    let from = empty_lines_bytes(head);
    let line_bytes = memchr::memchr(b'\r', &head[from..])?;
    let (before, minor) =
        head[from..][..line_bytes].split_at_checked(line_bytes.checked_sub(1)?)?;
    let is_later = before.ends_with(b" HTTP/1.") && matches!(minor, [b'2'..=b'9']);
    is_later.then_some(from + before.len())
}

/// Which rule a head broke that httparse refused.
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

/// Calls `use_head` with the head that `input` begins with; None when it is not complete.
///
/// # Errors
/// The rule that the head breaks.
pub fn with_head<T>(
    input: &[u8],
    use_head: impl FnOnce(&Head<'_>) -> T,
) -> Result<Option<T>, Fault> {
    let (limits, mut scan) = (Limits::default(), Scan::new());
    let Some(bytes) = scan.advance(input, &limits)? else {
        return Ok(None);
    };
    let (text, mut slots) = (&input[..bytes], header_slots());
    let fault = match parse(text, &mut slots, &limits, "") {
        Ok(head) => return Ok(Some(use_head(&head))),
        Err(fault) => fault,
    };
    let (mut mended, mut slots) = (Vec::new(), header_slots());
    let head = parse_mended((text, &mut mended), fault, &mut slots, &limits, "")?;
    Ok(Some(use_head(&head)))
}
