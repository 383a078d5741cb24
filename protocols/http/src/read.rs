//! Taking requests from the input: heads, bodies, and the stalls that leave them where they are.
//!
//! Whatever a stall leaves undone is left in the input, at least one byte of it, because only input
//! that was left is offered again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flatpath::memory::Buffer;
use flatpath::prompt::PromptRight;
use flatpath::{Job, Pages, Phase, Stall};

use crate::body::Piece;
use crate::client::Client;
use crate::fault::Fault;
use crate::head::{Framing, Head, RequestMeta, header_slots};
use crate::limits::{
    DISCARD_BYTES_MAX, INLINE_REPLY_BYTES, PIPELINE_MAX, REPLY_BUFFER_BYTES, UPLOAD_LARGE_BYTES,
    UPLOAD_PIECE_PARTS,
};
use crate::origins::{Origins, OwnScheme};
use crate::outgoing::Outgoing;
use crate::parse::{parse, parse_resolved};
use crate::pending_body::{BodyMode, PendingBody};
use crate::refuse::{refuse, refuse_unread};
use crate::reply::{Disposition, Out, Reply};
use crate::request_builder::RequestBuilder;
use crate::scan::Scan;
use crate::service::{BodyPlan, Place, Service, log_number, log_panic};
use crate::site_match::SiteMatch;
use crate::state::{Connection, Http, Stage, Step, ThreadState, log, log_arrival};
use crate::terms::{Asked, JobTerms, asked_terms};
use crate::{defer, upload, write};

/// What a request needs on its way to a worker: its job, and a buffer for its reply.
pub(crate) type Passage<S> = (Job<Http<S>>, Buffer);

/// What a client of HTTP/2 begins with, as far as it looks like a head (RFC 9113 section 3.4).
#[cfg(feature = "http2")]
const HTTP2_PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// No more requests are taken.
pub(crate) fn end_input<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Over;
    upload::abandon(connection);
    upload::drop_pending_body(connection);
    connection.end_input();
}

/// Takes the next request's head, and the request with it where it has no body.
pub(crate) fn take_head<S: Service>(connection: &mut Connection<'_, S>, input: &[u8]) -> Step {
    if input.is_empty() {
        return Step::NeedMore(0);
    }
    connection.session.awaits_reply &= connection.session.owed() > 0;
    if connection.session.owed() >= PIPELINE_MAX || connection.session.awaits_reply {
        return Step::Blocked(0, Stall::Pipeline);
    }
    if connection.output_is_full() {
        return Step::Blocked(0, Stall::Output);
    }
    let limits = &connection.protocol.limits;
    let mut scan = connection.session.scan;
    match scan.advance(input, limits) {
        Ok(Some(_)) => {}
        Ok(None) => {
            connection.session.scan = scan;
            return Step::NeedMore(0);
        }
        Err(fault) => return refuse_unread(connection, input, fault),
    }
    let (mut copy, mut slots) = (Vec::new(), header_slots());
    let known_host = &connection.thread.host.name;
    match parse(scan.head(input, &mut copy), &mut slots, limits, known_host) {
        Ok(head) => take_parsed(connection, head, input),
        Err(fault) => take_other(connection, input, scan, fault),
    }
}

/// Takes a request whose head is read. What can be answered from the head alone is answered before
/// anything is said of its body: the length is asked last.
// The one call that is not cold had better not copy the head.
#[inline(always)]
fn take_parsed<'c: 'h, 'h, S: Service>(
    connection: &mut Connection<'c, S>,
    mut head: Head<'h>,
    input: &[u8],
) -> Step {
    if let Some(fault) = foreign(connection, &mut head) {
        if connection.session.is_logged() {
            log(connection).came(&head, 0);
        }
        return refuse(connection, fault);
    }
    let plan = connection.protocol.service.plan(&head);
    head.route = plan.route;
    if plan.asks_peer {
        identify(connection, &mut head);
    }
    let has_body = head.framing() != Framing::Empty;
    let mut place = plan.place;
    if connection.session.owed() == 0 {
        if let Place::Inline = place {
            match answer_inline(connection, &head, input) {
                Ok(step) => return step,
                Err(elsewhere) => place = elsewhere,
            }
        }
        if let Place::Prompt(right) = place
            && !has_body
            && let Some(step) = answer_promptly(connection, &head, input, right)
        {
            return step;
        }
    }
    log_arrival(connection, &head);
    let terms = asked_terms(&connection.protocol.service, (&plan.place, &place), &head);
    let taken = match has_body {
        false => pass_on(connection, (&head, terms), input),
        true => take_with_body(connection, (&head, terms), plan.body),
    };
    taken.unwrap_or_else(|fault| refuse(connection, fault))
}

