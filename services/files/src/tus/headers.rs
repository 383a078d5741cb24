//! Headers of the protocol: their names, their numbers, and those that every response has.

use flatpath_http::{Request, Response};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};

use crate::headers::{Headers, number};
use crate::writing::{Answer, refused_because};

pub(super) const VERSION: &str = "1.0.0";

pub(super) static TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(super) static TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
pub(super) static TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
pub(super) static TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
pub(super) static TUS_CHECKSUM_ALGORITHM: HeaderName =
    HeaderName::from_static("tus-checksum-algorithm");
pub(super) static UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) static UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) static UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
pub(super) static UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
pub(super) static UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
pub(super) static UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
pub(super) static METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

/// Every response says which protocol it speaks, and none is for a cache.
pub(super) fn marked(mut response: Response) -> Response {
    let all = response.headers_mut();
    all.insert(&TUS_RESUMABLE, HeaderValue::from_static(VERSION));
    all.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A number in a header; 400 where it is none, or is there twice.
pub(super) fn number_of(request: &Request, name: &HeaderName) -> Answer<Option<u64>> {
    let all = request.headers();
    if !all.holds(name) {
        return Ok(None);
    }
    match all.single(name).and_then(number) {
        Some(number) => Ok(Some(number)),
        None => Err(refused_because(
            StatusCode::BAD_REQUEST,
            &format!("{name} must be one number"),
        )),
    }
}
