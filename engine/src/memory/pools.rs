//! The memory for buffers: one budget, a part of it in reserve, and how much each connection holds.
//!
//! Every buffer is taken for a connection, by its network thread or by the worker that runs its
//! job, and counted for it until it is dropped, wherever that is. What fits
//! [`RESERVE_TAKE_MAX`] may come from the reserve when everything else is in use: so a full budget
//! stops no short request and no reply. A connection that holds [`RESERVE_HELD_MAX`] waits instead.
//! Bodies, chunks of long files, data of READ and remainders of long heads do not use the reserve,
//! but for the jobs of an address of which few last beside others (`workers/reservation.rs`): while
//! half of the reserve is free they have pieces of it.
//!
//! What a program has made and waits for a client is charged beside the buffers, never to the
//! reserve: `held.rs` has how, and `protocol/outbox.rs` when.
//!
//! Invariants
//! - Both pools together never have more than the budget, charges included.
//! - A connection's count is what is out for its place in its thread's table. A buffer that
//!   comes back after its place was given to another is charged to that one until then.
//!
//! Cost: a take and a return are those of the pool and one addition each. Four bytes per place.

use std::sync::Arc;

use flatpath_structures::pool::{
    Owners, Pool, PoolConfig, PoolHandle, PoolStatistics, Reference, Zero,
};

use crate::limits::{
    BUFFER_CLASSES, PIECE_PART, RESERVE_BYTES_MIN, RESERVE_HELD_MAX, RESERVE_PART,
    RESERVE_TAKE_MAX, SHARE_BYTES_MIN, SHARE_PART,
};
use crate::memory::held::SharedBytes;

/// The memory for buffers, of which every connection has what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolFigures {
    /// The most that may be allocated.
    pub budget_bytes: usize,
    /// By size.
    pub classes: Vec<ClassFigures>,
    /// What programs have made and waits for clients, charged beside the buffers.
    pub charged_bytes: usize,
    /// Buffers handed out that were smaller than asked for.
    pub degraded: u64,
    /// Requests for a buffer that got none.
    pub refused: u64,
}

/// Buffers of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassFigures {
    /// The size.
    pub buffer_bytes: usize,
    /// Bytes of those that are handed out.
    pub in_use_bytes: usize,
    /// Bytes of those that wait to be used again.
    pub idle_bytes: usize,
}

/// How much memory a job waits for, see
/// [`Context::dispatch_with_memory`](crate::Context::dispatch_with_memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wanted {
    /// A short reply as a whole, at most
    /// `RESERVE_TAKE_MAX`: the reserve will do.
    Small,
    /// More, or a part of more: bulk memory.
    Large,
}

#[derive(Debug)]
pub(crate) struct Pools {
    main: Pool,
    reserve: Pool,
    owners: Owners,
    /// Places of one network thread's table.
    places: u32,
    share_bytes: usize,
    /// The largest piece of the reserve that bulk of a favoured user gets.
    piece_bytes_max: usize,
    /// What several connections share of what programs made.
    pub(crate) shared_bytes: Arc<SharedBytes>,
}

impl Pools {
    /// Pools for `budget_bytes`, and for `places` connections of each of the network threads.
    ///
    /// # Panics
    /// For more connections than a process can have descriptors, 2^31.
    pub(crate) fn new(budget_bytes: usize, network_threads: usize, places: usize) -> Pools {
        let numbers = 1 + network_threads * places;
        let numbers = u32::try_from(numbers).expect("descriptors bound the connections");
        let owners = Owners::new(numbers);
        let reserve_bytes = (budget_bytes / RESERVE_PART)
            .max(RESERVE_BYTES_MIN)
            .min(budget_bytes / 2);
        let config = |budget_bytes, classes: &[usize]| PoolConfig {
            classes: classes.to_vec(),
            budget_bytes,
            zero: Zero::WhenLent,
        };
        let classes = BUFFER_CLASSES.into_iter();
        let piece_bytes_max = (reserve_bytes / PIECE_PART).max(RESERVE_TAKE_MAX);
        let pieces: Vec<usize> = classes.filter(|bytes| *bytes <= piece_bytes_max).collect();
        Pools {
            main: Pool::with_owners(
                config(budget_bytes - reserve_bytes, &BUFFER_CLASSES),
                owners.clone(),
            ),
            reserve: Pool::with_owners(config(reserve_bytes, &pieces), owners.clone()),
            owners,
            places: u32::try_from(places).expect("fewer than of all threads"),
            piece_bytes_max: pieces.iter().copied().fold(RESERVE_TAKE_MAX, usize::max),
            share_bytes: (budget_bytes / SHARE_PART).max(SHARE_BYTES_MIN),
            shared_bytes: Arc::default(),
        }
    }

