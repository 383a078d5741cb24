//! Bytes in: offer them to the protocol where they lie, keep what it leaves, stop when it stalls.
//!
//! The common case copies nothing: a whole request lies in one receive buffer, the protocol reads
//! it there, and the buffer goes back to the ring before the turn ends. Only a remainder is copied,
//! to a pooled buffer of the connection's own, so that no slow client can hold a receive buffer.

use flatpath_driver::{Completion, Driver, Errno, Outcome, Piece};
use flatpath_structures::pool::{Buffer, PoolHandle};
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection, Ended, Receive};
use crate::io::Io;
use crate::limits::{BUFFER_CLASSES, INPUT_BYTES_MAX, JOIN_BYTES_MAX, LINGER_BYTES_MAX};
use crate::phase::{Phase, Stall};
use crate::protocol::Received;

use super::Network;

impl<D: Driver> Network<D> {
    pub(super) fn receive_completed(&mut self, key: Key, completion: Completion) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !completion.more {
            connection.receive = Receive::Off;
        }
        match completion.outcome {
            Outcome::Received(piece) => {
                let crowds = connection.crowds;
                if crowds || piece.len() > self.at_once_bytes_max() {
                    self.weigh_receive(key, piece.len());
                }
                self.piece_arrived(key, piece);
            }
            Outcome::ReceivedInto(buffer) => self.pass_received(key, buffer),
            Outcome::EndOfStream => {
                connection.ended = Ended::Seen;
                self.pump(key);
            }
            Outcome::Failed(Errno::NOBUFS) => {
                // Never an end of stream: armed again when a page is free.
                self.starve(key);
            }
            Outcome::Failed(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Outcome::Failed(errno) => {
                log::debug!("receive failed: {errno}");
                connection.ended = Ended::Told;
                connection.control.close(Closing::Abort);
            }
            Outcome::Accepted(socket) => {
                debug_assert!(false, "a receive does not accept");
                self.driver.close(socket);
            }
            Outcome::Sent { .. } | Outcome::Signalled(_) => {
                debug_assert!(false, "a receive neither sends nor watches");
            }
        }
        self.settle(key);
    }

    fn piece_arrived(&mut self, key: Key, piece: Piece) {
        let at_once_bytes_max = self.at_once_bytes_max();
        let Some(connection) = self.connections.get_mut(key) else {
            return self.recycle(piece);
        };
        connection.spoke = true;
        connection.received(piece.len(), self.common.turn.now_ns, &self.common.limits);
        if connection.control.closing == Closing::Lingering && connection.fin_sent {
            connection.linger_bytes += piece.len() as u64;
            if connection.linger_bytes > LINGER_BYTES_MAX {
                connection.control.close(Closing::Abort);
            }
            return self.recycle(piece);
        }
        if connection.control.closing != Closing::No || !connection.control.input_wanted {
            return self.recycle(piece);
        }
        if connection.joint.is_some() {
            if connection.held.is_empty() {
                return self.pass_arrived(key, piece);
            }
            connection.held.push_back((piece, 0));
            return;
        }
        if connection.stalled.is_some() && connection.held.is_empty() && piece.region_id() == 0 {
            return self.keep(key, piece);
        }
        if connection.stalled.is_some() {
            return connection.held.push_back((piece, 0));
        }
        let waits = connection.deferred || !connection.held.is_empty();
        if !waits && piece.len() <= at_once_bytes_max {
            // The common case: nothing waits, the piece is offered where it lies.
            self.offer(key, piece, 0);
        } else {
            connection.held.push_back((piece, 0));
        }
        self.pump(key);
    }

    /// Bytes that were under way when the connection stalled: copied, so that stalled connections
    /// do not hold the receive buffers of the others. Held only when they do not fit.
    fn keep(&mut self, key: Key, piece: Piece) {
        let Some(connection) = self.connections.get_mut(key) else {
            return self.recycle(piece);
        };
        let pool = self.common.shared.pools.handle(self.common.ring, key.index);
        let bytes = self.driver.bytes(&piece);
        let kept = connection
            .input
            .as_ref()
            .map_or(0, |input| input.filled().len());
        let needed = kept + bytes.len();
        if connection
            .input
            .as_ref()
            .is_none_or(|input| input.room() < bytes.len())
        {
            let phase = connection.control.phase;
            let larger = (needed <= INPUT_BYTES_MAX).then(|| for_input(pool, phase, needed));
            let Some(mut larger) = larger.flatten() else {
                connection.held.push_back((piece, 0));
                connection.stall(Stall::Memory, self.common.turn.now_ns);
                return;
            };
            if let Some(input) = &connection.input {
                larger.append(input.filled());
            }
            connection.input = Some(larger);
        }
        if let Some(input) = &mut connection.input {
            input.append(bytes);
        }
        self.recycle(piece);
    }

