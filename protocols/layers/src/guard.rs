//! Access rules: a service that decides on the network thread, before the service within it.
//!
//! A layer of a router makes workers answer, because a layer may block. A [`Guard`] looks at what
//! is in memory, so it decides where the request is, and what the service inside answers inline
//! stays inline: a file of its cache, say.
//!
//! | step | looks at                                    | refuses with                       |
//! |------|---------------------------------------------|------------------------------------|
//! | 1    | networks: the longest that has the address  | 403                                |
//! | 2    | requests of the address in a time           | 429, with `Retry-After`            |
//! | 3    | bytes that the address was sent in a time   | 429, with `Retry-After`            |
//! | 4    | name and password (feature `htpasswd`)      | 401; 429 after many wrong ones     |
//!
//! Invariants
//! - GU1: nothing reaches the service inside that was not admitted. What was not offered inline is
//!   decided on the worker, and what was is decided there again, but for the count.
//! - GU2: a request is counted once, by each of up to four guards around each other: the network
//!   thread leaves a note, and a run that was parked another one. (A request that found no job or
//!   no memory and is offered again counts again.)
//! - GU3: no password is checked on a network thread.
//! - GU4: what is inside does not run in the part of the workers that checks of passwords keep: a
//!   request that was admitted there comes again as a job of its own kind.
//!
//! The rules change while the service runs ([`AccessHandle::replace`]): each network thread takes
//! over the new ones with the next request.
//!
//! Cost: the client's address, once for a connection; a binary search for each length of networks,
//! and 34 bytes looked at under a lock for each limit; a hash of the credentials.

mod access;

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath::KeptWork;
use flatpath::lock::Lock;
use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath_http::{
    Body, Disposition, Head, HeadNote, Peer, Place, Plan, Reply, Request, Response, Service,
    SiteKey, SiteMatch, SiteTerms, Turn, UploadDecision, Work, WorkerParts, WorkerScope,
};
use http::{Extensions, StatusCode};

pub use access::{Access, AccessHandle};
use access::{Decision, Shared};

/// Lets requests to a service that an [`Access`] admits.
///
/// ```
/// use flatpath_http::{Http, Router};
/// use flatpath_layers::{Access, Guard, RateLimit};
///
/// # fn main() -> Result<(), flatpath_http::flatpath::BadSubnet> {
/// let router: Router = Router::new().get("/", || "hello\n");
/// let access = Access::new()
///     .allow(["10.0.0.0/8".parse()?])
///     .deny(["10.66.0.0/16".parse()?])
///     .requests(RateLimit::per_second(10));
/// let http = Http::service(Guard::new(router, access));
/// # Ok(())
/// # }
/// ```
///
/// The address is the client's that [`Peer`] has: behind proxies that the listener trusts, the one
/// that they name. A Unix socket's client has none unless it is such a proxy.
pub struct Guard<S> {
    inner: S,
    shared: Arc<Shared>,
    id: NonZeroU64,
    refusals: Option<Refusals<S>>,
}

/// Refusals that a worker changes.
struct Refusals<S> {
    statuses: Vec<StatusCode>,
    change: Box<Change<S>>,
}

