//! The network thread's side of a body that is fed from elsewhere: see `feed`.
//!
//! Invariants
//! - P1: the reply that is due is this one: from its head on until its end the session has it, no
//!   job is held, and replies after it wait.
//! - P2: at most the output's bound is queued. The next piece is taken when the connection is
//!   woken, when its output has drained, or when there is memory again.

use bytes::Bytes;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::{NoRoom, Phase, Stall};

use crate::channel::Next;
use crate::feed::Receiver;
use crate::respond::ReplyFraming;
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
    loop {
        if connection.io.output_is_full() {
            connection.io.notify_drained();
            return false;
        }
        let Some(push) = &mut connection.session.push else {
            return false;
        };
        match push.receiver.next() {
            Next::Piece(_) | Next::Later if push.left == 0 => return end(connection),
            Next::Later => return false,
            Next::Piece(mut piece) => {
                piece.truncate(usize::try_from(push.left).unwrap_or(usize::MAX));
                if connection.io.bin_is_full()
                    || queue(&mut connection.io, &piece, push.framing).is_err()
                {
                    connection.io.stall(Stall::Memory);
                    return false;
                }
                push.left -= piece.len() as u64;
                push.receiver.advance(piece.len());
                if push.phase() == Phase::Push {
                    connection.io.restart_phase(Phase::Push);
                }
            }
            Next::Complete => return end(connection),
            Next::Aborted => {
                cut(connection);
                return false;
            }
        }
    }
}

/// Goes on with the stream, if there is one, and with what waits for its end.
pub(crate) fn resume<S: Service>(connection: &mut Connection<'_, S>) {
    if advance(connection) {
        write::deliver_or_stall(connection);
    }
}

/// Queues a piece as a chunk, or as it is; all or nothing.
fn queue(io: &mut flatpath::Io<'_>, piece: &Bytes, framing: ReplyFraming) -> Result<(), NoRoom> {
    if framing != ReplyFraming::Chunked {
        return io.write_shared(piece.clone());
    }
    let size = format_size(piece.len());
    let size = size.trim_ascii_start();
    let is_copied = piece.len() <= SHARED_COPY_BYTES_MAX;
    let bytes = size.len() + b"\r\n\r\n".len() + if is_copied { piece.len() } else { 0 };
    let buffer = io.reserve(bytes).ok_or(NoRoom)?;
    buffer.append(size);
    buffer.append(b"\r\n");
    if is_copied {
        buffer.append(piece);
        buffer.append(b"\r\n");
        return Ok(());
    }
    // It is too long to be copied, which alone could fail.
    let shared = io.write_shared(piece.clone());
    debug_assert!(shared.is_ok(), "long bytes are shared");
    io.write_static(b"\r\n");
    Ok(())
}

/// A length in hexadecimal digits, after spaces.
fn format_size(bytes: usize) -> [u8; 16] {
    let (mut digits, mut left) = ([b' '; 16], bytes);
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[left % 16];
        left /= 16;
        if left == 0 {
            break;
        }
    }
    digits
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
        let _queued = queue(&mut connection.io, &Bytes::from_static(words), push.framing);
    }
    connection.io.restart_phase(Phase::Push);
}
