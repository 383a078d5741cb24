//! One stream: a request, its body while that arrives, its job, its reply while that is sent.
//!
//! Invariants
//! - S1: a job of the stream is at one place: with a worker (`Home::Away`) or here.
//! - S2: a stream that its client has reset stays until its job is back, and counts among those
//!   that the connection may have: so resets do not make work without a bound.
//! - S3: each stream has the deadlines that a connection of HTTP/1 has: for a body, for a client
//!   that opens no window, for one that is to see that there is somebody. What another stream does
//!   moves none of them.
//! - S4: an answer arrives although its client sends on: what comes of a body that is not read is
//!   thrown away until its end, for as long as a connection lingers (RFC 9113 section 8.1).
//! - S5: what is dropped here is ours or knows how to drop what a program has made.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use flatpath::{Job, Pace, Phase, Turn};

use super::flow::Flow;
use super::link::Link;
use super::priority::Priority;
use super::send::Sending;
use super::tunnel::Tunneled;
use super::wire::Code;
use crate::connection::client_watch::Watched;
use crate::connection::pending_body::{BodyMode, PendingBody};
use crate::connection::records::{Record, StreamSent};
use crate::connection::refuse;
use crate::connection::state::{Awaited, Connection, Http, log};
use crate::connection::upload;
use crate::h1::write;
use crate::head::fault::Fault;
use crate::head::{RequestMeta, Spoken};
use crate::layer::time_out;
use crate::message::Response;
use crate::respond::outgoing::Outgoing;
use crate::respond::words::REFUSAL;
use crate::service::Service;
use crate::streams::defer;

/// See the module.
pub(crate) struct Stream<S: Service> {
    pub(super) flow: Flow,
    pub(super) priority: Priority,
    pub(super) incoming: Option<Incoming>,
    /// Since when the answer is sent, while more comes of the body.
    lingers_since: Option<Duration>,
    /// A tunnel is asked for, and the client has said this to it already.
    pub(super) asked_tunnel: Option<VecDeque<Bytes>>,
    pub(super) tunneled: Option<Box<Tunneled>>,
    pub(super) job: Home<S>,
    pub(super) sending: Option<Sending>,
    /// The method is `HEAD`: no reply has a body.
    pub(super) is_head: bool,
    /// Nothing more is sent or taken.
    pub(super) is_cut: bool,
    /// It was this side that has reset it.
    is_refused: bool,
    pub(super) record: Option<Box<Record>>,
    pub(super) sent: StreamSent,
    /// What it waits for of its client, and since when.
    phase: Phase,
    pub(super) pace: Pace,
    /// By when a worker is to begin with its job, if that is bounded.
    awaited: Option<Awaited>,
    /// Its handler looks whether its client is gone.
    pub(super) watched: Option<Watched>,
}

/// Where the job of a stream is.
#[derive(Default)]
pub(super) enum Home<S: Service> {
    /// There is none.
    #[default]
    Nothing,
    /// With a worker, or on its way.
    Away,
    /// Here: an upload that waits for more of its body, or a reply whose latest chunk is sent.
    Here(Job<Http<S>>),
}

/// A body that arrives, until its stream has.
pub(super) struct Incoming {
    pub(super) pending: Box<PendingBody>,
    /// Bytes that were taken, and that the client may not send anew yet.
    pub(super) unreleased: usize,
}

impl<S: Service> Stream<S> {
    pub(super) fn new(flow: Flow, turn: Turn) -> Self {
        Self {
            flow,
            priority: Priority::default(),
            incoming: None,
            lingers_since: None,
            asked_tunnel: None,
            tunneled: None,
            job: Home::Nothing,
            sending: None,
            is_head: false,
            is_cut: false,
            is_refused: false,
            record: None,
            sent: StreamSent::default(),
            phase: Phase::Work,
            pace: Pace::begin(turn),
            awaited: None,
            watched: None,
        }
    }

    /// Whether a body arrives that nothing reads, or nothing yet.
    pub(super) fn is_unread(&self) -> bool {
        let is_read = self.incoming.is_some() || self.tunneled.is_some();
        !self.flow.is_received && !is_read && self.asked_tunnel.is_none()
    }

