//! The network thread's side of a body that is taken piece by piece; `sink` is the worker's.
//!
//! The job is at home (`Due::Upload`) or with a worker. What arrives meanwhile gathers in
//! `pending_body`, in the pages where it was received. When the job is at home and enough has
//! gathered, or the body is complete, it goes to a worker with all of it.
//!
//! A long body in the clear whose client is fast and whose sink is a file comes in pipes
//! ([`Sink::takes_pipes`](crate::Sink::takes_pipes)): when the job is back, what has come meanwhile
//! goes with it again, as much as a pipe holds, and neither this thread nor the worker touches it.
//! The worker fills the same pipe again while enough has come. Meanwhile nothing is received here:
//! what comes waits in the socket, which is back-pressure, and no pipe waits for a client.
//!
//! A body that arrives completely is not streamed, but if layers are around its route the job goes
//! to a worker while the body is waited for ([`open`]), which has the layers run; then it is at
//! home as that of an upload, until all of the body is there ([`take_last`]). What arrives is
//! gathered as without layers. Where no job can be spared, all of that happens when the body is
//! there.
//!
//! A body that is refused (too long, late, against the framing) has its job answer that
//! ([`refuse`]), so that the response passes the layers of its route.
//!
//! Invariants
//! - U1: an upload's reply is the one that is due: a body is begun only when no reply is owed.
//! - U2: the end of the body is taken only when the job is at home, so that it can bring it.
//! - U3: what waits is bounded: by the fragments that a connection may hold, and what had to be
//!   copied by `UPLOAD_WAITING_BYTES_MAX`.
//! - U4: a pipe is asked for while the job is at home alone, and never for the last byte.
//! - U5: while a job has the stream, nothing that was received after it is decoded.

use std::ops::RangeInclusive;

use flatpath::memory::{Payload, Piped, PoolHandle};
use flatpath::{Job, NoRoom, Pages, Stall, Turn};

use crate::connection::exchange::Exchange;
use crate::connection::pending_body::{BodyMode, PendingBody};
use crate::connection::state::{Connection, Due, Http, Stage, Step};
use crate::h1::read;
use crate::h1::write;
use crate::head::fault::Fault;
use crate::head::{Framing, Head};
use crate::limits::{
    REPLY_BUFFER_BYTES, UPLOAD_COPY_BYTES_MAX, UPLOAD_LARGE_BYTES, UPLOAD_PIECE_BYTES,
    UPLOAD_PIECE_PARTS, UPLOAD_PIPE_BYTES_MAX, UPLOAD_PIPE_BYTES_MIN, UPLOAD_SHORT_BYTES,
    UPLOAD_STREAM_BYTES, UPLOAD_WAITING_BYTES_MAX,
};
use crate::service::terms::JobTerms;
use crate::service::{Opening, Service};
use crate::streams::defer;

/// When what has gathered of a body goes to its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When it is worth a worker.
    Enough,
    /// Now, whatever there is: no memory for more.
    Short,
    /// Now: the body is complete.
    Last,
}

/// The request whose body was arriving is not served. What waits for an upload that is with a
/// worker stays until that is back.
pub(crate) fn drop_pending_body<S: Service>(connection: &mut Connection<'_, S>) {
    let is_unwanted =
        |pending_body: &mut Box<PendingBody>| pending_body.mode != BodyMode::Abandoned;
    if let Some(pending_body) = connection.session.pending_body.take_if(is_unwanted) {
        connection.thread.recycle_pending_body(pending_body);
    }
}

/// Takes the head of a request whose body is streamed, and lets a worker open it.
pub(crate) fn begin<S: Service>(
    connection: &mut Connection<'_, S>,
    head: &Head<'_>,
    mut job: Job<Http<S>>,
    pending_body: Box<PendingBody>,
) -> Step {
    connection.session.awaits_reply = true;
    connection.session.head_taken();
    let is_large =
        !matches!(head.framing(), Framing::Length(length) if length <= UPLOAD_LARGE_BYTES);
    if is_large {
        connection.receive_into(Pages::Listener);
    }
    read::await_body(connection, pending_body);
    read::number(connection, &mut job);
    defer::dispatch(connection, job);
    Step::On(head.bytes())
}

