//! RFC 9112 section 5: headers.

use flatpath_http::limits::{HEADERS_BYTES_MAX, HEADERS_MAX};
use flatpath_http::{Fault, testing};

use crate::vectors::{refused, taken, with_headers};

/// 5: "field-line = field-name ':' OWS field-value OWS". RFC 9110 5.5: "Field values containing CR,
/// LF, or NUL characters are invalid and dangerous".
#[test]
fn s5_values_lose_the_space_around_them_and_hold_no_control_characters() {
    let value = |line: &str| {
        let found = testing::with_head(with_headers(line).as_bytes(), |head| {
            head.value("a").map(<[u8]>::to_vec)
        });
        found
            .expect("valid")
            .expect("complete")
            .expect("the header is there")
    };
    assert_eq!(value("A: \t b c\t \r\n"), b"b c");
    assert_eq!(value("A:b\r\n"), b"b");
    assert_eq!(value("A:\r\n"), b"");
    assert_eq!(value("A: \t \r\n"), b"");
    assert_eq!(value("A: b\tc\r\n"), b"b\tc");
    assert_eq!(value("A: \u{e9}\r\n"), "\u{e9}".as_bytes());
    for control in ["\0", "\u{1}", "\u{b}", "\u{7f}", "\u{1b}"] {
        refused(
            with_headers(&format!("A: b{control}c\r\n")),
            Fault::HeaderValue,
            400,
        );
    }
}

/// 5.1: "A server MUST reject, with a response status code of 400 (Bad Request), any received
/// request message that contains whitespace between a header field name and colon."
#[test]
fn s5_1_space_before_the_colon_is_rejected() {
    refused(
        with_headers("Content-Length : 5\r\n"),
        Fault::SpaceBeforeColon,
        400,
    );
    refused(with_headers("A\t: b\r\n"), Fault::SpaceBeforeColon, 400);
    refused(with_headers("A b: c\r\n"), Fault::HeaderName, 400);
}

/// 5.2: "A server that receives an obs-fold in a request message that is not within a
/// 'message/http' container MUST either reject the message by sending a 400 (Bad Request), ... or
/// replace".
#[test]
fn s5_2_folded_lines_are_rejected() {
    refused(with_headers("A: b\r\n c\r\n"), Fault::FoldedHeader, 400);
    refused(with_headers("A: b\r\n\tc: d\r\n"), Fault::FoldedHeader, 400);
    refused(with_headers("A: b\r\n \r\n"), Fault::FoldedHeader, 400);
}

/// RFC 6585 5 and RFC 9110 5.4: "A server that receives a request header field line, field value,
/// or set of fields larger than it wishes to process MUST respond with an appropriate 4xx".
#[test]
fn header_sections_are_bounded_in_bytes_and_lines() {
    let filler = |bytes: usize| format!("A: {}\r\n", "v".repeat(bytes - "A: \r\n".len()));
    let room = HEADERS_BYTES_MAX - "Host: h\r\n".len();
    taken(with_headers(&filler(room)));
    refused(with_headers(&filler(room + 1)), Fault::HeadersTooLong, 431);
    taken(with_headers(&"A: b\r\n".repeat(HEADERS_MAX - 1)));
    refused(
        with_headers(&"A: b\r\n".repeat(HEADERS_MAX)),
        Fault::HeadersTooMany,
        431,
    );
}
