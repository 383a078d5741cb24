//! The lists of connections that starve; see `starve.rs`.

use crate::connection::Connection;
use crate::lists::{Links, List};

/// The connections that starve, oldest first, in a list for each kind of page.
pub(super) struct Starved {
    links: Links,
    /// By region, twice: those that want a whole page, and those that share one.
    lists: Vec<List>,
    count: usize,
}

impl Starved {
    pub(super) fn new(places: usize, region_count: usize) -> Starved {
        Starved {
            links: Links::new(places),
            lists: vec![List::default(); 2 * region_count],
            count: 0,
        }
    }

    pub(super) fn lists(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// The one of a list that has waited longest.
    pub(super) fn first(&self, list: usize) -> Option<u32> {
        self.lists[list].first()
    }

    pub(super) fn enter(&mut self, connection: &mut Connection, index: u32) {
        connection.starved = true;
        self.count += 1;
        let list = &mut self.lists[list_of(connection)];
        self.links.push_back(list, index);
    }

    /// Takes a connection off its list, if it starves.
    pub(super) fn leave(&mut self, connection: &mut Connection, index: u32) {
        if std::mem::take(&mut connection.starved) {
            self.count -= 1;
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
pub(super) fn kind_of(list: usize) -> (u16, bool) {
    (u16::try_from(list / 2).unwrap_or(u16::MAX), list % 2 == 1)
}
