//! Services of a router or of sites: each with its thread state, behind one type.
//!
//! A service that is mounted below a prefix gets paths without it, and [`Mount`] says what was cut
//! off. [`Services`] calls a service by its number, on the network thread and on workers, and leads
//! what its response leaves back to its own thread state.
//!
//! Cost: a call through a table for each call of the service. Below a prefix also a copy of the
//! head, and on workers of the path.

use std::any::Any;
use std::sync::Arc;

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use http::{Extensions, Uri, uri::PathAndQuery};

use crate::extract;
use crate::head::{Head, TargetForm};
use crate::layer::answer::{Answer, Kind, Rest, Waiting};
use crate::layer::whole::{self, Inside, Whole};
use crate::message::{Request, Response};
use crate::respond::reply::{Disposition, Reply};
use crate::service::sink::UploadDecision;
use crate::service::terms::{Work, WorkerParts};
use crate::service::{ArrivesWhole, Plan, Service};

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

/// Where a request goes: to the service with this number, without the first bytes of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) prefix_bytes: usize,
}

impl Place {
    /// Whether the service gets the head as it is: a mounted one has its target in origin-form.
    fn is_whole(self, head: &Head<'_>) -> bool {
        self.prefix_bytes == 0 && head.form() != TargetForm::Absolute
    }
}

/// Services of any types, by number.
#[derive(Clone, Default)]
pub(crate) struct Services(Vec<Arc<dyn Mounted>>);

/// What a network thread keeps for each of them.
pub(crate) struct States(Vec<Box<dyn Any>>);

impl States {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Services {
    /// Adds one, and gives its number.
    pub(crate) fn add(&mut self, service: impl Service) -> usize {
        self.0.push(Arc::new(service));
        self.0.len() - 1
    }

    /// Adds those of another list, whose numbers grow by how many are here.
    pub(crate) fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn numbered(&self, number: usize) -> &Arc<dyn Mounted> {
        &self.0[number]
    }

    pub(crate) fn thread_state(&self) -> States {
        let services = self.0.iter();
        States(services.map(|service| service.thread_state()).collect())
    }

    /// The plan of a service. The prefix alone is another path to the service, which needs the
    /// query for itself: that is for workers.
    pub(crate) fn plan(&self, at: Place, head: &Head<'_>) -> Plan<'_> {
        let service = &self.0[at.number];
        if at.is_whole(head) {
            return service.plan(head);
        }
        let plan = service.plan(&head.within(at.prefix_bytes));
        match at.prefix_bytes == head.path().len() {
            true => Plan {
                place: plan.place.on_worker(),
                ..plan
            },
            false => plan,
        }
    }

    /// Whether a service is asked inline, whatever the request.
    pub(crate) fn plans_inline(&self, number: usize) -> bool {
        self.0[number].plans_inline()
    }

    #[inline]
    pub(crate) fn with_state<'a>(
        &'a self,
        number: usize,
        states: &'a mut States,
    ) -> (&'a dyn Mounted, &'a mut dyn Any) {
        (&*self.0[number], &mut *states.0[number])
    }

    pub(crate) fn inline(
        &self,
        at: Place,
        (states, turn): (&mut States, Turn),
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let (service, state) = (&self.0[at.number], &mut *states.0[at.number]);
        if at.is_whole(head) {
            return service.inline(state, turn, head, reply);
        }
        let inner = head.within(at.prefix_bytes);
        let disposition = service.inline(state, turn, &inner, reply);
        head.notes_of(&inner);
        disposition
    }

    pub(crate) fn prompt(
        &self,
        at: Place,
        (states, turn): (&mut States, Turn),
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let (service, state) = (&self.0[at.number], &mut *states.0[at.number]);
        if at.is_whole(head) {
            return service.prompt(state, turn, head, pool, reply);
        }
        let inner = head.within(at.prefix_bytes);
        service.prompt(state, turn, &inner, pool, reply)
    }

    pub(crate) fn work(&self, at: Place, head: &Head<'_>) -> Option<Work> {
        let service = &self.0[at.number];
        match at.is_whole(head) {
            true => service.work(head),
            false => service.work(&head.within(at.prefix_bytes)),
        }
    }

