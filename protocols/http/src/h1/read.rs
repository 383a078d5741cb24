//! Taking requests from the input: heads, bodies, and the stalls that leave them where they are.
//!
//! Whatever a stall leaves undone is left in the input, at least one byte of it, because only input
//! that was left is offered again.

use flatpath::{Job, Pages, Phase, Stall};

use crate::connection::admission::{self, Admission, Channel, Facts};
use crate::connection::exchange::Exchange;
use crate::connection::passed;
use crate::connection::pending_body::{BodyMode, PendingBody};
use crate::connection::refuse::{refuse, refuse_body, refuse_unread};
use crate::connection::state::{Connection, Http, Stage, Step, log, log_arrival};
use crate::connection::upload;
use crate::h1::body::Piece;
use crate::h1::write;
use crate::head::fault::Fault;
use crate::head::parse::{parse, parse_mended};
use crate::head::{Framing, Head, RequestMeta, header_slots};
use crate::limits::{PIPELINE_MAX, UPLOAD_LARGE_BYTES};
use crate::respond::outgoing::Outgoing;
use crate::service::{Opening, Service, is_short, log_number};
use crate::streams::defer;
use crate::streams::passage::Incoming;
use crate::trailers::Trailers;

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
    let text = match scan.advance(input, limits) {
        Ok(Some(bytes)) => &input[..bytes],
        Ok(None) => {
            connection.session.scan = scan;
            return Step::NeedMore(0);
        }
        Err(fault) => return refuse_unread(connection, input, fault),
    };
    let mut slots = header_slots();
    let known_host = &connection.thread.host.name;
    match parse(text, &mut slots, limits, known_host) {
        Ok(head) => take_parsed(connection, head, input),
        Err(fault) => take_other(connection, input, text, fault),
    }
}

/// Takes a request whose head is read, as its admission decides.
// The one call that is not cold had better not copy the head.
#[inline(always)]
fn take_parsed<'c: 'h, 'h, S: Service>(
    connection: &mut Connection<'c, S>,
    mut head: Head<'h>,
    input: &[u8],
) -> Step {
    let has_body = head.framing() != Framing::Empty;
    let mut request = RequestMeta::of(&head);
    request.keep_alive &= !connection.leaving() && (!has_body || is_short(&head));
    let facts = Facts {
        has_body,
        is_next: connection.session.owed() == 0,
        request,
        channel: Channel::Connection,
    };
    let admission = admission::admit(connection, &mut head, facts);
    if !matches!(admission, Admission::Answered(_)) {
        log_arrival(connection, &head);
    }
    match admission {
        Admission::Answered(reply) => answered(connection, &head, input, reply),
        Admission::Refuse(fault) => refuse(connection, fault, request),
        Admission::Wait(stall) => Step::Blocked(0, stall),
        Admission::Worker(job) => pass_on(connection, &head, input, job),
        Admission::Whole(pending_body, refusal) => {
            begin_body(connection, &head, pending_body, refusal)
        }
        Admission::Upload(job, pending_body) => upload::begin(connection, &head, job, pending_body),
    }
}

/// Takes what the parser has refused: the preface of HTTP/2, or a head that can be mended; anything
/// else breaks a rule.
#[cold]
fn take_other<S: Service>(
    connection: &mut Connection<'_, S>,
    input: &[u8],
    text: &[u8],
    fault: Fault,
) -> Step {
    #[cfg(feature = "http2")]
    if connection.session.next_request == 0
        && connection.protocol.http2
        && input.starts_with(HTTP2_PREFACE_HEAD)
        && agreed_on(connection) != Some(b"http/1.1")
    {
        connection.session.head_taken();
        connection.session.stage = Stage::Http2;
        return Step::On(0);
    }
    let limits = &connection.protocol.limits;
    let (mut mended, mut slots) = (Vec::new(), header_slots());
    let known_host = &connection.thread.host.name;
    match parse_mended((text, &mut mended), fault, &mut slots, limits, known_host) {
        Ok(head) => take_parsed(connection, head, input),
        Err(fault) => refuse_unread(connection, input, fault),
    }
}

/// The protocol that a client with TLS has agreed to (ALPN).
#[cfg(feature = "http2")]
pub(crate) fn agreed_on<'a, S: Service>(connection: &'a Connection<'_, S>) -> Option<&'a [u8]> {
    connection.io.tls()?.protocol()
}

/// Takes a request that was answered here, and queues what of its reply is not in the output yet.
fn answered<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
    mut reply: Outgoing,
) -> Step {
    let has_body = head.framing() != Framing::Empty;
    if has_body && let Some(incoming) = reply.take_incoming() {
        reply.request.keep_alive = head.keep_alive() && !connection.leaving();
        pass_body(connection, head, reply.request, incoming);
    } else if has_body && reply.request.keep_alive && is_short(head) {
        discard_body(connection, head, reply.request);
    }
    connection.session.head_taken();
    if !reply.request.keep_alive {
        connection.session.lingers |= has_body || input.len() > head.bytes();
    }
    let number = connection.session.take_number();
    if reply.is_queued() {
        write::count_reply(connection, reply.status);
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
    if reply.may_switch() {
        connection.session.awaits_reply |= head.asks_upgrade && !has_body;
    }
    write::send_inline(connection, number, reply);
    match connection.session.due.is_waiting() {
        true => Step::Blocked(head.bytes(), Stall::Memory),
        false => Step::On(head.bytes()),
    }
}

/// The body of a request is passed on to another connection, which makes its response.
fn pass_body<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    request: RequestMeta,
    incoming: Incoming,
) {
    connection.session.awaits_reply = true;
    let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
    pending_body.begin(request, head, BodyMode::Passed);
    incoming.attach_client(&connection.io.handle());
    pending_body.incoming = Some(incoming);
    await_body(connection, pending_body);
}