/// Takes a request with a body, if its plan allows for one of that length.
fn take_with_body<S: Service>(
    connection: &mut Connection<'_, S>,
    (head, terms): (&Head<'_>, Asked<'_>),
    plan: BodyPlan,
) -> Result<Step, Fault> {
    let of_listener = connection.protocol.limits.body_bytes_max;
    match plan.bytes_max(of_listener, head)? {
        Some(bytes_max) => begin_body(connection, (head, terms), bytes_max),
        None => upload::begin(connection, head, terms),
    }
}

/// Takes what the parser has refused: the preface of HTTP/2, or a head whose target has dot
/// segments; anything else breaks a rule.
#[cold]
fn take_other<S: Service>(
    connection: &mut Connection<'_, S>,
    input: &[u8],
    scan: Scan,
    fault: Fault,
) -> Step {
    #[cfg(feature = "http2")]
    if connection.session.next_request == 0
        && connection.protocol.http2
        && input.starts_with(HTTP2_PREFACE_HEAD)
        && agreed_on(connection) != Some(b"http/1.1")
    {
        connection.session.scan = Scan::new();
        connection.session.stage = Stage::Http2;
        return Step::On(0);
    }
    if fault != Fault::DotSegments {
        return refuse_unread(connection, input, fault);
    }
    let limits = &connection.protocol.limits;
    let (mut copy, mut resolved, mut slots) = (Vec::new(), Vec::new(), header_slots());
    let known_host = &connection.thread.host.name;
    let text = (scan.head(input, &mut copy), &mut resolved);
    match parse_resolved(text, &mut slots, limits, known_host) {
        Ok(head) => take_parsed(connection, head, input),
        Err(fault) => refuse_unread(connection, input, fault),
    }
}

/// The protocol that a client with TLS has agreed to (ALPN).
#[cfg(feature = "http2")]
pub(crate) fn agreed_on<'a, S: Service>(connection: &'a Connection<'_, S>) -> Option<&'a [u8]> {
    connection.io.tls()?.protocol()
}

/// Looks up who the client is, as far as it is known, and how long the site of its request waits.
pub(crate) fn identify<S: Service>(connection: &mut Connection<'_, S>, head: &mut Head<'_>) {
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
pub(crate) fn foreign<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &mut Head<'_>,
) -> Option<Fault> {
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

/// Lets the service answer here and now; or it says where else the request is answered.
fn answer_inline<'a, S: Service>(
    connection: &mut Connection<'a, S>,
    head: &Head<'_>,
    input: &[u8],
) -> Result<Step, Place<'a>> {
    let has_body = head.framing() != Framing::Empty;
    let body_is_short =
        matches!(head.framing(), Framing::Length(length) if length <= DISCARD_BYTES_MAX);
    let discards = body_is_short && !head.expect_continue();
    let mut request = RequestMeta::of(head);
    request.keep_alive &= !connection.leaving() && (discards || !has_body);

    let turn = connection.turn();
    let Some(buffer) = connection.io.reserve(INLINE_REPLY_BYTES) else {
        return Ok(Step::Blocked(0, Stall::Memory));
    };
    let ThreadState {
        service: thread,
        scratch,
        date,
        ..
    } = &mut *connection.thread;
    let out = Out::reserved(buffer, scratch);
    let reply = Reply::new(out, date.at(turn.wall()), request);
    let service = &connection.protocol.service;
    let reply = written(head, reply, |reply| {
        service.inline(thread, turn, head, reply)
    })?;
    if reply.request.keep_alive && discards {
        let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
        pending_body.begin(request, head, BodyMode::Discarded);
        connection.session.pending_body = Some(pending_body);
        connection.session.stage = Stage::Body;
        connection.restart_phase(Phase::Body);
    }
    Ok(answered(connection, head, input, reply))
}

/// Lets the service try to answer here, where the engine allows a try; None when the request goes
/// to workers.
fn answer_promptly<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
    right: &PromptRight,
) -> Option<Step> {
    let mut request = RequestMeta::of(head);
    request.keep_alive &= !connection.leaving();
    let reply = try_promptly(connection, head, request, right)?;
    Some(answered(connection, head, input, reply))
}

/// What the service makes of a request on this thread, where the engine allows a try and the
/// service can answer it.
#[inline]
pub(crate) fn try_promptly<S: Service>(
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
    let reply = Reply::new(Out::scratch(scratch), date.at(turn.wall()), request);
    let reply = written(head, reply, |reply| {
        service.prompt(thread, turn, head, pool, reply)
    });
    connection.io.tried(right, prompt);
    reply.ok()
}

/// What `answer` makes of the reply; or where else the request is answered.
pub(crate) fn written<'s>(
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

