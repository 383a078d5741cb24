//! The reply of a stream: its head, and its body as the client's windows and the output have room.
//!
//! | body            | where it is until it is sent                                          |
//! |-----------------|-----------------------------------------------------------------------|
//! | in memory       | `front`, charged if it is long or has to wait                         |
//! | read by workers | one chunk in `front`; the next is read when all of that is sent       |
//! | fed             | with its sender; one piece at a time in `front`                       |
//! | of a tunnel     | with the tunnel; the same                                             |
//!
//! Trailers, if there are any, come after that with the end of the stream.
//!
//! Only what its client's windows have room for is sent (RFC 9113 section 5.2), and of each stream
//! so much at once that others have their turn.

use bytes::{Buf, Bytes};
use flatpath::memory::{Buffer, Wanted};
use flatpath::{Job, Stall};
use http::StatusCode;

use super::bounds::{SENT_AT_ONCE_BYTES, UNHELD_BYTES_MAX};
use super::hpack::put_field;
use super::link::Link;
use super::stream::{Home, Stream};
use super::wire::{self, Code};
use crate::connection::exchange::State;
use crate::connection::state::Http;
use crate::h1::write;
use crate::head::Spoken;
use crate::head::fault::Fault;
use crate::limits::SCRATCH_KEPT_MAX;
use crate::message::Body;
use crate::respond::encode::{self, ReplyFraming};
use crate::respond::outgoing::{Outgoing, OutgoingHead};
use crate::respond::sink::Bounded;
use crate::respond::words::REFUSAL;
use crate::service::Service;
use crate::streams::defer;
use crate::streams::feed::{Fed, Receiver};
use crate::takeover::tunnel::TunnelEnd;
use crate::takeover::upgrade::Next;
use crate::trailers::LateTrailers;

/// A reply whose head is sent.
pub(super) struct Sending {
    /// What comes next of the body.
    pub(super) front: Bytes,
    is_held: bool,
    pub(super) source: Source,
    /// The client's windows have no room for what is in front.
    is_blocked: bool,
    /// What comes after all of it.
    trailing: Option<Box<LateTrailers>>,
}

/// What comes after what is in front.
pub(super) enum Source {
    /// The end.
    End,
    /// What a worker reads.
    Job,
    /// What is fed from elsewhere, and what is left of its length.
    Feed(Receiver, ReplyFraming),
    /// What a tunnel sends.
    Tunnel,
    /// Nothing, though it is not the end: the stream breaks off.
    Broken,
}

/// A pooled buffer as shared bytes: it goes back to its pool with the last of them.
struct Filled(Buffer);

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.0.filled()
    }
}

impl Sending {
    fn put(&mut self, front: Bytes, is_held: bool) {
        (self.front, self.is_held) = (front, is_held);
    }

    /// Puts what is charged already if it is long.
    fn put_next(&mut self, front: Bytes) {
        let is_held = front.len() > UNHELD_BYTES_MAX;
        self.put(front, is_held);
    }
}

impl<S: Service> Stream<S> {
    /// Whether this reply would open a tunnel that there is not: any 2xx does (RFC 9110 section
    /// 9.3.6).
    fn opens_no_tunnel(&self, reply: &Outgoing) -> bool {
        let status = StatusCode::from_u16(reply.status);
        self.asked_tunnel.is_some()
            && !reply.is_upgrade()
            && status.is_ok_and(|status| status.is_success())
    }

    /// Sends a reply that was made on this thread, or a whole one of a worker.
    pub(super) fn reply(&mut self, connection: &mut Link<'_, '_, S>, mut reply: Outgoing) {
        if let Some(pending) = reply.take_pending() {
            let Some(mut job) = connection.job() else {
                return self.begin(connection, Outgoing::words(REFUSAL, reply.request));
            };
            job.begin_deferred(self.flow.id, reply.request, pending);
            return self.defer(connection, job);
        }
        if self.opens_no_tunnel(&reply) {
            return self.fault(connection, Fault::Tunnel);
        }
        if matches!(reply.body, Body::Reader(_)) {
            let Some(mut job) = connection.job() else {
                // The handler has run and cannot run again: the client has to retry.
                return self.begin(connection, Outgoing::words(REFUSAL, reply.request));
            };
            job.begin_reply(self.flow.id, reply);
            return match job.state {
                State::Streaming => self.dispatch(connection, job),
                _ => self.send_job(connection, job),
            };
        }
        let is_charged = match &mut reply.body {
            Body::Bytes(bytes) if !reply.is_charged && bytes.len() <= UNHELD_BYTES_MAX => {
                *bytes = flatpath::guarded(std::mem::take(bytes));
                true
            }
            _ => write::charge_body(&mut connection.io, &mut reply).is_ok(),
        };
        match is_charged {
            true => self.begin(connection, reply),
            false => self.begin(connection, Outgoing::words(REFUSAL, reply.request)),
        }
    }

