//! Sites that change while a listener serves them: all of them are replaced at once.
//!
//! A network thread compares a number for each request, and takes the new sites over with the first
//! one after the change; its caches of the sites before are gone then. Hosts are checked here, and
//! not by [`Http::hosts`](crate::Http::hosts), because they change with the sites.
//!
//! | may run beside | replace | a network thread | a worker |
//! |----------------|---------|------------------|----------|
//! | each of them   | yes     | yes              | yes      |
//!
//! Invariants
//! - LS1: a request that was parked continues with the sites in which it began.
//! - LS2: what a response leaves for the state of a network thread gets there only while the thread
//!   has the sites that made it.
//! - LS3: [`Service::prompt`] asks the sites that [`Service::inline`] has asked before: it takes
//!   over nothing.
//! - LS4: a host that was looked up counts only for the sites in which it was. Its key was compared
//!   with those that are served, for this request; so sites of the same number are served.
//!
//! A `Prompt` of a site names a right that ends with the site. So each directory, by the name of
//! its place, has a right here, which it keeps when it is replaced.
//!
//! Does not: tell the access log by which route a path was found.
//!
//! Cost: a relaxed load and a comparison for `has_site`, a comparison for `inline`; a lock for a
//! host other than the one before, for a method other than GET and HEAD, and on workers. Where one
//! service has all paths of a host and plans them inline, as files do, the key of the site leads to
//! it, and it is asked for no plan.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use flatpath::lock::Lock;
use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::prompt::PromptRight;
use flatpath::{Turn, WorkerScope};
use http::Extensions;

use crate::head::Head;
use crate::limits::LIVE_PLACES_MAX;
use crate::message::{Request, Response};
use crate::respond::reply::{Disposition, Reply};
use crate::service::sink::UploadDecision;
use crate::service::terms::{Work, WorkerParts};
use crate::service::{Place, Plan, Service};
use crate::sites::hosts::Hosts;
use crate::sites::site_match::{SiteKey, SiteMatch};
use crate::sites::site_terms::SiteTerms;
use crate::sites::{Sites, SitesState};

/// [`Sites`] that can be replaced while they are served, with the hosts that are answered for.
///
/// ```
/// use flatpath_http::{Hosts, Http, InvalidSite, LiveSites, Router, Sites};
///
/// # fn main() -> Result<(), InvalidSite> {
/// let blog: Router = Router::new().get("/", || "a blog\n");
/// let sites = Sites::new().add(&["blog.example.org".parse()?], "/", blog)?;
/// let live = LiveSites::new(sites, Hosts::any());
/// let handle = live.handle();
/// let service = Http::service(live);
///
/// // While the service runs, on a thread that may wait:
/// let shop: Router = Router::new().get("/", || "a shop\n");
/// let sites = Sites::new().add(&["shop.example.org".parse()?], "/", shop)?;
/// handle.replace(sites, Hosts::any());
/// # Ok(())
/// # }
/// ```
///
/// The memory for large bodies is that of the first sites: where none of them asks for it, later
/// ones have none ([`Service::region`]). So it is with workers that routes keep for themselves;
/// each kind of work that waits for no client ([`KeptWork`](flatpath::KeptWork)) has its part from
/// the start, as later sites may do any of it. A request that has arrived when the first site that
/// looks at addresses replaces others may be answered as if its client had none.
pub struct LiveSites {
    shared: Arc<Shared>,
    /// Filled from the first to the last.
    rights: Box<[OnceLock<PromptRight>]>,
}

/// Replaces [`LiveSites`]. A clone is the same.
#[derive(Clone)]
pub struct LiveSitesHandle(Arc<Shared>);

struct Shared {
    /// The number of the sites that are served.
    number: AtomicU32,
    /// Stays true: a request that was planned before a change is answered after it.
    asks_peer: AtomicBool,
    /// Stays true, too: a connection may have the terms of a site before.
    has_terms: AtomicBool,
    current: Lock<Arc<Version>>,
}

struct Version {
    sites: Sites,
    hosts: Hosts,
}

/// What a network thread keeps for [`LiveSites`].
pub struct LiveSitesState {
    version: Arc<Version>,
    sites: SitesState,
}

/// The sites of a request that was parked (LS1): an extension of it.
#[derive(Clone)]
struct Begun(Arc<Version>);

/// The number of the sites that made a response (LS2): an extension of it.
#[derive(Clone, Copy)]
struct MadeBy(u32);

