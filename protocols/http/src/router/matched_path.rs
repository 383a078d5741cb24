//! The path of the route that a request was found by.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use crate::extract::{Asks, FromRequestParts, OptionalFromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};

/// The path of the route that a request was found by, as the router has it: `/users/{id}`, of what
/// is mounted the prefix. An argument of a handler; layers have it of every request that has a
/// route, for figures and log lines that must not have a name for each address.
///
/// ```
/// use flatpath_http::{Answer, MatchedPath, Next, Request, Router};
///
/// fn count(request: Request, next: &Next<'_>) -> Answer {
///     let path = MatchedPath::of(&request).map_or("none", MatchedPath::as_str);
///     log::info!("one more request for {path}");
///     next.run(request)
/// }
///
/// let router: Router = Router::new().get("/users/{id}", || "a user\n").layer(count);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatchedPath(Arc<str>);

impl MatchedPath {
    pub(crate) fn new(pattern: &Arc<str>) -> Self {
        Self(Arc::clone(pattern))
    }

    /// The path of the request's route, where it has one and the handler or a layer asks for it.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MatchedPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<S> FromRequestParts<S> for MatchedPath {
    type Rejection = MatchedPathRejection;

    const ASKS: Asks = Asks::PATTERN;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, MatchedPathRejection> {
        Self::of(request).cloned().ok_or(MatchedPathRejection)
    }
}

impl<S> OptionalFromRequestParts<S> for MatchedPath {
    type Rejection = std::convert::Infallible;

    const ASKS: Asks = Asks::PATTERN;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(Self::of(request).cloned())
    }
}

/// The request has no route: its handler is a fallback of the whole router, or has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchedPathRejection;

flatpath::impl_error! {
    MatchedPathRejection {
        Self => "this request has no route",
    }
}

impl IntoResponse for MatchedPathRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::INTERNAL_SERVER_ERROR, &self)
    }
}