/// A job, but for its number, for a request whose body arrives completely or is refused, and which
/// is to be opened. Without one it is not.
pub(crate) fn opening_job<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    refusal: Option<Fault>,
) -> Option<Job<Http<S>>> {
    if pending_body.opening != Opening::Due {
        return None;
    }
    let mut job = connection.job()?;
    if !connection.lasts(&mut job) {
        write::recycle(connection, job);
        return None;
    }
    std::mem::swap(&mut job.builder, &mut pending_body.builder);
    pending_body.opening = Opening::Begun;
    job.begin_upload(0, pending_body.request, pending_body.arrival());
    job.refusal = refusal;
    job.agree(pending_body.terms.without_time(), connection.turn());
    Some(job)
}

/// Sends such a job to a worker.
fn dispatch_opening<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    read::number(connection, &mut job);
    job.sends_files = connection.sends_files();
    defer::dispatch(connection, job);
}

/// What has come is taken: a body that has to be waited for is opened, once its reply is the one
/// that is due (U1).
pub(crate) fn open<S: Service>(connection: &mut Connection<'_, S>) {
    if connection.session.stage != Stage::Body || connection.session.owed() > 0 {
        return;
    }
    let Some(mut pending_body) = connection.session.pending_body.take() else {
        return;
    };
    let job = opening_job(connection, &mut pending_body, None);
    connection.session.pending_body = Some(pending_body);
    if let Some(job) = job {
        dispatch_opening(connection, job);
    }
}

/// Takes the last data of a body that arrives completely and was opened, and sends all of it to a
/// worker. `Some` when it has to wait and nothing was taken.
pub(crate) fn take_last<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    data: &[u8],
) -> Option<Stall> {
    if !connection.session.due.is_upload() {
        // The job must bring it (U2).
        return Some(Stall::Body);
    }
    let kept = due_head_buffer(connection);
    let kept = kept.and_then(|()| gather_whole(connection, pending_body, data));
    if kept.is_err() {
        return Some(Stall::Memory);
    }
    let mut job = connection.session.due.take_upload()?;
    bring_whole(&mut job, pending_body, connection.turn());
    defer::dispatch(connection, job);
    if !pending_body.request.keep_alive || connection.leaving() {
        read::take_no_more(connection);
    }
    None
}

/// All of the body of a request that was opened is here: its job has it, and the time that a
/// request has from then on.
pub(crate) fn bring_whole(job: &mut Exchange, pending_body: &mut PendingBody, turn: Turn) {
    let trailers = std::mem::take(&mut pending_body.trailers);
    job.bring_whole(pending_body.take_body(), trailers);
    let terms = JobTerms {
        time: pending_body.terms.time,
        ..job.terms
    };
    job.agree(terms, turn);
}

/// Keeps data of a body that arrives completely, all of it or nothing.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn gather_whole<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    data: &[u8],
) -> Result<(), NoRoom> {
    // A large body stays where it lies, as long as that cannot use up what the connection may hold.
    if pending_body.mode == BodyMode::Buffered {
        let announced = pending_body.decoder.announced();
        let pool = connection.pool();
        pending_body.gathered.append(pool, data, announced)
    } else if connection.held() < UPLOAD_PIECE_PARTS as u32 {
        connection.retain_or_copy(data, &mut pending_body.piece)
    } else {
        connection.copy(data, &mut pending_body.piece)
    }
}

