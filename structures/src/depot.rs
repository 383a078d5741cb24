//! Depot: which index is idle, for any number of threads: a magazine of slots per thread in front
//! of a stack of chains.
//!
//! Other names: magazines and depot (Bonwick), per-CPU free lists. A thread returns an index to its
//! own magazine of sixteen slots and takes from there, newest first. A full magazine sends eight
//! indices as one chain to a stack that all threads share; an empty one fetches a chain or, if
//! there is none, steals half of another thread's magazine. So `take` finds any idle index, and
//! taking on one thread what another gives back costs one shared swap per eight indices.
//!
//! | may run beside  | take | reserve, commit, put_shared | empty | close                |
//! |-----------------|------|-----------------------------|-------|----------------------|
//! | take            | yes  | yes                         | yes   | no                   |
//! | reserve, commit | yes  | yes                         | yes   | yes: waits for these |
//! | empty           | yes  | yes                         | yes   | yes                  |
//! | close           | no   | yes                         | yes   | once                 |
//!
//! One number, one thread: calls that name the same magazine must not overlap (see `number`). A
//! call that names none works on the shared stack.
//!
//! Invariants
//! - D1: an index is held by one caller, or in one slot, or in one chain. It moves by one access to
//!   one word, and no other state could disagree with that word. A taker swaps; the owner that
//!   fills a slot stores, because the slot is empty and stays so until then (D2, D3).
//! - D2: only the owner of a magazine fills its slots; any thread may empty them.
//! - D3: the slots at and above a magazine's `top` are empty. `top` is the owner's alone.
//! - D4: storage is type-stable: a magazine outlives its thread, and its indices can be stolen.
//! - D5: a magazine's count of steps is odd from `reserve` to the end of `commit`. After the store
//!   that ends a step, `commit` touches nothing of the depot: the index may be another thread's by
//!   then, which may tear down what the index keeps alive, this depot included.
//!
//! Teardown: stop users, wait, empty, free. `close` sets `closed`, waits for steps under way, and
//! empties the magazines. A later `reserve` is refused, and its caller disposes of the index. The
//! stack has no count of steps: a thread that pushed to it holds something that keeps the depot
//! alive, and reads `closed` afterwards. If the kernel refuses the closing fence, a step may be
//! missed: `close` returns false, and the depot is leaked instead of freed.
//!
//! Ordering
//! - DE1 publish: `commit` (Release) -> another thread's swap that steals (Acquire): what the
//!   holder wrote. Chains: the stack's own edge.
//! - DE2 close: `closed` is set, then steps, magazines in use and stack are read; a step is begun,
//!   a far magazine is published, or a chain pushed, then `closed` is read. `fence_seldom` on the
//!   first side and `fence_often` on the second (see `barrier`).
//! - DE3 leave: the store that ends `commit` (Release) -> `close` that waited for it (Acquire): the
//!   slot, the spilled chain, and what all holders wrote whose indices came by this magazine.
//!
//! Cost: take is one uncontended swap in the caller's own magazine, and return one plain store,
//! beside the owner's counts on the next cache line. Stealing walks the magazines in use,
//! O(threads), and happens only when magazine and stack are empty. Closing is a system call, and a
//! wait for a thread that was scheduled out within a step.
//!
//! Under loom a swap replaces the store that fills a slot, and asserts that the slot was empty:
//! otherwise loom lets another thread's swap write in between, which no processor does.

use crate::barrier::{fence_often, fence_seldom, prepare};
use crate::links::END;
use crate::stack::Stack;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, OnceLock, Ordering, Padded, edge, yield_now};
use crate::table::Table;

/// Indices that a magazine holds: one cache line of them.
pub(crate) const SLOTS: usize = if cfg!(any(loom, shuttle)) { 3 } else { 16 };
/// How many of them leave together: half, so that a thread that sways about the edge swaps rarely.
const SPILL: usize = if cfg!(any(loom, shuttle)) {
    2
} else {
    SLOTS / 2
};
/// Magazines that are there from the start. One load nearer than the others, twice in each round
/// trip.
const NEAR_MAGAZINES: u32 = match () {
    () if cfg!(any(loom, shuttle)) => 2,
    () if cfg!(miri) => 4,
    () => 32,
};
/// Magazines that are made for the thread that first asks for them. Threads beyond these work on
/// the shared stack.
const FAR_MAGAZINES: u32 = match () {
    () if cfg!(any(loom, shuttle)) => 1,
    () if cfg!(miri) => 8,
    () => 224,
};