/// The body of a request that was answered is read and dropped.
fn discard_body<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    request: RequestMeta,
) {
    let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
    pending_body.begin(request, head, BodyMode::Discarded);
    await_body(connection, pending_body);
}

/// Sends a request without a body to the workers.
fn pass_on<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
    job: Job<Http<S>>,
) -> Step {
    connection.session.head_taken();
    connection.session.lingers |= !head.keep_alive() && input.len() > head.bytes();
    connection.session.awaits_reply |= head.asks_upgrade;
    dispatch(connection, job);
    Step::On(head.bytes())
}

/// The request's body comes first, unless it is refused.
fn begin_body<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    mut pending_body: Box<PendingBody>,
    refusal: Option<Fault>,
) -> Step {
    if let Some(fault) = refusal {
        connection.session.pending_body = Some(pending_body);
        return refuse_body(connection, fault);
    }
    if matches!(head.framing(), Framing::Length(length) if length > UPLOAD_LARGE_BYTES) {
        pending_body.mode = BodyMode::Retained;
        connection.receive_into(Pages::Listener);
    }
    connection.session.head_taken();
    await_body(connection, pending_body);
    Step::On(head.bytes())
}

/// The next byte of input is one of this body.
pub(crate) fn await_body<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: Box<PendingBody>,
) {
    connection.session.pending_body = Some(pending_body);
    connection.session.stage = Stage::Body;
    connection.restart_phase(Phase::Body);
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
        Err(fault) => refuse_body(connection, fault),
    }
}

/// Takes the framing off what arrived; `On` when the body is complete.
fn decode<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    input: &[u8],
) -> Result<Step, Fault> {
    // What has come of trailers waits in the input for the rest of them, and was looked at.
    let mut rest = &input[pending_body.decoder.trailer_bytes()..];
    loop {
        let (decoder_before, rest_before) = (pending_body.decoder, rest);
        let piece = pending_body.decoder.next(&mut rest)?;
        let data: &[u8] = match piece {
            Piece::Data(data) => data,
            Piece::More | Piece::End => &[],
        };
        if pending_body.decoder.is_complete() && pending_body.mode != BodyMode::Discarded {
            let end = input.len() - rest.len();
            let section = &input[end - pending_body.decoder.trailer_bytes()..end];
            pending_body.trailers = Trailers::of_lines(section, &connection.protocol.limits)?;
        }
        let stall = match pending_body.mode {
            BodyMode::Streamed => {
                let is_whole = data.len() == input.len();
                upload::take_data(connection, pending_body, data, is_whole)
            }
            BodyMode::Passed => passed::take_data(pending_body, data),
            _ => take_data(connection, pending_body, data)?,
        };
        if let Some(stall) = stall {
            // As if this piece had not been looked at: it is offered again.
            pending_body.decoder = decoder_before;
            let taken = input.len() - rest_before.len() - decoder_before.trailer_bytes();
            return Ok(Step::Blocked(taken, stall));
        }
        pending_body.came(data.len() as u64);
        if pending_body.decoder.is_complete() {
            return Ok(Step::On(input.len() - rest.len()));
        }
        if piece == Piece::More {
            return Ok(Step::NeedMore(
                input.len() - pending_body.decoder.trailer_bytes(),
            ));
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
    if pending_body.is_too_long(announced.saturating_add(data.len() as u64)) {
        return Err(Fault::BodyTooLong);
    }
    let is_complete = pending_body.decoder.is_complete();
    if is_complete && pending_body.opening == Opening::Begun {
        return Ok(upload::take_last(connection, pending_body, data));
    }
    let passage = match is_complete {
        true => match admission::passage(connection) {
            Ok(passage) => Some(passage),
            Err(stall) => return Ok(Some(stall)),
        },
        false => None,
    };
    if upload::gather_whole(connection, pending_body, data).is_err() {
        return Ok(Some(Stall::Memory));
    }
    if let Some(passage) = passage {
        let job = admission::completed(passage, pending_body, connection.turn());
        dispatch(connection, job);
    }
    Ok(None)
}

/// Gives a request its number, and sends it to the workers.
fn dispatch<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    let keep_alive = job.request.keep_alive;
    job.sends_files = connection.sends_files();
    number(connection, &mut job);
    defer::dispatch(connection, job);
    // Where an upgrade was asked for, the reply decides whether HTTP ends here.
    let is_last = connection.leaving() && !connection.session.awaits_reply;
    if !keep_alive || is_last {
        take_no_more(connection);
    }
}

/// The job of a request that is taken gets its number, and so does its line.
pub(crate) fn number<S: Service>(connection: &mut Connection<'_, S>, job: &mut Exchange) {
    job.number = connection.session.take_number();
    if connection.session.is_logged() {
        log(connection).numbered();
    }
}

/// The last request of the connection has been taken. What comes after it is dropped, but for its
/// end: that says that the client has gone away.
pub(crate) fn take_no_more<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Over;
}

/// Bytes came after the last request. They are dropped, and nothing more is received, so that no
/// client keeps this thread at work with what means nothing.
#[cold]
pub(crate) fn took_more<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.lingers = true;
    connection.end_input();
}
