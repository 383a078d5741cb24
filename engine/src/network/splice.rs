//! Acts for `crate::pairs`: two connections of one network thread whose bytes go from one to the
//! other, and no protocol is asked.
//!
//! Two connections are spliced at the wish of a protocol. From then on their protocol is not called
//! for bytes any more: a piece that arrives is queued as output of the other and sent in the same
//! turn. No worker is involved, and no other thread. Whether a connection is spliced is asked once,
//! at the top of an event: what it does then is in this file.
//!
//! | asked                                | verdict     | what is done                           |
//! |--------------------------------------|-------------|----------------------------------------|
//! | a wish to be spliced                 | `Joining`   | a pair begins, or the wish is refused  |
//! | a piece has come                     | `Arrival`   | it is copied, held, or dropped         |
//! | a buffer has come                    | `Passing`   | it is copied, or queued as it is       |
//! | an event of an end is over           | `Ending`    | FIN is sent, or the pair is over       |
//! | the next bytes are to be taken       | [`Take`]    | a receive, a buffer is filled, a pipe  |
//!
//! - A piece that finds no memory is held, and nothing is received until it has passed.
//! - TLS: what a secured connection brings is opened before it is passed, and what it is given is
//!   sealed as any output; a record that comes in parts is one buffer more. Its end is close_notify
//!   and then FIN. A stream that is cut off, or a record that is not accepted, resets the other: it
//!   must not take a part for the whole.

use flatpath_driver::{Completion, Driver, OperationMode, Outcome, Piece, Segment};
use flatpath_structures::pool::Buffer;
use flatpath_structures::slots::Key;

use crate::connection::output::whole;
use crate::connection::{Chunk, Closing, Connection, Form, Next, Reason, Receive};
use crate::limits::{SPLICE_FILL_BYTES, SPLICE_PULL_BYTES_MAX, SPLICE_PULL_BYTES_MIN};
use crate::network::waits::Wait;
use crate::pairs::ends::{Close, Ending, Standing};
use crate::pairs::joining::{Candidate, Joining, Unfit};
use crate::pairs::passing::{Arrival, Passing, has_room};
use crate::pairs::{PairEnd, Take};
use crate::protocol;
use crate::protocol::connection_handle::ConnectionId;
use crate::protocol::hand_over::Becomes;
use crate::protocol::phase::Stall;

use super::reconcile::Fate;
use super::secure::Opened;
use super::thread::{Event, Network};
use super::user_data::KIND_SEND;

/// A pair is given all that there is: its remainder, too.
const AGAIN: Reason = Reason::Again { for_room: false };

impl<D: Driver> Network<D> {
    /// Carries out a wish to be spliced.
    pub(super) fn splice_as_wished(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(Becomes::Spliced(end)) = connection.take_becoming() else {
            return;
        };
        match self.joining(key, end) {
            Joining::Splice => {
                self.splice(key, end.key);
                self.on(key, |_| {});
            }
            Joining::Refuse(unfit) => self.refuse_splice(key, unfit),
        }
    }

    /// What the protocol wishes then is carried out later, should it be another splice.
    fn refuse_splice(&mut self, key: Key, unfit: Unfit) {
        log::debug!("a splice is refused: {unfit:?}");
        self.counters(key).splices_refused.add(1);
        if let Some(mut event) = self.event(key) {
            event.report(protocol::Event::SpliceRefused);
            event.read_arrived();
            event.wait(Wait::Again);
        }
    }

    fn joining(&self, key: Key, end: ConnectionId) -> Joining {
        let candidate = |connection: &Connection| Candidate {
            is_spliced: connection.is_spliced(),
            is_closing: connection.is_closing(),
        };
        let ends = [key, end.key].map(|key| self.connections.get(key).map(candidate));
        let is_same_thread = end.thread == self.thread.common.number();
        Joining::of(is_same_thread, end.key == key, ends)
    }

    fn splice(&mut self, key: Key, peer: Key) {
        self.counters(key).spliced_pairs.add(1);
        let connections = &self.connections;
        let has_tls = |key| connections.get(key).is_some_and(Connection::is_secured);
        let joined = [peer, key].map(|key| (key, has_tls(key)));
        let ends = self.thread.pairs.join(joined);
        for (one, end) in [peer, key].into_iter().zip(ends) {
            let Some(mut event) = self.event(one) else {
                continue;
            };
            let now_ns = event.thread.now_ns();
            event.connection.splice(end, now_ns);
            event.thread.common.admission.long_lived.add(one.index);
            // From now on the peer's room is asked for before each receive.
            if event.connection.receive() == Receive::Many {
                event.cancel_receive();
            }
        }
        // Both say their words before the first byte of the other passes (J3).
        for one in [peer, key] {
            if let Some(mut event) = self.event(one) {
                event.report(protocol::Event::Spliced);
            }
        }
        for one in [peer, key] {
            self.pass_held(one);
        }
    }

