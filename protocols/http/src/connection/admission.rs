//! Admission: what becomes of a request whose head is read. One road for both versions of HTTP,
//! from the head to a decision; only the version then acts on it, in one `match`, with its framing
//! (the order of replies and lingering of HTTP/1, a stream of HTTP/2).
//!
//! The steps, in their order; before them comes a challenge of an ACME authority that is pending
//! ([`challenges`](crate::sites::challenges)), which is for no site:
//! 1. **Host**: whether this server answers for it, and by which site. All that follows, the line
//!    of the access log included, is asked of that site.
//! 2. **Origin**: whether such a page may send it. No code of a service sees a request that may not
//!    come.
//! 3. **Plan**: where it is answered and how its body is taken. Everything below depends on it.
//! 4. **Client**: its address, if the plan asks for it, before any code that could look at it.
//! 5. **Inline**, then **prompt**: the service answers on this thread, if it can. This comes before
//!    anything is said of the body, so that a 401 or a 404 is not a 413. Only where no other reply
//!    is owed: a pipelined reply has to wait for those before it, and a worker's can.
//! 6. **Terms**: what a worker has to know. Only a request that goes to one pays for this.
//! 7. **Body**: whether its length is one that the plan allows for, now that a head alone is not
//!    enough. Where layers are around the route, they see the refusal first.
//! 8. **Job**: the place and the memory that it takes. Last, because these may be lacking: until
//!    here nothing is held that would have to be given back.
//!
//! A request that is refused or has to wait has changed nothing: what was taken for it is back. One
//! that waits comes here again from its head, or is answered with 503, as its version has it. A
//! panic of the service is an answer, the last one of its connection.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flatpath::memory::Buffer;
use flatpath::prompt::PromptRight;
use flatpath::{Job, Stall, Turn};

use crate::connection::client::Client;
use crate::connection::client_watch::Watched;
use crate::connection::exchange::Arrival;
use crate::connection::pending_body::{BodyMode, PendingBody};
use crate::connection::state::{Connection, Http, ThreadState};
use crate::h1::write;
use crate::head::fault::Fault;
use crate::head::request_builder::RequestBuilder;
use crate::head::{Head, RequestMeta};
use crate::limits::{INLINE_REPLY_BYTES, REPLY_BUFFER_BYTES};
use crate::respond::outgoing::Outgoing;
use crate::respond::reply::{Disposition, Out, Reply};
use crate::service::terms::{Asked, JobTerms, asked_terms};
use crate::service::{BodyPlan, Opening, Place, Service, log_panic};
use crate::sites::origins::{Origins, OwnScheme};
use crate::sites::site_match::SiteMatch;

/// What becomes of a request.
#[must_use]
pub(crate) enum Admission<S: Service> {
    /// It is not served, for this reason.
    Refuse(Fault),
    /// There is no room for it now.
    Wait(Stall),
    /// It was answered on this thread.
    Answered(Outgoing),
    /// A worker answers it. The job has all but its number.
    Worker(Job<Http<S>>),
    /// A worker answers it once its body is here; or, where layers are around its route, that the
    /// body is refused.
    Whole(Box<PendingBody>, Option<Fault>),
    /// A worker opens it, and takes its body piece by piece. The job has all but its number.
    Upload(Job<Http<S>>, Box<PendingBody>),
}

/// What a version of HTTP knows of a request that the head does not say.
pub(crate) struct Facts<'f> {
    /// A body follows.
    pub(crate) has_body: bool,
    /// No other reply is owed before its own.
    pub(crate) is_next: bool,
    /// For a reply that is made on this thread.
    pub(crate) request: RequestMeta,
    pub(crate) channel: Channel<'f>,
}

/// What carries a request and its reply.
pub(crate) enum Channel<'f> {
    /// The connection: a reply is written straight into its output, and its client is gone when
    /// that ends.
    Connection,
    /// One stream of several: frames come before the reply, and its client is gone when it ends.
    #[cfg_attr(
        not(feature = "http2"),
        expect(dead_code, reason = "only HTTP/2 has streams")
    )]
    Stream(&'f mut Option<Watched>),
}

