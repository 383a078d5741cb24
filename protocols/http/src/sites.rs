//! Sites: which service answers for which host, and below which prefix.
//!
//! The host is the one that a request is for ([`Head::authority`]): of a target in absolute form
//! the target's, whatever `Host` says (RFC 9112 section 3.2.2), over HTTP/2 `:authority`. Ports, a
//! dot at its end and the case of letters do not count. [`Hosts`](crate::Hosts) compares in the
//! same way, by the same map of patterns.
//!
//! Invariants
//! - ST1: one request has one service. The network thread and the worker look it up by the same
//!   authority and the same path, whatever headers say.
//! - ST2: a key is of one `Sites` alone. A service that gets a head which another one has looked
//!   up looks its host up itself.
//! - ST3: a prefix is compared with the decoded path, so a site cannot be reached around the one
//!   below it by writing `%61` for `a`. An encoded slash is none.
//!
//! Cost: nothing is looked up while a network thread is asked for the same host: the listener
//! remembers the site with the host. Another host costs a hash for each of its labels; a site with
//! several prefixes, a comparison with each of them.
//!
//! Its folder has sites that change ([`live_sites`]), what is remembered of a lookup
//! ([`site_match`], [`site_terms`]), and the guards by host and origin ([`hosts`], [`origins`]),
//! which [`admission`](crate::connection::admission) asks for both versions.

pub(crate) mod live_sites;
pub(crate) mod site_match;
pub(crate) mod site_terms;
pub(crate) mod challenges;
pub(crate) mod hosts;
pub(crate) mod origins;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use http::{Extensions, StatusCode};

use crate::extract::host::Host;
use crate::head::fault::Fault;
use crate::head::parse::with_head;
use crate::head::{Head, TargetForm};
use crate::layer::answer::{Answer, Kind};
use crate::message::{Request, Response};
use crate::respond::into_response::refused;
use crate::respond::reply::{Disposition, Reply};
use crate::router::mount::{self, Mounted, Services, States};
use crate::service::sink::UploadDecision;
use crate::service::terms::{Work, WorkerParts};
use crate::service::{Plan, Service};
use crate::sites::hosts::{HostMap, HostPattern, InvalidHost};
use crate::sites::site_match::{SiteKey, SiteMatch};
use crate::sites::site_terms::SiteTerms;

/// Several sites behind one listener: each a service of its own, for the hosts and the prefix that
/// it was added with.
///
/// A host has the site of its own name, else that of the longest domain that it is below
/// (`*.example.org`), else that of `*`. A host that has none gets 421 (RFC 9110 section 15.5.20),
/// as one that [`Http::hosts`](crate::Http::hosts) does not have. Of the prefixes of a host the
/// longest counts; a path that none fits gets 404. A service below a prefix gets the paths without
/// it, and [`Mount`](crate::Mount) says what was cut off.
///
/// ```
/// use flatpath_http::{Http, InvalidSite, Router, Sites};
///
/// # fn main() -> Result<(), InvalidSite> {
/// let blog: Router = Router::new().get("/", || "a blog\n");
/// let shop: Router = Router::new().get("/", || "a shop\n");
/// let other: Router = Router::new().get("/", || "welcome\n");
///
/// let names = ["blog.example.org".parse()?, "*.blog.example.org".parse()?];
/// let sites = Sites::new()
///     .add(&names, "/", blog)?
///     .add(&["www.example.org".parse()?], "/shop", shop)?
///     .add(&["*".parse()?], "/", other)?;
/// let service = Http::service(sites);
/// # Ok(())
/// # }
/// ```
pub struct Sites {
    /// Of its keys.
    id: u32,
    hosts: HostMap<u32>,
    /// By the number of its host: the longest prefix first.
    parts: Vec<Vec<Part>>,
    services: Services,
    /// Of those that have any, by the numbers of their services.
    terms: Vec<Option<Arc<SiteTerms>>>,
    /// Whether any of them looks at addresses, or has deadlines.
    asks_peer: bool,
}

/// What a service is asked about before it has requests.
const ANY: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A service of a host.
#[derive(Debug)]
struct Part {
    /// Decoded, without a slash at its end.
    prefix: Box<str>,
    number: usize,
}

/// A site cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidSite {
    /// The text is no [`HostPattern`].
    Host(InvalidHost),
    /// The prefix is not a path.
    Prefix(String),
    /// Another site has this host and this prefix.
    Taken {
        /// The host.
        host: HostPattern,
        /// The prefix, as `/` where it is the root.
        prefix: String,
    },
}

