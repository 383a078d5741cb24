//! Depot: who holds which index, for any number of threads; a line of slots per thread in front of
//! a stack of chains.
//!
//! Other names: magazines and depot (Bonwick), per-CPU free lists. A thread puts what it gives back
//! in its own line, sixteen slots, and takes it from there again, newest first. A line that is full
//! sends eight as one chain to a stack that all share; an empty one fetches a chain, and if there
//! is none, it steals half of another thread's line. So nobody is told "none" while an index lies
//! idle somewhere, and taking on one thread what another gives back costs one shared swap per eight
//! indices.
//!
//! | may run beside | take | door, enter, put_aside | drain | close                |
//! |----------------|------|------------------------|-------|----------------------|
//! | take           | yes  | yes                    | yes   | no                   |
//! | door, enter    | yes  | yes                    | yes   | yes: waits for these |
//! | drain          | yes  | yes                    | yes   | yes                  |
//! | close          | no   | yes                    | yes   | once                 |
//!
//! One number, one thread: calls that name the same line must not overlap (see `number`). A call
//! that names none works without a line, on the shared stack.
//!
//! Invariants
//! - I1: an index is held by one caller, or in one slot, or in one chain. It goes from one of these
//!   to the next by one access to one word: that is the only fact about it. There is no state
//!   beside it that could disagree (in Linux's SMC, "not used" and "on the free list" can). Who
//!   takes from a slot swaps; who fills one stores, as it is empty and stays so until then (I2,
//!   I3).
//! - I2: only the owner of a line fills its slots; anybody may empty them.
//! - I3: the slots at and above a line's `top` are empty. `top` is the owner's alone.
//! - I4: storage is type-stable: a line that was made stays, also when its thread is gone, and what
//!   is in it can still be stolen.
//! - I5: a line's count of steps is odd from `door` to the end of `enter`. Who enters an index
//!   touches nothing of the depot after the step that ends it. From then on all may be gone: the
//!   index is another's, who may tear down what it keeps alive, this depot included.
//!
//! Teardown: stop users, wait, drain, free. `close` says so, waits for those that are between
//! `door` and the end of `enter`, and empties the lines. Who comes later is told so, keeps the
//! index and disposes of it. The stack has no such count: who pushed to it while holding something
//! that keeps the depot alive looks at `closed` afterwards. If the kernel refuses the closing
//! fence, a step may be missed: `close` returns false, and the depot is leaked instead of freed.
//!
//! Ordering
//! - E1 publish: `enter` (Release) -> another thread's swap that steals (Acquire): what the holder
//!   wrote. Chains: the stack's own E1.
//! - E2 close: `closed` is set, then steps, lines in use and stack are looked at; a step is begun,
//!   a far line is made known, or a chain pushed, then `closed` is looked at. `fence_seldom` on the
//!   first side and `fence_often` on the second (see `barrier`).
//! - E3 leave: the step that ends `enter` (Release) -> `close` that waited for it (Acquire): the
//!   slot, the spilled chain, and what all holders wrote that came by this line.
//!
//! Cost: take is one uncontended swap on the caller's own line, and giving back one plain store,
//! beside the owner's own counts on the line next to it. Stealing walks the lines in use,
//! O(threads), and happens only when line and stack are empty. Closing is a system call, and a wait
//! for whoever was scheduled out within a step.
//!
//! Loom takes a swap for the store that fills a slot, and checks that it finds the slot empty: it
//! lets a swap of another thread write in between otherwise, which no processor does.

use crate::barrier::{fence_often, fence_seldom, prepare};
use crate::links::END;
use crate::stack::Stack;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, OnceLock, Ordering, Padded, edge, yield_now};
use crate::table::Table;

/// Indices that a line holds: one cache line of them.
pub(crate) const SLOTS: usize = if cfg!(any(loom, shuttle)) { 3 } else { 16 };
/// How many of them leave together: half, so that a thread that sways about the edge swaps rarely.
const SPILL: usize = if cfg!(any(loom, shuttle)) {
    2
} else {
    SLOTS / 2
};
/// Lines that are there from the start. One load nearer than the others, twice in each round trip.
const NEAR_LINES: u32 = match () {
    () if cfg!(any(loom, shuttle)) => 2,
    () if cfg!(miri) => 4,
    () => 32,
};
/// Lines that are made for the thread that first asks for them. Threads beyond these work on the
/// shared stack.
const FAR_LINES: u32 = match () {
    () if cfg!(any(loom, shuttle)) => 1,
    () if cfg!(miri) => 8,
    () => 224,
};