/// A body is refused: what takes it, or would, answers that. False: it has no job, and gets none.
pub(crate) fn refuse<S: Service>(connection: &mut Connection<'_, S>, fault: Fault) -> bool {
    let Some(mut pending_body) = connection.session.pending_body.take() else {
        return false;
    };
    if let Some(mut job) = connection.session.due.take_upload() {
        job.refusal = Some(fault);
        pass_remainder(connection, job, Some(pending_body));
        return true;
    }
    if let Some(job) = opening_job(connection, &mut pending_body, Some(fault)) {
        connection.thread.recycle_pending_body(pending_body);
        dispatch_opening(connection, job);
        return true;
    }
    let is_away = pending_body.is_opened();
    if is_away {
        pending_body.refusal = Some(fault);
        abandon_away(&mut pending_body);
    }
    connection.session.pending_body = Some(pending_body);
    is_away
}

/// What is left of the body is not for its job, which is away.
fn abandon_away(pending_body: &mut PendingBody) {
    pending_body.mode = BodyMode::Abandoned;
    pending_body.owes_continue = false;
}

/// Takes data of a streamed body; `is_whole` when nothing else was received with it. `Some` when it
/// has to wait and was not taken.
pub(crate) fn take_data<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    data: &[u8],
    is_whole: bool,
) -> Option<Stall> {
    let is_complete = pending_body.decoder.is_complete();
    let is_full = pending_body.piece.len() >= UPLOAD_WAITING_BYTES_MAX;
    let stall = if (is_complete || is_full) && !connection.session.due.is_upload() {
        // The job must bring the end (U2), and what waits is bounded (U3).
        Some(Stall::Body)
    } else {
        let kept = match is_complete {
            true => due_head_buffer(connection),
            false => Ok(()),
        };
        let kept = kept.and_then(|()| gather(connection, &mut pending_body.piece, data, is_whole));
        kept.err().map(|_| Stall::Memory)
    };
    match stall {
        None if is_complete => pass_piece(connection, pending_body, When::Last),
        // More data of the same input may follow.
        None if !data.is_empty() => {}
        Some(Stall::Memory) => pass_piece(connection, pending_body, When::Short),
        _ => pass_piece(connection, pending_body, When::Enough),
    }
    // What is with a worker now makes room when it is back.
    let is_away = !connection.session.due.is_upload();
    stall.map(|stall| if is_away { Stall::Body } else { stall })
}

/// The reply of the upload that is due, whose last piece is here, gets its buffer.
fn due_head_buffer<S: Service>(connection: &mut Connection<'_, S>) -> Result<(), NoRoom> {
    match &mut connection.session.due {
        Due::Upload(job) => take_head_buffer(job, connection.io.pool()),
        _ => Ok(()),
    }
}

/// The same of any upload.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn take_head_buffer(job: &mut Exchange, pool: PoolHandle<'_>) -> Result<(), NoRoom> {
    if job.buffer.is_none() {
        job.buffer = pool.take(REPLY_BUFFER_BYTES);
    }
    job.buffer.as_ref().map(|_| ()).ok_or(NoRoom)
}

/// Keeps data where it lies. What is short and has framing around it is copied: a page for each
/// would cost more.
fn gather<S: Service>(
    connection: &mut Connection<'_, S>,
    piece: &mut Payload,
    data: &[u8],
    is_whole: bool,
) -> Result<(), NoRoom> {
    if data.is_empty() {
        return Ok(());
    }
    let follows_copy = matches!(
        piece.parts().last(),
        Some(flatpath::memory::Part::Copied(_))
    );
    if !is_whole && data.len() < UPLOAD_COPY_BYTES_MAX && (follows_copy || !piece.is_empty()) {
        return connection.copy(data, piece);
    }
    connection.retain_or_copy(data, piece)
}

