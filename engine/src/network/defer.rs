//! Input that takes long to handle: it waits until the short requests of a turn are answered.
//!
//! A full page holds hundreds of pipelined requests, and every connection may bring one in each
//! turn. So what is longer than a few requests is not offered when it arrives. Its connection joins
//! a queue ([`Wait::Input`]), which is served at the end of the turn, one page per connection, for
//! as long as the turn's time allows; the others keep their place for the next turn, which follows
//! at once, and which answers new short requests first.
//!
//! A protocol whose input is short and takes long all the same (what is compressed) has the rest of
//! it wait in the same queue ([`Stall::Turn`]).
//!
//! A connection that brings much while the thread is behind with what others brought, or while
//! pages are scarce, *crowds*: it comes after all others, receives one page at a time, and only a
//! few such connections do so at a time, oldest first, so that the others find pages. When it has
//! been calm for a while, that is, its receives were short, it is received from as before.
//!
//! Other names: fair queueing with sparse flows first, as in RFC 8290 (FQ-CoDel), section 4.1.
//!
//! Invariants
//! - While the queue is not empty, or connections that crowd wait to receive, no wait lasts.
//! - A deferred connection is offered nothing outside of the queue, so its input stays in
//!   order.
//!
//! Cost: a short request pays one comparison; long input a push, a pop and a read of the clock.

use flatpath_driver::{Driver, Piece};

use crate::limits::{AT_ONCE_PART, CROWDING_PART, SCARCE_PAGES_PART};
use crate::waits::Wait;

use super::thread::{Event, Thread};

impl<D: Driver> Thread<D> {
    /// Input up to this length is offered when it arrives, in bytes.
    #[inline]
    pub(super) fn at_once_bytes_max(&self) -> usize {
        self.receive_buffer_bytes / AT_ONCE_PART
    }

    /// Connections whose input waits for the end of a turn.
    pub(super) fn deferred(&self) -> usize {
        self.waits.len(Wait::Input) + self.waits.len(Wait::CrowdInput)
    }
}

impl<D: Driver> Event<'_, D> {
    /// Has the input wait for the end of this turn or of a later one.
    pub(super) fn defer(&mut self) {
        if !self.connection.waits.is_deferred() {
            self.wait(match self.connection.crowds() {
                true => Wait::CrowdInput,
                false => Wait::Input,
            });
        }
    }

    /// Finds out from what a receive has brought whether its connection crowds.
    pub(super) fn weigh_receive(&mut self, piece: &Piece) {
        let bytes = piece.len();
        let is_short = bytes <= self.thread.at_once_bytes_max();
        let connection = &mut *self.connection;
        if connection.crowds() {
            return connection.note_calm(is_short);
        }
        if is_short || piece.region_id() != 0 {
            return;
        }
        let thread = &*self.thread;
        let is_much = thread.is_behind && bytes > thread.receive_buffer_bytes / CROWDING_PART;
        let pages = thread.driver.region(0).pages();
        if is_much || thread.driver.free(0) < pages / SCARCE_PAGES_PART {
            connection.begin_crowding();
            self.counters().crowding.add(1);
        }
    }
}
