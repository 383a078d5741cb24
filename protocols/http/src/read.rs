//! Taking requests from the input: heads, bodies, and the stalls that leave them where they are.
//!
//! Whatever a stall leaves undone is left in the input, at least one byte of it, because only input
//! that was left is offered again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flatpath::memory::Buffer;
use flatpath::{Job, NoRoom, Pages, Phase, Stall};

use crate::body::Piece;
use crate::encode::{self, Persistence};
use crate::fault::Fault;
use crate::head::{Framing, Head, HeaderSlots};
use crate::limits::{
    DISCARD_BYTES_MAX, INLINE_REPLY_BYTES, PIPELINE_MAX, REPLY_BUFFER_BYTES, UPLOAD_LARGE_BYTES,
    UPLOAD_PIECE_PARTS,
};
use crate::parse::copy_as_1_1;
use crate::pending_body::PendingBody;
use crate::reply::{Disposition, Out, Reply};
use crate::respond::Frame;
use crate::service::Service;
use crate::state::{Connection, Fed, Http, QueuedReply, ReplyBytes, Stage, Step, ThreadState};
use crate::{upload, write};

/// What a request needs on its way to a worker: its job, and a buffer for its reply.
type Passage<S> = (Job<Http<S>>, Buffer);

/// No request is taken any more.
pub(crate) fn end_input<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Over;
    upload::abandon(connection);
    upload::drop_pending_body(connection);
    connection.end_input();
}

/// Answers what cannot be served, in its turn, and ends the connection after it.
pub(crate) fn fault<S: Service>(connection: &mut Connection<'_, S>, fault: Fault) {
    if connection.session.is_closed {
        return;
    }
    end_input(connection);
    connection.session.lingers = true;
    let number = connection.session.take_number();
    write_fault(connection, fault);
    if connection.session.owed() > 1 {
        let text = ReplyBytes {
            bytes: connection.thread.scratch.clone(),
            shared: None,
            keep_alive: false,
        };
        return write::keep(connection, number, QueuedReply::Bytes(Box::new(text)));
    }
    // Without room for words the end has to do.
    let _ = connection.io.write(&connection.thread.scratch);
    write::reply_done(connection, false);
}

fn write_fault<S: Service>(connection: &mut Connection<'_, S>, fault: Fault) {
    let wall_seconds = connection.turn().wall_seconds;
    let out = &mut connection.thread.scratch;
    out.clear();
    encode::status_line(out, fault.status());
    encode::header(out, b"Content-Type", b"text/plain; charset=utf-8");
    let sentence = fault.to_string();
    encode::length_header(out, sentence.len() as u64 + 1);
    let date_line = connection.thread.date.at(wall_seconds);
    encode::end_of_head(out, date_line, Persistence::Close);
    out.extend_from_slice(sentence.as_bytes());
    out.push(b'\n');
}

/// Takes the next request's head, and the request with it where it has no body.
pub(crate) fn take_head<S: Service>(connection: &mut Connection<'_, S>, input: &[u8]) -> Step {
    if input.is_empty() {
        return Step::NeedMore(0);
    }
    connection.session.follows_upload &= connection.session.owed() > 0;
    if connection.session.owed() >= PIPELINE_MAX || connection.session.follows_upload {
        return Step::Blocked(0, Stall::Pipeline);
    }
    if connection.output_is_full() {
        return Step::Blocked(0, Stall::Output);
    }
    let mut scan = connection.session.scan;
    let head_bytes = match scan.advance(input, &connection.protocol.limits) {
        Ok(Some(head_bytes)) => head_bytes,
        Ok(None) => {
            connection.session.scan = scan;
            return Step::NeedMore(0);
        }
        Err(fault) => return refuse(connection, fault, input),
    };
    let mut slots = HeaderSlots::new();
    match crate::parse(input, head_bytes, &mut slots, &connection.protocol.limits) {
        Ok(head) => take_request(connection, &head, input),
        Err(Fault::Version) => take_later_minor(connection, head_bytes, input),
        Err(fault) => refuse(connection, fault, input),
    }
}

