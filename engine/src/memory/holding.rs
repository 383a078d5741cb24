//! What one connection holds of the memory, as its last event has noted it, and what may follow.
//!
//! A [`Holding`] lies with its connection, where the event that may change it reads it anyway; the
//! account of the thread (`account.rs`, `pages.rs`) alone writes it. Whether anything has changed
//! is all that a request asks: [`Holding::is_changed`].
//!
//! Invariants
//! - What is held in one smallest buffer counts as nothing (H2 of `holders.rs`).
//! - A holding is counted with its address and its listener as `counted`; with no address before
//!   that is known.

use crate::admission::address_limit::{Cells, Over};
use crate::limits::BUFFER_CLASSES;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    /// In smallest buffers; 0 for one or none.
    pub(super) buffers: u32,
    /// Common pages that it keeps while it is stalled.
    pub(super) pages: u16,
    /// It is stalled without memory.
    pub(super) waits: bool,
    /// Where its address is counted, in all bounds.
    pub(crate) cells: Cells,
    /// As how much it is counted with its address and listener.
    pub(super) counted: u32,
}

impl Holding {
    /// Whether a connection holds or waits for something else than its last event has noted. One
    /// comparison of each.
    #[inline]
    pub(crate) fn is_changed(&self, held_bytes: usize, waits: bool) -> bool {
        buffers_of(held_bytes) != self.buffers || waits != self.waits
    }

    /// Whether it keeps as many common pages as is noted.
    pub(crate) fn keeps(&self, pages: usize) -> bool {
        usize::from(self.pages) == pages
    }
}

/// What is held, in smallest buffers; 0 for one or none.
#[inline]
pub(super) fn buffers_of(held_bytes: usize) -> u32 {
    let buffers = u32::try_from(held_bytes / BUFFER_CLASSES[0]).unwrap_or(u32::MAX);
    if buffers <= 1 { 0 } else { buffers }
}

/// What follows from what a connection holds after an event.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Go,
    /// Its input waits, that of others does not: this one's share is used up.
    Pause(Share),
    /// It is refused: too few pages are left to the others.
    Refuse,
}

/// Whose share of the memory for buffers is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The connection's own.
    Connection,
    /// That of its address or of its listener.
    Common(Over),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_that_of_a_whole_buffer_beyond_the_first_or_of_the_wait() {
        let buffer = BUFFER_CLASSES[0];
        let holding = Holding {
            buffers: 2,
            ..Holding::default()
        };
        let rows = [
            (Holding::default(), 0, false, false),
            (Holding::default(), 2 * buffer - 1, false, false),
            (Holding::default(), 2 * buffer, false, true),
            (Holding::default(), 0, true, true),
            (holding, 2 * buffer, false, false),
            (holding, 3 * buffer - 1, false, false),
            (holding, 3 * buffer, false, true),
            (holding, buffer, false, true),
        ];
        for (holding, held_bytes, waits, expected) in rows {
            let found = holding.is_changed(held_bytes, waits);
            assert_eq!(found, expected, "{holding:?}: {held_bytes}, {waits}");
        }
    }
}
