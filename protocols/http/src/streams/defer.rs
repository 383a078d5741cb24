//! The connection's side of responses that are made elsewhere: see `deferred`.
//!
//! Invariants
//! - DF1: a job that waits for such a response is in the reorder buffer, at the place of its
//!   number, also when its reply is the one that is due. Over HTTP/2 it is with its stream.
//! - DF2: it lasts (`Context::lasts`), and has no buffer. It gets one when it goes to a worker.
//! - DF3: a job within the time of a request is at a worker in time, or it is taken back and
//!   answered here ([`Awaited`]); so is the work of a time-out, which is not answered.

use std::time::Duration;

use flatpath::memory::PoolHandle;
use flatpath::{Io, Job, Ticket, Turn};

use crate::connection::exchange::{Exchange, State};
use crate::connection::state::{Awaited, Connection, Http, QueuedReply};
use crate::h1::write;
use crate::layer::time_out;
use crate::limits::REPLY_BUFFER_BYTES;
use crate::message::Response;
use crate::respond::outgoing::Outgoing;
use crate::respond::words::REFUSAL;
use crate::service::Service;
use crate::service::terms::JobTerms;
use crate::takeover::tunnel::TunnelWork;

/// The number of a job that is for no request.
const NO_REQUEST: u32 = 0;

/// A job waits for its response, or continues if that is there.
pub(crate) fn wait<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    if !connection.lasts(&mut job) {
        let (number, words) = (job.number, Outgoing::words(REFUSAL, job.request));
        write::recycle(connection, job);
        keep(connection, number, QueuedReply::Here(Box::new(words)));
        return write::deliver_due(connection);
    }
    match is_ready(connection, &mut job) {
        true => resume_job(connection, job),
        false => keep(connection, job.number, QueuedReply::Job(job)),
    }
}

/// Sends a job to the workers on its terms. What it is to be taken back by, if that is bounded.
pub(crate) fn send<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
) -> Option<Awaited> {
    let (end, part) = (job.begins_by(connection.turn().now()), job.part());
    job.is_awaited = end.is_some();
    if end.is_none() && part.is_none() {
        connection.dispatch(job);
        return None;
    }
    let ticket = connection.dispatch_in(job, part);
    end.map(|end| Awaited { ticket, end })
}

/// The same for a job of HTTP/1, whose place keeps by when it is to be begun with.
pub(crate) fn dispatch<S: Service>(connection: &mut Connection<'_, S>, job: Job<Http<S>>) {
    let number = job.number;
    if let Some(awaited) = send(connection, job) {
        keep(connection, number, QueuedReply::Awaited(awaited));
    }
}

/// Sends the jobs whose responses are there to workers, and has others make what is made in turn.
/// Whether there was any of that: then it may have a time-out, which `end` knows.
pub(crate) fn resume<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let io = &mut connection.io;
    let (mut ready, mut works) = (Vec::new(), Vec::new());
    for job in connection.session.deferred() {
        match look(io, job) {
            Made::Ready => ready.push(job.number),
            Made::By(work) => works.push((job.number, job.terms.part, work)),
            Made::Elsewhere => {}
        }
    }
    let has_moved = !works.is_empty() || !ready.is_empty();
    for (number, part, work) in works {
        let ticket = run(connection, part, work);
        let mut deferred = connection.session.deferred();
        if let Some(job) = deferred.find(|job| job.number == number)
            && let Some(pending) = &mut job.pending
        {
            pending.begun_by(ticket);
        }
    }
    for number in ready {
        if let Some(job) = connection.session.take_kept(number) {
            resume_job(connection, job);
        }
    }
    has_moved
}

/// The earliest time-out: of a response that is made elsewhere, or of a job that waits.
pub(crate) fn end<S: Service>(connection: &mut Connection<'_, S>) -> Option<Duration> {
    let awaited = connection.session.awaited().map(|(_, awaited)| awaited.end);
    let awaited = awaited.min();
    let deferred = connection.session.deferred();
    let deferred = deferred.filter_map(|job| job.pending.as_ref()?.end());
    deferred.chain(awaited).min()
}

/// Answers those whose time is over: here, where no worker has begun with them, and what layers
/// change by a worker.
pub(crate) fn expired<S: Service>(connection: &mut Connection<'_, S>) {
    let now = connection.turn().now();
    let awaited = connection.session.awaited();
    let late: Vec<_> = awaited.filter(|(_, awaited)| awaited.end <= now).collect();
    for (number, awaited) in late {
        connection.session.forget_awaited(number);
        // It runs, or is on its way back.
        let Some(job) = connection.withdraw(awaited.ticket) else {
            continue;
        };
        answer(connection, job, time_out::too_slow());
    }
    let deferred = connection.session.deferred();
    let works: Vec<_> = deferred.filter_map(|job| give_up(job, now)).collect();
    works
        .into_iter()
        .for_each(|work| take_back(connection, work));
    resume(connection);
    // Requests may wait for these to be answered.
    connection.io.handle().wake();
}

/// Answers a job otherwise if its time is over. Work for it that nobody waits for is returned.
pub(crate) fn give_up(job: &mut Exchange, now: Duration) -> Option<Ticket> {
    let pending = job.pending.as_mut()?;
    let is_over = pending.end().is_some_and(|end| end <= now);
    is_over.then(|| pending.give_up(now, time_out::too_slow()))?
}

