//! Paths to handlers.
//!
//! A path is matched as the client spelled it, undecoded; parameters are percent-decoded once,
//! after they were taken out, so that `%2F` in one never separates segments.
//!
//! Cost: one look into a table for a path that is spelled out, else a walk through a radix tree; on
//! the network thread, and once more where the handler runs. Finding a path that is spelled out
//! allocates nothing.

use std::collections::HashMap;
use std::sync::Arc;

use flatpath::memory::PoolHandle;
use flatpath::{Turn, WorkerScope};
use http::StatusCode;

use crate::closures::{HandlerState, Route};
use crate::handler::Handler;
use crate::head::{Framing, Head};
use crate::into_response::{IntoResponse, refused};
use crate::message::{Request, Response};
use crate::methods::{Endpoint, Methods, Next};
use crate::parameters::Parameters;
use crate::reply::{Disposition, Reply};
use crate::service::{BodyPlan, Place, Plan, Service};
use crate::sink::{Begun, UploadDecision};
use crate::streamed::{self, Within};

/// A service that sends each request to the handler of its path and method.
///
/// A path names its parameters in braces: `/users/{id}`, and `/files/{*rest}` for all of the rest.
/// Literal segments win over parameters. Handlers run on workers unless they are
/// [`inline`](Methods::inline). `S` is what [`State`](crate::State) gives to them.
///
/// ```
/// use flatpath_http::{Http, Next, Parameters, Request, Response, Router, State, routing};
///
/// fn user(State(greeting): State<&'static str>, parameters: Parameters) -> String {
///     format!("{greeting}, {}\n", parameters.get("id").unwrap_or_default())
/// }
///
/// fn timed(request: Request, next: &Next<'_>) -> Response {
///     let begun = std::time::Instant::now();
///     let response = next.run(request);
///     log::info!("it took {:?}", begun.elapsed());
///     response
/// }
///
/// let router = Router::new()
///     .get("/users/{id}", user)
///     .layer(timed)
///     .route("/health", routing::get(|| "well\n").inline())
///     .with_state("hello");
/// let http = Http::service(router);
/// ```
pub struct Router<S = ()> {
    paths: Vec<Path<S>>,
    /// Every path.
    matcher: matchit::Router<usize>,
    /// The paths without parameters, which go before the others: the walk through the tree
    /// allocates where a path could be either.
    spelled_out: HashMap<String, usize>,
    fallback: Option<Endpoint<S>>,
    not_found: Endpoint<S>,
}

struct Path<S> {
    pattern: String,
    methods: Methods<S>,
}

/// Who answers a request.
struct Found<'a, S> {
    endpoint: &'a Endpoint<S>,
    /// Where the method has no handler.
    allow: Option<&'a Methods<S>>,
}

impl<S: Send + Sync + 'static> Default for Router<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Send + Sync + 'static> Router<S> {
    /// One that answers everything with 404.
    #[must_use]
    pub fn new() -> Self {
        Self {
            paths: Vec::new(),
            matcher: matchit::Router::new(),
            spelled_out: HashMap::new(),
            fallback: None,
            not_found: Endpoint::not_found(),
        }
    }

    /// Adds handlers of a path, to those that it has already.
    ///
    /// # Panics
    /// When a method of this path has a handler already, the path conflicts with another (one text
    /// would match both), or is not well formed. The message names both, and the line of the call.
    #[must_use]
    #[track_caller]
    pub fn route(mut self, path: &str, mut methods: Methods<S>) -> Self {
        methods.grant(path);
        if let Some(known) = self.paths.iter_mut().find(|known| known.pattern == path) {
            known.methods.merge(path, methods);
            return self;
        }
        assert!(path.starts_with('/'), "a path begins with a slash: {path}");
        match self.matcher.insert(path, self.paths.len()) {
            Ok(()) => {}
            Err(matchit::InsertError::Conflict { with }) => {
                panic!("the path {path} conflicts with {with}, which has handlers already")
            }
            Err(why) => panic!("the path {path} is not well formed: {why}"),
        }
        let pattern = path.to_owned();
        if !path.contains(['{', '}']) {
            self.spelled_out.insert(pattern.clone(), self.paths.len());
        }
        self.paths.push(Path { pattern, methods });
        self
    }

    /// Adds the routes of another, with this in front of each; `/` there becomes `prefix` itself.
    /// Handlers see the whole path. Its fallback is not taken over.
    ///
    /// # Panics
    /// As [`Router::route`].
    #[must_use]
    #[track_caller]
    pub fn nest(mut self, prefix: &str, inner: Self) -> Self {
        let prefix = prefix.trim_end_matches('/');
        for Path { pattern, methods } in inner.paths {
            let path = match pattern.as_str() {
                "/" if !prefix.is_empty() => prefix.to_owned(),
                pattern => format!("{prefix}{pattern}"),
            };
            self = self.route(&path, methods);
        }
        self
    }

