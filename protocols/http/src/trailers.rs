//! Trailers: headers that come after a body (RFC 9110 section 6.5), those of requests and those of
//! replies.
//!
//! ```text
//! request: its body, then its trailers ─► Request's extensions, or Sink::trailers ─► handler
//! reply:   Trailers::after(response) ─► the head names them ─► the body ─► the trailers
//! ```
//!
//! One rule holds for both versions of HTTP and for both directions. A field that a message needs
//! before its body ([`may_trail`] has the list) means nothing after it, and is dropped: "a sender
//! MUST NOT generate a trailer field unless the sender knows the corresponding header field name's
//! definition permits sending it as a trailer" (6.5.1). What is no field at all is malformed: the
//! framing of HTTP/1 and the blocks of HTTP/2 say so, pseudo-headers included. Trailers of a
//! request have the limits of its headers, and those of HTTP/1 wait in the input until all of them
//! are there, as half a head does.
//!
//! A client gets trailers over HTTP/2, or where it says `TE: trailers` (10.1.4): to others a reply
//! is the same without them.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::extract::FromRequestParts;
use crate::head::RequestMeta;
use crate::head::fault::Fault;
use crate::limits::Limits;
use crate::message::{Body, Reader, Request, Response};
use crate::respond::encode::{self, HeadOut};
use crate::respond::into_response::IntoResponse;
use crate::respond::sink::Sink;

/// The headers that come after a body. As an argument of a handler, those of its request, which has
/// arrived completely; there may be none. [`Trailers::after`] puts some after the body of a
/// response. They are no headers: layers and handlers that look at those do not see them.
///
/// Those that a message needs before its body are dropped, in requests and in responses: what is
/// about its framing, host, authentication, content, caching or conditions (RFC 9110 section
/// 6.5.1). A client of HTTP/1 gets trailers if its request says `TE: trailers`, one of HTTP/2
/// always.
///
/// ```
/// use flatpath_http::http::{HeaderMap, HeaderName, HeaderValue};
/// use flatpath_http::{Bytes, Response, Router, Trailers};
///
/// const LENGTH: HeaderName = HeaderName::from_static("x-length");
///
/// /// Checks what its client says of the body, and says the same of its own.
/// fn count(Trailers(trailers): Trailers, body: Bytes) -> Response {
///     let said = trailers.get(LENGTH).and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
///     let text = match said {
///         Some(length) if body.len() == length => "it is complete\n",
///         _ => "it is not\n",
///     };
///     let length = HeaderValue::from(text.len());
///     Trailers(HeaderMap::from_iter([(LENGTH, length)])).after(text)
/// }
///
/// let router: Router = Router::new().post("/count", count);
/// # let _ = router;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers(pub HeaderMap);

impl Trailers {
    /// A response with these after its body.
    pub fn after(self, response: impl IntoResponse) -> Response {
        let known = LateTrailers {
            names: self.0.keys().cloned().collect(),
            place: Arc::new(OnceLock::from(self.0)),
        };
        known.after(response)
    }

    /// Trailers that are known when the body is: of one that is read or fed while it is sent, what
    /// is [set](TrailersEnd::set) before its end. The head names them, so that clients can prepare.
    ///
    /// ```
    /// use std::thread;
    ///
    /// use flatpath_http::http::{HeaderMap, HeaderName, HeaderValue};
    /// use flatpath_http::{Body, Response, SendError, Trailers};
    ///
    /// const ROWS: HeaderName = HeaderName::from_static("x-rows");
    ///
    /// fn rows() -> Response {
    ///     let (sender, body) = Body::channel(64 * 1024);
    ///     let (end, trailers) = Trailers::later([ROWS]);
    ///     thread::spawn(move || {
    ///         (0..1000).try_for_each(|row| sender.send(format!("{row}\n")))?;
    ///         end.set(HeaderMap::from_iter([(ROWS, HeaderValue::from(1000))]));
    ///         // Now the sender is dropped, which ends the body.
    ///         Ok::<(), SendError>(())
    ///     });
    ///     trailers.after(body)
    /// }
    /// # let _ = rows;
    /// ```
    pub fn later(names: impl IntoIterator<Item = HeaderName>) -> (TrailersEnd, LateTrailers) {
        let place = Arc::new(OnceLock::new());
        let late = LateTrailers {
            names: names.into_iter().collect(),
            place: Arc::clone(&place),
        };
        (TrailersEnd(place), late)
    }

