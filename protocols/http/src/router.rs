//! Paths to handlers.
//!
//! Paths are compared in one spelling (`spelling`): `/%61` is `/a`, but `%2F` is no slash.
//! Parameters are percent-decoded once, after they were taken out, so that `%2F` in one never
//! separates segments. The request keeps its path as the client spelled it, but for dot segments,
//! which are gone before (`dots`).
//!
//! Cost: one look into a table for a path that is spelled out, else a walk through a radix tree; on
//! the network thread, and once more where the handler runs. Finding a path that is spelled out
//! allocates nothing; another one is searched for a percent sign, and copied where it has one.
//!
//! Its folder has what one path answers ([`methods`]), services below a prefix ([`mount`]), what a
//! path matched ([`parameters`], [`matched_path`]), and uploads ([`streamed`]). Sites may use it;
//! neither version of HTTP does.

pub(crate) mod methods;
pub(crate) mod mount;
pub(crate) mod matched_path;
pub(crate) mod parameters;
pub(crate) mod streamed;

mod below;
mod dispatch;
mod slash;
mod spelling;

use std::collections::HashMap;
use std::sync::Arc;

use crate::handler::Handler;
use crate::layer::{self, Layer};
use crate::router::methods::{Endpoint, Methods};
use crate::router::mount::Services;
use crate::service::Service;
use crate::service::closures::Route;
use crate::service::terms::Part;
use below::{Below, Prefix, Refused};

pub use dispatch::RouterState;
pub use slash::TrailingSlash;

/// A service that sends each request to the handler of its path and method.
///
/// A path names its parameters in braces: `/users/{id}`, and `/files/{*rest}` for all of the rest.
/// Literal segments win over parameters. Handlers run on workers unless they are
/// [`inline`](Methods::inline). `S` is what [`State`](crate::State) gives to them.
///
/// A path is written as it is read, and matches however clients spell it: `/café` is
/// `/caf%C3%A9`, and `/%61` is `/a` (RFC 3986 section 6.2.2). Escapes of reserved characters are
/// others than these (section 2.2): `%2F` never separates segments. Dot segments are removed before
/// (section 6.2.2.3). Handlers and layers see the path as the client spelled it otherwise, so a
/// layer that decides by paths asks for the route ([`MatchedPath`](crate::MatchedPath)). A slash at
/// the end makes another path, unless [`trailing_slash`](Self::trailing_slash) says otherwise.
///
/// ```
/// use flatpath_http::{Answer, Http, Next, Parameters, Request, Response, Router, State, routing};
///
/// fn user(State(greeting): State<&'static str>, parameters: Parameters) -> String {
///     format!("{greeting}, {}\n", parameters.get("id").unwrap_or_default())
/// }
///
/// fn timed(request: Request, next: &Next<'_>) -> Answer {
///     let begun = std::time::Instant::now();
///     next.run(request).map(move |response: Response| {
///         log::info!("it took {:?}", begun.elapsed());
///         response
///     })
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
    spelled_out: SpelledOut,
    /// Mounted services, and the fallbacks of nested routers: for what has no path here.
    below: Below<S>,
    /// The 404 of nested routers that have layers: for what nothing else answers.
    nested: Below<S>,
    services: Services,
    fallback: Option<Endpoint<S>>,
    not_found: Endpoint<S>,
    trailing_slash: Option<TrailingSlash>,
    /// Whether it or a route has another rule than the default.
    heeds_slashes: bool,
}

/// The program fixes its paths, so the hash need not withstand clients.
type SpelledOut = HashMap<String, usize, foldhash::fast::FixedState>;

struct Path<S> {
    /// As it was written.
    pattern: Arc<str>,
    /// In the spelling that paths are compared in.
    spelled: String,
    methods: Methods<S>,
    /// Where its router differs from the one that it has become part of.
    trailing_slash: Option<TrailingSlash>,
}

