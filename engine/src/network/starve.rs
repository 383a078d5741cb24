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
//! - S1: a connection is `starved` exactly while it is on a list: that of the group and the kind of
//!   page its last receive found none of. It leaves when it is armed, when it wants no input or
//!   pages of another kind, and when it is removed. So the lists hold no more than the connections.
//! - S2: before each wait the pages of every list that is not empty are awaited.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::Receive;
use crate::limits::STARVED_PER_TURN_MAX;

use super::Network;

/// How many lists the groups of a driver need.
pub(super) fn lists_of(groups: usize) -> u32 {
    2 * u32::try_from(groups).unwrap_or(u32::MAX / 2)
}

/// The list of those that want a page of this kind.
fn list_of(group: u16, shares: bool) -> u32 {
    2 * u32::from(group) + u32::from(shares)
}

/// The pages that those on a list want: group, and whether they share them.
fn kind_of(list: u32) -> (u16, bool) {
    (u16::try_from(list / 2).unwrap_or(u16::MAX), list % 2 == 1)
}

impl<D: Driver> Network<D> {
    /// The receive of a connection has found no page.
    pub(super) fn starve(&mut self, key: Key) {
        self.shared.statistics.receive_stalls.add(1);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.starved {
            connection.starved = true;
            let list = list_of(connection.receive_group, connection.receive_shares);
            self.starved.push_back(list, key.index);
        }
    }

    /// A starved connection may not be one any more (S1). True: it is not.
    pub(super) fn stops_starving(&mut self, key: Key, wanted: bool) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return true;
        };
        let same_kind = connection.group == connection.receive_group
            && connection.shares == connection.receive_shares;
        let stops = !wanted || !same_kind;
        if stops {
            connection.starved = false;
            self.starved.remove(key.index);
        }
        stops
    }

    /// Arms receives that found no page, oldest first, as many as there are free pages now.
    pub(super) fn feed_starved(&mut self) {
        for list in 0..self.starved.lists() {
            if !self.starved.is_empty(list) {
                self.feed(list);
            }
        }
    }

    fn feed(&mut self, list: u32) {
        let (group, shares) = kind_of(list);
        let mut free = if shares {
            self.driver.free_sharing(group)
        } else {
            self.driver.free(group)
        };
        for _ in 0..STARVED_PER_TURN_MAX {
            if free == 0 {
                break;
            }
            let Some(index) = self.starved.pop_front(list) else {
                return;
            };
            let key = self.connections.key_at(index);
            let Some((key, connection)) =
                key.and_then(|key| Some((key, self.connections.get_mut(key)?)))
            else {
                debug_assert!(false, "S1: a connection that is gone starves");
                continue;
            };
            connection.starved = false;
            self.settle(key);
            free -= u32::from(self.is_armed(key, group));
        }
        if self.starved.is_empty(list) {
            return;
        }
        if shares {
            self.driver.await_sharing(group);
        } else {
            self.driver.await_pages(group);
        }
    }

    /// Whether a receive into the group is outstanding.
    fn is_armed(&self, key: Key, group: u16) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            connection.receive != Receive::Off && connection.receive_group == group
        })
    }
}
