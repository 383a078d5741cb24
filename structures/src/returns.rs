//! Returns: indices that are lent, and counted until they are back on a stack.
//!
//! One thread lends them; any thread gives them back, and one takes them off. The count bounds how
//! many are lent, so it must not fall before the index is back: the lender would believe in one
//! that no thread can find yet.
//!
//! | may run beside | lend | give_back | lent, pop, is_empty |
//! |----------------|------|-----------|---------------------|
//! | lend           | no   | yes       | yes                 |
//! | give_back      | yes  | yes       | yes                 |
//!
//! Invariants
//! - B1: an index is given back by its holder, once for each time that it was lent.
//! - B2: a thread that reads a count of n finds all but n of those that were lent on the stack, or
//!   popped.
//!
//! Ordering
//! - BE1 back: the push of the index, then the decrement (Release) -> a read of the count
//!   (Acquire): the index is on the stack. The decrements in between continue the release sequence.
//! - No fence: as with the stack.
//!
//! Cost: that of the stack, and one atomic addition to lend and to give back.

use crate::stack::Stack;
use crate::sync::{AtomicU32, Ordering, edge};

const GIVE_BACK: Ordering = edge!("returns_give_back_release", Release, Relaxed);
const LENT: Ordering = edge!("returns_lent_acquire", Acquire, Relaxed);

/// See the module.
///
/// ```
/// use flatpath_structures::returns::Returns;
///
/// let pages = Returns::new(16);
/// pages.lend();
/// assert_eq!((pages.lent(), pages.pop()), (1, None));
/// pages.give_back(3);
/// assert_eq!((pages.lent(), pages.pop()), (0, Some(3)));
/// ```
#[derive(Debug)]
pub struct Returns {
    back: Stack,
    lent: AtomicU32,
}

impl Returns {
    /// For the indices 0 to `capacity - 1`, none of them lent.
    ///
    /// # Panics
    /// If the capacity is above [`INDICES_MAX`](crate::stack::INDICES_MAX).
    pub fn new(capacity: u32) -> Returns {
        Returns {
            back: Stack::new(capacity),
            lent: AtomicU32::new(0),
        }
    }

    /// One more index is lent.
    #[inline]
    pub fn lend(&self) {
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    /// An index is back.
    #[inline]
    pub fn give_back(&self, index: u32) {
        self.back.push(index);
        // ORDER: BE1: the push before the count falls.
        self.lent.fetch_sub(1, GIVE_BACK);
    }

    /// Indices that are lent: each of the others is on the stack or was popped (B2).
    #[inline]
    pub fn lent(&self) -> u32 {
        // ORDER: BE1: what is counted off is back.
        self.lent.load(LENT)
    }

    /// Takes the index that came back last.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        self.back.pop()
    }

    /// Whether none has come back since the last pop.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.back.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use crate::testing::race;

    #[test]
    fn loom_an_index_that_is_lent_no_more_is_back() {
        race(
            || {
                let returns = Arc::new(Returns::new(1));
                returns.lend();
                returns
            },
            |returns| returns.give_back(0),
            |returns| (returns.lent(), returns.pop()),
            |_, (), (lent, back)| assert!(lent == 1 || back == Some(0), "it is nowhere"),
        );
    }
}
