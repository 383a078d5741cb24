//! The head of an upstream's reply as its client gets it: status and fields as a response, which
//! layers may change like any other, and which either version of HTTP writes.
//!
//! Fields of the upstream's connection stay there, those that its `Connection` names included.
//! `Date` is ours, as of every reply. Trailers come after the body where the upstream has announced
//! them in `Trailer`, and the client makes use of them.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::codec::ReplyHead;
use super::request::Dropped;
use crate::header_values::elements;
use crate::message::{Body, Response};

/// What an operator changes of replies.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyTerms {
    pub(crate) set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) remove: Vec<HeaderName>,
}

/// A head, without its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    /// What the upstream has announced to come after the body.
    pub(crate) trailing: Vec<HeaderName>,
    /// A length is known that is not that of the body (`HEAD`, 304), or of a body that streams.
    pub(crate) has_length: bool,
}

impl Answer {
    /// Whether the connection is another protocol's after it.
    pub(crate) fn is_switch(&self) -> bool {
        self.response.status() == StatusCode::SWITCHING_PROTOCOLS
    }
}

/// What is taken of a head.
pub(crate) enum Taken {
    /// Another head follows.
    Interim(u16),
    Answer(Box<Answer>),
}

impl Taken {
    pub(crate) fn of(head: &ReplyHead<'_>, terms: &ReplyTerms) -> Self {
        match head.is_interim() {
            true => Self::Interim(head.status),
            false => Self::Answer(Box::new(answer(head, terms))),
        }
    }
}

fn answer(head: &ReplyHead<'_>, terms: &ReplyTerms) -> Answer {
    let fields = || head.headers.iter().map(|field| (field.name, field.value));
    let dropped = Dropped::of(fields());
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.reserve(head.headers.len() + terms.set.len());
    let mut trailing = Vec::new();
    for (name, value) in fields() {
        // The parser has taken both, whose rules are the same.
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(value),
        ) else {
            continue;
        };
        if name == header::TRAILER {
            let names = elements(value.as_bytes());
            trailing.extend(names.filter_map(|name| HeaderName::from_bytes(name).ok()));
        }
        if !dropped.has(name.as_str()) && !terms.remove.contains(&name) {
            let _is_full = headers.try_append(name, value);
        }
    }
    for (name, value) in &terms.set {
        headers.insert(name, value.clone());
    }
    if head.status == 101 {
        let chosen = fields().filter(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        for (_, value) in chosen {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(header::UPGRADE, value);
            }
        }
    }
    if let Some(length) = head.stated_length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Answer {
        response,
        trailing,
        has_length: head.stated_length.is_some(),
    }
}

/// The lines after the last chunk, as fields. Those that a message needs before its body are
/// dropped.
pub(crate) fn trailers(lines: &[u8]) -> HeaderMap {
    let limits = crate::limits::Limits::default();
    let trailers = crate::trailers::Trailers::of_lines(lines, &limits);
    trailers.map(|trailers| trailers.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Asked, Codec};
    use super::*;

    fn taken(text: &str, terms: &ReplyTerms) -> Answer {
        let mut codec = Codec::default();
        codec.expect(Asked::default());
        let head = codec.head(text.as_bytes(), |head| Taken::of(head, terms));
        match head.expect("well formed").expect("complete").1 {
            Taken::Answer(answer) => *answer,
            Taken::Interim(status) => panic!("{status} is no answer"),
        }
    }

    #[test]
    fn what_is_of_the_upstreams_connection_stays_there() {
        let answer = taken(
            "HTTP/1.1 418 Tea\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
             Set-Cookie: a\r\nSet-Cookie: b\r\nServer: s\r\nUpgrade: h2c\r\n\
             Content-Length: 3, 3\r\n\r\n",
            &ReplyTerms::default(),
        );
        let mut fields: Vec<_> = answer
            .response
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        fields.sort();
        assert_eq!(
            fields,
            [
                "content-length: 3",
                "server: s",
                "set-cookie: a",
                "set-cookie: b"
            ]
        );
        assert_eq!(answer.response.status(), 418);
        assert!(answer.has_length);
    }

    #[test]
    fn what_an_operator_sets_and_removes_is_so() {
        let name = HeaderName::from_static;
        let terms = ReplyTerms {
            set: vec![(name("x-a"), HeaderValue::from_static("ours"))],
            remove: vec![name("server")],
        };
        let answer = taken(
            "HTTP/1.1 200 OK\r\nServer: s\r\nX-A: theirs\r\nTrailer: X-Sum, bad name\r\n\r\n",
            &terms,
        );
        let headers = answer.response.headers();
        assert_eq!(headers.get_all("x-a").iter().collect::<Vec<_>>(), ["ours"]);
        assert!(!headers.contains_key("server") && !answer.has_length);
        assert_eq!(answer.trailing, [name("x-sum")]);
    }

    #[test]
    fn lines_after_chunks_are_trailers_if_they_may_be() {
        let got = trailers(b"X-Sum: 1\r\nContent-Length: 7\r\n\r\n");
        assert_eq!(got.len(), 1);
        assert_eq!(got.get("x-sum").map(HeaderValue::as_bytes), Some(&b"1"[..]));
    }
}
