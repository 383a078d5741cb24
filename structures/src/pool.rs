//! Pool: buffers of a few sizes, used again and again by any number of threads, within a budget.
//!
//! Other names: buffer free lists, Linux SMC's `sndbufs` and `rmbs`. `take` reuses an idle buffer
//! of the size asked for that no other thread keeps at hand; else it allocates one; else it reuses
//! one that another thread keeps; else it frees idle buffers of other sizes to make room for it;
//! else it gives a smaller one, which is counted as degraded; else none, which is counted as
//! refused. Dropping a buffer returns it, from any thread.
//!
//! | may run beside | take | drop of a buffer | trim | statistics | drop of the last `Pool` |
//! |----------------|------|------------------|------|------------|-------------------------|
//! | all of them    | yes  | yes              | yes  | yes        | yes: drops only         |
//!
//! Invariants
//! - P1: the bytes of all blocks, in use and idle, and of all charges never exceed the budget.
//! - P2: a block belongs to its size class for life and returns to that one.
//! - P3: with [`Zero::WhenLent`] nobody is shown what another holder left: room is zeroed before it
//!   is lent, and only as far as anybody has written it.
//! - P4: nothing is refused or degraded while an idle buffer of the size stays where it is, in
//!   whatever thread's magazine.
//! - P5: blocks are freed when the last `Pool` is dropped, those in use when they come back. No
//!   order of drops is wrong.
//!
//! Ordering: the edges are those of `depot` and `memory`. The budget is one atomic, touched only to
//! allocate and to free.
//!
//! Cost: reuse and return are plain loads and stores, whatever the number of buffers in use, and
//! held by one thread, up to 1,024 or an eighth of what the budget has room for (see `depot`).
//! Reusing what another thread keeps is a system call, and yields half of what it keeps. What is
//! appended is not zeroed before or after. Statistics are counted per thread and added up when
//! asked for, O(threads). Dropping the last `Pool` is a system call per size.
//!
//! What it does not do: wait for a buffer, shrink by itself (see [`Pool::trim`]), or keep memory of
//! another size for a request that could use it.

use crate::charge::rounded;
use crate::memory::{Budget, Claim, SizeClass};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub use crate::buffer::Buffer;
pub use crate::charge::Charge;
pub use crate::handle::PoolHandle;
pub use crate::owners::{Owners, Reference};

/// Idle buffers of other sizes that one `take` may free to make room for its own.
const FREED_PER_TAKE_MAX: usize = 64;

/// The part of what is free beyond a quarter that one of many users had better hold, see
/// [`Pool::fair_bytes`]: that many users have room at once.
const FAIR_PART: usize = 4096;

/// The configuration of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The sizes of buffers, in bytes. Order and repetition do not matter.
    pub classes: Vec<usize>,
    /// Most bytes that all buffers together may have, in use and idle.
    pub budget_bytes: usize,
    /// Whether a buffer shows one user what another left.
    pub zero: Zero,
}

/// 4, 16 and 64 KiB, 64 MiB in all, zeroed.
impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            classes: vec![4 << 10, 16 << 10, 64 << 10],
            budget_bytes: 64 << 20,
            zero: Zero::WhenLent,
        }
    }
}

/// What becomes of what the holder of a buffer before has left in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Zero {
    /// It is zeroed where room is lent as bytes ([`Buffer::spare_mut`]), and never shown. For
    /// buffers that serve one peer after the other.
    WhenLent,
    /// The next user finds what the last one left.
    Never,
}

/// A pool of buffers; clones share it.
///
/// ```
/// use flatpath_structures::pool::{Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() });
/// let mut buffer = pool.take(1000).expect("nothing is in use yet");
/// assert_eq!(buffer.capacity(), 4096);
/// buffer.append(b"hello");
/// std::thread::spawn(move || drop(buffer)).join().unwrap();
/// assert_eq!(pool.statistics().idle_bytes, 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    /// By size, the smallest first.
    size_classes: Box<[Arc<SizeClass>]>,
    users: Arc<Users>,
}

