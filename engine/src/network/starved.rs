//! The lists of connections that starve; see `starve.rs`.

use crate::connection::{Connection, PageKind};
use crate::lists::{Links, List};
use crate::waits::Wait;

/// The connections that starve, oldest first, in a list for each kind of page.
pub(super) struct Starved {
    links: Links,
    /// By the kind of page.
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

    pub(super) fn kinds(&self) -> impl Iterator<Item = PageKind> + use<> {
        (0..self.lists.len()).map(PageKind::of_index)
    }

    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// The one that has waited longest for a page of a kind.
    pub(super) fn first(&self, pages: PageKind) -> Option<u32> {
        self.lists[pages.index()].first()
    }

    pub(super) fn enter(&mut self, connection: &mut Connection, index: u32) {
        connection.waits.insert(Wait::Page);
        self.count += 1;
        // What the last receive asked for stays while the connection starves.
        let list = &mut self.lists[connection.receive_pages().index()];
        self.links.push_back(list, index);
    }

    /// Takes a connection off its list, if it starves.
    pub(super) fn leave(&mut self, connection: &mut Connection, index: u32) {
        if connection.waits.starves() {
            connection.waits.remove(Wait::Page);
            self.count -= 1;
            let list = &mut self.lists[connection.receive_pages().index()];
            self.links.remove(list, index);
        }
    }
}
