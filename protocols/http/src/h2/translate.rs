//! Heads of requests, from HTTP/2 to the rest of the crate, which reads those of HTTP/1.1.
//!
//! A request becomes the text of an HTTP/1.1 head, and the crate's own parser reads it: so every
//! rule of hosts, targets, lengths and limits is told once.
//!
//! Cost: one copy of the head.

use h2::ext::Protocol;
use http::header;
use http::uri::Authority;
use http::{Method, request};

use crate::chars;
use crate::fault::Fault;

/// Whether it asks for a tunnel: extended CONNECT (RFC 8441 section 4).
pub(super) fn asks_tunnel(request: &request::Parts) -> bool {
    request.method == Method::CONNECT && request.extensions.get::<Protocol>().is_some()
}

/// Writes a request as a head of HTTP/1.1; one that asks for a tunnel as what it stands for.
///
/// # Errors
/// It names two hosts, or has no path (RFC 9113 section 8.3.1), or has a space at an end of a value
/// or a protocol that is no token (section 8.2.1): the text would hide these.
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
        if !chars::is_token_word(protocol.as_str().as_bytes()) {
            return Err(Fault::HeaderValue);
        }
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
}
