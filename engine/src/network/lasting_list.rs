//! The connections of a network thread that last, in the order in which they began to: plain state.
//! What is done with it is in `lasting.rs`.

use crate::lists::{Links, List};

use super::holders::Holds;

/// The connections of one network thread that last (L2).
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(super) links: Links,
    pub(super) list: List,
    /// When some are ended next, at the earliest.
    pub(super) round_ns: u64,
}

impl Lasting {
    pub(super) fn new(places: usize) -> Lasting {
        Lasting {
            links: Links::new(places),
            list: List::default(),
            round_ns: 0,
        }
    }

    /// The first of its jobs that last begins.
    pub(crate) fn enter(&mut self, index: u32, holds: &mut Holds) {
        if std::mem::replace(&mut holds.lasts, true) {
            self.links.move_back(&mut self.list, index);
        } else {
            self.links.push_back(&mut self.list, index);
        }
    }

    pub(super) fn leave(&mut self, index: u32, holds: &mut Holds) {
        if std::mem::take(&mut holds.lasts) {
            self.links.remove(&mut self.list, index);
        }
    }
}
