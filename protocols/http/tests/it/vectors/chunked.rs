//! RFC 9112 section 7: chunked bodies.

use flatpath_http::http::HeaderValue;
use flatpath_http::{Fault, Trailers, testing};

use crate::vectors::{body, chunked, incomplete, refused};

/// 7.1: "A recipient MUST be able to parse and decode the chunked transfer coding."
#[test]
fn s7_1_chunks_are_decoded() {
    assert_eq!(
        body(chunked("4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n")),
        b"Wikipedia"
    );
    assert_eq!(
        body(chunked("a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n")).len(),
        20
    );
    assert_eq!(body(chunked("2\r\n\r\n\r\n0\r\n\r\n")), b"\r\n");
    assert_eq!(body(chunked("0\r\n\r\n")), b"");
}

/// 7.1: "chunk-size = 1*HEXDIG".
#[test]
fn s7_1_chunk_sizes_are_hexadecimal_digits() {
    for size in [
        "", " ", " 5", "5 ", "5\t", "+5", "-5", "0x5", "5_", "5h", "h", "5,5", "\u{ff15}",
    ] {
        let broken = chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n"));
        refused(broken, Fault::ChunkSize, 400);
    }
}

/// 7.1: "recipients MUST anticipate potentially large hexadecimal numerals and prevent parsing
/// errors due to integer conversion overflows or precision loss due to integer representation."
#[test]
fn s7_1_chunk_sizes_do_not_overflow() {
    incomplete(chunked("FFFFFFFFFFFFFFFF\r\nhello"));
    refused(
        chunked("10000000000000000\r\nhello"),
        Fault::ChunkSizeOverflow,
        400,
    );
    refused(
        chunked("00000000000000005\r\nhello"),
        Fault::ChunkSizeOverflow,
        400,
    );
}

/// 7.1: every chunk ends where its size says, with both characters of its line end.
#[test]
fn s7_1_chunks_end_where_they_say() {
    refused(chunked("5\r\nhello!\r\n0\r\n\r\n"), Fault::ChunkEnd, 400);
    refused(chunked("5\r\nhello0\r\n\r\n"), Fault::ChunkEnd, 400);
    refused(chunked("5\r\nhello\n0\r\n\r\n"), Fault::ChunkEnd, 400);
    refused(chunked("5\nhello\r\n0\r\n\r\n"), Fault::ChunkSize, 400);
    refused(
        chunked("5\rhello\r\n0\r\n\r\n"),
        Fault::BareCarriageReturn,
        400,
    );
    refused(chunked("0\r\n\n"), Fault::Trailer, 400);
}

/// 7.1.1: "A recipient MUST ignore unrecognized chunk extensions. A server ought to limit the total
/// length of chunk extensions received in a request to an amount reasonable for the services
/// provided".
#[test]
fn s7_1_1_extensions_are_ignored_and_bounded() {
    assert_eq!(
        body(chunked("5;a\r\nhello\r\n0;b=c;d=\"e f\"\r\n\r\n")),
        b"hello"
    );
    assert_eq!(body(chunked("5; a = b\r\nhello\r\n0\r\n\r\n")), b"hello");
    refused(
        chunked("5;\r\nhello\r\n0\r\n\r\n"),
        Fault::ChunkExtension,
        400,
    );
    refused(
        chunked("5;a\u{0}\r\nhello\r\n0\r\n\r\n"),
        Fault::ChunkExtension,
        400,
    );
    refused(
        chunked("5;a\nhello\r\n0\r\n\r\n"),
        Fault::ChunkExtension,
        400,
    );
    let one = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(8 * 1024));
    refused(chunked(&one), Fault::ChunkOverhead, 400);
    let many = format!("1;{}\r\nx\r\n", "a".repeat(1024)).repeat(64);
    refused(chunked(&many), Fault::ChunkOverhead, 400);
}

/// 7.1.2: "A recipient that removes the chunked coding from a message MAY selectively retain or
/// discard the received trailer fields." And it MUST NOT merge them blindly: they are apart, and
/// what belongs into a head is dropped.
#[test]
fn s7_1_2_trailers_are_checked_and_no_headers() {
    let input = chunked("5\r\nhello\r\n0\r\nHost: evil\r\nContent-Length: 9\r\nX: y\r\n\r\n");
    let (request, _) = testing::request(input.as_bytes())
        .expect("valid")
        .expect("complete");
    assert_eq!(request.headers()["host"], "h");
    assert!(!request.headers().contains_key("content-length"));
    assert!(!request.headers().contains_key("x"));
    let Trailers(trailers) = request.extensions().get().expect("there are some");
    assert_eq!(
        (trailers.len(), &trailers["x"]),
        (1, &HeaderValue::from_static("y"))
    );
    refused(chunked("0\r\nA : b\r\n\r\n"), Fault::Trailer, 400);
    refused(chunked("0\r\nA: b\r\n c\r\n\r\n"), Fault::Trailer, 400);
    refused(chunked("0\r\nno colon\r\n\r\n"), Fault::Trailer, 400);
    let long = format!("0\r\n{}\r\n", "A: bcdefgh\r\n".repeat(2000));
    refused(chunked(&long), Fault::TrailerTooLong, 431);
}
