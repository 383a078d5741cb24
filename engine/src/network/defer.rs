//! Input that takes long to handle: it waits until the short requests of a turn are answered.
//!
//! A full page holds hundreds of pipelined requests, and every connection may bring one in each
//! turn. So what is longer than a few requests is not offered when it arrives. Its connection joins
//! a queue, which is served at the end of the turn, one page per connection, for as long as the
//! turn's time allows; the others keep their place for the next turn, which follows at once, and
//! which answers new short requests first.
//!
//! A connection that brings much while the thread is behind with what others brought, or while
//! pages are scarce, *crowds*: it comes after all others, receives one page at a time, and only a
//! few such connections do so at a time, oldest first, so that the others find pages. When it has
//! been calm for a while, that is, its receives were short, it is received from as before.
//!
//! Other names: fair queueing with sparse flows first, as in RFC 8290 (FQ-CoDel), section 4.1.
//!
//! Invariants
//! - F1: a connection is in the queue once (`deferred`) or not at all; one that is gone is skipped.
//! - F2: while the queue is not empty, or connections that crowd wait to receive, no wait lasts.
//! - F3: a deferred connection is offered nothing outside of the queue, so its input stays in
//!   order.
//! - F4: a connection waits to receive at most once (`in_crowd`); one that is gone is skipped.
//!
//! Cost: a short request pays one comparison; long input a push, a pop and a read of the clock.

use std::collections::VecDeque;

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Connection, Receive};
use crate::limits::{
    AT_ONCE_PART, CALM_RECEIVES, CROWDING_PART, CROWDING_PER_TURN_MAX, DEFERRED_PER_TURN_MAX,
    OUTPUT_BYTES_LOW, SCARCE_PAGES_PART, TURN_DEFERRED_NS,
};
use crate::phase::Stall;

use super::Network;

/// Connections whose input waits for the end of a turn, oldest first.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    calm: VecDeque<Key>,
    crowding: VecDeque<Key>,
    /// The last turn has left some for the next.
    pub(super) is_behind: bool,
}

impl Deferred {
    pub(super) fn len(&self) -> usize {
        self.calm.len() + self.crowding.len()
    }

    fn queue(&mut self, crowding: bool) -> &mut VecDeque<Key> {
        if crowding {
            &mut self.crowding
        } else {
            &mut self.calm
        }
    }
}

/// Input that a connection was offered and has not consumed, or was not offered yet, in bytes.
fn input_bytes(connection: &Connection) -> usize {
    let kept = connection
        .input
        .as_ref()
        .map_or(0, |input| input.filled().len());
    let front = connection.held.front();
    kept + front.map_or(0, |(piece, from)| piece.len() - *from as usize)
}

impl<D: Driver> Network<D> {
    /// Input up to this length is offered when it arrives, in bytes.
    pub(super) fn at_once_bytes_max(&self) -> usize {
        self.receive_buffer_bytes / AT_ONCE_PART
    }

    /// Queues a connection for the end of this turn or of a later one.
    pub(super) fn defer(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !std::mem::replace(&mut connection.deferred, true) {
            self.deferred.queue(connection.crowds).push_back(key);
        }
    }

    /// Resumes a connection whose stall is over: at once if little input waits, else in its turn.
    /// False: it is deferred.
    pub(super) fn resume_in_turn(&mut self, key: Key) -> bool {
        let at_once = self.at_once_bytes_max();
        let is_long = |connection: &Connection| input_bytes(connection) > at_once;
        if self.connections.get(key).is_some_and(is_long) {
            self.defer(key);
            return false;
        }
        self.resume(key);
        true
    }

    /// The end of a turn: offers deferred input until the time for it is over, a page of each
    /// connection in turn; at least one of those that do not crowd and one of those that do.
    pub(super) fn run_deferred(&mut self) {
        if self.deferred.len() == 0 {
            self.deferred.is_behind = false;
            return;
        }
        let end_ns = self.common.turn.now_ns + TURN_DEFERRED_NS;
        for crowding in [false, true] {
            for _ in 0..DEFERRED_PER_TURN_MAX {
                let Some(key) = self.deferred.queue(crowding).pop_front() else {
                    break;
                };
                self.offer_deferred(key);
                if self.driver.clock_ns() >= end_ns {
                    break;
                }
            }
        }
        self.deferred.is_behind = self.deferred.len() > 0;
    }

    /// One page, or what was kept of one.
    fn offer_deferred(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.deferred = false;
        match connection.stalled {
            Some(Stall::Output) if connection.output.queued_bytes() > OUTPUT_BYTES_LOW => {}
            Some(Stall::Output | Stall::Pipeline) => self.resume(key),
            // Another stall began meanwhile: its end offers the input.
            Some(_) => {}
            None => self.offer_held(key),
        }
        self.settle(key);
    }

    /// Finds out from a receive of `bytes` whether its connection crowds.
    pub(super) fn weigh_receive(&mut self, key: Key, bytes: usize) {
        let page_bytes = self.receive_buffer_bytes;
        let is_short = bytes <= self.at_once_bytes_max();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.crowds {
            connection.calm = match is_short {
                true => connection.calm + 1,
                false => 0,
            };
            connection.crowds = connection.calm < CALM_RECEIVES;
            return;
        }
        if is_short || connection.receive_region_id != 0 || connection.joint.is_some() {
            return;
        }
        let is_much = self.deferred.is_behind && bytes > page_bytes / CROWDING_PART;
        let is_scarce = || self.driver.free(0) < self.driver.region(0).pages() / SCARCE_PAGES_PART;
        if is_much || is_scarce() {
            connection.crowds = true;
            connection.calm = 0;
            self.common.shared.statistics.crowding.add(1);
        }
    }

    /// Has a crowding connection wait for its turn. False: it does not crowd.
    pub(super) fn waits_in_crowd(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return false;
        };
        if connection.crowds && !std::mem::replace(&mut connection.in_crowd, true) {
            self.crowd.push_back(key);
        }
        connection.crowds
    }

    /// The end of a turn: arms the receives of those that have waited longest.
    pub(super) fn arm_crowding(&mut self) {
        if self.crowd.is_empty() {
            return;
        }
        let pages = self.driver.region(0).pages() / SCARCE_PAGES_PART;
        let most = CROWDING_PER_TURN_MAX.min(pages as usize);
        let most = most.saturating_sub(self.deferred.len()).max(1);
        for _ in 0..self.crowd.len().min(most) {
            let Some(key) = self.crowd.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.in_crowd = false;
            if connection.receive == Receive::Off && !connection.starved && connection.wants_input()
            {
                self.arm_receive(key);
            }
        }
    }
}
