//! Answers in gzip for clients that take it, as Prometheus does: a tenth of the bytes. At the
//! fastest level, because it is done while the network thread of the admin service waits.

use flatpath_http::http::HeaderValue;
use flatpath_http::http::header::{ACCEPT_ENCODING, VARY};
use flatpath_http::{Request, Response};

/// The response as this request takes it.
pub(crate) fn for_request(request: &Request, mut response: Response) -> Response {
    let vary = HeaderValue::from(ACCEPT_ENCODING);
    response.headers_mut().insert(VARY, vary);
    gzip(request, response)
}

#[cfg(not(feature = "gzip"))]
fn gzip(_: &Request, response: Response) -> Response {
    response
}

#[cfg(feature = "gzip")]
fn gzip(request: &Request, mut response: Response) -> Response {
    use std::io::Write as _;

    use flatpath_http::Body;
    use flatpath_http::header_values::{AcceptEncoding, ContentCoding};
    use flatpath_http::http::header::CONTENT_ENCODING;

    let forms = [ContentCoding::Gzip, ContentCoding::Identity];
    let asked = request.headers().get_all(ACCEPT_ENCODING).iter();
    let asked = AcceptEncoding::parse(asked.map(HeaderValue::as_bytes), &forms);
    if asked.codings().next() != Some(ContentCoding::Gzip) {
        return response;
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = encoder.write_all(&response.body().to_bytes());
    if let Ok(encoded) = written.and_then(|()| encoder.finish()) {
        *response.body_mut() = Body::from(encoded);
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
    }
    response
}