/// Why a request has no job yet.
enum Lack {
    Fault(Fault),
    Room(Stall),
}

impl From<Fault> for Lack {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Stall> for Lack {
    fn from(stall: Stall) -> Self {
        Self::Room(stall)
    }
}

/// Takes a request through the steps above.
// The one call that is not cold had better not copy what it returns.
#[inline(always)]
pub(crate) fn admit<'c: 'h, 'h, S: Service>(
    connection: &mut Connection<'c, S>,
    head: &mut Head<'h>,
    facts: Facts<'_>,
) -> Admission<S> {
    if let Some(answered) = challenge(connection, head, &facts) {
        return answered;
    }
    if let Some(fault) = foreign(connection, head) {
        return Admission::Refuse(fault);
    }
    let plan = connection.protocol.service.plan(head);
    head.route = plan.route;
    if plan.asks_peer {
        identify(connection, head);
    }
    let mut place = plan.place;
    if facts.is_next {
        if let Place::Inline = place {
            match answer_inline(connection, head, &facts) {
                Ok(answered) => return answered,
                Err(elsewhere) => place = elsewhere,
            }
        }
        if let Place::Prompt(right) = place
            && !facts.has_body
            && let Some(reply) = answer_promptly(connection, head, facts.request, right)
        {
            return Admission::Answered(reply);
        }
    }
    let terms = asked_terms(&connection.protocol.service, (&plan.place, &place), head);
    match for_worker(connection, (head, terms), plan.body, facts) {
        Ok(admission) => admission,
        Err(Lack::Fault(fault)) => Admission::Refuse(fault),
        Err(Lack::Room(stall)) => Admission::Wait(stall),
    }
}

/// Steps 7 and 8.
fn for_worker<S: Service>(
    connection: &mut Connection<'_, S>,
    (head, asked): (&Head<'_>, Asked<'_>),
    plan: BodyPlan,
    facts: Facts<'_>,
) -> Result<Admission<S>, Lack> {
    let (request, channel) = (RequestMeta::of(head), facts.channel);
    if !facts.has_body {
        let (job, buffer) = passage(connection)?;
        let (mut job, terms) = filled(connection, job, (head, asked), channel)?;
        job.begin(0, request, Some(buffer));
        job.agree(terms, connection.turn());
        return Ok(Admission::Worker(job));
    }
    let of_listener = connection.protocol.limits.body_bytes_max;
    if let Some(gathering) = plan.gathering(of_listener, head) {
        let refusal = match (gathering.admit(head), gathering.opening) {
            (Err(fault), Opening::Never) => return Err(fault.into()),
            (admitted, _) => admitted.err(),
        };
        let mut pending = connection.thread.pending_body.pop().unwrap_or_default();
        match fill(connection, &mut pending.builder, (head, asked), channel) {
            Ok(terms) => pending.terms = terms,
            Err(fault) => {
                connection.thread.recycle_pending_body(pending);
                return Err(fault.into());
            }
        }
        pending.body_bytes_max = gathering.bytes_max;
        pending.begin(request, head, BodyMode::Buffered);
        pending.opening = gathering.opening;
        return Ok(Admission::Whole(pending, refusal));
    }
    if !facts.is_next {
        // U1 of `upload`: its reply must be the one that is due.
        return Err(Stall::Pipeline.into());
    }
    let mut job = connection.job().ok_or(Stall::Jobs)?;
    if !connection.lasts(&mut job) {
        write::recycle(connection, job);
        return Err(Stall::LongLived.into());
    }
    let (mut job, terms) = filled(connection, job, (head, asked), channel)?;
    job.begin_upload(0, request, Arrival::Pieces);
    job.agree(terms.without_time(), connection.turn());
    let mut pending = connection.thread.pending_body.pop().unwrap_or_default();
    pending.begin(request, head, BodyMode::Streamed);
    Ok(Admission::Upload(job, pending))
}

/// What a request needs on its way to a worker: its job, and a buffer for its reply.
pub(crate) type Passage<S> = (Job<Http<S>>, Buffer);

