//! Headers that make browsers more careful.
//!
//! Cost: one insertion for each header.

use std::time::Duration;

use flatpath_http::{Answer, Layer, Next, Request, Response, Tls};
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

/// Adds headers to each response that does not have them already.
///
/// | header                         | value                                        |
/// |--------------------------------|----------------------------------------------|
/// | `Content-Security-Policy`      | as below                                     |
/// | `Cross-Origin-Opener-Policy`   | `same-origin`                                |
/// | `Cross-Origin-Resource-Policy` | `same-origin`                                |
/// | `Referrer-Policy`              | `strict-origin-when-cross-origin`            |
/// | `X-Content-Type-Options`       | `nosniff`                                    |
/// | `X-Frame-Options`              | `DENY`                                       |
///
/// The policy of contents is `base-uri 'self'; frame-ancestors 'none'; object-src 'none'`. It
/// leaves scripts alone: only the program knows where its own come from. They all suit pages that
/// nothing frames, and whose images and scripts no other site embeds.
///
/// ```
/// use std::time::Duration;
///
/// use flatpath_http::Router;
/// use flatpath_http::http::HeaderValue;
/// use flatpath_http::http::header::{CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS};
/// use flatpath_layers::SecurityHeaders;
///
/// let careful = SecurityHeaders::new()
///     .set(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"))
///     .without(&X_FRAME_OPTIONS)
///     .strict_transport(Duration::from_secs(365 * 24 * 3600));
/// let router: Router = Router::new().get("/", || "hello\n").layer(careful);
/// ```
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    headers: Vec<(HeaderName, HeaderValue)>,
    /// On connections with TLS alone.
    strict_transport: Option<HeaderValue>,
}

impl SecurityHeaders {
    /// Those of the table.
    #[must_use]
    pub fn new() -> Self {
        let policy = "base-uri 'self'; frame-ancestors 'none'; object-src 'none'";
        let opener = HeaderName::from_static("cross-origin-opener-policy");
        let resource = HeaderName::from_static("cross-origin-resource-policy");
        let headers = [
            (CONTENT_SECURITY_POLICY, policy),
            (opener, "same-origin"),
            (resource, "same-origin"),
            (REFERRER_POLICY, "strict-origin-when-cross-origin"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
        ];
        Self {
            headers: headers
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .into(),
            strict_transport: None,
        }
    }

    /// This value for this header, which may be one that the table does not have.
    #[must_use]
    pub fn set(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self = self.without(&name);
        self.headers.push((name, value));
        self
    }

    /// Without this header.
    #[must_use]
    pub fn without(mut self, name: &HeaderName) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// `Strict-Transport-Security` (RFC 6797) for that long, in whole seconds, on connections that
    /// have TLS here: on others it must not be sent (7.2). Behind a proxy that encrypts, use
    /// [`set`](Self::set), or let the proxy send it. A browser that has seen it comes by TLS alone
    /// until the time is over.
    #[must_use]
    pub fn strict_transport(mut self, age: Duration) -> Self {
        // Digits are a value.
        let value = HeaderValue::try_from(format!("max-age={}", age.as_secs()));
        self.strict_transport = value.ok();
        self
    }
}

impl Default for SecurityHeaders {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for SecurityHeaders {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let mut added = self.headers.clone();
        if let Some(value) = self
            .strict_transport
            .clone()
            .filter(|_| Tls::of(&request).is_some())
        {
            added.push((STRICT_TRANSPORT_SECURITY, value));
        }
        next.run(request).map(move |mut response: Response| {
            for (name, value) in added {
                response.headers_mut().entry(name).or_insert(value);
            }
            response
        })
    }
}
