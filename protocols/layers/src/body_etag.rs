//! Entity tags of bodies, and 304 for who has them already (RFC 9110, 8.8.3 and 13.1.2).
//!
//! Cost: a SHA-1 of the body, some 2 ns a byte.

use flatpath::on_network_thread;
use flatpath_http::header_values::{Comparison, lists_tag};
use flatpath_http::{Answer, Body, Layer, Next, Request, Response};
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue,
    IF_NONE_MATCH,
};
use http::{Method, StatusCode};
use sha1_smol::Sha1;

/// The longest body that gets a tag, unless it is set.
const BYTES_MAX: usize = 1 << 20;

/// The longest one on a network thread, where others wait meanwhile: some 30 us.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Gives each 200 to a GET or HEAD whose body is in memory an `ETag`, which is a digest of the
/// body, and answers with 304 in its place where `If-None-Match` lists it.
///
/// It saves the client the transfer, not the server the work of making the body. A tag that a
/// handler has set itself is kept, and compared as well, of any body. Bodies that are read or fed
/// while they are sent get no tag, nor do those above 1 MiB ([`bytes_max`](Self::bytes_max)), above
/// 16 KiB on a network thread. Put [`Compression`](crate::Compression) around it: the tag is that
/// of the body before.
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::BodyEtag;
///
/// let router: Router = Router::new().get("/", || "hello\n").layer(BodyEtag::strong());
/// ```
#[derive(Clone, Debug)]
pub struct BodyEtag {
    prefix: &'static str,
    bytes_max: usize,
}

impl BodyEtag {
    /// Strong tags: the same tag, the same bytes.
    #[must_use]
    pub fn strong() -> Self {
        Self {
            prefix: "",
            bytes_max: BYTES_MAX,
        }
    }

    /// Weak tags: for bodies that something changes on the way without changing what they mean.
    #[must_use]
    pub fn weak() -> Self {
        Self {
            prefix: "W/",
            ..Self::strong()
        }
    }

    /// The longest body that gets a tag, in bytes.
    #[must_use]
    pub fn bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    fn tag(&self, body: &Body) -> Option<HeaderValue> {
        let is_in_memory = !matches!(body, Body::Reader(_) | Body::Channel(_));
        let bytes_max = match on_network_thread() {
            true => self.bytes_max.min(INLINE_BYTES_MAX),
            false => self.bytes_max,
        };
        let is_short = body
            .length()
            .is_some_and(|length| length <= bytes_max as u64);
        if !is_in_memory || !is_short {
            return None;
        }
        let mut digest = Sha1::new();
        body.pieces().for_each(|piece| digest.update(piece));
        HeaderValue::try_from(format!("{}\"{}\"", self.prefix, digest.digest())).ok()
    }
}

impl Layer for BodyEtag {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let is_head = request.method() == Method::HEAD;
        if !is_head && request.method() != Method::GET {
            return next.run(request);
        }
        let known = request.headers().get_all(IF_NONE_MATCH).iter().cloned();
        let known: Vec<HeaderValue> = known.collect();
        let layer = self.clone();
        next.run(request).map(move |mut response: Response| {
            if response.status() != StatusCode::OK {
                return response;
            }
            if !response.headers().contains_key(ETAG) {
                // A handler may answer HEAD without the body that it would send.
                let is_whole = !(is_head && response.body().is_empty());
                let Some(tag) = layer.tag(response.body()).filter(|_| is_whole) else {
                    return response;
                };
                response.headers_mut().insert(ETAG, tag);
            }
            let own = response.headers().get(ETAG).map(HeaderValue::as_bytes);
            let known = known.iter().map(HeaderValue::as_bytes);
            match lists_tag(known, own, Comparison::Weak) {
                true => not_modified(response),
                false => response,
            }
        })
    }
}

/// RFC 9110, 15.4.5: with what a cache needs, and without what describes content.
fn not_modified(mut response: Response) -> Response {
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
    ] {
        response.headers_mut().remove(name);
    }
    *response.body_mut() = Body::Empty;
    response
}
