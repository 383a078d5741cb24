//! Bytes in: offer them to the protocol where they lie, keep what it leaves, stop when it stalls.
//!
//! The common case copies nothing: a whole request lies in one receive buffer, the protocol reads
//! it there, and the buffer goes back to the driver before the turn ends. Only a remainder is
//! copied, to a pooled buffer of the connection's own, so that no slow client can hold a receive
//! buffer. What arrives on a spliced connection goes to `splice.rs` instead.

use flatpath_driver::{Completion, Driver, Errno, Outcome, Piece};
use flatpath_structures::pool::Buffer;

use crate::connection::{Closing, Front};
use crate::limits::{APPEND_BYTES_MAX, INPUT_BYTES_MAX};
use crate::phase::Stall;
use crate::protocol::{self, Received};

use super::secure::{Unsealed, for_input, small};
use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// A receive has brought something, or nothing. The common case: nothing waits before the
    /// piece, and it is offered where it lies.
    pub(super) fn receive_completed(&mut self, completion: Completion) {
        let connection = &mut *self.connection;
        if !completion.more {
            connection.receive_ended();
        }
        match completion.outcome {
            Outcome::Received(piece) => {
                connection.note_received();
                let common = &self.thread.common;
                let counters = common.counters(connection.listener());
                counters.received_bytes.add(piece.len() as u64);
                if let Some(logged) = &mut connection.logged {
                    logged.received_bytes += piece.len() as u64;
                }
                connection.received(piece.len(), common.turn.now_ns, &self.listener.limits);
                let takes_at_once = connection.takes_at_once();
                if takes_at_once && piece.len() <= self.thread.bulk.at_once_bytes_max() {
                    self.offer(piece, 0);
                } else {
                    self.enqueue(piece);
                }
            }
            Outcome::EndOfStream => connection.end_came(),
            other => self.receive_failed(other),
        }
        if self.connection.holds_pieces() || self.connection.end_is_untold() {
            self.pump();
        }
    }

    /// A receive has brought nothing.
    pub(super) fn receive_failed(&mut self, outcome: Outcome) {
        match outcome {
            // Never an end of stream: armed again when a page is free.
            Outcome::Failed(Errno::NOBUFS) => self.starve(),
            Outcome::Failed(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Outcome::Failed(errno) => {
                log::debug!("receive failed: {errno}");
                self.connection.end_told();
                self.connection.close(Closing::Abort);
            }
            // Of a connection that was spliced when it was armed: its peer is gone.
            Outcome::ReceivedInto(_) => {}
            other => {
                debug_assert!(false, "a receive neither sends, accepts nor watches");
                self.thread.discard(other);
            }
        }
    }

    /// A piece that is not offered at once: because of its length, or of what came before.
    fn enqueue(&mut self, piece: Piece) {
        let at_once_bytes_max = self.thread.bulk.at_once_bytes_max();
        if self.connection.is_bulk() || piece.len() > at_once_bytes_max {
            self.note_flow(&piece);
        }
        let connection = &mut *self.connection;
        if !connection.may_be_offered() {
            return self.drop_unwanted(piece);
        }
        let may_keep = !connection.holds_pieces() && !connection.is_secured();
        if connection.stalled().is_some() && may_keep && piece.region_id() == 0 {
            return self.keep(piece);
        }
        connection.hold(piece);
    }

    /// Drops what arrives on a connection that ends.
    #[cold]
    pub(super) fn drop_unwanted(&mut self, piece: Piece) {
        self.thread.driver.recycle(piece);
    }

    /// Bytes that were under way when the connection stalled: copied, so that stalled connections
    /// do not hold the receive buffers of the others. Held only when they do not fit. The stall
    /// stays what it is: its own reason is over before anything is offered.
    fn keep(&mut self, piece: Piece) {
        let connection = &mut *self.connection;
        let common = &self.thread.common;
        let pool = common
            .shared
            .memory
            .pools
            .handle(common.number, self.key.index);
        let bytes = self.thread.driver.bytes(&piece);
        let input = connection.input();
        let needed = input.map_or(0, |input| input.filled().len()) + bytes.len();
        if input.is_none_or(|input| input.room() < bytes.len()) {
            let phase = connection.phase();
            let larger = (needed <= INPUT_BYTES_MAX).then(|| for_input(pool, phase, needed));
            let Some(mut larger) = larger.flatten() else {
                return connection.hold(piece);
            };
            if let Some(input) = connection.input() {
                larger.append(input.filled());
            }
            connection.keep_input(larger);
        }
        if let Some(input) = connection.input_mut() {
            input.append(bytes);
        }
        self.thread.driver.recycle(piece);
    }

    /// Offers what has arrived, in order, for as long as the protocol takes it and it is short; the
    /// rest is deferred. Then the end of the stream, once.
    pub(super) fn pump(&mut self) {
        let mut at_once = self.thread.bulk.at_once_bytes_max();
        while let Some(bytes) = self.connection.next_held_bytes() {
            let connection = &*self.connection;
            if !connection.takes_input()
                || connection.is_becoming()
                || connection.waits.is_deferred()
            {
                break;
            }
            if bytes > at_once {
                self.defer();
                break;
            }
            at_once -= bytes;
            self.offer_front();
        }
        if !self.connection.may_be_offered() {
            self.release_unwanted();
        }
        // Whom it is told is known after this call.
        if self.connection.end_is_untold() && !self.connection.is_becoming() {
            self.tell_end();
        }
    }

    /// Offers the first of the pieces that are held, however long it is, and what pumping offers.
    pub(super) fn offer_held(&mut self) {
        if self.connection.takes_input() && !self.connection.is_becoming() {
            self.offer_front();
        }
        self.pump();
    }

    fn offer_front(&mut self) {
        let front = self.connection.front();
        if let Some((piece, from)) = self.connection.take_held() {
            match front {
                Front::Clear => self.offer(piece, from),
                Front::Content => self.offer_content(piece, from),
                Front::Sealed => self.offer_unsealed(piece, from),
            }
        }
    }

    /// The same for a piece of records.
    fn offer_unsealed(&mut self, piece: Piece, from: u32) {
        match self.unseal(piece, from) {
            Unsealed::Nothing => {}
            Unsealed::Here(piece, from) => self.offer_content(piece, from),
            Unsealed::Gathered(input) => self.offer_gathered(input),
            Unsealed::NoMemory => self.stall(Stall::Memory),
            Unsealed::TooLong => self.input_outgrown(),
        }
    }

    /// Offers kept input again after a stall, then what arrived after it.
    pub(super) fn resume(&mut self) {
        if self.connection.is_becoming() {
            return;
        }
        let stall = self.connection.take_stall();
        let nothing_held = !self.connection.holds_pieces();
        if let Some(input) = self.connection.take_input() {
            match self.listener.written_id {
                0 => self.offer_kept(input),
                _ => self.offer_gathered(input),
            }
        } else if nothing_held
            && stall.is_some_and(|stall| stall.is_for_room() || stall == Stall::Outside)
        {
            // It may be a reply that wants room: the protocol is called all the same.
            let received = self.call(|protocol, io| protocol.received(io, &[]));
            self.consumed_of(received, 0);
        } else {
            return self.offer_held();
        }
        self.pump();
    }

    /// Resumes after a stall: at once if little input waits, else in its turn. False: it is
    /// deferred.
    pub(super) fn resume_in_turn(&mut self) -> bool {
        if self.connection.input_bytes() > self.thread.bulk.at_once_bytes_max() {
            self.defer();
            return false;
        }
        self.resume();
        true
    }

    /// One page, or what was kept of one, of input that was deferred.
    pub(super) fn offer_deferred(&mut self) {
        let connection = &*self.connection;
        match connection.stalled() {
            Some(Stall::Output) if !connection.output_is_low() => {}
            Some(Stall::Output | Stall::Turn) => self.resume(),
            Some(stall) if stall.is_for_job() => self.resume(),
            // Another stall began meanwhile: its end offers the input.
            Some(_) => {}
            None => self.offer_held(),
        }
    }

    pub(super) fn offer(&mut self, piece: Piece, from: u32) {
        if let Some(input) = self.connection.take_input() {
            return self.offer_after(input, piece, from);
        }
        let length = piece.len() - from as usize;
        let (protocol, io, bytes) = self.lend(Some((&piece, from as usize)));
        let received = protocol.received(io, bytes);
        let consumed = self.consumed_of(received, length);
        if consumed < length && self.connection.may_be_offered() {
            return self.keep_remainder(piece, from + small(consumed));
        }
        self.thread.driver.recycle(piece);
    }

    /// What the protocol has left of a piece is copied, or stays where it lies.
    pub(super) fn keep_remainder(&mut self, piece: Piece, from: u32) {
        let connection = &mut *self.connection;
        if piece.region_id() > 0 && connection.stalled().is_some() {
            // One receive at a time: it is the only piece, and is offered again from its page.
            return connection.hold_first(piece, from);
        }
        let common = &self.thread.common;
        let pool = common
            .shared
            .memory
            .pools
            .handle(common.number, self.key.index);
        let left = &self.thread.driver.bytes(&piece)[from as usize..];
        let Some(mut input) = for_input(pool, connection.phase(), left.len()) else {
            return self.hold(piece, from);
        };
        input.append(left);
        connection.keep_input(input);
        self.thread.driver.recycle(piece);
    }

    /// Appends a piece to the kept input and offers the whole.
    fn offer_after(&mut self, input: Buffer, piece: Piece, from: u32) {
        let common = &self.thread.common;
        let mut bytes = &self.thread.driver.bytes(&piece)[from as usize..];
        let length = bytes.len();
        if piece.region_id() > 0 {
            bytes = &bytes[..length.min(APPEND_BYTES_MAX)];
        }
        let needed = input.filled().len() + bytes.len();
        let mut whole = input;
        if whole.room() < bytes.len() {
            if needed > INPUT_BYTES_MAX {
                return self.input_too_long(piece);
            }
            let pool = common
                .shared
                .memory
                .pools
                .handle(common.number, self.key.index);
            let phase = self.connection.phase();
            if let Some(mut larger) = for_input(pool, phase, needed) {
                larger.append(whole.filled());
                whole = larger;
            } else if whole.room() > 0 {
                // A short request needs no more than there is.
                bytes = &bytes[..whole.room()];
            } else {
                self.connection.keep_input(whole);
                return self.hold(piece, from);
            }
        }
        whole.append(bytes);
        let taken = bytes.len();
        if taken == length {
            self.thread.driver.recycle(piece);
        } else {
            // The rest is offered next, where it lies if the remainder is gone by then.
            self.connection.hold_first(piece, from + small(taken));
        }
        self.offer_kept(whole);
    }

    pub(super) fn offer_kept(&mut self, mut input: Buffer) {
        let received = self.call(|protocol, io| protocol.received(io, input.filled()));
        let consumed = self.consumed_of(received, input.filled().len());
        input.consume_front(consumed);
        if !input.filled().is_empty() && self.connection.may_be_offered() {
            self.connection.keep_input(input);
        }
    }

    /// Stops input.
    pub(super) fn stall(&mut self, stall: Stall) {
        self.thread.common.stall(self.connection, stall);
    }

    /// How much of `bytes` the protocol has consumed; what blocks it stalls the connection.
    #[inline]
    pub(super) fn consumed_of(&mut self, received: Received, bytes: usize) -> usize {
        let (consumed, on) = received.parts(bytes);
        if let Some(stall) = on {
            self.stall(stall);
        }
        self.connection.progress(consumed);
        consumed
    }

    /// No buffer for a remainder: the piece itself is held until there is one.
    fn hold(&mut self, piece: Piece, from: u32) {
        self.connection.hold_first(piece, from);
        self.stall(Stall::Memory);
    }

    /// A protocol that lets its unconsumed input outgrow the bound has broken its contract.
    fn input_too_long(&mut self, piece: Piece) {
        self.thread.driver.recycle(piece);
        self.input_outgrown();
    }

    /// The same for input that was put together of several pieces.
    fn input_outgrown(&mut self) {
        let name = self.listener.protocol.options().name;
        log::warn!(
            "{name}: more than {INPUT_BYTES_MAX} bytes were left unconsumed by `received`, and no \
             more are kept; connection cut"
        );
        self.connection.close(Closing::Abort);
    }

    /// Gives back what will never be offered.
    pub(super) fn release_unwanted(&mut self) {
        for (piece, _) in self.connection.take_unwanted() {
            self.thread.driver.recycle(piece);
        }
    }

    /// Tells the protocol of the end of stream, once, when all input before it has been offered.
    fn tell_end(&mut self) {
        let connection = &mut *self.connection;
        if connection.holds_pieces() {
            return;
        }
        if connection.is_closing() {
            connection.end_told();
        } else if connection.stalled().is_none() {
            connection.end_told();
            if connection.is_cut_off() {
                return self.cut_off();
            }
            let left = connection.take_input();
            let left = left.as_ref().map_or(&[][..], |buffer| buffer.filled());
            self.report(protocol::Event::InputEnded(left));
        }
    }
}
