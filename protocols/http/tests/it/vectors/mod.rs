//! One vector per rule of RFC 9112 that concerns a server: what it asks, what is taken and what is
//! refused, and with which status.
//!
//! The sentences are the RFC's own. A vector that is taken names the part of the result that
//! shows it; one that is refused names the fault.

mod lines;
mod target;
mod headers;
mod framing;
mod chunked;
mod connection;

use flatpath_http::{Fault, Framing, TargetForm, testing};

/// What of a request a vector looks at.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: String,
    form: TargetForm,
    path: String,
    authority: String,
    framing: Framing,
    keep_alive: bool,
    expect_continue: bool,
}

fn head(input: impl AsRef<[u8]>) -> Result<Option<Seen>, Fault> {
    testing::with_head(input.as_ref(), |head| Seen {
        method: head.method().to_owned(),
        form: head.form(),
        path: head.path().to_owned(),
        authority: head.authority().to_owned(),
        framing: head.framing(),
        keep_alive: head.keep_alive(),
        expect_continue: head.expect_continue(),
    })
}

/// The head is complete and obeys every rule.
fn taken(input: impl AsRef<[u8]>) -> Seen {
    let shown =
        String::from_utf8_lossy(&input.as_ref()[..input.as_ref().len().min(200)]).into_owned();
    head(input)
        .unwrap_or_else(|fault| panic!("refused ({fault:?}): {shown:?}"))
        .unwrap_or_else(|| panic!("incomplete: {shown:?}"))
}

/// The request breaks a rule, in its head or in its body.
fn refused(input: impl AsRef<[u8]>, fault: Fault, status: u16) {
    let input = input.as_ref();
    let shown = String::from_utf8_lossy(&input[..input.len().min(200)]);
    let found = testing::request(input)
        .err()
        .unwrap_or_else(|| panic!("taken: {shown:?}"));
    assert_eq!(found, fault, "{shown:?}");
    assert_eq!(found.status().as_u16(), status, "{shown:?}");
}

/// The body of a complete request.
fn body(input: impl AsRef<[u8]>) -> Vec<u8> {
    let (request, bytes) = testing::request(input.as_ref())
        .expect("a valid request")
        .expect("a complete request");
    assert_eq!(
        bytes,
        input.as_ref().len(),
        "all of it belongs to the request"
    );
    request
        .body()
        .as_bytes()
        .expect("request bodies are in memory")
        .to_vec()
}

fn incomplete(input: impl AsRef<[u8]>) {
    assert!(
        testing::request(input.as_ref())
            .expect("valid so far")
            .is_none()
    );
}

fn with_headers(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{headers}\r\n")
}

fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}
