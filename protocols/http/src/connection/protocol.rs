//! HTTP/1.1 as the engine's [`Protocol`]: from bytes that arrive to services and back.
//!
//! ```text
//! received → read: head ─► inline service ────────────────────► write: queue
//!                    └─► (body) ─► job ─► worker: head, chunk ─► write: in order
//!                                   ▲                                │ the next chunk
//!                                   └─ OutputLow ◄─ room in output ◄─┘
//! ```
//!
//! Replies go out in the order of their requests. An inline service is asked only when no reply is
//! owed; a request after one that is with a worker goes to the workers too.
//!
//! Each method is a call of the engine for one connection. Most end with `conclude`, which sets the
//! phase that deadlines follow.

use bytes::Bytes;
use flatpath::access_log::LogEnd;
use flatpath::{Event, Job, ListenerOptions, Phase, Protocol, Received, Stall, WorkerScope};

use crate::connection::client::{Client, Known};
use crate::connection::exchange::Exchange;
use crate::connection::records::Records;
use crate::connection::refuse;
use crate::connection::state::{Connection, Due, Http, Session, Stage, Step, ThreadState, log};
use crate::connection::upload;
use crate::h1::read;
use crate::h1::write;
use crate::head::fault::{self, Fault};
use crate::respond::words::REFUSAL;
use crate::service::terms::WorkerParts;
use crate::service::{Opening, Service};
use crate::streams::defer;
use crate::streams::passage::Incoming;
use crate::streams::push;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl<S: Service> Protocol for Http<S> {
    type ThreadState = ThreadState<S>;
    type Session = Session<S>;
    type Job = Exchange;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            name: "http",
            // RFC 9112 section 9: the client speaks first, and many connections carry one request.
            defer_accept: true,
            region: self.service.region(),
            refusal: Bytes::from_static(REFUSAL.text.as_bytes()),
            logs_requests: true,
            alpn: self.alpn(),
            parts: WorkerParts::of(&self.service).list(),
            request_classes: &["1xx", "2xx", "3xx", "4xx", "5xx"],
            refusal_reasons: &fault::REASONS,
            ..ListenerOptions::default()
        }
    }

    fn received(&self, connection: &mut Connection<'_, S>, input: &[u8]) -> Received {
        let (mut used, mut blocked) = (0, None);
        let first = connection.session.next_request;
        // Both may have waited for memory.
        match &connection.session.due {
            Due::Fed(_) => push::resume(connection),
            Due::Waiting(_) => {
                if !write::retry(connection) {
                    let on = Stall::Memory;
                    return Received::Blocked { consumed: 0, on };
                }
            }
            Due::Nothing | Due::Upload(_) | Due::Stream(_) => {}
            #[cfg(feature = "http2")]
            Due::Http2(_) => {}
        }
        loop {
            let step = match connection.session.stage {
                Stage::Head => read::take_head(connection, &input[used..]),
                Stage::Body => read::take_body(connection, &input[used..]),
                #[cfg(feature = "http2")]
                Stage::Http2 => return crate::h2::received(connection, &input[used..]).after(used),
                Stage::Over | Stage::Closed => break,
                // What follows is the next protocol's.
                Stage::Switched => return Received::NeedMore { consumed: used },
            };
            match step {
                Step::On(bytes) => used += bytes,
                Step::NeedMore(bytes) => {
                    used += bytes;
                    break;
                }
                Step::Blocked(bytes, on) => {
                    used += bytes;
                    blocked = Some(on);
                    break;
                }
            }
        }
        if connection.session.next_request != first {
            // The time of the next head begins now, though this phase may have been the last one.
            connection.phase(Phase::Work);
        }
        conclude(connection);
        match connection.session.stage {
            Stage::Over if used < input.len() => {
                read::took_more(connection);
                used = input.len();
            }
            Stage::Closed => used = input.len(),
            _ => {}
        }
        match blocked {
            Some(on) => Received::Blocked { consumed: used, on },
            None => Received::NeedMore { consumed: used },
        }
    }

    fn event(&self, connection: &mut Connection<'_, S>, event: Event<'_>) {
        match event {
            #[cfg(feature = "http2")]
            Event::Secured => self.secured(connection),
            Event::Connected => self.connected(connection),
            Event::Piped(piped) => {
                upload::take_piped(connection, piped);
                conclude(connection);
                connection.stall(Stall::Body);
            }
            Event::InputEnded(_) => self.input_ended(connection),
            Event::OutputLow => self.output_low(connection),
            Event::Woken => self.woken(connection),
            Event::Expired(phase) => self.expired(connection, phase),
            Event::Draining => self.draining(connection),
            Event::MemoryShort => {
                #[cfg(feature = "http2")]
                crate::h2::memory_short(connection);
                upload::memory_short(connection);
            }
            Event::Abandoned => self.abandoned(connection),
            other => other.by_default(connection),
        }
    }

    fn run(&self, job: &mut Exchange, scope: &mut WorkerScope<'_>) {
        job.run(&self.service, scope);
    }

    fn panicked(&self, job: &mut Exchange) {
        job.panicked();
    }

    fn finished(&self, connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
        if let Some(fault) = job.take_refused() {
            connection.count_refusal(fault as usize);
        }
        if std::mem::take(&mut job.is_awaited) {
            connection.session.forget_awaited(job.number);
        }
        match connection.session.stage {
            // Work beside the requests: what it has made is where it is waited for.
            Stage::Head | Stage::Body | Stage::Over if job.work.is_some() => {
                return write::recycle(connection, job);
            }
            Stage::Closed | Stage::Switched => return write::recycle(connection, job),
            #[cfg(feature = "http2")]
            Stage::Http2 => return crate::h2::finished(connection, job),
            Stage::Head | Stage::Body | Stage::Over => {}
        }
        if job.goes_on() {
            defer::dispatch(connection, job);
            return conclude(connection);
        }
        let Some(mut job) = upload::returned(connection, job) else {
            return conclude(connection);
        };
        if job.is_deferred() {
            defer::wait(connection, job);
            return conclude(connection);
        }
        write::charge_job(connection, &mut job);
        if job.number != connection.session.next_reply {
            return write::keep_job(connection, job);
        }
        if write::send_job(connection, job) {
            write::deliver_due(connection);
        }
        conclude(connection);
    }

    fn retire(&self, _lane: &mut ThreadState<S>, job: &mut Exchange) {
        job.reset();
    }

    fn closed(
        &self,
        thread: &mut ThreadState<S>,
        session: &mut Session<S>,
        log: Option<LogEnd<'_>>,
    ) {
        if let Some(log) = log {
            log_rest(session, log);
        }
        session.due = Due::Nothing;
        if let Some(pending_body) = session.pending_body.take() {
            thread.recycle_pending_body(pending_body);
        }
    }
}

