//! What one path answers: a handler for each method, and where and within what it runs.

use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath::prompt::PromptRight;
use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};

use crate::extract::Asks;
use crate::handler::{self, Call, Handler};
use crate::head::Head;
use crate::layer::answer::{Answer, Kind, failed};
use crate::layer::whole::{self, Inside, Place};
use crate::layer::{self, Layer};
use crate::message::{Request, Response};
use crate::respond::into_response::IntoResponse;
use crate::router::mount::{self, Services};
use crate::router::streamed::{self, Within};
use crate::service::BodyPlan;
use crate::service::around::Around;
use crate::service::closures::Route;
use crate::service::terms::{Part, Terms};

type Attempt = Arc<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

/// What is innermost of an endpoint.
enum Core<S> {
    Handler(Call<S>),
    /// The mounted service with this number.
    Service(usize),
}

impl<S> Clone for Core<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Handler(call) => Self::Handler(Arc::clone(call)),
            Self::Service(number) => Self::Service(*number),
        }
    }
}

/// One handler or mounted service with the layers around it, and what its requests are held to.
pub(crate) struct Endpoint<S> {
    core: Core<S>,
    /// From the innermost.
    pub(crate) layers: Vec<layer::Shared>,
    /// What is tried in place of the handler, on a network thread.
    attempt: Option<Attempt>,
    pub(crate) place: Route,
    /// Whether it may be tried, where its place is [`Route::Prompt`]; the router grants it.
    pub(crate) right: Option<Arc<PromptRight>>,
    pub(crate) body_bytes_max: Option<u64>,
    /// How its body is taken.
    body: BodyTaken,
    /// What it, or a layer around it, gets of the connection and the route.
    pub(crate) asks: Asks,
    /// On which workers get its requests, if that is not as for all others.
    pub(crate) terms: Option<Box<Terms>>,
}

/// How an endpoint takes the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyTaken {
    /// With the request.
    Whole,
    /// Piece by piece.
    Streamed,
    /// It needs none: it answers that nothing is there, or not for this method.
    Unread,
}

/// How a worker calls an endpoint.
pub(crate) struct OnWorker<'a, 's> {
    pub(crate) body: mount::Body,
    pub(crate) scope: &'a mut WorkerScope<'s>,
    pub(crate) services: &'a Services,
    pub(crate) prefix_bytes: usize,
}

