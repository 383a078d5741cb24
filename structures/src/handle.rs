//! Handle: where one owner takes its buffers from, and how far down it may reach.
//!
//! Small needs are met from a reserve when the pool is used up, large ones are not: so a full pool
//! stops neither a short request nor its reply. The reserve is a pool of its own beside the other,
//! so both stay exact and neither path costs more. Half of it serves the bulk of those who hold
//! less than others, in pieces.
//!
//! Cost: as [`Pool::take`], and one addition to the owner's count.

use crate::buffer::Buffer;
use crate::charge::Charge;
use crate::pool::Pool;

/// The part of the budget that a light user may hold in any case.
const LIGHT_FAIR_PART: usize = 1024;

/// A borrowed right to take buffers for one owner. A few words, copied freely.
///
/// ```
/// use flatpath_structures::pool::{Owners, Pool, PoolConfig, PoolHandle};
///
/// let owners = Owners::new(8);
/// let pool = Pool::with_owners(PoolConfig::default(), owners.clone());
/// let buffer = PoolHandle::new(&pool, 3).take(1000).expect("nothing is in use yet");
/// assert_eq!(owners.held_bytes(3), buffer.capacity());
/// drop(buffer);
/// assert_eq!(owners.held_bytes(3), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PoolHandle<'a> {
    pool: &'a Pool,
    reserve: Option<&'a Pool>,
    reserve_take_max: usize,
    is_light: bool,
    /// The largest piece of the reserve for its bulk; 0 for a user that is not favoured.
    piece_bytes_max: usize,
    /// What is taken is bulk of a favoured user, and this has some for it.
    bulk_reserve: Option<&'a Pool>,
    owner: u32,
}

impl<'a> PoolHandle<'a> {
    /// Takes from `pool` for `owner`; 0 for none.
    pub fn new(pool: &'a Pool, owner: u32) -> PoolHandle<'a> {
        PoolHandle {
            pool,
            reserve: None,
            reserve_take_max: 0,
            is_light: false,
            piece_bytes_max: 0,
            bulk_reserve: None,
            owner,
        }
    }

    /// Lets what is not larger than `take_bytes_max` come from `reserve` where the pool has none.
    #[must_use]
    pub fn with_reserve(self, reserve: &'a Pool, take_bytes_max: usize) -> PoolHandle<'a> {
        PoolHandle {
            reserve: Some(reserve),
            reserve_take_max: take_bytes_max,
            ..self
        }
    }

    /// The same without a reserve: for what can wait, however small it is. A
    /// [favoured](PoolHandle::for_favoured_user) user has pieces of it while half is free.
    #[must_use]
    pub fn for_bulk(self) -> PoolHandle<'a> {
        let serves = |reserve: &&Pool| {
            self.piece_bytes_max > 0 && reserve.available_bytes() > reserve.budget_bytes() / 2
        };
        PoolHandle {
            reserve: None,
            bulk_reserve: self.reserve.filter(serves),
            ..self
        }
    }

    /// The same for a user that holds next to nothing: it may take more while memory is short.
    #[must_use]
    pub fn for_light_user(self) -> PoolHandle<'a> {
        PoolHandle {
            is_light: true,
            ..self
        }
    }

    /// The same for a user that holds less than others do: what it needs does not wait for them.
    /// Bulk memory for it may come from the reserve, in pieces of at most `piece_bytes_max`.
    #[must_use]
    pub fn for_favoured_user(self, piece_bytes_max: usize) -> PoolHandle<'a> {
        PoolHandle {
            piece_bytes_max,
            ..self
        }
    }

    /// A buffer of at least `bytes_min`, if there is one to be had; else a smaller one, as large as
    /// possible; else `None`. The capacity says what it became. See [`Pool::take`].
    #[inline(always)]
    pub fn take(&self, bytes_min: usize) -> Option<Buffer> {
        let taken = match self.bulk_reserve {
            None => self.pool.take_uncounted(bytes_min),
            Some(reserve) => self.take_favoured(bytes_min, reserve),
        };
        let mut buffer = match taken {
            Some(buffer) => buffer,
            None => self.take_reserved(bytes_min)?,
        };
        if self.owner > 0 {
            buffer.charge(self.owner);
        }
        Some(buffer)
    }

    /// Charges so many bytes, rounded up to 64, without a buffer; `None` when the pool has no room
    /// for them, whatever the reserve has. Idle buffers are freed to make room. O(1), or as
    /// [`Pool::take`].
    pub fn charge(&self, bytes: usize) -> Option<Charge> {
        self.pool.charge(self.owner, bytes)
    }

    /// The reserve first: what is left of the pool are the smallest buffers.
    #[cold]
    #[inline(never)]
    fn take_favoured(&self, bytes_min: usize, reserve: &Pool) -> Option<Buffer> {
        let piece = reserve.take_uncounted(bytes_min.min(self.piece_bytes_max));
        piece.or_else(|| self.pool.take_uncounted(bytes_min))
    }

    #[cold]
    #[inline(never)]
    fn take_reserved(&self, bytes_min: usize) -> Option<Buffer> {
        let reserve = self.reserve.filter(|_| bytes_min <= self.reserve_take_max);
        let taken = reserve.and_then(|reserve| reserve.take_uncounted(bytes_min));
        if taken.is_none() {
            self.pool.count_refused();
        }
        taken
    }

    /// Whether memory runs short, so that large takers had better take less; see
    /// [`Pool::note_use`].
    #[inline]
    pub fn is_short(&self) -> bool {
        self.pool.is_short()
    }

    /// The most that one of many users should hold, in bytes; see [`Pool::fair_bytes`]. A light one
    /// may hold a thousandth of the budget in any case, and a favoured one a piece.
    #[inline]
    pub fn fair_bytes(&self) -> usize {
        let fair_bytes = self.pool.fair_bytes().max(self.piece_bytes_max);
        if self.is_light {
            return fair_bytes.max(self.pool.budget_bytes() / LIGHT_FAIR_PART);
        }
        fair_bytes
    }
}