    /// Those of a request that has come, as fields in their order.
    ///
    /// # Errors
    /// They are more than a head may have, or one of them is none.
    pub(crate) fn gather<'f>(
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let (mut trailers, mut bytes, mut count) = (HeaderMap::new(), 0, 0);
        for (name, value) in fields {
            bytes += name.len() + value.len() + LINE_BYTES;
            count += 1;
            if bytes > limits.headers_bytes_max || count > limits.headers_max {
                return Err(Fault::TrailerTooLong);
            }
            let name = HeaderName::from_bytes(name).map_err(|_| Fault::Trailer)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| Fault::Trailer)?;
            if may_trail(&name) {
                trailers.append(name, value);
            }
        }
        Ok(Self(trailers))
    }

    /// The same of the lines that end a chunked body, each of which was checked.
    pub(crate) fn of_lines(section: &[u8], limits: &Limits) -> Result<Self, Fault> {
        let lines = section.split(|byte| *byte == b'\n');
        let fields = lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        });
        Self::gather(fields, limits)
    }

    /// Leaves them to the handler of a request.
    pub(crate) fn leave(self, request: &mut Request) {
        if !self.0.is_empty() {
            request.extensions_mut().insert(self);
        }
    }
}

/// What a line has beside name and value, as the limits count.
const LINE_BYTES: usize = ": \r\n".len();

impl<S> FromRequestParts<S> for Trailers {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        let trailers = request.extensions().get::<Self>();
        Ok(trailers.cloned().unwrap_or_default())
    }
}

/// Trailers of a response that may be set while it is sent: see [`Trailers::later`]. A response
/// with trailers has them as an extension of this type: a layer that makes a body of another one's
/// can take them out, and put its own there.
#[derive(Clone, Debug)]
pub struct LateTrailers {
    /// What the head says of them.
    names: Vec<HeaderName>,
    place: Arc<OnceLock<HeaderMap>>,
}

impl LateTrailers {
    /// A response with these after its body.
    pub fn after(self, response: impl IntoResponse) -> Response {
        let mut response = response.into_response();
        response.extensions_mut().insert(self);
        response
    }

    /// Those that the head of the response names.
    #[must_use]
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// The trailers, if they are set: all that will come of them once the body has ended.
    #[must_use]
    pub fn known(&self) -> Option<&HeaderMap> {
        self.place.get()
    }

    /// Those of a response, if the client of this request gets them.
    pub(crate) fn of(parts: &Parts, request: RequestMeta) -> Option<&Self> {
        parts.extensions.get().filter(|_| request.takes_trailers)
    }

    /// The header that names them (RFC 9110 section 6.6.2).
    pub(crate) fn announce(&self, head: &mut HeadOut<'_, impl Sink>) {
        let names = self.names.iter().filter(|name| may_trail(name));
        let names: Vec<_> = names.map(HeaderName::as_str).collect();
        if !names.is_empty() {
            head.spelled(b"Trailer", names.join(", ").as_bytes());
        }
    }

    /// Now that the body is sent: what comes after it.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let fields = self.known().into_iter().flatten();
        fields.filter(|(name, _)| may_trail(name))
    }

    /// The end of a chunked body with them.
    pub(crate) fn last_chunk(&self) -> Vec<u8> {
        let mut end = b"0\r\n".to_vec();
        for (name, value) in self.fields() {
            encode::named_header(&mut end, name, value);
        }
        end.extend_from_slice(b"\r\n");
        end
    }
}

/// Sets the trailers of a response that is sent: see [`Trailers::later`]. Dropped before, there are
/// none.
#[derive(Debug)]
pub struct TrailersEnd(Arc<OnceLock<HeaderMap>>);

impl TrailersEnd {
    /// These are the trailers, if the body has not ended before.
    pub fn set(self, trailers: HeaderMap) {
        // There is one end, and this takes it.
        drop(self.0.set(trailers));
    }
}

