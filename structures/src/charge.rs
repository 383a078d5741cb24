//! Charge: bytes of a pool's budget without a buffer, for memory that came from elsewhere.
//!
//! Memory that a program has allocated itself, and that waits in the server, is counted beside the
//! buffers: so one budget bounds both. A [`Charge`] is the right to so many bytes, from
//! [`PoolHandle::charge`](crate::pool::PoolHandle::charge) until it is dropped, on any thread.
//!
//! Invariants
//! - C1: what is charged is part of the budget (P1 of the pool) and of the owner's count, each
//!   once, and leaves both when the charge is dropped.
//! - C2: bytes are rounded up to [`UNIT_BYTES`], so that parts add up to the whole.
//!
//! Ordering: that of the budget (ME1 of `memory`): a charge publishes nothing, and its steps are
//! read-modify-writes, which continue the release sequence of a block's bytes.
//!
//! Cost: two atomic additions to charge and to give back; a part of a charge one more count.

use crate::memory::Budget;
use crate::owners::UNIT_BYTES;
use crate::sync::Arc;

/// Bytes of a pool's budget, charged to an owner; see the module.
///
/// ```
/// use flatpath_structures::pool::{Owners, Pool, PoolConfig, PoolHandle};
///
/// let owners = Owners::new(8);
/// let pool = Pool::with_owners(PoolConfig::default(), owners.clone());
/// let charge = PoolHandle::new(&pool, 3).charge(1000).expect("nothing is in use yet");
/// assert_eq!(owners.held_bytes(3), 1024);
/// assert_eq!(pool.statistics().in_use_bytes, 1024);
/// drop(charge);
/// assert_eq!(pool.statistics().in_use_bytes, 0);
/// ```
#[derive(Debug)]
#[must_use = "a charge that is dropped is given back"]
pub struct Charge {
    budget: Arc<Budget>,
    owner: u32,
    /// Of [`UNIT_BYTES`]: a charge is two words.
    units: u32,
}

impl Charge {
    /// For `bytes` that were just reserved in the budget, a multiple of the unit.
    pub(crate) fn new(budget: &Arc<Budget>, owner: u32, bytes: usize) -> Charge {
        debug_assert!(bytes.is_multiple_of(UNIT_BYTES), "C2");
        budget.charged(owner, bytes);
        Charge {
            budget: Arc::clone(budget),
            owner,
            units: (bytes / UNIT_BYTES) as u32,
        }
    }

    /// The charge, in bytes.
    pub fn bytes(&self) -> usize {
        self.units as usize * UNIT_BYTES
    }

    /// Adds another charge of the same owner and pool to this one.
    pub fn merge(&mut self, mut other: Charge) {
        debug_assert!(
            self.owner == other.owner && Arc::ptr_eq(&self.budget, &other.budget),
            "two charges of one account"
        );
        self.units += std::mem::take(&mut other.units);
    }

    /// Gives back what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes().saturating_sub(rounded(bytes));
        if surplus > 0 {
            self.units -= (surplus / UNIT_BYTES) as u32;
            self.budget.discharged(self.owner, surplus);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.units > 0 {
            self.budget.discharged(self.owner, self.bytes());
        }
    }
}