/// A slot with nothing in it. Not END, which is the end of a chain.
const EMPTY: u32 = u32::MAX;
const COMMIT: Ordering = edge!("depot_commit_publish", Release, Relaxed);
/// ORDER: what is in a magazine its owner put there, so the owner has seen it.
const OWN: Ordering = Ordering::Relaxed;
const STEAL: Ordering = edge!("depot_steal_acquire", Acquire, Relaxed);
const LEAVE: Ordering = edge!("depot_leave_release", Release, Relaxed);
const WAIT: Ordering = edge!("depot_wait_acquire", Acquire, Relaxed);

/// The depot of one kind of index. See the module for who may run beside whom.
#[derive(Debug)]
pub(crate) struct Depot {
    near: [Padded<Magazine>; NEAR_MAGAZINES as usize],
    far: [OnceLock<Box<Padded<Magazine>>>; FAR_MAGAZINES as usize],
    far_used: AtomicU32,
    closed: AtomicBool,
    chains: Stack,
    /// The next index in the chain of an index.
    after: Table<AtomicU32>,
    /// Counts of the calls that named no magazine, or came after the close.
    shared: Tally,
}

/// The slots of one thread, and what that thread alone writes.
#[derive(Debug)]
struct Magazine {
    slots: [AtomicU32; SLOTS],
    top: AtomicU32,
    taken: AtomicU64,
    /// Twice the number of indices given back; odd while one is on its way (D5).
    steps: AtomicU64,
}

/// How often an index was taken and given back.
#[derive(Debug)]
struct Tally {
    taken: AtomicU64,
    put: AtomicU64,
}

/// Where to put an index.
#[derive(Debug)]
pub(crate) enum PutSlot<'a> {
    /// In a slot, by [`Reservation::commit`].
    Reserved(Reservation<'a>),
    /// On the stack, by [`Depot::put_shared`], while the caller keeps the depot alive.
    Shared,
    /// Nowhere: the depot was closed. The caller calls [`Depot::empty`] and disposes of the index.
    Closed,
}

/// A slot that is kept for the caller, and its step, which is under way.
#[derive(Debug)]
#[must_use = "a step that does not end holds up the close for ever"]
pub(crate) struct Reservation<'a> {
    slot: &'a AtomicU32,
    steps: &'a AtomicU64,
    steps_after: u64,
}

impl Reservation<'_> {
    /// Puts `index` in the slot. The caller touches nothing afterwards that the index kept alive
    /// (D5).
    #[inline(always)]
    pub(crate) fn commit(self, index: u32) {
        fill_slot(self.slot, index);
        self.steps.store(self.steps_after, LEAVE);
    }
}

/// Puts an index in an empty slot of the caller's own magazine.
#[inline(always)]
fn fill_slot(slot: &AtomicU32, index: u32) {
    if cfg!(loom) {
        let before = slot.swap(index, COMMIT);
        assert_eq!(before, EMPTY, "only the owner fills a slot, above its top");
    } else {
        debug_assert_eq!(slot.load(Ordering::Relaxed), EMPTY, "above the top");
        slot.store(index, COMMIT);
    }
}

impl Depot {
    /// A depot that holds none of its `capacity` indices yet.
    pub(crate) fn new(capacity: u32) -> Depot {
        prepare();
        Depot {
            near: std::array::from_fn(|_| Padded(Magazine::new())),
            far: std::array::from_fn(|_| OnceLock::new()),
            far_used: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            chains: Stack::new(capacity),
            after: Table::new(capacity, |_| AtomicU32::new(END)),
            shared: Tally::new(),
        }
    }

