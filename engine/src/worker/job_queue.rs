//! The jobs that wait for a worker, by their indices: those that have not run yet, and those that
//! have had their part of a worker's time and come again.
//!
//! | may run beside | push | pop | is_empty |
//! |----------------|------|-----|----------|
//! | each of them   | yes  | yes | yes      |
//!
//! Invariants
//! - J1: while jobs of both kinds wait, one in [`AFTER_OTHERS_PART`] that is taken has run before:
//!   neither kind waits for ever.
//!
//! Ordering: that of the queues.

use flatpath_structures::queue::Queue;

use crate::limits::AFTER_OTHERS_PART;

/// When a job is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// In its turn.
    Next,
    /// After those, but for one in [`AFTER_OTHERS_PART`].
    AfterOthers,
}

pub(crate) struct JobQueue {
    next: Queue,
    after_others: Queue,
}

impl JobQueue {
    /// For indices below `capacity`.
    pub(super) fn new(capacity: u32) -> JobQueue {
        JobQueue {
            next: Queue::new(capacity),
            after_others: Queue::new(capacity),
        }
    }

    #[inline]
    pub(crate) fn push(&self, index: u32, rank: Rank) {
        match rank {
            Rank::Next => self.next.push(index),
            Rank::AfterOthers => self.after_others.push(index),
        };
    }

    /// The index of the job to take; `taken` is how many were taken before, roughly.
    #[inline]
    pub(super) fn pop(&self, taken: u64) -> Option<u32> {
        if self.after_others.is_empty() {
            return self.next.pop();
        }
        let (mut first, mut second) = (&self.next, &self.after_others);
        if taken.is_multiple_of(AFTER_OTHERS_PART) {
            (first, second) = (second, first);
        }
        first.pop().or_else(|| second.pop())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.after_others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_run_come_after_others_and_not_never() {
        let jobs = JobQueue::new(64);
        for index in 0..20 {
            jobs.push(index, Rank::AfterOthers);
            jobs.push(32 + index, Rank::Next);
        }
        let first: Vec<u32> = (1..=16).filter_map(|taken| jobs.pop(taken)).collect();
        assert_eq!(
            first,
            [32, 33, 34, 35, 36, 37, 38, 0, 39, 40, 41, 42, 43, 44, 45, 1]
        );
        let rest = (17..).map_while(|taken| jobs.pop(taken));
        assert_eq!(rest.count(), 24, "each once");
        assert!(jobs.is_empty());
    }
}
