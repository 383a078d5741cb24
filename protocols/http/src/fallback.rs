//! A router in front of another service.

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::{Turn, WorkerScope};
use http::Extensions;

use crate::closures::HandlerState;
use crate::head::Head;
use crate::message::{Request, Response};
use crate::reply::{Disposition, Reply};
use crate::router::Router;
use crate::service::{Plan, Service};
use crate::sink::UploadDecision;

/// A router, and a service for the paths that have no route; see [`Router::fallback_service`].
///
/// Every call goes to one of the two, by the path of its request.
pub struct WithFallback<S> {
    pub(crate) router: Router,
    pub(crate) service: S,
}

impl Router {
    /// Leaves paths without a route to another service: a directory of files, say. Layers are
    /// around the routes alone.
    ///
    /// # Panics
    /// When there is a fallback already.
    #[must_use]
    #[track_caller]
    pub fn fallback_service<S: Service>(self, service: S) -> WithFallback<S> {
        assert!(!self.has_fallback(), "the router has a fallback already");
        let router = self;
        WithFallback { router, service }
    }
}

impl<S: Service> Service for WithFallback<S> {
    type ThreadState = (HandlerState, S::ThreadState);

    fn thread_state(&self) -> Self::ThreadState {
        (self.router.thread_state(), self.service.thread_state())
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        match self.router.has(head.path()) {
            true => self.router.plan(head),
            false => self.service.plan(head),
        }
    }

    fn inline(
        &self,
        (routes, thread): &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match self.router.has(head.path()) {
            true => self.router.inline(routes, turn, head, reply),
            false => self.service.inline(thread, turn, head, reply),
        }
    }

    fn prompt(
        &self,
        (routes, thread): &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match self.router.has(head.path()) {
            true => self.router.prompt(routes, turn, head, pool, reply),
            false => self.service.prompt(thread, turn, head, pool, reply),
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        match self.router.has(request.uri().path()) {
            true => self.router.pooled(request, scope),
            false => self.service.pooled(request, scope),
        }
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        match self.router.has(request.uri().path()) {
            true => self.router.open(request, scope),
            false => self.service.open(request, scope),
        }
    }

    fn region(&self) -> Option<RegionConfig> {
        self.service.region()
    }

    fn response_ready(
        &self,
        (_, thread): &mut Self::ThreadState,
        turn: Turn,
        note: &mut Extensions,
    ) {
        // The router needs none of them.
        self.service.response_ready(thread, turn, note);
    }
}
