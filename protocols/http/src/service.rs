//! What answers requests.
//!
//! A service answers inline, on the network thread, what it can answer at once, and leaves the rest
//! to its [`Service::pooled`], which a worker runs and which may block. In between is what usually
//! need not wait: [`Service::prompt`] tries it, and hands over to a worker what would.
//!
//! Its folder has services that are made of handlers ([`closures`]), what takes a body piece by
//! piece ([`sink`], [`around`]), and the terms on which workers get a request ([`terms`]).
//! Everything but `head` may use it.

pub(crate) mod closures;
pub(crate) mod terms;
pub(crate) mod sink;
pub(crate) mod around;

use std::sync::Arc;

use flatpath::memory::{PoolHandle, RegionConfig};
use flatpath::prompt::PromptRight;
use flatpath::{Turn, WorkerScope};
use http::Extensions;

use crate::head::fault::Fault;
use crate::head::{Framing, Head};
use crate::limits::DISCARD_BYTES_MAX;
use crate::message::{Request, Response};
use crate::respond::reply::{Disposition, Reply};
use crate::service::sink::UploadDecision;
use crate::service::terms::{Terms, Work, WorkerParts};
use crate::sites::site_match::{SiteKey, SiteMatch};
use crate::sites::site_terms::SiteTerms;

/// The number of the log that a request has its line in.
pub(crate) fn log_number(service: &impl Service, head: &Head<'_>) -> u16 {
    service.terms(head).map_or(0, |terms| terms.log)
}

/// What a service did wrong, and for which request: without its query, which may hold secrets.
pub(crate) fn log_panic(method: &str, path: &str) {
    log::error!("the handler of {method} {path} panicked; its client gets a 500");
}

/// What a service says of a request when its head has arrived, once: see [`Service::plan`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<'a> {
    /// Where the request is answered.
    pub place: Place<'a>,
    /// How its body is taken, if it has one.
    pub body: BodyPlan,
    /// Whether the client's address is looked up, which costs a system call for each connection:
    /// [`Head::peer`], and [`Peer`](crate::Peer) of the request.
    pub asks_peer: bool,
    /// What the path was found by (`/users/{id}`), for the access log.
    pub route: Option<&'a str>,
}

/// Where a request is answered.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Place<'a> {
    /// On the network thread: by [`Service::inline`], which may still leave it to a worker.
    #[default]
    Inline,
    /// By [`Service::prompt`], a try on the network thread with this right, or by a worker.
    Prompt(&'a PromptRight),
    /// By a worker.
    Worker,
    /// By a worker, on the terms of a route: see [`Router::workers`](crate::Router::workers) and
    /// [`TimeOut`](crate::TimeOut).
    Within(&'a Terms),
}

impl Place<'_> {
    /// The same without a try on the network thread.
    pub(crate) fn on_worker(self) -> Self {
        match self {
            Self::Within(terms) => Self::Within(terms),
            Self::Inline | Self::Prompt(_) | Self::Worker => Self::Worker,
        }
    }
}

/// How the body of a request is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyPlan {
    /// It arrives completely before the request is answered. A longer one than `bytes_max` is
    /// answered with 413; `None` stands for the listener's
    /// [`body_bytes_max`](crate::Limits::body_bytes_max).
    Whole {
        /// The longest, in bytes.
        bytes_max: Option<u64>,
    },
    /// As [`Whole`](Self::Whole), but what the head decides is decided first: if the body has to be
    /// waited for, [`Service::open`] is asked meanwhile, and its sink gets all of the body in one
    /// piece. A body that has come with its head goes to [`Service::pooled`]. A refusal of the body
    /// passes the sink ([`Sink::refused`](crate::Sink::refused)). So are requests taken whose
    /// routes have layers.
    Opened {
        /// As of [`Whole`](Self::Whole).
        bytes_max: Option<u64>,
    },
    /// Piece by piece, by what [`Service::open`] makes of the head. A request whose body is empty
    /// goes to [`Service::pooled`].
    Streamed,
    /// As [`Whole`](Self::Whole), unless [`Service::inline`] answers over HTTP/1.1 with a response
    /// that is made elsewhere and passes the body on piece by piece: [`Proxy`](crate::Proxy) does.
    Passed,
    /// Not at all: the head decides the answer, as of a method or a path that is not served. So the
    /// client is neither asked to send the body nor told that it is too long. The answer is that
    /// of [`Service::open`], which takes no body, and ends the connection (over HTTP/1); of a short
    /// body that is on its way that of [`Service::pooled`], once it is there.
    Unread,
}

