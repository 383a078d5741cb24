//! Queueing replies, each in its turn, and streaming the bodies of those that are read.
//!
//! A streamed body has at most one chunk with a worker and what the output holds below its
//! low-water mark, so its memory is bounded however slow the client is.

use bytes::Bytes;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::{Buffer, Wanted};
use flatpath::{Io, Job, NoRoom, Stall};

use crate::encode::{self, Bounded, FAILURE, HALF_CLOSED, REFUSAL, ReplyFraming};
use crate::exchange::State;
use crate::head::RequestMeta;
use crate::limits::{GATHER_BYTES_MAX, REPLY_BUFFER_BYTES, SCRATCH_KEPT_MAX};
use crate::message::{Body, Reader};
use crate::push;
use crate::reply::{Rest, Written};
use crate::service::Service;
use crate::state::{Connection, Http, QueuedReply, ReplyBytes, Stage, Step, log};
use crate::upgrade::Upgrade;

/// A reply is queued completely.
pub(crate) fn reply_done<S: Service>(connection: &mut Connection<'_, S>, keep_alive: bool) {
    connection.session.next_reply = connection.session.next_reply.wrapping_add(1);
    if connection.session.records.is_some() {
        log(connection).done();
    }
    // Requests after the last reply stay without an answer, so their bytes may be unread.
    connection.session.lingers |= !keep_alive && connection.session.owed() > 0;
    if !keep_alive || connection.session.is_finished() {
        close(connection);
    }
}

/// Counts a reply by the class of its status. For the moment when the head is queued.
#[inline]
pub(crate) fn count_reply<S: Service>(connection: &Connection<'_, S>, status: u16) {
    connection.count_request(usize::from((status / 100).wrapping_sub(1)));
}

/// The reply that is due begins as the scratch space does, which is not queued yet.
pub(crate) fn log_scratch<S: Service>(connection: &mut Connection<'_, S>) {
    if connection.session.records.is_some() {
        let scratch = std::mem::take(&mut connection.thread.scratch);
        log(connection).begins(&scratch);
        connection.thread.scratch = scratch;
    }
}

/// The connection ends after what is queued.
pub(crate) fn close<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.is_closed = true;
    if connection.session.lingers {
        connection.close_lingering();
    } else {
        connection.close_after_output();
    }
}

/// The connection ends at once, and visibly so.
pub(crate) fn abort<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.is_closed = true;
    connection.abort();
}

/// Keeps a job for the next request.
pub(crate) fn recycle<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    job.reset();
    connection.recycle(job);
}

/// Queues what of an inline answer is not in the output. It is the only one that is owed.
pub(crate) fn queue_inline<S: Service>(
    connection: &mut Connection<'_, S>,
    number: u32,
    written: Written,
    head_bytes: usize,
) -> Step {
    let keep_alive = written.keep_alive;
    let status = written.status;
    if !written.is_queued {
        log_scratch(connection);
    } else if connection.session.records.is_some() {
        // Nothing of the body is queued yet.
        log(connection).begun(status, 0);
    }
    let shared = match written.rest {
        Rest::Nothing => None,
        Rest::Shared(shared) => Some(shared),
        Rest::Bytes(bytes) => match charged(&mut connection.io, bytes) {
            Ok(Body::Pooled(copy)) if queue_scratch(connection, None).is_ok() => {
                connection.write_buffer(copy);
                count_reply(connection, status);
                reply_done(connection, keep_alive);
                return Step::On(head_bytes);
            }
            Ok(Body::Bytes(bytes)) => Some(bytes),
            _ => {
                // The handler has run and cannot run again: the client has to retry.
                send_words(connection, REFUSAL);
                return Step::On(head_bytes);
            }
        },
        Rest::Reader(reader, framing) => {
            stream_inline(connection, number, keep_alive, reader, framing);
            return Step::On(head_bytes);
        }
        Rest::Upgrade(upgrade) => {
            return switch_inline(connection, &upgrade, head_bytes);
        }
        Rest::Channel(receiver, framing) => {
            if written.is_queued || queue_scratch(connection, None).is_ok() {
                count_reply(connection, status);
                push::begin(connection, receiver, framing, keep_alive);
            } else {
                // The handler has run and cannot run again: the client has to retry.
                send_words(connection, REFUSAL);
            }
            return Step::On(head_bytes);
        }
    };
    let queued = match shared.as_ref() {
        // It is too long to be copied, which alone could fail.
        Some(shared) if written.is_queued => connection.write_shared(shared.clone()),
        shared => queue_scratch(connection, shared),
    };
    if queued.is_ok() {
        count_reply(connection, status);
        reply_done(connection, keep_alive);
        return Step::On(head_bytes);
    }
    // The answer is there and must not be asked for twice: it waits, and so does one byte of
    // its request, which brings the input back when there is room.
    let bytes = connection.thread.scratch.clone();
    let reply = QueuedReply::Bytes(Box::new(ReplyBytes {
        bytes,
        shared,
        keep_alive,
    }));
    let spares = &mut connection.thread.reorder_buffers;
    connection.session.keep(number, reply, spares);
    connection.session.skips_byte = true;
    Step::Blocked(head_bytes - 1, Stall::Memory)
}

