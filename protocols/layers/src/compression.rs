//! Compression of responses, by what their clients accept (RFC 9110, 8.4 and 12.5.3).
//!
//! Where it is done depends on the body and on the thread that has made it:
//!
//! | body                                 | on a worker      | on a network thread |
//! |--------------------------------------|------------------|---------------------|
//! | in memory, up to `INLINE_BYTES_MAX`   | at once          | at once             |
//! | in memory, up to `WHOLE_BYTES_MAX`    | at once          | while it is sent    |
//! | in memory, longer                    | while it is sent | while it is sent    |
//! | read ([`Body::Reader`])              | while it is sent | while it is sent    |
//! | fed ([`Body::Channel`]), event streams | never            | never               |
//!
//! At once, the response has a `Content-Length`; a network thread spends the least effort on it.
//! While it is sent, workers compress it a chunk at a time, so that a network thread never does,
//! and nothing has it as a whole. What the source has is passed on: a read that does not fill its
//! buffer is followed by a flush.
//!
//! A body that is fed holds a few hundred bytes while it waits. With a compressor it would hold
//! some hundred thousand, and its pieces would be compressed by network threads, so it is left
//! alone.
//!
//! Invariants
//! - C1: at most [`Compression::streams_max`] bodies are compressed while they are sent, and all
//!   encoders take no more than the share of [`Compression::memory`]; the next body is sent as it
//!   is.
//! - C2: a response that could have been compressed names `Accept-Encoding` in `Vary`, whether it
//!   was or not.
//! - C3: a strong entity tag names exact bytes, so it becomes weak.
//!
//! A service that keeps what it has compressed uses the parts: [`Compression::offered`],
//! [`Compression::is_worth`] and [`Compression::begin`]. It sees to `Vary` and tags itself.

mod encoder;
mod encoding;
mod media;
mod stream;

use std::fmt;
use std::io;
use std::sync::Arc;

use flatpath::memory::{ShareHold, SharePart};
use flatpath::on_network_thread;
use flatpath_http::header_values::{AcceptEncoding, ContentCoding, elements};
use flatpath_http::{Answer, Body, Layer, Next, Reader, Request, Response};
use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    ETAG, HeaderValue,
};

use crate::vary;
use encoder::Encoder;
use stream::Streams;

pub use encoder::Effort;
pub use encoding::Encoding;

/// The shortest body that is compressed, unless it is set: with less the gain is in the noise.
const BYTES_MIN: u64 = 1024;

/// The longest body that is compressed on a network thread, where others wait meanwhile.
const INLINE_BYTES_MAX: u64 = 4 * 1024;

/// The longest body that a worker compresses as a whole.
const WHOLE_BYTES_MAX: u64 = 256 * 1024;

/// The bodies that are compressed while they are sent, unless it is set.
const STREAMS_MAX: usize = 32;

/// Headers with digests of the bytes of a body, which would not be true of others.
const DIGESTS: [&str; 4] = ["content-digest", "content-md5", "digest", "repr-digest"];

/// Compresses bodies by `Accept-Encoding`: with zstd, brotli and gzip, as far as the features of
/// that name are there, in this order where the client has no preference.
///
/// These responses are left alone: those of a type that does not say text or the like (images,
/// archives, no `Content-Type` at all), with a `Content-Encoding` of their own, shorter than 1 KiB,
/// 204, 206 and 304, with `Cache-Control: no-transform` or with a digest of the body; streams of
/// events and other bodies that are fed by a [`Sender`](flatpath_http::Sender).
///
/// **Do not compress secrets beside what a client chooses.** Where a page repeats a part of the
/// request, and has a secret, the length of the compressed page tells of the secret (BREACH).
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::Compression;
///
/// let router: Router =
///     Router::new().get("/text", || "long ".repeat(1000)).layer(Compression::new());
/// ```
#[derive(Clone)]
pub struct Compression(Arc<Settings>);

