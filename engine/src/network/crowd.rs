//! Connections that crowd: their receives fill the shared pages, so that others find none.
//!
//! A client that pipelines without end fills page after page of those that are free, and 64 of them
//! all pages of a thread, turn after turn. A connection that fills a page while pages are scarce
//! receives one page at a time from then on, and a few such connections per turn only, oldest
//! first: the others find pages, and a turn stays short. When it has been calm for a while, that
//! is, its receives did not fill their pages, it is received from as before.
//!
//! Invariants
//! - W1: a connection is in the queue at most once (`in_crowd`); one that is gone is skipped.
//! - W2: while the queue is not empty no wait lasts.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::Receive;
use crate::limits::{CALM_RECEIVES, CROWDING_PER_TURN_MAX, SCARCE_PAGES_PART};

use super::Network;

impl<D: Driver> Network<D> {
    /// Counts a page that a connection's receive has filled with `bytes`.
    pub(super) fn weigh_receive(&mut self, key: Key, bytes: usize) {
        let page_bytes = self.receive_buffer_bytes;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.crowds {
            connection.calm = match bytes < page_bytes {
                true => connection.calm + 1,
                false => 0,
            };
            connection.crowds = connection.calm < CALM_RECEIVES;
            return;
        }
        if connection.receive_group != 0 || connection.joint.is_some() {
            return;
        }
        let is_scarce = || self.driver.free(0) < self.driver.region(0).pages() / SCARCE_PAGES_PART;
        if bytes == page_bytes && is_scarce() {
            connection.crowds = true;
            connection.calm = 0;
            self.shared.statistics.crowding.add(1);
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
        let most = CROWDING_PER_TURN_MAX.min(pages.max(1) as usize);
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
