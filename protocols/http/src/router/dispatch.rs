//! From a request to what answers it: the service of a router.

use std::cell::RefCell;
use std::sync::Arc;

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use http::{Extensions, StatusCode};

use super::below::Below;
use super::slash::{self, TrailingSlash};
use super::{Path, Router, spelling};
use crate::extract;
use crate::head::{Framing, Head};
use crate::layer::answer::{Answer, Kind};
use crate::layer::whole::Whole;
use crate::layer::{self, BodyAt, Core};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};
use crate::respond::reply::{Disposition, Reply};
use crate::router::matched_path::MatchedPath;
use crate::router::methods::{Endpoint, Methods, OnWorker};
use crate::router::mount::{self, States};
use crate::router::parameters::Parameters;
use crate::router::streamed;
use crate::service::closures::{HandlerState, Route};
use crate::service::sink::UploadDecision;
use crate::service::terms::{Work, WorkerParts};
use crate::service::{BodyPlan, Place, Plan, Service};

/// Who answers a request.
struct Found<'a, S> {
    endpoint: &'a Endpoint<S>,
    /// Where the method has no handler.
    allow: Option<&'a Methods<S>>,
    /// The path of the route.
    pattern: Option<&'a Arc<str>>,
    /// What of the path is cut off for a mounted service.
    prefix_bytes: usize,
}

/// What a path has in the place of its route's parameters.
enum Values<'a, 'p> {
    /// As the client spelled them: without an escape.
    Plain(matchit::Params<'a, 'p>),
    Decoded(Result<Parameters, Refusal>),
}

/// Why a request that was found is answered without its handler.
enum Refusal {
    Parameters(&'static str),
    TooLong,
    /// The route's path, relative to that of the request: it has another slash at its end.
    Slash(String),
    /// RFC 9110 section 9.3.7: OPTIONS of the whole server.
    Options,
}

impl Refusal {
    fn response(&self, request: &Request) -> Response {
        match self {
            Self::Parameters(reason) => refused(StatusCode::BAD_REQUEST, reason),
            Self::TooLong => streamed::too_long(),
            Self::Slash(reference) => slash::redirect(reference, request.uri()),
            Self::Options => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

/// What a network thread keeps for a router: the request that its handlers get, and the state of
/// each mounted service.
#[doc(hidden)]
pub struct RouterState {
    handlers: HandlerState,
    services: States,
}

impl std::fmt::Debug for RouterState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("RouterState");
        shown.field("services", &self.services.len());
        shown.finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Router<S> {
    /// Who answers, and the parameters of the path.
    fn find<'a, 'p>(
        &'a self,
        method: &str,
        path: &'p str,
    ) -> (Found<'a, S>, Option<Values<'a, 'p>>) {
        if let Some(number) = self.spelled_out.get(path) {
            return (self.found(*number, method), None);
        }
        if let Some(spelled) = spelling::of_path(path) {
            return self.find_respelled(method, path, &spelled);
        }
        match self.walk(path) {
            Some((number, values)) => (self.found(number, method), Some(Values::Plain(values))),
            None => self.find_other(method, path),
        }
    }

    /// The same for a path that has escapes, of which this is the one spelling.
    #[cold]
    fn find_respelled<'a>(
        &'a self,
        method: &str,
        path: &str,
        spelled: &str,
    ) -> (Found<'a, S>, Option<Values<'a, 'static>>) {
        if let Some((number, parameters)) = self.find_spelled(spelled) {
            return (self.found(number, method), parameters.map(decoded));
        }
        let (mut found, values) = self.find_other(method, spelled);
        found.prefix_bytes = spelling::bytes_of(path, found.prefix_bytes);
        (found, values)
    }

    /// The route of a path in the one spelling.
    fn find_spelled<'a, 'p>(
        &'a self,
        path: &'p str,
    ) -> Option<(usize, Option<matchit::Params<'a, 'p>>)> {
        if let Some(number) = self.spelled_out.get(path) {
            return Some((*number, None));
        }
        let (number, values) = self.walk(path)?;
        Some((number, Some(values)))
    }

    /// The route of a path that is not spelled out.
    fn walk<'a, 'p>(&'a self, path: &'p str) -> Option<(usize, matchit::Params<'a, 'p>)> {
        if self.spelled_out.len() == self.paths.len() {
            return None;
        }
        let found = self.matcher.at(path).ok()?;
        Some((*found.value, found.params))
    }

    /// What answers on the route with this number.
    fn found(&self, number: usize, method: &str) -> Found<'_, S> {
        let Path {
            pattern, methods, ..
        } = &self.paths[number];
        let (endpoint, allow) = match methods.find(method) {
            Some(endpoint) => (endpoint, None),
            None => (methods.rest(), Some(methods)),
        };
        Found {
            endpoint,
            allow,
            pattern: Some(pattern),
            prefix_bytes: 0,
        }
    }

    /// Who answers a path that has no route itself: the route with another slash at the end, or
    /// what answers below a prefix.
    fn find_other<'a>(
        &'a self,
        method: &str,
        path: &str,
    ) -> (Found<'a, S>, Option<Values<'a, 'static>>) {
        let beside = match self.heeds_slashes {
            true => self.find_beside(method, path),
            false => None,
        };
        beside.unwrap_or_else(|| (self.find_below(path), None))
    }

