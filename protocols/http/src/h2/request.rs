//! Requests of streams: from a head to the service, and bodies as they arrive.
//!
//! As in HTTP/1 a service is asked here first, where its plan says so, and workers get the rest. A
//! stream that finds no job or no memory is answered with 503 at once, where HTTP/1 leaves the
//! request in the input: what else has arrived on the connection must not wait for it.
//!
//! All data that has arrived is taken out of `h2` at once and charged; the windows are opened anew
//! for what was taken, but for an upload whose worker is busy: then its client has to wait.

use std::task::Poll;

use bytes::Bytes;
use flatpath::{NoRoom, Stall};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Version};

use super::bounds::{context, is_streamed};
use super::stream::{Home, Incoming, Stream};
use super::translate;
use crate::fault::Fault;
use crate::head::{Framing, Head, KnownHeader, RequestMeta, header_slots};
use crate::limits::{REPLY_BUFFER_BYTES, SCRATCH_KEPT_MAX, UPLOAD_PIECE_BYTES};
use crate::outgoing::Outgoing;
use crate::parse::{parse, parse_resolved};
use crate::pending_body::BodyMode;
use crate::reply::{Out, Reply};
use crate::scan::Scan;
use crate::service::{Place, Service, log_number};
use crate::state::{Connection, ThreadState, log};
use crate::terms::{Asked, asked_terms};
use crate::upload::{self, When};
use crate::{read, write};

/// Takes a request that has arrived. Its stream is returned as far as it has come.
pub(super) fn serve<S: Service>(
    connection: &mut Connection<'_, S>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Stream<S> {
    let (parts, body) = request.into_parts();
    let asks_tunnel = translate::asks_tunnel(&parts);
    let body = Some(body).filter(|body| asks_tunnel || !body.is_end_stream());
    let mut stream = Stream::new(respond, body, connection.turn());
    let mut text = std::mem::take(&mut connection.thread.h2.head);
    text.clear();
    let served = translate::request_head(&mut text, &parts);
    drop(parts);
    let served = served.and_then(|()| stream.take_head(connection, &text, asks_tunnel));
    if let Err(fault) = served {
        if stream.record.is_none() && connection.session.is_logged() {
            stream.record = Some(log(connection).of_unread_stream(&text));
        }
        stream.fault(connection, fault);
    }
    if text.capacity() <= SCRATCH_KEPT_MAX {
        connection.thread.h2.head = text;
    }
    stream
}

impl<S: Service> Stream<S> {
    fn take_head(
        &mut self,
        connection: &mut Connection<'_, S>,
        text: &[u8],
        asks_tunnel: bool,
    ) -> Result<(), Fault> {
        let limits = &connection.protocol.limits;
        let mut scan = Scan::new();
        scan.advance(text, limits)?.ok_or(Fault::RequestLine)?;
        let (mut copy, mut slots) = (Vec::new(), header_slots());
        let known_host = &connection.thread.host.name;
        match parse(scan.head(text, &mut copy), &mut slots, limits, known_host) {
            Ok(head) => self.take_parsed(connection, head, asks_tunnel),
            Err(Fault::DotSegments) => self.take_resolved(connection, text, asks_tunnel),
            Err(fault) => Err(fault),
        }
    }

    /// The same where the target has dot segments.
    #[cold]
    fn take_resolved(
        &mut self,
        connection: &mut Connection<'_, S>,
        text: &[u8],
        asks_tunnel: bool,
    ) -> Result<(), Fault> {
        let limits = &connection.protocol.limits;
        let (mut resolved, mut slots) = (Vec::new(), header_slots());
        let known_host = &connection.thread.host.name;
        let head = parse_resolved((text, &mut resolved), &mut slots, limits, known_host)?;
        self.take_parsed(connection, head, asks_tunnel)
    }

    // The one call that is not cold had better not copy the head.
    #[inline(always)]
    fn take_parsed(
        &mut self,
        connection: &mut Connection<'_, S>,
        mut head: Head<'_>,
        asks_tunnel: bool,
    ) -> Result<(), Fault> {
        head.version = Version::HTTP_2;
        if asks_tunnel {
            self.asked_tunnel = self.unread.take();
        }
        if self.unread.is_none() {
            head.framing = Framing::Empty;
        } else if head.framing == Framing::Empty && head.known(KnownHeader::ContentLength).is_none()
        {
            // RFC 9113 8.1.1 has no length for it, as for chunks of HTTP/1.1.
            head.framing = Framing::Chunked;
            head.expect_continue = head.known(KnownHeader::Expect).is_some();
        }
        if connection.session.is_logged() {
            self.record = Some(log(connection).of_stream(&head));
        }
        if let Some(fault) = read::foreign(connection, &mut head) {
            return Err(fault);
        }
        if let Some(record) = &mut self.record {
            record.logged_in(log_number(&connection.protocol.service, &head));
        }
        self.plan(connection, head)
    }

