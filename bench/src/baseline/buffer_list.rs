//! Walked buffer list: all buffers of a size on one list, used ones too; whoever needs one walks it
//! under the read lock and takes the first whose `used` it can swap.
//!
//! Original: `smc_buf_get_slot` (net/smc): `down_read`, `list_for_each_entry`, `cmpxchg(&used, 0,
//! 1)`. New buffers are appended, so the idle ones stand wherever connections happen to have ended;
//! the publication measured walks of the whole list, and so does the bench: idle ones come last.
//!
//! In its favour: it hands out an index. Handing out the memory is left out of its figures, and is
//! part of ours.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Claim;
use flatpath_structures::lock::ReadWriteLock;

use crate::buffers::Recycler;
use flatpath_bench_common::measure::shuffled;

/// The end of the list.
const NONE: u32 = u32::MAX;

/// As large as the original (three cache lines): what a walk must fetch is one line of each.
#[derive(Debug)]
#[repr(align(64))]
struct Descriptor {
    used: AtomicU32,
    next: u32,
    _rest: [u8; 184],
}

/// The list of one size class.
#[derive(Debug)]
pub(crate) struct BufferList {
    /// The head. The lock is written only to add or remove descriptors, which the bench does not.
    first: ReadWriteLock<u32>,
    descriptors: Vec<Descriptor>,
    claim: Claim,
}

impl BufferList {
    /// `in_use` descriptors that are taken, then `idle` ones, scattered over memory as after a
    /// while of service.
    pub(crate) fn new(in_use: u32, idle: u32, claim: Claim) -> Self {
        let order = shuffled(1, in_use + idle);
        let mut descriptors: Vec<Descriptor> = (0..in_use + idle)
            .map(|_| Descriptor {
                used: AtomicU32::new(0),
                next: NONE,
                _rest: [0; 184],
            })
            .collect();
        for pair in order.windows(2) {
            descriptors[pair[0] as usize].next = pair[1];
        }
        for &index in &order[..in_use as usize] {
            descriptors[index as usize].used = AtomicU32::new(1);
        }
        let first = order.first().copied().unwrap_or(NONE);
        Self {
            first: ReadWriteLock::new(first),
            descriptors,
            claim,
        }
    }
}

impl Recycler for BufferList {
    type Item = u32;

    fn take(&self) -> Option<u32> {
        let first = self.first.read();
        let mut index = *first;
        while index != NONE {
            let descriptor = &self.descriptors[index as usize];
            let looks_idle =
                self.claim == Claim::Swap || descriptor.used.load(Ordering::Relaxed) == 0;
            if looks_idle && swap(&descriptor.used) {
                return Some(index);
            }
            index = descriptor.next;
        }
        None
    }

    /// No lock, as in the original.
    fn put(&self, index: u32) {
        self.descriptors[index as usize]
            .used
            .store(0, Ordering::Release);
    }
}

/// The kernel's `cmpxchg` is a full barrier; Acquire is all that is needed.
#[inline]
fn swap(used: &AtomicU32) -> bool {
    used.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idle_descriptors_are_handed_out_and_each_once() {
        for claim in [Claim::Swap, Claim::TestThenSwap] {
            let list = BufferList::new(5, 3, claim);
            let mut taken: Vec<u32> = std::iter::from_fn(|| list.take()).collect();
            assert_eq!(taken.len(), 3);
            list.put(taken[1]);
            assert_eq!(list.take(), Some(taken[1]));
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), 3);
        }
    }
}
