//! What is done to each response.

use axum::BoxError;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Response};
use serde_json::json;
use tower_http::body::UnsyncBoxBody;

/// The longest text of an error.
const DETAIL_BYTES_MAX: usize = 64 * 1024;

const CAREFUL: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "base-uri 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (REFERRER_POLICY, "strict-origin-when-cross-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Adds headers that make browsers careful.
pub(super) async fn careful(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in CAREFUL {
        let entry = response.headers_mut().entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
    response
}

/// What `CatchPanicLayer` makes of bodies.
type Caught = UnsyncBoxBody<Bytes, BoxError>;

/// Answers errors that are empty or plain text with problems (RFC 9457).
pub(super) async fn problem(response: Response<Caught>) -> Response<Body> {
    let response = response.map(Body::new);
    let status = response.status();
    let of_type = response.headers().get(CONTENT_TYPE);
    let is_plain = of_type.is_none_or(|it| it.as_bytes().starts_with(b"text/plain"));
    if !is_plain || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, DETAIL_BYTES_MAX).await.unwrap_or_default();
    let mut problem = json!({ "status": status.as_u16(), "title": status.canonical_reason() });
    let detail = String::from_utf8_lossy(&text);
    if !detail.trim_end().is_empty() {
        problem["detail"] = detail.trim_end().into();
    }
    parts.headers.remove(CONTENT_LENGTH);
    let of_type = HeaderValue::from_static("application/problem+json");
    parts.headers.insert(CONTENT_TYPE, of_type);
    Response::from_parts(parts, problem.to_string().into())
}