/// Charges bytes of a program to the connection, for as long as they wait for its client: as they
/// are, or copied to a buffer, which may be of the reserve if they are few.
///
/// # Errors
/// There is no memory for them: the reply is refused, as they would be held while it waits.
fn charged(io: &mut Io<'_>, bytes: Bytes) -> Result<Body, NoRoom> {
    let bytes = match io.hold(bytes) {
        Ok(held) => return Ok(Body::Bytes(held)),
        Err(bytes) => bytes,
    };
    let buffer = io.pool().take(bytes.len());
    let buffer = buffer.filter(|buffer| buffer.room() >= bytes.len());
    let copied = buffer.map(|mut buffer| {
        buffer.append(&bytes);
        Body::Pooled(buffer)
    });
    flatpath::discard_bytes(bytes);
    copied.ok_or(NoRoom)
}

/// Charges the body of a reply that a worker has made, or refuses the reply.
pub(crate) fn charge_body<S: Service>(connection: &mut Connection<'_, S>, job: &mut Job<Http<S>>) {
    match std::mem::take(&mut job.body) {
        Body::Bytes(bytes) if bytes.len() > SHARED_COPY_BYTES_MAX => {
            match charged(&mut connection.io, bytes) {
                Ok(body) => job.body = body,
                Err(NoRoom) => {
                    job.head = None;
                    job.state = State::Refused(REFUSAL);
                }
            }
        }
        body => job.body = body,
    }
}

/// Queues the scratch space and a shared body after it; all or nothing.
fn queue_scratch<S: Service>(
    connection: &mut Connection<'_, S>,
    shared: Option<&Bytes>,
) -> Result<(), NoRoom> {
    let scratch = &mut connection.thread.scratch;
    let copied = shared.filter(|shared| shared.len() <= SHARED_COPY_BYTES_MAX);
    let bytes = scratch.len() + copied.map_or(0, Bytes::len);
    if let Some(buffer) = connection.io.reserve(bytes) {
        buffer.append(scratch);
        if let Some(copied) = copied {
            buffer.append(copied);
        }
    } else {
        // More than one buffer holds, or no buffer.
        scratch.extend_from_slice(copied.map_or(&[], |copied| &copied[..]));
        let written = connection.io.write(scratch);
        if written.is_err() {
            scratch.truncate(bytes - copied.map_or(0, Bytes::len));
            return written;
        }
    }
    if scratch.capacity() > SCRATCH_KEPT_MAX {
        *scratch = Vec::new();
    }
    if let Some(shared) = shared
        && copied.is_none()
    {
        return connection.write_shared(shared.clone());
    }
    Ok(())
}

