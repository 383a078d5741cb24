//! Spliced connections: what arrives on one goes out of the other, and no protocol is asked.
//!
//! Two connections of one network thread are spliced at the wish of a protocol. From then on their
//! protocol is not called for bytes any more: a piece that arrives is queued as output of the peer
//! and sent in the same turn. No worker is involved, and no other thread. Whether a connection is
//! spliced is asked once, at the top of an event: what it does then is in this file.
//!
//! - Back-pressure: a connection is received from only while its peer has less than
//!   [`SPLICE_BYTES_MAX`] queued; TCP tells the sender. One receive at a time, so the bound is
//!   that and one buffer for each direction of a pair; in memory twice that, because a buffer is
//!   queued as it is when half of it is filled.
//! - Streams: a receive that filled its buffer shows a stream. What has come after it is moved to
//!   the peer through a pipe, without a copy, when it is much and the driver can; else a pooled
//!   buffer is filled with it, which is then sent as it is. Small receives are copied out of the
//!   shared receive buffer, so that a quiet pair holds no memory.
//! - Half-close: the end of one stream is passed on as FIN after the last byte; the other direction
//!   continues. When both have ended, both connections close.
//! - Errors: when one connection breaks, what it had not passed on is lost, and the peer is reset.
//! - TLS: what a secured connection brings is opened before it is passed, and what it is given is
//!   sealed as any output; a record that comes in parts is one buffer more. Its end is close_notify
//!   and then FIN. A stream that is cut off, or a record that is not accepted, resets the peer: it
//!   must not take a part for the whole. How far bytes may stay in the kernel is decided when the
//!   two are spliced ([`StreamsBy`]), so that a pair without TLS asks nothing later.
//!
//! Invariants
//! - J1: peers are mutual: if A names B, B names A, or B is gone and its end has been passed on.
//! - J2: a pair is counted in `spliced` when both peers are set and in `unspliced` when both are
//!   taken.
//! - J3: bytes leave in the order in which they came, after what is written for `Event::Spliced`.

use flatpath_driver::{Completion, Driver, OperationMode, Outcome, Piece, Segment};
use flatpath_structures::pool::Buffer;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection, Front, Receive, StreamsBy};
use crate::connection_handle::ConnectionId;
use crate::hand_over::Becomes;
use crate::limits::{
    SPLICE_BYTES_MAX, SPLICE_FILL_BYTES, SPLICE_PULL_BYTES_MAX, SPLICE_PULL_BYTES_MIN,
};
use crate::output::whole;
use crate::phase::Stall;
use crate::protocol;
use crate::waits::Wait;

use super::reconcile::Fate;
use super::secure::Unsealed;
use super::thread::Network;
use super::user_data::KIND_SEND;

impl<D: Driver> Network<D> {
    /// Carries out a wish to be spliced.
    pub(super) fn splice_as_wished(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(Becomes::Spliced(end)) = connection.take_becoming() else {
            return;
        };
        if self.may_splice(key, end) {
            self.splice(key, end.key);
            self.on(key, |_| {});
        } else {
            self.refuse_splice(key);
        }
    }

    /// What the protocol wishes then is carried out later, should it be another splice.
    fn refuse_splice(&mut self, key: Key) {
        self.counters(key).splices_refused.add(1);
        if let Some(mut event) = self.event(key) {
            event.report(protocol::Event::SpliceRefused);
            event.pump();
            event.wait(Wait::Again);
        }
    }

    /// Both must be of this thread, here, whole and single.
    fn may_splice(&self, key: Key, end: ConnectionId) -> bool {
        let single =
            |connection: &Connection| connection.peer().is_none() && !connection.is_closing();
        end.thread == self.thread.common.number
            && end.key != key
            && self.connections.get(key).is_some_and(single)
            && self.connections.get(end.key).is_some_and(single)
    }

