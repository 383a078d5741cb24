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
use flatpath_structures::slots::Key;

use crate::connection::{Connection, Receive};
use crate::limits::STARVED_PER_TURN_MAX;
use crate::lists::{Links, List};

use super::Network;

/// The connections that starve, oldest first, in a list for each kind of page.
pub(super) struct Starved {
    links: Links,
    /// By region, twice: those that want a whole page, and those that share one.
    lists: Vec<List>,
}

impl Starved {
    pub(super) fn new(places: usize, region_count: usize) -> Starved {
        Starved {
            links: Links::new(places),
            lists: vec![List::default(); 2 * region_count],
        }
    }

    fn enter(&mut self, connection: &mut Connection, index: u32) {
        connection.starved = true;
        let list = &mut self.lists[list_of(connection)];
        self.links.push_back(list, index);
    }

    /// Takes a connection off its list, if it starves.
    pub(super) fn leave(&mut self, connection: &mut Connection, index: u32) {
        if std::mem::take(&mut connection.starved) {
            let list = &mut self.lists[list_of(connection)];
            self.links.remove(list, index);
        }
    }
}

/// The list of what the last receive of a connection asked for, which stays while it starves.
fn list_of(connection: &Connection) -> usize {
    2 * usize::from(connection.receive_region_id) + usize::from(connection.receive_shares)
}

/// The pages that those on a list want: region, and whether they share them.
fn kind_of(list: usize) -> (u16, bool) {
    (u16::try_from(list / 2).unwrap_or(u16::MAX), list % 2 == 1)
}

impl<D: Driver> Network<D> {
    /// The receive of a connection has found no page.
    pub(super) fn starve(&mut self, key: Key) {
        self.common.shared.statistics.receive_stalls.add(1);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.starved {
            self.starved.enter(connection, key.index);
        }
    }

    /// A starved connection may not be one any more (S1). True: it is not.
    pub(super) fn stops_starving(&mut self, key: Key, wanted: bool) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return true;
        };
        let same_kind = connection.region_id == connection.receive_region_id
            && connection.shares == connection.receive_shares;
        let stops = !wanted || !same_kind;
        if stops {
            self.starved.leave(connection, key.index);
        }
        stops
    }

    /// Arms receives that found no page, oldest first, as many as there are free pages now.
    pub(super) fn feed_starved(&mut self) {
        for list in 0..self.starved.lists.len() {
            if self.starved.lists[list].first().is_some() {
                self.feed(list);
            }
        }
    }

    fn feed(&mut self, list: usize) {
        let (region_id, shares) = kind_of(list);
        let mut free = if shares {
            self.driver.free_sharing(region_id)
        } else {
            self.driver.free(region_id)
        };
        for _ in 0..STARVED_PER_TURN_MAX {
            if free == 0 {
                break;
            }
            let Some(index) = self.starved.lists[list].first() else {
                return;
            };
            let Some(key) = self.connections.key_at(index) else {
                unreachable!("S1: a connection that is gone does not starve")
            };
            if let Some(connection) = self.connections.get_mut(key) {
                self.starved.leave(connection, index);
            }
            self.settle(key);
            free -= u32::from(self.is_armed(key, region_id));
        }
        if self.starved.lists[list].first().is_none() {
            return;
        }
        if shares {
            self.driver.await_sharing(region_id);
        } else {
            self.driver.await_pages(region_id);
        }
    }

    /// Whether a receive into the region is outstanding.
    fn is_armed(&self, key: Key, region_id: u16) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            connection.receive != Receive::Off && connection.receive_region_id == region_id
        })
    }
}
