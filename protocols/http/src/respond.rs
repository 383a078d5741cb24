//! The head of a reply from a response of the http crate.
//!
//! Its folder has replies until they leave: what handlers return ([`into_response`],
//! [`file_body`]), replies of the network thread ([`reply`]), heads as bytes ([`encode`], [`sink`],
//! [`words`], [`prebuilt`], [`date`]), and a reply on its way ([`outgoing`]). What answers may use
//! it; it writes to no socket.

pub(crate) mod reply;
pub(crate) mod outgoing;
pub(crate) mod encode;
pub(crate) mod sink;
pub(crate) mod words;
pub(crate) mod prebuilt;
pub(crate) mod date;
pub(crate) mod into_response;
pub(crate) mod file_body;
pub(crate) mod carried;

use http::response::Parts;
use http::{StatusCode, header};

use crate::head::{RequestMeta, Spoken};
use crate::header_values::elements;
use crate::message::Body;
use crate::respond::encode::{HeadOut, ReplyFraming};
use crate::respond::sink::Sink;
use crate::takeover::upgrade;
use crate::trailers::LateTrailers;

/// What follows a head that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenHead {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    /// `None` where no body follows.
    pub(crate) body: Option<ReplyFraming>,
}

/// Writes status and headers, framing headers included, without what
/// [`end_of_head`](encode::end_of_head) adds.
pub(crate) fn head(
    out: &mut impl Sink,
    parts: &Parts,
    body: &Body,
    request: RequestMeta,
) -> WrittenHead {
    let status = match parts.status {
        // The engine sends 100 by itself.
        status if status.is_informational() && !upgrade::is_made(parts) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        status => status,
    };
    let mut head = HeadOut::begin(out, request.spoken, status);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        head.spelled(b"Connection", b"Upgrade");
    }
    for (name, value) in &parts.headers {
        if !encode::is_ours(name.as_str().as_bytes()) {
            head.field(name, value);
        }
    }
    let length = match body {
        Body::Channel(_) => stated_length(parts),
        body => body.length(),
    };
    let trailing = LateTrailers::of(parts, request).filter(|_| may_have_body(status));
    let framing = match (status, length) {
        (StatusCode::NO_CONTENT | StatusCode::SWITCHING_PROTOCOLS, _) => None,
        // RFC 9110 8.6 lets a 304 state the length that a 200 would have.
        (StatusCode::NOT_MODIFIED, _) => stated_length(parts).map(ReplyFraming::Length),
        (StatusCode::RESET_CONTENT, _) => Some(ReplyFraming::Length(0)),
        // A handler may answer HEAD with the body of GET, or with its length alone.
        (_, Some(0)) if request.is_head => {
            Some(ReplyFraming::Length(stated_length(parts).unwrap_or(0)))
        }
        // A client may read no further than a length.
        (_, Some(length)) if trailing.is_none() => Some(ReplyFraming::Length(length)),
        _ if request.spoken == Spoken::Http11 => Some(ReplyFraming::Chunked),
        _ => Some(ReplyFraming::CloseDelimited),
    };
    match framing {
        Some(ReplyFraming::Length(length)) => head.length(length),
        Some(ReplyFraming::Chunked) => head.spelled(b"Transfer-Encoding", b"chunked"),
        Some(ReplyFraming::CloseDelimited) | None => {}
    }
    if let Some(trailing) = trailing {
        trailing.announce(&mut head);
    }
    let body = framing.filter(|_| !request.is_head && may_have_body(status));
    let is_delimited = body != Some(ReplyFraming::CloseDelimited);
    WrittenHead {
        status: status.as_u16(),
        keep_alive: request.keep_alive && !asks_to_close(parts) && is_delimited,
        body,
    }
}

/// RFC 9110 sections 6.4.1 and 15.3.6.
fn may_have_body(status: StatusCode) -> bool {
    !matches!(
        status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
    )
}