/// Takes a request that was answered here, and queues what of its reply is not in the output yet.
fn answered<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
    reply: Outgoing,
) -> Step {
    let has_body = head.framing() != Framing::Empty;
    connection.session.head_taken();
    if !reply.request.keep_alive {
        connection.session.lingers |= has_body || input.len() > head.bytes();
    }
    let number = connection.session.take_number();
    if reply.is_queued() {
        write::count_reply(connection, reply.status());
        if connection.session.is_logged() {
            let number = log_number(&connection.protocol.service, head);
            log(connection).answered(head, number, &reply);
        }
        write::reply_done(connection, reply.request.keep_alive);
        return Step::On(head.bytes());
    }
    log_arrival(connection, head);
    if connection.session.is_logged() {
        log(connection).numbered();
    }
    if reply.is_upgrade() {
        connection.session.awaits_reply |= head.asks_upgrade && !has_body;
    }
    write::send_inline(connection, number, reply);
    match connection.session.due.is_waiting() {
        true => Step::Blocked(head.bytes(), Stall::Memory),
        false => Step::On(head.bytes()),
    }
}

/// Sends a request without a body to the workers.
fn pass_on<S: Service>(
    connection: &mut Connection<'_, S>,
    (head, terms): (&Head<'_>, Asked<'_>),
    input: &[u8],
) -> Result<Step, Fault> {
    let (mut job, buffer) = match passage(connection) {
        Ok(passage) => passage,
        Err(stall) => return Ok(Step::Blocked(0, stall)),
    };
    if let Err(fault) = job.builder.fill(head, &mut connection.thread.names) {
        write::recycle(connection, job);
        return Err(fault);
    }
    let terms = agree(connection, terms, &mut job.builder);
    connection.session.head_taken();
    connection.session.lingers |= !head.keep_alive() && input.len() > head.bytes();
    connection.session.awaits_reply |= head.asks_upgrade;
    dispatch(connection, (job, buffer), (RequestMeta::of(head), terms));
    Ok(Step::On(head.bytes()))
}

/// The request's body comes first.
fn begin_body<S: Service>(
    connection: &mut Connection<'_, S>,
    (head, terms): (&Head<'_>, Asked<'_>),
    body_bytes_max: u64,
) -> Result<Step, Fault> {
    let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
    pending_body.body_bytes_max = body_bytes_max;
    let filled = pending_body
        .builder
        .fill(head, &mut connection.thread.names);
    pending_body.terms = agree(connection, terms, &mut pending_body.builder);
    let mode = match head.framing() {
        Framing::Length(length) if length > UPLOAD_LARGE_BYTES => BodyMode::Retained,
        _ => BodyMode::Buffered,
    };
    pending_body.begin(RequestMeta::of(head), head, mode);
    if mode == BodyMode::Retained {
        connection.receive_into(Pages::Listener);
    }
    connection.session.pending_body = Some(pending_body);
    filled?;
    connection.session.head_taken();
    connection.session.stage = Stage::Body;
    connection.restart_phase(Phase::Body);
    Ok(Step::On(head.bytes()))
}

/// Takes what belongs to the body, and the request with it when that is all.
pub(crate) fn take_body<S: Service>(connection: &mut Connection<'_, S>, input: &[u8]) -> Step {
    if input.is_empty() {
        return Step::NeedMore(0);
    }
    let Some(mut pending_body) = connection.session.pending_body.take() else {
        debug_assert!(false, "the body's request is kept while it arrives");
        connection.session.stage = Stage::Head;
        return Step::On(0);
    };
    if pending_body.is_piped {
        // It comes after what the job takes (U5 of `upload`).
        connection.session.pending_body = Some(pending_body);
        return Step::Blocked(0, Stall::Body);
    }
    let decoded = decode(connection, &mut pending_body, input);
    connection.session.pending_body = Some(pending_body);
    match decoded {
        Ok(Step::On(bytes)) => {
            upload::drop_pending_body(connection);
            connection.receive_into(Pages::Common);
            if connection.session.stage == Stage::Body {
                connection.session.stage = Stage::Head;
            }
            connection.session.lingers |=
                connection.session.stage == Stage::Over && bytes < input.len();
            Step::On(bytes)
        }
        Ok(Step::NeedMore(bytes)) => upload::await_more(connection, bytes),
        Ok(step) => step,
        Err(fault) => refuse(connection, fault),
    }
}