    /// The route of the same path with another slash at its end, if that is to answer.
    #[cold]
    fn find_beside<'a>(
        &'a self,
        method: &str,
        path: &str,
    ) -> Option<(Found<'a, S>, Option<Values<'a, 'static>>)> {
        let other = slash::other(path)?;
        let (number, parameters) = self.find_spelled(&other)?;
        let rule = self.paths[number].trailing_slash.or(self.trailing_slash);
        let values = match rule.unwrap_or_default() {
            TrailingSlash::Strict => return None,
            TrailingSlash::Same => parameters.map(decoded),
            TrailingSlash::Redirect => {
                let reference = slash::reference(path);
                Some(Values::Decoded(Err(Refusal::Slash(reference))))
            }
        };
        Some((self.found(number, method), values))
    }

    /// Who answers a path that has no route.
    fn find_below<'a>(&'a self, path: &str) -> Found<'a, S> {
        let within = |nested: &'a Below<S>, endpoint: &'a Endpoint<S>| match nested.find(path) {
            Some((nested, _)) => &nested.endpoint,
            None => endpoint,
        };
        let (endpoint, pattern, prefix_bytes) = match self.below.find(path) {
            Some((below, prefix_bytes)) => {
                let endpoint = within(&below.nested, &below.endpoint);
                (endpoint, Some(&below.pattern), prefix_bytes)
            }
            None => {
                let rest = self.fallback.as_ref().unwrap_or(&self.not_found);
                (within(&self.nested, rest), None, 0)
            }
        };
        Found {
            endpoint,
            allow: None,
            pattern,
            prefix_bytes,
        }
    }

    /// Finds who answers, and gives the request what that asks for; or says why it is refused.
    fn prepare(&self, request: &mut Request, opens: bool) -> (Found<'_, S>, Option<Refusal>) {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let (found, values) = self.find(method, path);
        let parameters = parameters(values);
        found.prepare(parameters, request, opens)
    }
}

/// The parameters of a path with escapes.
fn decoded(values: matchit::Params<'_, '_>) -> Values<'static, 'static> {
    let decoded = Parameters::decode(values.iter());
    Values::Decoded(decoded.map_err(Refusal::Parameters))
}

/// The parameters of a path, if it has some, or why they are refused.
fn parameters(values: Option<Values<'_, '_>>) -> Option<Result<Parameters, Refusal>> {
    match values? {
        Values::Plain(plain) if plain.is_empty() => None,
        Values::Plain(plain) => {
            let parameters = Parameters::plain(plain.iter());
            Some(parameters.map_err(Refusal::Parameters))
        }
        Values::Decoded(decoded) => Some(decoded),
    }
}

impl<S: 'static> Found<'_, S> {
    /// The mounted service, if that is what answers.
    fn place(&self) -> Option<mount::Place> {
        let number = self.endpoint.service_number()?;
        let prefix_bytes = self.prefix_bytes;
        Some(mount::Place {
            number,
            prefix_bytes,
        })
    }

