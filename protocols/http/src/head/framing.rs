//! What a request's headers say about the message: which host it is for, how its body is
//! delimited, whether its connection continues (RFC 9112 sections 3.2, 6 and 9.3, RFC 9110
//! section 10.1.1).
//!
//! This is where requests are smuggled when two servers read differently, so wherever the RFC
//! leaves a choice between repairing and refusing, this module refuses.

use http::Version;

use crate::head::fault::Fault;
use crate::head::target;
use crate::head::{Framing, HeaderIndex, KnownHeader};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) first: HeaderIndex,
    /// Text. Empty when an HTTP/1.0 client named none.
    pub(crate) host: &'a [u8],
    /// It is the one that was known before.
    pub(crate) host_is_known: bool,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) asks_upgrade: bool,
    pub(crate) expect_continue: bool,
}

type Headers<'a> = [httparse::Header<'a>];

/// `known_host` was found to be valid before.
pub(crate) fn of_message<'a>(
    headers: &Headers<'a>,
    version: Version,
    known_host: &str,
) -> Result<Message<'a>, Fault> {
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
    let is_old = version == Version::HTTP_10;
    let (host, host_is_known) = match first.index(KnownHeader::Host) {
        Some(index) => host(headers[index].value, known_host).ok_or(Fault::HostInvalid)?,
        None if is_old => (&[][..], false),
        None => return Err(Fault::HostMissing),
    };
    let coding = first.index(KnownHeader::TransferEncoding);
    let length = first.index(KnownHeader::ContentLength);
    let framing = match (coding, length) {
        (None, None) => Framing::Empty,
        (None, Some(index)) => content_length(headers, index)?,
        // RFC 9112 6.1: "A server MAY reject a request that contains both Content-Length and
        // Transfer-Encoding". Taking it means to close after it anyway.
        (Some(_), Some(_)) => return Err(Fault::LengthAndCoding),
        // "A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding
        // header MUST treat the message as if the framing is faulty".
        (Some(_), None) if is_old => return Err(Fault::CodingInOldVersion),
        (Some(index), None) => transfer_coding(headers, index)?,
    };
    let (keep_alive, asks_upgrade) = match first.index(KnownHeader::Connection) {
        None => (!is_old, false),
        Some(index) => connection_options(headers, index, is_old),
    };
    let expect_continue = match first.index(KnownHeader::Expect) {
        // RFC 9110 10.1.1: "A server that receives a 100-continue expectation in an HTTP/1.0
        // request MUST ignore that expectation."
        Some(index) if !is_old => {
            check_expectations(headers, index)?;
            framing != Framing::Empty
        }
        _ => false,
    };
    Ok(Message {
        first,
        host,
        host_is_known,
        framing,
        keep_alive,
        asks_upgrade,
        expect_continue,
    })
}

/// A host and its port, and whether they are those that are known: most clients name the same one
/// again and again.
fn host<'a>(value: &'a [u8], known: &str) -> Option<(&'a [u8], bool)> {
    let is_known = !value.is_empty() && value == known.as_bytes();
    (is_known || target::host_and_port(value).is_some()).then_some((value, is_known))
}

/// The values of one header, from the index of its first line on.
fn lines<'a>(headers: &'a Headers<'a>, index: usize) -> impl Iterator<Item = &'a [u8]> {
    let name = headers[index].name;
    let same = move |header: &&httparse::Header<'a>| header.name.eq_ignore_ascii_case(name);
    headers[index..]
        .iter()
        .filter(same)
        .map(|header| header.value)
}

/// The elements of the lists of one header, from the index of its first line on.
fn elements<'a>(headers: &'a Headers<'a>, index: usize) -> impl Iterator<Item = &'a [u8]> {
    lines(headers, index)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(trim_white_space)
}

/// `OWS` is space and tab, nothing else.
fn trim_white_space(mut word: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = word {
        word = rest;
    }
    word
}

