//! The lists of connections that starve; see `starve.rs`.

use crate::connection::{Connection, PageKind};
use crate::lists::{Links, List};

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
        let pages = connection.begin_starving();
        self.count += 1;
        self.links.push_back(&mut self.lists[pages.index()], index);
    }

    /// Takes a connection off its list, if it starves.
    pub(super) fn leave(&mut self, connection: &mut Connection, index: u32) {
        if let Some(pages) = connection.end_starving() {
            self.count -= 1;
            self.links.remove(&mut self.lists[pages.index()], index);
        }
    }
}
