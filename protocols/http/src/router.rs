//! Paths to handlers.
//!
//! A path is matched as the client spelled it, undecoded; parameters are percent-decoded once,
//! after they were taken out, so that `%2F` in one never separates segments.
//!
//! Cost: one look into a table for a path that is spelled out, else a walk through a radix tree; on
//! the network thread, and once more where the handler runs. Finding a path that is spelled out
//! allocates nothing.

mod dispatch;

use std::collections::HashMap;
use std::sync::Arc;

use crate::closures::Route;
use crate::handler::Handler;
use crate::layer::{self, Layer};
use crate::methods::{Endpoint, Methods};
use crate::mount::Services;
use crate::service::Service;

pub use dispatch::RouterState;

/// What follows a prefix, in the tree of prefixes.
const REST: &str = "/{*rest of the path}";

/// Its name, which no parameter has that is an identifier.
const REST_NAME: &str = "rest of the path";

/// A service that sends each request to the handler of its path and method.
///
/// A path names its parameters in braces: `/users/{id}`, and `/files/{*rest}` for all of the rest.
/// Literal segments win over parameters. Handlers run on workers unless they are
/// [`inline`](Methods::inline). `S` is what [`State`](crate::State) gives to them.
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
    spelled_out: HashMap<String, usize>,
    /// Mounted services, and the fallbacks of nested routers: for what has no path here.
    prefixes: Vec<Prefix<S>>,
    prefix_matcher: matchit::Router<usize>,
    services: Services,
    fallback: Option<Endpoint<S>>,
    not_found: Endpoint<S>,
}

struct Path<S> {
    pattern: Arc<str>,
    methods: Methods<S>,
}

/// What answers below a prefix.
struct Prefix<S> {
    /// Without a slash at its end.
    pattern: Arc<str>,
    endpoint: Endpoint<S>,
}

impl<S> std::fmt::Debug for Router<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| &path.pattern).collect();
        let prefixes: Vec<_> = self.prefixes.iter().map(|it| &it.pattern).collect();
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
            spelled_out: HashMap::new(),
            prefixes: Vec::new(),
            prefix_matcher: matchit::Router::new(),
            services: Services::default(),
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
        if let Some(known) = self.paths.iter_mut().find(|known| &*known.pattern == path) {
            known.methods.merge(path, methods);
            return self;
        }
        insert(&mut self.matcher, path, path, self.paths.len());
        if !path.contains(['{', '}']) {
            self.spelled_out.insert(path.to_owned(), self.paths.len());
        }
        let pattern = path.into();
        self.paths.push(Path { pattern, methods });
        self
    }

    /// Adds the routes of another, with this in front of each; `/` there becomes `prefix` itself.
    /// Handlers see the whole path. Its fallback answers what lies below the prefix and has no
    /// route.
    ///
    /// # Panics
    /// As [`Router::route`], and when something else answers what lies below the prefix.
    #[must_use]
    #[track_caller]
    pub fn nest(mut self, prefix: &str, inner: Self) -> Self {
        let prefix = prefix.trim_end_matches('/');
        for Path { pattern, methods } in inner.paths {
            let path = match &*pattern {
                "/" if !prefix.is_empty() => prefix.to_owned(),
                pattern => format!("{prefix}{pattern}"),
            };
            self = self.route(&path, methods);
        }
        let services_before = self.services.len();
        self.services.append(inner.services);
        for mut below in inner.prefixes {
            below.endpoint.renumber(services_before);
            self.answer_below(&format!("{prefix}{}", below.pattern), below.endpoint);
        }
        if let Some(mut fallback) = inner.fallback {
            fallback.renumber(services_before);
            self.answer_below(prefix, fallback);
        }
        self
    }

    /// Adds the routes of another, and its fallback.
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
        self.answer_below(prefix.trim_end_matches('/'), Endpoint::service(number));
        self
    }

    /// Answers paths without a route, in place of a 404.
    ///
    /// # Panics
    /// When there is a fallback already.
    #[must_use]
    #[track_caller]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M, S>) -> Self {
        self.answer_below("", Endpoint::new(handler));
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

    /// This endpoint answers what lies below a prefix and has no route.
    #[track_caller]
    fn answer_below(&mut self, prefix: &str, endpoint: Endpoint<S>) {
        if prefix.is_empty() {
            assert!(self.fallback.is_none(), "the router has a fallback already");
            self.fallback = Some(endpoint);
            return;
        }
        for end in ["", "/", REST] {
            let path = format!("{prefix}{end}");
            insert(&mut self.prefix_matcher, prefix, &path, self.prefixes.len());
        }
        let pattern = prefix.into();
        self.prefixes.push(Prefix { pattern, endpoint });
    }

    /// Puts a layer around every handler and service so far, and around what answers 404, 405 and
    /// `OPTIONS` so far. It runs where the handler runs, around services and those three on
    /// workers; it takes the request, so it costs a header map. The layer that was added last is
    /// called first.
    ///
    /// What has no proper head, or breaks a limit of the listener, is answered without layers.
    #[must_use]
    pub fn layer<M: 'static>(mut self, layer: impl Layer<M>) -> Self {
        let layer = layer::share(layer);
        for Path { methods, .. } in &mut self.paths {
            for endpoint in methods.endpoints_mut() {
                endpoint.layer(&layer, endpoint.place);
            }
            methods.rest_mut().layer(&layer, Route::Pooled);
        }
        let below = self.prefixes.iter_mut().map(|prefix| &mut prefix.endpoint);
        for endpoint in below.chain(&mut self.fallback) {
            endpoint.layer(&layer, endpoint.place);
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
        let below = |Prefix { pattern, endpoint }| Prefix {
            pattern,
            endpoint: Endpoint::with_state(endpoint, &state),
        };
        Router {
            paths: self.paths.into_iter().map(with_state).collect(),
            matcher: self.matcher,
            spelled_out: self.spelled_out,
            prefixes: self.prefixes.into_iter().map(below).collect(),
            prefix_matcher: self.prefix_matcher,
            services: self.services,
            fallback: self.fallback.map(|fallback| fallback.with_state(&state)),
            not_found: self.not_found.with_state(&state),
        }
    }
}

/// Adds a path to a tree.
#[track_caller]
fn insert(tree: &mut matchit::Router<usize>, shown: &str, path: &str, number: usize) {
    assert!(
        shown.starts_with('/'),
        "a path begins with a slash: {shown}"
    );
    match tree.insert(path, number) {
        Ok(()) => {}
        Err(matchit::InsertError::Conflict { with }) => {
            panic!("the path {shown} conflicts with {with}, which has handlers already")
        }
        Err(why) => panic!("the path {shown} is not well formed: {why}"),
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
