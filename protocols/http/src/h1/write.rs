//! Queueing replies, each in its turn, and streaming the bodies of those that are read.
//!
//! A streamed body has at most one chunk with a worker and what the output holds below its
//! low-water mark, so its memory is bounded however slow the client is.

use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::memory::{Buffer, Wanted};
use flatpath::{Io, Job, NoRoom};

use crate::connection::exchange::State;
use crate::connection::state::{Connection, Due, Http, QueuedReply, Stage, log};
use crate::head::RequestMeta;
use crate::limits::{GATHER_BYTES_MAX, SCRATCH_KEPT_MAX};
use crate::message::{Body, Reader, Source};
use crate::respond::encode::{self, ReplyFraming};
use crate::respond::file_body;
use crate::respond::outgoing::{Outgoing, OutgoingHead, discard_body};
use crate::respond::sink::Bounded;
use crate::respond::words::{FAILURE, HALF_CLOSED, REFUSAL, Words};
use crate::service::Service;
use crate::streams::defer;
use crate::streams::push;
use crate::takeover::upgrade::{Next, Upgrade};

/// A reply is queued completely.
pub(crate) fn reply_done<S: Service>(connection: &mut Connection<'_, S>, keep_alive: bool) {
    connection.session.next_reply = connection.session.next_reply.wrapping_add(1);
    if connection.session.is_logged() {
        log(connection).done();
    }
    if !keep_alive || connection.session.is_finished() {
        // Requests after the last reply stay without an answer, so their bytes may be unread.
        connection.session.lingers |= connection.session.owed() > 0;
        close(connection);
    }
}

/// Counts a reply by the class of its status. For the moment when the head is queued.
#[inline]
pub(crate) fn count_reply<S: Service>(connection: &Connection<'_, S>, status: u16) {
    connection.count_request(usize::from((status / 100).wrapping_sub(1)));
}

/// The connection ends after what is queued.
pub(crate) fn close<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Closed;
    if connection.session.lingers {
        connection.close_lingering();
    } else {
        connection.close_after_output();
    }
}

/// The connection ends at once, and visibly so.
pub(crate) fn abort<S: Service>(connection: &mut Connection<'_, S>) {
    connection.session.stage = Stage::Closed;
    connection.abort();
}

/// Keeps a job for the next request.
pub(crate) fn recycle<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    job.reset();
    connection.recycle(job);
}

/// Queues what of an inline answer is not in the output. It is the reply that is due.
pub(crate) fn send_inline<S: Service>(
    connection: &mut Connection<'_, S>,
    number: u32,
    mut reply: Outgoing,
) {
    if let Some(pending) = reply.take_pending() {
        let Some(mut job) = connection.job() else {
            send_words(connection, REFUSAL, reply.request);
            return;
        };
        job.begin_deferred(number, reply.request, pending);
        job.sends_files = connection.sends_files();
        return defer::wait(connection, job);
    }
    if charge(&mut connection.io, &mut reply).is_err() {
        wait_for_room(connection, reply);
    } else if !reply.body.is_read(connection.sends_files()) {
        send(connection, reply);
    } else if let Some(mut job) = connection.job() {
        // Workers take over; the head waits for the first chunk.
        job.begin_reply(number, reply);
        match job.state {
            State::Streaming => connection.dispatch(job),
            _ => drop(send_job(connection, job)),
        }
    } else {
        // The handler has run and cannot run again: the client has to retry.
        send_words(connection, REFUSAL, reply.request);
    }
}

/// A reply that found no memory waits for that, and so does the input after its request. A long one
/// is refused instead: it would be held while it waits.
fn wait_for_room<S: Service>(connection: &mut Connection<'_, S>, reply: Outgoing) -> bool {
    // Without a wish for input a stall would not end.
    let is_fed = matches!(reply.body, Body::Channel(_));
    if connection.session.stage == Stage::Over || !reply.is_short() || is_fed {
        return send_words(connection, REFUSAL, reply.request);
    }
    connection.session.due = Due::Waiting(Box::new(reply));
    false
}

/// Tries a reply again that found no memory. False: it waits on.
pub(crate) fn retry<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    if let Some(reply) = connection.session.due.take_waiting() {
        let number = connection.session.next_reply;
        send_inline(connection, number, *reply);
    }
    !connection.session.due.is_waiting()
}

/// Charges what a program has made of a body to the connection, until it is sent. From then on a
/// body that is fed from elsewhere is the connection's.
///
/// # Errors
/// There is no memory for them; the reply is as it was.
fn charge(io: &mut Io<'_>, reply: &mut Outgoing) -> Result<(), NoRoom> {
    let is_with_head = match (&reply.body, &reply.head) {
        (Body::Bytes(bytes), OutgoingHead::Open(buffer)) => bytes.len() <= buffer.room(),
        (Body::Bytes(bytes), OutgoingHead::Bytes(head)) => {
            bytes.len() <= SHARED_COPY_BYTES_MAX && io.reserve(head.len() + bytes.len()).is_some()
        }
        _ => false,
    };
    match is_with_head {
        true => Ok(()),
        false => charge_body(io, reply),
    }
}