/// A slot with nothing in it. Not END, which is the end of a chain.
const EMPTY: u32 = u32::MAX;
const ENTER: Ordering = edge!("depot_enter_publish", Release, Relaxed);
/// ORDER: what is in a line its owner put there, so the owner has seen it.
const OWN: Ordering = Ordering::Relaxed;
const STEAL: Ordering = edge!("depot_steal_acquire", Acquire, Relaxed);
const LEAVE: Ordering = edge!("depot_leave_release", Release, Relaxed);
const WAIT: Ordering = edge!("depot_wait_acquire", Acquire, Relaxed);

/// The depot of one kind of index. See the module for who may run beside whom.
#[derive(Debug)]
pub(crate) struct Depot {
    near: [Padded<Line>; NEAR_LINES as usize],
    far: [OnceLock<Box<Padded<Line>>>; FAR_LINES as usize],
    far_used: AtomicU32,
    closed: AtomicBool,
    chains: Stack,
    /// What follows an index in its chain.
    after: Table<AtomicU32>,
    /// Counts of the calls that named no line, or came after the close.
    aside: Tally,
}

/// The slots of one thread, and what that thread alone writes.
#[derive(Debug)]
struct Line {
    slots: [AtomicU32; SLOTS],
    top: AtomicU32,
    taken: AtomicU64,
    /// Twice the number of indices given back; odd while one is on its way (I5).
    steps: AtomicU64,
}

/// How often an index was taken and given back.
#[derive(Debug)]
struct Tally {
    taken: AtomicU64,
    put: AtomicU64,
}

/// Where to leave an index.
#[derive(Debug)]
pub(crate) enum Door<'a> {
    /// In a slot, with [`Entrance::enter`].
    Slot(Entrance<'a>),
    /// On the stack, with [`Depot::put_aside`], while the caller keeps the depot alive.
    Aside,
    /// Nowhere: the depot was closed. The caller calls [`Depot::drain`] and disposes of the index.
    Closed,
}

/// A slot that is kept for the caller, and its step, which is under way.
#[derive(Debug)]
#[must_use = "a step that does not end holds up the close for ever"]
pub(crate) struct Entrance<'a> {
    slot: &'a AtomicU32,
    steps: &'a AtomicU64,
    steps_after: u64,
}

impl Entrance<'_> {
    /// Leaves `index` in the slot. The caller touches nothing afterwards that the index kept alive
    /// (I5).
    #[inline(always)]
    pub(crate) fn enter(self, index: u32) {
        fill_slot(self.slot, index);
        self.steps.store(self.steps_after, LEAVE);
    }
}

/// Puts an index in an empty slot of the caller's own line.
#[inline(always)]
fn fill_slot(slot: &AtomicU32, index: u32) {
    if cfg!(loom) {
        let before = slot.swap(index, ENTER);
        assert_eq!(before, EMPTY, "only the owner fills a slot, above its top");
    } else {
        debug_assert_eq!(slot.load(Ordering::Relaxed), EMPTY, "above the top");
        slot.store(index, ENTER);
    }
}

impl Depot {
    /// A depot that holds none of its `capacity` indices yet.
    pub(crate) fn new(capacity: u32) -> Depot {
        prepare();
        Depot {
            near: std::array::from_fn(|_| Padded(Line::new())),
            far: std::array::from_fn(|_| OnceLock::new()),
            far_used: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            chains: Stack::new(capacity),
            after: Table::new(capacity, |_| AtomicU32::new(END)),
            aside: Tally::new(),
        }
    }

    /// What is on top of the caller's line, if that is near: the short half of [`Depot::take`].
    #[inline(always)]
    pub(crate) fn take_near(&self, thread: u32) -> Option<u32> {
        let line = self.near.get(thread as usize)?;
        let top = (line.top.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        let index = empty(line.slots.get(top)?, OWN)?;
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        line.top.store(top as u32, Ordering::Relaxed);
        line.count_taken();
        Some(index)
    }

    /// An idle index, newest first, if there is one anywhere. `thread` names the caller's line.
    pub(crate) fn take(&self, thread: u32) -> Option<u32> {
        let Some(line) = self.line(thread) else {
            let index = self.take_aside()?;
            self.aside.taken.fetch_add(1, Ordering::Relaxed);
            return Some(index);
        };
        let index = match line.pop() {
            Some(index) => index,
            None => self.fetch(thread, line)?,
        };
        line.count_taken();
        Some(index)
    }

    /// An idle index for removal, the coldest that is quick to find; not counted as taken.
    pub(crate) fn take_aside(&self) -> Option<u32> {
        if let Some(first) = self.chains.pop() {
            let rest = self.after[first].load(Ordering::Relaxed);
            if rest != END {
                self.chains.push(rest);
            }
            return Some(first);
        }
        self.lines_in_use().find_map(Line::steal_one)
    }

    /// Room on the caller's line, if that is near: the short half of [`Depot::door`]. `None` has
    /// changed and counted nothing.
    #[inline(always)]
    pub(crate) fn door_near(&self, thread: u32) -> Option<Entrance<'_>> {
        let line = self.near.get(thread as usize)?;
        let top = line.top.load(Ordering::Relaxed);
        let slot = line.slots.get(top as usize)?;
        let steps_after = self.begin_step(line)?;
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        line.top.store(top + 1, Ordering::Relaxed);
        Some(Entrance {
            slot,
            steps: &line.steps,
            steps_after,
        })
    }