/// For no owner, and without a reserve: tests and tools.
impl<'a> From<&'a Pool> for PoolHandle<'a> {
    fn from(pool: &'a Pool) -> PoolHandle<'a> {
        PoolHandle::new(pool, 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::pool::{PoolConfig, Zero};

    fn pool(budget_bytes: usize) -> Pool {
        Pool::new(PoolConfig {
            classes: vec![64, 256],
            budget_bytes,
            zero: Zero::Never,
        })
    }

    #[test]
    fn only_small_needs_reach_the_reserve() {
        let (main, reserve) = (pool(256), pool(128));
        let handle = PoolHandle::new(&main, 0).with_reserve(&reserve, 64);
        let all = handle.take(256).expect("room");
        assert!(handle.take(65).is_none(), "large");
        let small: Vec<Buffer> = (0..3).map_while(|_| handle.take(64)).collect();
        assert_eq!(small.len(), 2, "the reserve is bounded, too");
        assert_eq!(main.statistics().refused, 2);
        assert!(handle.charge(64).is_none(), "never from the reserve");
        drop(all);
        assert!(handle.take(65).is_some());
        drop(small);
        assert_eq!(reserve.statistics().in_use_bytes, 0);
    }

    #[test]
    fn bulk_of_a_favoured_user_has_pieces_of_half_the_reserve() {
        let (main, reserve) = (pool(256), pool(512));
        let handle = PoolHandle::new(&main, 0).with_reserve(&reserve, 64);
        let favoured = handle.for_favoured_user(64);
        let _all = handle.take(256).expect("room");
        assert!(handle.for_bulk().take(1).is_none() && favoured.take(65).is_none());
        let pieces = std::iter::from_fn(|| favoured.for_bulk().take(200));
        let pieces: Vec<Buffer> = pieces.collect();
        assert!(pieces.iter().all(|piece| piece.capacity() == 64));
        assert_eq!(pieces.len(), 4, "half of it");
        assert!(handle.take(64).is_some(), "the rest is for what is small");
    }

    #[test]
    fn bulk_of_a_favoured_user_leaves_what_is_left_of_the_pool_to_others() {
        let (main, reserve) = (pool(320), pool(512));
        let handle = PoolHandle::new(&main, 0).with_reserve(&reserve, 256);
        let bulk = handle.for_favoured_user(256).for_bulk();
        let used = || [&main, &reserve].map(|pool| pool.statistics().in_use_bytes);
        let _piece = bulk.take(200).inspect(|_| assert_eq!(used(), [0, 256]));
        let bulk = handle.for_favoured_user(256).for_bulk();
        drop(bulk.take(200).inspect(|_| assert_eq!(used(), [256, 256])));
        assert_eq!(main.statistics().refused, 0);
    }

    #[test]
    fn a_light_user_has_some_of_what_is_short() {
        let main = pool(1 << 20);
        let heavy = PoolHandle::new(&main, 0);
        let fair = || (heavy.fair_bytes(), heavy.for_light_user().fair_bytes());
        assert_eq!(fair(), (usize::MAX, usize::MAX));
        main.note_use(true);
        assert_eq!(fair(), (0, 1024));
    }

    #[test]
    fn the_fair_part_falls_from_a_quarter_in_use_to_nothing_at_three() {
        const CLASS: usize = 1 << 20;
        let main = Pool::new(PoolConfig {
            classes: vec![CLASS],
            budget_bytes: 16 * CLASS,
            zero: Zero::Never,
        });
        let mut held = Vec::new();
        let mut fair = Vec::new();
        for in_use in [4, 5, 8, 12] {
            held.extend((held.len()..in_use).map_while(|_| main.take(CLASS)));
            main.note_use(false);
            fair.push(PoolHandle::from(&main).fair_bytes());
        }
        assert_eq!(fair, [usize::MAX, 7 * CLASS / 4096, 4 * CLASS / 4096, 0]);
        drop(held);
        main.note_use(true);
        assert_eq!(main.fair_bytes(), 0, "memory runs short");
        main.note_use(false);
        assert_eq!(main.fair_bytes(), usize::MAX, "idle memory is free");
    }

    #[test]
    fn three_quarters_in_use_are_pressure_and_idle_memory_is_none() {
        let main = pool(1024);
        let held: Vec<Buffer> = (0..4).map_while(|_| main.take(256)).collect();
        assert!(main.note_use(false) && main.is_short());
        drop(held);
        assert!(!main.note_use(false) && !main.is_short());
        assert!(
            main.note_use(true) && main.is_short(),
            "as the caller reports"
        );
    }
}
