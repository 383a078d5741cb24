//! The jobs that wait, in two ranks: those whose turn it is, and those that come after others.
//! The latter have had their part of a worker's time, or are of an address that has more than its
//! share of the jobs. [`JobQueue`] has the indices of those that a worker may take; [`Ranked`] is
//! the same for what is under a lock or of one thread.
//!
//! | may run beside | push | pop | is_empty |
//! |----------------|------|-----|----------|
//! | each of them   | yes  | yes | yes      |
//!
//! Invariants
//! - D1: while jobs of both ranks wait, one in [`AFTER_OTHERS_PART`] that is taken comes after
//!   others: neither rank waits without end.
//!
//! Ordering: that of the queues.

use std::collections::VecDeque;

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

impl Rank {
    /// The order in which they are looked at, by the number of jobs that were taken before.
    #[inline]
    fn order(taken: u64) -> [Rank; 2] {
        if taken.is_multiple_of(AFTER_OTHERS_PART) {
            return [Rank::AfterOthers, Rank::Next];
        }
        [Rank::Next, Rank::AfterOthers]
    }
}

pub(crate) struct JobQueue {
    ranks: [Queue; 2],
}

impl JobQueue {
    /// For indices below `capacity`.
    pub(super) fn new(capacity: u32) -> JobQueue {
        JobQueue {
            ranks: [Queue::new(capacity), Queue::new(capacity)],
        }
    }

    #[inline]
    pub(crate) fn push(&self, index: u32, rank: Rank) {
        self.ranks[rank as usize].push(index);
    }

    /// The index of the job to take; `taken` is how many were taken before, roughly.
    #[inline]
    pub(super) fn pop(&self, taken: u64) -> Option<u32> {
        let [next, after_others] = &self.ranks;
        if after_others.is_empty() {
            return next.pop();
        }
        let mut order = Rank::order(taken).into_iter();
        order.find_map(|rank| self.ranks[rank as usize].pop())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.iter().all(Queue::is_empty)
    }
}

/// The same for what is under a lock or of one thread. `T` is a job.
#[derive(Debug)]
pub(crate) struct Ranked<T> {
    ranks: [VecDeque<T>; 2],
    taken: u64,
}

impl<T> Ranked<T> {
    pub(crate) fn new() -> Ranked<T> {
        Ranked {
            ranks: [VecDeque::new(), VecDeque::new()],
            taken: 0,
        }
    }

    pub(crate) fn push(&mut self, job: T, rank: Rank) {
        self.ranks[rank as usize].push_back(job);
    }

    /// The next job, of a rank that may go.
    pub(crate) fn pop(&mut self, may_go: impl Fn(Rank) -> bool) -> Option<T> {
        let taken = self.taken.wrapping_add(1);
        let mut order = Rank::order(taken).into_iter().filter(|rank| may_go(*rank));
        let job = order.find_map(|rank| self.ranks[rank as usize].pop_front())?;
        self.taken = taken;
        Some(job)
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.iter().map(VecDeque::len).sum()
    }

    /// The oldest of each rank.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = &T> {
        self.ranks.iter().filter_map(VecDeque::front)
    }

    /// Takes the oldest of each rank, as long as they are `wanted`.
    pub(crate) fn take_oldest(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for jobs in &mut self.ranks {
            let count = jobs.iter().take_while(|job| wanted(job)).count();
            taken.extend(jobs.drain(..count));
        }
        taken
    }

    /// Takes what is `wanted`, the oldest of each rank first.
    pub(crate) fn take(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for jobs in &mut self.ranks {
            let all = std::mem::take(jobs);
            let (out, kept) = all.into_iter().partition::<Vec<_>, _>(|job| wanted(job));
            *jobs = kept.into();
            taken.extend(out);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_the_later_rank_come_after_others_and_not_never() {
        let (jobs, mut waiting) = (JobQueue::new(64), Ranked::new());
        for index in 0..20 {
            for (job, rank) in [(index, Rank::AfterOthers), (32 + index, Rank::Next)] {
                jobs.push(job, rank);
                waiting.push(job, rank);
            }
        }
        let order = [32, 33, 34, 35, 36, 37, 38, 0, 39, 40, 41, 42, 43, 44, 45, 1];
        let first: Vec<u32> = (1..=16).filter_map(|taken| jobs.pop(taken)).collect();
        assert_eq!(first, order);
        let first: Vec<u32> = (1..=16).filter_map(|_| waiting.pop(|_| true)).collect();
        assert_eq!(first, order);
        assert!(waiting.fronts().eq(&[46, 2]));
        let rest = (17..).map_while(|taken| jobs.pop(taken));
        assert_eq!(rest.count(), 24, "each once");
        assert!(jobs.is_empty());
        assert_eq!(waiting.pop(|rank| rank == Rank::AfterOthers), Some(2));
        assert_eq!(waiting.take(|job| *job >= 32).len(), 6);
        assert_eq!((waiting.len(), waiting.take(|_| true).len()), (17, 17));
        assert_eq!(waiting.len(), 0);
    }
}