type Change<S> = dyn Fn(&S, &Request, Response, &mut WorkerScope<'_>) -> Response + Send + Sync;

/// A refusal whose change waits for its turn: an extension of its request.
#[derive(Clone)]
struct Refused {
    by: HeadNote,
    response: Arc<Lock<Response>>,
}

/// What a network thread keeps for a [`Guard`].
pub struct GuardState<T> {
    inner: T,
    version: u64,
    access: Arc<Access>,
}

impl<S> Guard<S> {
    /// The statuses of its refusals.
    pub const REFUSALS: [StatusCode; 4] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];

    /// Admits what `access` does.
    pub fn new(service: S, access: Access) -> Self {
        Self::with(service, &AccessHandle::new(access))
    }

    /// The same by rules that other guards have, too.
    pub fn with(service: S, access: &AccessHandle) -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        // ORDER: Relaxed: the number alone counts.
        let before = CREATED.fetch_add(1, Ordering::Relaxed);
        Self {
            inner: service,
            shared: access.shared(),
            id: NonZeroU64::MIN.saturating_add(before),
            refusals: None,
        }
    }

    /// Changes refusals of these statuses ([`REFUSALS`](Self::REFUSALS) or some of them): to a page
    /// of the service inside, say. `change` runs on a worker and may block. So such a refusal costs
    /// a job, where others are answered on the network thread.
    #[must_use]
    pub fn refusals(
        self,
        statuses: impl IntoIterator<Item = StatusCode>,
        change: impl Fn(&S, &Request, Response, &mut WorkerScope<'_>) -> Response
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let refusals = Refusals {
            statuses: statuses.into_iter().collect(),
            change: Box::new(change),
        };
        let refusals = Some(refusals);
        Self { refusals, ..self }
    }

    /// What changes a refusal of this status.
    fn change_of(&self, status: StatusCode) -> Option<&Change<S>> {
        let refusals = self.refusals.as_ref()?;
        let is_changed = refusals.statuses.contains(&status);
        is_changed.then_some(&*refusals.change)
    }

    /// A refusal as its client gets it. What is returned where the job is parked is dropped.
    fn refuse(
        &self,
        refusal: Response,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Response {
        let change = self.change_of(refusal.status());
        let Some(change) = change.filter(|_| !scope.is_parked()) else {
            return refusal;
        };
        let response = change(&self.inner, request, refusal, scope);
        if !scope.is_parked() {
            return response;
        }
        // The decision stands: to make it again would count another wrong password.
        request.extensions_mut().insert(Refused {
            by: self.note(),
            response: Arc::new(Lock::new(response)),
        });
        Response::default()
    }

    /// To change the rules while the service runs.
    #[must_use]
    pub fn handle(&self) -> AccessHandle {
        AccessHandle::of(&self.shared)
    }

    fn note(&self) -> HeadNote {
        HeadNote(self.id)
    }

    /// The decision on the network thread.
    fn decide<T>(&self, thread: &mut GuardState<T>, head: &Head<'_>) -> Decision {
        let (version, access) = (&mut thread.version, &mut thread.access);
        self.shared.renew(version, access);
        let address = head.peer().map(|peer| peer.ip());
        let is_counted = head.has(self.note());
        if let Err(refusal) = access.admit(address, is_counted) {
            return Decision::Refused(refusal);
        }
        head.leave(self.note());
        access.credentials_at_once(head, address)
    }

    /// The same on a worker, for a run of a request. `Err`: its response, which counts for nothing
    /// where the job was parked.
    fn decide_for(
        &self,
        access: &Access,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let address = address_of(request);
        let refused: Option<&Refused> = request.extensions().get();
        if refused.is_some_and(|refused| refused.by == self.note())
            && let Some(refused) = request.extensions_mut().remove::<Refused>()
        {
            return Err(Box::new(std::mem::take(&mut *refused.response.lock())));
        }
        access.admit(address, self.note().is_of(request))?;
        self.note().leave_for(request);
        access.credentials(request, address, scope)
    }
}

fn address_of(request: &Request) -> Option<IpAddr> {
    Peer::of(request).map(|peer| peer.ip())
}

/// Counts the body of a response that was answered on the network thread.
fn charged<'d>(
    access: &Access,
    address: Option<IpAddr>,
    (disposition, reply): (Disposition<'d>, &Reply<'_>),
) -> Disposition<'d> {
    if let Disposition::Answered = disposition {
        access.charge(address, reply.body_bytes());
    }
    disposition
}

/// Counts the body of a response from a worker: when it is made, or as it is read where its length
/// is not known.
fn charge(access: &Arc<Access>, address: Option<IpAddr>, response: Response) -> Response {
    if !access.counts_bytes() {
        return response;
    }
    match response.body().length() {
        Some(bytes) => {
            access.charge(address, bytes);
            response
        }
        None => response.map(|body| match body {
            Body::Reader(reader) => Body::Reader(reader.wrap(|reader| Charged {
                reader,
                access: Arc::clone(access),
                address,
            })),
            other => other,
        }),
    }
}

/// A body whose bytes are counted as they are read.
struct Charged<R> {
    reader: R,
    access: Arc<Access>,
    address: Option<IpAddr>,
}