impl BodyPlan {
    /// How a body is gathered; `None` where [`Service::open`] takes it piece by piece, or not.
    pub(crate) fn gathering(self, of_listener: u64, head: &Head<'_>) -> Option<Gathering> {
        let gathering = |opening, bytes_max: Option<u64>| Gathering {
            opening,
            bytes_max: bytes_max.unwrap_or(of_listener),
        };
        match self {
            Self::Whole { bytes_max } => Some(gathering(Opening::Never, bytes_max)),
            Self::Passed => Some(gathering(Opening::Never, None)),
            Self::Opened { bytes_max } => Some(gathering(Opening::Due, bytes_max)),
            Self::Unread if is_short(head) => Some(gathering(Opening::Never, Some(u64::MAX))),
            Self::Unread | Self::Streamed => None,
        }
    }

    /// The same for a service with layers around it, which run before its body is there.
    pub(crate) fn layered(self, head: &Head<'_>) -> Self {
        match self {
            Self::Whole { bytes_max } => Self::Opened { bytes_max },
            Self::Passed => Self::Opened { bytes_max: None },
            Self::Unread if is_short(head) => Self::Opened { bytes_max: None },
            Self::Unread | Self::Opened { .. } | Self::Streamed => self,
        }
    }
}

/// How a body is gathered that arrives completely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathering {
    pub(crate) opening: Opening,
    /// The longest, in bytes.
    pub(crate) bytes_max: u64,
}

impl Gathering {
    /// # Errors
    /// The head announces a longer body.
    pub(crate) fn admit(self, head: &Head<'_>) -> Result<(), Fault> {
        match head.framing() {
            Framing::Length(length) if length > self.bytes_max => Err(Fault::BodyTooLong),
            _ => Ok(()),
        }
    }
}

/// Whether a service is asked before a body is complete ([`BodyPlan::Opened`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Opening {
    #[default]
    Never,
    /// As soon as it has to be waited for.
    Due,
    /// It is, by a job that is away or here, or it was.
    Begun,
}

/// Whether a body is short and on its way: so it costs less to read it than to end its connection.
pub(crate) fn is_short(head: &Head<'_>) -> bool {
    let is_short = matches!(head.framing(), Framing::Length(length) if length <= DISCARD_BYTES_MAX);
    is_short && !head.expect_continue()
}

/// An extension of a request that is opened whose body arrives completely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivesWhole;

impl Default for BodyPlan {
    fn default() -> Self {
        Self::Whole { bytes_max: None }
    }
}