/// Takes back work that nobody waits for, if no worker has begun with it.
pub(crate) fn take_back<S: Service>(connection: &mut Connection<'_, S>, work: Ticket) {
    if let Some(job) = connection.withdraw(work) {
        write::recycle(connection, job);
    }
}

/// How a response is made.
enum Made {
    Ready,
    /// By work for a worker, which has not begun.
    By(Box<dyn TunnelWork>),
    /// The connection is woken when it is there.
    Elsewhere,
}

fn look(io: &mut Io<'_>, job: &mut Exchange) -> Made {
    let arrived = job.arrived;
    let Some(pending) = &mut job.pending else {
        return Made::Ready;
    };
    if pending.is_ready(|| io.handle()) {
        return Made::Ready;
    }
    pending.advance(io);
    match pending.is_ready(|| io.handle()) {
        true => Made::Ready,
        false => pending.begin(arrived).map_or(Made::Elsewhere, Made::By),
    }
}

/// Whether the response of a job is there; if not, its connection is woken when it is.
pub(crate) fn is_ready<S: Service>(connection: &mut Connection<'_, S>, job: &mut Exchange) -> bool {
    match look(&mut connection.io, job) {
        Made::Ready => return true,
        Made::By(work) => {
            let ticket = run(connection, job.terms.part, work);
            if let Some(pending) = &mut job.pending {
                pending.begun_by(ticket);
            }
        }
        Made::Elsewhere => {}
    }
    false
}

/// A worker makes a response. Without a job for it, it is dropped, which is a response as well.
fn run<S: Service>(
    connection: &mut Connection<'_, S>,
    part: Option<u16>,
    work: Box<dyn TunnelWork>,
) -> Option<Ticket> {
    let Some(mut job) = connection.job() else {
        flatpath::discard(work);
        return None;
    };
    job.begin_work(NO_REQUEST, work);
    Some(connection.dispatch_in(job, part))
}

/// The response is there: a worker writes it, or nobody else has to do anything to it.
fn resume_job<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    if let Some(response) = bare_response(&mut job) {
        return answer(connection, job, response);
    }
    take_buffer(connection, &mut job);
    dispatch(connection, job);
}

/// The response of a job if it is ours and no layer changes it.
pub(crate) fn bare_response(job: &mut Exchange) -> Option<Response> {
    let bare = job.pending.take_if(|pending| pending.is_bare())?;
    Some(bare.response())
}

/// A job is answered here, without a worker.
fn answer<S: Service>(
    connection: &mut Connection<'_, S>,
    mut job: Job<Http<S>>,
    response: Response,
) {
    if connection.session.is_closed() {
        return write::recycle(connection, job);
    }
    write_late(connection, &mut job, response);
    if job.number != connection.session.next_reply {
        return write::keep_job(connection, job);
    }
    if write::send_job(connection, job) {
        write::deliver_due(connection);
    }
}

/// Writes an answer for a job on this thread.
pub(crate) fn write_late<S: Service>(
    connection: &mut Connection<'_, S>,
    job: &mut Job<Http<S>>,
    response: Response,
) {
    if job.buffer.is_none() {
        take_buffer(connection, job);
    }
    let pool = connection.io.pool();
    job.time_is_over(response, pool);
    write::charge_job(connection, job);
}

/// Takes a buffer for the head. Without one the worker looks for it again, and refuses the client
/// if there is none.
pub(crate) fn take_buffer<S: Service>(connection: &Connection<'_, S>, job: &mut Exchange) {
    job.buffer = connection.io.pool().take(REPLY_BUFFER_BYTES);
}

fn keep<S: Service>(connection: &mut Connection<'_, S>, number: u32, reply: QueuedReply<S>) {
    let spares = &mut connection.thread.reorder_buffers;
    connection.session.keep(number, reply, spares);
}

impl Exchange {
    /// It has these terms from now on.
    pub(crate) fn agree(&mut self, terms: JobTerms, turn: Turn) {
        (self.terms, self.arrived) = (terms, turn.now());
    }

    /// Whether this came back to be dispatched anew, on the terms of what follows.
    pub(crate) fn goes_on(&mut self) -> bool {
        let goes_on = std::mem::take(&mut self.has_ended_work);
        if goes_on {
            self.terms = self.terms.afterwards();
        }
        goes_on
    }

    /// By when a worker is to take it, if that is bounded: within the time of its request, or soon
    /// after, where it has a response.
    pub(crate) fn begins_by(&self, now: Duration) -> Option<Duration> {
        match self.state {
            _ if self.begins() => Some(self.arrived.saturating_add(self.terms.time?)),
            State::Deferred => self.pending.as_ref()?.leaves_by(now),
            _ => None,
        }
    }

    /// The part of the workers that the next run is for.
    pub(crate) fn part(&self) -> Option<u16> {
        match self.state {
            // What takes long is sent on by the time-out inside.
            _ if self.begins() && self.terms.time.is_some() => None,
            // It is not to wait for what works still.
            State::Deferred => None,
            _ => self.terms.part,
        }
    }

    /// No worker has begun with it in time: this is the answer.
    pub(crate) fn time_is_over(&mut self, response: Response, pool: PoolHandle<'_>) {
        self.builder.clear();
        (self.pending, self.upload) = (None, None);
        self.answer(response, pool);
    }
}