    fn splice(&mut self, key: Key, peer: Key) {
        self.counters(key).spliced_pairs.add(1);
        let secured = |key| {
            self.connections
                .get(key)
                .is_some_and(Connection::is_secured)
        };
        let secured = [secured(peer), secured(key)];
        for (one, other, ends) in [(peer, key, secured), (key, peer, [secured[1], secured[0]])] {
            let Some(mut event) = self.event(one) else {
                continue;
            };
            let now_ns = event.thread.now_ns();
            let most = match ends {
                [true, _] => StreamsBy::Pieces,
                [false, true] => StreamsBy::Buffers,
                [false, false] => StreamsBy::Pipes,
            };
            event.connection.splice(other, most, now_ns);
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
            self.pass_kept(one);
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
        let whole = piece.len() >= self.thread.bulk.page_bytes();
        let Some(mut event) = self.event(key) else {
            return self.thread.driver.recycle(piece);
        };
        let connection = &mut *event.connection;
        connection.note_received();
        if !connection.may_be_offered() {
            return event.drop_unwanted(piece);
        }
        if connection.passes_in_turn() {
            return self.pass_in_turn(key, piece);
        }
        connection.note_stream(whole);
        if self.pass_piece(key, piece, 0)
            && let Some(peer) = self.peer_of(key)
        {
            self.on(peer, |_| {});
        }
    }

    /// The same for a piece that comes after others, which wait for memory or for the end of the
    /// turn, or that is records.
    fn pass_in_turn(&mut self, key: Key, piece: Piece) {
        let Some(connection) = self.connections.get_mut(key) else {
            return self.thread.driver.recycle(piece);
        };
        let is_next = !connection.holds_pieces();
        connection.hold(piece);
        if is_next {
            self.pass_held(key);
        }
    }

    /// Passes on what had been received and not consumed before.
    fn pass_kept(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Some(input) = connection.take_input() {
            self.pass_buffer(key, input);
        }
        self.pass_held(key);
    }

    /// Passes on pieces that found no memory, oldest first, then the end of the stream.
    fn pass_held(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key) {
            let front = connection.front();
            let Some((piece, from)) = connection.take_held() else {
                break;
            };
            let has_passed = match front {
                Front::Sealed => self.pass_sealed(key, piece, from),
                Front::Clear | Front::Content => self.pass_piece(key, piece, from),
            };
            if !has_passed {
                return;
            }
        }
        if let Some(mut event) = self.event(key)
            && event.connection.end_is_untold()
        {
            event.connection.end_told();
            if event.connection.is_cut_off() {
                event.cut_off();
                return self.sever(key);
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
        let streams = bytes >= self.thread.bulk.page_bytes();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(peer) = connection.peer() else {
            return;
        };
        connection.note_stream(streams);
        if bytes > 0 {
            self.pass_buffer(key, buffer);
            self.on(peer, |_| {});
        }
    }

    /// Opens records, and passes on what is in them. False: nothing more is passed, for now or at
    /// all.
    fn pass_sealed(&mut self, key: Key, piece: Piece, from: u32) -> bool {
        let Some(mut event) = self.event(key) else {
            self.thread.driver.recycle(piece);
            return false;
        };
        match event.unseal(piece, from) {
            _ if event.connection.is_refused() => {
                self.sever(key);
                false
            }
            Unsealed::Nothing => true,
            Unsealed::Here(piece, from) => self.pass_piece(key, piece, from),
            Unsealed::Gathered(content) => {
                self.pass_buffer(key, content);
                true
            }
            Unsealed::NoMemory => {
                event.stall(Stall::Memory);
                false
            }
            Unsealed::TooLong => unreachable!("no input is kept of a spliced connection"),
        }
    }

    /// Ends a pair one of whose streams was cut off: the other end is to see that it is not whole.
    fn sever(&mut self, key: Key) {
        if let Some(peer) = self.peer_of(key) {
            self.unsplice(key, peer, Closing::Abort);
        }
        self.on(key, |_| {});
    }

    /// Copies a piece to the peer's output. False: no memory; it is held until there is some.
    fn pass_piece(&mut self, key: Key, piece: Piece, from: u32) -> bool {
        let thread = &mut self.thread;
        let connection = self.connections.get(key);
        let Some(peer) = connection.and_then(Connection::peer) else {
            thread.driver.recycle(piece);
            return true;
        };
        let bytes = &thread.driver.bytes(&piece)[from as usize..];
        let count = bytes.len();
        let common = &thread.common;
        let pool = common.shared.memory.pools.handle(common.number, peer.index);
        let written = self
            .connections
            .get_mut(peer)
            .is_none_or(|to| to.output_mut().write(pool, bytes).is_ok());
        if written {
            thread.driver.recycle(piece);
            self.counters(key).spliced_bytes_copied.add(count as u64);
            self.passed(key, peer, count);
        } else if let Some(mut event) = self.event(key) {
            event.connection.hold_first(piece, from);
            event.stall(Stall::Memory);
        }
        written
    }

    /// Passes a buffer on: as a copy if it holds less than half of [`SPLICE_FILL_BYTES`] and there
    /// is memory for one, else as it is.
    fn pass_buffer(&mut self, key: Key, buffer: Buffer) {
        let Some(peer) = self.peer_of(key) else {
            return;
        };
        let common = &self.thread.common;
        let pool = common.shared.memory.pools.handle(common.number, peer.index);
        let count = buffer.filled().len();
        if let Some(to) = self.connections.get_mut(peer) {
            let output = to.output_mut();
            let is_short = count < SPLICE_FILL_BYTES / 2;
            if !is_short || output.write(pool, buffer.filled()).is_err() {
                output.push(whole(buffer));
            }
        }
        self.counters(key).spliced_bytes_copied.add(count as u64);
        self.passed(key, peer, count);
    }

    /// Logs, and moves the deadline of both: each byte is life.
    fn passed(&mut self, key: Key, peer: Key, bytes: usize) {
        let connection = self.connections.get_mut(key);
        if let Some(logged) = connection.and_then(|connection| connection.logged.as_mut()) {
            logged.received_bytes += bytes as u64;
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
        self.peer_of(key).is_some()
    }

    fn peer_of(&self, key: Key) -> Option<Key> {
        self.connections.get(key)?.peer()
    }

    /// True while the peer takes more; true for a connection that has none any more.
    fn peer_has_room(&self, key: Key) -> bool {
        self.peer_of(key)
            .and_then(|peer| self.connections.get(peer))
            .is_none_or(|peer| peer.output().queued_bytes() < SPLICE_BYTES_MAX)
    }

    /// The end of an event of a spliced connection, as `reconcile` is of any other.
    pub(super) fn reconcile_spliced(&mut self, key: Key) {
        let Some(event) = self.event(key) else {
            return;
        };
        match event.connection.take_becoming() {
            Some(Becomes::Spliced(_)) => self.refuse_splice(key),
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

    /// Arms a single receive: its peer's room is asked for before each.
    pub(super) fn arm_spliced(&mut self, key: Key) {
        if self.splice_from(key) && !self.peer_has_room(key) {
            // What is sent makes room, and is followed by an event of this end.
            return;
        }
        let Some(mut event) = self.event(key) else {
            return;
        };
        let streams = event.connection.streams();
        let common = &event.thread.common;
        let pool = common.shared.memory.pools.handle(common.number, key.index);
        // A buffer of its own, for a connection that streams.
        let buffer = streams.then(|| pool.take(SPLICE_FILL_BYTES)).flatten();
        let user_data = event.begin_receive(Receive::Once);
        let (socket, driver) = (event.connection.socket(), &mut event.thread.driver);
        match buffer {
            Some(buffer) => driver.recv_into(socket, user_data, buffer),
            None => driver.receive(socket, user_data, OperationMode::Single, 0),
        }
    }

    /// Moves what a stream has brought to the peer's output, which is then being sent. False: it is
    /// to be received.
    fn splice_from(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let socket = connection.socket();
        let Some(peer) = connection.peer().filter(|_| connection.streams_by_pipes()) else {
            return false;
        };
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
        connection.note_stream(count == SPLICE_PULL_BYTES_MAX);
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
        let connection = self.connections.get(peer);
        let peer_ended = connection.is_none_or(Connection::end_is_told);
        let Some(mut event) = self.event(key) else {
            return;
        };
        let connection = &mut *event.connection;
        let (closing, ended) = (connection.closing(), connection.end_is_told());
        if connection.is_closing() {
            let same = if closing == Closing::Abort {
                Closing::Abort
            } else {
                Closing::AfterOutput
            };
            self.unsplice(key, peer, same);
        } else if peer_ended && ended {
            connection.close(Closing::AfterOutput);
            self.unsplice(key, peer, Closing::AfterOutput);
        } else if peer_ended && connection.may_finish() {
            // At the end of the turn: the peer may be over by then, and a close sends the FIN, too.
            event.wait(Wait::Fin);
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
            let is_due = connection.peer().is_some() && connection.may_finish();
            if is_due && connection.owes_last_words() {
                // They are sent by the event, and FIN is due when they are.
                self.on(key, |_| {});
            } else if is_due && connection.finish() {
                event.thread.driver.shutdown_write(connection.socket());
            }
        }
    }

    /// Takes both peers; the other end ends as `closing` says.
    fn unsplice(&mut self, key: Key, peer: Key, closing: Closing) {
        self.counters(key).unspliced.add(1);
        if let Some(mut event) = self.event(key) {
            event.connection.unsplice();
            // With TLS an end has words of its own, which go before the socket is closed.
            event.reconcile_output();
        }
        self.on(peer, |event| {
            event.connection.unsplice();
            event.connection.close(closing);
        });
    }
}
