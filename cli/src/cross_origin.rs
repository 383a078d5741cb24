//! `--allow-origin`: lets pages of other origins use a site as its own pages do (CORS).
//!
//! What the [policy](policy) allows is what the site takes: methods, and the fields of requests and
//! answers of [`Files::vocabulary`]. A preflight is answered before anybody asks for a password,
//! which it cannot have. Everything else is the site's answer, its refusals included, with the
//! headers that let the page read it. What rules say stays for all other origins.
//!
//! No cookies and no passwords of the browser's own: a page of another origin has to bring its
//! credentials, in `Authorization`.
//!
//! What the listener refuses before it knows the site (a head that is malformed, a host that is not
//! served, a foreign page that writes) has no such headers.
//!
//! Cost: nothing for requests without `Origin`; the others get a copy of their answer's head.

use std::sync::Arc;
use std::time::Duration;

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use flatpath_files::{Files, HeaderChange, Pattern, RuleError, Rules};
use flatpath_http::http::Extensions;
use flatpath_http::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderName, ORIGIN, VARY};
use flatpath_http::{
    Disposition, HandlerState, Head, OriginPattern, Place, Plan, Reply, Request, Response, Service,
    SiteKey, SiteMatch, SiteTerms, UploadDecision, Work, WorkerParts, amend_headers,
};
use flatpath_layers::Cors;

/// Fields that libraries for browsers add to each request.
const OF_LIBRARIES: [HeaderName; 2] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-requested-with"),
];

/// How long a browser may keep the answer to a preflight.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// What pages of these origins may do with a site.
pub(crate) fn policy(origins: &[OriginPattern], files: &Files) -> Cors {
    let all = files.vocabulary();
    Cors::origins(origins.iter().cloned())
        .methods(all.methods)
        .headers(all.request_fields.into_iter().chain(OF_LIBRARIES))
        .expose(all.response_fields)
        .max_age(PREFLIGHT_AGE)
}

/// The rules of a site with these origins: caches learn from each answer that it differs by origin,
/// or that it does not.
///
/// # Errors
/// The site has too many rules.
pub(crate) fn rules(origins: &[OriginPattern], rules: Rules) -> Result<Rules, RuleError> {
    let change = match origins.iter().any(OriginPattern::is_any) {
        _ if origins.is_empty() => return Ok(rules),
        true => HeaderChange::set(ACCESS_CONTROL_ALLOW_ORIGIN.as_str(), "*"),
        false => HeaderChange::append(VARY.as_str(), ORIGIN.as_str()),
    };
    rules.headers(Pattern::any(), [change?])
}

/// A service with the headers of such a policy.
pub(crate) struct CrossOrigin<S> {
    inner: S,
    cors: Arc<Cors>,
}

impl<S> CrossOrigin<S> {
    pub(crate) fn new(inner: S, cors: Cors) -> Self {
        let cors = Arc::new(cors);
        Self { inner, cors }
    }

    fn answered(&self, request: &Request, mut response: Response) -> Response {
        amend_headers(response.headers_mut(), &self.cors.granted(request));
        response
    }
}

impl<S: Service> CrossOrigin<S> {
    /// Answers a request of a page of any origin on the network thread, or has it answered there.
    fn on_network_thread<'a>(
        &self,
        requests: &mut HandlerState,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
        answer: impl FnOnce(&mut Reply<'_>) -> Disposition<'a>,
    ) -> Disposition<'a> {
        if head.value(ORIGIN.as_str()).is_none() {
            return answer(reply);
        }
        let said = requests.with_request(head, |request| {
            (self.cors.preflight_of(request), self.cors.granted(request))
        });
        match said {
            Some((Some(preflight), _)) => reply.response(preflight),
            Some((None, granted)) => {
                reply.amend(&granted);
                answer(reply)
            }
            None => Disposition::Pooled,
        }
    }
}

impl<S: Service> Service for CrossOrigin<S> {
    type ThreadState = (S::ThreadState, HandlerState);

    fn thread_state(&self) -> Self::ThreadState {
        (self.inner.thread_state(), HandlerState::default())
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

    /// A preflight is answered inline, whatever the place of the request is then.
    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Plan {
            place: Place::Inline,
            ..self.inner.plan(head)
        }
    }

    fn plans_inline(&self) -> bool {
        true
    }

    fn inline(
        &self,
        (inner, requests): &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        self.on_network_thread(requests, head, reply, |reply| {
            let place = match self.inner.plans_inline() {
                true => Place::Inline,
                false => self.inner.plan(head).place,
            };
            match place {
                Place::Inline => self.inner.inline(inner, turn, head, reply),
                Place::Prompt(right) => Disposition::Prompt(right),
                Place::Within(terms) => Disposition::Within(terms),
                _ => Disposition::Pooled,
            }
        })
    }

    fn prompt(
        &self,
        (inner, requests): &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        self.on_network_thread(requests, head, reply, |reply| {
            self.inner.prompt(inner, turn, head, pool, reply)
        })
    }

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        self.inner.work(head)
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        if let Some(preflight) = self.cors.preflight_of(request) {
            return preflight;
        }
        let response = self.inner.pooled(request, scope);
        self.answered(request, response)
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        if let Some(preflight) = self.cors.preflight_of(request) {
            return UploadDecision::Response(preflight);
        }
        let granted = self.cors.granted(request);
        let decision = self.inner.open(request, scope);
        match granted.is_empty() {
            true => decision,
            false => decision.map(move |mut response| {
                amend_headers(response.headers_mut(), &granted);
                response
            }),
        }
    }

    fn region(&self) -> Option<RegionConfig> {
        self.inner.region()
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        self.inner.worker_parts(parts);
    }

    fn response_ready(
        &self,
        (inner, _): &mut Self::ThreadState,
        turn: Turn,
        note: &mut Extensions,
    ) {
        self.inner.response_ready(inner, turn, note);
    }
}
