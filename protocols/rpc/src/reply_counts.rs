//! What replies came to, by class: counted by each network thread for itself, read by any.
//!
//! Relaxed throughout: figures that publish nothing. One thread stores in each set of counters, so
//! a reply costs a load and a store; the set of datagrams, which workers answer too, is added to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath::lock::{Guard, Lock};

/// What is counted beside the classes of the programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    /// A repeated call got the first one's reply.
    Repeated,
    /// A repeated call got none: the first one is being executed.
    InProgress,
    /// A call that no program was asked for.
    Refused,
}

const BESIDE: usize = 3;

/// The counters of a listener, on all network threads; clones read the same ones.
#[derive(Clone, Debug, Default)]
pub struct ReplyCounts(Arc<Lock<Vec<ThreadCounts>>>);

/// Those of one network thread, which alone adds to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadCounts(Arc<[AtomicU64]>);

impl ThreadCounts {
    pub(crate) fn add(&self, class: usize) {
        self.raise(BESIDE + class);
    }

    pub(crate) fn add_beside(&self, what: Beside) {
        self.raise(what as usize);
    }

    /// The same for a set that several threads add to.
    pub(crate) fn add_shared(&self, class: usize) {
        self.raise_shared(BESIDE + class);
    }

    /// Likewise.
    pub(crate) fn add_beside_shared(&self, what: Beside) {
        self.raise_shared(what as usize);
    }

    fn raise_shared(&self, at: usize) {
        if let Some(count) = self.0.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn raise(&self, at: usize) {
        if let Some(count) = self.0.get(at) {
            // ORDER: Relaxed: no other thread stores here.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl ReplyCounts {
    /// A network thread begins to count, with so many classes.
    pub(crate) fn enter(&self, classes: usize) -> ThreadCounts {
        let counts = (0..BESIDE + classes).map(|_| AtomicU64::new(0));
        let counts = ThreadCounts(counts.collect());
        self.threads().push(counts.clone());
        counts
    }

    fn threads(&self) -> Guard<'_, Vec<ThreadCounts>> {
        self.0.lock()
    }

    fn sum(&self, at: usize) -> u64 {
        let threads = self.threads();
        let counts = threads.iter().filter_map(|thread| thread.0.get(at));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Replies of this class, see [`Programs::reply_class`](crate::Programs::reply_class).
    pub fn of_class(&self, class: usize) -> u64 {
        self.sum(BESIDE + class)
    }

    /// Repeated calls that got the reply of the first one, or none while that was being executed.
    pub fn repeated(&self) -> u64 {
        self.sum(Beside::Repeated as usize) + self.sum(Beside::InProgress as usize)
    }

    /// Calls that no program was asked for: unknown ones, and those of callers that are not
    /// accepted.
    pub fn refused(&self) -> u64 {
        self.sum(Beside::Refused as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_for_themselves_and_are_read_together() {
        let counts = ReplyCounts::default();
        let (one, other) = (counts.enter(2), counts.enter(2));
        one.add(1);
        one.add_beside(Beside::Repeated);
        other.add(1);
        other.add(0);
        other.add_beside(Beside::InProgress);
        // There is no such class.
        other.add(2);
        assert_eq!((counts.of_class(0), counts.of_class(1)), (1, 2));
        assert_eq!((counts.repeated(), counts.refused()), (2, 0));
        assert_eq!(counts.of_class(2), 0);
    }
}
