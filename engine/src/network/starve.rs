//! Connections that starve: a receive found no page (NOBUFS), and is armed again when one is free.
//!
//! Oldest first, as many in a turn as there are free pages. Pages come back in this thread and in
//! any other, so while a connection is left the driver is told, wait by wait, that pages are
//! awaited; a wait then does not last while one is free.
//!
//! The server does not read from a starved connection, so its phase stands still meanwhile
//! (`Connection::suspend`).
//!
//! Invariants
//! - S1: a connection is `starved` exactly while it is on a list: that of the region and the kind
//!   of page its last receive found none of. It leaves when it is armed, when it wants no input or
//!   pages of another kind, and when it is removed. So the lists hold no more than the connections.
//! - S2: before each wait the pages of every list that is not empty are awaited.

use flatpath_driver::Driver;

use crate::connection::Receive;
use crate::limits::STARVED_PER_TURN_MAX;

use super::starved::kind_of;
use super::thread::{Event, Network};

impl<D: Driver> Event<'_, D> {
    /// The receive has found no page.
    pub(super) fn starve(&mut self) {
        self.counters().receive_buffers_stalls.add(1);
        if !self.connection.starved {
            self.thread.starved.enter(self.connection, self.key.index);
        }
    }

    /// A starved connection may not be one any more (S1). True: it is not.
    pub(super) fn stops_starving(&mut self, wanted: bool) -> bool {
        let connection = &mut *self.connection;
        let same_kind = connection.region_id == connection.receive_region_id
            && connection.shares == connection.receive_shares;
        let stops = !wanted || !same_kind;
        if stops {
            self.thread.starved.leave(connection, self.key.index);
        }
        stops
    }
}

impl<D: Driver> Network<D> {
    /// Arms receives that found no page, oldest first, as many as there are free pages now.
    pub(super) fn rearm_starved(&mut self) {
        for list in 0..self.thread.starved.lists() {
            if self.thread.starved.first(list).is_some() {
                self.rearm(list);
            }
        }
    }

    fn rearm(&mut self, list: usize) {
        let (region_id, shares) = kind_of(list);
        let driver = &mut self.thread.driver;
        let mut free = if shares {
            driver.free_sharing(region_id)
        } else {
            driver.free(region_id)
        };
        for _ in 0..STARVED_PER_TURN_MAX {
            if free == 0 {
                break;
            }
            let Some(index) = self.thread.starved.first(list) else {
                return;
            };
            let Some(key) = self.connections.key_at(index) else {
                unreachable!("S1: a connection that is gone does not starve")
            };
            self.on(key, |event| {
                event.thread.starved.leave(event.connection, index);
            });
            // Whether a receive into the region is outstanding now.
            free -= u32::from(self.connections.get(key).is_some_and(|connection| {
                connection.receive != Receive::Off && connection.receive_region_id == region_id
            }));
        }
        if self.thread.starved.first(list).is_none() {
            return;
        }
        let driver = &mut self.thread.driver;
        if shares {
            driver.await_sharing(region_id);
        } else {
            driver.await_pages(region_id);
        }
    }
}