impl<S: 'static> Endpoint<S> {
    pub(crate) fn new<M: 'static>(handler: impl Handler<M, S>) -> Self {
        let asks = handler::asks(&handler);
        let mut endpoint = Self {
            asks,
            ..Self::of(Core::Handler(handler::call(handler)))
        };
        if asks.client {
            endpoint.terms_mut().watches = true;
        }
        endpoint
    }

    fn terms_mut(&mut self) -> &mut Terms {
        self.terms.get_or_insert_default()
    }

    /// It has this part of the workers, unless it has one of its own.
    pub(crate) fn runs_in(&mut self, part: &Part) {
        self.terms_mut().within(part);
    }

    /// The mounted service with this number, which decides itself where it runs.
    pub(crate) fn service(number: usize) -> Self {
        Self::of(Core::Service(number))
    }

    fn of(core: Core<S>) -> Self {
        Self {
            core,
            layers: Vec::new(),
            attempt: None,
            place: Route::Pooled,
            right: None,
            body_bytes_max: None,
            body: BodyTaken::Whole,
            asks: Asks::NOTHING,
            terms: None,
        }
    }

    /// Answers 404 wherever its request is.
    pub(crate) fn not_found() -> Self {
        Self::refusing(|| (StatusCode::NOT_FOUND, "there is nothing here\n"))
    }

    /// Answers by the head alone, wherever its request is.
    fn refusing<M: 'static>(handler: impl Handler<M, S>) -> Self {
        Self {
            place: Route::Inline,
            body: BodyTaken::Unread,
            ..Self::new(handler)
        }
    }

    /// How the body of a request is taken.
    pub(crate) fn body_plan(&self, head: &Head<'_>) -> BodyPlan {
        let plan = self.body_plan_inside();
        match self.layers.is_empty() {
            true => plan,
            false => plan.layered(head),
        }
    }

    fn body_plan_inside(&self) -> BodyPlan {
        match self.body {
            BodyTaken::Whole => BodyPlan::Whole {
                bytes_max: self.body_bytes_max,
            },
            BodyTaken::Streamed => BodyPlan::Streamed,
            BodyTaken::Unread => BodyPlan::Unread,
        }
    }

    /// Whether a network thread may try it.
    pub(crate) fn may_be_tried(&self) -> bool {
        self.body != BodyTaken::Streamed && self.terms.is_none()
    }

    /// The same within these layers too, from the innermost of them.
    pub(crate) fn within(&self, layers: &[layer::Shared]) -> Self {
        let mut endpoint = Self {
            core: self.core.clone(),
            layers: self.layers.clone(),
            attempt: self.attempt.clone(),
            place: self.place,
            right: self.right.clone(),
            body_bytes_max: self.body_bytes_max,
            body: self.body,
            asks: self.asks,
            terms: self.terms.clone(),
        };
        for layer in layers {
            endpoint.layer(layer, endpoint.place);
        }
        endpoint
    }

    /// The number of its service, if it is a mounted one.
    pub(crate) fn service_number(&self) -> Option<usize> {
        match self.core {
            Core::Handler(_) => None,
            Core::Service(number) => Some(number),
        }
    }

    /// Its router becomes part of another, which has so many services already.
    pub(crate) fn renumber(&mut self, before: usize) {
        if let Core::Service(number) = &mut self.core {
            *number += before;
        }
    }

    /// Calls what is innermost: on a worker, or on a network thread.
    pub(crate) fn call(
        &self,
        request: &mut Request,
        state: &S,
        worker: Option<&mut OnWorker<'_, '_>>,
    ) -> Answer {
        let call = match (&self.core, worker) {
            (Core::Handler(call), Some(worker)) => {
                let has_body = !request.body().is_empty();
                return self.call_on_worker(call(request, state), worker.body, has_body);
            }
            (Core::Handler(call), None) => call,
            (Core::Service(number), Some(worker)) => {
                let service = (*number, worker.services.numbered(*number));
                let OnWorker {
                    body, prefix_bytes, ..
                } = *worker;
                return mount::ask(service, prefix_bytes, body, request, worker.scope);
            }
            // With layers around it a service runs on workers, without through its own methods.
            (Core::Service(_), None) => return failed().into(),
        };
        call(request, state).into()
    }

    fn call_on_worker(&self, mut response: Response, body: mount::Body, has_body: bool) -> Answer {
        let opens = body != mount::Body::Here;
        // An empty body has nothing to be streamed.
        let sink = match opens || !has_body {
            true => streamed::take(&mut response),
            false => None,
        };
        let Some(sink) = sink else {
            return response.into();
        };
        Answer(Kind::Upload(match self.body_bytes_max {
            Some(bytes_left) if opens => Box::new(Around::new(sink, Within { bytes_left })),
            _ => sink,
        }))
    }

    /// The attempt in its place on a network thread: `None` leaves the request to a worker.
    pub(crate) fn attempt(&self, request: &Request) -> Option<Option<Response>> {
        self.attempt.as_ref().map(|attempt| attempt(request))
    }

    pub(crate) fn with_state<T: 'static>(self, state: &Arc<S>) -> Endpoint<T>
    where
        S: Send + Sync,
    {
        let core = match self.core {
            Core::Handler(call) => {
                let state = Arc::clone(state);
                Core::Handler(Arc::new(move |request: &mut Request, _: &T| {
                    call(request, &state)
                }))
            }
            Core::Service(number) => Core::Service(number),
        };
        Endpoint {
            core,
            layers: self.layers,
            attempt: self.attempt,
            place: self.place,
            right: self.right,
            body_bytes_max: self.body_bytes_max,
            body: self.body,
            asks: self.asks,
            terms: self.terms,
        }
    }

    /// Puts a layer around it. What answered by itself moves to the workers: the layer may block.
    pub(crate) fn layer(&mut self, layer: &layer::Shared, place: Route) {
        self.layers.push(layer.clone());
        if let Some(time) = layer.time {
            self.terms_mut().bound_by(time);
        }
        self.asks = Asks::EVERYTHING;
        self.place = match self.attempt.take() {
            // The attempt would go past the layer.
            Some(_) => Route::Pooled,
            None => place,
        };
    }
}