/// What a server does with requests.
///
/// | called on          | methods                                           | may block |
/// |--------------------|---------------------------------------------------|-----------|
/// | the network thread | `thread_state`, `inline`, `response_ready`        | no        |
/// | the network thread | `site`, `has_site`, `terms`, `plan`, `plans_inline` | no      |
/// | the network thread | `prompt`                                          | watched   |
/// | a worker           | `pooled`, `open`                                  | yes       |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "not a service",
    note = "a `Router` is one once it has its state: `router.with_state(state)`",
    note = "a function becomes one by `Http::pooled`, `Http::inline` or a route of a `Router`"
)]
pub trait Service: Send + Sync + 'static {
    /// What one network thread keeps for this service: caches, scratch space. Never shared.
    type ThreadState: 'static;

    /// Called once on each network thread.
    fn thread_state(&self) -> Self::ThreadState;

    /// Which site answers for a host, with its port: see [`Sites`](crate::Sites). Asked when a
    /// network thread meets another host than that of the request before. A service around another
    /// one passes the question on; one that does not costs [`Sites`](crate::Sites) inside a look-up
    /// for each call. By default there is one site, for every host.
    fn site(&self, authority: &str) -> SiteMatch {
        let _ = authority;
        SiteMatch::Every
    }

    /// Whether a site that was looked up is still the one. Asked for each request for the same host
    /// as the one before, so it should cost no more than a comparison; after a no,
    /// [`Service::site`] is asked again. Yes, unless sites change
    /// ([`LiveSites`](crate::LiveSites)).
    fn has_site(&self, site: SiteKey) -> bool {
        let _ = site;
        true
    }

    /// What the protocol does otherwise for the site of a request: see [`SiteTerms`]. Asked for
    /// requests that could be of a foreign page, for each that is logged, and for each whose plan
    /// asks for an address. By default there are none.
    fn terms(&self, head: &Head<'_>) -> Option<Arc<SiteTerms>> {
        let _ = head;
        None
    }

    /// What is known of a request from its head. Called once for each, before the others. By
    /// default [`Service::inline`] is asked, a body arrives completely first, and no address is
    /// looked up.
    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let _ = head;
        Plan::default()
    }

    /// Whether [`Service::plan`] has [`Place::Inline`] for every request, whatever its head. A
    /// service around this one then calls [`Service::inline`] without asking for a plan again. No,
    /// by default. The answer is always the same.
    fn plans_inline(&self) -> bool {
        false
    }

    /// Answers a request at once, or says who does: a worker, or a try on this thread first, with
    /// the right that it needs. Must not block and should take no more than a few microseconds:
    /// every connection of the thread waits for it.
    ///
    /// The body has not been read: a service that needs one leaves the request to a worker. Not
    /// every request is offered: one after another that a worker has not answered yet goes to
    /// the workers too.
    fn inline(
        &self,
        thread: &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_>;

    /// Answers a request for which the plan is [`Place::Prompt`], or for which [`Service::inline`]
    /// returned [`Disposition::Prompt`], without waiting for anything, or leaves it to a worker.
    /// It has no body. Called when the engine allows a try, with
    /// the rules and the watch of [`flatpath::prompt`].
    fn prompt(
        &self,
        thread: &mut Self::ThreadState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let _ = (thread, turn, head, pool, reply);
        Disposition::Pooled
    }

    /// What a worker would do for a request, where that never waits for a client or for the code of
    /// a program, such as the check of a password: then it has a part of the workers that no
    /// handler takes, if the service has asked for it ([`WorkerParts::keep`]). Asked on the network
    /// thread for a request that was planned to be answered there and goes to a worker. A service
    /// around another one passes the question on, unless it may wait itself. By default it is a
    /// handler, of which nothing is known.
    fn work(&self, head: &Head<'_>) -> Option<Work> {
        let _ = head;
        None
    }

    /// Answers any request; may block. The request's body has arrived completely.
    ///
    /// Where a limit has the job come back later ([`flatpath::blocking::Entry::Parked`]),
    /// what is returned is dropped, and the same request comes again; so it is for
    /// [`Service::open`].
    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response;

    /// Decides what the head decides, while the body is empty here and still to come: of a request
    /// whose body is streamed, or not read, and, where layers are around the service, of each.
    /// So one that streams some bodies answers [`UploadDecision::Whole`] for the others. May block.
    /// The bounds of streamed bodies are the service's own. By default the head decides nothing.
    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        let _ = (request, scope);
        UploadDecision::Whole
    }

    /// Memory of the listener's own for large bodies; without it they are kept in common receive
    /// buffers as far as those go, and copied otherwise.
    fn region(&self) -> Option<RegionConfig> {
        None
    }

    /// Adds the parts of the workers that the service asks for: those of its routes. A service
    /// around another one passes the question on; one that does not leaves those of the inner one
    /// to all workers. Asked when a listener starts.
    fn worker_parts(&self, parts: &mut WorkerParts) {
        let _ = parts;
    }

    /// A response made by [`Service::pooled`] has come back to the network thread. What the worker
    /// put into its extensions arrives here, so that a service can fill a cache in its thread
    /// state. Called only when there is something in them.
    fn response_ready(&self, thread: &mut Self::ThreadState, turn: Turn, note: &mut Extensions) {
        let _ = (thread, turn, note);
    }
}