/// An inline answer whose body has to be read: workers take over after its head.
fn stream_inline<S: Service>(
    connection: &mut Connection<'_, S>,
    number: u32,
    keep_alive: bool,
    reader: Reader,
    framing: ReplyFraming,
) {
    let head_bytes = connection.thread.scratch.len();
    let buffer = connection.pool().take(head_bytes.max(REPLY_BUFFER_BYTES));
    let buffer = buffer.filter(|buffer| buffer.room() >= head_bytes);
    let (Some(mut head), Some(mut job)) = (buffer, connection.job()) else {
        // The handler has run and cannot run again: the client has to retry.
        send_words(connection, REFUSAL);
        return;
    };
    head.append(&connection.thread.scratch);
    job.keep_alive = keep_alive;
    job.framing = Some(framing);
    job.begin_stream(number, head, reader);
    if job.state == State::Streaming {
        connection.dispatch(job);
    } else {
        send_job(connection, job);
    }
}

/// Queues the replies whose turn has come, outside of `received`.
pub(crate) fn deliver_or_stall<S: Service>(connection: &mut Connection<'_, S>) {
    if let Err(stall) = deliver_due(connection) {
        connection.stall(stall);
    }
}

/// Queues the replies whose turn has come.
pub(crate) fn deliver_due<S: Service>(connection: &mut Connection<'_, S>) -> Result<(), Stall> {
    while !connection.session.is_closed {
        match connection.session.take_due() {
            None => break,
            Some(QueuedReply::Job(job)) => {
                if !send_job(connection, job) {
                    break;
                }
            }
            Some(QueuedReply::Bytes(text)) => send_text(connection, text)?,
        }
    }
    Ok(())
}

fn send_text<S: Service>(
    connection: &mut Connection<'_, S>,
    mut text: Box<ReplyBytes>,
) -> Result<(), Stall> {
    std::mem::swap(&mut connection.thread.scratch, &mut text.bytes);
    let status = encode::status_of(&connection.thread.scratch);
    log_scratch(connection);
    if queue_scratch(connection, text.shared.as_ref()).is_err() {
        std::mem::swap(&mut connection.thread.scratch, &mut text.bytes);
        let number = connection.session.next_reply;
        let spares = &mut connection.thread.reorder_buffers;
        let reply = QueuedReply::Bytes(text);
        connection.session.keep(number, reply, spares);
        return Err(Stall::Memory);
    }
    count_reply(connection, status);
    reply_done(connection, text.keep_alive);
    Ok(())
}

/// Queues what a job has brought, in its turn. True when its reply is complete.
pub(crate) fn send_job<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
) -> bool {
    debug_assert_eq!(
        job.number, connection.session.next_reply,
        "replies go out in order"
    );
    if job.head.is_some() && job.is_long() && !connection.lasts(&mut job) {
        recycle(connection, job);
        return send_words(connection, REFUSAL);
    }
    if let Some(upgrade) = job.note.remove::<Upgrade>() {
        return switch(connection, job, &upgrade);
    }
    if let Some(head) = job.head.take() {
        if job.is_long() {
            stream_begins(connection);
        }
        if !job.head_is_complete {
            job.keep_alive &= !announces_end(connection);
        }
        send_head(connection, &mut job, head);
        if !job.note.is_empty() {
            let turn = connection.turn();
            connection.protocol.service.response_ready(
                &mut connection.thread.service,
                turn,
                &mut job.note,
            );
            job.discard_note();
        }
    }
    let has_chunk = job.chunk.is_some();
    match job.chunk.take() {
        // To copy it would take another buffer of the size, perhaps from the reserve.
        Some(chunk) if chunk.capacity() <= GATHER_BYTES_MAX => connection.write_buffer(chunk),
        Some(chunk) => queue_buffer(connection, chunk),
        None => {}
    }
    match job.state {
        State::Answered => answered(connection, job),
        State::Streaming if has_chunk => {
            connection.session.waiting_job = Some(job);
            connection.notify_drained();
            false
        }
        // The worker found no buffer for a chunk.
        State::Streaming => {
            let wanted = if job.is_long() {
                Wanted::Large
            } else {
                Wanted::Small
            };
            connection.dispatch_with_memory(job, wanted);
            false
        }
        State::Refused(words) => {
            recycle(connection, job);
            send_words(connection, words)
        }
        State::Fresh | State::Failed | State::Opening | State::Receiving => {
            let framing = job.framing.unwrap_or(ReplyFraming::Chunked);
            recycle(connection, job);
            break_off(connection, framing);
            false
        }
    }
}

