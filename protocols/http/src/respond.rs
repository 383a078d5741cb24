//! The head of a reply from a response of the http crate.

use http::response::Parts;
use http::{StatusCode, Version, header};

use crate::encode::{self, Persistence, Sink};
use crate::head::Head;
use crate::message::Body;

/// What the request asks of the form of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The method was `HEAD`: the head is that of `GET`, and no body follows.
    pub(crate) is_head: bool,
    /// The client speaks HTTP/1.0 and knows no chunks.
    pub(crate) is_old: bool,
    /// The connection may continue after the reply.
    pub(crate) keep_alive: bool,
}

impl Frame {
    pub(crate) fn of(head: &Head<'_>) -> Self {
        Self {
            is_head: head.is_head(),
            is_old: head.version() == Version::HTTP_10,
            keep_alive: head.keep_alive(),
        }
    }

    pub(crate) fn persistence(self) -> Persistence {
        match (self.keep_alive, self.is_old) {
            (false, _) => Persistence::Close,
            (true, true) => Persistence::Told,
            (true, false) => Persistence::Implied,
        }
    }
}

/// What may follow a status (RFC 9110 sections 6.4.1 and 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A body.
    Any,
    /// A body of no bytes: 205.
    Zero,
    /// Not even the word of a body: 204, 304.
    Nothing,
}

impl Content {
    pub(crate) fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Self::Nothing,
            StatusCode::RESET_CONTENT => Self::Zero,
            _ => Self::Any,
        }
    }

    /// The `Content-Length` of a body of `bytes`.
    pub(crate) fn length(self, bytes: u64) -> Option<u64> {
        match self {
            Self::Any => Some(bytes),
            Self::Zero => Some(0),
            Self::Nothing => None,
        }
    }
}

/// How the body of a reply goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// As it is: its length was told, or there is none.
    #[default]
    Whole,
    /// In chunks.
    Chunked,
    /// As it is, up to the end of the connection, which is the only end it has.
    UntilClose,
}

/// What follows from a response for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) keep_alive: bool,
    pub(crate) transfer: Transfer,
    /// The body is to follow the head.
    pub(crate) with_body: bool,
}

/// Writes status line and headers, framing headers included, without what
/// [`end_of_head`](encode::end_of_head) adds.
pub(crate) fn head(out: &mut impl Sink, parts: &Parts, body: &Body, frame: Frame) -> Plan {
    let status = match parts.status {
        // The engine sends 100 by itself and switches to no other protocol.
        status if status.is_informational() => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    encode::status_line(out, status);
    for (name, value) in &parts.headers {
        if !encode::is_ours(name.as_str().as_bytes()) {
            encode::header(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    let keep_alive = frame.keep_alive && !asks_to_close(parts);
    let without_body = Plan {
        keep_alive,
        transfer: Transfer::Whole,
        with_body: false,
    };
    match Content::of(status) {
        Content::Nothing => {
            // RFC 9110 8.6 lets a 304 tell the length that a 200 would have, and no 204.
            let told = told_length(parts).filter(|_| status == StatusCode::NOT_MODIFIED);
            if let Some(length) = told {
                encode::length_header(out, length);
            }
            without_body
        }
        Content::Zero => {
            encode::length_header(out, 0);
            without_body
        }
        Content::Any if frame.is_head => {
            // A handler may answer HEAD with the body of GET, or with its length alone.
            match body.length() {
                Some(0) => encode::length_header(out, told_length(parts).unwrap_or(0)),
                Some(length) => encode::length_header(out, length),
                None if !frame.is_old => encode::chunked_header(out),
                None => {}
            }
            without_body
        }
        Content::Any => {
            let transfer = frame_body(out, body, frame);
            let keep_alive = keep_alive && transfer != Transfer::UntilClose;
            Plan {
                keep_alive,
                transfer,
                with_body: true,
            }
        }
    }
}

/// Tells how the body that follows is delimited.
fn frame_body(out: &mut impl Sink, body: &Body, frame: Frame) -> Transfer {
    match body.length() {
        Some(length) => {
            encode::length_header(out, length);
            Transfer::Whole
        }
        None if frame.is_old => Transfer::UntilClose,
        None => {
            encode::chunked_header(out);
            Transfer::Chunked
        }
    }
}

/// Whether the handler wants the connection to end after its response.
fn asks_to_close(parts: &Parts) -> bool {
    parts
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .any(|value| {
            let mut options = value.as_bytes().split(|byte| *byte == b',');
            options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
        })
}

/// The `Content-Length` that the handler wrote by itself.
fn told_length(parts: &Parts) -> Option<u64> {
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

    const FRAME: Frame = Frame {
        is_head: false,
        is_old: false,
        keep_alive: true,
    };

    fn encoded(response: Response, frame: Frame) -> (String, Plan) {
        let (parts, body) = response.into_parts();
        let mut out = Vec::new();
        let plan = head(&mut out, &parts, &body, frame);
        (String::from_utf8(out).expect("ASCII"), plan)
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
    fn known_lengths_are_told_and_unknown_ones_chunked() {
        let (head, plan) = encoded(response(200, "hello"), FRAME);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
        assert_eq!((plan.keep_alive, plan.transfer), (true, Transfer::Whole));
        assert!(plan.with_body);
        let (head, plan) = encoded(response(200, endless()), FRAME);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
        assert_eq!((plan.keep_alive, plan.transfer), (true, Transfer::Chunked));
    }

    #[test]
    fn an_old_client_gets_an_unknown_length_up_to_the_close() {
        let (head, plan) = encoded(
            response(200, endless()),
            Frame {
                is_old: true,
                ..FRAME
            },
        );
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");
        assert_eq!(
            (plan.keep_alive, plan.transfer),
            (false, Transfer::UntilClose)
        );
    }

    #[test]
    fn head_gets_the_head_of_get() {
        let frame = Frame {
            is_head: true,
            ..FRAME
        };
        let (head, plan) = encoded(response(200, "hello"), frame);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
        assert!(!plan.with_body);
        let (head, plan) = encoded(response(200, endless()), frame);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
        assert!(!plan.with_body && plan.keep_alive);
        let mut told = response(200, ());
        told.headers_mut()
            .insert("content-length", header::HeaderValue::from_static("9"));
        assert_eq!(
            encoded(told, frame).0,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"
        );
    }

    #[test]
    fn statuses_without_content_carry_none() {
        assert_eq!(
            encoded(response(204, "no"), FRAME).0,
            "HTTP/1.1 204 No Content\r\n"
        );
        assert_eq!(
            encoded(response(304, ()), FRAME).0,
            "HTTP/1.1 304 Not Modified\r\n"
        );
        assert!(!encoded(response(304, "no"), FRAME).1.with_body);
        let (head, plan) = encoded(response(205, "no"), FRAME);
        assert_eq!(head, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n");
        assert!(!plan.with_body);
        assert!(
            encoded(response(101, ()), FRAME)
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
        let (head, plan) = encoded(own, FRAME);
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\nx-kept: yes\r\nContent-Length: 5\r\n"
        );
        assert!(!plan.keep_alive);
    }
}
