//! Heads between HTTP/2 and the rest of the crate, which reads and writes those of HTTP/1.1.
//!
//! A request becomes the text of an HTTP/1.1 head, and the crate's own parser reads it: so every
//! rule of hosts, targets, lengths and limits is told once. A reply that was written as a head of
//! HTTP/1.1 is taken apart again. What only one connection means (RFC 9113 section 8.2.2) is left
//! out.
//!
//! Cost: one copy of the head each way. A reply's names and values are slices of that copy, as `h2`
//! keeps some of them in its table while the connection lasts: a buffer would last as long.

use std::sync::LazyLock;

use bytes::Bytes;
use h2::ext::Protocol;
use http::header::{self, HeaderValue};
use http::uri::Authority;
use http::{Method, Response, StatusCode, Version, request};
use memchr::memmem::Finder;

use crate::encode;
use crate::fault::Fault;
use crate::names::Names;

static END_OF_HEAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// Headers of a reply for which there is room at once: as many as one of a file has.
const HEADERS_USUAL: usize = 12;

/// Whether it asks for a tunnel: extended CONNECT (RFC 8441 section 4).
pub(super) fn asks_tunnel(request: &request::Parts) -> bool {
    request.method == Method::CONNECT && request.extensions.get::<Protocol>().is_some()
}

/// Writes a request as a head of HTTP/1.1; one that asks for a tunnel as what it stands for.
///
/// # Errors
/// It names two hosts, or has no path (RFC 9113 section 8.3.1), or has a space at an end of a value
/// (section 8.2.1): the text would hide both.
pub(super) fn request_head(out: &mut Vec<u8>, request: &request::Parts) -> Result<(), Fault> {
    let uri = &request.uri;
    let authority = uri.authority().map(Authority::as_str);
    let tunnel = request.extensions.get::<Protocol>();
    let tunnel = tunnel.filter(|_| request.method == Method::CONNECT);
    if request.method != Method::CONNECT && uri.path().is_empty() {
        return Err(Fault::Target);
    }
    let (method, target) = match (uri.path_and_query(), tunnel) {
        (Some(target), Some(_)) => ("GET", target.as_str()),
        (Some(target), None) if request.method != Method::CONNECT => {
            (request.method.as_str(), target.as_str())
        }
        _ => (request.method.as_str(), authority.unwrap_or_default()),
    };
    for word in [method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(word.as_bytes());
    }
    if let Some(protocol) = tunnel {
        line(out, "connection", b"Upgrade");
        line(out, "upgrade", protocol.as_str().as_bytes());
    }
    if let Some(authority) = authority {
        line(out, "host", authority.as_bytes());
    }
    for (name, value) in &request.headers {
        if value.as_bytes().trim_ascii().len() != value.len() {
            return Err(Fault::HeaderValue);
        }
        match (name, authority) {
            (&header::HOST, Some(authority)) => {
                if !value.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) {
                    return Err(Fault::HostTwice);
                }
            }
            (&header::COOKIE, _) => {}
            _ => line(out, name.as_str(), value.as_bytes()),
        }
    }
    // RFC 9113 8.2.3: "If there are multiple Cookie header fields after decompression, these MUST
    // be concatenated into a single octet string using the two-octet delimiter of 0x3b, 0x20".
    let mut cookies = request.headers.get_all(header::COOKIE).iter();
    if let Some(first) = cookies.next() {
        out.extend_from_slice(b"cookie: ");
        out.extend_from_slice(first.as_bytes());
        for cookie in cookies {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(cookie.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// One header line. The parser looks at it.
fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for word in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(word);
    }
}

/// Takes a reply apart, as this crate or a service has written it: its head, and what follows that.
/// `None`: it is not a reply.
pub(super) fn response(reply: &Bytes, names: &mut Names) -> Option<(Response<()>, Bytes)> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(encode::status_of(reply)).ok()?;
    *response.version_mut() = Version::HTTP_2;
    let end_of_head = END_OF_HEAD.find(reply)? + 4;
    let head = Bytes::copy_from_slice(&reply[..end_of_head]);
    response.headers_mut().try_reserve(HEADERS_USUAL).ok()?;
    let mut at = memchr::memchr(b'\n', &head)? + 1;
    loop {
        let end = at + memchr::memchr(b'\r', &head[at..])?;
        let line = &head[at..end];
        at = end + 2;
        if line.is_empty() {
            return Some((response, reply.slice(end_of_head..)));
        }
        let colon = memchr::memchr(b':', line)?;
        let name = names.name(std::str::from_utf8(&line[..colon]).ok()?)?;
        if is_of_connection(&name) {
            continue;
        }
        let value = head.slice_ref(line[colon + 1..].trim_ascii());
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        response.headers_mut().try_append(name, value).ok()?;
    }
}

/// RFC 9113 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing connection-specific
/// header fields."
fn is_of_connection(name: &header::HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Uri, uri};

    fn head(request: &mut request::Builder) -> Result<String, Fault> {
        let request = std::mem::take(request).body(()).expect("a request");
        let mut out = Vec::new();
        request_head(&mut out, &request.into_parts().0)?;
        Ok(String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn a_request_becomes_the_head_of_http_1() {
        let mut request = Request::builder()
            .uri("https://h:1/a?b")
            .header("cookie", "a=1")
            .header("x", "y")
            .header("cookie", "b=2")
            .header("host", "H:1");
        let expected = "GET /a?b HTTP/1.1\r\nhost: h:1\r\nx: y\r\ncookie: a=1; b=2\r\n\r\n";
        assert_eq!(head(&mut request).as_deref(), Ok(expected));
    }

    #[test]
    fn two_hosts_are_refused() {
        let mut request = Request::builder().uri("https://h/").header("host", "g");
        assert_eq!(head(&mut request), Err(Fault::HostTwice));
    }

    #[test]
    fn what_the_text_would_hide_is_refused() {
        for value in [" y", "y ", "\ty", "y\t", " "] {
            for name in ["x", "cookie", "host"] {
                let mut request = Request::builder().uri("https://h/").header(name, value);
                assert_eq!(head(&mut request), Err(Fault::HeaderValue), "{name}");
            }
        }
        let no_path = Uri::from_parts(uri::Parts::default()).expect("a URI of nothing");
        for (method, refused) in [("GET", true), ("OPTIONS", true), ("CONNECT", false)] {
            let mut request = Request::builder().method(method).uri(no_path.clone());
            let said = head(&mut request);
            assert_eq!(said == Err(Fault::Target), refused, "{method}: {said:?}");
        }
    }

    #[test]
    fn a_reply_is_taken_apart_and_loses_what_its_connection_means() {
        let reply = Bytes::from_static(
            b"HTTP/1.1 404 Not Found\r\nETag: \"x\"\r\nVary: \r\nVary: b\r\nConnection: close\r\n\
            Transfer-Encoding: chunked\r\nKeep-Alive: 1\r\nContent-Length: 2\r\n\r\nno",
        );
        let (response, body) = response(&reply, &mut Names::new()).expect("a reply");
        assert_eq!(response.status(), 404);
        let mut headers: Vec<_> = response.headers().iter().collect();
        headers.sort_by_key(|(name, _)| name.as_str().to_owned());
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("content-length", b"2"),
            ("etag", b"\"x\""),
            ("vary", b""),
            ("vary", b"b"),
        ];
        assert_eq!(headers, expected);
        assert_eq!(body, "no");
    }
}
