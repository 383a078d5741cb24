//! Services made of closures.

use flatpath::{Turn, WorkerScope};

use crate::head::{Framing, Head};
use crate::message::{Request, Response};
use crate::names::Names;
use crate::reply::{Disposition, Reply};
use crate::request_builder::RequestBuilder;
use crate::service::Service;
use crate::state::Http;

/// Where a router sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the network thread: the handler does not block for it and takes a few microseconds.
    Inline,
    /// To a worker.
    Pooled,
}

/// A handler that runs on workers and may block; see [`Http::pooled`].
#[derive(Clone, Debug)]
pub struct Pooled<F>(F);

/// A handler that runs on the network thread; see [`Http::inline`].
#[derive(Clone, Debug)]
pub struct Inline<F>(F);

/// A handler with a router in front; see [`Http::routed`].
#[derive(Clone, Debug)]
pub struct Routed<R, F> {
    route: R,
    handler: F,
}

impl<F: Fn(&Request) -> Response + Send + Sync + 'static> Http<Pooled<F>> {
    /// A handler that may block: workers run it.
    pub fn pooled(handler: F) -> Self {
        Self::service(Pooled(handler))
    }
}

impl<F: Fn(&Request) -> Response + Send + Sync + 'static> Http<Inline<F>> {
    /// A handler that never blocks and takes no more than a few microseconds: it runs on the
    /// network thread. Requests with a body, or after one that has one, still go to workers.
    pub fn inline(handler: F) -> Self {
        Self::service(Inline(handler))
    }
}

impl<R, F> Http<Routed<R, F>>
where
    R: Fn(&Head<'_>) -> Route + Send + Sync + 'static,
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    /// A handler for which `route` says, request by request, where it runs.
    pub fn routed(route: R, handler: F) -> Self {
        Self::service(Routed { route, handler })
    }
}

/// What a network thread keeps for a handler that it runs.
pub struct HandlerState {
    builder: RequestBuilder,
    names: Names,
}

impl HandlerState {
    fn new() -> Self {
        Self {
            builder: RequestBuilder::default(),
            names: Names::new(),
        }
    }

    /// Runs a handler here and now, unless the request has a body that would have to be read first.
    fn answer(
        &mut self,
        handler: impl Fn(&Request) -> Response,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition {
        // What a handler that panicked has left.
        self.builder.clear();
        if head.framing() != Framing::Empty || self.builder.fill(head, &mut self.names).is_err() {
            return Disposition::Pooled;
        }
        let response = handler(self.builder.request());
        self.builder.clear();
        reply.response(response)
    }
}

impl<F: Fn(&Request) -> Response + Send + Sync + 'static> Service for Pooled<F> {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, _: &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition {
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        (self.0)(request)
    }
}

impl<F: Fn(&Request) -> Response + Send + Sync + 'static> Service for Inline<F> {
    type ThreadState = HandlerState;

    fn thread_state(&self) -> HandlerState {
        HandlerState::new()
    }

    fn inline(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition {
        thread.answer(&self.0, head, reply)
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        (self.0)(request)
    }
}

impl<R, F> Service for Routed<R, F>
where
    R: Fn(&Head<'_>) -> Route + Send + Sync + 'static,
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    type ThreadState = HandlerState;

    fn thread_state(&self) -> HandlerState {
        HandlerState::new()
    }

    fn inline(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition {
        match (self.route)(head) {
            Route::Inline => thread.answer(&self.handler, head, reply),
            Route::Pooled => Disposition::Pooled,
        }
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        (self.handler)(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const TURN: Turn = Turn {
        number: 1,
        now_ns: 0,
        wall_seconds: 0,
    };

    fn inline<S: Service>(http: &Http<S>, input: &str) -> Option<String> {
        let mut thread = http.service.thread_state();
        let answer = testing::inline(&http.service, &mut thread, TURN, input.as_bytes());
        answer
            .expect("valid")
            .map(|answer| String::from_utf8(answer).expect("ASCII"))
    }

    fn path(request: &Request) -> Response {
        Response::new(request.uri().path().to_owned().into())
    }

    #[test]
    fn an_inline_handler_answers_what_has_no_body() {
        let http = Http::inline(path);
        let answer = inline(&http, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n").expect("inline");
        assert!(answer.ends_with("\r\n\r\n/a"), "{answer}");
        assert_eq!(
            inline(
                &http,
                "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n"
            ),
            None
        );
    }

    #[test]
    fn a_pooled_handler_answers_nothing_inline() {
        let http = Http::pooled(path);
        assert_eq!(inline(&http, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"), None);
    }

    #[test]
    fn a_router_decides_by_the_head() {
        let route = |head: &Head<'_>| match head.path() {
            "/fast" => Route::Inline,
            _ => Route::Pooled,
        };
        let http = Http::routed(route, path);
        assert!(inline(&http, "GET /fast HTTP/1.1\r\nHost: h\r\n\r\n").is_some());
        assert!(inline(&http, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").is_none());
    }
}