/// Such a passage, or what it has to wait for.
pub(crate) fn passage<S: Service>(connection: &mut Connection<'_, S>) -> Result<Passage<S>, Stall> {
    let buffer = connection
        .pool()
        .take(REPLY_BUFFER_BYTES)
        .ok_or(Stall::Memory)?;
    let job = connection.job().ok_or(Stall::Jobs)?;
    Ok((job, buffer))
}

/// The job of a request whose body is complete, but for its number.
pub(crate) fn completed<S: Service>(
    (mut job, buffer): Passage<S>,
    pending: &mut PendingBody,
    turn: Turn,
) -> Job<Http<S>> {
    std::mem::swap(&mut job.builder, &mut pending.builder);
    *job.builder.request.body_mut() = pending.take_body();
    std::mem::take(&mut pending.trailers).leave(&mut job.builder.request);
    job.begin(0, pending.request, Some(buffer));
    job.agree(pending.terms, turn);
    job
}

/// A job with its request, and the terms of that.
fn filled<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
    request: (&Head<'_>, Asked<'_>),
    channel: Channel<'_>,
) -> Result<(Job<Http<S>>, JobTerms), Fault> {
    match fill(connection, &mut job.builder, request, channel) {
        Ok(terms) => Ok((job, terms)),
        Err(fault) => {
            write::recycle(connection, job);
            Err(fault)
        }
    }
}

/// Makes a request of a head, and says its terms. Its handler gets what tells it whether its client
/// is gone, if it asks for that.
fn fill<S: Service>(
    connection: &mut Connection<'_, S>,
    builder: &mut RequestBuilder,
    (head, asked): (&Head<'_>, Asked<'_>),
    channel: Channel<'_>,
) -> Result<JobTerms, Fault> {
    builder.fill(head, &mut connection.thread.names)?;
    let terms = match asked {
        Asked::Route(terms) => terms,
        Asked::Work(work) => return Ok(connection.thread.parts.of_work(work)),
        Asked::Nothing => return Ok(JobTerms::default()),
    };
    if terms.watches {
        let watched = match channel {
            Channel::Connection => {
                let known = connection.session.known.get_or_insert_default();
                &mut known.watched
            }
            Channel::Stream(watched) => watched,
        };
        let watch = watched.get_or_insert_default().watch();
        builder.request.extensions_mut().insert(watch);
    }
    Ok(connection.thread.parts.of_job(terms))
}

/// Looks up who the client is, as far as it is known, and how long the site of its request waits.
fn identify<S: Service>(connection: &mut Connection<'_, S>, head: &mut Head<'_>) {
    let known = connection.session.known.get_or_insert_default();
    let client = *known
        .client
        .get_or_insert_with(|| Client::of(&connection.io));
    head.peer = client.address(connection.protocol.proxies.as_ref(), head);
    head.tls = connection.io.tls().cloned();
    let terms = connection.protocol.service.terms(head);
    let timeouts = terms.as_ref().and_then(|terms| terms.timeouts.as_ref());
    connection.io.timeouts(timeouts);
}

/// Why a request is not for this server, or not from where it may come; else it has its site.
fn foreign<S: Service>(connection: &mut Connection<'_, S>, head: &mut Head<'_>) -> Option<Fault> {
    let Http { service, hosts, .. } = &**connection.protocol;
    let last = &connection.thread.host;
    let is_known = head.host_is_known && last.site.is_none_or(|site| service.has_site(site));
    if !is_known {
        if !hosts.admits(head.authority()) {
            return Some(Fault::HostForeign);
        }
        let site = match service.site(head.authority()) {
            SiteMatch::Every => None,
            SiteMatch::One(site) => Some(site),
            SiteMatch::Unknown => return Some(Fault::HostForeign),
        };
        let last = &mut connection.thread.host;
        last.site = site;
        last.name.clear();
        last.name.push_str(head.authority());
    }
    head.site = connection.thread.host.site;
    match Origins::admit_any(head) {
        true => None,
        false => foreign_origin(connection, head),
    }
}