    /// Adds the routes of another, and its fallback.
    ///
    /// # Panics
    /// As [`Router::route`], and when both have a fallback.
    #[must_use]
    #[track_caller]
    pub fn merge(mut self, mut other: Self) -> Self {
        let fallback = other.fallback.take();
        assert!(
            self.fallback.is_none() || fallback.is_none(),
            "both routers have a fallback"
        );
        self.fallback = self.fallback.or(fallback);
        self.nest("", other)
    }

    /// Answers paths without a route, in place of a 404.
    #[must_use]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M, S>) -> Self {
        self.fallback = Some(Endpoint::new(handler));
        self
    }

    /// Puts a function around every handler so far, and around what answers 404, 405 and `OPTIONS`
    /// so far. It runs where the handler runs, those three on workers; it takes the request, so it
    /// costs a header map. The layer that was added last is called first.
    ///
    /// A `fn` names what it returns, `Response` say: `impl IntoResponse` would borrow from `Next`.
    #[must_use]
    pub fn layer<R, F>(mut self, layer: F) -> Self
    where
        R: IntoResponse,
        F: Fn(Request, &Next<'_>) -> R + Send + Sync + 'static,
    {
        let layer = Arc::new(layer);
        for Path { methods, .. } in &mut self.paths {
            for endpoint in methods.endpoints_mut() {
                endpoint.layer(&layer, endpoint.place);
            }
            methods.rest_mut().layer(&layer, Route::Pooled);
        }
        if let Some(fallback) = &mut self.fallback {
            fallback.layer(&layer, fallback.place);
        }
        self.not_found.layer(&layer, Route::Pooled);
        self
    }

    /// Gives the handlers so far their state.
    #[must_use]
    pub fn with_state<T: Send + Sync + 'static>(self, state: S) -> Router<T> {
        let state = Arc::new(state);
        let with_state = |Path { pattern, methods }| Path {
            pattern,
            methods: Methods::with_state(methods, &state),
        };
        Router {
            paths: self.paths.into_iter().map(with_state).collect(),
            matcher: self.matcher,
            spelled_out: self.spelled_out,
            fallback: self.fallback.map(|fallback| fallback.with_state(&state)),
            not_found: self.not_found.with_state(&state),
        }
    }

    /// Who answers, and the parameters of the path.
    fn find<'a, 'p>(
        &'a self,
        method: &str,
        path: &'p str,
    ) -> (Found<'a, S>, Option<matchit::Params<'a, 'p>>) {
        let spelled_out = self.spelled_out.get(path).map(|number| (*number, None));
        let by_tree = || {
            let found = self.matcher.at(path).ok()?;
            Some((*found.value, Some(found.params)))
        };
        let Some((number, parameters)) = spelled_out.or_else(by_tree) else {
            let endpoint = self.fallback.as_ref().unwrap_or(&self.not_found);
            return (
                Found {
                    endpoint,
                    allow: None,
                },
                None,
            );
        };
        let methods = &self.paths[number].methods;
        let (endpoint, allow) = match methods.find(method) {
            Some(endpoint) => (endpoint, None),
            None => (methods.rest(), Some(methods)),
        };
        (Found { endpoint, allow }, parameters)
    }

    pub(crate) fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// Whether a path has a route, or is the whole server.
    pub(crate) fn has(&self, path: &str) -> bool {
        path == "*" || self.spelled_out.contains_key(path) || self.matcher.at(path).is_ok()
    }

    fn answer(&self, request: &mut Request, state: &S) -> Response {
        let call =
            |endpoint: &Endpoint<S>, request: &mut Request| Some(endpoint.call(request, state));
        self.answer_by(call, request)
            .unwrap_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }

    /// Answers with what `call` makes of the endpoint and the request, if it makes something.
    fn answer_by(
        &self,
        call: impl FnOnce(&Endpoint<S>, &mut Request) -> Option<Response>,
        request: &mut Request,
    ) -> Option<Response> {
        // RFC 9110 section 9.3.7: OPTIONS of the whole server.
        if request.uri().path() == "*" {
            return Some(StatusCode::NO_CONTENT.into_response());
        }
        let (method, path) = (request.method().as_str(), request.uri().path());
        let (found, parameters) = self.find(method, path);
        match parameters.filter(|parameters| !parameters.is_empty()) {
            None => {}
            Some(parameters) => match Parameters::decode(parameters.iter()) {
                Ok(decoded) => {
                    request.extensions_mut().insert(decoded);
                }
                Err(reason) => return Some(refused(StatusCode::BAD_REQUEST, &reason)),
            },
        }
        let response = call(found.endpoint, request)?;
        Some(match found.allow {
            Some(methods) => methods.allow(response),
            None => response,
        })
    }
}