    /// Sends what a job has brought.
    pub(super) fn send_job(&mut self, connection: &mut Link<'_, '_, S>, mut job: Job<Http<S>>) {
        let Some(mut reply) = job.reply.take() else {
            write::recycle(connection, job);
            return self.reset(connection, Code::Internal);
        };
        if !reply.is_begun() && self.opens_no_tunnel(&reply) {
            write::recycle(connection, job);
            return self.fault(connection, Fault::Tunnel);
        }
        write::pass_note(connection, &mut job);
        if job.state == State::Answered && job.chunk.is_none() && !reply.is_begun() {
            write::recycle(connection, job);
            return self.begin(connection, reply);
        }
        let is_long = reply.is_long_stream();
        if !reply.is_begun() {
            if is_long && !connection.lasts(&mut job) {
                write::recycle(connection, job);
                return self.begin(connection, Outgoing::words(REFUSAL, reply.request));
            }
            let head = std::mem::replace(&mut reply.head, OutgoingHead::QUEUED);
            let mut begun = Outgoing::new(reply.status, head, reply.request);
            begun.take_special(&mut reply);
            self.begin_with(connection, begun, true);
        }
        let Some(sending) = &mut self.sending else {
            return write::recycle(connection, job);
        };
        let has_chunk = job.chunk.is_some();
        if let Some(chunk) = job.chunk.take() {
            sending.put(Bytes::from_owner(Filled(chunk)), true);
        }
        match job.state {
            State::Answered => {
                sending.source = Source::End;
                write::recycle(connection, job);
            }
            State::Streaming => {
                sending.source = Source::Job;
                job.reply = Some(reply);
                if has_chunk {
                    self.job = Home::Here(job);
                } else {
                    // The worker found no buffer for a chunk.
                    let wanted = match is_long {
                        true => Wanted::Large,
                        false => Wanted::Small,
                    };
                    self.job = Home::Away;
                    let part = job.part();
                    connection.dispatch_with_memory(job, wanted, part);
                }
            }
            _ => {
                sending.source = Source::Broken;
                write::recycle(connection, job);
            }
        }
    }

    /// Sends the head of a reply, and takes its body to be sent.
    fn begin(&mut self, connection: &mut Link<'_, '_, S>, reply: Outgoing) {
        self.begin_with(connection, reply, false);
    }

    /// The same; `has_more` where a body follows that is not in the reply.
    fn begin_with(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        mut reply: Outgoing,
        mut has_more: bool,
    ) {
        let mut status = reply.status;
        let next = reply.take_upgrade().and_then(|upgrade| upgrade.take());
        let tunnel = match (next, self.asked_tunnel.take()) {
            (Some(Next::Stream(tunnel)), Some(early)) => Some((tunnel, early)),
            (_, early) => {
                let early = early.iter().flatten().map(Bytes::len).sum();
                connection.core.release(Some(&mut self.flow), early);
                None
            }
        };
        if tunnel.is_some() {
            (status, has_more) = (200, true);
        } else if (100..200).contains(&status) {
            return self.reset(connection, Code::Internal);
        }
        write::count_reply(connection, status);
        self.sent.status = status;
        if let Some(record) = &mut self.record {
            record.named(reply.request_id());
        }
        let body = std::mem::take(&mut reply.body);
        let trailing = reply.take_trailing();
        let has_more = has_more || trailing.is_some();
        let has_body = reply.body_bytes() > 0 || !matches!(body, Body::Empty) || has_more;
        let is_end = self.is_head || !has_body;
        let rest = put_head(connection, self.flow.id, &mut reply, is_end);
        self.sent.is_complete = is_end;
        let (front, source) = match body {
            Body::Bytes(bytes) => (bytes, Source::End),
            Body::Static(bytes) => (Bytes::from_static(bytes), Source::End),
            Body::Pooled(buffer) => (Bytes::from_owner(Filled(buffer)), Source::End),
            Body::Channel(mut receiver) => {
                if connection.draining() {
                    receiver.drain();
                }
                (rest, Source::Feed(receiver, reply.framing))
            }
            _ if tunnel.is_some() => (rest, Source::Tunnel),
            Body::Empty | Body::Payload(_) | Body::Reader(_) => (rest, Source::End),
        };
        let is_whole = matches!(source, Source::End) && trailing.is_none() && !has_more;
        if is_whole && (is_end || self.send_whole(connection, &front)) {
            return;
        }
        let sending = self.sending.insert(Sending {
            front: Bytes::new(),
            is_held: false,
            source,
            is_blocked: false,
            trailing,
        });
        sending.put_next(front);
        if let Some((tunnel, early)) = tunnel {
            self.begin_tunnel(connection, tunnel, early);
        }
    }

