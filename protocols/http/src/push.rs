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

use crate::encode::ReplyFraming;
use crate::feed::{Fed, Receiver, write_piece};
use crate::service::Service;
use crate::state::Connection;
use crate::stream::LAST_CHUNK;
use crate::write;

/// A reply whose body comes from a channel, after its head.
pub(crate) struct Push {
    receiver: Receiver,
    framing: ReplyFraming,
    /// What is left of a stated length.
    left: u64,
    keep_alive: bool,
}

impl Push {
    pub(crate) fn phase(&self) -> Phase {
        match self.receiver.keep_alive() {
            Some(_) => Phase::Push,
            None => Phase::Work,
        }
    }
}

/// The head of the reply that is due is queued: its body follows. True when it has ended already.
pub(crate) fn begin<S: Service>(
    connection: &mut Connection<'_, S>,
    mut receiver: Receiver,
    framing: ReplyFraming,
    keep_alive: bool,
) -> bool {
    write::stream_begins(connection);
    receiver.attach(connection.handle());
    if connection.draining() {
        receiver.drain();
    }
    let left = match framing {
        ReplyFraming::Length(length) => length,
        ReplyFraming::Chunked | ReplyFraming::CloseDelimited => u64::MAX,
    };
    connection.session.push = Some(Box::new(Push {
        receiver,
        framing,
        left,
        keep_alive,
    }));
    advance(connection)
}

/// Queues what there is and has room. True when the reply is complete.
fn advance<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let io = &mut connection.io;
    let Some(push) = &mut connection.session.push else {
        return false;
    };
    let before = io.output_bytes();
    let fed = push.receiver.flush(io, push.framing, &mut push.left);
    if io.output_bytes() > before && push.phase() == Phase::Push {
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
        write::deliver_or_stall(connection);
    }
}

/// All of it is queued.
fn end<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    let Some(push) = connection.session.push.take() else {
        return false;
    };
    if matches!(push.framing, ReplyFraming::Length(_)) && push.left > 0 {
        write::break_off(connection, push.framing);
        return false;
    }
    if push.framing == ReplyFraming::Chunked {
        connection.write_static(LAST_CHUNK);
    }
    connection.session.is_streaming = false;
    write::reply_done(connection, push.keep_alive);
    true
}

/// The stream ends before its end, visibly so.
pub(crate) fn cut<S: Service>(connection: &mut Connection<'_, S>) {
    if let Some(push) = connection.session.push.take() {
        write::break_off(connection, push.framing);
    }
}

/// The server drains: the sender is told, and may end the stream.
pub(crate) fn drain<S: Service>(connection: &mut Connection<'_, S>) {
    if let Some(push) = &mut connection.session.push {
        push.receiver.drain();
        resume(connection);
    }
}

/// Nothing was sent for a while: both ends see that the other is there, by words, or by what does
/// not get through.
pub(crate) fn keep_alive<S: Service>(connection: &mut Connection<'_, S>) {
    let Some(push) = &connection.session.push else {
        return;
    };
    if let Some(words) = push.receiver.keep_alive()
        && connection.io.queued_bytes() == 0
        && !matches!(push.framing, ReplyFraming::Length(_))
    {
        // Without memory it is left out: the stream lives on.
        let words = Bytes::from_static(words);
        let _queued = write_piece(&mut connection.io, &words, push.framing, u64::MAX);
    }
    connection.io.restart_phase(Phase::Push);
}