/// The same for a body that is not copied after its head.
///
/// # Errors
/// There is no memory for it; the reply is as it was.
pub(crate) fn charge_body(io: &mut Io<'_>, reply: &mut Outgoing) -> Result<(), NoRoom> {
    if reply.is_charged {
        return Ok(());
    }
    let is_short = reply.is_short();
    let bytes = match &mut reply.body {
        Body::Bytes(bytes) => bytes,
        Body::Channel(receiver) => {
            receiver.attach(io.handle())?;
            reply.is_charged = true;
            return Ok(());
        }
        _ => return Ok(()),
    };
    match io.hold(std::mem::take(bytes)) {
        Ok(held) => *bytes = held,
        Err(same) => {
            *bytes = same;
            if !is_short {
                return Err(NoRoom);
            }
            // A buffer may be of the reserve.
            let buffer = io.pool().take(bytes.len());
            let buffer = buffer.filter(|buffer| buffer.room() >= bytes.len());
            let mut copy = buffer.ok_or(NoRoom)?;
            copy.append(bytes);
            reply.discard_body();
            reply.body = Body::Pooled(copy);
        }
    }
    reply.is_charged = true;
    Ok(())
}

/// The same for what a worker has brought. Without memory a short body is sent like a stream, as
/// room comes, and a long one is refused.
pub(crate) fn charge_job<S: Service>(connection: &mut Connection<'_, S>, job: &mut Job<Http<S>>) {
    let Some(reply) = &mut job.reply else {
        return;
    };
    if charge(&mut connection.io, reply).is_ok() {
        return;
    }
    let Some(mut reply) = job.reply.take() else {
        return;
    };
    match std::mem::take(&mut reply.body) {
        body if reply.is_short() && !matches!(body, Body::Channel(_)) => {
            let length = body.length();
            reply.body = Body::Reader(Reader::new(Box::new(body), length));
        }
        body => {
            discard_body(body);
            reply = Outgoing::words(REFUSAL, reply.request);
        }
    }
    job.reply_with(reply);
}

/// Queues the replies whose turn has come.
pub(crate) fn deliver_due<S: Service>(connection: &mut Connection<'_, S>) {
    while !connection.session.is_closed() {
        let is_complete = match connection.session.take_due() {
            None => break,
            Some(QueuedReply::Job(job)) => send_job(connection, job),
            Some(QueuedReply::Here(reply)) => send(connection, *reply),
            Some(QueuedReply::Awaited(_)) => {
                debug_assert!(false, "a reply that is to come is not due");
                false
            }
        };
        if !is_complete {
            break;
        }
    }
}

/// Queues the reply that is due. True when that is all of it.
pub(crate) fn send<S: Service>(connection: &mut Connection<'_, S>, mut reply: Outgoing) -> bool {
    if let Some(upgrade) = reply.take_upgrade() {
        return switch(connection, reply, &upgrade);
    }
    announce_end(connection, &mut reply);
    if queue(connection, &mut reply).is_err() {
        return wait_for_room(connection, reply);
    }
    if matches!(reply.body, Body::Channel(_)) {
        return push::begin(connection, reply);
    }
    if matches!(reply.body, Body::Reader(_)) && !queue_file(connection, &mut reply) {
        return false;
    }
    if reply.trailing().is_some() {
        return end_with_trailers(connection, &reply);
    }
    reply_done(connection, reply.request.keep_alive);
    true
}

/// Queues what ends a body in chunks, or in the way that its client has it. False: there is no
/// memory for that, and the reply breaks off.
#[cold]
pub(crate) fn end_with_trailers<S: Service>(
    connection: &mut Connection<'_, S>,
    reply: &Outgoing,
) -> bool {
    if reply.framing == ReplyFraming::Chunked
        && let Some(trailing) = reply.trailing()
        && connection.write(&trailing.last_chunk()).is_err()
    {
        break_off(connection, reply.framing);
        return false;
    }
    reply_done(connection, reply.request.keep_alive);
    true
}

/// Queues a body that is a file, after its head. False: it is none that this connection sends, and
/// the reply breaks off.
fn queue_file<S: Service>(connection: &mut Connection<'_, S>, reply: &mut Outgoing) -> bool {
    let queued = match std::mem::take(&mut reply.body) {
        Body::Reader(Reader {
            source: Source::File(body),
            ..
        }) => file_body::queue(&mut connection.io, *body).is_ok(),
        body => {
            discard_body(body);
            false
        }
    };
    debug_assert!(queued, "who has to read a body streams it");
    if !queued {
        break_off(connection, reply.framing);
    }
    queued
}