/// The owners that may take: pools, not buffers.
#[derive(Debug)]
struct Users {
    size_classes: Box<[Arc<SizeClass>]>,
    budget: Arc<Budget>,
    degraded: AtomicU64,
    refused: AtomicU64,
    is_short: AtomicBool,
    fair_bytes: AtomicUsize,
}

/// Counts since a pool was made, and the memory that it uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Buffers handed out that were idle.
    pub reused: u64,
    pub allocated: u64,
    /// Buffers freed: by trim, to make room, or after the pool.
    pub freed: u64,
    /// Of those handed out: smaller than asked for.
    pub degraded: u64,
    /// Requests that got nothing.
    pub refused: u64,
    /// Bytes of the buffers that are handed out, and of what is charged.
    pub in_use_bytes: usize,
    /// Of these, what is charged without a buffer; see [`PoolHandle::charge`].
    pub charged_bytes: usize,
    /// Bytes of the buffers that wait to be used again.
    pub idle_bytes: usize,
}

impl Pool {
    /// A pool that holds nothing yet.
    ///
    /// # Panics
    /// If there is no class, or one of 0 bytes or more than `u32::MAX`.
    pub fn new(config: PoolConfig) -> Pool {
        Pool::with_owners(config, Owners::new(0))
    }

    /// A pool whose buffers are counted for their owners; see [`PoolHandle`].
    ///
    /// # Panics
    /// As [`Pool::new`].
    pub fn with_owners(config: PoolConfig, owners: Owners) -> Pool {
        let mut classes = config.classes;
        classes.sort_unstable();
        classes.dedup();
        let is_possible = |&bytes: &usize| bytes > 0 && u32::try_from(bytes).is_ok();
        assert!(
            !classes.is_empty() && classes.iter().all(is_possible),
            "impossible classes"
        );
        let zeroes = config.zero == Zero::WhenLent;
        let budget = Arc::new(Budget::new(config.budget_bytes, zeroes, owners));
        let size_class = |&bytes| Arc::new(SizeClass::new(bytes, Arc::clone(&budget)));
        let size_classes: Box<[Arc<SizeClass>]> = classes.iter().map(size_class).collect();
        let users = Arc::new(Users {
            size_classes: size_classes.clone(),
            budget,
            degraded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            fair_bytes: AtomicUsize::new(usize::MAX),
        });
        Pool {
            size_classes,
            users,
        }
    }

    /// A buffer of at least `bytes_min`, if there is one to be had; else a smaller one, as large as
    /// possible; else `None`. The capacity says what it became.
    ///
    /// O(1) when a buffer is reused from the caller's magazine or the common stack. The other ways,
    /// in the order of the module's first paragraph, cost an allocation, or a walk over the threads
    /// and a system call.
    // Always inline, here and below: a buffer that is returned through memory costs as much again.
    #[inline(always)]
    pub fn take(&self, bytes_min: usize) -> Option<Buffer> {
        let taken = self.take_uncounted(bytes_min);
        if taken.is_none() {
            self.count_refused();
        }
        taken
    }

    /// The same, without counting what is refused.
    #[inline(always)]
    pub(crate) fn take_uncounted(&self, bytes_min: usize) -> Option<Buffer> {
        let is_enough = |size_class: &&Arc<SizeClass>| size_class.block_bytes() >= bytes_min;
        let claim = self
            .size_classes
            .iter()
            .find(is_enough)
            .and_then(SizeClass::reuse);
        match claim {
            Some(claim) => Some(Buffer::new(claim.into_block())),
            None => self.take_otherwise(bytes_min),
        }
    }