    /// The top of the caller's magazine, if that is near: the short half of [`Depot::take`].
    #[inline(always)]
    pub(crate) fn take_near(&self, thread: u32) -> Option<u32> {
        let magazine = self.near.get(thread as usize)?;
        let top = (magazine.top.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        let index = take_slot(magazine.slots.get(top)?, OWN)?;
        // ORDER: Relaxed: `top` is the owner's alone (D3).
        magazine.top.store(top as u32, Ordering::Relaxed);
        magazine.count_taken();
        Some(index)
    }

    /// An idle index, newest first, if there is one anywhere. `thread` names the caller's magazine.
    pub(crate) fn take(&self, thread: u32) -> Option<u32> {
        let Some(magazine) = self.magazine(thread) else {
            let index = self.take_shared()?;
            self.shared.taken.fetch_add(1, Ordering::Relaxed);
            return Some(index);
        };
        let index = match magazine.pop() {
            Some(index) => index,
            None => self.fetch(thread, magazine)?,
        };
        magazine.count_taken();
        Some(index)
    }

    /// An idle index for removal, the coldest that is quick to find; not counted as taken.
    pub(crate) fn take_shared(&self) -> Option<u32> {
        if let Some(first) = self.chains.pop() {
            let rest = self.after[first].load(Ordering::Relaxed);
            if rest != END {
                self.chains.push(rest);
            }
            return Some(first);
        }
        self.magazines_in_use().find_map(Magazine::steal_one)
    }

    /// A slot of the caller's magazine, if that is near: the short half of [`Depot::reserve`].
    /// `None` has changed and counted nothing.
    #[inline(always)]
    pub(crate) fn reserve_near(&self, thread: u32) -> Option<Reservation<'_>> {
        let magazine = self.near.get(thread as usize)?;
        let top = magazine.top.load(Ordering::Relaxed);
        let slot = magazine.slots.get(top as usize)?;
        let steps_after = self.begin_step(magazine)?;
        // ORDER: Relaxed: `top` is the owner's alone (D3).
        magazine.top.store(top + 1, Ordering::Relaxed);
        Some(Reservation {
            slot,
            steps: &magazine.steps,
            steps_after,
        })
    }