impl Endpoint<()> {
    /// Its handler for another worker; a mounted service, and what takes a body piece by piece,
    /// has to stay where it is.
    pub(crate) fn detach(&self) -> Option<layer::OwnedCall> {
        match &self.core {
            Core::Handler(call) if self.body != BodyTaken::Streamed => Some(whole::owned(call)),
            Core::Handler(_) | Core::Service(_) => None,
        }
    }

    /// What is innermost, for when the body is there.
    pub(crate) fn inside(&self, services: &Services, prefix_bytes: usize) -> Inside {
        match &self.core {
            Core::Handler(call) => Inside::Handler(whole::owned(call)),
            Core::Service(number) => Inside::Service(Place {
                number: *number,
                service: Arc::clone(services.numbered(*number)),
                prefix_bytes,
            }),
        }
    }

    /// Whether its body arrives completely, or not at all, before it is called.
    pub(crate) fn has_whole_body(&self) -> bool {
        self.body != BodyTaken::Streamed
    }

    /// Whether it is its handler that waits for the body.
    pub(crate) fn handler_waits(&self) -> bool {
        matches!(self.core, Core::Handler(_)) && self.body == BodyTaken::Whole
    }
}

/// The handlers of one path: see [`get`] and its like, and [`Router::route`](crate::Router::route).
///
/// `HEAD` is answered by the handler of `GET` unless it has its own; `OPTIONS` by the list of the
/// methods; any other method with 405 and that list.
///
/// ```
/// use flatpath_http::{Router, routing};
///
/// let notes = routing::get(|| "all notes\n").post(|text: String| text).body_bytes_max(4096);
/// let router: Router = Router::new().route("/notes", notes);
/// # let _ = router;
/// ```
pub struct Methods<S = ()> {
    /// `None` stands for every method that is not named.
    endpoints: Vec<(Option<Method>, Endpoint<S>)>,
    /// For methods without a handler.
    rest: Endpoint<S>,
}

flatpath::opaque_debug! {
    impl[S] Methods<S> as "Methods";
}

