//! Owners: how many bytes of buffers each owner has out, added up as they are taken and returned.
//!
//! Other names: memory accounting, Linux memory cgroups' charges.
//!
//! | may run beside | add | subtract | held |
//! |----------------|-----|----------|------|
//! | all of them    | yes | yes      | yes  |
//!
//! Invariants
//! - The count of an owner is the sum over the buffers and charges that were taken for it and
//!   not returned, and over what it refers to of memory that several share ([`Owners::refer`]). A
//!   number that is given to another owner passes what is still out on to it: the sum over all
//!   stays exact, and that of the number, too, once those are back.
//!
//! Ordering: relaxed. A count orders nothing; it is read to decide which owner waits.
//!
//! Cost: one uncontended atomic addition per take and per return, no allocation. Four bytes for
//! each number, so one count reaches 256 GiB.

use crate::sync::{Arc, AtomicU32, Ordering};

/// The unit of a count, in bytes: blocks are rounded up to it.
pub(crate) const UNIT_BYTES: usize = 64;

/// The counts of all owners of one or several pools; clones share them.
///
/// An owner is a number of the caller's choosing; 0 means none and is not counted. A buffer knows
/// its owner, so the thread that drops it, whichever that is, subtracts from the right count.
#[derive(Clone, Debug)]
pub struct Owners {
    counts: Arc<Box<[AtomicU32]>>,
}

impl Owners {
    /// Counts for the numbers below `numbers`; higher ones, and 0, are not counted.
    pub fn new(numbers: u32) -> Owners {
        let counts = (0..numbers).map(|_| AtomicU32::new(0)).collect();
        Owners {
            counts: Arc::new(counts),
        }
    }

    /// Bytes that are out for an owner now. O(1), one load.
    #[inline]
    pub fn held_bytes(&self, owner: u32) -> usize {
        let count = self.count(owner);
        count.map_or(0, |count| {
            count.load(Ordering::Relaxed) as usize * UNIT_BYTES
        })
    }

    /// Counts bytes for an owner that are charged elsewhere, and that it keeps from being freed:
    /// memory that several owners share.
    pub fn refer(&self, owner: u32, bytes: usize) -> Reference {
        self.add(owner, bytes);
        Reference {
            owners: self.clone(),
            owner,
            bytes,
        }
    }

    #[inline]
    pub(crate) fn add(&self, owner: u32, bytes: usize) {
        if let Some(count) = self.count(owner) {
            count.fetch_add(units(bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn subtract(&self, owner: u32, bytes: usize) {
        if let Some(count) = self.count(owner) {
            count.fetch_sub(units(bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    fn count(&self, owner: u32) -> Option<&AtomicU32> {
        (owner > 0)
            .then(|| self.counts.get(owner as usize))
            .flatten()
    }
}

/// See [`Owners::refer`]. Dropped, from any thread, it counts no more.
#[derive(Debug)]
#[must_use = "a reference that is dropped does not count"]
pub struct Reference {
    owners: Owners,
    owner: u32,
    bytes: usize,
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.owners.subtract(self.owner, self.bytes);
    }
}

#[inline]
fn units(bytes: usize) -> u32 {
    bytes.div_ceil(UNIT_BYTES) as u32
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::pool::{Buffer, Pool, PoolConfig, PoolHandle};
    use crate::testing::{repeats, with_seeds};

    const NUMBERS: u32 = 5;

    #[test]
    fn owner_0_and_strangers_are_not_counted() {
        let owners = Owners::new(2);
        owners.add(0, 64);
        owners.add(2, 64);
        assert_eq!((owners.held_bytes(0), owners.held_bytes(2)), (0, 0));
        owners.add(1, 65);
        assert_eq!(owners.held_bytes(1), 128, "rounded up");
        owners.subtract(1, 65);
        assert_eq!(owners.held_bytes(1), 0);
        let reference = owners.refer(1, 65);
        assert_eq!(owners.held_bytes(1), 128);
        drop(reference);
        assert_eq!(owners.held_bytes(1), 0);
    }

    #[test]
    fn model_every_owner_is_charged_for_what_it_has_out() {
        with_seeds(repeats(20), |random| {
            let owners = Owners::new(NUMBERS);
            let config = |budget_bytes| PoolConfig {
                classes: vec![64, 256],
                budget_bytes,
                ..PoolConfig::default()
            };
            let pool = Pool::with_owners(config(2048), owners.clone());
            let reserve = Pool::with_owners(config(512), owners.clone());
            let mut out: Vec<(u32, Buffer)> = Vec::new();
            for _ in 0..1000 {
                let owner = random.below(NUMBERS);
                if random.below(2) == 0 {
                    let handle = PoolHandle::new(&pool, owner).with_reserve(&reserve, 64);
                    let taken = handle.take([1, 64, 200][random.below(3) as usize]);
                    out.extend(taken.map(|buffer| (owner, buffer)));
                } else if !out.is_empty() {
                    out.swap_remove(random.below(out.len() as u32) as usize);
                }
                for number in 1..NUMBERS {
                    let held = out.iter().filter(|(owner, _)| *owner == number);
                    let bytes: usize = held.map(|(_, buffer)| buffer.capacity()).sum();
                    assert_eq!(owners.held_bytes(number), bytes);
                }
            }
            drop((pool, reserve));
            out.clear();
            let held = (1..NUMBERS).map(|number| owners.held_bytes(number));
            assert_eq!(held.sum::<usize>(), 0, "late returns count as well");
        });
    }
}
