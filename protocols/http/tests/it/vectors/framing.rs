//! RFC 9112 sections 6 and 8: where bodies end.

use flatpath_http::{Fault, Framing};

use crate::vectors::{body, chunked, incomplete, post, refused, taken};

/// 6.1: "A server MAY reject a request that contains both Content-Length and Transfer-Encoding".
#[test]
fn s6_1_length_and_coding_exclude_each_other() {
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
    refused(post(both, "0\r\n\r\n"), Fault::LengthAndCoding, 400);
    let turned = "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n";
    refused(post(turned, "0\r\n\r\n"), Fault::LengthAndCoding, 400);
}

/// 6.1: "A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding header
/// field MUST treat the message as if the framing is faulty, even if a Content-Length is present,
/// and close the connection".
#[test]
fn s6_1_http_1_0_has_no_codings() {
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused(old, Fault::CodingInOldVersion, 400);
}

/// 6.1: "A server that receives a request message with a transfer coding it does not understand
/// SHOULD respond with 501 (Not Implemented)."
#[test]
fn s6_1_unknown_codings_are_not_implemented() {
    refused(
        post("Transfer-Encoding: gzip, chunked\r\n", ""),
        Fault::CodingUnknown,
        501,
    );
    let lines = "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n";
    refused(post(lines, ""), Fault::CodingUnknown, 501);
}

/// 6.3: "If a Transfer-Encoding header field is present in a request and the chunked transfer
/// coding is not the final encoding, the message body length cannot be determined reliably; the
/// server MUST respond with the 400 (Bad Request) status code and then close the connection." 6.1:
/// "A sender MUST NOT apply the chunked transfer coding more than once to a message body".
#[test]
fn s6_3_chunked_is_the_last_coding_and_there_once() {
    assert_eq!(taken(chunked("")).framing, Framing::Chunked);
    assert_eq!(
        taken(post("transfer-encoding:\tChunked \r\n", "")).framing,
        Framing::Chunked
    );
    let values = [
        "gzip",
        "chunked, gzip",
        "identity",
        "",
        "chunked, chunked",
        "xchunked",
        "chunkedx",
        "\"chunked\"",
        "chunked;q=1",
        "chunked,",
        ",chunked",
        "chunked chunked",
        "\u{b}chunked",
    ];
    for value in values {
        let fault = if value.contains('\u{b}') {
            Fault::HeaderValue
        } else {
            Fault::CodingOrder
        };
        refused(
            post(&format!("Transfer-Encoding: {value}\r\n"), ""),
            fault,
            400,
        );
    }
}

/// 6.3: "If a message is received without Transfer-Encoding and with an invalid Content-Length
/// header field, then the message framing is invalid and the recipient MUST treat it as an
/// unrecoverable error".
#[test]
fn s6_3_invalid_lengths_are_unrecoverable() {
    let values = [
        "",
        "+5",
        "-5",
        "0x5",
        "5_0",
        "5 5",
        "5.",
        "5,",
        ",5",
        "five",
        "5;5",
        "\u{661}",
        "18446744073709551616",
        "5, 6",
        "5, five",
    ];
    for value in values {
        refused(
            post(&format!("Content-Length: {value}\r\n"), "hello"),
            Fault::Length,
            400,
        );
    }
    let different = "Content-Length: 5\r\nContent-Length: 6\r\n";
    refused(post(different, "hello!"), Fault::Length, 400);
}

/// 6.3: "... unless the field value can be successfully parsed as a comma-separated list, all
/// values in the list are valid, and all values in the list are the same (in which case, the
/// message is processed with that single value used as the Content-Length field value)."
#[test]
fn s6_3_a_list_of_the_same_length_is_that_length() {
    assert_eq!(body(post("Content-Length: 5\r\n", "hello")), b"hello");
    assert_eq!(body(post("Content-Length: 5, 5,5\r\n", "hello")), b"hello");
    assert_eq!(
        body(post("Content-Length: 5\r\ncontent-length: 5\r\n", "hello")),
        b"hello"
    );
    assert_eq!(body(post("Content-Length: 0\r\n", "")), b"");
}

/// 6.3: "If this is a request message and none of the above are true, then the message body length
/// is zero (no message body is present)."
#[test]
fn s6_3_a_request_without_length_has_no_body() {
    assert_eq!(taken(post("", "")).framing, Framing::Empty);
    assert_eq!(body(post("", "")), b"");
}

/// 8: "A server that receives an incomplete request message ... MAY send an error response before
/// closing": it is never taken for a complete one.
#[test]
fn s8_a_short_body_is_incomplete() {
    incomplete(post("Content-Length: 5\r\n", "hell"));
    for cut in [
        "5\r\nhell",
        "5\r\nhello",
        "5\r\nhello\r\n",
        "5\r\nhello\r\n0\r\n",
        "5\r\nhello\r\n0\r\n\r",
    ] {
        incomplete(chunked(cut));
    }
}