/// A method of the router for each method of HTTP.
macro_rules! methods {
    ($($name:ident: $text:literal;)+) => {
        impl<S: Send + Sync + 'static> Router<S> {
            $(
                #[doc = concat!("Adds a handler for ", $text, " of a path.")]
                ///
                /// # Panics
                /// As [`Router::route`].
                #[must_use]
                #[track_caller]
                pub fn $name<M: 'static>(self, path: &str, handler: impl Handler<M, S>) -> Self {
                    self.route(path, crate::methods::$name(handler))
                }
            )+
        }
    };
}

methods! {
    get: "`GET`";
    post: "`POST`";
    put: "`PUT`";
    delete: "`DELETE`";
    patch: "`PATCH`";
    head: "`HEAD`";
    options: "`OPTIONS`";
    any: "every method without one of its own";
}

impl Service for Router {
    type ThreadState = HandlerState;

    fn thread_state(&self) -> HandlerState {
        HandlerState::default()
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let endpoint = self.find(head.method(), head.path()).0.endpoint;
        let place = match (endpoint.place, &endpoint.right) {
            // A body would have to be read first.
            _ if head.framing() != Framing::Empty => Place::Worker,
            (Route::Inline, _) => Place::Inline,
            (Route::Prompt, Some(right)) if !endpoint.streams => Place::Prompt(right),
            _ => Place::Worker,
        };
        let body = match endpoint.streams {
            true => BodyPlan::Streamed,
            false => BodyPlan::Whole {
                bytes_max: endpoint.body_bytes_max,
            },
        };
        Plan {
            place,
            body,
            asks_peer: endpoint.asks_peer,
        }
    }

    fn inline(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        thread.answer(head, reply, |request| self.answer(request, &()))
    }

    fn prompt(
        &self,
        thread: &mut HandlerState,
        _: Turn,
        head: &Head<'_>,
        _: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let attempt =
            |endpoint: &Endpoint<()>, request: &mut Request| endpoint.attempt(request, &());
        thread.answer_if(head, reply, |request| self.answer_by(attempt, request))
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let mut response = self.answer(request, &());
        match streamed::take(&mut response) {
            // An empty body has nothing to be streamed.
            Some(sink) if request.body().is_empty() => sink.finish(scope),
            _ => response,
        }
    }

    fn open(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let bytes_max = self.find(method, path).0.endpoint.body_bytes_max;
        if bytes_max.is_some_and(|bytes_max| streamed::is_longer(request.headers(), bytes_max)) {
            return UploadDecision::Response(streamed::too_long());
        }
        let mut response = self.answer(request, &());
        match (streamed::take(&mut response), bytes_max) {
            (Some(sink), None) => UploadDecision::Sink(sink),
            (Some(sink), Some(bytes_left)) => {
                let sink = Begun::new(sink);
                UploadDecision::Sink(Box::new(Within { sink, bytes_left }))
            }
            (None, _) => UploadDecision::Response(response),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::RequestMeta;
    use crate::message::Body;
    use crate::methods;
    use crate::reply::Out;
    use crate::testing;
    use allocation_counter::measure;
    use http::Method;
    use std::time::Duration;

    #[test]
    fn an_inline_route_is_found_and_answered_without_allocating() {
        const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(0));
        let input = b"GET /a/fast HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\n\r\n";
        let fast = |method: Method| Body::from(if method == Method::GET { "fast" } else { "" });
        let router = Router::new()
            .get("/{id}/{other}", || "slow")
            .route("/a/fast", methods::get(fast).inline());
        let (mut thread, mut scratch) = (router.thread_state(), Vec::new());
        let mut serve = || {
            let run = testing::with_head(input, |head| {
                let out = Out::scratch(&mut scratch);
                let mut reply = Reply::new(out, b"Date: D\r\n", RequestMeta::of(head));
                router.inline(&mut thread, TURN, head, &mut reply)
            });
            assert!(matches!(run, Ok(Some(Disposition::Answered))));
            assert!(scratch.ends_with(b"fast"));
        };
        (0..100).for_each(|_| serve());
        let counted = measure(|| (0..100).for_each(|_| serve()));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}
