//! Locked deque: a queue of numbers under the mutex of the standard library.
//!
//! What a work queue is before it is made light-weight (`sp_sockets` under `sp_lock`).

use std::collections::VecDeque;

use flatpath_structures::lock::{Guard, Lock};

/// A first-in, first-out queue.
#[derive(Debug, Default)]
pub(crate) struct LockedQueue(Lock<VecDeque<u32>>);

impl LockedQueue {
    /// An empty queue that holds `capacity` numbers without growing.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Lock::new(VecDeque::with_capacity(capacity)))
    }

    /// Appends a number.
    #[inline]
    pub(crate) fn push(&self, number: u32) {
        self.lock().push_back(number);
    }

    /// Takes the oldest number.
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        self.lock().pop_front()
    }

    /// The deque itself, locked: for condition variables.
    pub(crate) fn lock(&self) -> Guard<'_, VecDeque<u32>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_in_the_order_they_came() {
        let queue = LockedQueue::with_capacity(2);
        (1..=3).for_each(|number| queue.push(number));
        let popped: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(popped, [1, 2, 3]);
    }
}
