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
//! - F1: while the queue is not empty, or connections that crowd wait to receive, no wait lasts.
//! - F2: a deferred connection is offered nothing outside of the queue, so its input stays in
//!   order.
//!
//! Cost: a short request pays one comparison; long input a push, a pop and a read of the clock.

use flatpath_driver::Driver;

use crate::connection::Receive;
use crate::limits::{
    AT_ONCE_PART, CROWDING_PART, CROWDING_PER_TURN_MAX, DEFERRED_PER_TURN_MAX, SCARCE_PAGES_PART,
    TURN_DEFERRED_NS,
};
use crate::phase::Stall;

use super::thread::{Event, Network, Thread};
use super::waits::Wait;

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

    /// Resumes after a stall: at once if little input waits, else in its turn. False: it is
    /// deferred.
    pub(super) fn resume_in_turn(&mut self) -> bool {
        if self.connection.input_bytes() > self.thread.at_once_bytes_max() {
            self.defer();
            return false;
        }
        self.resume();
        true
    }

    /// One page, or what was kept of one.
    fn offer_deferred(&mut self) {
        let connection = &*self.connection;
        match connection.stalled() {
            Some(Stall::Output) if !connection.output_is_low() => {}
            Some(Stall::Output | Stall::Pipeline | Stall::Turn) => self.resume(),
            // Another stall began meanwhile: its end offers the input.
            Some(_) => {}
            None => self.offer_held(),
        }
    }

    /// Finds out from a receive of `bytes` whether its connection crowds.
    pub(super) fn weigh_receive(&mut self, bytes: usize) {
        let is_short = bytes <= self.thread.at_once_bytes_max();
        let connection = &mut *self.connection;
        if connection.crowds() {
            return connection.note_calm(is_short);
        }
        if is_short || connection.receive_pages().region_id() != 0 {
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

impl<D: Driver> Network<D> {
    /// The end of a turn: offers deferred input until the time for it is over, a page of each
    /// connection in turn; at least one of those that do not crowd and one of those that do.
    pub(super) fn run_deferred(&mut self) {
        if self.thread.deferred() == 0 {
            self.thread.is_behind = false;
            return;
        }
        let end_ns = self.thread.common.turn.now_ns + TURN_DEFERRED_NS;
        for wait in [Wait::Input, Wait::CrowdInput] {
            for _ in 0..DEFERRED_PER_TURN_MAX {
                let Some(key) = self.next_waiting(wait) else {
                    break;
                };
                if self.is_spliced(key) {
                    self.pass_deferred(key);
                } else {
                    self.on(key, |event| {
                        event.offer_deferred();
                    });
                }
                if self.thread.driver.clock_ns() >= end_ns {
                    break;
                }
            }
        }
        self.thread.is_behind = self.thread.deferred() > 0;
    }

    /// The end of a turn: arms the receives of those that crowd and have waited longest.
    pub(super) fn arm_crowding(&mut self) {
        let waiting = self.thread.waits.len(Wait::CrowdReceive);
        if waiting == 0 {
            return;
        }
        let pages = self.thread.driver.region(0).pages() / SCARCE_PAGES_PART;
        let most = CROWDING_PER_TURN_MAX.min(pages as usize);
        let most = most.saturating_sub(self.thread.deferred()).max(1);
        for _ in 0..waiting.min(most) {
            let Some(key) = self.next_waiting(Wait::CrowdReceive) else {
                return;
            };
            let Some(mut event) = self.event(key) else {
                continue;
            };
            let connection = &*event.connection;
            let is_off = connection.receive() == Receive::Off && !connection.waits.starves();
            match connection.peer() {
                _ if !is_off || !connection.wants_input() => {}
                None => event.arm_receive(),
                Some(_) => self.arm_spliced(key),
            }
        }
    }
}
