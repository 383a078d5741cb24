//! Jobs kept for the next requests, so that those allocate nothing.
//!
//! Without a bound, as many would stay as were ever in flight at once. So it notes the fewest that
//! were idle in a period: those were not needed, and some of them are freed at its end.
//!
//! Invariant: `least` is at most the number kept. Taking and keeping cost a few instructions;
//! trimming costs one release of memory for each job freed, at most [`SPARE_JOBS_TRIMMED_MAX`].

use flatpath_structures::panics::drop_contained;

use crate::limits::{SPARE_JOBS_KEPT, SPARE_JOBS_TRIMMED_MAX};

pub(crate) struct FreeList<T> {
    kept: Vec<Box<T>>,
    /// The fewest that were here since the last trim.
    least: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// Something was freed.
    pub(crate) any: bool,
    /// There may be more to free next time.
    pub(crate) more: bool,
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            least: 0,
        }
    }
}

impl<T> FreeList<T> {
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        let spare = self.kept.pop();
        self.least = self.least.min(self.kept.len());
        spare
    }

    pub(crate) fn put(&mut self, spare: Box<T>) {
        self.kept.push(spare);
    }

    /// Ends a period: frees what was not needed in it, not all of a large peak at once.
    pub(crate) fn trim(&mut self) -> Trimmed {
        let surplus = self.least.saturating_sub(SPARE_JOBS_KEPT);
        let freed = surplus.min(SPARE_JOBS_TRIMMED_MAX);
        let left = self.kept.len() - freed;
        // What is kept is a protocol's own type, and so is what dropping it does. One at a time: of
        // two that panic the second would end the process.
        self.kept.drain(left..).for_each(drop_contained);
        if self.kept.capacity() > 4 * left.max(SPARE_JOBS_KEPT) {
            self.kept.shrink_to(2 * left);
        }
        self.least = left;
        Trimmed {
            any: freed > 0,
            more: left > SPARE_JOBS_KEPT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FreeList, SPARE_JOBS_KEPT, SPARE_JOBS_TRIMMED_MAX, Trimmed};

    fn with(count: usize) -> FreeList<usize> {
        let mut free_list = FreeList::default();
        for number in 0..count {
            free_list.put(Box::new(number));
        }
        free_list
    }

    #[test]
    fn what_a_peak_left_is_freed_in_the_period_after_it_and_not_at_once() {
        let peak = SPARE_JOBS_KEPT + SPARE_JOBS_TRIMMED_MAX + 10;
        let mut free_list = with(peak);
        let trims = [(); 4].map(|()| free_list.trim());
        let trimmed = |any, more| Trimmed { any, more };
        // In the period of the peak all were needed.
        assert_eq!(trims[0], trimmed(false, true));
        assert_eq!(trims[1], trimmed(true, true));
        assert_eq!(trims[2], trimmed(true, false));
        assert_eq!(trims[3], trimmed(false, false));
        assert_eq!(free_list.kept.len(), SPARE_JOBS_KEPT);
        assert!(
            free_list.kept.capacity() < peak,
            "the table shrinks as well"
        );
    }

    #[test]
    fn what_is_needed_in_every_period_stays() {
        let mut free_list = with(1000);
        for _ in 0..10 {
            let taken: Vec<_> = (0..1000).map_while(|_| free_list.take()).collect();
            assert_eq!(taken.len(), 1000, "nothing was freed");
            taken.into_iter().for_each(|spare| free_list.put(spare));
            assert!(!free_list.trim().any);
        }
    }

    #[test]
    fn a_few_are_kept_for_ever() {
        let mut free_list = with(SPARE_JOBS_KEPT);
        for _ in 0..3 {
            assert_eq!(free_list.trim(), Trimmed::default());
        }
        assert!(free_list.take().is_some());
    }

    #[test]
    fn a_panic_while_freeing_is_survived() {
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("dropped"));
            }
        }
        let mut free_list = FreeList::default();
        (0..SPARE_JOBS_KEPT + 2).for_each(|_| free_list.put(Box::new(Loud)));
        let _ = free_list.trim();
        let _ = free_list.trim();
        assert_eq!(free_list.kept.len(), SPARE_JOBS_KEPT);
        free_list.kept.drain(..).for_each(std::mem::forget);
    }
}