    #[cold]
    pub(crate) fn count_refused(&self) {
        self.users.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// No idle buffer of the size asked for.
    #[cold]
    #[inline(never)]
    fn take_otherwise(&self, bytes_min: usize) -> Option<Buffer> {
        let is_short = |size_class: &Arc<SizeClass>| size_class.block_bytes() < bytes_min;
        // The smallest size that is large enough, or the largest.
        let wanted = self
            .size_classes
            .partition_point(is_short)
            .min(self.size_classes.len() - 1);
        let any_of = |size_class| {
            SizeClass::reuse(size_class)
                .or_else(|| SizeClass::allocate(size_class))
                .or_else(|| SizeClass::reuse_last(size_class))
        };
        let mut smaller = self.size_classes[..wanted].iter().rev();
        let claim = any_of(&self.size_classes[wanted])
            .or_else(|| self.make_room_and_allocate(wanted))
            .or_else(|| smaller.find_map(any_of))?;
        if claim.block_bytes() < bytes_min {
            self.users.degraded.fetch_add(1, Ordering::Relaxed);
        }
        Some(Buffer::new(claim.into_block()))
    }

    /// Frees idle buffers of other sizes, the largest first, until one of the wanted size fits.
    fn make_room_and_allocate(&self, wanted: usize) -> Option<Claim<'_>> {
        let wanted = &self.size_classes[wanted];
        if wanted.block_bytes() > self.users.budget.bytes_max() {
            return None;
        }
        let others = self
            .size_classes
            .iter()
            .rev()
            .filter(|&size_class| !Arc::ptr_eq(size_class, wanted));
        let idle =
            others.flat_map(|size_class| std::iter::from_fn(|| SizeClass::withdraw(size_class)));
        idle.take(FREED_PER_TAKE_MAX).find_map(|claim| {
            claim.into_block().free();
            SizeClass::allocate(wanted)
        })
    }

    /// See [`PoolHandle::charge`].
    pub(crate) fn charge(&self, owner: u32, bytes: usize) -> Option<Charge> {
        let (budget, bytes) = (&self.users.budget, rounded(bytes));
        if budget.reserve(bytes) || self.make_room_for(bytes) {
            return Some(Charge::new(budget, owner, bytes));
        }
        self.count_refused();
        None
    }

    /// Frees idle buffers, the largest first, until so many bytes fit the budget, and reserves
    /// them.
    #[cold]
    fn make_room_for(&self, bytes: usize) -> bool {
        let budget = &self.users.budget;
        if bytes > budget.bytes_max() {
            return false;
        }
        let size_classes = self.size_classes.iter().rev();
        let mut idle = size_classes
            .flat_map(|size_class| std::iter::from_fn(|| SizeClass::withdraw(size_class)))
            .take(FREED_PER_TAKE_MAX);
        idle.any(|claim| {
            claim.into_block().free();
            budget.reserve(bytes)
        })
    }

    /// Frees idle buffers, the largest first, until at most `keep_bytes` are idle. Returns the
    /// bytes freed. For the owner of the pool to call now and then; O(buffers freed).
    pub fn trim(&self, keep_bytes: usize) -> usize {
        let surplus = self.statistics().idle_bytes.saturating_sub(keep_bytes);
        let mut freed_bytes = 0;
        for size_class in self.size_classes.iter().rev() {
            while freed_bytes < surplus {
                let Some(claim) = SizeClass::withdraw(size_class) else {
                    break;
                };
                claim.into_block().free();
                freed_bytes += size_class.block_bytes();
            }
        }
        freed_bytes
    }

    /// Counts of the pool, and the memory that it uses. O(threads); exact when nothing moves, else
    /// a little old.
    pub fn statistics(&self) -> PoolStatistics {
        let mut sum = PoolStatistics {
            degraded: self.users.degraded.load(Ordering::Relaxed),
            refused: self.users.refused.load(Ordering::Relaxed),
            ..PoolStatistics::default()
        };
        for (_, class) in self.classes() {
            sum.reused += class.reused;
            sum.allocated += class.allocated;
            sum.freed += class.freed;
            sum.in_use_bytes += class.in_use_bytes;
            sum.idle_bytes += class.idle_bytes;
        }
        sum.charged_bytes = self.users.budget.charged_bytes();
        sum.in_use_bytes += sum.charged_bytes;
        sum
    }