    /// Sends a body with its head, if that is its turn: so most replies end here, and keep nothing.
    fn send_whole(&mut self, connection: &mut Link<'_, '_, S>, body: &Bytes) -> bool {
        let room = connection.core.send_room(&self.flow);
        let has_room = body.len() <= room.min(SENT_AT_ONCE_BYTES) && !connection.output_is_full();
        let is_sent = has_room && connection.send_data(&mut self.flow, body, true).is_ok();
        if is_sent {
            self.sent.body_bytes += body.len() as u64;
            self.sent.is_complete = true;
        }
        is_sent
    }

    /// Sends as much as there is and has room, at most about so much. Returns how much was sent;
    /// the end counts as a byte.
    ///
    /// # Errors
    /// There is no memory for the next piece of what is fed, or for the output.
    pub(super) fn send(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        bytes_max: usize,
    ) -> Result<usize, Stall> {
        let mut sent = 0;
        while !self.sent.is_complete && sent < bytes_max && !connection.output_is_full() {
            let Some(sending) = &mut self.sending else {
                break;
            };
            if sending.front.is_empty() {
                match &mut sending.source {
                    Source::End => {}
                    Source::Broken => {
                        self.reset(connection, Code::Internal);
                        return Ok(sent.max(1));
                    }
                    Source::Tunnel => {
                        match self.next_of_tunnel(connection) {
                            Some(bytes) => {
                                if let Some(sending) = &mut self.sending {
                                    sending.put_next(bytes);
                                }
                            }
                            None => match self.tunnel_end() {
                                None => return self.tunnel_waits().map(|()| sent),
                                Some(TunnelEnd::AfterOutput) => self.ends(),
                                Some(TunnelEnd::Reset) => {
                                    // RFC 8441 section 5: as a connection is reset.
                                    self.reset(connection, Code::Cancel);
                                    return Ok(sent.max(1));
                                }
                            },
                        }
                        continue;
                    }
                    Source::Job => {
                        if let Home::Here(job) = std::mem::take(&mut self.job) {
                            let awaited = defer::send(connection, job);
                            debug_assert!(awaited.is_none(), "its reply has begun");
                        }
                        self.job = Home::Away;
                        break;
                    }
                    Source::Feed(receiver, framing) => {
                        match receiver.take(&mut connection.io, framing) {
                            Ok(piece) => sending.put_next(piece),
                            Err(Fed::Later) => break,
                            Err(Fed::NoMemory) => return Err(Stall::Memory),
                            Err(Fed::Complete) => {
                                sending.source = match framing {
                                    ReplyFraming::Length(left) if *left > 0 => Source::Broken,
                                    _ => Source::End,
                                };
                            }
                            Err(Fed::Aborted) => sending.source = Source::Broken,
                        }
                        continue;
                    }
                }
            }
            match self.send_front(connection)? {
                0 => break,
                bytes => sent += bytes,
            }
        }
        Ok(sent)
    }

    /// More urgent streams send: what its client's windows have room for waits for them, and no
    /// longer for the client.
    pub(super) fn waits_for_others(&mut self, connection: &Link<'_, '_, S>) {
        if let Some(sending) = &mut self.sending {
            sending.is_blocked &= connection.core.send_room(&self.flow) == 0;
        }
    }

