//! RFC 9112 sections 2 and 3: lines, the request line, versions, methods.

use flatpath_http::Fault;
use flatpath_http::limits::{EMPTY_LINES_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX};

use crate::vectors::{body, head, refused, taken};

/// 2.2: "a recipient MAY recognize a single LF as a line terminator and ignore any preceding CR."
/// It may; here it does not, because two servers that differ in this can be played against each
/// other.
#[test]
fn s2_2_bare_line_feeds_end_no_line() {
    taken("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    refused("GET / HTTP/1.1\nHost: h\n\n", Fault::BareLineFeed, 400);
    refused("GET / HTTP/1.1\r\nHost: h\n\r\n", Fault::BareLineFeed, 400);
    refused("GET / HTTP/1.1\r\nHost: h\r\n\n", Fault::BareLineFeed, 400);
    refused(
        "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        Fault::BareLineFeed,
        400,
    );
}

/// 2.2: "A recipient of such a bare CR MUST consider that element to be invalid or replace each
/// bare CR with SP before processing the element or forwarding the message."
#[test]
fn s2_2_bare_carriage_returns_are_invalid() {
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\nA\r: b\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
    refused(
        "GET /\r HTTP/1.1\r\nHost: h\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\n\rA: b\r\n\r\n",
        Fault::BareCarriageReturn,
        400,
    );
}

/// 2.2: "a server that is expecting to receive and parse a request-line SHOULD ignore at least one
/// empty line (CRLF) received prior to the request-line."
#[test]
fn s2_2_empty_lines_before_a_request_are_ignored_up_to_a_bound() {
    for lines in 0..=EMPTY_LINES_MAX {
        taken(format!(
            "{}GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "\r\n".repeat(lines)
        ));
    }
    let too_many = "\r\n".repeat(EMPTY_LINES_MAX + 1);
    refused(
        format!("{too_many}GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        Fault::EmptyLines,
        400,
    );
}

/// 2.2: "A recipient that receives whitespace between the start-line and the first header field
/// MUST either reject the message as invalid or consume each whitespace-preceded line without
/// further processing of it".
#[test]
fn s2_2_white_space_before_the_first_header_is_rejected() {
    let fault = Fault::SpaceBeforeFirstHeader;
    refused("GET / HTTP/1.1\r\n Host: h\r\n\r\n", fault, 400);
    refused("GET / HTTP/1.1\r\n\tHost: h\r\nHost: h\r\n\r\n", fault, 400);
    refused("GET / HTTP/1.1\r\n \r\nHost: h\r\n\r\n", fault, 400);
}

/// 2.2: "the server SHOULD respond with a 400 (Bad Request) response and close the connection" when
/// it receives "a sequence of octets that does not match the HTTP-message grammar".
#[test]
fn s2_2_what_is_no_message_is_a_bad_request() {
    refused("\x16\x03\x01\x02\x00\x01", Fault::RequestLine, 400);
    refused("GET /\r\n\r\n", Fault::RequestLine, 400);
    refused(
        " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        Fault::RequestLine,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        Fault::HeaderName,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\n: no name\r\n\r\n",
        Fault::HeaderName,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\nA\0: b\r\n\r\n",
        Fault::HeaderName,
        400,
    );
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\n\"A\": b\r\n\r\n",
        Fault::HeaderName,
        400,
    );
}

/// RFC 9110 2.5: a message of a higher minor version is processed "as if it was in the highest
/// minor version within that major version to which the recipient is conformant".
#[test]
fn s2_3_later_minor_versions_are_read_as_1_1() {
    for minor in 2..=9 {
        let seen = taken(format!("\r\nGET /a HTTP/1.{minor}\r\nHost: h\r\n\r\n"));
        assert_eq!((seen.path.as_str(), seen.authority.as_str()), ("/a", "h"));
        assert!(seen.keep_alive);
    }
    assert_eq!(
        body("PUT / HTTP/1.2\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"),
        b"ab"
    );
    // The rules of 1.1 hold for them.
    refused("GET / HTTP/1.2\r\n\r\n", Fault::HostMissing, 400);
    refused(
        "GET / HTTP/1.9\r\nHost: h\r\nA : b\r\n\r\n",
        Fault::SpaceBeforeColon,
        400,
    );
}

/// 2.3: "HTTP-version is case-sensitive." RFC 9110 15.6.6: 505 is for a server that "does not
/// support, or refuses to support, the major version of HTTP".
#[test]
fn s2_3_other_major_versions_are_refused() {
    taken("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    taken("GET / HTTP/1.0\r\n\r\n");
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/3.0", "HTTP/2.2"] {
        refused(
            format!("GET / {version}\r\nHost: h\r\n\r\n"),
            Fault::Version,
            505,
        );
    }
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Fault::Version, 505);
    for version in [
        "http/1.1",
        "HTTP/1.1 ",
        "HTTP/1",
        "HTTP/1.10",
        "HTTP/01.1",
        "HTTPS/1.1",
        "1.1",
        "HTTP/1,1",
    ] {
        refused(
            format!("GET / {version}\r\nHost: h\r\n\r\n"),
            Fault::RequestLine,
            400,
        );
    }
}

/// 3: "Recipients of an invalid request-line SHOULD respond with either a 400 (Bad Request) error".
/// Single spaces, no others: "lenient parsing can result in request smuggling".
#[test]
fn s3_words_of_the_request_line_are_separated_by_one_space() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / HTTP/1.1 x",
        "GET /a b HTTP/1.1",
    ] {
        let found = head(format!("{line}\r\nHost: h\r\n\r\n")).expect_err(line);
        assert_eq!(found.status(), 400, "{line}");
    }
}

/// 3: "A server that receives a method longer than any that it implements SHOULD respond with a 501
/// (Not Implemented) status code."
#[test]
fn s3_methods_longer_than_any_are_not_implemented() {
    let longest = "X".repeat(METHOD_BYTES_MAX);
    assert_eq!(
        taken(format!("{longest} / HTTP/1.1\r\nHost: h\r\n\r\n")).method,
        longest
    );
    refused(
        format!("{longest}X / HTTP/1.1\r\nHost: h\r\n\r\n"),
        Fault::MethodTooLong,
        501,
    );
    refused("X".repeat(20_000), Fault::MethodTooLong, 501);
}

/// 3: "It is RECOMMENDED that all HTTP senders and recipients support, at a minimum, request-line
/// lengths of 8000 octets." And: "A server that receives a request-target longer than any URI it
/// wishes to parse MUST respond with a 414 (URI Too Long) status code".
#[test]
fn s3_targets_are_long_or_too_long() {
    let target = |bytes: usize| format!("/{}", "a".repeat(bytes - 1));
    let request = |bytes: usize| format!("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", target(bytes));
    assert_eq!(taken(request(8000)).path.len(), 8000);
    assert_eq!(
        taken(request(TARGET_BYTES_MAX)).path.len(),
        TARGET_BYTES_MAX
    );
    refused(request(TARGET_BYTES_MAX + 1), Fault::TargetTooLong, 414);
    refused(
        format!("GET {}", target(3 * TARGET_BYTES_MAX)),
        Fault::TargetTooLong,
        414,
    );
}