flatpath::impl_error! {
    InvalidSite {
        Self::Host(cause) => "{cause}",
        Self::Prefix(prefix) =>
            "{prefix:?} is no prefix: write the path as it is, not percent-encoded, such as /files",
        Self::Taken { host, prefix } => "two sites have the host {host} and the prefix {prefix}",
    }
}

impl From<InvalidHost> for InvalidSite {
    fn from(cause: InvalidHost) -> Self {
        Self::Host(cause)
    }
}

/// What a network thread keeps for sites: the state of each service.
pub struct SitesState(States);

impl fmt::Debug for SitesState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_tuple("SitesState");
        shown.field(&self.0.len()).finish()
    }
}

impl fmt::Debug for Sites {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Sites");
        shown.field("hosts", &self.hosts);
        shown.field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Default for Sites {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a request goes.
enum Found {
    Service(mount::Place),
    /// The host has nothing there.
    Nothing,
    /// No site has the host.
    Unknown,
}

impl Found {
    fn refusal(&self) -> Response {
        match self {
            Self::Unknown => refused(StatusCode::MISDIRECTED_REQUEST, &Fault::HostForeign),
            _ => refused(StatusCode::NOT_FOUND, &"Nothing is here."),
        }
    }
}

impl Sites {
    /// None yet: every host is unknown.
    #[must_use]
    pub fn new() -> Self {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        Self {
            // ORDER: Relaxed: the number alone counts.
            id: CREATED.fetch_add(1, Ordering::Relaxed),
            hosts: HostMap::default(),
            parts: Vec::new(),
            services: Services::default(),
            terms: Vec::new(),
            asks_peer: false,
        }
    }

    /// Whether a site has terms of its own.
    pub(crate) fn has_terms(&self) -> bool {
        self.terms.iter().any(Option::is_some)
    }

    /// Sets what the protocol does otherwise for the site that was added last.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn terms(mut self, terms: SiteTerms) -> Self {
        // A connection that leaves such a site has to be seen.
        self.asks_peer |= terms.timeouts.is_some();
        *self.terms.last_mut().expect("a site was added") = Some(Arc::new(terms));
        self
    }

    /// Theirs alone, among all that there ever were.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Whether a service looks at the address of who asks for `/`.
    pub(crate) fn asks_peer(&self) -> bool {
        self.asks_peer
    }

    /// Adds a site: this service for these hosts below this prefix, `/` for all of their paths. The
    /// pattern `*` is for every host that has no site.
    ///
    /// # Errors
    /// The prefix is no path, or another site has it and one of the hosts.
    pub fn add(
        mut self,
        hosts: &[HostPattern],
        prefix: &str,
        service: impl Service,
    ) -> Result<Self, InvalidSite> {
        let invalid = || InvalidSite::Prefix(prefix.to_owned());
        let prefix = mount::parse_prefix(prefix).ok_or_else(invalid)?;
        let any = with_head(ANY, |head| service.plan(head).asks_peer);
        self.asks_peer |= matches!(any, Ok(Some(true)));
        let number = self.services.add(service);
        self.terms.push(None);
        for host in hosts {
            let parts = self.parts_of(host);
            if parts.iter().any(|part| *part.prefix == *prefix) {
                return Err(InvalidSite::Taken {
                    host: host.clone(),
                    prefix: if prefix.is_empty() { "/" } else { prefix }.to_owned(),
                });
            }
            let prefix = prefix.into();
            parts.push(Part { prefix, number });
            parts.sort_by_key(|part| std::cmp::Reverse(part.prefix.len()));
        }
        Ok(self)
    }

    /// Which site answers for a host, with or without a port, and a path: its number in the order
    /// in which they were added, from 0.
    #[must_use]
    pub fn number_of(&self, authority: &str, path: &str) -> Option<usize> {
        let host = self.hosts.find(authority)?;
        match self.below(*host, path) {
            Found::Service(at) => Some(at.number),
            Found::Nothing | Found::Unknown => None,
        }
    }

    /// What a pattern has so far.
    fn parts_of(&mut self, host: &HostPattern) -> &mut Vec<Part> {
        let known = self.hosts.of_pattern(host).copied();
        let place = known.unwrap_or_else(|| {
            let place = u32::try_from(self.parts.len()).expect("fewer sites than 2^32");
            self.parts.push(Vec::new());
            self.hosts.insert(host, place);
            place
        });
        &mut self.parts[place as usize]
    }

    /// Where a request goes by its head.
    fn find(&self, head: &Head<'_>) -> Found {
        let host = match head.site {
            // ST2: another one's key counts as none.
            Some(key) if key.sites == self.id => match key.direct {
                Some(number) => {
                    return Found::Service(mount::Place {
                        number: number as usize,
                        prefix_bytes: 0,
                    });
                }
                None => key.host,
            },
            _ => match self.hosts.find(head.authority()) {
                Some(host) => *host,
                None => return Found::Unknown,
            },
        };
        self.below(host, head.path())
    }

    /// The service that answers for a request and its state, as the host was looked up: one that
    /// gets the head as it is, and plans every request inline.
    #[inline]
    pub(crate) fn direct<'a>(
        &'a self,
        thread: &'a mut SitesState,
        head: &Head<'_>,
    ) -> Option<(&'a dyn Mounted, &'a mut dyn Any)> {
        let key = head.site.filter(|key| key.sites == self.id)?;
        let number = key.direct.filter(|_| head.form() != TargetForm::Absolute)?;
        Some(self.services.with_state(number as usize, &mut thread.0))
    }