impl<S: Service> Http<S> {
    fn connected(&self, connection: &mut Connection<'_, S>) {
        if connection.io.access_log().is_some() {
            let io = &connection.io;
            let trusts_proxies = connection.protocol.proxies.is_some();
            connection.session.known = Some(Box::new(Known {
                client: trusts_proxies.then(|| Client::of(io)),
                records: Some(Records::new(io)),
                watched: None,
            }));
        }
    }

    /// What was agreed on is spoken (RFC 7301 section 3.2): a client that has chosen HTTP/2 and
    /// begins with anything but its preface is disconnected. `read::take_other` has the other way.
    #[cfg(feature = "http2")]
    fn secured(&self, connection: &mut Connection<'_, S>) {
        if read::agreed_on(connection) == Some(b"h2") {
            connection.session.stage = Stage::Http2;
        }
    }

    /// The client has said all that it will say. What it did not finish is never served.
    fn input_ended(&self, connection: &mut Connection<'_, S>) {
        match connection.session.stage {
            Stage::Closed | Stage::Switched => return,
            #[cfg(feature = "http2")]
            Stage::Http2 => return crate::h2::close(connection),
            Stage::Head | Stage::Body | Stage::Over => {}
        }
        connection.session.stage = Stage::Over;
        connection.session.has_ended = true;
        if let Some(watched) = connection
            .session
            .known
            .as_ref()
            .and_then(|it| it.watched.as_ref())
        {
            watched.is_gone();
        }
        upload::abandon(connection);
        upload::drop_pending_body(connection);
        if !give_up(connection) && connection.session.owed() == 0 {
            write::close(connection);
        }
    }

    /// The output has room: the stream continues.
    fn output_low(&self, connection: &mut Connection<'_, S>) {
        if connection.session.is_logged() {
            log(connection).write_done();
        }
        if let Some(job) = connection.session.due.take_stream() {
            if connection.session.is_closed() {
                return write::recycle(connection, job);
            }
            defer::dispatch(connection, job);
        }
        self.woken(connection);
    }

    /// There is more of a body that is fed from elsewhere, or room for it, or a response that was
    /// made elsewhere.
    fn woken(&self, connection: &mut Connection<'_, S>) {
        let has_begun = defer::resume(connection);
        match &connection.session.due {
            Due::Fed(_) => {
                push::resume(connection);
                conclude(connection);
            }
            #[cfg(feature = "http2")]
            Due::Http2(_) => crate::h2::woken(connection),
            // A time-out has begun with it, or its body may come.
            _ if has_begun || connection.session.has_passed_body() => conclude(connection),
            Due::Nothing | Due::Upload(_) | Due::Stream(_) | Due::Waiting(_) => {}
        }
    }