impl<R: Read> Read for Charged<R> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.reader.read(room)?;
        self.access.charge(self.address, bytes as u64);
        Ok(bytes)
    }
}

impl<S: Service> Service for Guard<S> {
    type ThreadState = GuardState<S::ThreadState>;

    fn thread_state(&self) -> Self::ThreadState {
        let (version, access) = self.shared.current();
        GuardState {
            inner: self.inner.thread_state(),
            version,
            access,
        }
    }

    fn site(&self, authority: &str) -> SiteMatch {
        self.inner.site(authority)
    }

    fn has_site(&self, site: SiteKey) -> bool {
        self.inner.has_site(site)
    }

    fn terms(&self, head: &Head<'_>) -> Option<Arc<SiteTerms>> {
        self.inner.terms(head)
    }

    /// The decision comes inline, whatever the place of the request is then.
    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Plan {
            place: Place::Inline,
            asks_peer: true,
            ..self.inner.plan(head)
        }
    }

    fn plans_inline(&self) -> bool {
        true
    }

    fn inline(
        &self,
        thread: &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match self.decide(thread, head) {
            Decision::Admitted => {}
            Decision::Worker => return Disposition::Pooled,
            // The worker decides again, and refuses again.
            Decision::Refused(response) if self.change_of(response.status()).is_some() => {
                return Disposition::Pooled;
            }
            Decision::Refused(response) => return reply.response(*response),
        }
        let place = match self.inner.plans_inline() {
            true => Place::Inline,
            false => self.inner.plan(head).place,
        };
        match place {
            Place::Inline => {
                let disposition = self.inner.inline(&mut thread.inner, turn, head, reply);
                let address = head.peer().map(|peer| peer.ip());
                charged(&thread.access, address, (disposition, reply))
            }
            Place::Prompt(right) => Disposition::Prompt(right),
            Place::Within(terms) => Disposition::Within(terms),
            _ => Disposition::Pooled,
        }
    }

    /// Comes after `inline` alone, which has decided.
    fn prompt(
        &self,
        thread: &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let inner = &mut thread.inner;
        let disposition = self.inner.prompt(inner, turn, head, pool, reply);
        let address = head.peer().map(|peer| peer.ip());
        charged(&thread.access, address, (disposition, reply))
    }

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        let inside = self.inner.work(head);
        let (_, access) = self.shared.current();
        let address = head.peer().map(|peer| peer.ip());
        match access.credentials_at_once(head, address) {
            Decision::Worker => Some(Work::before(KeptWork::Passwords, inside)),
            Decision::Admitted | Decision::Refused(_) => inside,
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let (_, access) = self.shared.current();
        if let Err(refusal) = self.decide_for(&access, request, scope) {
            return self.refuse(*refusal, request, scope);
        }
        if access.checks_passwords() && scope.end_kept_work() {
            return Response::default();
        }
        let address = address_of(request);
        let response = self.inner.pooled(request, scope);
        match scope.is_parked() {
            true => response,
            false => charge(&access, address, response),
        }
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        let (_, access) = self.shared.current();
        if let Err(refusal) = self.decide_for(&access, request, scope) {
            return UploadDecision::Response(self.refuse(*refusal, request, scope));
        }
        if access.checks_passwords() && scope.end_kept_work() {
            return UploadDecision::Response(Response::default());
        }
        let address = address_of(request);
        let decision = self.inner.open(request, scope);
        match scope.is_parked() {
            true => decision,
            false => decision.map(move |response| charge(&access, address, response)),
        }
    }

    fn region(&self) -> Option<RegionConfig> {
        self.inner.region()
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        // A handle may bring passwords later, when a listener gets no part any more.
        let may_change = Arc::strong_count(&self.shared) > 1;
        if may_change || self.shared.current().1.checks_passwords() {
            parts.keep(KeptWork::Passwords);
        }
        self.inner.worker_parts(parts);
    }

    fn response_ready(&self, thread: &mut Self::ThreadState, turn: Turn, note: &mut Extensions) {
        self.inner.response_ready(&mut thread.inner, turn, note);
    }
}

impl<S: fmt::Debug> fmt::Debug for Guard<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Guard");
        shown.field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for GuardState<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("GuardState");
        shown
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