/// Queues the last reply of HTTP, and hands the connection over after it.
fn switch<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
    upgrade: &Upgrade,
) -> bool {
    let Some(head) = job.head.take() else {
        debug_assert!(false, "an answer has a head");
        recycle(connection, job);
        return send_words(connection, FAILURE);
    };
    let handed_over = hand_over(connection, upgrade);
    if handed_over.is_ok() {
        send_head(connection, &mut job, head);
    }
    recycle(connection, job);
    switched(connection, handed_over)
}

/// The same for a head that is in the scratch space.
fn switch_inline<S: Service>(
    connection: &mut Connection<'_, S>,
    upgrade: &Upgrade,
    head_bytes: usize,
) -> Step {
    let scratch_bytes = connection.thread.scratch.len();
    let handed_over = match connection.io.reserve(scratch_bytes) {
        Some(_) => hand_over(connection, upgrade),
        None => Err(REFUSAL),
    };
    if handed_over.is_ok() {
        let status = encode::status_of(&connection.thread.scratch);
        let queued = queue_scratch(connection, None);
        debug_assert!(queued.is_ok(), "there is room for it");
        count_reply(connection, status);
    }
    switched(connection, handed_over);
    match handed_over {
        Ok(()) => Step::Switched(head_bytes),
        Err(_) => Step::On(head_bytes),
    }
}

/// Hands the connection over after the reply that is due, or says what that reply is instead.
fn hand_over<S: Service>(
    connection: &mut Connection<'_, S>,
    upgrade: &Upgrade,
) -> Result<(), &'static str> {
    let session = &*connection.session;
    // Nothing behind the request was taken for HTTP.
    let is_alone = session.follows_upload && session.owed() == 1 && !session.is_uploading();
    let wish = upgrade.take().filter(|_| is_alone).ok_or(FAILURE)?;
    if session.stage != Stage::Head {
        return Err(HALF_CLOSED);
    }
    // In a drain the successor ends the connection, with its own goodbye.
    connection.hand_over(wish).map_err(|_| REFUSAL)
}

/// The last reply of HTTP is queued, or these words are to be.
fn switched<S: Service>(
    connection: &mut Connection<'_, S>,
    handed_over: Result<(), &'static str>,
) -> bool {
    if let Err(words) = handed_over {
        return send_words(connection, words);
    }
    reply_done(connection, true);
    // This protocol says nothing more.
    connection.session.is_closed = true;
    true
}

/// The job has brought all of its reply, but for a body that is fed from elsewhere.
fn answered<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) -> bool {
    let (keep_alive, framing) = (job.keep_alive, job.framing);
    let body = std::mem::take(&mut job.body);
    recycle(connection, job);
    if let (Body::Channel(receiver), Some(framing)) = (body, framing) {
        return push::begin(connection, receiver, framing, keep_alive);
    }
    connection.session.is_streaming = false;
    reply_done(connection, keep_alive);
    true
}

/// Queues constant words as the reply that is due, and the last one.
fn send_words<S: Service>(connection: &mut Connection<'_, S>, words: &'static str) -> bool {
    if connection.session.records.is_some() {
        log(connection).begins(words.as_bytes());
    }
    connection.write_static(words.as_bytes());
    count_reply(connection, encode::status_of(words.as_bytes()));
    reply_done(connection, false);
    true
}

/// The reply that is due will last, and so will what waits after it.
pub(crate) fn stream_begins<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.is_streaming = true;
    for after in 1..connection.session.owed() as u32 {
        let number = connection.session.next_reply.wrapping_add(after);
        if let Some(job) = connection.session.take_kept(number) {
            keep_job(connection, job);
        }
    }
}

/// Keeps a reply that came back before its turn. After a stream it waits as long as that, so
/// it is refused where no more may.
pub(crate) fn keep_job<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    let number = job.number;
    let reply = if !connection.session.is_streaming || connection.lasts(&mut job) {
        QueuedReply::Job(job)
    } else {
        recycle(connection, job);
        QueuedReply::last(REFUSAL.into())
    };
    let spares = &mut connection.thread.reorder_buffers;
    connection.session.keep(number, reply, spares);
}

