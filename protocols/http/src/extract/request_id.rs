//! The name of a request in logs, in its response, and at the services that it calls.

use std::fmt;

use http::HeaderValue;

use crate::extract::{Asks, Extension, ExtensionRejection, FromRequestParts};
use crate::message::Request;

/// The name of one request. A layer gives it (`SetRequestId` of the crate `flatpath-layers` is
/// one): in the request's extensions it is for handlers, whose argument it is, and for the layers
/// inside; in the response's for the access log, whose lines in the JSON format have it.
///
/// ```
/// use flatpath_http::http::HeaderValue;
/// use flatpath_http::{Answer, Next, Request, RequestId, Response, Router};
///
/// fn name(mut request: Request, next: &Next<'_>) -> Answer {
///     let id = RequestId::new(HeaderValue::from(fastrand::u64(..)));
///     request.extensions_mut().insert(id.clone());
///     next.run(request).map(|mut response: Response| {
///         response.extensions_mut().insert(id);
///         response
///     })
/// }
///
/// fn show(id: RequestId) -> String {
///     format!("this is request {id}\n")
/// }
///
/// let router: Router = Router::new().get("/", show).layer(name);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// This name.
    #[must_use]
    pub fn new(id: HeaderValue) -> Self {
        Self(id)
    }

    /// The name of a request, where a layer has given one.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// It as text; empty where it is not visible ASCII.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// It as a header's value: for requests to other services.
    #[must_use]
    pub fn as_header_value(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl<S> FromRequestParts<S> for RequestId {
    type Rejection = ExtensionRejection;

    const ASKS: Asks = Asks::NOTHING;

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, ExtensionRejection> {
        let Extension(id) = FromRequestParts::from_request_parts(request, state)?;
        Ok(id)
    }
}