    /// Offers what has arrived, in order, for as long as the protocol takes it and it is short; the
    /// rest is deferred.
    pub(super) fn pump(&mut self, key: Key) {
        let mut at_once = self.at_once_bytes_max();
        while let Some(connection) = self.connections.get_mut(key) {
            if connection.joint.is_some() {
                return self.pass_held(key);
            }
            if !connection.takes_input() || connection.control.join.is_some() || connection.deferred
            {
                break;
            }
            let Some((piece, from)) = connection.held.front() else {
                break;
            };
            let bytes = piece.len() - *from as usize;
            if bytes > at_once {
                self.defer(key);
                break;
            }
            at_once -= bytes;
            self.offer_front(key);
        }
        self.release_unwanted(key);
        self.tell_end(key);
    }

    /// Offers the first of the pieces that are held, however long it is, and what pumping offers.
    pub(super) fn offer_held(&mut self, key: Key) {
        if let Some(connection) = self.connections.get(key)
            && connection.joint.is_none()
            && connection.takes_input()
            && connection.control.join.is_none()
        {
            self.offer_front(key);
        }
        self.pump(key);
    }

    fn offer_front(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && let Some((piece, from)) = connection.held.pop_front()
        {
            self.offer(key, piece, from);
        }
    }

    /// Offers kept input again after a stall, then what arrived behind it.
    pub(super) fn resume(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let stall = connection.stalled.take();
        if connection.joint.is_some() {
            return self.pass_held(key);
        }
        let nothing_kept = connection.input.is_none() && connection.held.is_empty();
        if let Some(input) = connection.input.take() {
            self.offer_kept(key, input);
        } else if nothing_kept
            && stall.is_some_and(|stall| stall.is_for_room() || stall == Stall::Outside)
        {
            // It may be a reply that wants room: the protocol is called all the same.
            let received = self.call(key, |speaker, io| speaker.received(io, &[]));
            if let (Some(received), Some(connection)) = (received, self.connections.get_mut(key)) {
                consumed_of(connection, received, 0, self.common.turn.now_ns);
            }
        } else {
            return self.offer_held(key);
        }
        self.pump(key);
    }

    fn offer(&mut self, key: Key, piece: Piece, from: u32) {
        let Some(connection) = self.connections.get_mut(key) else {
            return self.recycle(piece);
        };
        if let Some(input) = connection.input.take() {
            return self.offer_behind(key, input, piece, from);
        }
        let listener = &mut self.listeners[usize::from(connection.listener)];
        listener.was_called = true;
        let common = &mut self.common;
        let lifecycle = &common.shared.lifecycle;
        lifecycle.calls(common.ring, connection.listener);
        let bytes = &self.driver.bytes(&piece)[from as usize..];
        let region = self.driver.region(piece.region_id());
        let region_id = listener.region_id;
        let io = Io {
            common,
            connection,
            key,
            driver: &self.driver,
            source: Some((region, &piece, from as usize)),
            own: (region_id > 0).then(|| (region_id, self.driver.region(region_id))),
        };
        let received = listener.speaker.received(io, bytes);
        let consumed = consumed_of(connection, received, bytes.len(), self.common.turn.now_ns);
        let left = &bytes[consumed..];
        if !left.is_empty() && connection.control.input_wanted {
            if piece.region_id() > 0 && connection.stalled.is_some() {
                // One receive at a time: it is the only piece, and is offered again from its page.
                connection.held.push_front((piece, from + small(consumed)));
                return;
            }
            let pool = self.common.shared.pools.handle(self.common.ring, key.index);
            match for_input(pool, connection.control.phase, left.len()) {
                Some(mut input) => {
                    input.append(left);
                    connection.input = Some(input);
                }
                None => return self.hold(key, piece, from + small(consumed)),
            }
        }
        self.recycle(piece);
    }