/// Queues constant words as the reply that is due, to this request, and the last one.
fn send_words<S: Service>(
    connection: &mut Connection<'_, S>,
    words: &'static Words,
    request: RequestMeta,
) -> bool {
    send(connection, Outgoing::words(words, request))
}

/// Gives the service what its worker has sent to its state on this thread.
#[inline]
pub(crate) fn pass_note<S: Service>(connection: &mut Connection<'_, S>, job: &mut Job<Http<S>>) {
    if !job.note.is_empty() {
        let turn = connection.turn();
        let service = &connection.protocol.service;
        service.response_ready(&mut connection.thread.service, turn, &mut job.note);
        job.discard_note();
    }
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
    let is_whole = job.state == State::Answered && job.chunk.is_none();
    let Some(mut reply) = job.reply.take() else {
        recycle(connection, job);
        break_off(connection, ReplyFraming::Chunked);
        return false;
    };
    pass_note(connection, &mut job);
    if is_whole && !reply.is_begun() {
        recycle(connection, job);
        return send(connection, reply);
    }
    if !reply.is_begun() {
        let is_long = reply.is_long_stream();
        if is_long && !connection.lasts(&mut job) {
            recycle(connection, job);
            return send_words(connection, REFUSAL, reply.request);
        }
        if is_long {
            stream_begins(connection);
        }
        announce_end(connection, &mut reply);
        if queue(connection, &mut reply).is_err() {
            connection.session.is_streaming = false;
            recycle(connection, job);
            return send_words(connection, REFUSAL, reply.request);
        }
    }
    let has_chunk = job.chunk.is_some();
    match job.chunk.take() {
        // To copy it would take another buffer of the size, perhaps from the reserve.
        Some(chunk) if chunk.capacity() <= GATHER_BYTES_MAX => connection.write_buffer(chunk),
        Some(chunk) => queue_buffer(connection, chunk),
        None => {}
    }
    if job.state == State::Answered {
        recycle(connection, job);
        connection.session.is_streaming = false;
        if reply.trailing().is_some() {
            return end_with_trailers(connection, &reply);
        }
        reply_done(connection, reply.request.keep_alive);
        return true;
    }
    if job.state != State::Streaming {
        recycle(connection, job);
        break_off(connection, reply.framing);
        return false;
    }
    let is_long = reply.is_long_stream();
    job.reply = Some(reply);
    if has_chunk {
        connection.session.due = Due::Stream(job);
        connection.notify_output_low();
    } else {
        // The worker found no buffer for a chunk.
        let wanted = if is_long {
            Wanted::Large
        } else {
            Wanted::Small
        };
        let part = job.part();
        connection.dispatch_with_memory(job, wanted, part);
    }
    false
}

/// Queues the last reply of HTTP, and hands the connection over after it.
fn switch<S: Service>(
    connection: &mut Connection<'_, S>,
    mut reply: Outgoing,
    upgrade: &Upgrade,
) -> bool {
    let has_room = match &reply.head {
        OutgoingHead::Bytes(head) => connection.io.reserve(head.len()).is_some(),
        _ => true,
    };
    let handed_over = match has_room {
        true => hand_over(connection, upgrade),
        false => Err(REFUSAL),
    };
    if let Err(words) = handed_over {
        return send_words(connection, words, reply.request);
    }
    let queued = queue(connection, &mut reply);
    debug_assert!(queued.is_ok(), "there is room for it");
    reply_done(connection, true);
    connection.session.stage = Stage::Switched;
    true
}

/// Hands the connection over after the reply that is due, or says what that reply is instead.
fn hand_over<S: Service>(
    connection: &mut Connection<'_, S>,
    upgrade: &Upgrade,
) -> Result<(), &'static Words> {
    let session = &*connection.session;
    // Nothing behind the request was taken for HTTP.
    let is_alone = session.awaits_reply && session.owed() == 1 && !session.is_uploading();
    let Some(Next::Connection(wish)) = upgrade.take().filter(|_| is_alone) else {
        return Err(FAILURE);
    };
    if session.stage != Stage::Head {
        return Err(HALF_CLOSED);
    }
    // In a drain the successor ends the connection, with its own goodbye.
    connection.hand_over(wish).map_err(|_| REFUSAL)
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
        let words = Outgoing::words(REFUSAL, job.request);
        recycle(connection, job);
        QueuedReply::Here(Box::new(words))
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