    /// Answers on a worker as `begin` does. A request that has to wait is parked, and the next run
    /// of its job continues with its service.
    pub(crate) fn on_worker(
        &self,
        request: &mut Request,
        body: Body,
        scope: &mut WorkerScope<'_>,
        begin: impl FnOnce(&mut Request, &mut WorkerScope<'_>) -> Answer,
    ) -> Answer {
        let answer = match Waiting::take(request) {
            None => begin(request, scope),
            Some(waiting) => waiting.resume(|number, prefix_bytes, mut request| {
                let service = (number, &self.0[number]);
                ask(service, prefix_bytes, body, &mut request, scope)
            }),
        };
        if scope.is_parked() {
            Waiting::of(answer).leave(request);
            return Response::default().into();
        }
        answer
    }

    /// The first that a service asks for: a listener has one.
    pub(crate) fn region(&self) -> Option<RegionConfig> {
        self.0.iter().find_map(|service| service.region())
    }

    pub(crate) fn worker_parts(&self, parts: &mut WorkerParts) {
        self.0
            .iter()
            .for_each(|service| service.worker_parts(parts));
    }

    pub(crate) fn response_ready(&self, states: &mut States, turn: Turn, note: &mut Extensions) {
        if let Some(number) = Maker::take(note) {
            self.0[number].response_ready(&mut *states.0[number], turn, note);
        }
    }
}

/// The number of the service that made a response, for what it leaves to its thread state: an
/// extension of the response, with that of the service inside if that is a router too.
#[derive(Clone)]
pub(crate) struct Maker {
    number: usize,
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
    fn take(extensions: &mut Extensions) -> Option<usize> {
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
    fn plans_inline(&self) -> bool;
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
    fn work(&self, head: &Head<'_>) -> Option<Work>;
    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response;
    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision;
    fn region(&self) -> Option<RegionConfig>;
    fn worker_parts(&self, parts: &mut WorkerParts);
    fn response_ready(&self, thread: &mut dyn Any, turn: Turn, note: &mut Extensions);
}

impl<S: Service> Mounted for S {
    fn thread_state(&self) -> Box<dyn Any> {
        Box::new(Service::thread_state(self))
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let plan = Service::plan(self, head);
        let is_inline = matches!(plan.place, crate::service::Place::Inline);
        debug_assert!(is_inline || !Service::plans_inline(self), "as it says");
        plan
    }

    fn plans_inline(&self) -> bool {
        Service::plans_inline(self)
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

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        Service::work(self, head)
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

    fn worker_parts(&self, parts: &mut WorkerParts) {
        Service::worker_parts(self, parts);
    }

    fn response_ready(&self, thread: &mut dyn Any, turn: Turn, note: &mut Extensions) {
        if let Some(thread) = thread.downcast_mut() {
            Service::response_ready(self, thread, turn, note);
        }
    }
}

/// How a worker asks a service: whether the body is here, or comes piece by piece, or as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Here,
    ToCome,
    AfterHead,
}

impl Body {
    /// That of a request that is opened.
    pub(crate) fn to_come(request: &Request) -> Self {
        match request.extensions().get() {
            Some(ArrivesWhole) => Self::AfterHead,
            None => Self::ToCome,
        }
    }
}

/// Asks a service on a worker; `prefix_bytes` of the path are cut off. Where it has to wait for its
/// turn, the request is kept as it is here.
pub(crate) fn ask(
    (number, service): (usize, &Arc<dyn Mounted>),
    prefix_bytes: usize,
    body: Body,
    request: &mut Request,
    scope: &mut WorkerScope<'_>,
) -> Answer {
    let whole = cut(request, prefix_bytes);
    let decision = match body {
        Body::Here => UploadDecision::Response(service.pooled(request, scope)),
        Body::ToCome | Body::AfterHead => service.open(request, scope),
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
    let answer = match decision {
        UploadDecision::Response(response) => Answer::from(response),
        UploadDecision::Sink(sink) => Answer(Kind::Upload(sink)),
        UploadDecision::Whole => {
            let inside = Inside::Service(whole::Place {
                number,
                service: Arc::clone(service),
                prefix_bytes,
            });
            return Whole::answer(&[], inside, extract::take(request));
        }
    };
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

/// A prefix without the slash at its end. `None`: it is not a path as it was decoded.
pub(crate) fn parse_prefix(text: &str) -> Option<&str> {
    let prefix = text.strip_suffix('/').unwrap_or(text);
    let is_name = |name: &str| {
        let is_plain = |it: char| !it.is_control() && !"%?#\\".contains(it);
        !matches!(name, "" | "." | "..") && name.chars().all(is_plain)
    };
    match prefix.strip_prefix('/') {
        None => prefix.is_empty().then_some(prefix),
        Some(names) => names.split('/').all(is_name).then_some(prefix),
    }
}

/// How many bytes of a path are this prefix, if it begins with it: compared decoded, so that
/// `%61` is `a`, but no escape is a slash.
pub(crate) fn prefix_bytes(path: &str, prefix: &str) -> Option<usize> {
    let (path, mut at) = (path.as_bytes(), 0);
    for wanted in prefix.bytes() {
        let (byte, bytes) = match *path.get(at)? {
            b'%' => (escaped(path.get(at + 1..at + 3)?)?, 3),
            byte => (byte, 1),
        };
        if byte != wanted || byte == b'/' && bytes > 1 {
            return None;
        }
        at += bytes;
    }
    // The root has every path, `*` of OPTIONS among them.
    let ends = at == 0 || matches!(path.get(at), None | Some(b'/'));
    ends.then_some(at)
}

fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(digits[at]).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
