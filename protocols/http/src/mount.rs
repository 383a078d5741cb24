//! Services below a prefix of a router: each with its thread state, behind one type.
//!
//! A mounted service gets paths without the prefix, and [`Mount`] says what was cut off.
//!
//! Cost: a call through a table for each call of the service, and on workers a copy of the path.

use std::any::Any;
use std::sync::Arc;

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use http::{Extensions, Uri, uri::PathAndQuery};

use crate::answer::{Answer, Kind, Rest, Waiting};
use crate::extract;
use crate::head::Head;
use crate::message::{Request, Response};
use crate::reply::{Disposition, Reply};
use crate::service::{Plan, Service};
use crate::sink::UploadDecision;

/// Where the service is mounted that answers a request: an extension of the request, for services
/// that name addresses of their own, in `Location` or in pages. It is absent where the prefix is
/// empty.
///
/// ```
/// use flatpath_http::{Mount, Request, Router};
///
/// fn address(request: &Request) -> String {
///     let prefix = Mount::of(request).map_or("", Mount::prefix);
///     format!("{prefix}{}\n", request.uri().path())
/// }
///
/// let inner: Router = Router::new().get("/address", address);
/// let router: Router = Router::new().nest_service("/inner", inner);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    prefix: Arc<str>,
    is_bare: bool,
}

impl Mount {
    pub(crate) fn new(prefix: &str, is_bare: bool) -> Self {
        let prefix = prefix.into();
        Self { prefix, is_bare }
    }

    /// The mount of the service that gets this request.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// What was cut off the path, as the client spelled it: no slash at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the client asked for the prefix alone, without a slash after it. The service gets
    /// `/`; one whose pages have relative links redirects to the address with the slash.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }
}

/// The number of the service that made a response, for what it leaves to its thread state: an
/// extension of the response, with that of the service inside if that is a router too.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) number: usize,
    inner: Option<Box<Self>>,
}

impl Maker {
    /// Marks a response that carries something to the network thread.
    fn mark(extensions: &mut Extensions, number: usize) {
        if !extensions.is_empty() {
            let inner = extensions.remove().map(Box::new);
            extensions.insert(Self { number, inner });
        }
    }

    /// Who made the response.
    pub(crate) fn take(extensions: &mut Extensions) -> Option<usize> {
        let Self { number, inner } = extensions.remove()?;
        if let Some(inner) = inner {
            extensions.insert(*inner);
        }
        Some(number)
    }
}

/// A service of any type.
pub(crate) trait Mounted: Send + Sync {
    fn thread_state(&self) -> Box<dyn Any>;
    fn plan(&self, head: &Head<'_>) -> Plan<'_>;
    fn inline(
        &self,
        thread: &mut dyn Any,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_>;
    fn prompt(
        &self,
        thread: &mut dyn Any,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_>;
    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response;
    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision;
    fn region(&self) -> Option<RegionConfig>;
    fn response_ready(&self, thread: &mut dyn Any, turn: Turn, note: &mut Extensions);
}

impl<S: Service> Mounted for S {
    fn thread_state(&self) -> Box<dyn Any> {
        Box::new(Service::thread_state(self))
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Service::plan(self, head)
    }

    fn inline(
        &self,
        thread: &mut dyn Any,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match thread.downcast_mut() {
            Some(thread) => Service::inline(self, thread, turn, head, reply),
            None => Disposition::Pooled,
        }
    }

    fn prompt(
        &self,
        thread: &mut dyn Any,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match thread.downcast_mut() {
            Some(thread) => Service::prompt(self, thread, turn, head, pool, reply),
            None => Disposition::Pooled,
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        Service::pooled(self, request, scope)
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        Service::open(self, request, scope)
    }

    fn region(&self) -> Option<RegionConfig> {
        Service::region(self)
    }

    fn response_ready(&self, thread: &mut dyn Any, turn: Turn, note: &mut Extensions) {
        if let Some(thread) = thread.downcast_mut() {
            Service::response_ready(self, thread, turn, note);
        }
    }
}

/// How a worker asks a service: whether the body is here or comes piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Here,
    ToCome,
}

/// Asks a service on a worker; `prefix_bytes` of the path are cut off. Where it has to wait for its
/// turn, the request is kept as it is here.
pub(crate) fn ask(
    (number, service): (usize, &dyn Mounted),
    prefix_bytes: usize,
    body: Body,
    request: &mut Request,
    scope: &mut WorkerScope<'_>,
) -> Answer {
    let whole = cut(request, prefix_bytes);
    let answer = match body {
        Body::Here => Answer::from(service.pooled(request, scope)),
        Body::ToCome => match service.open(request, scope) {
            UploadDecision::Response(response) => Answer::from(response),
            UploadDecision::Sink(sink) => Answer(Kind::Upload(sink)),
        },
    };
    if let Some(whole) = whole {
        *request.uri_mut() = whole;
    }
    if scope.is_parked() {
        let rest = Rest::Service {
            number,
            prefix_bytes,
            request: Box::new(extract::take(request)),
        };
        return Answer(Kind::Waiting(Waiting::new(rest)));
    }
    answer.map(move |mut response| {
        Maker::mark(response.extensions_mut(), number);
        response
    })
}

/// Cuts a prefix off the path of a request; gives back what the address was.
fn cut(request: &mut Request, prefix_bytes: usize) -> Option<Uri> {
    let path = request.uri().path();
    let (prefix, rest) = path.split_at_checked(prefix_bytes)?;
    if prefix.is_empty() {
        return None;
    }
    let mount = Mount::new(prefix, rest.is_empty());
    let query = request.uri().query();
    let slash = if rest.is_empty() { "/" } else { "" };
    let rest = match query {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    };
    let rest = PathAndQuery::from_maybe_shared(rest).ok()?;
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(rest);
    let rest = Uri::from_parts(parts).ok()?;
    request.extensions_mut().insert(mount);
    Some(std::mem::replace(request.uri_mut(), rest))
}