    /// Where the caller is to leave an index that it gives back; it is counted as given back.
    pub(crate) fn reserve(&self, thread: u32) -> PutSlot<'_> {
        let Some(magazine) = self.magazine(thread) else {
            self.shared.put.fetch_add(1, Ordering::Relaxed);
            return PutSlot::Shared;
        };
        let Some(steps_after) = self.begin_step(magazine) else {
            self.shared.put.fetch_add(1, Ordering::Relaxed);
            return PutSlot::Closed;
        };
        let mut top = magazine.top.load(Ordering::Relaxed) as usize;
        if top >= SLOTS {
            self.spill(magazine);
            top = SLOTS - SPILL;
        }
        // ORDER: Relaxed: `top` is the owner's alone (D3).
        magazine.top.store(top as u32 + 1, Ordering::Relaxed);
        PutSlot::Reserved(Reservation {
            slot: &magazine.slots[top],
            steps: &magazine.steps,
            steps_after,
        })
    }

    /// Leaves `index` on the stack. `true` if the depot was closed: the caller drains it then.
    ///
    /// The caller holds something that keeps the depot alive until this returns.
    pub(crate) fn put_shared(&self, index: u32) -> bool {
        // ORDER: Relaxed: the push of the chain publishes it (the edge of the stack).
        self.after[index].store(END, Ordering::Relaxed);
        self.chains.push(index);
        // DE2, the side that adds a chain.
        fence_often();
        self.closed.load(Ordering::Relaxed)
    }

    /// Begins a step of the caller's magazine: the count that ends it, or `None` if the depot was
    /// closed.
    #[inline(always)]
    fn begin_step(&self, magazine: &Magazine) -> Option<u64> {
        let steps = magazine.steps.load(Ordering::Relaxed);
        // ORDER: DE2, with the fence below.
        magazine.steps.store(steps + 1, Ordering::Relaxed);
        // DE2, the side that adds to a magazine, which may be new.
        fence_often();
        if self.closed.load(Ordering::Relaxed) {
            magazine.steps.store(steps, LEAVE);
            return None;
        }
        Some(steps + 2)
    }

    /// Takes everything off the stack and hands it to `dispose`.
    pub(crate) fn empty(&self, mut dispose: impl FnMut(u32)) {
        while let Some(first) = self.chains.pop() {
            let mut index = first;
            while index != END {
                // Read first: disposing of an index gives it away.
                let next = self.after[index].load(Ordering::Relaxed);
                dispose(index);
                index = next;
            }
        }
    }

    /// Closes the depot and hands everything that is idle to `dispose`. No thread may take any
    /// more.
    ///
    /// False: the kernel refused the fence. A step may be under way that was not waited for: its
    /// index is lost, and it still writes to this depot, which must not be freed therefore.
    #[must_use]
    pub(crate) fn close(&self, mut dispose: impl FnMut(u32)) -> bool {
        // ORDER: DE2, the closing side, with the fence below.
        self.closed.store(true, Ordering::Relaxed);
        let is_fenced = fence_seldom();
        // ORDER: Relaxed: DE3 has brought what its holders wrote; DE1 does so without the fence.
        let acquire = if is_fenced { Ordering::Relaxed } else { STEAL };
        for magazine in self.magazines_in_use() {
            magazine.wait_for_step();
            let all = magazine
                .slots
                .iter()
                .filter_map(|slot| take_slot(slot, acquire));
            all.for_each(&mut dispose);
        }
        self.empty(dispose);
        is_fenced
    }

    /// How many indices were taken, and how many given back. O(threads); exact when nothing moves.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let read = |magazine: &Magazine| {
            // Given back first: a snapshot in between may then only miss returns, not invent them.
            let put = magazine.steps.load(Ordering::Relaxed) / 2;
            (magazine.taken.load(Ordering::Relaxed), put)
        };
        let put = self.shared.put.load(Ordering::Relaxed);
        let shared = (self.shared.taken.load(Ordering::Relaxed), put);
        let add = |sum: (u64, u64), next: (u64, u64)| (sum.0 + next.0, sum.1 + next.1);
        self.magazines_in_use().map(read).fold(shared, add)
    }

    fn magazine(&self, thread: u32) -> Option<&Magazine> {
        match self.near.get(thread as usize) {
            Some(magazine) => Some(magazine),
            None => self.far_magazine(thread.wrapping_sub(NEAR_MAGAZINES)),
        }
    }

    /// The magazine of this number, unless it was never needed.
    fn made_magazine(&self, number: u32) -> Option<&Magazine> {
        match self.near.get(number as usize) {
            Some(magazine) => Some(magazine),
            None => Some(self.far.get((number - NEAR_MAGAZINES) as usize)?.get()?),
        }
    }

    fn far_magazine(&self, number: u32) -> Option<&Magazine> {
        let cell = self.far.get(number as usize)?;
        match cell.get() {
            Some(magazine) => Some(magazine),
            None => Some(self.make_magazine(cell, number)),
        }
    }

    #[cold]
    fn make_magazine<'a>(
        &self,
        cell: &'a OnceLock<Box<Padded<Magazine>>>,
        number: u32,
    ) -> &'a Magazine {
        let magazine = cell.get_or_init(|| Box::new(Padded(Magazine::new())));
        // ORDER: the cell publishes the magazine. DE2: a thread that is about to put into it reads
        // `closed` afterwards.
        self.far_used.fetch_max(number + 1, Ordering::Relaxed);
        magazine
    }

    /// All near magazines, and the far ones that were used.
    fn magazines_in_use(&self) -> impl Iterator<Item = &Magazine> {
        let used = self.far_used.load(Ordering::Relaxed) as usize;
        let far = self.far[..used]
            .iter()
            .filter_map(OnceLock::get)
            .map(|magazine| &***magazine);
        self.near.iter().map(|magazine| &**magazine).chain(far)
    }

    /// Fills an empty magazine, from the stack or from another magazine, and returns one of what it
    /// found.
    #[cold]
    fn fetch(&self, thread: u32, magazine: &Magazine) -> Option<u32> {
        let Some(first) = self.chains.pop() else {
            return self.steal(thread, magazine);
        };
        let mut index = self.after[first].load(Ordering::Relaxed);
        while index != END {
            // Read first: an index in a slot may be stolen and pushed elsewhere.
            let next = self.after[index].load(Ordering::Relaxed);
            magazine.fill(index);
            index = next;
        }
        Some(first)
    }

    fn steal(&self, thread: u32, magazine: &Magazine) -> Option<u32> {
        // From the next magazine on and round, so that thieves do not all meet at the first. By
        // their numbers: far magazines may be missing in between.
        let used = NEAR_MAGAZINES + self.far_used.load(Ordering::Relaxed);
        let mut others = (thread + 1..used).chain(0..thread);
        others.find_map(|number| self.made_magazine(number)?.give_half_to(magazine))
    }

    /// Sends the upper slots of a full magazine to the stack. Within a step, so that a close that
    /// has not been seen yet waits for the chain.
    #[cold]
    fn spill(&self, magazine: &Magazine) {
        let mut first = END;
        for slot in &magazine.slots[SLOTS - SPILL..] {
            if let Some(index) = take_slot(slot, OWN) {
                // ORDER: Relaxed: the push of the chain publishes it.
                self.after[index].store(first, Ordering::Relaxed);
                first = index;
            }
        }
        if first != END {
            self.chains.push(first);
        }
    }
}