    /// Nothing comes after what is in front.
    fn ends(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.source = Source::End;
        }
    }

    /// Sends of what is in front one frame, if the windows have room, and the end after the last of
    /// it. Returns how much it was, as [`Stream::send`].
    fn send_front(&mut self, connection: &mut Link<'_, '_, S>) -> Result<usize, Stall> {
        let Some(sending) = &mut self.sending else {
            return Ok(0);
        };
        let room = connection.core.send_room(&self.flow);
        let bytes = room.min(sending.front.len());
        if bytes == 0 && !sending.front.is_empty() {
            self.wait_for_window(connection);
            return Ok(0);
        }
        let is_end = bytes == sending.front.len() && matches!(sending.source, Source::End);
        let trailers = match is_end {
            true => sending.trailing.as_deref().and_then(trailers_block),
            false => None,
        };
        let piece = sending.front.slice(..bytes);
        if bytes > 0 || trailers.is_none() {
            let is_last = is_end && trailers.is_none();
            let sent = connection.send_data(&mut self.flow, &piece, is_last);
            sent.map_err(|_| Stall::Memory)?;
        }
        if let Some(block) = trailers {
            wire::put_block(&mut connection.core.out, self.flow.id, &block, true);
        }
        sending.front.advance(bytes);
        sending.is_blocked = false;
        self.sent.body_bytes += bytes as u64;
        self.sent.is_complete = is_end;
        Ok(bytes.max(1))
    }

    /// The client's windows have no room. What has to wait is charged.
    fn wait_for_window(&mut self, connection: &mut Link<'_, '_, S>) {
        let Some(sending) = &mut self.sending else {
            return;
        };
        sending.is_blocked = true;
        if sending.is_held {
            return;
        }
        match connection.io.hold(std::mem::take(&mut sending.front)) {
            Ok(held) => sending.put(held, true),
            Err(front) => {
                // There is no memory for what a client does not take.
                flatpath::discard_bytes(front);
                self.reset(connection, Code::EnhanceYourCalm);
            }
        }
    }

    /// Shows both ends of a stream of events that the other is there.
    pub(super) fn keep_alive(&mut self) {
        if let Some(sending) = &mut self.sending
            && sending.front.is_empty()
            && let Source::Feed(receiver, framing) = &sending.source
            && !matches!(framing, ReplyFraming::Length(_))
            && let Some(words) = receiver.keep_alive()
        {
            sending.put(Bytes::from_static(words), true);
        }
    }

    /// Whether its client has to open a window.
    pub(super) fn is_blocked(&self) -> bool {
        self.sending
            .as_ref()
            .is_some_and(|sending| sending.is_blocked)
    }

    /// Whether it is a stream of events that may rest.
    pub(super) fn is_pushed(&self) -> bool {
        let source = self.sending.as_ref().map(|sending| &sending.source);
        matches!(source, Some(Source::Feed(receiver, _)) if receiver.keep_alive().is_some())
    }

    /// The server drains: a sender is told, and may end the stream.
    pub(super) fn drain(&mut self, connection: &mut Link<'_, '_, S>) {
        self.call_tunnel(connection, |tunnel, stream| tunnel.draining(stream));
        if let Some(Sending {
            source: Source::Feed(receiver, _),
            ..
        }) = &mut self.sending
        {
            receiver.drain();
        }
    }
}

/// What comes after a body as a block, if there is something.
#[cold]
fn trailers_block(trailing: &LateTrailers) -> Option<Vec<u8>> {
    let mut block = Vec::new();
    for (name, value) in trailing.fields() {
        put_field(&mut block, name.as_str().as_bytes(), value.as_bytes());
    }
    (!block.is_empty()).then_some(block)
}

/// Sends the head of a reply, and takes what of the body stands with it.
fn put_head<S: Service>(
    connection: &mut Link<'_, '_, S>,
    stream: u32,
    reply: &mut Outgoing,
    is_end: bool,
) -> Bytes {
    let out = &mut connection.core.out;
    match std::mem::replace(&mut reply.head, OutgoingHead::QUEUED) {
        OutgoingHead::Queued { .. } => {
            debug_assert!(false, "no reply is sent twice");
            Bytes::new()
        }
        OutgoingHead::Words(words) => {
            let block = &mut connection.connection.thread.h2.block;
            block.clear();
            words.put_block(block);
            wire::put_block(out, stream, block, is_end);
            match is_end {
                true => Bytes::new(),
                false => Bytes::from_static(words.body.as_bytes()),
            }
        }
        OutgoingHead::Bytes(mut bytes) => {
            wire::put_block(out, stream, &bytes, is_end);
            if bytes.capacity() <= SCRATCH_KEPT_MAX {
                bytes.clear();
                connection.thread.scratch = bytes;
            }
            Bytes::new()
        }
        OutgoingHead::Open(mut block) => {
            let wall = connection.connection.io.turn().wall();
            let date = &mut connection.connection.thread.date;
            let mut end = Bounded::new(&mut block);
            encode::end_of_head(&mut end, date.at(wall, Spoken::Http2), reply.request);
            debug_assert!(end.fits(0), "the worker left room for the end of the head");
            wire::put_block(out, stream, block.filled(), is_end);
            Bytes::new()
        }
    }
}
