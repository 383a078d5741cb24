//! The connection's side of responses that are made elsewhere: see `deferred`.
//!
//! Invariants
//! - DF1: a job that waits for such a response is in the reorder buffer, at the place of its
//!   number, also when its reply is the one that is due. Over HTTP/2 it is with its stream.
//! - DF2: it lasts (`Context::lasts`), and has no buffer. It gets one when it goes to a worker.

use std::time::Duration;

use flatpath::{Io, Job, Turn};

use crate::encode::REFUSAL;
use crate::exchange::Exchange;
use crate::limits::REPLY_BUFFER_BYTES;
use crate::outgoing::Outgoing;
use crate::service::Service;
use crate::state::{Connection, Http, QueuedReply};
use crate::tunnel::TunnelWork;
use crate::{time_out, write};

/// The number of a job that is for no request.
const NO_REQUEST: u32 = 0;

/// A job waits for its response, or continues if that is there.
pub(crate) fn wait<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    if !connection.lasts(&mut job) {
        let number = job.number;
        write::recycle(connection, job);
        let words = Outgoing::words(REFUSAL);
        keep(connection, number, QueuedReply::Here(Box::new(words)));
        return write::deliver_due(connection);
    }
    match is_ready(connection, &mut job) {
        true => resume_job(connection, job),
        false => keep(connection, job.number, QueuedReply::Job(job)),
    }
}

/// Sends the jobs whose responses are there to workers, and has others make what is made in turn.
/// Whether there was any of that: then it may have a time-out, which `end` knows.
pub(crate) fn resume<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let turn = connection.turn();
    let io = &connection.io;
    let (mut ready, mut works) = (Vec::new(), Vec::new());
    for job in connection.session.deferred() {
        match look(io, turn, job) {
            Made::Ready => ready.push(job.number),
            Made::By(work) => works.push(work),
            Made::Elsewhere => {}
        }
    }
    let has_begun = !works.is_empty();
    for work in works {
        run(connection, work);
    }
    for number in ready {
        if let Some(job) = connection.session.take_kept(number) {
            resume_job(connection, job);
        }
    }
    has_begun
}

/// The earliest time-out of a response that is made elsewhere.
pub(crate) fn end<S: Service>(connection: &mut Connection<'_, S>) -> Option<Duration> {
    let deferred = connection.session.deferred();
    deferred.filter_map(|job| job.pending.as_ref()?.end()).min()
}

/// Answers those whose time is over, and sends them to workers.
pub(crate) fn expired<S: Service>(connection: &mut Connection<'_, S>) {
    let now = connection.turn().now();
    let deferred = connection.session.deferred();
    deferred.for_each(|job| give_up(job, now));
    resume(connection);
}

/// Answers a job otherwise if its time is over.
pub(crate) fn give_up(job: &mut Exchange, now: Duration) {
    if let Some(pending) = &mut job.pending
        && pending.end().is_some_and(|end| end <= now)
    {
        pending.give_up(now, time_out::too_slow());
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

fn look(io: &Io<'_>, turn: Turn, job: &mut Exchange) -> Made {
    match &mut job.pending {
        Some(pending) => match pending.is_ready(|| io.handle()) {
            true => Made::Ready,
            false => pending.begin(turn).map_or(Made::Elsewhere, Made::By),
        },
        None => Made::Ready,
    }
}

/// Whether the response of a job is there; if not, its connection is woken when it is.
pub(crate) fn is_ready<S: Service>(connection: &mut Connection<'_, S>, job: &mut Exchange) -> bool {
    match look(&connection.io, connection.turn(), job) {
        Made::Ready => return true,
        Made::By(work) => run(connection, work),
        Made::Elsewhere => {}
    }
    false
}

/// A worker makes a response. Without a job for it, it is dropped, which is a response as well.
fn run<S: Service>(connection: &mut Connection<'_, S>, work: Box<dyn TunnelWork>) {
    match connection.job() {
        Some(mut job) => {
            job.begin_work(NO_REQUEST, work);
            connection.dispatch(job);
        }
        None => flatpath::discard(work),
    }
}

/// The response is there: a worker writes it.
fn resume_job<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    take_buffer(connection, &mut job);
    connection.dispatch(job);
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