/// The charge for a number of bytes.
pub(crate) fn rounded(bytes: usize) -> usize {
    bytes
        .checked_next_multiple_of(UNIT_BYTES)
        .unwrap_or(usize::MAX)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::pool::{Buffer, Owners, Pool, PoolConfig, PoolHandle, Zero};
    use crate::testing::{repeats, with_seeds};

    const OWNERS: u32 = 4;

    fn pool(budget_bytes: usize) -> (Pool, Owners) {
        let owners = Owners::new(OWNERS);
        let config = PoolConfig {
            classes: vec![64, 256],
            budget_bytes,
            zero: Zero::Never,
        };
        (Pool::with_owners(config, owners.clone()), owners)
    }

    #[test]
    fn a_charge_takes_room_from_buffers_and_gives_it_back_from_any_thread() {
        let (pool, owners) = pool(512);
        let charge = PoolHandle::new(&pool, 1).charge(300).expect("room");
        assert_eq!((charge.bytes(), owners.held_bytes(1)), (320, 320));
        assert!(pool.take(256).is_some_and(|it| it.capacity() == 64));
        assert_eq!(pool.available_bytes(), 512 - 320);
        assert!(PoolHandle::new(&pool, 2).charge(193).is_none(), "too much");
        std::thread::spawn(move || drop(charge))
            .join()
            .expect("no panic");
        assert_eq!(owners.held_bytes(1), 0);
        assert!(pool.take(256).is_some_and(|it| it.capacity() == 256));
    }

    #[test]
    fn idle_buffers_make_room_for_a_charge() {
        let (pool, _) = pool(512);
        drop((pool.take(256), pool.take(256)));
        assert_eq!(pool.statistics().idle_bytes, 512);
        let charge = PoolHandle::new(&pool, 1).charge(512);
        assert_eq!(charge.map(|it| it.bytes()), Some(512));
    }

    #[test]
    fn a_charge_that_finds_no_room_is_counted_as_refused_and_takes_nothing() {
        let (pool, owners) = pool(512);
        assert!(PoolHandle::new(&pool, 1).charge(513).is_none());
        assert!(PoolHandle::new(&pool, 1).charge(usize::MAX).is_none());
        let statistics = pool.statistics();
        assert_eq!((statistics.refused, statistics.in_use_bytes), (2, 0));
        assert_eq!(owners.held_bytes(1), 0);
    }

    #[test]
    fn a_charge_outlives_its_pool() {
        let (pool, owners) = pool(512);
        let charge = PoolHandle::new(&pool, 1).charge(64);
        drop(pool);
        assert_eq!(owners.held_bytes(1), 64);
        drop(charge);
        assert_eq!(owners.held_bytes(1), 0);
    }

    #[test]
    fn charges_count_as_in_use_for_pressure_and_fair_parts() {
        let (pool, _) = pool(1 << 20);
        let charge = PoolHandle::new(&pool, 1).charge(3 << 18);
        assert!(!pool.note_use(false));
        assert_eq!(pool.fair_bytes(), 0, "three quarters are in use");
        let more = PoolHandle::new(&pool, 1).charge(64);
        assert!(pool.note_use(false) && pool.is_short());
        drop((charge, more));
        assert!(!pool.note_use(false));
        assert_eq!(pool.fair_bytes(), usize::MAX);
    }

    #[test]
    fn model_charges_and_buffers_add_up_to_what_is_in_use() {
        with_seeds(repeats(20), |random| {
            let (pool, owners) = pool(2048);
            let mut charges: Vec<(u32, Charge)> = Vec::new();
            let mut buffers: Vec<(u32, Buffer)> = Vec::new();
            for _ in 0..1000 {
                let owner = random.below(OWNERS);
                let handle = PoolHandle::new(&pool, owner);
                let bytes = [1, 64, 100, 700][random.below(4) as usize];
                let of = |length: usize, at: u32| (at as usize) % length.max(1);
                match random.below(6) {
                    0 | 1 => charges.extend(handle.charge(bytes).map(|it| (owner, it))),
                    2 => buffers.extend(handle.take(bytes).map(|it| (owner, it))),
                    3 if !charges.is_empty() => {
                        let (number, mut one) =
                            charges.swap_remove(of(charges.len(), random.below(99)));
                        if let Some((_, other)) = charges.iter_mut().find(|it| it.0 == number) {
                            other.merge(one);
                        } else {
                            one.shrink_to(bytes);
                            charges.push((number, one));
                        }
                    }
                    4 if !charges.is_empty() => {
                        drop(charges.swap_remove(of(charges.len(), random.below(99))));
                    }
                    5 if !buffers.is_empty() => {
                        buffers.swap_remove(of(buffers.len(), random.below(99)));
                    }
                    _ => {}
                }
                let mut sum = 0;
                for number in 0..OWNERS {
                    let charged = charges.iter().filter(|it| it.0 == number);
                    let charged: usize = charged.map(|(_, it)| it.bytes()).sum();
                    let buffered = buffers.iter().filter(|it| it.0 == number);
                    let buffered: usize = buffered.map(|(_, it)| it.capacity()).sum();
                    sum += charged + buffered;
                    if number > 0 {
                        assert_eq!(owners.held_bytes(number), charged + buffered, "C1");
                    }
                }
                let statistics = pool.statistics();
                assert_eq!(statistics.in_use_bytes, sum);
                assert!(sum + statistics.idle_bytes <= pool.budget_bytes());
            }
        });
    }
}