impl<S: 'static> Methods<S> {
    fn new() -> Self {
        let rest = |method: Method| match method {
            Method::OPTIONS => StatusCode::NO_CONTENT,
            _ => StatusCode::METHOD_NOT_ALLOWED,
        };
        Self {
            endpoints: Vec::new(),
            rest: Endpoint::refusing(rest),
        }
    }

    #[track_caller]
    fn on<M: 'static>(mut self, method: Option<Method>, handler: impl Handler<M, S>) -> Self {
        self.insert("this path", method, Endpoint::new(handler));
        self
    }

    #[track_caller]
    fn insert(&mut self, path: &str, method: Option<Method>, endpoint: Endpoint<S>) {
        let is_taken = self.endpoints.iter().any(|(known, _)| *known == method);
        let name = method.as_ref().map_or("any method", Method::as_str);
        assert!(!is_taken, "{path} has a handler for {name} already");
        self.endpoints.push((method, endpoint));
    }

    /// Takes in the handlers of another. The layers around what answers the other methods are of
    /// the first that has some.
    #[track_caller]
    pub(crate) fn merge(&mut self, path: &str, other: Self) {
        for (method, endpoint) in other.endpoints {
            self.insert(path, method, endpoint);
        }
        if self.rest.layers.is_empty() {
            self.rest = other.rest;
        }
    }

    /// Runs the handlers so far on the network thread: they must not block, and take no more than a
    /// few microseconds. Requests with a body go to workers all the same.
    #[must_use]
    pub fn inline(mut self) -> Self {
        for (_, endpoint) in &mut self.endpoints {
            endpoint.place = Route::Inline;
        }
        self
    }

    /// Has the handlers so far tried on the network thread: they may block, and usually do not. See
    /// [`Http::prompt`](crate::Http::prompt); each route has a right of its own.
    #[must_use]
    pub fn prompt(mut self) -> Self {
        for (_, endpoint) in &mut self.endpoints {
            endpoint.place = Route::Prompt;
        }
        self
    }

    /// Has `attempt` tried on the network thread before the handlers so far, which workers run: it
    /// answers what is at hand, in a cache, say, and waits for nothing. `None` leaves the request
    /// to its handler, as does a try that the engine does not allow ([`flatpath::prompt`]).
    ///
    /// It would go past a layer, so a layer that is added later takes it away.
    #[must_use]
    pub fn try_first<R: IntoResponse>(
        mut self,
        attempt: impl Fn(&Request) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        let attempt: Attempt = Arc::new(move |request| Some(attempt(request)?.into_response()));
        for (_, endpoint) in &mut self.endpoints {
            endpoint.attempt = Some(Arc::clone(&attempt));
            endpoint.place = Route::Prompt;
        }
        self
    }

    /// Puts a layer around the handlers of this path so far, and around what answers 405 and
    /// `OPTIONS` here: see [`Router::layer`](crate::Router::layer).
    ///
    /// ```
    /// use flatpath_http::http::StatusCode;
    /// use flatpath_http::{Next, Request, Router, routing};
    ///
    /// let refuse = |_: Request, _: &Next<'_>| StatusCode::UNAUTHORIZED;
    /// let router: Router = Router::new()
    ///     .route("/secret", routing::get(|| "a secret\n").layer(refuse))
    ///     .get("/", || "for all\n");
    /// ```
    #[must_use]
    pub fn layer<M: 'static>(mut self, layer: impl Layer<M>) -> Self {
        self.add_layer(&layer::share(layer));
        self
    }

    pub(crate) fn add_layer(&mut self, layer: &layer::Shared) {
        for (_, endpoint) in &mut self.endpoints {
            endpoint.layer(layer, endpoint.place);
        }
        self.rest.layer(layer, Route::Pooled);
    }

    /// Gives the handlers so far so many workers of their own, at least one: they run on no others,
    /// and nothing else runs on these. So what they wait for makes no other request wait, and the
    /// other way round. All such parts of a server have half of its workers at most, and each has
    /// less where more is asked for.
    ///
    /// Handlers that have such a part already keep it. Without one, those with a
    /// [`TimeOut`](crate::TimeOut) leave a quarter of the workers to all others. It makes no
    /// difference for what runs [inline](Self::inline); what is [tried](Self::prompt) on the
    /// network thread goes to a worker at once.
    ///
    /// ```
    /// use flatpath_http::{Router, routing};
    ///
    /// let report = routing::get(|| "made at length\n").workers(4);
    /// let router: Router = Router::new().route("/report", report).get("/", || "at once\n");
    /// # let _ = router;
    /// ```
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        let part = Part::own(workers);
        for (_, endpoint) in &mut self.endpoints {
            endpoint.runs_in(&part);
        }
        self
    }

    /// Gives every handler that is tried a right of its own, named after the path.
    pub(crate) fn grant(&mut self, path: &str) {
        for (method, endpoint) in &mut self.endpoints {
            let method = method.as_ref().map_or("any method", Method::as_str);
            let granted = || Arc::new(PromptRight::granted(format!("{method} {path}")));
            endpoint.right = (endpoint.place == Route::Prompt).then(granted);
        }
    }

    /// Longest body for the handlers so far, in place of the listener's
    /// [`body_bytes_max`](crate::Limits::body_bytes_max); a longer one is answered with 413.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: u64) -> Self {
        for (_, endpoint) in &mut self.endpoints {
            endpoint.body_bytes_max = Some(bytes);
        }
        self
    }

    /// Calls the handlers so far when the head has arrived, to answer with an
    /// [`Upload`](crate::Upload), which takes the body piece by piece. The body is of any length,
    /// unless [`body_bytes_max`](Self::body_bytes_max) is set. What is no `Upload` answers instead
    /// of taking it, and ends the connection. Layers see the request without its body, whatever
    /// they need, and the response whenever it is made: see [`Answer::map`](crate::Answer::map).
    #[must_use]
    pub fn streamed(mut self) -> Self {
        for (_, endpoint) in &mut self.endpoints {
            endpoint.body = BodyTaken::Streamed;
        }
        self
    }

    /// The handler for a method: its own, that of `GET` for `HEAD`, that of any; else none.
    pub(crate) fn find(&self, method: &str) -> Option<&Endpoint<S>> {
        let named = |name: Option<&str>| {
            let is_it = |known: &Option<Method>| known.as_ref().map(Method::as_str) == name;
            let found = self.endpoints.iter().find(|(known, _)| is_it(known));
            found.map(|(_, endpoint)| endpoint)
        };
        let by_get = || {
            if method == "HEAD" {
                named(Some("GET"))
            } else {
                None
            }
        };
        named(Some(method)).or_else(by_get).or_else(|| named(None))
    }

    /// What answers a method without a handler; see [`Methods::allow`].
    pub(crate) fn rest(&self) -> &Endpoint<S> {
        &self.rest
    }

    /// Adds what is allowed here to an answer of the rest (RFC 9110 section 15.5.6).
    pub(crate) fn allow(&self, mut response: Response) -> Response {
        let mut allowed: Vec<&str> = Vec::new();
        for (method, _) in &self.endpoints {
            allowed.extend(method.as_ref().map(Method::as_str));
        }
        if allowed.contains(&"GET") && !allowed.contains(&"HEAD") {
            allowed.push("HEAD");
        }
        if !allowed.contains(&"OPTIONS") {
            allowed.push("OPTIONS");
        }
        if let Ok(allowed) = HeaderValue::try_from(allowed.join(", ")) {
            response.headers_mut().entry(ALLOW).or_insert(allowed);
        }
        response
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint<S>> {
        self.endpoints.iter().map(|(_, endpoint)| endpoint)
    }

    pub(crate) fn endpoints_mut(&mut self) -> impl Iterator<Item = &mut Endpoint<S>> {
        self.endpoints.iter_mut().map(|(_, endpoint)| endpoint)
    }

    pub(crate) fn with_state<T: 'static>(self, state: &Arc<S>) -> Methods<T>
    where
        S: Send + Sync,
    {
        let endpoints = self.endpoints.into_iter();
        let endpoints = endpoints.map(|(method, endpoint)| (method, endpoint.with_state(state)));
        Methods {
            endpoints: endpoints.collect(),
            rest: self.rest.with_state(state),
        }
    }
}

/// A function that begins the handlers of a path, and a method that adds to them.
macro_rules! methods {
    ($($name:ident: $method:expr, $text:literal;)+) => {
        $(
            #[doc = concat!("The handlers of a path, so far one for ", $text, ".")]
            pub fn $name<M: 'static, S: 'static>(handler: impl Handler<M, S>) -> Methods<S> {
                Methods::new().on($method, handler)
            }
        )+

        impl<S: 'static> Methods<S> {
            $(
                #[doc = concat!("Adds a handler for ", $text, ".")]
                ///
                /// # Panics
                /// When there is one already.
                #[must_use]
                #[track_caller]
                pub fn $name<M: 'static>(self, handler: impl Handler<M, S>) -> Self {
                    self.on($method, handler)
                }
            )+
        }
    };
}

methods! {
    get: Some(Method::GET), "`GET`";
    post: Some(Method::POST), "`POST`";
    put: Some(Method::PUT), "`PUT`";
    delete: Some(Method::DELETE), "`DELETE`";
    patch: Some(Method::PATCH), "`PATCH`";
    head: Some(Method::HEAD), "`HEAD`";
    options: Some(Method::OPTIONS), "`OPTIONS`";
    any: None, "every method without one of its own";
}
