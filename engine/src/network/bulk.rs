//! What makes input long, and a connection one that brings much: why, see `long_input.rs`.
//!
//! | a receive of a sparse connection                   | the connection is |
//! |----------------------------------------------------|-------------------|
//! | is short                                           | sparse            |
//! | is long, and pages are scarce                      | bulk              |
//! | is much of a page, and the thread is behind        | bulk              |
//! | any other                                          | sparse            |

use crate::limits::{AT_ONCE_PART, BULK_PART, SCARCE_PAGES_PART};

/// See the module.
pub(super) struct Bulk {
    page_bytes: usize,
    /// The last turn has left long input for the next.
    is_behind: bool,
}

impl Bulk {
    /// Where common pages have this length.
    pub(super) fn new(page_bytes: usize) -> Bulk {
        Bulk {
            page_bytes,
            is_behind: false,
        }
    }

    /// The length of a common page.
    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Input up to this length is given when it arrives, in bytes.
    #[inline]
    pub(super) fn at_once_bytes_max(&self) -> usize {
        self.page_bytes / AT_ONCE_PART
    }

    /// The long input of `left` connections waits for the next turn.
    pub(super) fn ends_turn(&mut self, left: usize) {
        self.is_behind = left > 0;
    }

    /// Whether a connection that brings `bytes` at once, more than a few requests, is bulk while
    /// `free` of all common `pages` are free.
    pub(super) fn begins(&self, bytes: usize, free: u32, pages: u32) -> bool {
        let is_much = self.is_behind && bytes > self.page_bytes / BULK_PART;
        is_much || free < pages / SCARCE_PAGES_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_brings_much_where_pages_are_scarce_or_the_thread_is_behind() {
        let pages = 10 * SCARCE_PAGES_PART;
        let long = 4096 / BULK_PART + 1;
        let rows = [
            (0, long, pages, false),
            (1, long, pages, true),
            (1, long - 1, pages, false),
            (0, 1, 9, true),
            (0, 1, 10, false),
        ];
        for (left, bytes, free, expected) in rows {
            let mut bulk = Bulk::new(4096);
            bulk.ends_turn(left);
            let begins = bulk.begins(bytes, free, pages);
            assert_eq!(begins, expected, "{left}, {bytes}, {free}");
            assert_eq!(bulk.at_once_bytes_max(), 4096 / AT_ONCE_PART);
        }
    }
}