    /// The same for the buffers of each size, which comes first; what was degraded or refused is
    /// counted for none.
    pub fn classes(&self) -> impl Iterator<Item = (usize, PoolStatistics)> {
        self.size_classes.iter().map(|size_class| {
            let counts = size_class.counts();
            let in_use = (counts.allocated + counts.reused).saturating_sub(counts.returned);
            let idle = counts.allocated.saturating_sub(counts.freed + in_use);
            let class = PoolStatistics {
                reused: counts.reused,
                allocated: counts.allocated,
                freed: counts.freed,
                in_use_bytes: in_use as usize * size_class.block_bytes(),
                idle_bytes: idle as usize * size_class.block_bytes(),
                ..PoolStatistics::default()
            };
            (size_class.block_bytes(), class)
        })
    }

    /// Bytes that could be handed out now: a hint, as others take and return meanwhile, and as they
    /// may be of other sizes than wanted. O(threads).
    pub fn available_bytes(&self) -> usize {
        self.users
            .budget
            .bytes_max()
            .saturating_sub(self.statistics().in_use_bytes)
    }

    /// Notes whether more than three quarters of the budget are in use, or `is_short` for another
    /// reason, for [`Pool::is_short`], and what is free, for [`Pool::fair_bytes`]. One load while
    /// less than a quarter is allocated, else O(threads).
    pub fn note_use(&self, is_short: bool) -> bool {
        let bytes_max = self.users.budget.bytes_max();
        let full_bytes = bytes_max / 4 * 3;
        let is_weighed = self.allocated_bytes() > bytes_max / 4;
        let in_use_bytes = is_weighed.then(|| self.statistics().in_use_bytes);
        let fair_bytes = match in_use_bytes.filter(|in_use_bytes| *in_use_bytes > bytes_max / 4) {
            _ if is_short => 0,
            Some(in_use_bytes) => full_bytes.saturating_sub(in_use_bytes) / FAIR_PART,
            None => usize::MAX,
        };
        if self.fair_bytes() != fair_bytes {
            // ORDER: Relaxed: a hint, as below.
            self.users.fair_bytes.store(fair_bytes, Ordering::Relaxed);
        }
        let is_full = in_use_bytes.is_some_and(|in_use_bytes| in_use_bytes > full_bytes);
        let is_short = is_short || is_full;
        // A plain load first: the line is read by all and hardly ever changes.
        if self.is_short() != is_short {
            // ORDER: Relaxed: a hint, which publishes nothing.
            self.users.is_short.store(is_short, Ordering::Relaxed);
        }
        is_short
    }

    /// Whether the last [`Pool::note_use`] found that users of memory should take less. One load.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.users.is_short.load(Ordering::Relaxed)
    }

    /// The most that one of many users should hold, in bytes, by the last [`Pool::note_use`]: a
    /// small part of what is free beyond a quarter, so that later users find room beside the early
    /// ones (dynamic thresholds: Choudhury and Hahne, 1998). Without a limit below a quarter of the
    /// budget; nothing from three quarters on, or when memory runs short. One load.
    #[inline]
    pub fn fair_bytes(&self) -> usize {
        self.users.fair_bytes.load(Ordering::Relaxed)
    }

    /// The most that all buffers and charges together may have, in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.users.budget.bytes_max()
    }

    /// Bytes of all buffers, in use and idle, and charges: never more than the budget. O(1).
    fn allocated_bytes(&self) -> usize {
        self.users.budget.allocated_bytes()
    }
}

/// Runs when the last `Pool` is gone, so that no `take` is under way or to come.
impl Drop for Users {
    fn drop(&mut self) {
        self.size_classes.iter().for_each(SizeClass::close);
    }
}

#[cfg(test)]
mod tests;