/// Takes the framing off what arrived; `On` when the body is complete.
fn decode<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    input: &[u8],
) -> Result<Step, Fault> {
    let mut rest = input;
    loop {
        let (decoder_before, rest_before) = (pending_body.decoder, rest);
        let piece = pending_body.decoder.next(&mut rest)?;
        let data: &[u8] = match piece {
            Piece::Data(data) => data,
            Piece::More | Piece::End => &[],
        };
        let stall = if pending_body.mode == BodyMode::Streamed {
            let is_whole = data.len() == input.len();
            upload::take_data(connection, pending_body, data, is_whole)
        } else {
            take_data(connection, pending_body, data)?
        };
        if let Some(stall) = stall {
            // As if this piece had not been looked at: it is offered again.
            pending_body.decoder = decoder_before;
            return Ok(Step::Blocked(input.len() - rest_before.len(), stall));
        }
        pending_body.bytes += data.len() as u64;
        // A client that sends its body no longer waits for `100 Continue`.
        pending_body.owes_continue &= data.is_empty();
        if pending_body.decoder.is_complete() {
            return Ok(Step::On(input.len() - rest.len()));
        }
        if piece == Piece::More {
            return Ok(Step::NeedMore(input.len()));
        }
    }
}

/// Takes data of a body that arrives completely first, and sends the request to the workers when
/// that is all of it. `Some` when it has to wait and nothing was taken.
fn take_data<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    data: &[u8],
) -> Result<Option<Stall>, Fault> {
    if pending_body.mode == BodyMode::Discarded {
        return Ok(None);
    }
    let announced = pending_body.decoder.announced();
    let bytes = pending_body
        .bytes
        .saturating_add(data.len() as u64)
        .saturating_add(announced);
    if bytes > pending_body.body_bytes_max {
        return Err(Fault::BodyTooLong);
    }
    let passage = match pending_body.decoder.is_complete() {
        true => match passage(connection) {
            Ok(passage) => Some(passage),
            Err(stall) => return Ok(Some(stall)),
        },
        false => None,
    };
    // A large body stays where it lies, as long as that cannot use up what the connection may hold.
    let kept = if pending_body.mode == BodyMode::Buffered {
        let pool = connection.pool();
        pending_body.gathered.append(pool, data, announced)
    } else if connection.held() < UPLOAD_PIECE_PARTS as u32 {
        connection.retain_or_copy(data, &mut pending_body.piece)
    } else {
        connection.copy(data, &mut pending_body.piece)
    };
    if kept.is_err() {
        return Ok(Some(Stall::Memory));
    }
    if let Some((mut job, buffer)) = passage {
        std::mem::swap(&mut job.builder, &mut pending_body.builder);
        *job.builder.request.body_mut() = pending_body.take_body();
        let request = (pending_body.request, pending_body.terms);
        dispatch(connection, (job, buffer), request);
    }
    Ok(None)
}

/// What a request needs on its way to a worker, or what it has to wait for.
pub(crate) fn passage<S: Service>(connection: &mut Connection<'_, S>) -> Result<Passage<S>, Stall> {
    let buffer = connection
        .pool()
        .take(REPLY_BUFFER_BYTES)
        .ok_or(Stall::Memory)?;
    let job = connection.job().ok_or(Stall::Jobs)?;
    Ok((job, buffer))
}

/// The terms of a request for its job. Its handler gets what tells it whether its client is gone,
/// if it asks for that.
pub(crate) fn agree<S: Service>(
    connection: &mut Connection<'_, S>,
    asked: Asked<'_>,
    builder: &mut RequestBuilder,
) -> JobTerms {
    let terms = match asked {
        Asked::Route(terms) => terms,
        Asked::Work(work) => return connection.thread.parts.of_work(work),
        Asked::Nothing => return JobTerms::default(),
    };
    if terms.watches {
        let known = connection.session.known.get_or_insert_default();
        let watched = known.watched.get_or_insert_default();
        builder.request.extensions_mut().insert(watched.watch());
    }
    connection.thread.parts.of_job(terms)
}

/// Sends a request to the workers; its builder is filled.
fn dispatch<S: Service>(
    connection: &mut Connection<'_, S>,
    (mut job, buffer): Passage<S>,
    (request, terms): (RequestMeta, JobTerms),
) {
    job.begin(connection.session.take_number(), request, Some(buffer));
    job.sends_files = connection.sends_files();
    job.agree(terms, connection.turn());
    if connection.session.is_logged() {
        log(connection).numbered();
    }
    defer::dispatch(connection, job);
    // Where an upgrade was asked for, the reply decides whether HTTP ends here.
    let is_last = connection.leaving() && !connection.session.awaits_reply;
    if !request.keep_alive || is_last {
        take_no_more(connection);
    }
}

/// The last request of the connection has been taken. Nothing more is received, unless its handler
/// looks whether the client is gone: then what comes is dropped.
pub(crate) fn take_no_more<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Over;
    let known = connection.session.known.as_ref();
    if known.is_none_or(|known| known.watched.is_none()) {
        connection.end_input();
    }
}
