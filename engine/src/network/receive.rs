//! Bytes in: give them to the protocol where they lie, keep what it leaves, stop when it stalls.
//!
//! What is next is decided elsewhere, by `Connection::next_input` and the inbox
//! (`connection/inbox.rs`); here each verdict is carried out, in one loop for whatever the bytes
//! came in ([`Event::read_inbox`]). The common case asks for none: a whole request lies in one
//! receive page, nothing waits before it, the protocol reads it there, and the page goes back to
//! the driver before the turn ends. What arrives on a spliced connection goes to `splice.rs`
//! instead.

use flatpath_driver::{Completion, Driver, Errno, Outcome, Piece};

use crate::connection::{Chunk, Closing, Joined, Left, Next, Reason};
use crate::limits::INPUT_BYTES_MAX;
use crate::protocol::phase::{EndedBy, Stall};
use crate::protocol::{self, Received};

use super::secure::Opened;
use super::thread::Event;

impl<D: Driver> Event<'_, D> {
    /// A receive has brought something, or nothing. The common case: nothing waits before the
    /// piece, and it is given to the protocol where it lies.
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
                connection.log_received(piece.len());
                connection.received(piece.len(), common.turn.now_ns, self.listener.limits());
                let takes_at_once = connection.takes_at_once();
                if !takes_at_once || piece.len() > self.thread.bulk.at_once_bytes_max() {
                    self.hold(piece);
                } else if connection.inbox().has_remainder() {
                    self.give(Chunk::Page(piece, 0));
                } else {
                    return self.give_page(piece, 0);
                }
            }
            Outcome::EndOfStream => connection.end_came(),
            other => self.receive_failed(other),
        }
        self.read_arrived();
    }

    /// A receive has brought nothing.
    pub(super) fn receive_failed(&mut self, outcome: Outcome) {
        match outcome {
            // Never an end of stream: armed again when a page is free.
            Outcome::Failed(Errno::NOBUFS) => self.starve(),
            Outcome::Failed(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Outcome::Failed(errno) => {
                log::debug!("receive failed: {errno}");
                self.connection.end_reported();
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

    /// Puts a piece in the hold: because of its length, or of what came before.
    fn hold(&mut self, piece: Piece) {
        let at_once_bytes_max = self.thread.bulk.at_once_bytes_max();
        if self.connection.is_bulk() || piece.len() > at_once_bytes_max {
            self.note_flow(&piece);
        }
        if !self.connection.may_take_input() {
            return self.drop_piece(piece);
        }
        let is_stalled = self.connection.stalled().is_some();
        self.add_to_inbox(piece, is_stalled);
    }

    /// Puts a piece after all that waits. `is_stalled`: it may be copied to the remainder.
    pub(super) fn add_to_inbox(&mut self, piece: Piece, is_stalled: bool) {
        let form = self.connection.form();
        let (inbox, mut supply) = self.inbox();
        inbox.add(piece, form, is_stalled, &mut supply);
    }

    /// Drops what arrives on a connection that ends.
    #[cold]
    pub(super) fn drop_piece(&mut self, piece: Piece) {
        self.thread.driver.recycle(piece);
    }

    /// Gives the protocol what is in the hold, as much of it as is given when it arrives.
    pub(super) fn read_arrived(&mut self) {
        self.read_inbox(Reason::Arrival(self.thread.bulk.at_once_bytes_max()));
    }

    /// Gives the protocol what has come, chunk by chunk, for as long as it takes it, and then the
    /// end of the stream.
    pub(super) fn read_inbox(&mut self, mut reason: Reason) {
        let at_once_bytes_max = self.thread.bulk.at_once_bytes_max();
        loop {
            match self.connection.next_input(reason) {
                Next::Nothing => return,
                Next::Later => return self.await_turn(),
                Next::End => return self.report_end(),
                Next::Drop => self.clear_inbox(),
                Next::Chunk(chunk) => {
                    reason = reason.after(chunk.bytes(), at_once_bytes_max);
                    self.give(chunk);
                }
                Next::Records(records) => {
                    reason = reason.after(records.bytes(), at_once_bytes_max);
                    match self.open_records(records) {
                        Opened::Nothing => {}
                        Opened::Chunk(chunk) => self.give(chunk),
                        Opened::NoMemory => self.stall(Stall::Memory),
                    }
                }
            }
        }
    }

    /// What the input waited for is there: it is given again, and then what came after it.
    pub(super) fn resume(&mut self) {
        if self.connection.is_becoming() {
            return;
        }
        let stall = self.connection.take_stall();
        // It may be a reply that wants room: the protocol is called all the same.
        let for_room =
            stall.is_some_and(|it| matches!(it.ended_by(), EndedBy::Room(_) | EndedBy::Wake));
        self.read_inbox(Reason::Again { for_room });
    }

    /// Resumes after a stall: at once if little input waits, else in its turn. False: it waits for
    /// its turn.
    pub(super) fn resume_in_turn(&mut self) -> bool {
        let is_little =
            self.connection.inbox().next_bytes() <= self.thread.bulk.at_once_bytes_max();
        match is_little {
            true => self.resume(),
            false => self.await_turn(),
        }
        is_little
    }

    /// It is the turn of a connection whose input has waited for the end of one: a page of it, or
    /// what was left of one.
    pub(super) fn read_in_turn(&mut self) {
        let connection = &*self.connection;
        match connection.stalled().map(Stall::ended_by) {
            Some(EndedBy::Output) if !connection.output_is_low() => {}
            Some(EndedBy::Output | EndedBy::Turn | EndedBy::Job) => self.resume(),
            // Another stall began meanwhile: its end gives the input.
            Some(EndedBy::Room(_) | EndedBy::Share | EndedBy::Wake) => {}
            None => self.read_inbox(Reason::Turn),
        }
    }

    /// Gives the protocol a chunk, with the remainder before it, and keeps what it leaves.
    fn give(&mut self, chunk: Chunk) {
        if !self.connection.inbox().has_remainder() {
            return self.give_alone(chunk);
        }
        let (inbox, mut supply) = self.inbox();
        match inbox.join(chunk, &mut supply) {
            Joined::Chunk(chunk) => self.give_alone(chunk),
            Joined::NoMemory => self.stall(Stall::Memory),
            Joined::TooLong => self.input_outgrown(),
        }
    }

    /// The same, where nothing is before it.
    fn give_alone(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Empty => {
                let received = self.call(|protocol, io| protocol.received(io, &[]));
                self.consumed_of(received, 0);
            }
            chunk if self.writes_pages() => self.give_written(chunk),
            Chunk::Page(piece, from) => self.give_page(piece, from),
            Chunk::Buffer(mut buffer) => {
                let received = self.call(|protocol, io| protocol.received(io, buffer.filled()));
                let consumed = self.consumed_of(received, buffer.filled().len());
                buffer.consume_front(consumed);
                self.keep(Chunk::Buffer(buffer));
            }
        }
    }

    /// The same for one in its page. The common case.
    fn give_page(&mut self, piece: Piece, from: u32) {
        let length = piece.len() - from as usize;
        let (protocol, io, bytes) = self.lend(Some((&piece, from as usize)));
        let received = protocol.received(io, bytes);
        let consumed = self.consumed_of(received, length);
        if consumed < length {
            let mut chunk = Chunk::Page(piece, from);
            chunk.consume(consumed);
            return self.keep(chunk);
        }
        self.thread.driver.recycle(piece);
    }

    /// Keeps what a call has left of a chunk, unless the connection takes no more.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        if !self.connection.may_take_input() || chunk.bytes() == 0 {
            return self.release(chunk);
        }
        let is_stalled = self.connection.stalled().is_some();
        let (inbox, mut supply) = self.inbox();
        match inbox.leave(chunk, is_stalled, &mut supply) {
            Left::Kept => {}
            Left::NoMemory => self.stall(Stall::Memory),
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

    /// A protocol that lets its unconsumed input outgrow the bound has broken its contract.
    #[cold]
    fn input_outgrown(&mut self) {
        let name = self.listener.name();
        log::warn!(
            "{name}: more than {INPUT_BYTES_MAX} bytes were left unconsumed by `received`, and no \
             more are kept; connection cut"
        );
        self.connection.close(Closing::Abort);
    }

    /// Gives back what will never be read.
    pub(super) fn clear_inbox(&mut self) {
        let (inbox, mut supply) = self.inbox();
        inbox.clear(&mut supply);
    }

    /// Tells the protocol of the end of the stream, once: all input before it was given.
    fn report_end(&mut self) {
        self.connection.end_reported();
        if self.connection.is_cut_off() {
            return self.cut_off();
        }
        let left = self.connection.inbox_mut().take_remainder();
        let left = left.as_ref().map_or(&[][..], |buffer| buffer.filled());
        self.report(protocol::Event::InputEnded(left));
    }
}
