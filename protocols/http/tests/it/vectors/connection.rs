//! RFC 9112 section 9, RFC 9110 section 10.1.1: whether the connection continues.

use flatpath_http::{Fault, testing};

use crate::vectors::{chunked, post, refused, taken, with_headers};

/// 9.3: "If the 'close' connection option is present, the connection will not persist after the
/// current response; else, if the received protocol is HTTP/1.1 (or later), the connection will
/// persist after the current response; else, if the received protocol is HTTP/1.0, the 'keep-alive'
/// connection option is present, ... the connection will persist".
#[test]
fn s9_3_connections_persist_as_version_and_options_say() {
    let old = |headers: &str| taken(format!("GET / HTTP/1.0\r\n{headers}\r\n")).keep_alive;
    assert!(taken(with_headers("")).keep_alive);
    assert!(!taken(with_headers("Connection: close\r\n")).keep_alive);
    assert!(!taken(with_headers("Connection: keep-alive, Close\r\n")).keep_alive);
    assert!(!taken(with_headers("Connection: a\r\nConnection: close\r\n")).keep_alive);
    assert!(taken(with_headers("Connection: closer\r\n")).keep_alive);
    assert!(!old(""));
    assert!(old("Connection: Keep-Alive\r\n"));
    assert!(!old("Connection: keep-alive, close\r\n"));
}

/// 9.3.2: "A server MAY process a sequence of pipelined requests in parallel if they all have safe
/// methods, but it MUST send the corresponding responses in the same order". Here: each request
/// ends where the next begins.
#[test]
fn s9_3_2_pipelined_requests_do_not_run_into_each_other() {
    let first = chunked("5\r\nhello\r\n0\r\n\r\n");
    let second = with_headers("");
    let both = format!("{first}{second}");
    let (_, bytes) = testing::request(both.as_bytes())
        .expect("valid")
        .expect("complete");
    assert_eq!(bytes, first.len());
    let (request, _) = testing::request(&both.as_bytes()[bytes..])
        .expect("valid")
        .expect("complete");
    assert_eq!(request.method(), "GET");
}

/// RFC 9110 10.1.1: "A server that receives an Expect field value containing a member other than
/// 100-continue MAY respond with a 417 (Expectation Failed) status code". "A server that receives a
/// 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation."
#[test]
fn rfc9110_10_1_1_expectations() {
    let expects = |headers: &str| taken(post(headers, "")).expect_continue;
    assert!(expects("Expect: 100-continue\r\nContent-Length: 5\r\n"));
    assert!(expects(
        "expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n"
    ));
    assert!(
        !expects("Expect: 100-continue\r\n"),
        "there is nothing to wait for"
    );
    refused(
        post("Expect: the unexpected\r\n", ""),
        Fault::Expectation,
        417,
    );
    refused(
        post("Expect: 100-continue, x\r\n", ""),
        Fault::Expectation,
        417,
    );
    let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    assert!(!taken(old).expect_continue);
}