    /// The service that answers for all paths of a host, if it plans all requests inline.
    fn direct_of(&self, host: u32) -> Option<u32> {
        // The longest prefix is the first.
        let first = self.parts[host as usize].first()?;
        let is_direct = first.prefix.is_empty() && self.services.plans_inline(first.number);
        is_direct.then(|| u32::try_from(first.number).ok())?
    }

    /// The same on a worker.
    fn find_for(&self, request: &Request) -> Found {
        let authority = Host::of(request).unwrap_or_default();
        match self.hosts.find(authority) {
            Some(host) => self.below(*host, request.uri().path()),
            None => Found::Unknown,
        }
    }

    fn below(&self, host: u32, path: &str) -> Found {
        let found = self.parts[host as usize].iter().find_map(|part| {
            let prefix_bytes = mount::prefix_bytes(path, &part.prefix)?;
            Some(mount::Place {
                number: part.number,
                prefix_bytes,
            })
        });
        found.map_or(Found::Nothing, Found::Service)
    }

    fn on_worker(
        &self,
        request: &mut Request,
        body: mount::Body,
        scope: &mut WorkerScope<'_>,
    ) -> Answer {
        let begin = |request: &mut Request, scope: &mut WorkerScope<'_>| {
            let at = match self.find_for(request) {
                Found::Service(at) => at,
                none => return none.refusal().into(),
            };
            let service = (at.number, self.services.numbered(at.number));
            mount::ask(service, at.prefix_bytes, body, request, scope)
        };
        self.services.on_worker(request, body, scope, begin)
    }
}

impl Service for Sites {
    type ThreadState = SitesState;

    fn thread_state(&self) -> SitesState {
        SitesState(self.services.thread_state())
    }

    fn site(&self, authority: &str) -> SiteMatch {
        let found = self.hosts.find(authority);
        found.map_or(SiteMatch::Unknown, |host| {
            SiteMatch::One(SiteKey {
                sites: self.id,
                host: *host,
                direct: self.direct_of(*host),
            })
        })
    }

    fn terms(&self, head: &Head<'_>) -> Option<Arc<SiteTerms>> {
        match self.find(head) {
            Found::Service(at) => self.terms[at.number].clone(),
            Found::Nothing | Found::Unknown => None,
        }
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        match self.find(head) {
            Found::Service(at) => {
                let plan = self.services.plan(at, head);
                let asks_peer = plan.asks_peer || self.asks_peer;
                Plan { asks_peer, ..plan }
            }
            Found::Nothing | Found::Unknown => Plan::default(),
        }
    }

    fn inline(
        &self,
        thread: &mut SitesState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match self.find(head) {
            Found::Service(at) => self.services.inline(at, (&mut thread.0, turn), head, reply),
            none => reply.response(none.refusal()),
        }
    }

    fn prompt(
        &self,
        thread: &mut SitesState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match self.find(head) {
            Found::Service(at) => {
                let thread = (&mut thread.0, turn);
                self.services.prompt(at, thread, head, pool, reply)
            }
            none => reply.response(none.refusal()),
        }
    }

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        match self.find(head) {
            Found::Service(at) => self.services.work(at, head),
            Found::Nothing | Found::Unknown => None,
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        match self.on_worker(request, mount::Body::Here, scope).0 {
            Kind::Upload(sink) => sink.finish(scope),
            other => Answer(other).into_response_now(),
        }
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        let body = mount::Body::to_come(request);
        self.on_worker(request, body, scope).into()
    }

    fn region(&self) -> Option<RegionConfig> {
        self.services.region()
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        self.services.worker_parts(parts);
    }

    fn response_ready(&self, thread: &mut SitesState, turn: Turn, note: &mut Extensions) {
        self.services.response_ready(&mut thread.0, turn, note);
    }
}

#[cfg(test)]
mod tests;