    /// Where the caller is to leave an index that it gives back; it is counted as given back.
    pub(crate) fn door(&self, thread: u32) -> Door<'_> {
        let Some(line) = self.line(thread) else {
            self.aside.put.fetch_add(1, Ordering::Relaxed);
            return Door::Aside;
        };
        let Some(steps_after) = self.begin_step(line) else {
            self.aside.put.fetch_add(1, Ordering::Relaxed);
            return Door::Closed;
        };
        let mut top = line.top.load(Ordering::Relaxed) as usize;
        if top >= SLOTS {
            self.spill(line);
            top = SLOTS - SPILL;
        }
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        line.top.store(top as u32 + 1, Ordering::Relaxed);
        Door::Slot(Entrance {
            slot: &line.slots[top],
            steps: &line.steps,
            steps_after,
        })
    }

    /// Leaves `index` on the stack. `true` if the depot was closed: the caller drains it then.
    ///
    /// The caller holds something that keeps the depot alive until this returns.
    pub(crate) fn put_aside(&self, index: u32) -> bool {
        // ORDER: Relaxed: the push of the chain publishes it (the stack's E1).
        self.after[index].store(END, Ordering::Relaxed);
        self.chains.push(index);
        // E2, the side that adds a chain.
        fence_often();
        self.closed.load(Ordering::Relaxed)
    }

    /// Begins a step of the caller's line: the count that ends it, or `None` if the depot was
    /// closed.
    #[inline(always)]
    fn begin_step(&self, line: &Line) -> Option<u64> {
        let steps = line.steps.load(Ordering::Relaxed);
        // ORDER: E2, with the fence below.
        line.steps.store(steps + 1, Ordering::Relaxed);
        // E2, the side that adds to a line, which may be new.
        fence_often();
        if self.closed.load(Ordering::Relaxed) {
            line.steps.store(steps, LEAVE);
            return None;
        }
        Some(steps + 2)
    }

    /// Takes everything off the stack and hands it to `dispose`.
    pub(crate) fn drain(&self, mut dispose: impl FnMut(u32)) {
        while let Some(first) = self.chains.pop() {
            let mut index = first;
            while index != END {
                // Read first: who disposes of an index gives it away.
                let next = self.after[index].load(Ordering::Relaxed);
                dispose(index);
                index = next;
            }
        }
    }

    /// Closes the depot and hands everything that is idle to `dispose`. Nobody takes any more.
    ///
    /// False: the kernel refused the fence. A step may be under way that was not waited for: its
    /// index is lost, and it still writes to this depot, which must not be freed therefore.
    #[must_use]
    pub(crate) fn close(&self, mut dispose: impl FnMut(u32)) -> bool {
        // ORDER: E2, the closing side, with the fence below.
        self.closed.store(true, Ordering::Relaxed);
        let is_fenced = fence_seldom();
        // ORDER: Relaxed: E3 has brought what its holders wrote; E1 does so without the fence.
        let acquire = if is_fenced { Ordering::Relaxed } else { STEAL };
        for line in self.lines_in_use() {
            line.wait_for_step();
            let all = line.slots.iter().filter_map(|slot| empty(slot, acquire));
            all.for_each(&mut dispose);
        }
        self.drain(dispose);
        is_fenced
    }

    /// How many indices were taken, and how many given back. O(threads); exact when nothing moves.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let read = |line: &Line| {
            // Given back first: a snapshot in between may then only miss returns, not invent them.
            let put = line.steps.load(Ordering::Relaxed) / 2;
            (line.taken.load(Ordering::Relaxed), put)
        };
        let put = self.aside.put.load(Ordering::Relaxed);
        let aside = (self.aside.taken.load(Ordering::Relaxed), put);
        let add = |sum: (u64, u64), next: (u64, u64)| (sum.0 + next.0, sum.1 + next.1);
        self.lines_in_use().map(read).fold(aside, add)
    }

    fn line(&self, thread: u32) -> Option<&Line> {
        match self.near.get(thread as usize) {
            Some(line) => Some(line),
            None => self.far_line(thread.wrapping_sub(NEAR_LINES)),
        }
    }

    /// The line of this number, unless it was never needed.
    fn made_line(&self, number: u32) -> Option<&Line> {
        match self.near.get(number as usize) {
            Some(line) => Some(line),
            None => Some(self.far.get((number - NEAR_LINES) as usize)?.get()?),
        }
    }

    fn far_line(&self, number: u32) -> Option<&Line> {
        let cell = self.far.get(number as usize)?;
        match cell.get() {
            Some(line) => Some(line),
            None => Some(self.make_line(cell, number)),
        }
    }

    #[cold]
    fn make_line<'a>(&self, cell: &'a OnceLock<Box<Padded<Line>>>, number: u32) -> &'a Line {
        let line = cell.get_or_init(|| Box::new(Padded(Line::new())));
        // ORDER: the cell publishes the line. E2: who is about to put into it looks at `closed`
        // afterwards.
        self.far_used.fetch_max(number + 1, Ordering::Relaxed);
        line
    }

    /// All near lines, and the far ones that somebody used.
    fn lines_in_use(&self) -> impl Iterator<Item = &Line> {
        let used = self.far_used.load(Ordering::Relaxed) as usize;
        let far = self.far[..used]
            .iter()
            .filter_map(OnceLock::get)
            .map(|line| &***line);
        self.near.iter().map(|line| &**line).chain(far)
    }

    /// Fills an empty line, from the stack or from another line, and returns one of what it found.
    #[cold]
    fn fetch(&self, thread: u32, line: &Line) -> Option<u32> {
        let Some(first) = self.chains.pop() else {
            return self.steal(thread, line);
        };
        let mut index = self.after[first].load(Ordering::Relaxed);
        while index != END {
            // Read first: an index in a slot may be stolen and pushed elsewhere.
            let next = self.after[index].load(Ordering::Relaxed);
            line.fill(index);
            index = next;
        }
        Some(first)
    }

    fn steal(&self, thread: u32, line: &Line) -> Option<u32> {
        // From the next line on and round, so that thieves do not all meet at the first. By their
        // numbers: far lines may be missing in between.
        let used = NEAR_LINES + self.far_used.load(Ordering::Relaxed);
        let mut others = (thread + 1..used).chain(0..thread);
        others.find_map(|number| self.made_line(number)?.give_half_to(line))
    }

    /// Sends the upper slots of a full line to the stack. Within a step, so that a close that has
    /// not been seen yet waits for the chain.
    #[cold]
    fn spill(&self, line: &Line) {
        let mut first = END;
        for slot in &line.slots[SLOTS - SPILL..] {
            if let Some(index) = empty(slot, OWN) {
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

impl Line {
    fn new() -> Line {
        let slots = std::array::from_fn(|_| AtomicU32::new(EMPTY));
        Line {
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

    /// The newest that nobody stole. The owner's.
    fn pop(&self) -> Option<u32> {
        let mut top = self.top.load(Ordering::Relaxed) as usize;
        while top > 0 {
            top -= 1;
            if let Some(index) = empty(&self.slots[top], OWN) {
                // ORDER: Relaxed: owned by this thread until the chain is pushed.
                self.top.store(top as u32, Ordering::Relaxed);
                return Some(index);
            }
        }
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        self.top.store(0, Ordering::Relaxed);
        None
    }

    /// Puts one more in. The owner's, while it takes: no close is under way, and there is room.
    fn fill(&self, index: u32) {
        let top = self.top.load(Ordering::Relaxed);
        fill_slot(&self.slots[top as usize], index);
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        self.top.store(top + 1, Ordering::Relaxed);
    }

    /// The oldest. Anybody's.
    fn steal_one(&self) -> Option<u32> {
        self.slots.iter().find_map(|slot| empty(slot, STEAL))
    }

    /// Moves half of what is here, the oldest, to the caller's own line; returns one of it.
    fn give_half_to(&self, line: &Line) -> Option<u32> {
        let is_full = |slot: &&AtomicU32| slot.load(Ordering::Relaxed) != EMPTY;
        let half = self.slots.iter().filter(is_full).count().div_ceil(2);
        let mut stolen = self
            .slots
            .iter()
            .filter_map(|slot| empty(slot, STEAL))
            .take(half);
        let first = stolen.next()?;
        stolen.for_each(|index| line.fill(index));
        Some(first)
    }

    /// Returns when no step is under way that may not have seen the close.
    fn wait_for_step(&self) {
        while self.steps.load(WAIT) % 2 == 1 {
            yield_now();
        }
    }
}

/// Empties a slot, if it is not empty already. A look first: it leaves the line where it is.
#[inline]
fn empty(slot: &AtomicU32, acquire: Ordering) -> Option<u32> {
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