/// RFC 9112 6.3: "If a message is received without Transfer-Encoding and with an invalid
/// Content-Length header, then the message framing is invalid and the recipient MUST treat it
/// as an unrecoverable error, unless the header value can be successfully parsed as a
/// comma-separated list, all values in the list are valid, and all values in the list are the
/// same".
pub(crate) fn content_length(headers: &Headers<'_>, index: usize) -> Result<Framing, Fault> {
    let mut agreed = None;
    for element in elements(headers, index) {
        let length = decimal(element).ok_or(Fault::Length)?;
        if *agreed.get_or_insert(length) != length {
            return Err(Fault::Length);
        }
    }
    match agreed {
        None => Err(Fault::Length),
        Some(0) => Ok(Framing::Empty),
        Some(length) => Ok(Framing::Length(length)),
    }
}

/// `1*DIGIT`, where language libraries would also take a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// RFC 9112 6.3: "If a Transfer-Encoding header is present in a request and the chunked
/// transfer coding is not the final encoding, the message body length cannot be determined
/// reliably; the server MUST respond with the 400 (Bad Request) status code and then close the
/// connection." Empty list elements, which lists may have, are refused here: no client sends them.
pub(crate) fn transfer_coding(headers: &Headers<'_>, index: usize) -> Result<Framing, Fault> {
    let mut chunked_count = 0;
    let mut is_last = false;
    let mut others = 0;
    for element in elements(headers, index) {
        if element.is_empty() {
            return Err(Fault::CodingOrder);
        }
        is_last = element.eq_ignore_ascii_case(b"chunked");
        if is_last {
            chunked_count += 1;
        } else {
            others += 1;
        }
    }
    match (is_last, chunked_count, others) {
        (true, 1, 0) => Ok(Framing::Chunked),
        (true, 1, _) => Err(Fault::CodingUnknown),
        _ => Err(Fault::CodingOrder),
    }
}

/// Whether the connection persists, and whether an upgrade is asked for, which HTTP/1.0 does not
/// know (RFC 9110 7.8). RFC 9112 9.3, in its order: `close` wins, HTTP/1.1 continues by default,
/// HTTP/1.0 when asked to.
pub(crate) fn connection_options(
    headers: &Headers<'_>,
    index: usize,
    is_old: bool,
) -> (bool, bool) {
    let (mut closes, mut persists, mut asks_upgrade) = (false, !is_old, false);
    for option in elements(headers, index) {
        closes |= option.eq_ignore_ascii_case(b"close");
        persists |= option.eq_ignore_ascii_case(b"keep-alive");
        asks_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
    }
    (persists && !closes, asks_upgrade && !is_old)
}