/// Whether the handler wants the connection to end after its response.
fn asks_to_close(parts: &Parts) -> bool {
    parts
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .any(|value| elements(value.as_bytes()).any(|option| option.eq_ignore_ascii_case(b"close")))
}

/// The `Content-Length` that the handler wrote by itself.
fn stated_length(parts: &Parts) -> Option<u64> {
    parts
        .headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Response;

    const META: RequestMeta = RequestMeta {
        is_head: false,
        spoken: Spoken::Http11,
        keep_alive: true,
        takes_trailers: false,
    };

    fn encoded(response: Response, request: RequestMeta) -> (String, WrittenHead) {
        let (parts, body) = response.into_parts();
        let mut out = Vec::new();
        let written = head(&mut out, &parts, &body, request);
        (String::from_utf8(out).expect("ASCII"), written)
    }

    fn response(code: u16, body: impl Into<Body>) -> Response {
        let mut response = Response::new(body.into());
        *response.status_mut() = StatusCode::from_u16(code).expect("a valid code");
        response
    }

    fn endless() -> Body {
        Body::reader(std::io::repeat(b'x'), None)
    }

    #[test]
    fn known_lengths_are_stated_and_unknown_ones_chunked() {
        let (head, written) = encoded(response(200, "hello"), META);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
        assert_eq!(
            (written.keep_alive, written.body),
            (true, Some(ReplyFraming::Length(5)))
        );
        let (head, written) = encoded(response(200, endless()), META);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
        assert_eq!(
            (written.keep_alive, written.body),
            (true, Some(ReplyFraming::Chunked))
        );
    }

    #[test]
    fn an_old_client_gets_an_unknown_length_up_to_the_close() {
        let (head, written) = encoded(
            response(200, endless()),
            RequestMeta {
                spoken: Spoken::Http10,
                ..META
            },
        );
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");
        assert_eq!(
            (written.keep_alive, written.body),
            (false, Some(ReplyFraming::CloseDelimited))
        );
    }

    #[test]
    fn head_gets_the_head_of_get() {
        let request = RequestMeta {
            is_head: true,
            ..META
        };
        let (head, written) = encoded(response(200, "hello"), request);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
        assert!(written.body.is_none());
        let (head, written) = encoded(response(200, endless()), request);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
        assert!(written.body.is_none() && written.keep_alive);
        let mut stated = response(200, ());
        stated
            .headers_mut()
            .insert("content-length", header::HeaderValue::from_static("9"));
        assert_eq!(
            encoded(stated, request).0,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"
        );
    }

    #[test]
    fn statuses_without_content_carry_none() {
        assert_eq!(
            encoded(response(204, "no"), META).0,
            "HTTP/1.1 204 No Content\r\n"
        );
        assert_eq!(
            encoded(response(304, ()), META).0,
            "HTTP/1.1 304 Not Modified\r\n"
        );
        assert!(encoded(response(304, "no"), META).1.body.is_none());
        let mut not_modified = response(304, ());
        let length = header::HeaderValue::from_static("7");
        not_modified
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
        assert_eq!(
            encoded(not_modified, META).0,
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n"
        );
        let (head, written) = encoded(response(205, "no"), META);
        assert_eq!(head, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n");
        assert!(written.body.is_none());
        assert!(
            encoded(response(101, ()), META)
                .0
                .starts_with("HTTP/1.1 500 ")
        );
    }

    #[test]
    fn framing_headers_of_the_handler_are_dropped_and_its_close_is_heard() {
        let mut own = response(200, "hello");
        for (name, value) in [
            ("content-length", "99"),
            ("transfer-encoding", "chunked"),
            ("connection", "x, Close"),
            ("date", "never"),
            ("x-kept", "yes"),
        ] {
            own.headers_mut()
                .insert(name, header::HeaderValue::from_static(value));
        }
        let (head, written) = encoded(own, META);
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\nX-Kept: yes\r\nContent-Length: 5\r\n"
        );
        assert!(!written.keep_alive);
    }
}
