//! The heads of answers with a file: their headers, and those of them that a 304 or a 412 keeps.

use flatpath_http::header_values::ContentCoding;
use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::Chosen;
use crate::conditional::{Validators, Verdict};
use crate::media;
use crate::responses::{ACCEPT_RANGES, VARY, status_text};
use crate::target::name_of;

/// The headers of a 200 with this file, which are also those that a 304 chooses from.
pub(super) fn file_headers(
    chosen: &Chosen,
    coding: ContentCoding,
    validators: &Validators,
) -> HeaderMap {
    let text = |text: &'static str| Some(HeaderValue::from_static(text));
    let coding = match coding.token() {
        None if media::is_gzipped(name_of(&chosen.path)) => Some("gzip"),
        token => token,
    };
    let all = [
        (header::CONTENT_TYPE, Some(chosen.media.clone())),
        (header::X_CONTENT_TYPE_OPTIONS, text("nosniff")),
        (header::CONTENT_ENCODING, coding.and_then(text)),
        (header::VARY, text(VARY)),
        (header::ACCEPT_RANGES, text(ACCEPT_RANGES)),
        (header::ETAG, validators.tag.clone()),
        (header::LAST_MODIFIED, validators.modified.to_header()),
    ];
    let mut headers = HeaderMap::with_capacity(all.len());
    headers.extend(
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    headers
}

/// RFC 9110, 15.4.5: of the headers of a 200, those of a 304: what a cache needs to update what it
/// has, and what rules say, but not how the bytes are to be read that the client has.
pub(super) fn kept_headers(
    headers: &HeaderMap,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    const OF_THE_BODY: [HeaderName; 6] = [
        header::ACCEPT_RANGES,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::X_CONTENT_TYPE_OPTIONS,
    ];
    headers
        .iter()
        .filter(|(name, _)| !OF_THE_BODY.contains(name))
}

fn without_content(headers: &HeaderMap) -> HeaderMap {
    let kept = kept_headers(headers);
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

pub(super) fn precondition_failed(headers: &HeaderMap) -> Response {
    let mut response = status_text(StatusCode::PRECONDITION_FAILED);
    response.headers_mut().extend(without_content(headers));
    response
}

/// The answer for a whole file: 200, or 304 without its body.
pub(super) fn finish(verdict: Verdict, headers: HeaderMap, size: u64, body: Body) -> Response {
    if verdict == Verdict::NotModified {
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.headers_mut() = without_content(&headers);
        return response;
    }
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    // For HEAD, which has no body.
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, size.into());
    response
}