    /// An operation of a spliced connection is over.
    pub(super) fn spliced_completed(&mut self, key: Key, kind: u64, completion: Completion) {
        if kind == KIND_SEND {
            self.spliced_sent(key, completion);
        } else {
            self.spliced_received(key, completion);
        }
    }

    fn spliced_sent(&mut self, key: Key, completion: Completion) {
        let Some(mut event) = self.event(key) else {
            return;
        };
        if event.note_sent(completion) == Fate::Gone {
            return self.remove(key);
        }
        self.on(key, |_| {});
        // What this end has sent is room for the other to receive.
        if let Some(peer) = self.peer_of(key) {
            self.touch(key);
            self.touch(peer);
            self.on(peer, |_| {});
        }
    }

    fn spliced_received(&mut self, key: Key, completion: Completion) {
        let Some(mut event) = self.event(key) else {
            return;
        };
        if !completion.more {
            event.connection.receive_ended();
        }
        match completion.outcome {
            Outcome::Received(piece) => {
                if event.connection.is_bulk() {
                    event.note_flow(&piece);
                }
                self.spliced_arrived(key, piece);
            }
            Outcome::ReceivedInto(buffer) => self.pass_received(key, buffer),
            Outcome::EndOfStream => {
                event.connection.end_came();
                self.pass_held(key);
            }
            other => event.receive_failed(other),
        }
        self.on(key, |_| {});
    }

    /// A piece has arrived.
    fn spliced_arrived(&mut self, key: Key, piece: Piece) {
        let is_full = piece.len() >= self.thread.bulk.page_bytes();
        let Some(mut event) = self.event(key) else {
            return self.thread.driver.recycle(piece);
        };
        event.connection.note_received();
        match Arrival::at(event.connection.as_receiver()) {
            Arrival::Drop => event.drop_piece(piece),
            Arrival::Hold => event.add_to_inbox(piece, false),
            Arrival::HoldAndPass => {
                event.add_to_inbox(piece, false);
                self.pass_held(key);
            }
            Arrival::Pass => {
                event.note_full(is_full);
                if self.pass_piece(key, piece, 0)
                    && let Some(peer) = self.peer_of(key)
                {
                    self.on(peer, |_| {});
                }
            }
        }
    }