    /// Has the request answered here, or on its way to a worker.
    fn plan(
        &mut self,
        connection: &mut Connection<'_, S>,
        mut head: Head<'_>,
    ) -> Result<(), Fault> {
        let plan = connection.protocol.service.plan(&head);
        if let (Some(record), Some(route)) = (&mut self.record, plan.route) {
            record.found_by(route);
        }
        if plan.asks_peer {
            read::identify(connection, &mut head);
        }
        let has_body = self.unread.is_some();
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
            asked_terms(&connection.protocol.service, (&plan.place, &place), &head),
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
        connection: &mut Connection<'_, S>,
        (head, terms): (&Head<'_>, Asked<'_>),
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
        job.begin(self.id, request, Some(buffer));
        job.agree(terms, connection.turn());
        self.dispatch(connection, job);
        Ok(())
    }

    /// The request's body comes first.
    fn begin_body(
        &mut self,
        connection: &mut Connection<'_, S>,
        (head, terms): (&Head<'_>, Asked<'_>),
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
        connection: &mut Connection<'_, S>,
        (head, terms): (&Head<'_>, Asked<'_>),
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
        job.begin_upload(self.id, RequestMeta::of(head));
        job.agree(terms.without_time(), connection.turn());
        self.dispatch(connection, job);
        Ok(())
    }

    /// The body is read from now on. `None`: there is none.
    fn arrives(
        &mut self,
        connection: &mut Connection<'_, S>,
        head: &Head<'_>,
        mode: BodyMode,
    ) -> Option<&mut Incoming> {
        let body = self.unread.take()?;
        let mut pending = connection.thread.pending_body.pop().unwrap_or_default();
        pending.begin(RequestMeta::of(head), head, mode);
        if pending.owes_continue {
            let mut go_on = http::Response::new(());
            *go_on.status_mut() = http::StatusCode::CONTINUE;
            // A stream that is gone is found out when it is looked at.
            let _told = self.respond.send_informational(go_on);
            pending.owes_continue = false;
        }
        Some(self.incoming.insert(Incoming {
            body,
            pending,
            waiting: None,
            unreleased: 0,
            is_ended: false,
        }))
    }

    /// Takes what has arrived of the body. True: `h2` has something to write.
    ///
    /// # Errors
    /// There is no memory for it: what the connection has to wait for.
    pub(super) fn receive(&mut self, connection: &mut Connection<'_, S>) -> Result<bool, Stall> {
        if self.tunneled.is_some() {
            return self.receive_tunnel(connection);
        }
        let mut has_news = self.drop_unread(connection);
        while self.is_arriving()
            && let Some(incoming) = &mut self.incoming
        {
            let data = match incoming.waiting.take() {
                Some(data) => data,
                None => match incoming.body.poll_data(&mut context()) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Ok(data))) => data,
                    Poll::Ready(None) => {
                        incoming.is_ended = true;
                        break;
                    }
                    Poll::Ready(Some(Err(_))) => {
                        self.cut(connection);
                        return Ok(true);
                    }
                },
            };
            let length = incoming.pending.bytes.saturating_add(data.len() as u64);
            if !is_streamed(&incoming.pending) && length > incoming.pending.body_bytes_max {
                self.fault(connection, Fault::BodyTooLong);
                return Ok(true);
            }
            if incoming.gather(connection, &data).is_err() {
                incoming.waiting = Some(data);
                self.pass_piece(connection, When::Short)?;
                return Err(match self.job {
                    // What is with a worker now makes room when it is back.
                    Home::Away => Stall::Body,
                    _ => Stall::Memory,
                });
            }
            let turn = connection.turn();
            self.pace.received(data.len(), turn, connection.limits());
            has_news = true;
        }
        if let Some(incoming) = &self.incoming {
            match (is_streamed(&incoming.pending), incoming.is_ended) {
                (true, false) => self.pass_piece(connection, When::Enough)?,
                (true, true) => self.pass_piece(connection, When::Last)?,
                (false, true) => self.pass_whole(connection),
                (false, false) => {}
            }
        }
        Ok(has_news)
    }

    /// Takes what comes of a body that nothing reads, and opens the windows for more. True: `h2`
    /// has something to write.
    fn drop_unread(&mut self, connection: &Connection<'_, S>) -> bool {
        let mut has_news = false;
        while let Some(body) = &mut self.unread
            && let Poll::Ready(data) = body.poll_data(&mut context())
        {
            let Some(Ok(data)) = data else {
                self.unread = None;
                break;
            };
            // A stream that is gone has given them back already.
            let _released = body.flow_control().release_capacity(data.len());
            let turn = connection.turn();
            self.pace.received(data.len(), turn, connection.limits());
            has_news = true;
        }
        has_news
    }

    /// The body is complete: sends the request to the workers.
    fn pass_whole(&mut self, connection: &mut Connection<'_, S>) {
        let Ok((mut job, buffer)) = read::passage(connection) else {
            return self.refuse(connection);
        };
        let Some(incoming) = self.incoming.take() else {
            return write::recycle(connection, job);
        };
        let mut pending = incoming.pending;
        std::mem::swap(&mut job.builder, &mut pending.builder);
        *job.builder.request.body_mut() = pending.take_body();
        job.begin(self.id, pending.request, Some(buffer));
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
        connection: &mut Connection<'_, S>,
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
        incoming.release();
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
        connection: &mut Connection<'_, S>,
        data: &Bytes,
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
            self.release();
        }
        Ok(())
    }

    /// Opens the windows for what was taken.
    pub(super) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.unreleased);
        // A stream that is gone has given them back already.
        let _released = self.body.flow_control().release_capacity(bytes);
    }
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