    /// Joins a piece to the kept input and offers the whole.
    fn offer_behind(&mut self, key: Key, input: Buffer, piece: Piece, from: u32) {
        let mut bytes = &self.driver.bytes(&piece)[from as usize..];
        let length = bytes.len();
        if piece.region_id() > 0 {
            bytes = &bytes[..length.min(JOIN_BYTES_MAX)];
        }
        let needed = input.filled().len() + bytes.len();
        let mut joined = input;
        if joined.room() < bytes.len() {
            if needed > INPUT_BYTES_MAX {
                return self.input_too_long(key, piece);
            }
            let pool = self.common.shared.pools.handle(self.common.ring, key.index);
            let phase = self.phase(key);
            if let Some(mut larger) = for_input(pool, phase, needed) {
                larger.append(joined.filled());
                joined = larger;
            } else if joined.room() > 0 {
                // A short request needs no more than there is.
                bytes = &bytes[..joined.room()];
            } else {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.input = Some(joined);
                }
                return self.hold(key, piece, from);
            }
        }
        joined.append(bytes);
        if bytes.len() == length {
            self.recycle(piece);
        } else if let Some(connection) = self.connections.get_mut(key) {
            // The rest is offered next, where it lies if the remainder is gone by then.
            let from = from + small(bytes.len());
            connection.held.push_front((piece, from));
        }
        self.offer_kept(key, joined);
    }

    fn offer_kept(&mut self, key: Key, mut input: Buffer) {
        let received = self.call(key, |speaker, io| speaker.received(io, input.filled()));
        let (Some(received), Some(connection)) = (received, self.connections.get_mut(key)) else {
            return;
        };
        let bytes = input.filled().len();
        let consumed = consumed_of(connection, received, bytes, self.common.turn.now_ns);
        input.consume_front(consumed);
        if !input.filled().is_empty() && connection.control.input_wanted {
            connection.input = Some(input);
        }
    }

    fn phase(&self, key: Key) -> Phase {
        let connection = self.connections.get(key);
        connection.map_or(Phase::Idle, |connection| connection.control.phase)
    }

    /// No buffer for a remainder: the piece itself is held until there is one.
    fn hold(&mut self, key: Key, piece: Piece, from: u32) {
        let Some(connection) = self.connections.get_mut(key) else {
            return self.recycle(piece);
        };
        connection.held.push_front((piece, from));
        connection.control.stall = Some(Stall::Memory);
        adopt_stall(connection, self.common.turn.now_ns);
    }

    /// A protocol that lets its unconsumed input outgrow the bound has broken its contract.
    fn input_too_long(&mut self, key: Key, piece: Piece) {
        self.recycle(piece);
        if let Some(connection) = self.connections.get_mut(key) {
            log::warn!("input of {INPUT_BYTES_MAX} bytes was left unconsumed; connection cut");
            connection.control.close(Closing::Abort);
        }
    }

    /// Gives back what will never be offered.
    pub(super) fn release_unwanted(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key) {
            if connection.control.input_wanted && connection.control.closing == Closing::No {
                break;
            }
            connection.input = None;
            let Some((piece, _)) = connection.held.pop_front() else {
                break;
            };
            self.recycle(piece);
        }
    }

    /// Tells the protocol of the end of stream, once, when all input before it has been offered.
    fn tell_end(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.ended != Ended::Seen || !connection.held.is_empty() {
            return;
        }
        if connection.control.closing != Closing::No {
            connection.ended = Ended::Told;
        } else if connection.stalled.is_none() {
            connection.ended = Ended::Told;
            let left = connection.input.take();
            let left = left.as_ref().map_or(&[][..], |buffer| buffer.filled());
            self.call(key, |speaker, io| speaker.input_ended(io, left));
        }
    }
}

/// How much of `bytes` the protocol has consumed; what blocks it stalls the connection.
fn consumed_of(
    connection: &mut Connection,
    received: Received,
    bytes: usize,
    now_ns: u64,
) -> usize {
    let consumed = match received {
        Received::Consumed => bytes,
        Received::NeedMore { consumed } => consumed.min(bytes),
        Received::Blocked { consumed, on } => {
            connection.control.stall = Some(on);
            consumed.min(bytes)
        }
    };
    adopt_stall(connection, now_ns);
    connection.progress(consumed);
    consumed
}

/// A protocol's wish to stall becomes the connection's state.
pub(super) fn adopt_stall(connection: &mut Connection, now_ns: u64) {
    if let Some(stall) = connection.control.stall.take()
        && connection.control.closing == Closing::No
    {
        connection.stall(stall, now_ns);
    }
}

/// A buffer for input that is kept. A short remainder is a small request on its way and may come
/// from the reserve; more can wait, and so can a part of a body.
fn for_input(pool: PoolHandle<'_>, phase: Phase, bytes: usize) -> Option<Buffer> {
    let pool = if bytes <= BUFFER_CLASSES[0] && phase != Phase::Body {
        pool
    } else {
        pool.for_bulk()
    };
    pool.take(bytes).filter(|buffer| buffer.room() >= bytes)
}

fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
