//! Connections of a thread whose ciphers are cached, ready for use (`tls/records.rs`): a bound of
//! them, and some more within a turn. Then the ciphers are dropped that were made longest ago, and
//! made anew from their secrets when they are needed next.

use crate::lists::Order;

/// Connections of a thread whose ciphers are cached; a kilobyte each.
pub(crate) const CIPHERS_CACHED_MAX: usize = 1024;

/// The connections whose ciphers are cached, in the order in which these were made.
pub(super) struct CipherCache {
    order: Order,
    count: usize,
    max: usize,
}

impl CipherCache {
    pub(super) fn new(places: usize) -> CipherCache {
        CipherCache {
            order: Order::new(places),
            count: 0,
            max: CIPHERS_CACHED_MAX,
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

    pub(super) fn remove(&mut self, index: u32) {
        if self.order.has(index) {
            self.order.remove(index);
            self.count -= 1;
        }
    }

    /// Whether there are more than the bound.
    pub(super) fn exceeds(&self) -> bool {
        self.count > self.max
    }

    /// Takes the one whose ciphers were made longest ago, while there are more than the bound.
    pub(super) fn evict(&mut self) -> Option<u32> {
        let index = self.order.first().filter(|_| self.exceeds())?;
        self.remove(index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_bound_leaves_oldest_first() {
        let mut cache = CipherCache::new(8);
        cache.max = 2;
        for index in [5, 3, 5] {
            cache.add(index);
        }
        assert!(
            !cache.exceeds() && cache.evict().is_none(),
            "each counts once"
        );
        cache.add(7);
        cache.add(1);
        cache.remove(3);
        cache.remove(3);
        assert_eq!((cache.evict(), cache.evict()), (Some(5), None));
        cache.max = 0;
        assert_eq!(
            [cache.evict(), cache.evict(), cache.evict()],
            [Some(7), Some(1), None]
        );
    }
}