fn check_expectations(headers: &Headers<'_>, index: usize) -> Result<(), Fault> {
    for expectation in elements(headers, index) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(Fault::Expectation);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(lines: &[(&'static str, &'static str)]) -> Result<Framing, Fault> {
        message(lines, Version::HTTP_11).map(|message| message.framing)
    }

    fn message(
        lines: &[(&'static str, &'static str)],
        version: Version,
    ) -> Result<Message<'static>, Fault> {
        let headers: Vec<_> = lines
            .iter()
            .chain(&[("Host", "h")])
            .map(|(name, value)| httparse::Header {
                name,
                value: value.as_bytes(),
            })
            .collect();
        of_message(&headers, version, "")
    }

    #[test]
    fn lengths_are_digits_and_lists_must_agree() {
        let of = |value| framing(&[("Content-Length", value)]);
        assert_eq!(of("5"), Ok(Framing::Length(5)));
        assert_eq!(of("005"), Ok(Framing::Length(5)));
        assert_eq!(of("0"), Ok(Framing::Empty));
        assert_eq!(of("5, 5"), Ok(Framing::Length(5)));
        assert_eq!(of("18446744073709551615"), Ok(Framing::Length(u64::MAX)));
        let wrong = [
            "", "+5", "-5", "0x5", "5_0", "5 0", "5,6", "5,", ",5", "5.0", "5;a", "五",
        ];
        for value in wrong
            .into_iter()
            .chain(["18446744073709551616", "99999999999999999999999"])
        {
            assert_eq!(of(value), Err(Fault::Length), "{value}");
        }
        assert_eq!(
            framing(&[("Content-Length", "5"), ("content-length", "5")]),
            of("5")
        );
        let different = [("Content-Length", "5"), ("A", "b"), ("content-length", "6")];
        assert_eq!(framing(&different), Err(Fault::Length));
    }

    #[test]
    fn chunked_is_the_last_and_only_coding() {
        let of = |value| framing(&[("Transfer-Encoding", value)]);
        assert_eq!(of("chunked"), Ok(Framing::Chunked));
        assert_eq!(of("CHUNKED"), Ok(Framing::Chunked));
        assert_eq!(of("gzip, chunked"), Err(Fault::CodingUnknown));
        for value in [
            "",
            "gzip",
            "chunked, gzip",
            "chunked, chunked",
            "identity",
            "xchunked",
        ] {
            assert_eq!(of(value), Err(Fault::CodingOrder), "{value}");
        }
        for value in [
            "chunked;a=b",
            "\"chunked\"",
            "chunked chunked",
            ",chunked",
            "chunked,",
        ] {
            assert_eq!(of(value), Err(Fault::CodingOrder), "{value}");
        }
        let twice = [
            ("Transfer-Encoding", "chunked"),
            ("Transfer-Encoding", "chunked"),
        ];
        assert_eq!(framing(&twice), Err(Fault::CodingOrder));
    }

    #[test]
    fn connections_persist_as_version_and_options_say() {
        let persists = |value, version| {
            message(&[("Connection", value)], version).map(|message| message.keep_alive)
        };
        assert_eq!(persists("keep-alive", Version::HTTP_10), Ok(true));
        assert_eq!(persists("upgrade, Keep-Alive", Version::HTTP_10), Ok(true));
        assert_eq!(persists("keep-alive, close", Version::HTTP_10), Ok(false));
        assert_eq!(persists("upgrade", Version::HTTP_10), Ok(false));
        assert_eq!(persists("CLOSE", Version::HTTP_11), Ok(false));
        assert_eq!(persists("upgrade,\tclose", Version::HTTP_11), Ok(false));
        assert_eq!(persists("closed", Version::HTTP_11), Ok(true));
        assert_eq!(
            message(&[], Version::HTTP_10).map(|message| message.keep_alive),
            Ok(false)
        );
        assert_eq!(
            message(&[], Version::HTTP_11).map(|message| message.keep_alive),
            Ok(true)
        );
    }

    #[test]
    fn an_upgrade_is_an_option_of_the_connection_and_of_http_11() {
        let asks = |value, version| {
            message(&[("Connection", value)], version).map(|message| message.asks_upgrade)
        };
        for value in ["upgrade", "close, Upgrade", "keep-alive,\tUPGRADE ,"] {
            assert_eq!(asks(value, Version::HTTP_11), Ok(true), "{value}");
            assert_eq!(asks(value, Version::HTTP_10), Ok(false), "{value}");
        }
        for value in ["upgrades", "keep-alive", "close"] {
            assert_eq!(asks(value, Version::HTTP_11), Ok(false), "{value}");
        }
        let later = [("Connection", "keep-alive"), ("Connection", "upgrade")];
        let asks = message(&later, Version::HTTP_11).map(|message| message.asks_upgrade);
        assert_eq!(asks, Ok(true));
    }

    #[test]
    fn a_known_host_is_the_same_to_the_letter_and_not_empty() {
        assert_eq!(host(b"h:80", "h:80"), Some((&b"h:80"[..], true)));
        for known in ["", "h", "H:80", "h:8080"] {
            assert_eq!(host(b"h:80", known), Some((&b"h:80"[..], false)), "{known}");
        }
        assert_eq!(host(b"", ""), None);
    }

    #[test]
    fn an_expectation_without_a_body_needs_no_answer() {
        let expects =
            |lines: &[_], version| message(lines, version).map(|message| message.expect_continue);
        let both = [("Expect", "100-Continue"), ("Content-Length", "1")];
        assert_eq!(expects(&both, Version::HTTP_11), Ok(true));
        assert_eq!(expects(&both[..1], Version::HTTP_11), Ok(false));
        assert_eq!(expects(&both, Version::HTTP_10), Ok(false));
        assert_eq!(
            expects(&[("Expect", "x")], Version::HTTP_11),
            Err(Fault::Expectation)
        );
        assert_eq!(expects(&[("Expect", "x")], Version::HTTP_10), Ok(false));
    }
}
