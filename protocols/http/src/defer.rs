//! The connection's side of responses that are made elsewhere: see `deferred`.
//!
//! Invariants
//! - DF1: a job that waits for such a response is in the reorder buffer, at the place of its
//!   number, also when its reply is the one that is due. Over HTTP/2 it is with its stream.
//! - DF2: it lasts (`Context::lasts`), and has no buffer. It gets one when it goes to a worker.

use std::time::Duration;

use flatpath::{Io, Job};

use crate::encode::REFUSAL;
use crate::exchange::Exchange;
use crate::limits::REPLY_BUFFER_BYTES;
use crate::outgoing::Outgoing;
use crate::service::Service;
use crate::state::{Connection, Http, QueuedReply};
use crate::{time_out, write};

/// The number of a job that is for no request.
const NO_REQUEST: u32 = 0;

/// A job waits for its response, or continues if that is there.
pub(crate) fn wait<S: Service>(connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
    if !begin(connection, &mut job) {
        let number = job.number;
        write::recycle(connection, job);
        let words = Outgoing::words(REFUSAL);
        keep(connection, number, QueuedReply::Here(Box::new(words)));
        return write::deliver_due(connection);
    }
    match is_ready(&connection.io, &mut job) {
        true => resume_job(connection, job),
        false => keep(connection, job.number, QueuedReply::Job(job)),
    }
}

/// A job comes to its connection to wait. False: as many wait as may, and it is to be refused.
pub(crate) fn begin<S: Service>(
    connection: &mut Connection<'_, S>,
    job: &mut Job<Http<S>>,
) -> bool {
    if !connection.lasts(job) {
        return false;
    }
    let turn = connection.turn();
    let Some(pending) = &mut job.pending else {
        return true;
    };
    if let Some(work) = pending.begin(turn) {
        let Some(mut other) = connection.job() else {
            flatpath::discard(work);
            return false;
        };
        other.begin_work(NO_REQUEST, work);
        connection.dispatch(other);
    }
    true
}

/// Sends the jobs whose responses are there to workers.
pub(crate) fn resume<S: Service>(connection: &mut Connection<'_, S>) {
    let io = &connection.io;
    let deferred = connection.session.deferred();
    let ready = deferred.filter_map(|job| is_ready(io, job).then_some(job.number));
    let ready: Vec<u32> = ready.collect();
    for number in ready {
        if let Some(job) = connection.session.take_kept(number) {
            resume_job(connection, job);
        }
    }
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
        pending.answer_otherwise(time_out::too_slow());
    }
}

/// Whether the response of a job is there; if not, its connection is woken when it is.
pub(crate) fn is_ready(io: &Io<'_>, job: &mut Exchange) -> bool {
    let pending = job.pending.as_mut();
    pending.is_none_or(|pending| pending.is_ready(|| io.handle()))
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
