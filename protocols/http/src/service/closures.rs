//! Services made of handlers.

use std::sync::Arc;

use flatpath::memory::PoolHandle;
use flatpath::prompt::PromptRight;
use flatpath::{Turn, WorkerScope};

use crate::connection::state::Http;
use crate::extract::Asks;
use crate::handler::{self, Call, Handler};
use crate::head::names::Names;
use crate::head::request_builder::RequestBuilder;
use crate::head::{Framing, Head};
use crate::message::{Request, Response};
use crate::respond::reply::{Disposition, Reply};
use crate::service::terms::Terms;
use crate::service::{Plan, Service};

/// Where a router sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// To the network thread: the handler does not block for it and takes a few microseconds.
    Inline,
    /// To the network thread where the engine allows a try ([`flatpath::prompt`]), else to a
    /// worker: the handler may block and usually does not, which is watched.
    Prompt,
    /// To a worker.
    Pooled,
}

/// A function that answers requests, and one that says for each where it runs; see
/// [`Http::pooled`], [`Http::inline`] and [`Http::routed`]. It is one type for all functions, so a
/// program builds the protocol once, however many listeners it has; a request pays two virtual
/// calls for it.
#[derive(Clone)]
pub struct HandlerService {
    route: Arc<dyn Fn(&Head<'_>) -> Route + Send + Sync>,
    call: Call<()>,
    asks: Asks,
    right: Arc<PromptRight>,
    /// If the handler wants more from a worker than to be called.
    terms: Option<Terms>,
}

impl HandlerService {
    fn on_worker(&self) -> Disposition<'_> {
        match &self.terms {
            Some(terms) => Disposition::Within(terms),
            None => Disposition::Pooled,
        }
    }
}

flatpath::opaque_debug! {
    impl[] HandlerService as "HandlerService";
}

impl Http<HandlerService> {
    /// A handler that may block: workers run it.
    pub fn pooled<M: 'static>(handler: impl Handler<M>) -> Self {
        Self::routed(|_: &Head<'_>| Route::Pooled, handler)
    }

    /// A handler that usually has its answer at hand, and blocks now and then: the network thread
    /// tries it when nothing else of its connection is under way, which spares two wake-ups, and
    /// workers run it when there is more to do. If one call blocks for milliseconds after another,
    /// workers run all of them from then on, and a line in the log says so. Requests with a body
    /// go to workers.
    pub fn prompt<M: 'static>(handler: impl Handler<M>) -> Self {
        Self::routed(|_: &Head<'_>| Route::Prompt, handler)
    }

    /// A handler that never blocks and takes no more than a few microseconds: it runs on the
    /// network thread. Requests with a body, or after one that has one, still go to workers.
    pub fn inline<M: 'static>(handler: impl Handler<M>) -> Self {
        Self::routed(|_: &Head<'_>| Route::Inline, handler)
    }

    /// A handler for which `route` says, request by request, where it runs.
    pub fn routed<M: 'static>(
        route: impl Fn(&Head<'_>) -> Route + Send + Sync + 'static,
        handler: impl Handler<M>,
    ) -> Self {
        let asks = handler::asks(&handler);
        Self::service(HandlerService {
            route: Arc::new(route),
            call: handler::call(handler),
            asks,
            right: Arc::new(PromptRight::granted("the handler of a listener")),
            terms: asks.client.then(Terms::watching),
        })
    }
}

/// What a network thread keeps for handlers that it runs: the request that they get.
#[derive(Default)]
pub struct HandlerState {
    builder: RequestBuilder,
    names: Names,
}

flatpath::opaque_debug! {
    impl[] HandlerState as "HandlerState";
}

impl HandlerState {
    /// Answers with what a handler makes of the request.
    pub(crate) fn answer(
        &mut self,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
        handle: impl FnOnce(&mut Request) -> Response,
    ) -> Disposition<'static> {
        self.answer_if(head, reply, |request| Some(handle(request)))
    }

    /// Answers with what `handle` makes of the request, if it makes something of it; else it is
    /// left to workers. The request has no body.
    pub(crate) fn answer_if(
        &mut self,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
        handle: impl FnOnce(&mut Request) -> Option<Response>,
    ) -> Disposition<'static> {
        match self.with_request(head, handle).flatten() {
            Some(response) => reply.response(response),
            None => Disposition::Pooled,
        }
    }

    /// What `handle` makes of the request, which has no body. `None`: the head is none of a
    /// request, which a worker's way reports.
    pub fn with_request<T>(
        &mut self,
        head: &Head<'_>,
        handle: impl FnOnce(&mut Request) -> T,
    ) -> Option<T> {
        let Self { builder, names } = self;
        // What a handler that panicked has left.
        builder.clear();
        builder.fill(head, names).ok()?;
        let made = handle(&mut builder.request);
        builder.clear();
        Some(made)
    }
}

impl Service for HandlerService {
    type ThreadState = HandlerState;

    fn thread_state(&self) -> HandlerState {
        HandlerState::default()
    }

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        Plan {
            asks_peer: self.asks.peer,
            ..Plan::default()
        }
    }

    fn inline(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        // A body would have to be read first.
        if head.framing() != Framing::Empty {
            return self.on_worker();
        }
        match (self.route)(head) {
            Route::Inline => thread.answer(head, reply, |request| (self.call)(request, &())),
            Route::Prompt => Disposition::Prompt(&self.right),
            Route::Pooled => self.on_worker(),
        }
    }

    fn prompt(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        _: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        thread.answer(head, reply, |request| (self.call)(request, &()))
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        (self.call)(request, &())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::RequestMeta;
    use crate::respond::reply::Out;
    use crate::testing;
    use allocation_counter::measure;
    use std::time::Duration;

    const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(0));

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
    fn an_inline_handler_is_asked_and_answered_without_allocating() {
        let input = b"GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: tests\r\nCookie: a=b\r\n\
            X-Custom-Header: something of our own\r\nX-Another: one\r\n\r\n";
        let http = Http::inline(|request: &Request| {
            assert_eq!(request.headers().len(), 5);
            assert_eq!(request.headers()["x-custom-header"], "something of our own");
            Response::new("hello".into())
        });
        let (mut thread, mut scratch) = (http.service.thread_state(), Vec::new());
        let mut serve = || {
            let run = testing::with_head(input, |head| {
                let out = Out::scratch(&mut scratch);
                let mut reply = Reply::new(out, b"Date: D\r\n", RequestMeta::of(head));
                let disposition = http.service.inline(&mut thread, TURN, head, &mut reply);
                (
                    matches!(disposition, Disposition::Answered),
                    reply.body_bytes(),
                )
            });
            assert!(matches!(run, Ok(Some((true, 5)))));
            assert!(scratch.ends_with(b"\r\n\r\n"));
        };
        (0..100).for_each(|_| serve());
        let counted = measure(|| (0..100).for_each(|_| serve()));
        assert_eq!(counted.count_total, 0, "{counted:?}");
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