    /// Where buffers for the connection at a place of a network thread come from.
    #[inline]
    pub(crate) fn handle(&self, thread: u16, index: u32) -> PoolHandle<'_> {
        let owner = self.owner(thread, index);
        let handle = PoolHandle::new(&self.main, owner);
        if self.owners.held_bytes(owner) < RESERVE_HELD_MAX {
            handle.with_reserve(&self.reserve, RESERVE_TAKE_MAX)
        } else {
            handle
        }
    }

    /// Where bulk memory for the connection at a place comes from: what can wait, and so never has
    /// anything of the reserve.
    #[inline]
    pub(crate) fn bulk(&self, thread: u16, index: u32) -> PoolHandle<'_> {
        PoolHandle::new(&self.main, self.owner(thread, index))
    }

    /// The same for what belongs to no connection.
    pub(crate) fn common(&self) -> PoolHandle<'_> {
        PoolHandle::new(&self.main, 0)
    }

    /// Counts bytes for the connection at a place that are charged elsewhere, and that it refers
    /// to.
    pub(crate) fn refer(&self, thread: u16, index: u32, bytes: usize) -> Reference {
        self.owners.refer(self.owner(thread, index), bytes)
    }

    /// The number of the connection at a place of a network thread's table, from 1.
    #[inline]
    pub(crate) fn owner(&self, thread: u16, index: u32) -> u32 {
        1 + u32::from(thread) * self.places + index
    }

    /// Bytes that are out for the connection at a place of a network thread. One load.
    #[inline]
    pub(crate) fn held_bytes(&self, thread: u16, index: u32) -> usize {
        self.owners.held_bytes(self.owner(thread, index))
    }

    /// The largest piece of the reserve that bulk of a favoured user gets, in bytes.
    #[inline]
    pub(crate) fn piece_bytes_max(&self) -> usize {
        self.piece_bytes_max
    }

    /// What one connection may hold before its own input stalls, in bytes.
    #[inline]
    pub(crate) fn share_bytes(&self) -> usize {
        self.share_bytes
    }

    /// All bytes that large takers may have.
    pub(crate) fn budget_bytes(&self) -> usize {
        self.main.budget_bytes()
    }

    /// Bytes that large takers could be given now. O(threads).
    pub(crate) fn available_bytes(&self) -> usize {
        self.main.available_bytes()
    }

    /// Bytes that only small takers could be given now. O(threads).
    pub(crate) fn reserve_bytes(&self) -> usize {
        self.reserve.available_bytes()
    }

    /// Bytes of these that the bulk of favoured users could be given now. O(threads).
    pub(crate) fn reserve_bulk_bytes(&self) -> usize {
        let kept_bytes = self.reserve.budget_bytes() / 2;
        self.reserve.available_bytes().saturating_sub(kept_bytes)
    }

    /// Notes whether memory runs short; see [`Pool::note_use`].
    pub(super) fn note_shortage(&self, is_short: bool) -> bool {
        self.main.note_use(is_short)
    }

    /// Whether enough is in use that holders are counted. One load.
    #[inline]
    pub(crate) fn counts_addresses(&self) -> bool {
        self.fair_bytes() != usize::MAX
    }

    /// What one of many connections had better hold, in bytes; see [`Pool::fair_bytes`].
    #[inline]
    pub(crate) fn fair_bytes(&self) -> usize {
        self.main.fair_bytes()
    }

    /// Frees idle buffers beyond what is in use and `keep_bytes`. Returns the bytes freed.
    pub(crate) fn trim(&self, keep_bytes: usize) -> usize {
        let kept = |pool: &Pool| pool.statistics().in_use_bytes.max(keep_bytes);
        self.main.trim(kept(&self.main)) + self.reserve.trim(kept(&self.reserve))
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let mut figures = PoolFigures {
            budget_bytes: self.main.budget_bytes() + self.reserve.budget_bytes(),
            ..PoolFigures::default()
        };
        for pool in [&self.main, &self.reserve] {
            let statistics = pool.statistics();
            figures.degraded += statistics.degraded;
            figures.refused += statistics.refused;
            figures.charged_bytes += statistics.charged_bytes;
            for (buffer_bytes, statistics) in pool.classes() {
                let class = ClassFigures {
                    buffer_bytes,
                    in_use_bytes: statistics.in_use_bytes,
                    idle_bytes: statistics.idle_bytes,
                };
                let classes = &mut figures.classes;
                match classes
                    .iter_mut()
                    .find(|sum| sum.buffer_bytes == buffer_bytes)
                {
                    Some(sum) => {
                        sum.in_use_bytes += class.in_use_bytes;
                        sum.idle_bytes += class.idle_bytes;
                    }
                    None => classes.push(class),
                }
            }
        }
        figures
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let (mut sum, reserve) = (self.main.statistics(), self.reserve.statistics());
        sum.reused += reserve.reused;
        sum.allocated += reserve.allocated;
        sum.freed += reserve.freed;
        sum.degraded += reserve.degraded;
        sum.refused += reserve.refused;
        sum.in_use_bytes += reserve.in_use_bytes;
        sum.charged_bytes += reserve.charged_bytes;
        sum.idle_bytes += reserve.idle_bytes;
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_holds_much_leaves_the_reserve_to_the_others() {
        let pools = Pools::new(1 << 20, 1, 4);
        let rest: Vec<_> =
            std::iter::from_fn(|| pools.handle(0, 0).for_bulk().take(RESERVE_TAKE_MAX)).collect();
        let replies: Vec<_> = std::iter::from_fn(|| pools.handle(0, 1).take(1)).collect();
        let held_bytes = pools.held_bytes(0, 1);
        assert_eq!(held_bytes, RESERVE_HELD_MAX);
        assert!(pools.reserve_bytes() > 0);
        assert!(pools.handle(0, 2).take(RESERVE_TAKE_MAX).is_some());
        drop(replies);
        assert!(pools.handle(0, 1).take(1).is_some(), "once they are read");
        drop(rest);
    }

    #[test]
    fn bulk_memory_is_never_of_the_reserve() {
        let pools = Pools::new(1 << 20, 1, 4);
        let reserve_bytes = pools.reserve_bytes();
        let buffers = std::iter::from_fn(|| pools.bulk(0, 0).take(1));
        let buffers: Vec<_> = buffers.collect();
        assert!(!buffers.is_empty());
        assert!(pools.bulk(0, 1).charge(1).is_none() && pools.common().charge(1).is_none());
        assert!(pools.hold(0, 1, vec![7; 100].into()).is_err());
        assert!(pools.common().take(1).is_none());
        assert_eq!(pools.reserve_bytes(), reserve_bytes);
        assert!(pools.handle(0, 2).take(RESERVE_TAKE_MAX).is_some());
    }
}
