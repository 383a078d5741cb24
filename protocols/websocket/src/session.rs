//! One connection, and one of its turns with a worker.

use std::collections::VecDeque;

use crate::close::Close;
use crate::codec::Reader;
use crate::decoder::{Decoder, Received};
use crate::fault::Fault;
use crate::handler::Peer;
use crate::limits::{Limits, WAITING_BYTES_MAX};
use crate::socket::Socket;

/// What a connection keeps. It is a pointer, so that the table of connections is small; all that it
/// points to goes with the connection.
#[derive(Default)]
pub(crate) struct Session(pub(crate) Option<Box<Open>>);

/// How a conversation comes to its end; the first reason counts.
#[derive(Debug)]
pub(crate) enum End {
    /// The client's close frame, which is to be answered unless ours was first.
    Received(Box<Close>),
    /// The client did something wrong.
    Fault(Fault),
    /// The client's stream has ended without a close frame.
    Broken,
}

/// See [`Session`].
pub(crate) struct Open {
    pub(crate) decoder: Decoder,
    pub(crate) socket: Socket,
    /// With a worker while a job is out.
    pub(crate) desk: Option<Desk>,
    /// Messages that wait for the worker.
    pub(crate) waiting: VecDeque<Received>,
    /// What they take of memory.
    pub(crate) waiting_bytes: usize,
    pub(crate) end: Option<End>,
    /// The server drains: the conversation ends as soon as all that has come is handled.
    pub(crate) drains: bool,
    /// Our close frame is in the output, or before that.
    pub(crate) said_close: bool,
    /// A ping is out, and nothing has come since.
    pub(crate) awaits_pong: bool,
    /// Input was left unconsumed.
    pub(crate) has_left: bool,
    /// Bytes inflated in this call of an inline handler's connection.
    pub(crate) inflated_bytes: u32,
    /// Its last run with a worker inflated as much as one may: the next one comes after others'.
    pub(crate) is_heavy: bool,
}

/// What handles messages; it goes to the worker with them.
pub(crate) struct Desk {
    pub(crate) peer: Peer,
    pub(crate) reader: Reader,
}

impl Desk {
    /// Gives a message to the handler.
    pub(crate) fn message(&mut self, received: Received, limits: &Limits) -> Result<(), Fault> {
        let message = self.reader.message(received, limits)?;
        self.peer.message(message);
        Ok(())
    }
}

impl Open {
    pub(crate) fn new(desk: Desk, may_compress: bool) -> Open {
        Open {
            decoder: Decoder::new(may_compress),
            socket: desk.peer.socket.clone(),
            desk: Some(desk),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            end: None,
            drains: false,
            said_close: false,
            awaits_pong: false,
            has_left: false,
            inflated_bytes: 0,
            is_heavy: false,
        }
    }

    /// Whether the handler has nothing to do, and nothing waits for it.
    pub(crate) fn is_handled(&self) -> bool {
        let is_idle = self.desk.as_ref().is_some_and(|desk| desk.peer.is_opened);
        is_idle && self.waiting.is_empty()
    }

    pub(crate) fn wait(&mut self, received: Received) {
        self.waiting_bytes += waiting_bytes(&received);
        self.waiting.push_back(received);
    }

    /// What a worker has left comes before what has waited since.
    pub(crate) fn put_back(&mut self, left: &mut VecDeque<Received>) {
        if left.is_empty() {
            return;
        }
        let since = std::mem::replace(&mut self.waiting, std::mem::take(left));
        self.waiting_bytes += self.waiting.iter().map(waiting_bytes).sum::<usize>();
        self.waiting.extend(since);
    }

    /// Of what waits as much as a worker gets at a time. The rest waits on, counted (W1): what a
    /// worker has left, and what came meanwhile, would be more with each run.
    pub(crate) fn take_batch(&mut self) -> VecDeque<Received> {
        if self.waiting_bytes <= WAITING_BYTES_MAX {
            return self.take_waiting();
        }
        let (mut batch, mut bytes) = (VecDeque::new(), 0);
        while bytes < WAITING_BYTES_MAX
            && let Some(received) = self.waiting.pop_front()
        {
            bytes += waiting_bytes(&received);
            batch.push_back(received);
        }
        self.waiting_bytes -= bytes;
        batch
    }

    /// All that waits.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Received> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Ends the conversation, unless it is ending.
    pub(crate) fn ends(&mut self, end: End) {
        self.end.get_or_insert(end);
    }
}

/// Messages on their way to a worker and back.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) desk: Option<Desk>,
    pub(crate) messages: VecDeque<Received>,
    pub(crate) fault: Option<Fault>,
    /// This run inflated as much as one may; messages may be left.
    pub(crate) is_heavy: bool,
}

impl Work {
    /// The handler has panicked.
    pub(crate) fn panicked(&mut self) {
        self.fault = Some(Fault::Handler);
        self.messages.clear();
    }
}

/// What a message that waits counts for. An empty one takes memory, too.
fn waiting_bytes(received: &Received) -> usize {
    size_of::<Received>() + received.payload.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::message::Message;

    #[test]
    fn empty_messages_that_wait_are_bounded() {
        let handler = |_: &Socket, _: Message| {};
        let desk = Desk {
            peer: Peer::new(handler, Socket::new(0, None, Codec::default())),
            reader: Reader::default(),
        };
        let mut open = Open::new(desk, false);
        for _ in 0..WAITING_BYTES_MAX / 8 {
            open.wait(Received {
                is_text: true,
                is_compressed: false,
                payload: bytes::Bytes::new(),
            });
        }
        assert!(open.waiting_bytes >= WAITING_BYTES_MAX);
        open.take_waiting();
        assert_eq!(open.waiting_bytes, 0);
    }
}
