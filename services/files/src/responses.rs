//! Answers of the server's own: a status, and one line of text.

use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderValue, IntoHeaderName};

/// Without a body.
pub(crate) fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    let nosniff = HeaderValue::from_static("nosniff");
    with(response, header::X_CONTENT_TYPE_OPTIONS, nosniff)
}

/// With the status as text: `404 Not Found`.
pub(crate) fn status_text(status: StatusCode) -> Response {
    text(status, &status.to_string())
}

/// With one line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Response {
    let mut response = bare(status);
    *response.body_mut() = Body::from(format!("{line}\n"));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    with(response, header::CONTENT_TYPE, plain)
}

/// A mount has as many workers as it may, or files have as many descriptors.
pub(crate) fn busy() -> Response {
    let second = HeaderValue::from_static("1");
    let response = status_text(StatusCode::SERVICE_UNAVAILABLE);
    with(response, header::RETRY_AFTER, second)
}

/// The same response with one more header, in place of what it had by this name.
pub(crate) fn with(
    mut response: Response,
    name: impl IntoHeaderName,
    value: impl Into<HeaderValue>,
) -> Response {
    response.headers_mut().insert(name, value.into());
    response
}

/// Text made of visible ASCII, as the value of a header.
pub(crate) fn visible(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("it is visible ASCII")
}