    fn expired(&self, connection: &mut Connection<'_, S>, phase: Phase) {
        match phase {
            #[cfg(feature = "http2")]
            _ if connection.session.stage == Stage::Http2 => crate::h2::expired(connection, phase),
            Phase::Head if !connection.session.scan.is_untouched() => {
                refuse::head_too_late(connection);
            }
            Phase::Body => refuse::body_fault(connection, Fault::BodyTimeout),
            Phase::Push => push::keep_alive(connection),
            Phase::Timed => {
                defer::expired(connection);
                conclude(connection);
            }
            // It has asked for nothing, so it gets no reply.
            _ => write::close(connection),
        }
    }

    /// No connection is closed without `Connection: close` before: the head of the next reply has
    /// it (`write::announces_end`, `read::take_parsed`). Where the heads of all owed replies have
    /// left, that is the reply to one more request. A client that sends none is disconnected by the
    /// deadline for idle connections, which a drain shortens.
    fn draining(&self, connection: &mut Connection<'_, S>) {
        #[cfg(feature = "http2")]
        if connection.session.stage == Stage::Http2 {
            return crate::h2::draining(connection);
        }
        if connection.session.owed() > 0 {
            push::drain(connection);
            // The stream may have ended: then the connection is idle.
            conclude(connection);
        } else if !connection.session.is_partial() {
            connection.restart_phase(Phase::Idle);
        }
    }

    /// The engine ends the connection, and says why.
    fn abandoned(&self, connection: &mut Connection<'_, S>) {
        #[cfg(feature = "http2")]
        if connection.session.stage == Stage::Http2 {
            return crate::h2::abandoned(connection);
        }
        read::end_input(connection);
        match std::mem::take(&mut connection.session.due) {
            Due::Nothing | Due::Waiting(_) => {}
            Due::Upload(job) | Due::Stream(job) => write::recycle(connection, job),
            // Words would be taken for a part of the stream.
            Due::Fed(_) => connection.abort(),
            #[cfg(feature = "http2")]
            Due::Http2(_) => connection.abort(),
        }
        connection.session.stage = Stage::Closed;
    }
}

fn log_rest<S: Service>(session: &mut Session<S>, log: LogEnd<'_>) {
    #[cfg(feature = "http2")]
    if session.stage == Stage::Http2 {
        return crate::h2::log_rest(session, log);
    }
    if let Some(records) = session.records() {
        records.log_rest(log);
    }
}

/// Ends a connection whose client does not wait for what is made elsewhere. False: it may.
fn give_up<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let is_vain = connection.session.waits_in_vain();
    if is_vain {
        drop(connection.session.due.take_fed());
        write::abort(connection);
    }
    is_vain
}

/// What every call ends with: a client that is gone is not waited for, a body is waited for in its
/// way, the phase, the empty reorder buffer.
fn conclude<S: Service>(connection: &mut Connection<'_, S>) {
    if connection.session.is_closed() || give_up(connection) {
        return;
    }
    if let Some(reorder_buffer) = connection.session.take_reorder_buffer() {
        connection.thread.recycle_reorder_buffer(reorder_buffer);
    }
    if connection.session.pending_body.is_some() {
        expect_body(connection);
    }
    let session = &*connection.session;
    let phase = match session.stage {
        Stage::Body if session.is_uploading() || session.is_passing() => Phase::Body,
        _ if session.owed() > 0 => match &session.due {
            Due::Fed(reply) => reply.phase(),
            _ => Phase::Work,
        },
        Stage::Head if session.scan.is_untouched() => Phase::Idle,
        Stage::Head => Phase::Head,
        Stage::Body => Phase::Body,
        #[cfg(feature = "http2")]
        Stage::Http2 => return,
        Stage::Over | Stage::Closed | Stage::Switched => return,
    };
    if phase == Phase::Work
        && let Some(end) = defer::end(connection)
    {
        return connection.phase_until(Phase::Timed, end);
    }
    connection.phase(phase);
}

/// A body is to come: layers run for one that has to be waited for, and `100 Continue` is said
/// where it is due.
fn expect_body<S: Service>(connection: &mut Connection<'_, S>) {
    let pending_body = connection.session.pending_body.as_ref();
    if pending_body.is_some_and(|it| it.opening == Opening::Due) {
        upload::open(connection);
    }
    let session = &mut *connection.session;
    let is_next = session.owed() == 0 || session.is_uploading() && session.due.is_upload();
    if let Some(pending_body) = &mut session.pending_body
        && pending_body.owes_continue
        && pending_body
            .incoming
            .as_ref()
            .map_or(is_next, Incoming::goes_on)
    {
        pending_body.owes_continue = connection.io.write(CONTINUE).is_err();
    }
}
