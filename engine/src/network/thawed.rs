//! Thawed connections: they have ciphers that are ready for use (`tls/records.rs`). A thread has a
//! bound of them, and some more within a turn: those that were thawed longest ago are frozen then.

use crate::lists::Order;

/// Connections of a thread whose ciphers are kept ready; a kilobyte each.
pub(crate) const THAWED_MAX: usize = 1024;

/// The connections of a thread whose ciphers are ready for use, in the order of their thawing.
pub(super) struct Thawed {
    order: Order,
    count: usize,
    max: usize,
}

impl Thawed {
    pub(super) fn new(places: usize) -> Thawed {
        Thawed {
            order: Order::new(places),
            count: 0,
            max: THAWED_MAX,
        }
    }

    /// Sets the bound.
    #[cfg(all(feature = "simulation", feature = "tls"))]
    pub(super) fn at_most(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn add(&mut self, index: u32) {
        if !self.order.has(index) {
            self.order.push_back(index);
            self.count += 1;
        }
    }

    /// The one that was thawed longest ago.
    pub(super) fn first(&self) -> Option<u32> {
        self.order.first()
    }

    pub(super) fn remove(&mut self, index: u32) {
        if self.order.has(index) {
            self.order.remove(index);
            self.count -= 1;
        }
    }

    pub(super) fn exceeds(&self) -> bool {
        self.count > self.max
    }
}
