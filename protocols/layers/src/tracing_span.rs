//! A span of the crate `tracing` for each request.
//!
//! Cost: that of the program's subscriber; without one, a few loads.

use flatpath_http::{Answer, Layer, MatchedPath, Next, Request, RequestId, Response};
use tracing::field::Empty;

use crate::clock;

/// Puts a span around each request, at the level INFO: `request`, with `method`, `path`, `id`,
/// `status` and `latency_us`.
///
/// Handlers and layers inside run in it. `path` is that of the route, such as `/users/{id}`, so
/// that the number of names is bounded; `-` where there is none. `id` is there where
/// [`SetRequestId`](crate::SetRequestId) is around. `status` and `latency_us`, in microseconds, are
/// known when the response is: of an upload at its end. Then there is an event, at ERROR for 5xx
/// and at INFO for others. A request whose client goes away first has neither.
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::{SetRequestId, TracingSpan};
///
/// let router: Router = Router::new()
///     .get("/users/{id}", || "a user\n")
///     .layer(TracingSpan::new())
///     .layer(SetRequestId::new());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSpan(());

impl TracingSpan {
    /// A layer.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
}

impl Layer for TracingSpan {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let begun = clock::now();
        let span = tracing::info_span!(
            "request",
            method = request.method().as_str(),
            path = MatchedPath::of(&request).map_or("-", MatchedPath::as_str),
            id = RequestId::of(&request).map(RequestId::as_str),
            status = Empty,
            latency_us = Empty,
        );
        let answer = span.in_scope(|| next.run(request));
        answer.map(move |response: Response| {
            let latency = begun.elapsed().as_micros();
            span.record("status", response.status().as_u16());
            span.record("latency_us", u64::try_from(latency).unwrap_or(u64::MAX));
            span.in_scope(|| match response.status().is_server_error() {
                true => tracing::error!("response"),
                false => tracing::info!("response"),
            });
            response
        })
    }
}
