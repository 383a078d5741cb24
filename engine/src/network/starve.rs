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
//! - S1: a connection starves ([`Receive::Starves`](crate::connection::Receive)) exactly while it
//!   is on a list: that of the region and the kind of page that it wants. It leaves when it is
//!   armed, when it wants no input or pages of another kind, and when it is removed. So the lists
//!   hold no more than the connections.
//! - S2: before each wait the pages of every list that is not empty are awaited.

use flatpath_driver::Driver;

use crate::connection::PageKind;
use crate::limits::STARVED_PER_TURN_MAX;

use super::thread::Network;

impl<D: Driver> Network<D> {
    /// Arms receives that found no page, oldest first, as many as there are free pages now.
    pub(super) fn rearm_starved(&mut self) {
        for pages in self.thread.starved.kinds() {
            if self.thread.starved.first(pages).is_some() {
                self.rearm(pages);
            }
        }
    }

    fn rearm(&mut self, pages: PageKind) {
        let region_id = pages.region_id();
        let driver = &mut self.thread.driver;
        let mut free = if pages.shares() {
            driver.free_sharing(region_id)
        } else {
            driver.free(region_id)
        };
        for _ in 0..STARVED_PER_TURN_MAX {
            if free == 0 {
                break;
            }
            let Some(index) = self.thread.starved.first(pages) else {
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
                connection.is_receiving() && connection.pages().region_id() == region_id
            }));
        }
        if self.thread.starved.first(pages).is_none() {
            return;
        }
        let driver = &mut self.thread.driver;
        if pages.shares() {
            driver.await_sharing(region_id);
        } else {
            driver.await_pages(region_id);
        }
    }
}
