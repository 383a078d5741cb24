//! Input that takes long to handle: it waits until the short requests of a turn are answered.
//!
//! A full page holds hundreds of pipelined requests, and every connection may bring one in each
//! turn. So what is longer than a few requests is not read when it arrives. Its connection joins
//! a queue ([`Wait::Input`]), which is served at the end of the turn, one page per connection, for
//! as long as the turn's time allows; the others keep their place for the next turn, which follows
//! at once, and which answers new short requests first.
//!
//! A protocol whose input is short and takes long all the same (what is compressed) has the rest of
//! it wait in the same queue ([`Stall::Turn`]).
//!
//! A connection that brings much while the thread is behind with what others brought, or while
//! pages are scarce, is *bulk*, the others are sparse: it comes after all others, receives one page
//! at a time, and only a few such connections do so at a time, oldest first, so that the others
//! find pages. When it has received little for a while, it is sparse again.
//!
//! Other names: fair queueing with sparse flows first, as in RFC 8290 (FQ-CoDel), section 4.1.
//!
//! Invariants
//! - While the queue is not empty, or bulk connections wait to receive, no wait lasts.
//! - A connection in the queue is given nothing outside of it, so its input stays in
//!   order.
//!
//! Cost: a short request pays one comparison; long input a push, a pop and a read of the clock.

use flatpath_driver::{Driver, Piece};

use crate::network::waits::Wait;

use super::thread::{Event, Thread};

impl<D: Driver> Thread<D> {
    /// Connections whose input waits for the end of a turn.
    pub(super) fn awaiting_turn(&self) -> usize {
        self.waits.len(Wait::Input) + self.waits.len(Wait::BulkInput)
    }
}

impl<D: Driver> Event<'_, D> {
    /// Has the input wait for the end of this turn or of a later one.
    pub(super) fn await_turn(&mut self) {
        if !self.connection.waits.awaits_turn() {
            self.wait(match self.connection.is_bulk() {
                true => Wait::BulkInput,
                false => Wait::Input,
            });
        }
    }

    /// Finds out from what a receive has brought whether its connection is bulk or sparse.
    pub(super) fn note_flow(&mut self, piece: &Piece) {
        let bytes = piece.len();
        let is_short = bytes <= self.thread.bulk.at_once_bytes_max();
        let connection = &mut *self.connection;
        if connection.is_bulk() {
            return connection.note_length(is_short);
        }
        if is_short || piece.region_id() != 0 {
            return;
        }
        let thread = &*self.thread;
        let pages = thread.driver.region(0).pages();
        if thread.bulk.begins(bytes, thread.driver.free(0), pages) {
            connection.begin_bulk();
            self.counters().bulk_flows.add(1);
        }
    }
}
