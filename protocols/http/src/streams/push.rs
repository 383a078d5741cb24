//! The network thread's side of a body that is fed from elsewhere: see `feed`.
//!
//! Invariants
//! - P1: the reply that is due is this one: from its head on until its end the session has it, no
//!   job is held, and replies after it wait.
//! - P2: at most the stream's bound is queued. The next piece is taken when the connection is
//!   woken, when its output has drained, or when there is memory again.
//! - P3: none of it is of the memory in reserve, which is there for short requests.

use bytes::Bytes;
use flatpath::{Phase, Stall};

use crate::connection::state::{Connection, Due};
use crate::h1::write;
use crate::message::Body;
use crate::respond::encode::ReplyFraming;
use crate::respond::outgoing::Outgoing;
use crate::service::Service;
use crate::streams::feed::{Fed, Receiver, write_piece};
use crate::streams::stream::LAST_CHUNK;

impl Outgoing {
    /// What feeds the body, and its framing.
    fn feed(&mut self) -> Option<(&mut Receiver, &mut ReplyFraming)> {
        match &mut self.body {
            Body::Channel(receiver) => Some((receiver, &mut self.framing)),
            _ => None,
        }
    }

    /// The phase while the body is fed.
    pub(crate) fn phase(&self) -> Phase {
        match &self.body {
            Body::Channel(receiver) if receiver.keep_alive().is_some() => Phase::Push,
            _ => Phase::Work,
        }
    }
}

/// The head of the reply that is due is queued: its body follows. True when it has ended already.
pub(crate) fn begin<S: Service>(connection: &mut Connection<'_, S>, mut reply: Outgoing) -> bool {
    write::stream_begins(connection);
    if connection.draining()
        && let Some((receiver, _)) = reply.feed()
    {
        receiver.drain();
    }
    connection.session.due = Due::Fed(Box::new(reply));
    advance(connection)
}

/// Queues what there is and has room. True when the reply is complete.
fn advance<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let io = &mut connection.io;
    let Due::Fed(reply) = &mut connection.session.due else {
        return false;
    };
    let phase = reply.phase();
    let Some((receiver, framing)) = reply.feed() else {
        return false;
    };
    let before = io.output_bytes();
    let fed = receiver.flush(io, framing);
    if io.output_bytes() > before && phase == Phase::Push {
        io.restart_phase(Phase::Push);
    }
    match fed {
        Fed::Later => return false,
        Fed::NoMemory => io.stall(Stall::Memory),
        Fed::Complete => return end(connection),
        Fed::Aborted => cut(connection),
    }
    false
}

/// Goes on with the stream, if there is one, and with what waits for its end.
pub(crate) fn resume<S: Service>(connection: &mut Connection<'_, S>) {
    if advance(connection) {
        write::deliver_due(connection);
    }
}

/// All of it is queued.
fn end<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let Some(reply) = connection.session.due.take_fed() else {
        return false;
    };
    if matches!(reply.framing, ReplyFraming::Length(left) if left > 0) {
        write::break_off(connection, reply.framing);
        return false;
    }
    connection.session.is_streaming = false;
    if reply.trailing().is_some() {
        return write::end_with_trailers(connection, &reply);
    }
    if reply.framing == ReplyFraming::Chunked {
        connection.write_static(LAST_CHUNK);
    }
    write::reply_done(connection, reply.request.keep_alive);
    true
}

/// The stream ends before its end, visibly so.
pub(crate) fn cut<S: Service>(connection: &mut Connection<'_, S>) {
    if let Some(reply) = connection.session.due.take_fed() {
        write::break_off(connection, reply.framing);
    }
}

/// The server drains: the sender is told, and may end the stream.
pub(crate) fn drain<S: Service>(connection: &mut Connection<'_, S>) {
    if let Due::Fed(reply) = &mut connection.session.due
        && let Some((receiver, _)) = reply.feed()
    {
        receiver.drain();
        resume(connection);
    }
}

/// Nothing was sent for a while: both ends see that the other is there, by words, or by what does
/// not get through.
pub(crate) fn keep_alive<S: Service>(connection: &mut Connection<'_, S>) {
    let Due::Fed(reply) = &mut connection.session.due else {
        return;
    };
    if let Some((receiver, framing)) = reply.feed()
        && let Some(words) = receiver.keep_alive()
        && connection.io.queued_bytes() == 0
        && !matches!(framing, ReplyFraming::Length(_))
    {
        // Without memory it is left out: the stream lives on.
        let words = Bytes::from_static(words);
        let _queued = write_piece(&mut connection.io, &words, framing);
    }
    connection.io.restart_phase(Phase::Push);
}
