//! Requests of streams: from a head to the service, and bodies as they arrive.
//!
//! As in HTTP/1 a service is asked here first, where its plan says so, and workers get the rest. A
//! stream that finds no job or no memory is answered with 503 at once, where HTTP/1 leaves the
//! request in the input: what else has arrived on the connection must not wait for it.
//!
//! Data is charged as it arrives, or stays in the input; the windows are opened anew
//! for what was taken, but for an upload whose worker is busy: then its client has to wait.

use std::collections::VecDeque;

use flatpath::{NoRoom, Stall};

use super::bounds::is_streamed;
use super::fields::{ADDED, Asked, Refusal};
use super::flow::Flow;
use super::hpack::{Field, FieldList, put_status};
use super::link::Link;
use super::stream::{Home, Incoming, Stream};
use super::wire::{self, Code};
use crate::dots;
use crate::fault::Fault;
use crate::head::{Framing, Head, KnownHeader, RequestMeta};
use crate::limits::{REPLY_BUFFER_BYTES, UPLOAD_PIECE_BYTES};
use crate::outgoing::Outgoing;
use crate::pending_body::BodyMode;
use crate::reply::{Out, Reply};
use crate::service::{Place, Service, log_number};
use crate::state::{Connection, ThreadState, log};
use crate::target::path_range;
use crate::terms;
use crate::upload::{self, When};
use crate::{read, write};

/// Headers for which there is room at once: nearly all requests have fewer.
const HEADERS_USUAL: usize = 32;

/// Takes a request that has arrived. Its stream is returned as far as it has come.
///
/// # Errors
/// It is malformed, and has no stream.
pub(super) fn serve<S: Service>(
    connection: &mut Link<'_, '_, S>,
    list: &mut FieldList,
    flow: Flow,
) -> Result<Stream<S>, Code> {
    // RFC 9113 8.2.3: "If there are multiple Cookie header fields after decompression, these MUST
    // be concatenated into a single octet string using the two-octet delimiter of 0x3b, 0x20".
    let cookies = list.join(b"cookie", b"; ");
    let list = &*list;
    let mut stream = Stream::new(flow, connection.turn());
    let asked = match Asked::of(list) {
        Ok(asked) => asked,
        // What is missing may be beyond the bounds.
        Err(_) if list.is_over() => Asked::default(),
        Err(_) => return Err(Code::Protocol),
    };
    let served = match list.is_over() {
        true => Err(Fault::HeadersTooLong.into()),
        false => stream.take_asked(connection, &asked, (list, cookies)),
    };
    match served {
        Ok(()) => {}
        Err(Refusal::Malformed) => return Err(Code::Protocol),
        Err(Refusal::Fault(fault)) => {
            if stream.record.is_none() && connection.session.is_logged() {
                stream.record = Some(log(connection).of_unread_stream(&asked.line()));
            }
            stream.fault(connection, fault);
        }
    }
    Ok(stream)
}