/// The same by where it comes from: the origins of its site, or those of the listener.
fn foreign_origin<S: Service>(connection: &Connection<'_, S>, head: &Head<'_>) -> Option<Fault> {
    let Http {
        service, origins, ..
    } = &**connection.protocol;
    let scheme = match connection.io.is_secured() {
        true => OwnScheme::Https,
        false => OwnScheme::Any,
    };
    let terms = service.terms(head);
    let own = terms.as_ref().and_then(|terms| terms.origins.as_ref());
    let is_admitted = own.unwrap_or(origins).admit(head, scheme);
    (!is_admitted).then_some(Fault::OriginForeign)
}

/// Answers a challenge that is pending, if the request is for one.
fn challenge<'c, S: Service>(
    connection: &mut Connection<'c, S>,
    head: &Head<'_>,
    facts: &Facts<'_>,
) -> Option<Admission<S>> {
    let challenges = connection.protocol.challenges.as_ref()?;
    let answer = challenges.answer(head).filter(|_| !facts.has_body)?;
    if !facts.is_next {
        return Some(Admission::Wait(Stall::Pipeline));
    }
    let answered = answer_here(connection, head, facts, |_, _, _, reply| {
        reply.response(answer)
    });
    answered.ok()
}

/// Lets the service answer here and now; or it says where else the request is answered.
fn answer_inline<'c, S: Service>(
    connection: &mut Connection<'c, S>,
    head: &Head<'_>,
    facts: &Facts<'_>,
) -> Result<Admission<S>, Place<'c>> {
    answer_here(connection, head, facts, |service, thread, turn, reply| {
        service.inline(thread, turn, head, reply)
    })
}

/// Has a reply made on this thread, if there is room for it.
#[inline(always)]
fn answer_here<'c, S: Service>(
    connection: &mut Connection<'c, S>,
    head: &Head<'_>,
    facts: &Facts<'_>,
    answer: impl FnOnce(&'c S, &mut S::ThreadState, Turn, &mut Reply<'_>) -> Disposition<'c>,
) -> Result<Admission<S>, Place<'c>> {
    let turn = connection.turn();
    let ThreadState {
        service: thread,
        scratch,
        date,
        ..
    } = &mut *connection.thread;
    let out = match facts.channel {
        Channel::Connection => match connection.io.reserve(INLINE_REPLY_BYTES) {
            Some(buffer) => Out::reserved(buffer, scratch),
            None => return Ok(Admission::Wait(Stall::Memory)),
        },
        Channel::Stream(_) => Out::scratch(scratch),
    };
    let reply = Reply::new(
        out,
        date.at(turn.wall(), facts.request.spoken),
        facts.request,
    );
    let service = &connection.protocol.service;
    let reply = written(head, reply, |reply| answer(service, thread, turn, reply))?;
    Ok(Admission::Answered(reply))
}

/// Lets the service try to answer here, where the engine allows a try; None when the request goes
/// to workers.
#[inline]
fn answer_promptly<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    request: RequestMeta,
    right: &PromptRight,
) -> Option<Outgoing> {
    let service = &connection.protocol.service;
    let prompt = connection.io.prompt(right)?;
    let turn = connection.turn();
    let pool = connection.io.pool();
    let ThreadState {
        service: thread,
        scratch,
        date,
        ..
    } = &mut *connection.thread;
    let reply = Reply::new(
        Out::scratch(scratch),
        date.at(turn.wall(), request.spoken),
        request,
    );
    let reply = written(head, reply, |reply| {
        service.prompt(thread, turn, head, pool, reply)
    });
    connection.io.tried(right, prompt);
    reply.ok()
}

/// What `answer` makes of the reply; or where else the request is answered.
fn written<'s>(
    head: &Head<'_>,
    mut reply: Reply<'_>,
    answer: impl FnOnce(&mut Reply<'_>) -> Disposition<'s>,
) -> Result<Outgoing, Place<'s>> {
    let place = match catch_unwind(AssertUnwindSafe(|| answer(&mut reply))) {
        Ok(Disposition::Answered) => return Ok(reply.written()),
        Ok(Disposition::Prompt(right)) => Place::Prompt(right),
        Ok(Disposition::Pooled) => Place::Worker,
        Ok(Disposition::Within(terms)) => Place::Within(terms),
        Err(_) => {
            log_panic(head.method(), head.path());
            reply.fail();
            return Ok(reply.written());
        }
    };
    reply.roll_back();
    Err(place)
}