/// Sends what has gathered to a worker, if one can take it and it is worth one: less is while
/// memory runs short, so that slow clients cannot fill it with what waits to be more.
fn pass_piece<S: Service>(
    connection: &mut Connection<'_, S>,
    pending_body: &mut PendingBody,
    when: When,
) {
    let is_last = when == When::Last;
    if pending_body.mode != BodyMode::Streamed || !is_enough(connection, &pending_body.piece, when)
    {
        return;
    }
    let Some(mut job) = connection.session.due.take_upload() else {
        return;
    };
    // The next pipe is for a job that is here (U4).
    connection.io.receive_piped(None);
    if let Some(upload) = &mut job.upload {
        upload.bring(pending_body, is_last);
    }
    defer::dispatch(connection, job);
    let ends = !pending_body.request.keep_alive || connection.leaving();
    if is_last && ends {
        read::take_no_more(connection);
    }
}

/// All of a body that arrived is taken. What follows comes in a pipe, if the body is long, its
/// client fast, and its sink puts it in a file: while the job is with a worker it waits in the
/// socket.
pub(crate) fn await_more<S: Service>(connection: &mut Connection<'_, S>, taken: usize) -> Step {
    let Some(pending_body) = &connection.session.pending_body else {
        return Step::NeedMore(taken);
    };
    if !pending_body.takes_pipes {
        return Step::NeedMore(taken);
    }
    let bounds = pipe_bounds(pending_body).filter(|_| taken >= UPLOAD_STREAM_BYTES);
    if bounds.is_some() && !connection.session.due.is_upload() {
        return Step::Blocked(taken, Stall::Body);
    }
    connection.io.receive_piped(bounds);
    Step::NeedMore(taken)
}

/// How much may come in a pipe next: with what has gathered it is worth a worker. The last byte is
/// left to the decoder, so that the job has what the reply needs when it brings the end (U2).
fn pipe_bounds(pending_body: &PendingBody) -> Option<RangeInclusive<u32>> {
    let wanted = UPLOAD_PIECE_BYTES.saturating_sub(pending_body.piece.len());
    let least = UPLOAD_PIPE_BYTES_MIN.max(u32::try_from(wanted).unwrap_or(u32::MAX));
    let before_last = pending_body.decoder.left().saturating_sub(1);
    let most = u32::try_from(before_last).map_or(UPLOAD_PIPE_BYTES_MAX, |bytes| {
        bytes.min(UPLOAD_PIPE_BYTES_MAX)
    });
    (pending_body.takes_pipes && least <= most).then_some(least..=most)
}

/// Takes data of a streamed body that lies in a pipe: it goes to a worker with what has gathered.
pub(crate) fn take_piped<S: Service>(connection: &mut Connection<'_, S>, piped: Piped) {
    let session = &mut *connection.session;
    let (Some(pending_body), Some(mut job)) =
        (&mut session.pending_body, session.due.take_upload())
    else {
        debug_assert!(false, "U4: a pipe is for a job that is here");
        return connection.abort();
    };
    pending_body.came_piped(piped.len() as u64);
    pending_body.is_piped = true;
    if let Some(upload) = &mut job.upload {
        upload.piece = std::mem::take(&mut pending_body.piece);
        upload.piped = Some(piped);
        upload.left = pending_body.decoder.left().saturating_sub(1);
        upload.is_last = false;
    }
    defer::dispatch(connection, job);
}

/// Whether a piece is worth a worker: less is while memory runs short.
pub(crate) fn is_enough<S: Service>(
    connection: &Connection<'_, S>,
    piece: &Payload,
    when: When,
) -> bool {
    let enough_bytes = match when {
        When::Last => return true,
        When::Short => 1,
        When::Enough if connection.pool().is_short() => UPLOAD_SHORT_BYTES,
        When::Enough => UPLOAD_PIECE_BYTES,
    };
    piece.len() >= enough_bytes || piece.parts_count() >= UPLOAD_PIECE_PARTS
}

/// Memory is short: what has gathered of an upload goes to a worker now.
pub(crate) fn memory_short<S: Service>(connection: &mut Connection<'_, S>) {
    if !connection.session.is_uploading() {
        return;
    }
    if let Some(mut pending_body) = connection.session.pending_body.take() {
        pass_piece(connection, &mut pending_body, When::Short);
        connection.session.pending_body = Some(pending_body);
    }
}