#[derive(Clone)]
struct Settings {
    /// What may be chosen, best first, and the content as it is.
    codings: Vec<ContentCoding>,
    effort: Effort,
    bytes_min: u64,
    streams: Streams,
    memory: SharePart,
    is_fit: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Compression {
    /// With all codings that are there.
    #[must_use]
    pub fn new() -> Self {
        let mut codings = encoder::CODINGS.to_vec();
        codings.push(ContentCoding::Identity);
        Self(Arc::new(Settings {
            codings,
            effort: Effort::default(),
            bytes_min: BYTES_MIN,
            streams: Streams::new(STREAMS_MAX),
            memory: SharePart::default(),
            is_fit: Arc::new(media::is_fit),
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// With these codings alone, in this order where the client has no preference; each once. Those
    /// whose feature is off are left out.
    #[must_use]
    pub fn codings(self, codings: impl IntoIterator<Item = ContentCoding>) -> Self {
        let mut chosen = Vec::new();
        for coding in codings {
            if encoder::CODINGS.contains(&coding) && !chosen.contains(&coding) {
                chosen.push(coding);
            }
        }
        chosen.push(ContentCoding::Identity);
        self.with(|it| it.codings = chosen)
    }

    /// How much time is spent on it.
    #[must_use]
    pub fn effort(self, effort: Effort) -> Self {
        self.with(|it| it.effort = effort)
    }

    /// The shortest body that is compressed, in bytes. Where the length is not known, it is taken
    /// to be long enough.
    #[must_use]
    pub fn bytes_min(self, bytes_min: u64) -> Self {
        self.with(|it| it.bytes_min = bytes_min)
    }

    /// How many bodies may be compressed while they are sent: 32 unless set. Each holds up to 4 MiB
    /// beside the memory that the server counts, 8 MiB at [`Effort::Most`]; a further one is sent
    /// as it is.
    #[must_use]
    pub fn streams_max(self, streams: usize) -> Self {
        self.with(|it| it.streams = Streams::new(streams))
    }

    /// Takes the memory of encoders from this part of a share, in turn with all else that has it:
    /// other services, say. What finds none is sent as it is. No bound unless it is set. An encoder
    /// of brotli counts 4 MiB, one of zstd 1.5 MiB and one of gzip 512 KiB; at [`Effort::Most`]
    /// brotli 6 MiB and zstd 9 MiB.
    #[must_use]
    pub fn memory(self, part: SharePart) -> Self {
        self.with(|it| it.memory = part)
    }

    /// Holds memory of the [share](Compression::memory) for what goes with content that is
    /// compressed: a copy of it, say. `None` if there is not so much.
    pub fn hold(&self, bytes: usize) -> Option<ShareHold> {
        self.0.memory.hold(bytes)
    }

    /// The codings that may be chosen, best first where the client has no preference; without that
    /// of the content as it is.
    pub fn offered(&self) -> impl Iterator<Item = ContentCoding> + use<'_> {
        let codings = self.0.codings.iter().copied();
        codings.filter(|it| *it != ContentCoding::Identity)
    }

    /// Whether content of this `Content-Type` is worth compressing, and of this length in bytes,
    /// where it is known.
    #[must_use]
    pub fn is_worth(&self, media: &HeaderValue, bytes: Option<u64>) -> bool {
        bytes.is_none_or(|bytes| bytes >= self.0.bytes_min) && self.0.is_fit(media)
    }

    /// Begins to compress content of this length in bytes, where it is known: one of
    /// [`Compression::streams_max`], until it is dropped. `None` where there are as many already,
    /// where memory is short, or where the coding is not one of this server's.
    #[must_use]
    pub fn begin(&self, coding: ContentCoding, length: Option<u64>) -> Option<Encoding> {
        self.0.begin(coding, length)
    }

    /// Compresses a response as the layer does, for a client that takes these codings.
    #[must_use]
    pub fn apply(&self, accepted: AcceptEncoding, response: Response) -> Response {
        self.0.compress(accepted, response)
    }

    /// Which types are compressed, in place of those that say text or the like: this gets the type
    /// without its parameters, in lower case, such as `text/html`. `text/event-stream` is left
    /// alone in any case.
    #[must_use]
    pub fn types(self, is_fit: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.with(|it| it.is_fit = Arc::new(is_fit))
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for Compression {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let values = request.headers().get_all(ACCEPT_ENCODING).iter();
        let values = values.map(HeaderValue::as_bytes);
        let accepted = AcceptEncoding::parse(values, &self.0.codings);
        let own = self.clone();
        next.run(request)
            .map(move |response: Response| own.apply(accepted, response))
    }
}

impl Settings {
    fn compress(&self, accepted: AcceptEncoding, mut response: Response) -> Response {
        if response.status() == StatusCode::NOT_MODIFIED {
            // RFC 9110, 15.4.5: the 200 in its place would have it.
            vary::add(response.headers_mut(), &ACCEPT_ENCODING);
            return response;
        }
        if !self.may_compress(&response) {
            return response;
        }
        vary::add(response.headers_mut(), &ACCEPT_ENCODING);
        let chosen = accepted.codings().next();
        let Some((coding, token)) = chosen.and_then(|it| Some((it, it.token()?))) else {
            return response;
        };
        let body = std::mem::take(response.body_mut());
        match self.encode(coding, body) {
            Ok(body) => {
                *response.body_mut() = body;
                describe(&mut response, token);
            }
            Err(body) => *response.body_mut() = body,
        }
        response
    }

    fn may_compress(&self, response: &Response) -> bool {
        let headers = response.headers();
        let status = response.status();
        let has_whole_content = !status.is_informational()
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::PARTIAL_CONTENT);
        let is_long = match response.body() {
            Body::Channel(_) => false,
            body => body.length().is_none_or(|bytes| bytes >= self.bytes_min),
        };
        has_whole_content
            && is_long
            && !headers.contains_key(CONTENT_ENCODING)
            && !DIGESTS.iter().any(|name| headers.contains_key(*name))
            && !forbids_transform(headers.get_all(CACHE_CONTROL).iter())
            && headers
                .get(CONTENT_TYPE)
                .is_some_and(|media| self.is_fit(media))
    }

    fn is_fit(&self, media: &HeaderValue) -> bool {
        let Ok(media) = media.to_str() else {
            return false;
        };
        let media = media.split(';').next().unwrap_or_default();
        let media = media.trim().to_ascii_lowercase();
        // Its events are not to wait for each other.
        media != "text/event-stream" && (self.is_fit)(&media)
    }

    /// The body compressed, or as it was.
    fn encode(&self, coding: ContentCoding, body: Body) -> Result<Body, Body> {
        let (effort, whole_bytes_max) = match on_network_thread() {
            true => (Effort::Least, INLINE_BYTES_MAX),
            false => (self.effort, WHOLE_BYTES_MAX),
        };
        match body {
            Body::Reader(reader) => self.stream(coding, reader).map_err(Body::Reader),
            body if body.length().is_some_and(|bytes| bytes <= whole_bytes_max) => {
                match self.whole(coding, effort, &body) {
                    Ok(encoded) if (encoded.len() as u64) < body.length().unwrap_or(0) => {
                        Ok(encoded.into())
                    }
                    // It did not shrink, or there was no memory for the encoder.
                    _ => Err(body),
                }
            }
            body => {
                let length = body.length();
                let reader = Reader::new(Box::new(body), length);
                self.stream(coding, reader).map_err(Body::Reader)
            }
        }
    }

    /// A body in memory, compressed at once.
    fn whole(&self, coding: ContentCoding, effort: Effort, body: &Body) -> io::Result<Vec<u8>> {
        let bytes = encoder::memory_bytes(coding, effort);
        let held = self.memory.hold(bytes);
        let _held = held.ok_or(io::ErrorKind::OutOfMemory)?;
        let mut encoder = Encoder::new(coding, effort, body.length())?;
        for piece in body.pieces() {
            encoder.write(piece)?;
        }
        encoder.finish()
    }

    fn begin(&self, coding: ContentCoding, length: Option<u64>) -> Option<Encoding> {
        let bytes = encoder::memory_bytes(coding, self.effort) + stream::SOURCE_BYTES;
        let place = self.streams.enter(self.memory.hold(bytes)?)?;
        let encoder = Encoder::new(coding, self.effort, length).ok()?;
        Some(Encoding::new(encoder, place))
    }

    fn stream(&self, coding: ContentCoding, reader: Reader) -> Result<Body, Reader> {
        match self.begin(coding, reader.length()) {
            Some(encoding) => Ok(Body::Reader(encoding.reader(reader))),
            None => Err(reader),
        }
    }
}

/// What is said of a response has to be true of its new body.
fn describe(response: &mut Response, token: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(token));
    headers.remove(CONTENT_LENGTH);
    // Ranges would be of other bytes.
    headers.remove(ACCEPT_RANGES);
    let strong = headers
        .get(ETAG)
        .filter(|tag| tag.as_bytes().starts_with(b"\""));
    let weak = strong.map(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()));
    if let Some(Ok(weak)) = weak {
        headers.insert(ETAG, weak);
    }
}

/// `no-transform` (RFC 9111, 5.2.2.6).
fn forbids_transform<'a>(mut values: impl Iterator<Item = &'a HeaderValue>) -> bool {
    values
        .any(|value| elements(value.as_bytes()).any(|it| it.eq_ignore_ascii_case(b"no-transform")))
}

impl fmt::Debug for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Compression")
            .field("codings", &self.0.codings)
            .field("effort", &self.0.effort)
            .field("bytes_min", &self.0.bytes_min)
            .finish_non_exhaustive()
    }
}