impl<S> std::fmt::Debug for Router<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| &path.pattern).collect();
        let prefixes: Vec<_> = self.below.iter().map(|it| &it.pattern).collect();
        let mut shown = formatter.debug_struct("Router");
        shown.field("paths", &paths).field("prefixes", &prefixes);
        shown.finish_non_exhaustive()
    }
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
            spelled_out: SpelledOut::default(),
            below: Below::default(),
            nested: Below::default(),
            services: Services::default(),
            fallback: None,
            not_found: Endpoint::not_found(),
            trailing_slash: None,
            heeds_slashes: false,
        }
    }

    /// Adds handlers of a path, to those that it has already.
    ///
    /// # Panics
    /// When a method of this path has a handler already, the path conflicts with another (one text
    /// would match both), or is not well formed. The message names both, and the line of the call.
    #[must_use]
    #[track_caller]
    pub fn route(mut self, path: &str, methods: Methods<S>) -> Self {
        self.add(path, methods, None);
        self
    }

    #[track_caller]
    fn add(&mut self, path: &str, mut methods: Methods<S>, slash: Option<TrailingSlash>) {
        assert!(path.starts_with('/'), "a path begins with a slash: {path}");
        let spelled = spelling::of_route(path);
        let spelled = spelled.unwrap_or_else(|why| malformed(path, &why));
        methods.grant(path);
        if let Some(known) = self.paths.iter_mut().find(|it| it.spelled == spelled) {
            known.methods.merge(&known.pattern, methods);
            known.trailing_slash = known.trailing_slash.or(slash);
            return;
        }
        match self.matcher.insert(&spelled, self.paths.len()) {
            Ok(()) => {}
            Err(matchit::InsertError::Conflict { with }) => {
                let known = self.paths.iter().find(|it| it.spelled == with);
                conflict(path, known.map_or(&with, |it| &it.pattern))
            }
            Err(why) => malformed(path, &why),
        }
        if !spelled.contains(['{', '}']) {
            self.spelled_out.insert(spelled.clone(), self.paths.len());
        }
        self.paths.push(Path {
            pattern: path.into(),
            spelled,
            methods,
            trailing_slash: slash,
        });
    }

    /// Adds the routes of another, with this in front of each; `/` there becomes `prefix` itself.
    /// Handlers see the whole path. Its fallback answers what lies below the prefix and has no
    /// route; without one that of this router, or a 404, and the layers of the other are around
    /// these answers as they are around its routes.
    ///
    /// ```
    /// use flatpath_http::http::StatusCode;
    /// use flatpath_http::{Next, Request, Router};
    ///
    /// let refuse = |_: Request, _: &Next<'_>| StatusCode::UNAUTHORIZED;
    /// let admin = Router::new().get("/users", || "ada\n").layer(refuse);
    /// // 401 for /admin/users and for whatever else begins with /admin/; 404 for /none.
    /// let router: Router = Router::new().nest("/admin", admin);
    /// ```
    ///
    /// # Panics
    /// As [`Router::route`], and when something else answers what lies below the prefix.
    #[must_use]
    #[track_caller]
    pub fn nest(mut self, prefix: &str, inner: Self) -> Self {
        let prefix = prefix.trim_end_matches('/');
        let has_fallback = inner.fallback.is_some();
        for path in inner.paths {
            let pattern = match &*path.pattern {
                "/" if !prefix.is_empty() => prefix.to_owned(),
                pattern => format!("{prefix}{pattern}"),
            };
            let slash = path.trailing_slash.or(inner.trailing_slash);
            self.add(&pattern, path.methods, slash);
        }
        self.heeds_slashes |= inner.heeds_slashes;
        let services_before = self.services.len();
        self.services.append(inner.services);
        for below in inner.below.into_prefixes() {
            self.answer_below(below.moved(prefix, services_before));
        }
        let mut rest = Prefix::new("", inner.fallback.unwrap_or(inner.not_found));
        rest.nested = inner.nested;
        let rest = rest.moved(prefix, services_before);
        match has_fallback {
            true => self.answer_below(rest),
            false => self.answer_nested(rest),
        }
        self
    }

    /// Adds the routes of another, and its fallback. What has no route in either is answered within
    /// the layers of this one.
    ///
    /// # Panics
    /// As [`Router::route`], and when both have a fallback.
    #[must_use]
    #[track_caller]
    pub fn merge(self, other: Self) -> Self {
        self.nest("", other)
    }

    /// Mounts a service: it answers what lies below the prefix and has no route, whatever the
    /// method. It gets paths without the prefix ([`Mount`](crate::Mount)); `prefix` alone becomes
    /// `/`. It runs where it decides itself, until a layer is put around it.
    ///
    /// ```
    /// use flatpath_http::{Http, Router};
    ///
    /// let inner: Router = Router::new().get("/answer", || "42\n");
    /// let service = Http::service(Router::new().nest_service("/deep", inner)); // /deep/answer
    /// ```
    ///
    /// # Panics
    /// When something else answers what lies below the prefix, or it is not well formed.
    #[must_use]
    #[track_caller]
    pub fn nest_service(mut self, prefix: &str, service: impl Service) -> Self {
        let number = self.services.add(service);
        let prefix = prefix.trim_end_matches('/');
        self.answer_below(Prefix::new(prefix, Endpoint::service(number)));
        self
    }

    /// Answers paths without a route, in place of a 404.
    ///
    /// # Panics
    /// When there is a fallback already.
    #[must_use]
    #[track_caller]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M, S>) -> Self {
        self.answer_below(Prefix::new("", Endpoint::new(handler)));
        self
    }

    /// Leaves paths without a route to another service, a directory of files, say: as
    /// [`nest_service`](Self::nest_service) without a prefix.
    ///
    /// # Panics
    /// When there is a fallback already.
    #[must_use]
    #[track_caller]
    pub fn fallback_service(self, service: impl Service) -> Self {
        self.nest_service("", service)
    }

    /// Says what becomes of a path that would have a route with a slash more at its end, or with
    /// one less. It holds for all routes of this router, whenever they are added, and for those of
    /// nested ones that say nothing themselves. A path that has a route of its own is not affected.
    ///
    /// ```
    /// use flatpath_http::{Router, TrailingSlash};
    ///
    /// let router: Router = Router::new()
    ///     .get("/notes", || "all notes\n") // /notes/ is redirected here,
    ///     .get("/about/", || "about\n") // and /about to /about/.
    ///     .trailing_slash(TrailingSlash::Redirect);
    /// ```
    #[must_use]
    pub fn trailing_slash(mut self, rule: TrailingSlash) -> Self {
        self.trailing_slash = Some(rule);
        self.heeds_slashes |= rule != TrailingSlash::Strict;
        self
    }

    /// This answers what lies below a prefix and has no route; without a prefix it is the fallback.
    #[track_caller]
    fn answer_below(&mut self, below: Prefix<S>) {
        let pattern = Arc::clone(&below.pattern);
        if pattern.is_empty() {
            assert!(self.fallback.is_none(), "the router has a fallback already");
            for nested in self.nested.iter_mut() {
                nested.inherit(&below.endpoint);
            }
            for nested in below.nested.into_prefixes() {
                self.nested.add_last(nested);
            }
            self.fallback = Some(below.endpoint);
            return;
        }
        assert!(
            pattern.starts_with('/'),
            "a path begins with a slash: {pattern}"
        );
        match self.below.add(below) {
            Ok(()) => {}
            Err(Refused::Taken(with)) => conflict(&pattern, &with),
            Err(Refused::Malformed(why)) => malformed(&pattern, &why),
        }
    }

    /// A nested router without a fallback has this 404, which is within its layers. What answers in
    /// its place is the fallback here, if there is one; it is asked after what answers below a
    /// prefix. Of two routers with one prefix the first one's layers are around both.
    fn answer_nested(&mut self, mut rest: Prefix<S>) {
        let deeper = std::mem::take(&mut rest.nested);
        let has_layers = !rest.pattern.is_empty() && !rest.endpoint.layers.is_empty();
        let its_own = has_layers.then_some(rest);
        for mut nested in deeper.into_prefixes().chain(its_own) {
            if let Some(fallback) = &self.fallback {
                nested.inherit(fallback);
            }
            self.nested.add_last(nested);
        }
    }

    /// Puts a layer around every handler and service so far, and around what answers 404, 405 and
    /// `OPTIONS` so far. It runs where the handler runs, around services and those three on
    /// workers; it takes the request, so it costs a header map. The layer that was added last is
    /// called first.
    ///
    /// It runs before the body is read, unless it [needs](Layer::needs) that: a body that is on its
    /// way costs another way to a worker then. What has no proper head is answered without layers.
    #[must_use]
    pub fn layer<M: 'static>(mut self, layer: impl Layer<M>) -> Self {
        let layer = layer::share(layer);
        for Path { methods, .. } in &mut self.paths {
            methods.add_layer(&layer);
        }
        let mut add = |endpoint: &mut Endpoint<S>| endpoint.layer(&layer, endpoint.place);
        self.below.each_mut(&mut add);
        self.nested.each_mut(&mut add);
        if let Some(fallback) = &mut self.fallback {
            fallback.layer(&layer, fallback.place);
        }
        self.not_found.layer(&layer, Route::Pooled);
        self
    }

    /// Gives the handlers so far so many workers of their own, all together: see
    /// [`Methods::workers`]. Mounted services have those that they ask for themselves, as a
    /// router does.
    ///
    /// ```
    /// use flatpath_http::Router;
    ///
    /// let reports: Router = Router::new().get("/yearly", || "made at length\n").workers(4);
    /// let router: Router = Router::new().nest("/reports", reports).get("/", || "at once\n");
    /// # let _ = router;
    /// ```
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        let part = Part::own(workers);
        let paths = self.paths.iter_mut();
        let endpoints = paths.flat_map(|path| path.methods.endpoints_mut());
        for endpoint in endpoints.chain(&mut self.fallback) {
            endpoint.runs_in(&part);
        }
        self.below.each_mut(&mut |endpoint| endpoint.runs_in(&part));
        self.nested
            .each_mut(&mut |endpoint| endpoint.runs_in(&part));
        self
    }

    /// Gives the handlers so far their state.
    #[must_use]
    pub fn with_state<T: Send + Sync + 'static>(self, state: S) -> Router<T> {
        let state = Arc::new(state);
        let with_state = |path: Path<S>| Path {
            pattern: path.pattern,
            spelled: path.spelled,
            methods: path.methods.with_state(&state),
            trailing_slash: path.trailing_slash,
        };
        Router {
            paths: self.paths.into_iter().map(with_state).collect(),
            matcher: self.matcher,
            spelled_out: self.spelled_out,
            below: self.below.with_state(&state),
            nested: self.nested.with_state(&state),
            services: self.services,
            fallback: self.fallback.map(|fallback| fallback.with_state(&state)),
            not_found: self.not_found.with_state(&state),
            trailing_slash: self.trailing_slash,
            heeds_slashes: self.heeds_slashes,
        }
    }
}

#[track_caller]
fn conflict(path: &str, with: &str) -> ! {
    panic!("the path {path} conflicts with {with}, which has handlers already")
}

#[track_caller]
fn malformed(path: &str, why: &dyn std::fmt::Display) -> ! {
    panic!("the path {path} is not well formed: {why}")
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
                    self.route(path, crate::router::methods::$name(handler))
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
