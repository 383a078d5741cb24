//! Headers of the protocol: their names, their numbers, and the headers of every response.

use flatpath_http::{Request, Response};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};

use crate::headers::{Headers, number};
use crate::responses::{Refusal, Result, with};

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

/// What requests say; `HEAD` and `DELETE` need the first.
pub(crate) fn of_requests() -> [HeaderName; 7] {
    [
        TUS_RESUMABLE.clone(),
        UPLOAD_CHECKSUM.clone(),
        UPLOAD_DEFER_LENGTH.clone(),
        UPLOAD_LENGTH.clone(),
        UPLOAD_METADATA.clone(),
        UPLOAD_OFFSET.clone(),
        METHOD_OVERRIDE.clone(),
    ]
}

/// What responses say.
pub(crate) fn of_responses() -> [HeaderName; 10] {
    [
        TUS_RESUMABLE.clone(),
        TUS_VERSION.clone(),
        TUS_EXTENSION.clone(),
        TUS_MAX_SIZE.clone(),
        TUS_CHECKSUM_ALGORITHM.clone(),
        UPLOAD_DEFER_LENGTH.clone(),
        UPLOAD_EXPIRES.clone(),
        UPLOAD_LENGTH.clone(),
        UPLOAD_METADATA.clone(),
        UPLOAD_OFFSET.clone(),
    ]
}

/// Every response says which protocol it speaks, and none is for a cache.
pub(super) fn marked(response: Response) -> Response {
    let version = HeaderValue::from_static(VERSION);
    let response = with(response, &TUS_RESUMABLE, version);
    let no_store = HeaderValue::from_static("no-store");
    with(response, header::CACHE_CONTROL, no_store)
}

/// A number in a header; 400 where it is none, or is there twice.
pub(super) fn number_of(request: &Request, name: &HeaderName) -> Result<Option<u64>> {
    let all = request.headers();
    match all.single(name).and_then(number) {
        None if all.holds(name) => {
            let reason = format!("{name} must be one number");
            Err(Refusal::because(StatusCode::BAD_REQUEST, &reason))
        }
        number => Ok(number),
    }
}
