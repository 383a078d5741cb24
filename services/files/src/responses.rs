//! Answers of the server's own: a status, and one line of text.

use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderValue};

/// Without a body.
pub(crate) fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    let nosniff = HeaderValue::from_static("nosniff");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// With the status as text: `404 Not Found`.
pub(crate) fn status_text(status: StatusCode) -> Response {
    text(status, &status.to_string())
}

/// With one line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Response {
    let mut response = bare(status);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    *response.body_mut() = Body::from(format!("{line}\n"));
    response
}

/// A mount has as many workers as it may, or files have as many descriptors.
pub(crate) fn busy() -> Response {
    let mut response = status_text(StatusCode::SERVICE_UNAVAILABLE);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, second);
    response
}