    /// Its job is back.
    pub(super) fn came_back(&mut self) {
        self.job = Home::Nothing;
        self.awaited = None;
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        let is_done = self.is_cut || self.sent.is_complete && !self.is_unread();
        is_done && !matches!(self.job, Home::Away)
    }

    /// Whether its client has wanted no answer, or no more of it.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cut && !self.is_refused
    }

    /// Whether it waits for more of its request's body.
    pub(super) fn is_arriving(&self) -> bool {
        let is_refused = |it: &Incoming| it.pending.refusal.is_some();
        let arrives = self.incoming.as_ref().is_some_and(|it| !is_refused(it));
        arrives && !self.flow.is_received && !self.is_cut
    }

    /// Whether the answer is sent, and what its client still sends is thrown away.
    fn lingers(&self) -> bool {
        self.sent.is_complete && self.is_unread()
    }

    /// What it waits for of its client. A client that has no window to send in is not waited for.
    fn awaited(&self) -> Phase {
        if self.lingers() {
            return Phase::Body;
        }
        let has_window = self.incoming.as_ref().is_some_and(|it| it.unreleased == 0);
        if self.is_arriving() && has_window {
            Phase::Body
        } else if self.is_blocked() {
            Phase::Head
        } else if let Some(tunneled) = &self.tunneled {
            tunneled.wishes.phase
        } else if self.is_pushed() {
            Phase::Push
        } else {
            Phase::Work
        }
    }

    /// Follows what it waits for, after each look at it. `has_sent`: its client has taken some.
    pub(super) fn follow_phase(&mut self, turn: Turn, has_sent: bool) {
        let phase = self.awaited();
        let restarts = self.tunneled.as_mut().map(|it| &mut it.wishes.restarts);
        let restarts = restarts.is_some_and(std::mem::take);
        let begins_to_linger = self.lingers_since.is_none() && self.lingers();
        if has_sent || restarts || begins_to_linger || self.phase != phase {
            (self.phase, self.pace) = (phase, Pace::begin(turn));
        }
        if begins_to_linger {
            self.lingers_since = Some(turn.now());
        }
    }

    /// What it waits for, and when the time for that is over.
    pub(super) fn deadline(&self, connection: &Connection<'_, S>) -> Option<(Duration, Phase)> {
        if let Some(awaited) = self.awaited {
            return Some((awaited.end, Phase::Timed));
        }
        if let Home::Here(job) = &self.job
            && let Some(end) = job.pending.as_ref().and_then(|pending| pending.end())
        {
            return Some((end, Phase::Timed));
        }
        let limits = connection.limits();
        if let Some(since) = self.lingers_since {
            let end = self.pace.linger_end(since, connection.draining(), limits);
            return Some((end, Phase::Timed));
        }
        let time = connection.time_of(self.phase)?;
        Some((self.pace.end(time, limits), self.phase))
    }

    /// That time is over.
    pub(super) fn expired(&mut self, connection: &mut Link<'_, '_, S>) {
        if let Some(awaited) = self.awaited.take() {
            // Otherwise it runs, or is on its way back.
            if let Some(job) = connection.withdraw(awaited.ticket) {
                self.job = Home::Nothing;
                self.answer_late(connection, job, time_out::too_slow());
            }
            return;
        }
        if let Home::Here(job) = &mut self.job
            && job.is_deferred()
        {
            if let Some(work) = defer::give_up(job, connection.turn().now()) {
                defer::take_back(connection, work);
            }
            return self.resume_deferred(connection);
        }
        if self.lingers() {
            // RFC 9113 8.1: "the server MAY request that the client abort transmission of a request
            // without error by sending a RST_STREAM with an error code of NO_ERROR".
            return self.reset(connection, Code::NoError);
        }
        match self.phase {
            // Its phases are its own.
            phase if self.tunneled.is_some() && !self.is_blocked() => {
                self.call_tunnel(connection, |tunnel, stream| tunnel.expired(stream, phase));
            }
            Phase::Body => self.fault(connection, Fault::BodyTimeout),
            Phase::Push => self.keep_alive(),
            // It opens no window.
            _ => self.reset(connection, Code::Cancel),
        }
        self.pace = Pace::begin(connection.turn());
    }

    /// A worker has the job from now on.
    pub(super) fn dispatch(&mut self, connection: &mut Link<'_, '_, S>, job: Job<Http<S>>) {
        self.job = Home::Away;
        self.awaited = defer::send(connection, job);
    }

    /// Answers a job without a worker. A stream that is cut has none here.
    fn answer_late(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        mut job: Job<Http<S>>,
        response: Response,
    ) {
        defer::write_late(connection, &mut job, response);
        self.send_job(connection, job);
    }

    /// A job waits for a response that is made elsewhere, or continues if that is there.
    pub(super) fn defer(&mut self, connection: &mut Link<'_, '_, S>, mut job: Job<Http<S>>) {
        if !connection.lasts(&mut job) {
            write::recycle(connection, job);
            return self.refuse(connection);
        }
        self.job = Home::Here(job);
        self.resume_deferred(connection);
    }

    /// A job whose response is there goes to a worker.
    pub(super) fn resume_deferred(&mut self, connection: &mut Link<'_, '_, S>) {
        if let Home::Here(job) = &mut self.job
            && job.is_deferred()
            && defer::is_ready(connection, job)
            && let Home::Here(mut job) = std::mem::take(&mut self.job)
        {
            if let Some(response) = defer::bare_response(&mut job) {
                return self.answer_late(connection, job, response);
            }
            defer::take_buffer(connection, &mut job);
            self.dispatch(connection, job);
        }
    }

    /// Ends the stream before its end, for this reason.
    pub(super) fn reset(&mut self, connection: &mut Link<'_, '_, S>, code: Code) {
        if !self.is_cut {
            self.is_refused = true;
            connection.core.put_reset(self.flow.id, code);
            self.cut(connection);
        }
    }

    /// Its client has reset it.
    pub(super) fn cut_by_client(&mut self, connection: &mut Link<'_, '_, S>) {
        if !self.is_cut {
            self.cut(connection);
        }
    }

    /// The stream is gone: drops what there is of it, but for a job that is with a worker.
    pub(super) fn cut(&mut self, connection: &mut Link<'_, '_, S>) {
        self.is_cut = true;
        self.give_window_back(connection);
        (self.watched, self.awaited) = (None, None);
        self.sending = None;
        match std::mem::take(&mut self.job) {
            Home::Nothing => self.drop_body(connection),
            Home::Away => {
                self.job = Home::Away;
                // What waits for its worker stays: a sink may want it.
                if let Some(incoming) = &mut self.incoming {
                    incoming.pending.mode = BodyMode::Abandoned;
                }
            }
            Home::Here(job) if job.is_receiving() => self.abandon(connection, job),
            Home::Here(job) => write::recycle(connection, job),
        }
    }

    /// What has come and was not taken is not: others of the connection may send as much.
    fn give_window_back(&mut self, connection: &mut Link<'_, '_, S>) {
        let unreleased = self.incoming.as_mut().map(|it| &mut it.unreleased);
        let mut bytes = unreleased.map_or(0, std::mem::take);
        if let Some(early) = self.asked_tunnel.take() {
            bytes += early.iter().map(Bytes::len).sum::<usize>();
        }
        if let Some(tunneled) = self.tunneled.take() {
            bytes += tunneled.input_bytes();
        }
        connection.core.release(None, bytes);
    }

    /// The upload of this job is never complete; its sink may want what arrived.
    pub(super) fn abandon(&mut self, connection: &mut Link<'_, '_, S>, job: Job<Http<S>>) {
        let pending = self.incoming.take().map(|incoming| {
            debug_assert_eq!(incoming.unreleased, 0, "the window was given back before");
            incoming.pending
        });
        self.job = match upload::pass_remainder(connection, job, pending) {
            true => Home::Away,
            false => Home::Nothing,
        };
    }

    /// No more is read of the body (S4).
    pub(super) fn drop_body(&mut self, connection: &mut Link<'_, '_, S>) {
        if let Some(mut incoming) = self.incoming.take() {
            incoming.release(connection, &mut self.flow);
            connection.thread.recycle_pending_body(incoming.pending);
        }
    }

    /// Has what takes the body, or would, answer what is wrong with it; answers what cannot be
    /// served otherwise, or cuts off what is with a worker.
    pub(super) fn fault(&mut self, connection: &mut Link<'_, '_, S>, fault: Fault) {
        if let Some(record) = &mut self.record {
            record.refused(fault.reason());
        }
        if self.refuse_body(connection, fault) {
            return;
        }
        connection.count_refusal(fault as usize);
        debug_assert!(self.sending.is_none(), "what is answered reads no body");
        if !matches!(self.job, Home::Nothing) {
            return self.reset(connection, Code::Cancel);
        }
        self.drop_body(connection);
        let reply = refuse::fault_reply(connection, fault, self.meta());
        self.reply(connection, reply);
    }

    /// What a reply of ours has to know of the request.
    fn meta(&self) -> RequestMeta {
        RequestMeta {
            is_head: self.is_head,
            spoken: Spoken::Http2,
            keep_alive: true,
            takes_trailers: false,
        }
    }

    /// The body is refused: what takes it answers that, or what would. False: there is none.
    fn refuse_body(&mut self, connection: &mut Link<'_, '_, S>, fault: Fault) -> bool {
        let Some(incoming) = &mut self.incoming else {
            return false;
        };
        match &mut self.job {
            Home::Nothing => {
                let Some(job) = upload::opening_job(connection, &mut incoming.pending, Some(fault))
                else {
                    return false;
                };
                self.begin_job(connection, job);
                self.drop_body(connection);
            }
            Home::Away => {
                debug_assert!(incoming.pending.is_opened(), "a job has its request");
                incoming.pending.refusal = Some(fault);
                incoming.release(connection, &mut self.flow);
            }
            Home::Here(job) if job.is_receiving() => {
                job.refusal = Some(fault);
                self.pass_refusal(connection);
            }
            Home::Here(_) => return false,
        }
        true
    }

    /// A job is here whose body was refused: it has the rest, if it wants that, and answers.
    fn pass_refusal(&mut self, connection: &mut Link<'_, '_, S>) {
        if let Home::Here(job) = std::mem::take(&mut self.job) {
            self.abandon(connection, job);
        }
    }

    /// The job of a body that is still to come is back.
    pub(super) fn receives(&mut self, connection: &mut Link<'_, '_, S>, mut job: Job<Http<S>>) {
        job.refusal = self.incoming.as_ref().and_then(|it| it.pending.refusal);
        let is_refused = job.refusal.is_some();
        self.job = Home::Here(job);
        match is_refused {
            true => self.pass_refusal(connection),
            false => self.say_continue(connection),
        }
    }

    /// There is no room for the request: its client may try again.
    pub(super) fn refuse(&mut self, connection: &mut Link<'_, '_, S>) {
        debug_assert!(self.incoming.is_none(), "no body arrives for it");
        self.reply(connection, Outgoing::words(REFUSAL, self.meta()));
    }

    /// The stream is over: its client hears of it, if it may be sending.
    ///
    /// # Errors
    /// The client has cancelled too many.
    pub(super) fn end(&mut self, connection: &mut Link<'_, '_, S>) -> Result<(), Code> {
        if !self.is_cut && !self.flow.is_received {
            connection.core.put_reset(self.flow.id, Code::NoError);
        }
        let is_borne = connection.core.patience.stream_is_over(self.is_cancelled());
        self.leave(connection);
        is_borne
    }

    /// The stream is over, or its connection: drops all, and writes the line of the access log.
    pub(super) fn leave(&mut self, connection: &mut Link<'_, '_, S>) {
        self.give_window_back(connection);
        match std::mem::take(&mut self.job) {
            Home::Here(job) if job.is_receiving() => self.abandon(connection, job),
            Home::Here(job) => write::recycle(connection, job),
            Home::Nothing | Home::Away => {}
        }
        self.drop_body(connection);
        if let Some(record) = self.record.take() {
            log(connection).stream_done(record, self.sent);
        }
    }
}