    /// Passes on what had come before the splice or found no memory, oldest first, then the end of
    /// the stream.
    fn pass_held(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key) {
            let has_passed = match connection.inbox_mut().next(AGAIN) {
                Next::Records(records) => self.pass_sealed(key, records),
                Next::Chunk(chunk) => self.pass_chunk(key, chunk),
                Next::Nothing | Next::Later | Next::Drop | Next::End => break,
            };
            if !has_passed {
                return;
            }
        }
        if let Some(mut event) = self.event(key)
            && event.connection.end_is_due()
        {
            event.connection.end_reported();
            if event.connection.is_cut_off() {
                event.cut_off();
                return self.on(key, |_| {});
            }
        }
        if let Some(peer) = self.peer_of(key) {
            self.on(peer, |_| {});
        }
    }

    /// The end of a turn has come for one that was deferred before it was spliced.
    pub(super) fn pass_deferred(&mut self, key: Key) {
        let connection = self.connections.get(key);
        if connection.is_some_and(|connection| connection.stalled().is_none()) {
            self.pass_held(key);
        }
        self.on(key, |_| {});
    }

    /// Passes on what found no memory, if there is some now. False: nothing moved.
    pub(super) fn retry_spliced(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return true;
        };
        let before = connection.moved();
        let was_stalled = connection.take_stall().is_some();
        if was_stalled {
            self.pass_held(key);
        }
        let now_ns = self.thread.common.turn.now_ns;
        let connection = self.connections.get_mut(key);
        let has_moved = connection.is_none_or(|connection| connection.note_retry(before, now_ns));
        self.on(key, |_| {});
        !was_stalled || has_moved
    }

    /// A receive into a buffer is back, with what was there.
    fn pass_received(&mut self, key: Key, buffer: Buffer) {
        let bytes = buffer.filled().len();
        let is_full = bytes >= self.thread.bulk.page_bytes();
        let Some(mut event) = self.event(key) else {
            return;
        };
        event.note_full(is_full);
        if bytes > 0
            && let Some(peer) = self.peer_of(key)
        {
            self.pass_buffer(key, buffer);
            self.on(peer, |_| {});
        }
    }

    /// Opens records, and passes on what is in them. False: nothing more is passed, for now or at
    /// all.
    fn pass_sealed(&mut self, key: Key, records: Chunk) -> bool {
        let Some(mut event) = self.event(key) else {
            if let Chunk::Page(piece, _) = records {
                self.thread.driver.recycle(piece);
            }
            return false;
        };
        match event.open_records(records) {
            _ if event.connection.is_refused() => {
                // Before its alert is sealed, which leaves nothing to tell this end from one
                // that closes.
                self.unsplice(key, Closing::Abort);
                self.on(key, |_| {});
                false
            }
            Opened::Nothing => true,
            Opened::Chunk(chunk) => self.pass_chunk(key, chunk),
            Opened::NoMemory => {
                event.stall(Stall::Memory);
                false
            }
        }
    }

    /// Passes on a chunk. False: no memory; it is held until there is some.
    fn pass_chunk(&mut self, key: Key, chunk: Chunk) -> bool {
        match chunk {
            Chunk::Page(piece, from) => return self.pass_piece(key, piece, from),
            Chunk::Buffer(buffer) => self.pass_buffer(key, buffer),
            Chunk::Empty => {}
        }
        true
    }

    /// Copies a piece to the peer's output. False: no memory; it is held until there is some.
    fn pass_piece(&mut self, key: Key, piece: Piece, from: u32) -> bool {
        let Some(peer) = self.peer_of(key) else {
            self.thread.driver.recycle(piece);
            return true;
        };
        let thread = &mut self.thread;
        let bytes = &thread.driver.bytes(&piece)[from as usize..];
        let count = bytes.len();
        let common = &thread.common;
        let pool = common.pool(peer.index);
        let written = self
            .connections
            .get_mut(peer)
            .is_none_or(|to| to.output_mut().write(pool, bytes).is_ok());
        if written {
            thread.driver.recycle(piece);
            self.counters(key).spliced_bytes_copied.add(count as u64);
            self.passed(key, peer, count);
        } else if let Some(mut event) = self.event(key) {
            let inbox = event.connection.inbox_mut();
            inbox.put_back(Chunk::Page(piece, from), Form::Plain);
            event.stall(Stall::Memory);
        }
        written
    }

    fn pass_buffer(&mut self, key: Key, buffer: Buffer) {
        let Some(peer) = self.peer_of(key) else {
            return;
        };
        let common = &self.thread.common;
        let pool = common.pool(peer.index);
        let count = buffer.filled().len();
        if let Some(to) = self.connections.get_mut(peer) {
            let output = to.output_mut();
            match Passing::of(count) {
                Passing::Copy if output.write(pool, buffer.filled()).is_ok() => {}
                Passing::Copy | Passing::AsItIs => output.push(whole(buffer)),
            }
        }
        self.counters(key).spliced_bytes_copied.add(count as u64);
        self.passed(key, peer, count);
    }

    /// Logs, and moves the deadline of both: each byte is life.
    fn passed(&mut self, key: Key, peer: Key, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.log_received(bytes);
        }
        self.touch(key);
        self.touch(peer);
    }

    fn touch(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.touch(self.thread.common.turn.now_ns);
        }
    }

    pub(super) fn is_spliced(&self, key: Key) -> bool {
        self.connections
            .get(key)
            .is_some_and(Connection::is_spliced)
    }

    /// The other end of a connection's pair.
    fn peer_of(&self, key: Key) -> Option<Key> {
        let end = self.connections.get(key)?.pair()?;
        Some(self.thread.pairs.other(end))
    }

    /// True while the peer takes more; true for a connection that has none any more.
    fn peer_has_room(&self, key: Key) -> bool {
        self.peer_of(key)
            .and_then(|peer| self.connections.get(peer))
            .is_none_or(|peer| has_room(peer.output().queued_bytes()))
    }

    /// The end of an event of a spliced connection, as `reconcile` is of any other.
    pub(super) fn reconcile_spliced(&mut self, key: Key) {
        let Some(event) = self.event(key) else {
            return;
        };
        match event.connection.take_becoming() {
            Some(Becomes::Spliced(_)) => self.refuse_splice(key, Unfit::Spliced),
            // Another one was spliced to it meanwhile.
            Some(
                Becomes::Successors(_)
                | Becomes::Introduced
                | Becomes::StartsTls
                | Becomes::Secured(_)
                | Becomes::ReceiveOnly,
            ) => {
                event.connection.close(Closing::Abort);
            }
            None => {}
        }
        let Some(mut event) = self.event(key) else {
            return;
        };
        event.reconcile_output();
        event.check_quota();
        event.charge_pages();
        if event.has_new_holdings() {
            event.charge_buffers();
        }
        self.pass_ends(key);
        let has_room = self.peer_has_room(key);
        let Some(mut event) = self.event(key) else {
            return;
        };
        let wanted = event.connection.wants_input() && has_room;
        if event.may_arm(wanted) {
            self.arm_spliced(key);
        }
        let Some(mut event) = self.event(key) else {
            return;
        };
        match event.reconcile_end() {
            Fate::Gone => self.remove(key),
            Fate::Stays | Fate::Splices => event.reconcile_deadline(),
        }
    }

    /// Takes the next bytes, or arms a single receive for them: the peer's room is asked for before
    /// each.
    pub(super) fn arm_spliced(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let end = connection.pair();
        let take = end.map_or(Take::Page, |end| self.thread.pairs.take(end));
        if let (Take::Pipe, Some(end)) = (take, end)
            && self.splice_from(key, end)
            && !self.peer_has_room(key)
        {
            // What is sent makes room, and is followed by an event of this end.
            return;
        }
        // It may have moved all that there was.
        let take = end.map_or(Take::Page, |end| self.thread.pairs.take(end));
        let Some(mut event) = self.event(key) else {
            return;
        };
        let common = &event.thread.common;
        let pool = common.pool(key.index);
        let buffer = match take {
            Take::Page => None,
            Take::Buffer | Take::Pipe => pool.take(SPLICE_FILL_BYTES),
        };
        let user_data = event.begin_receive(Receive::Once);
        let (socket, driver) = (event.connection.socket(), &mut event.thread.driver);
        match buffer {
            Some(buffer) => driver.recv_into(socket, user_data, buffer),
            None => driver.receive(socket, user_data, OperationMode::Single, 0),
        }
    }

    /// Moves what a stream has brought to the peer's output, which is then being sent. False: it is
    /// to be received.
    fn splice_from(&mut self, key: Key, end: PairEnd) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let (socket, peer) = (connection.socket(), self.thread.pairs.other(end));
        let bounds = SPLICE_PULL_BYTES_MIN..=SPLICE_PULL_BYTES_MAX;
        let Some(piped) = self
            .thread
            .driver
            .splice_from(socket, &self.thread.pipes, bounds)
        else {
            return false;
        };
        let count = piped.len();
        // All that there was has been moved: what comes next is waited for.
        self.thread.pairs.note(end, count == SPLICE_PULL_BYTES_MAX);
        self.counters(key).spliced_bytes_moved.add(count as u64);
        self.passed(key, peer, count);
        if let Some(mut event) = self.event(peer) {
            event.connection.output_mut().push(Segment::Piped(piped));
            // Not a whole event, which would come back to this end.
            event.start_send();
            event.reconcile_deadline();
        }
        true
    }

    /// Passes ends on: FIN after the last byte of the other, and the end of the pair.
    fn pass_ends(&mut self, key: Key) {
        let Some(peer) = self.peer_of(key) else {
            return;
        };
        let [this, other] = [key, peer].map(|key| {
            let connection = self.connections.get(key);
            connection.map_or(Standing::GONE, Connection::standing)
        });
        match Ending::of(this, other) {
            Ending::Continue => {}
            Ending::Finish => {
                if let Some(mut event) = self.event(key) {
                    event.wait(Wait::Fin);
                }
            }
            Ending::Part(Close::AfterOutput) => self.unsplice(key, Closing::AfterOutput),
            Ending::Part(Close::Reset) => self.unsplice(key, Closing::Abort),
            Ending::Both => {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.close(Closing::AfterOutput);
                }
                self.unsplice(key, Closing::AfterOutput);
            }
        }
    }

    /// Sends FIN to those who are still spliced to one that has ended.
    pub(super) fn send_fins(&mut self) {
        for _ in 0..self.thread.waits.len(Wait::Fin) {
            let Some(key) = self.next_waiting(Wait::Fin) else {
                break;
            };
            let Some(event) = self.event(key) else {
                continue;
            };
            let connection = event.connection;
            // Unspliced meanwhile it is being closed; and if its protocol wrote something since,
            // the FIN follows the last byte of that.
            let is_due = connection.is_spliced() && connection.may_finish();
            if is_due && connection.owes_closing_alert() {
                // They are sent by the event, and FIN is due when they are.
                self.on(key, |_| {});
            } else if is_due && connection.finish() {
                event.thread.driver.shutdown_write(connection.socket());
            }
        }
    }

    /// A pair is over; the other end closes as `closing` says.
    fn unsplice(&mut self, key: Key, closing: Closing) {
        let Some(mut event) = self.event(key) else {
            return;
        };
        let Some(end) = event.connection.unsplice() else {
            return;
        };
        let peer = event.thread.pairs.part(end);
        event.counters().unspliced.add(1);
        // With TLS an end has words of its own, which go before the socket is closed.
        event.reconcile_output();
        // J1: the other is no end from now on, either.
        self.on(peer, |event| {
            event.connection.unsplice();
            event.connection.close(closing);
        });
    }
}

impl<D: Driver> Event<'_, D> {
    /// Notes whether the last receive of an end of a pair was full.
    fn note_full(&mut self, is_full: bool) {
        if let Some(end) = self.connection.pair() {
            self.thread.pairs.note(end, is_full);
        }
    }
}