impl Magazine {
    fn new() -> Magazine {
        let slots = std::array::from_fn(|_| AtomicU32::new(EMPTY));
        Magazine {
            slots,
            top: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// One writer, the owner, so a load and a store will do.
    #[inline(always)]
    fn count_taken(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        // ORDER: Relaxed: a count.
        self.taken.store(taken + 1, Ordering::Relaxed);
    }

    /// The newest that was not stolen. Called by the owner.
    fn pop(&self) -> Option<u32> {
        let mut top = self.top.load(Ordering::Relaxed) as usize;
        while top > 0 {
            top -= 1;
            if let Some(index) = take_slot(&self.slots[top], OWN) {
                // ORDER: Relaxed: owned by this thread until the chain is pushed.
                self.top.store(top as u32, Ordering::Relaxed);
                return Some(index);
            }
        }
        // ORDER: Relaxed: `top` is the owner's alone (D3).
        self.top.store(0, Ordering::Relaxed);
        None
    }

    /// Puts one more in. Called by the owner while it takes: no close is under way, and there is
    /// room.
    fn fill(&self, index: u32) {
        let top = self.top.load(Ordering::Relaxed);
        fill_slot(&self.slots[top as usize], index);
        // ORDER: Relaxed: `top` is the owner's alone (D3).
        self.top.store(top + 1, Ordering::Relaxed);
    }

    /// The oldest. Called by any thread.
    fn steal_one(&self) -> Option<u32> {
        self.slots.iter().find_map(|slot| take_slot(slot, STEAL))
    }

    /// Moves half of what is here, the oldest, to the caller's own magazine; returns one of it.
    fn give_half_to(&self, magazine: &Magazine) -> Option<u32> {
        let is_full = |slot: &&AtomicU32| slot.load(Ordering::Relaxed) != EMPTY;
        let half = self.slots.iter().filter(is_full).count().div_ceil(2);
        let mut stolen = self
            .slots
            .iter()
            .filter_map(|slot| take_slot(slot, STEAL))
            .take(half);
        let first = stolen.next()?;
        stolen.for_each(|index| magazine.fill(index));
        Some(first)
    }

    /// Returns when no step is under way that may not have seen the close.
    fn wait_for_step(&self) {
        while self.steps.load(WAIT) % 2 == 1 {
            yield_now();
        }
    }
}

/// Empties a slot, if it is not empty already. A look first: it leaves the cache line where it is.
#[inline]
fn take_slot(slot: &AtomicU32, acquire: Ordering) -> Option<u32> {
    if slot.load(Ordering::Relaxed) == EMPTY {
        return None;
    }
    let index = slot.swap(EMPTY, acquire);
    (index != EMPTY).then_some(index)
}

impl Tally {
    fn new() -> Tally {
        Tally {
            taken: AtomicU64::new(0),
            put: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests;