/// A stream ended before its end. The client must be able to tell: a length is cut short, the
/// last chunk is missing; where only the close ends a body, it is a reset instead.
pub(crate) fn break_off<S: Service>(connection: &mut Connection<'_, S>, framing: ReplyFraming) {
    if framing == ReplyFraming::CloseDelimited {
        abort(connection);
    } else {
        close(connection);
    }
}

/// Whether the reply whose head is about to be made is the last of its connection. A server that
/// drains ends each connection with the first reply after which nothing is owed or on its way.
fn announces_end<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let is_latest = connection.session.owed() == 1 && !connection.session.is_partial();
    if connection.leaving() && is_latest && connection.session.stage == Stage::Head {
        // What waits behind an upload was not looked at. It is for another connection to ask again.
        connection.session.lingers |= connection.session.follows_upload;
        connection.session.stage = Stage::Over;
        connection.end_input();
    }
    connection.session.owes_only_the_last()
}

/// Queues the head of a reply, and its body where that is in memory.
fn send_head<S: Service>(
    connection: &mut Connection<'_, S>,
    job: &mut Job<Http<S>>,
    mut head: Buffer,
) {
    if !job.head_is_complete {
        let request = RequestMeta {
            keep_alive: job.keep_alive,
            ..job.request
        };
        let wall = connection.turn().wall();
        let date_line = connection.thread.date.at(wall);
        let mut out = Bounded::new(&mut head);
        encode::end_of_head(&mut out, date_line, request);
        debug_assert!(out.fits(0), "the worker left room for the end of the head");
    }
    count_reply(connection, encode::status_of(head.filled()));
    if connection.session.records.is_some() {
        log(connection).begins(head.filled());
    }
    match std::mem::take(&mut job.body) {
        Body::Empty => queue_buffer(connection, head),
        channel @ Body::Channel(_) => {
            // Its pieces follow the head.
            job.body = channel;
            queue_buffer(connection, head);
        }
        Body::Bytes(bytes) if bytes.len() <= head.room() => {
            head.append(&bytes);
            queue_buffer(connection, head);
        }
        Body::Static(bytes) if bytes.len() <= head.room() => {
            head.append(bytes);
            queue_buffer(connection, head);
        }
        Body::Static(bytes) => {
            queue_buffer(connection, head);
            queue_shared(connection, job, Bytes::from_static(bytes));
        }
        Body::Pooled(body) if body.filled().len() <= head.room() => {
            head.append(body.filled());
            queue_buffer(connection, head);
        }
        Body::Bytes(bytes) => {
            queue_buffer(connection, head);
            queue_shared(connection, job, bytes);
        }
        Body::Pooled(body) => {
            queue_buffer(connection, head);
            connection.write_buffer(body);
        }
        Body::Reader(_) | Body::Payload(_) => {
            debug_assert!(false, "a body that is read became a stream");
        }
    }
}

/// Queues shared bytes; where they would have to be copied and there is no room, they are sent
/// like a stream, as room comes.
fn queue_shared<S: Service>(
    connection: &mut Connection<'_, S>,
    job: &mut Job<Http<S>>,
    bytes: Bytes,
) {
    if bytes.len() > SHARED_COPY_BYTES_MAX {
        let shared = connection.write_shared(bytes);
        debug_assert!(shared.is_ok(), "long bytes are shared");
    } else if connection.write(&bytes).is_err() {
        let length = Some(bytes.len() as u64);
        job.stream_body(Reader::new(Box::new(std::io::Cursor::new(bytes)), length));
    }
}

/// Queues a buffer: as it is, or copied after other output where that saves a segment.
fn queue_buffer<S: Service>(connection: &mut Connection<'_, S>, buffer: Buffer) {
    let gathers = buffer.filled().len() <= GATHER_BYTES_MAX && connection.queued_bytes() > 0;
    if gathers && connection.write(buffer.filled()).is_ok() {
        return;
    }
    connection.write_buffer(buffer);
}
