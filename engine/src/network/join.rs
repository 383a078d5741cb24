//! Joined connections: what arrives on one goes out of the other, and nobody is asked.
//!
//! Two connections of one network thread are joined at the wish of a protocol. From then on their
//! protocol is not called for bytes any more: a piece that arrives is queued as output of the other
//! end and sent in the same turn. No worker is involved, and no other thread.
//!
//! - Back-pressure: a connection is received from only while its other end has less than
//!   [`JOINED_BYTES_MAX`] queued; TCP tells the sender. One receive at a time, so the bound is
//!   that and one buffer for each direction of a pair.
//! - Streams: a receive that filled its buffer shows a stream. What has come behind it is moved to
//!   the other end through a pipe, without a copy, when it is much and the driver can; else a
//!   pooled buffer is filled with it, which is then sent as it is. What trickles is copied out of
//!   the shared receive buffer, so that a quiet pair holds no memory.
//! - Half-close: the end of one stream is passed on as FIN behind the last byte; the other
//!   direction goes on. When both have ended, both connections close.
//! - Errors: when one connection breaks, what it had not passed on is lost, and the other is reset.
//!
//! Invariants
//! - J1: joints are mutual: if A names B, B names A, or B is gone and its end has been passed on.
//! - J2: a pair is counted in `joined` when both joints are set and in `parted` when both are
//!   taken.
//! - J3: bytes leave in the order in which they came; the words of `Protocol::joined` go first.

use flatpath_driver::{Driver, OperationMode, Piece, Segment};
use flatpath_structures::pool::Buffer;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection, Ended, Joint};
use crate::end::ConnectionId;
use crate::limits::{
    JOINED_BYTES_MAX, JOINED_FILL_BYTES, JOINED_PULL_BYTES_MAX, JOINED_PULL_BYTES_MIN,
};
use crate::phase::{Phase, Stall};

use super::Network;

impl<D: Driver> Network<D> {
    /// Carries out a wish to join, if there is one.
    pub(super) fn join_if_wished(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(end) = connection.control.join.take() else {
            return;
        };
        if self.may_join(key, end) {
            self.join(key, end.key);
        } else {
            self.common.shared.statistics.joins_refused.add(1);
            self.call(key, |speaker, io| speaker.join_refused(io));
        }
    }

    /// Both must be of this thread, here, whole and single.
    fn may_join(&self, key: Key, end: ConnectionId) -> bool {
        let single = |connection: &Connection| {
            connection.joint.is_none() && connection.control.closing == Closing::No
        };
        end.ring == self.common.ring
            && end.key != key
            && self.connections.get(key).is_some_and(single)
            && self.connections.get(end.key).is_some_and(single)
    }

    fn join(&mut self, key: Key, peer: Key) {
        self.common.shared.statistics.joined.add(1);
        for (one, other) in [(peer, key), (key, peer)] {
            if let Some(connection) = self.connections.get_mut(one) {
                connection.joint = Some(Joint::to(other));
                connection.stalled = None;
                // Passed on and not kept: it needs no page of a listener's own.
                connection.region_id = 0;
                connection.shares = false;
                connection.control.phase = Phase::Joined;
                connection.control.phase_started = true;
            }
        }
        // Both say their words before the first byte of the other passes (J3).
        for one in [peer, key] {
            self.call(one, |speaker, io| speaker.joined(io));
        }
        for one in [peer, key] {
            self.pass_kept(one);
        }
    }

    /// Passes on what had been received and not consumed before the join.
    fn pass_kept(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Some(input) = connection.input.take() {
            self.pass_buffer(key, input);
        }
        self.pass_held(key);
    }