/// Decides whether the reply, whose head has no end yet, is the last of its connection. A server
/// that drains ends each connection with the first reply after which nothing is owed or on its way.
fn announce_end<S: Service>(connection: &mut Connection<'_, S>, reply: &mut Outgoing) {
    if !matches!(reply.head, OutgoingHead::Open(_)) {
        return;
    }
    let is_latest = connection.session.owed() == 1 && !connection.session.is_partial();
    if connection.leaving() && is_latest && connection.session.stage == Stage::Head {
        // What waits behind an upload was not looked at. It is for another connection to ask again.
        connection.session.lingers |= connection.session.awaits_reply;
        connection.session.stage = Stage::Over;
        connection.end_input();
    }
    reply.request.keep_alive &= !connection.session.owes_only_the_last();
    reply.request.keep_alive &= !connection.session.precedes_its_body();
}

/// Queues the head of the reply that is due, and its body where that is in memory.
///
/// # Errors
/// There is no room for the head, and nothing was queued.
fn queue<S: Service>(
    connection: &mut Connection<'_, S>,
    reply: &mut Outgoing,
) -> Result<(), NoRoom> {
    let with_head = reply.body_bytes();
    let appended = match std::mem::replace(&mut reply.head, OutgoingHead::QUEUED) {
        OutgoingHead::Queued { .. } => 0,
        OutgoingHead::Words(words) => {
            connection.write_static(words.text_for(reply.request).as_bytes());
            0
        }
        OutgoingHead::Open(head) => queue_open(connection, reply, head),
        OutgoingHead::Bytes(head) => queue_bytes(connection, reply, head)?,
    };
    count_reply(connection, reply.status);
    if connection.session.is_logged() {
        let body_bytes = with_head + appended;
        log(connection).begun(reply.status, body_bytes, reply.request_id());
    }
    match std::mem::take(&mut reply.body) {
        Body::Empty => {}
        Body::Bytes(bytes) => connection.write_held(bytes),
        Body::Static(bytes) => connection.write_static(bytes),
        Body::Pooled(buffer) => connection.write_buffer(buffer),
        Body::Payload(_) => debug_assert!(false, "what is in several parts became a stream"),
        body @ (Body::Reader(_) | Body::Channel(_)) => reply.body = body,
    }
    Ok(())
}

/// Queues a complete head, in one buffer with a short body, whose bytes it returns.
///
/// # Errors
/// There is no room for it; the reply has it again.
fn queue_bytes<S: Service>(
    connection: &mut Connection<'_, S>,
    reply: &mut Outgoing,
    mut head: Vec<u8>,
) -> Result<usize, NoRoom> {
    let body = reply.body.as_bytes();
    let body = body.filter(|body| body.len() <= SHARED_COPY_BYTES_MAX);
    let body = body.unwrap_or_default();
    let mut appended = 0;
    if let Some(buffer) = connection.io.reserve(head.len() + body.len()) {
        buffer.append(&head);
        appended = buffer.append(body);
    } else if connection.write(&head).is_err() {
        // It is more than one buffer holds, or there is no buffer.
        reply.head = OutgoingHead::Bytes(head);
        return Err(NoRoom);
    }
    if appended > 0 {
        drop_copied(reply);
    }
    if head.capacity() <= SCRATCH_KEPT_MAX {
        head.clear();
        connection.thread.scratch = head;
    }
    Ok(appended)
}

/// Drops a body that was copied after its head. One that needs no charge is prebuilt or guarded:
/// its drop runs no code of a program's, so no worker is woken for it.
fn drop_copied(reply: &mut Outgoing) {
    match reply.is_charged {
        true => drop(std::mem::take(&mut reply.body)),
        false => reply.discard_body(),
    }
}

/// Ends a head and queues it, in one buffer with a body that fits, whose bytes it returns.
fn queue_open<S: Service>(
    connection: &mut Connection<'_, S>,
    reply: &mut Outgoing,
    mut head: Buffer,
) -> usize {
    let wall = connection.turn().wall();
    let date = connection.thread.date.at(wall, reply.request.spoken);
    let mut out = Bounded::new(&mut head);
    encode::end_of_head(&mut out, date, reply.request);
    debug_assert!(out.fits(0), "the worker left room for the end of the head");
    let appended = match reply.body.as_bytes() {
        Some(body) if body.len() <= head.room() => head.append(body),
        _ => 0,
    };
    if appended > 0 {
        drop_copied(reply);
    }
    queue_buffer(connection, head);
    appended
}

/// Queues a buffer: as it is, or copied after other output where that saves a segment.
fn queue_buffer<S: Service>(connection: &mut Connection<'_, S>, buffer: Buffer) {
    let gathers = buffer.filled().len() <= GATHER_BYTES_MAX && connection.queued_bytes() > 0;
    if gathers && connection.write(buffer.filled()).is_ok() {
        return;
    }
    connection.write_buffer(buffer);
}