impl<S: Service> Stream<S> {
    fn take_asked(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        asked: &Asked<'_>,
        fields: (&FieldList, Option<Field>),
    ) -> Result<(), Refusal> {
        let count = fields.0.len() + ADDED;
        let mut few = [httparse::EMPTY_HEADER; HEADERS_USUAL];
        let mut many = Vec::new();
        let slots = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, httparse::EMPTY_HEADER);
                &mut many[..]
            }
        };
        let limits = &connection.protocol.limits;
        let known_host = &connection.thread.host.name;
        let target = asked.target()?;
        let resolved;
        let target = match dots::are_none(&target[path_range(target)]) {
            true => target,
            false => {
                resolved = without_dots(target)?;
                &resolved
            }
        };
        let head = asked.head(fields, target, slots, limits, known_host)?;
        self.take_parsed(connection, head, asked.asks_tunnel())
    }

    // The one call that is not cold had better not copy the head.
    #[inline(always)]
    fn take_parsed(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        mut head: Head<'_>,
        asks_tunnel: bool,
    ) -> Result<(), Refusal> {
        let has_length = head.known(KnownHeader::ContentLength).is_some();
        let announced = match head.framing {
            _ if !has_length || asks_tunnel => None,
            Framing::Length(length) => Some(length),
            _ => Some(0),
        };
        let is_right = self.flow.announced(announced);
        is_right.map_err(|_| Refusal::Malformed)?;
        if asks_tunnel {
            self.asked_tunnel = Some(VecDeque::new());
        }
        if !self.is_unread() {
            head.framing = Framing::Empty;
        } else if head.framing == Framing::Empty && !has_length {
            // RFC 9113 8.1.1 has no length for it, as for chunks of HTTP/1.1.
            head.framing = Framing::Chunked;
            head.expect_continue = head.known(KnownHeader::Expect).is_some();
        }
        if connection.session.is_logged() {
            self.record = Some(log(connection).of_stream(&head));
        }
        if let Some(fault) = read::foreign(connection, &mut head) {
            return Err(fault.into());
        }
        if let Some(record) = &mut self.record {
            record.logged_in(log_number(&connection.protocol.service, &head));
        }
        Ok(self.plan(connection, head)?)
    }

    /// Has the request answered here, or on its way to a worker.
    fn plan(&mut self, connection: &mut Link<'_, '_, S>, mut head: Head<'_>) -> Result<(), Fault> {
        let plan = connection.protocol.service.plan(&head);
        if let (Some(record), Some(route)) = (&mut self.record, plan.route) {
            record.found_by(route);
        }
        if plan.asks_peer {
            read::identify(connection, &mut head);
        }
        let has_body = self.is_unread();
        let request = RequestMeta::of(&head);
        let mut place = plan.place;
        if let Place::Inline = place {
            match answer_inline(connection, &head, request) {
                Ok(reply) => {
                    self.reply(connection, reply);
                    return Ok(());
                }
                Err(elsewhere) => place = elsewhere,
            }
        }
        if let Place::Prompt(right) = place
            && !has_body
            && let Some(reply) = read::try_promptly(connection, &head, request, right)
        {
            self.reply(connection, reply);
            return Ok(());
        }
        let asked = (
            &head,
            terms::asked_terms(&connection.protocol.service, (&plan.place, &place), &head),
        );
        if !has_body {
            return self.pass_on(connection, asked, request);
        }
        // What is answered from the head alone comes before anything that is said of the body.
        let of_listener = connection.protocol.limits.body_bytes_max;
        match plan.body.bytes_max(of_listener, &head)? {
            Some(bytes_max) => self.begin_body(connection, asked, bytes_max),
            None => self.begin_upload(connection, asked),
        }
    }

    /// Sends a request without a body to the workers.
    fn pass_on(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        (head, terms): (&Head<'_>, terms::Asked<'_>),
        request: RequestMeta,
    ) -> Result<(), Fault> {
        let Ok((mut job, buffer)) = read::passage(connection) else {
            self.refuse(connection);
            return Ok(());
        };
        if let Err(fault) = job.builder.fill(head, &mut connection.thread.names) {
            write::recycle(connection, job);
            return Err(fault);
        }
        let terms = self.agree(connection, terms, &mut job.builder);
        job.begin(self.flow.id, request, Some(buffer));
        job.agree(terms, connection.turn());
        self.dispatch(connection, job);
        Ok(())
    }

    /// The request's body comes first.
    fn begin_body(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        (head, terms): (&Head<'_>, terms::Asked<'_>),
        bytes_max: u64,
    ) -> Result<(), Fault> {
        let Some(incoming) = self.arrives(connection, head, BodyMode::Buffered) else {
            return Ok(());
        };
        incoming.pending.body_bytes_max = bytes_max;
        let names = &mut connection.thread.names;
        incoming.pending.builder.fill(head, names)?;
        let mut builder = std::mem::take(&mut incoming.pending.builder);
        let terms = self.agree(connection, terms, &mut builder);
        if let Some(incoming) = &mut self.incoming {
            (incoming.pending.builder, incoming.pending.terms) = (builder, terms);
        }
        Ok(())
    }

    /// Lets a worker open a request whose body is taken piece by piece.
    fn begin_upload(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        (head, terms): (&Head<'_>, terms::Asked<'_>),
    ) -> Result<(), Fault> {
        let Some(mut job) = connection.job() else {
            self.refuse(connection);
            return Ok(());
        };
        if !connection.lasts(&mut job) {
            write::recycle(connection, job);
            self.refuse(connection);
            return Ok(());
        }
        if let Err(fault) = job.builder.fill(head, &mut connection.thread.names) {
            write::recycle(connection, job);
            return Err(fault);
        }
        let terms = self.agree(connection, terms, &mut job.builder);
        self.arrives(connection, head, BodyMode::Streamed);
        job.begin_upload(self.flow.id, RequestMeta::of(head));
        job.agree(terms.without_time(), connection.turn());
        self.dispatch(connection, job);
        Ok(())
    }

    /// The body is read from now on. `None`: there is none.
    fn arrives(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        head: &Head<'_>,
        mode: BodyMode,
    ) -> Option<&mut Incoming> {
        if self.flow.is_received {
            return None;
        }
        let mut pending = connection.thread.pending_body.pop().unwrap_or_default();
        pending.begin(RequestMeta::of(head), head, mode);
        if pending.owes_continue {
            let mut block = Vec::new();
            put_status(&mut block, 100);
            wire::put_block(&mut connection.core.out, self.flow.id, &block, false);
            pending.owes_continue = false;
        }
        Some(self.incoming.insert(Incoming {
            pending,
            unreleased: 0,
        }))
    }

    /// Takes what has arrived of the body, all of it or nothing.
    ///
    /// # Errors
    /// There is no memory for it: what the connection has to wait for.
    pub(super) fn take_data(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        data: &[u8],
    ) -> Result<(), Stall> {
        if self.is_cut {
            connection.core.release(None, data.len());
            return Ok(());
        }
        if self.tunneled.is_some() || self.asked_tunnel.is_some() {
            return self.take_tunnel_data(connection, data);
        }
        if let Some(incoming) = &mut self.incoming {
            let length = incoming.pending.bytes.saturating_add(data.len() as u64);
            if !is_streamed(&incoming.pending) && length > incoming.pending.body_bytes_max {
                self.fault(connection, Fault::BodyTooLong);
            } else if incoming.gather(connection, &mut self.flow, data).is_err() {
                self.pass_piece(connection, When::Short)?;
                return Err(match self.job {
                    // What is with a worker now makes room when it is back.
                    Home::Away => Stall::Body,
                    _ => Stall::Memory,
                });
            }
        }
        if self.incoming.is_none() && !self.is_cut {
            // Nothing reads it. Of a stream that was reset just now nothing is left.
            connection.core.release(Some(&mut self.flow), data.len());
        }
        let turn = connection.turn();
        self.pace.received(data.len(), turn, connection.limits());
        Ok(())
    }

    /// Passes on what has arrived.
    ///
    /// # Errors
    /// There is no memory for what comes of it: what the connection has to wait for.
    pub(super) fn receive(&mut self, connection: &mut Link<'_, '_, S>) -> Result<(), Stall> {
        if self.tunneled.is_some() {
            return self.receive_tunnel(connection);
        }
        let Some(incoming) = &self.incoming else {
            return Ok(());
        };
        match (is_streamed(&incoming.pending), self.flow.is_received) {
            (true, false) => self.pass_piece(connection, When::Enough),
            (true, true) => self.pass_piece(connection, When::Last),
            (false, true) => {
                self.pass_whole(connection);
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }

    /// The body is complete: sends the request to the workers.
    fn pass_whole(&mut self, connection: &mut Link<'_, '_, S>) {
        let Ok((mut job, buffer)) = read::passage(connection) else {
            return self.refuse(connection);
        };
        let Some(incoming) = self.incoming.take() else {
            return write::recycle(connection, job);
        };
        let mut pending = incoming.pending;
        std::mem::swap(&mut job.builder, &mut pending.builder);
        *job.builder.request.body_mut() = pending.take_body();
        job.begin(self.flow.id, pending.request, Some(buffer));
        job.agree(pending.terms, connection.turn());
        connection.thread.recycle_pending_body(pending);
        self.dispatch(connection, job);
    }

    /// Sends what has gathered of an upload to its worker, if that can take it and it is worth one.
    ///
    /// # Errors
    /// There is no memory for the head of the reply, which the last piece brings.
    pub(super) fn pass_piece(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        when: When,
    ) -> Result<(), Stall> {
        let (Home::Here(job), Some(incoming)) = (&mut self.job, &mut self.incoming) else {
            return Ok(());
        };
        let is_last = when == When::Last;
        if !job.is_receiving() || !upload::is_enough(connection, &incoming.pending.piece, when) {
            return Ok(());
        }
        if is_last && job.buffer.is_none() {
            let buffer = connection.io.pool().take(REPLY_BUFFER_BYTES);
            job.buffer = Some(buffer.ok_or(Stall::Memory)?);
        }
        if let Some(upload) = &mut job.upload {
            upload.piece = std::mem::take(&mut incoming.pending.piece);
            upload.is_last = is_last;
        }
        incoming.release(connection, &mut self.flow);
        if is_last {
            self.drop_body(connection);
        }
        if let Home::Here(job) = std::mem::take(&mut self.job) {
            self.dispatch(connection, job);
        }
        Ok(())
    }
}

impl Incoming {
    /// Keeps a copy of data, all of it or nothing.
    fn gather<S: Service>(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        flow: &mut Flow,
        data: &[u8],
    ) -> Result<(), NoRoom> {
        let pending = &mut *self.pending;
        if is_streamed(pending) {
            connection.copy(data, &mut pending.piece)?;
        } else {
            let pool = connection.pool();
            pending.gathered.append(pool, data, 0)?;
        }
        pending.bytes += data.len() as u64;
        self.unreleased += data.len();
        if self.pending.piece.len() <= UPLOAD_PIECE_BYTES {
            self.release(connection, flow);
        }
        Ok(())
    }

    /// Opens the windows for what was taken.
    pub(super) fn release<S: Service>(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        flow: &mut Flow,
    ) {
        let bytes = std::mem::take(&mut self.unreleased);
        connection.core.release(Some(flow), bytes);
    }
}

/// A target without its dot segments.
#[cold]
fn without_dots(target: &str) -> Result<String, Fault> {
    let range = path_range(target);
    let path = dots::without_dot_segments(&target[range.clone()])?;
    Ok([&target[..range.start], &path, &target[range.end..]].concat())
}

/// Lets the service answer here and now; or it says where else the request is answered.
fn answer_inline<'a, S: Service>(
    connection: &mut Connection<'a, S>,
    head: &Head<'_>,
    request: RequestMeta,
) -> Result<Outgoing, Place<'a>> {
    let turn = connection.turn();
    let ThreadState {
        service: thread,
        scratch,
        date,
        ..
    } = &mut *connection.thread;
    let reply = Reply::new(Out::scratch(scratch), date.at(turn.wall()), request);
    let service = &connection.protocol.service;
    read::written(head, reply, |reply| {
        service.inline(thread, turn, head, reply)
    })
}
