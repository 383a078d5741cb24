//! The status page: one file, served as it is. It asks for `/status.json` once a second.

use flatpath_http::Response;
use flatpath_http::http::{HeaderValue, header};

use crate::typed;

const PAGE: &str = include_str!("page.html");

/// Runs the script and the style that are in the page, by their hashes, and nothing else; a test
/// compares them. It asks its own server alone, and no other page may frame it.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
    script-src 'sha256-qCzCUBhFEqU3xtUn7BZXRk11B8j9DZBS7v4dRfOuk7w='; \
    style-src 'sha256-QSxdMD/DeRoWU1YuD20+LR6kSq100Nzz3F+60wET0sg='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(crate) fn response() -> Response {
    let mut response = typed("text/html; charset=utf-8", PAGE);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