/// A job is back: an upload that wants more stays here, anything else is handed through.
pub(crate) fn returned<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
) -> Option<Job<Http<S>>> {
    if job.is_receiving() {
        if !connection.session.is_uploading() {
            // Its body will never be complete.
            let pending_body = connection.session.pending_body.take();
            job.refusal = pending_body.as_ref().and_then(|it| it.refusal);
            if !pass_remainder(connection, job, pending_body) {
                skip_reply(connection);
            }
            return None;
        }
        let (takes_pipes, refilled) = job.take_refilled();
        connection.session.due = Due::Upload(job);
        if let Some(mut pending_body) = connection
            .session
            .pending_body
            .take_if(|it| it.mode == BodyMode::Streamed)
        {
            (pending_body.takes_pipes, pending_body.is_piped) = (takes_pipes, false);
            if refilled > 0 {
                pending_body.came_piped(refilled);
                connection.io.count_piped(refilled);
            }
            connection.io.receive_piped(pipe_bounds(&pending_body));
            pass_piece(connection, &mut pending_body, When::Enough);
            connection.session.pending_body = Some(pending_body);
        }
        return None;
    }
    if connection.session.is_uploading() && job.number == connection.session.next_reply {
        // The service wants no more of the body, and says why.
        let goes_on = job.reply.as_ref().is_some_and(|it| it.request.keep_alive);
        let goes_on = goes_on && !connection.leaving();
        match &mut connection.session.pending_body {
            Some(pending_body) if goes_on => pending_body.discard_rest(),
            _ => {
                connection.session.lingers = true;
                drop_pending_body(connection);
                connection.session.stage = Stage::Over;
                connection.end_input();
            }
        }
    }
    if let Some(pending_body) = connection
        .session
        .pending_body
        .take_if(|it| it.mode == BodyMode::Abandoned)
    {
        // Nor can it use the rest.
        connection.thread.recycle_pending_body(pending_body);
    }
    Some(job)
}

/// The body of an upload will never be complete. A sink that can use what arrived of it gets
/// that first; one that is with a worker gets it when it is back.
pub(crate) fn abandon<S: Service>(connection: &mut Connection<'_, S>) {
    match connection.session.due.take_upload() {
        Some(job) => {
            let pending_body = connection.session.pending_body.take();
            if !pass_remainder(connection, job, pending_body) {
                connection.session.next_reply = connection.session.next_reply.wrapping_add(1);
            }
        }
        None => {
            if let Some(pending_body) = &mut connection.session.pending_body
                && pending_body.is_opened()
            {
                abandon_away(pending_body);
            }
        }
    }
}

/// Sends what gathered of an abandoned body to a worker, if the sink can use it, or has to answer a
/// refusal; the job is recycled otherwise.
pub(crate) fn pass_remainder<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
    mut pending_body: Option<Box<PendingBody>>,
) -> bool {
    let mut is_passed = job.refusal.is_some();
    if let (Some(upload), Some(pending_body)) = (&mut job.upload, &mut pending_body)
        && !pending_body.piece.is_empty()
        && upload.sink.keeps_parts()
    {
        upload.piece = std::mem::take(&mut pending_body.piece);
        is_passed = true;
    }
    if let Some(pending_body) = pending_body {
        connection.thread.recycle_pending_body(pending_body);
    }
    match is_passed {
        true => defer::dispatch(connection, job),
        false => write::recycle(connection, job),
    }
    is_passed
}

/// The reply that is due will never be made; what waits after it goes out.
fn skip_reply<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.next_reply = connection.session.next_reply.wrapping_add(1);
    write::deliver_due(connection);
    if !connection.session.is_closed() && connection.session.is_finished() {
        write::close(connection);
    }
}
