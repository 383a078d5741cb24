//! Nothing is allocated for a request once the thread that serves it has warmed up.

use allocation_counter::measure;
use flatpath_http::{Decoder, Framing, Piece, testing};

const REQUEST: &[u8] = b"GET /a/b/c.html?d=e HTTP/1.1\r\nHost: example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n\
    X-Custom-Header: something of our own\r\nX-Another: one\r\nCookie: a=b; c=d\r\n\
    Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\n\r\n";

/// Runs `serve` until it is warm, then counts what it allocates.
fn assert_no_allocation(what: &str, mut serve: impl FnMut()) {
    for _ in 0..100 {
        serve();
    }
    let counted = measure(|| {
        for _ in 0..100 {
            serve();
        }
    });
    assert_eq!(counted.count_total, 0, "{what}: {counted:?}");
}

#[test]
fn heads_are_found_and_parsed_without_allocating() {
    assert_no_allocation("parse", || {
        let parsed = testing::with_head(REQUEST, |head| {
            assert_eq!((head.path(), head.query()), ("/a/b/c.html", Some("d=e")));
            assert!(head.value("x-another").is_some_and(|value| value == b"one"));
        });
        assert_eq!(parsed, Ok(Some(())));
    });
}

#[test]
fn bodies_are_decoded_without_allocating() {
    let body = b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: dropped\r\n\r\n";
    assert_no_allocation("decode", || {
        let mut decoder = Decoder::new(Framing::Chunked);
        let (mut rest, mut bytes) = (&body[..], 0);
        while let Piece::Data(data) = decoder.next(&mut rest).expect("valid") {
            bytes += data.len();
        }
        assert_eq!(bytes, 11);
    });
}