/// Takes a head of HTTP/1.2 to 1.9 as one of 1.1, and refuses every other version.
#[cold]
fn take_later_minor<S: Service>(
    connection: &mut Connection<'_, S>,
    head_bytes: usize,
    input: &[u8],
) -> Step {
    let mut copy = std::mem::take(&mut connection.thread.later_minor);
    let step = if copy_as_1_1(&input[..head_bytes], &mut copy) {
        let mut slots = HeaderSlots::new();
        match crate::parse(&copy, head_bytes, &mut slots, &connection.protocol.limits) {
            Ok(head) => take_request(connection, &head, input),
            Err(fault) => refuse(connection, fault, input),
        }
    } else {
        refuse(connection, Fault::Version, input)
    };
    connection.thread.later_minor = copy;
    step
}

fn take_request<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
) -> Step {
    let streams = head.framing() != Framing::Empty && connection.protocol.service.streams(head);
    if let Framing::Length(length) = head.framing()
        && length > connection.protocol.limits.body_bytes_max
        && !streams
    {
        return refuse(connection, Fault::BodyTooLong, input);
    }
    if connection.session.owed() == 0
        && let Some(step) = answer_inline(connection, head, input)
    {
        return step;
    }
    if head.framing() == Framing::Empty {
        pass_on(connection, head, input)
    } else if streams {
        match upload::begin(connection, head) {
            Ok(step) => step,
            Err(fault) => refuse(connection, fault, input),
        }
    } else {
        begin_body(connection, head, input)
    }
}

/// Lets the service answer here and now; None when it leaves the request to workers.
fn answer_inline<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
) -> Option<Step> {
    let has_body = head.framing() != Framing::Empty;
    let body_is_short =
        matches!(head.framing(), Framing::Length(length) if length <= DISCARD_BYTES_MAX);
    let discards = body_is_short && !head.expect_continue();
    let mut frame = Frame::of(head);
    frame.keep_alive &= !connection.draining() && (discards || !has_body);

    let turn = connection.turn();
    let Some(buffer) = connection.io.reserve(INLINE_REPLY_BYTES) else {
        return Some(Step::Blocked(0, Stall::Memory));
    };
    let ThreadState {
        service: thread,
        scratch,
        date,
        ..
    } = &mut *connection.thread;
    let out = Out::reserved(buffer, scratch);
    let mut reply = Reply::new(out, date.at(turn.wall_seconds), frame);
    let service = &connection.protocol.service;
    match catch_unwind(AssertUnwindSafe(|| {
        service.inline(thread, turn, head, &mut reply)
    })) {
        Ok(Disposition::Answered) => {}
        Ok(Disposition::Pooled) => {
            reply.abandon();
            return None;
        }
        Err(_) => reply.fail(),
    }
    let written = reply.written();
    connection.session.head_taken();
    if !written.keep_alive {
        connection.session.lingers |= has_body || input.len() > head.bytes();
    } else if discards {
        let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
        pending_body.begin(frame, head.framing());
        pending_body.is_discarded = true;
        connection.session.pending_body = Some(pending_body);
        connection.session.stage = Stage::Body;
        connection.restart_phase(Phase::Body);
    }
    Some(write::queue_inline(connection, written, head.bytes()))
}

/// Sends a request without a body to the workers.
fn pass_on<S: Service>(connection: &mut Connection<'_, S>, head: &Head<'_>, input: &[u8]) -> Step {
    let (mut job, buffer) = match passage(connection) {
        Ok(passage) => passage,
        Err(stall) => return Step::Blocked(0, stall),
    };
    if let Err(fault) = job.builder.fill(head, &mut connection.thread.names) {
        write::recycle(connection, job);
        return refuse(connection, fault, input);
    }
    connection.session.head_taken();
    connection.session.lingers |= !head.keep_alive() && input.len() > head.bytes();
    dispatch(connection, (job, buffer), Frame::of(head));
    Step::On(head.bytes())
}