    /// Gives the request what its endpoint asks for; or says why it is refused.
    fn prepare(
        self,
        parameters: Option<Result<Parameters, Refusal>>,
        request: &mut Request,
        opens: bool,
    ) -> (Self, Option<Refusal>) {
        if request.uri().path() == "*" {
            return (self, Some(Refusal::Options));
        }
        let Endpoint {
            asks,
            body_bytes_max,
            ..
        } = *self.endpoint;
        if let Some(pattern) = self.pattern.filter(|_| asks.pattern) {
            let matched = MatchedPath::new(pattern);
            request.extensions_mut().insert(matched);
        }
        match parameters {
            None => {}
            Some(Ok(parameters)) => {
                request.extensions_mut().insert(parameters);
            }
            Some(Err(refusal)) => return (self, Some(refusal)),
        }
        let bytes_max = body_bytes_max.filter(|_| opens);
        let is_longer = |bytes_max| streamed::is_longer(request.headers(), bytes_max);
        let is_too_long = bytes_max.is_some_and(is_longer);
        (self, is_too_long.then_some(Refusal::TooLong))
    }
}

impl Router {
    /// Answers a request through layers, on a worker if there is one.
    fn answer_prepared(
        &self,
        (found, refusal): (Found<'_, ()>, Option<Refusal>),
        request: &mut Request,
        worker: Option<(mount::Body, &mut WorkerScope<'_>)>,
    ) -> Answer {
        let Found { endpoint, .. } = found;
        let body = worker.as_ref().map_or(mount::Body::Here, |(body, _)| *body);
        let leave = |layers: &[layer::Shared], request: Request| {
            let inside = endpoint.inside(&self.services, found.prefix_bytes);
            Whole::answer(layers, inside, request)
        };
        let worker = RefCell::new(worker.map(|(body, scope)| OnWorker {
            body,
            scope,
            services: &self.services,
            prefix_bytes: found.prefix_bytes,
        }));
        let on_worker = worker.borrow().is_some();
        let call = |request: &mut Request| {
            if let Some(refusal) = &refusal {
                return refusal.response(request).into();
            }
            if body == mount::Body::AfterHead && endpoint.handler_waits() {
                return leave(&[], extract::take(request));
            }
            let answer = endpoint.call(request, &(), worker.borrow_mut().as_mut());
            match (found.allow, answer) {
                (Some(methods), Answer(Kind::Ready(response))) => methods.allow(response).into(),
                (_, answer) => answer,
            }
        };
        if endpoint.layers.is_empty() {
            return call(request);
        }
        let kept = RefCell::new(None);
        let body_at = match body {
            mount::Body::AfterHead => BodyAt::ToCome(&leave),
            mount::Body::Here if endpoint.has_whole_body() && !request.body().is_empty() => {
                kept.replace(Some(std::mem::take(request.body_mut())));
                BodyAt::Kept(&kept)
            }
            mount::Body::Here | mount::Body::ToCome => BodyAt::Request,
        };
        let is_here = on_worker && body != mount::Body::AfterHead;
        let is_plain = is_here && refusal.is_none() && found.allow.is_none();
        let core = Core {
            call: &call,
            detach: &|| is_plain.then(|| endpoint.detach()).flatten(),
            body: body_at,
        };
        layer::through(&endpoint.layers, core, request)
    }

    /// Answers on a worker; a request that has to wait for its turn goes on in the next run.
    fn answer_on_worker(
        &self,
        request: &mut Request,
        body: mount::Body,
        scope: &mut WorkerScope<'_>,
    ) -> Answer {
        self.services
            .on_worker(request, body, scope, |request, scope| {
                let prepared = self.prepare(request, body == mount::Body::ToCome);
                self.answer_prepared(prepared, request, Some((body, scope)))
            })
    }
}

impl Service for Router {
    type ThreadState = RouterState;

    fn thread_state(&self) -> RouterState {
        RouterState {
            handlers: HandlerState::default(),
            services: self.services.thread_state(),
        }
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let (found, _) = self.find(head.method(), head.path());
        let endpoint = found.endpoint;
        let route = found.pattern.map(|pattern| &**pattern);
        let is_layered = !endpoint.layers.is_empty();
        if let Some(at) = found.place() {
            let plan = self.services.plan(at, head);
            let plan = Plan {
                route: route.or(plan.route),
                ..plan
            };
            return match is_layered {
                true => Plan {
                    place: plan.place.on_worker(),
                    body: plan.body.layered(head),
                    asks_peer: true,
                    ..plan
                },
                false => plan,
            };
        }
        let on_worker = || match &endpoint.terms {
            Some(terms) => Place::Within(terms),
            None => Place::Worker,
        };
        let body = endpoint.body_plan(head);
        let place = match (endpoint.place, &endpoint.right) {
            // A body would have to be read first, if it is to be.
            _ if head.framing() != Framing::Empty && body != BodyPlan::Unread => on_worker(),
            (Route::Inline, _) => Place::Inline,
            (Route::Prompt, Some(right)) if endpoint.may_be_tried() => Place::Prompt(right),
            _ => on_worker(),
        };
        Plan {
            place,
            body,
            asks_peer: endpoint.asks.peer,
            route,
        }
    }

    fn inline(
        &self,
        thread: &mut RouterState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let (found, values) = self.find(head.method(), head.path());
        if let Some(at) = found.place() {
            let thread = (&mut thread.services, turn);
            return self.services.inline(at, thread, head, reply);
        }
        thread.handlers.answer(head, reply, |request| {
            let prepared = found.prepare(parameters(values), request, false);
            let answer = self.answer_prepared(prepared, request, None);
            answer.into_response_now()
        })
    }

    /// Of a mounted service: a handler may wait, and a layer.
    fn work(&self, head: &Head<'_>) -> Option<Work> {
        let (found, _) = self.find(head.method(), head.path());
        let at = found.place()?;
        found
            .endpoint
            .layers
            .is_empty()
            .then(|| self.services.work(at, head))?
    }

    fn prompt(
        &self,
        thread: &mut RouterState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let (found, values) = self.find(head.method(), head.path());
        if let Some(at) = found.place() {
            let thread = (&mut thread.services, turn);
            return self.services.prompt(at, thread, head, pool, reply);
        }
        thread.handlers.answer_if(head, reply, |request| {
            let prepared = found.prepare(parameters(values), request, false);
            if let (found, None) = &prepared
                && let Some(attempted) = found.endpoint.attempt(request)
            {
                return attempted;
            }
            let answer = self.answer_prepared(prepared, request, None);
            Some(answer.into_response_now())
        })
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let answer = self.answer_on_worker(request, mount::Body::Here, scope);
        match answer.0 {
            Kind::Upload(sink) => sink.finish(scope),
            other => Answer(other).into_response_now(),
        }
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        let body = mount::Body::to_come(request);
        self.answer_on_worker(request, body, scope).into()
    }

    fn region(&self) -> Option<RegionConfig> {
        self.services.region()
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        let paths = self.paths.iter();
        let routes = paths.flat_map(|path| path.methods.endpoints().chain([path.methods.rest()]));
        let others = self.fallback.iter().chain([&self.not_found]);
        let mut add = |endpoint: &Endpoint<()>| {
            // Mounted services say it themselves.
            if endpoint.service_number().is_none() {
                parts.add(endpoint.terms.as_deref());
            }
        };
        routes.chain(others).for_each(&mut add);
        self.below.each(&mut add);
        self.nested.each(&mut add);
        self.services.worker_parts(parts);
    }

    fn response_ready(&self, thread: &mut RouterState, turn: Turn, note: &mut Extensions) {
        self.services
            .response_ready(&mut thread.services, turn, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::RequestMeta;
    use crate::message::Body;
    use crate::respond::reply::Out;
    use crate::router::methods;
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
                let disposition = router.inline(&mut thread, TURN, head, &mut reply);
                (
                    matches!(disposition, Disposition::Answered),
                    reply.body_bytes(),
                )
            });
            assert!(matches!(run, Ok(Some((true, 4)))));
            assert!(scratch.ends_with(b"\r\n\r\n"));
        };
        (0..100).for_each(|_| serve());
        let counted = measure(|| (0..100).for_each(|_| serve()));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}