/// A body that is to be sent in chunks although its length is known: it is read.
pub(crate) fn for_chunks(body: Body) -> Body {
    match body {
        Body::Empty | Body::Channel(_) => body,
        Body::Reader(reader) if reader.length.is_none() => Body::Reader(reader),
        Body::Reader(reader) => Body::Reader(reader.wrap(|inner| inner)),
        memory => Body::Reader(Reader::new(Box::new(memory), None)),
    }
}

/// Whether a field means something after a body. RFC 9110 6.5.1 names those that do not: "message
/// framing, routing, authentication, request modifiers, response controls, or determining how to
/// process the content".
pub(crate) fn may_trail(name: &HeaderName) -> bool {
    const BEFORE: [&str; 43] = [
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "age",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "expect",
        "expires",
        "forwarded",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "www-authenticate",
    ];
    BEFORE.binary_search(&name.as_str()).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Spoken;

    fn gather(fields: &[(&str, &str)], limits: &Limits) -> Result<HeaderMap, Fault> {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Trailers::gather(fields, limits).map(|trailers| trailers.0)
    }

    #[test]
    fn what_a_message_needs_before_its_body_is_no_trailer() {
        let limits = Limits::default();
        for name in [
            "Content-Length",
            "host",
            "TRANSFER-ENCODING",
            "www-authenticate",
            "accept",
        ] {
            assert_eq!(
                gather(&[(name, "x")], &limits),
                Ok(HeaderMap::new()),
                "{name}"
            );
        }
        let kept = gather(&[("X-a", "1"), ("x-A", "2"), ("Grpc-Status", "")], &limits);
        let kept = kept.expect("they may come");
        let values: Vec<_> = kept.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(kept["grpc-status"], "");
        for (name, value) in [("a b", "x"), ("", "x"), (":path", "/"), ("x", "a\nb")] {
            assert_eq!(
                gather(&[(name, value)], &limits),
                Err(Fault::Trailer),
                "{name}"
            );
        }
    }

    #[test]
    fn trailers_have_the_limits_of_headers() {
        let limits = Limits {
            headers_max: 3,
            headers_bytes_max: 30,
            ..Limits::default()
        };
        let long = Err(Fault::TrailerTooLong);
        assert!(gather(&[("a", "x"); 3], &limits).is_ok());
        assert_eq!(gather(&[("a", "x"); 4], &limits), long);
        assert!(gather(&[("a", &"x".repeat(25))], &limits).is_ok());
        assert_eq!(gather(&[("a", &"x".repeat(26))], &limits), long);
        let dropped = gather(&[("host", &"x".repeat(26))], &limits);
        assert_eq!(dropped, long, "they count");
    }

    #[test]
    fn lines_of_a_chunked_body_are_fields() {
        let section = b"X-A: 1 \r\nx-b:\r\nX-C:\t:x\r\n\r\n";
        let found = Trailers::of_lines(section, &Limits::default()).expect("they are right");
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let fields = found
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), text(value)));
        let fields: Vec<_> = fields.collect();
        assert_eq!(
            fields,
            [("x-a", "1"), ("x-b", ""), ("x-c", ":x")]
                .map(|(name, value)| (name, value.to_owned()))
        );
    }

    #[test]
    fn a_reply_says_at_its_end_what_was_set_until_then() {
        let name = HeaderName::from_static("x-sum");
        let (end, late) = Trailers::later([name.clone(), http::header::HOST]);
        let (parts, _) = late.after("text").into_parts();
        let takes = RequestMeta {
            takes_trailers: true,
            ..RequestMeta::default()
        };
        assert!(LateTrailers::of(&parts, RequestMeta::default()).is_none());
        let trailing = LateTrailers::of(&parts, takes).expect("its client takes them");
        let mut text = Vec::new();
        let mut head = HeadOut::begin(&mut text, Spoken::Http11, http::StatusCode::OK);
        trailing.announce(&mut head);
        assert_eq!(text, b"HTTP/1.1 200 OK\r\nTrailer: x-sum\r\n");
        assert_eq!(trailing.last_chunk(), b"0\r\n\r\n");
        let host = (http::header::HOST, HeaderValue::from_static("h"));
        end.set(HeaderMap::from_iter([(name, HeaderValue::from(7)), host]));
        assert_eq!(trailing.last_chunk(), b"0\r\nX-Sum: 7\r\n\r\n");
    }
}