/// The request's body comes first.
fn begin_body<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    input: &[u8],
) -> Step {
    let mut pending_body = connection.thread.pending_body.pop().unwrap_or_default();
    let filled = pending_body
        .builder
        .fill(head, &mut connection.thread.names);
    pending_body.begin(Frame::of(head), head.framing());
    if matches!(head.framing(), Framing::Length(length) if length > UPLOAD_LARGE_BYTES) {
        pending_body.is_kept = true;
        connection.receive_into(Pages::Listener);
    }
    connection.session.pending_body = Some(pending_body);
    if let Err(fault) = filled {
        return refuse(connection, fault, input);
    }
    connection.session.head_taken();
    connection.session.owes_continue = head.expect_continue();
    connection.session.stage = Stage::Body;
    connection.restart_phase(Phase::Body);
    Step::On(head.bytes())
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
    let fed = if pending_body.is_streamed {
        upload::feed(connection, &mut pending_body, input)
    } else {
        feed(connection, &mut pending_body, input)
    };
    connection.session.pending_body = Some(pending_body);
    match fed {
        Ok(Fed::More(bytes)) => Step::NeedMore(bytes),
        Ok(Fed::Stalled(bytes, stall)) => Step::Blocked(bytes, stall),
        Ok(Fed::Complete(bytes)) => {
            upload::drop_pending_body(connection);
            connection.receive_into(Pages::Common);
            if connection.session.stage == Stage::Body {
                connection.session.stage = Stage::Head;
            }
            connection.session.lingers |=
                connection.session.stage == Stage::Over && bytes < input.len();
            Step::On(bytes)
        }
        Err(fault) => refuse(connection, fault, input),
    }
}

fn feed<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    input: &[u8],
) -> Result<Fed, Fault> {
    let mut rest = input;
    loop {
        let (decoder_before, rest_before) = (pending_body.decoder, rest);
        let piece = pending_body.decoder.next(&mut rest)?;
        let data: &[u8] = match piece {
            Piece::Data(data) => data,
            Piece::More | Piece::End => &[],
        };
        let announced = pending_body.decoder.announced();
        let bytes = pending_body
            .bytes
            .saturating_add(data.len() as u64)
            .saturating_add(announced);
        if bytes > connection.protocol.limits.body_bytes_max && !pending_body.is_discarded {
            return Err(Fault::BodyTooLong);
        }
        let is_complete = pending_body.decoder.is_complete();
        let is_due = is_complete && !pending_body.is_discarded;
        let passage = if is_due {
            passage(connection).map(Some)
        } else {
            Ok(None)
        };
        let appended = passage.and_then(|passage| {
            let appended = append(connection, pending_body, data, announced);
            appended.map(|()| passage).map_err(|_| Stall::Memory)
        });
        let passage = match appended {
            Ok(passage) => passage,
            Err(stall) => {
                // As if this piece had not been looked at: it is offered again.
                pending_body.decoder = decoder_before;
                return Ok(Fed::Stalled(input.len() - rest_before.len(), stall));
            }
        };
        // A client that sends its body does not wait for leave any more.
        connection.session.owes_continue &= data.is_empty();
        if let Some((mut job, buffer)) = passage {
            std::mem::swap(&mut job.builder, &mut pending_body.builder);
            job.builder.set_body(pending_body.take_body());
            dispatch(connection, (job, buffer), pending_body.frame);
        }
        if is_complete {
            return Ok(Fed::Complete(input.len() - rest.len()));
        }
        if piece == Piece::More {
            return Ok(Fed::More(input.len()));
        }
    }
}

/// Keeps data of a body that arrives completely first: a large one where it lies, as long as
/// that cannot use up what the connection may hold.
fn append<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    data: &[u8],
    more: u64,
) -> Result<(), NoRoom> {
    if !pending_body.is_kept {
        return pending_body.append(connection.pool(), data, more);
    }
    if connection.held() < UPLOAD_PIECE_PARTS as u32 {
        connection.retain_or_copy(data, &mut pending_body.piece)?;
    } else {
        connection.copy(data, &mut pending_body.piece)?;
    }
    pending_body.bytes += data.len() as u64;
    Ok(())
}

/// What a request needs on its way to a worker, or what it has to wait for.
fn passage<S: Service>(connection: &mut Connection<'_, S>) -> Result<Passage<S>, Stall> {
    let buffer = connection
        .pool()
        .take(REPLY_BUFFER_BYTES)
        .ok_or(Stall::Memory)?;
    let job = connection.job().ok_or(Stall::Jobs)?;
    Ok((job, buffer))
}

/// Sends a request to the workers; its builder is filled.
fn dispatch<S: Service>(
    connection: &mut Connection<'_, S>,
    (mut job, buffer): Passage<S>,
    frame: Frame,
) {
    job.begin(connection.session.take_number(), frame, Some(buffer));
    connection.dispatch(job);
    if !frame.keep_alive || connection.draining() {
        connection.session.stage = Stage::Over;
        connection.end_input();
    }
}

fn refuse<S: Service>(connection: &mut Connection<'_, S>, fault: Fault, input: &[u8]) -> Step {
    self::fault(connection, fault);
    Step::On(input.len())
}