impl LiveSites {
    /// Serves these sites, for these hosts: others get 421.
    #[must_use]
    pub fn new(sites: Sites, hosts: Hosts) -> Self {
        let shared = Shared {
            number: AtomicU32::new(sites.id()),
            asks_peer: AtomicBool::new(sites.asks_peer()),
            has_terms: AtomicBool::new(sites.has_terms()),
            current: Lock::new(Arc::new(Version { sites, hosts })),
        };
        Self {
            shared: Arc::new(shared),
            rights: (0..LIVE_PLACES_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    /// To replace them while the service runs.
    #[must_use]
    pub fn handle(&self) -> LiveSitesHandle {
        LiveSitesHandle(Arc::clone(&self.shared))
    }

    /// The right here for the place of another one. `None` if nothing is tried there, or there are
    /// too many.
    fn right_of(&self, inner: &PromptRight) -> Option<&PromptRight> {
        if inner.is_lost() {
            return None;
        }
        let rights = self.rights.iter();
        let mut rights = rights.map(|it| it.get_or_init(|| inner.anew()));
        rights.find(|right| right.place() == inner.place())
    }

    #[inline]
    fn as_here(&self, disposition: Disposition<'_>) -> Disposition<'_> {
        match disposition {
            Disposition::Answered => Disposition::Answered,
            // The terms are of sites that may be replaced: they hold once a worker has begun.
            Disposition::Pooled | Disposition::Within(_) => Disposition::Pooled,
            Disposition::Prompt(inner) => self
                .right_of(inner)
                .map_or(Disposition::Pooled, Disposition::Prompt),
        }
    }

    /// What a site says of a request that may have a body.
    #[inline(never)]
    fn plan_of_site(&self, head: &Head<'_>) -> Plan<'_> {
        let version = self.shared.current();
        let of_site = version.sites.plan(head);
        Plan {
            body: of_site.body,
            asks_peer: of_site.asks_peer || self.shared.asks_peer(),
            ..Plan::default()
        }
    }

    /// Takes new sites over where there are any, and asks the one that the head leads to.
    #[inline(never)]
    fn inline_after_look_up(
        &self,
        thread: &mut LiveSitesState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        if !self.shared.is_current(thread.version.sites.id()) {
            let new = LiveSitesState::of(self.shared.current());
            // The last holder of sites closes their directories, which may block.
            flatpath::discard(mem::replace(thread, new).version);
        }
        let LiveSitesState { version, sites } = thread;
        match version.sites.plan(head).place {
            Place::Inline => self.as_here(version.sites.inline(sites, turn, head, reply)),
            Place::Prompt(right) => self.as_here(Disposition::Prompt(right)),
            Place::Worker | Place::Within(_) => Disposition::Pooled,
        }
    }

    /// Runs a request on a worker, and marks what it leaves with the number of its sites.
    fn on_worker<T>(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
        run: impl FnOnce(&Sites, &mut Request, &mut WorkerScope<'_>) -> T,
    ) -> (T, MadeBy) {
        let begun = request.extensions_mut().remove::<Begun>();
        let version = begun.map_or_else(|| self.shared.current(), |begun| begun.0);
        let result = run(&version.sites, request, scope);
        let made_by = MadeBy(version.sites.id());
        if scope.is_parked() {
            request.extensions_mut().insert(Begun(version));
        }
        (result, made_by)
    }
}

impl LiveSitesHandle {
    /// Replaces the sites and their hosts, for every request from now on. Those that are replaced
    /// end with their last request, on the thread of the caller or of a worker.
    pub fn replace(&self, sites: Sites, hosts: Hosts) {
        let shared = &self.0;
        // ORDER: Relaxed: it is a hint of what a request may need.
        shared
            .asks_peer
            .fetch_or(sites.asks_peer(), Ordering::Relaxed);
        shared
            .has_terms
            .fetch_or(sites.has_terms(), Ordering::Relaxed);
        let number = sites.id();
        let mut current = shared.current.lock();
        let before = mem::replace(&mut *current, Arc::new(Version { sites, hosts }));
        // ORDER: Relaxed: the lock orders what it stands for.
        shared.number.store(number, Ordering::Relaxed);
        drop(current);
        drop(before);
    }
}

impl Shared {
    fn current(&self) -> Arc<Version> {
        Arc::clone(&self.current.lock())
    }

    fn asks_peer(&self) -> bool {
        // ORDER: Relaxed: see `replace`.
        self.asks_peer.load(Ordering::Relaxed)
    }

    fn is_current(&self, number: u32) -> bool {
        // ORDER: Relaxed: a request that comes at the same time as a change may be before it.
        self.number.load(Ordering::Relaxed) == number
    }
}

impl LiveSitesState {
    fn of(version: Arc<Version>) -> Self {
        let sites = version.sites.thread_state();
        Self { version, sites }
    }
}

/// Mark of what a response leaves, if it leaves anything.
fn marked(mut response: Response, made_by: MadeBy) -> Response {
    let extensions = response.extensions_mut();
    if !extensions.is_empty() {
        extensions.insert(made_by);
    }
    response
}

impl Service for LiveSites {
    type ThreadState = LiveSitesState;

    fn thread_state(&self) -> LiveSitesState {
        LiveSitesState::of(self.shared.current())
    }

    fn site(&self, authority: &str) -> SiteMatch {
        let version = self.shared.current();
        match version.hosts.admits(authority) {
            true => version.sites.site(authority),
            false => SiteMatch::Unknown,
        }
    }

    fn has_site(&self, site: SiteKey) -> bool {
        self.shared.is_current(site.sites)
    }

    fn terms(&self, head: &Head<'_>) -> Option<Arc<SiteTerms>> {
        // ORDER: Relaxed: see `replace`.
        if !self.shared.has_terms.load(Ordering::Relaxed) {
            return None;
        }
        Service::terms(&self.shared.current().sites, head)
    }

    #[inline]
    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        if !head.is_get() && !head.is_head() {
            return self.plan_of_site(head);
        }
        Plan {
            asks_peer: self.shared.asks_peer(),
            ..Plan::default()
        }
    }

    #[inline]
    fn inline(
        &self,
        thread: &mut LiveSitesState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let LiveSitesState { version, sites } = &mut *thread;
        match version.sites.direct(sites, head) {
            Some((service, state)) => self.as_here(service.inline(state, turn, head, reply)),
            None => self.inline_after_look_up(thread, turn, head, reply),
        }
    }

    fn prompt(
        &self,
        thread: &mut LiveSitesState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let LiveSitesState { version, sites } = thread;
        self.as_here(version.sites.prompt(sites, turn, head, pool, reply))
    }

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        self.shared.current().sites.work(head)
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let run = |sites: &Sites, request: &mut Request, scope: &mut WorkerScope<'_>| {
            sites.pooled(request, scope)
        };
        let (response, made_by) = self.on_worker(request, scope, run);
        marked(response, made_by)
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        let run = |sites: &Sites, request: &mut Request, scope: &mut WorkerScope<'_>| {
            sites.open(request, scope)
        };
        let (decision, made_by) = self.on_worker(request, scope, run);
        decision.map(move |response| marked(response, made_by))
    }

    fn region(&self) -> Option<RegionConfig> {
        self.shared.current().sites.region()
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        parts.keep_all();
        self.shared.current().sites.worker_parts(parts);
    }

    fn response_ready(&self, thread: &mut LiveSitesState, turn: Turn, note: &mut Extensions) {
        let LiveSitesState { version, sites } = thread;
        let made_by = note.remove::<MadeBy>();
        if made_by.is_some_and(|MadeBy(number)| number == version.sites.id()) {
            version.sites.response_ready(sites, turn, note);
        }
    }
}

impl fmt::Debug for LiveSites {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_tuple("LiveSites");
        shown.field(&self.shared.current().sites).finish()
    }
}

impl fmt::Debug for LiveSitesHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LiveSitesHandle")
    }
}

impl fmt::Debug for LiveSitesState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_tuple("LiveSitesState");
        shown.field(&self.sites).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_right_and_those_beyond_the_bound_have_none() {
        let live = LiveSites::new(Sites::new(), Hosts::any());
        let right = |place: &str| {
            let found = live.right_of(&PromptRight::granted(place));
            found.map(|right| (right.place().to_owned(), std::ptr::from_ref(right)))
        };
        assert!(live.right_of(&PromptRight::refused("far")).is_none());
        let (one, other) = (right("one").expect("room"), right("other").expect("room"));
        assert_eq!((&*one.0, &*other.0), ("one", "other"));
        assert_ne!(one.1, other.1);
        assert_eq!(right("one"), Some(one.clone()), "of another service, too");
        for number in 2..LIVE_PLACES_MAX {
            assert!(right(&number.to_string()).is_some(), "{number}");
        }
        assert_eq!(right("one too many"), None);
        assert_eq!(right("one"), Some(one));
    }
}