    /// Passes on pieces that found no memory, oldest first, then the end of the stream.
    pub(super) fn pass_held(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key) {
            let Some((piece, from)) = connection.held.pop_front() else {
                break;
            };
            if !self.pass_piece(key, piece, from) {
                return;
            }
        }
        if let Some(connection) = self.connections.get_mut(key)
            && connection.ended == Ended::Seen
        {
            connection.ended = Ended::Told;
        }
        if let Some(peer) = self.peer_of(key) {
            self.settle(peer);
        }
    }

    /// A piece has arrived on a joined connection.
    pub(super) fn pass_arrived(&mut self, key: Key, piece: Piece) {
        let whole = piece.len() >= self.receive_buffer_bytes;
        if let Some(joint) = self.joint_of(key) {
            joint.streams = whole;
        }
        if self.pass_piece(key, piece, 0)
            && let Some(peer) = self.peer_of(key)
        {
            self.settle(peer);
        }
    }

    /// A recv_into of a joined connection is back, with what was there.
    pub(super) fn pass_received(&mut self, key: Key, buffer: Buffer) {
        let bytes = buffer.filled().len();
        let streams = bytes >= self.receive_buffer_bytes;
        match self.joint_of(key) {
            Some(joint) => joint.streams = streams,
            // Parted meanwhile: nobody is left to send it to.
            None => return,
        }
        if bytes > 0 {
            self.pass_buffer(key, buffer);
            if let Some(peer) = self.peer_of(key) {
                self.settle(peer);
            }
        }
    }

    /// Copies a piece to the other end's output. False: no memory; it is held until there is some.
    fn pass_piece(&mut self, key: Key, piece: Piece, from: u32) -> bool {
        let now_ns = self.common.turn.now_ns;
        let Some(peer) = self.peer_of(key) else {
            self.recycle(piece);
            return true;
        };
        let bytes = &self.driver.bytes(&piece)[from as usize..];
        let count = bytes.len();
        let pool = self
            .common
            .shared
            .pools
            .handle(self.common.ring, peer.index);
        let written = self
            .connections
            .get_mut(peer)
            .is_none_or(|to| to.output.write(pool, bytes).is_ok());
        if written {
            self.recycle(piece);
            self.passed(key, peer, count);
        } else if let Some(connection) = self.connections.get_mut(key) {
            connection.held.push_front((piece, from));
            connection.stall(Stall::Memory, now_ns);
        }
        written
    }

    fn pass_buffer(&mut self, key: Key, buffer: Buffer) {
        let Some(peer) = self.peer_of(key) else {
            return;
        };
        let count = buffer.filled().len();
        let to = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.output.push(Segment::Pooled {
                buffer,
                from: 0,
                to,
            });
        }
        self.passed(key, peer, count);
    }

    /// Counts, and moves the deadline of both: each byte is life.
    fn passed(&mut self, key: Key, peer: Key, bytes: usize) {
        self.common.shared.statistics.joined_bytes.add(bytes as u64);
        self.touch(key);
        self.touch(peer);
    }

    pub(super) fn touch(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.clocks.phase_ns = self.common.turn.now_ns;
        }
    }

    fn joint_of(&mut self, key: Key) -> Option<&mut Joint> {
        self.connections.get_mut(key)?.joint.as_mut()
    }

    /// The other end of a joined connection.
    pub(super) fn peer_of(&self, key: Key) -> Option<Key> {
        Some(self.connections.get(key)?.joint.as_ref()?.peer)
    }

    /// True while the other end of a joined connection takes more; true for a single one.
    pub(super) fn peer_has_room(&self, key: Key) -> bool {
        self.peer_of(key)
            .and_then(|peer| self.connections.get(peer))
            .is_none_or(|peer| peer.output.queued_bytes() < JOINED_BYTES_MAX)
    }

    /// Moves what a stream has brought to the other end's output, which is then being sent. False:
    /// it is to be received.
    pub(super) fn splice_from(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        let socket = connection.socket;
        let Some(joint) = connection.joint.as_mut().filter(|joint| joint.streams) else {
            return false;
        };
        let peer = joint.peer;
        let bounds = JOINED_PULL_BYTES_MIN..=JOINED_PULL_BYTES_MAX;
        let Some(piped) = self.driver.splice_from(socket, &self.pipes, bounds) else {
            return false;
        };
        let count = piped.len();
        // All that there was has been moved: what comes next is waited for.
        joint.streams = count == JOINED_PULL_BYTES_MAX;
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.output.push(Segment::Piped(piped));
        }
        self.common
            .shared
            .statistics
            .joined_bytes_moved
            .add(count as u64);
        self.passed(key, peer, count);
        // Not settled as a whole, which would come back to this end.
        self.start_send(peer);
        self.arrange_deadline(peer);
        true
    }

    /// A buffer to fill, for a connection that streams.
    pub(super) fn buffer_to_fill(&mut self, key: Key) -> Option<Buffer> {
        let joint = self.joint_of(key)?;
        if !joint.streams {
            return None;
        }
        let pool = self.common.shared.pools.handle(self.common.ring, key.index);
        pool.take(JOINED_FILL_BYTES)
    }

    /// How a joined connection is received from.
    pub(super) fn receive_mode_of(connection: &Connection) -> OperationMode {
        // One at a time where what comes next may be for another: its room is asked for each time.
        let single = connection.joint.is_some() || connection.control.phase == Phase::Wait;
        // Into a listener's pages, too: what arrives is likely to be kept.
        if connection.spoke && !single && !connection.crowds && connection.region_id == 0 {
            OperationMode::Multishot
        } else {
            OperationMode::Single
        }
    }

    /// Passes ends on: FIN behind the last byte of the other, and the end of the pair.
    pub(super) fn settle_joint(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let Some(peer) = connection.joint.as_ref().map(|joint| joint.peer) else {
            return;
        };
        let peer_ended = self
            .connections
            .get(peer)
            .is_none_or(|peer| peer.ended == Ended::Told);
        let (closing, ended) = (connection.control.closing, connection.ended == Ended::Told);
        if closing != Closing::No {
            let same = if closing == Closing::Abort {
                Closing::Abort
            } else {
                Closing::AfterOutput
            };
            self.part(key, peer, same);
        } else if peer_ended && ended {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.control.close(Closing::AfterOutput);
            }
            self.part(key, peer, Closing::AfterOutput);
        } else if peer_ended && connection.is_sent() {
            self.pass_fin(key);
        }
    }

    /// At the end of the turn: the other end may be over by then, and a close sends the FIN, too.
    fn pass_fin(&mut self, key: Key) {
        if let Some(joint) = self.joint_of(key)
            && !joint.fin_sent
        {
            joint.fin_sent = true;
            self.fins.push(key);
        }
    }

    /// Sends FIN to those who are still joined to one that has ended.
    pub(super) fn send_fins(&mut self) {
        for index in 0..self.fins.len() {
            let key = self.fins[index];
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            let is_sent = connection.is_sent();
            match &mut connection.joint {
                // Parted meanwhile: it is being closed.
                None => {}
                Some(_) if is_sent => self.driver.shutdown_write(connection.socket),
                // Its protocol wrote something since: the FIN follows the last byte of that.
                Some(joint) => joint.fin_sent = false,
            }
        }
        self.fins.clear();
    }

    /// Takes both joints; the other end ends as `closing` says.
    fn part(&mut self, key: Key, peer: Key, closing: Closing) {
        self.common.shared.statistics.parted.add(1);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.joint = None;
        }
        let Some(connection) = self.connections.get_mut(peer) else {
            return;
        };
        connection.joint = None;
        connection.control.close(closing);
        self.settle(peer);
    }
}
