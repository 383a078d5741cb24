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
//! | may run beside | take | door, enter, put_aside | drain | close |
//! |----------------|------|------------------------|-------|-------|
//! | take           | yes  | yes                    | yes   | no    |
//! | door, enter    | yes  | yes                    | yes   | yes   |
//! | drain          | yes  | yes                    | yes   | yes   |
//! | close          | no   | yes                    | yes   | once  |
//!
//! One number, one thread: calls that name the same line must not overlap (see `number`). A call
//! that names none works without a line, on the shared stack.
//!
//! Invariants
//! - I1: an index is held by one caller, or in one slot, or in one chain. It goes from one of these
//!   to the next by one read-modify-write of one word: that is the only fact about it. There is no
//!   state beside it that could disagree (in Linux's SMC, "not used" and "on the free list" can).
//! - I2: only the owner of a line fills its slots; anybody may empty them.
//! - I3: the slots at and above a line's `top` are empty. `top` is the owner's alone.
//! - I4: storage is type-stable: a line that was made stays, also when its thread is gone, and what
//!   is in it can still be stolen.
//! - I5: who enters an index touches nothing of the depot after the swap that enters it. From then
//!   on the index is another's, who may tear down what it keeps alive, this depot included.
//!
//! Teardown: stop users, drain, free. `close` leaves a mark in every slot, so that an `enter` that
//! comes later fails, and its caller keeps the index and disposes of it. The stack has no such
//! mark: who pushed to it while holding something that keeps the depot alive looks at `closed`
//! afterwards.
//!
//! Ordering
//! - E1 publish: `enter` (Release) -> another thread's swap that empties the slot, to steal or to
//!   close (Acquire): what the holder wrote. Chains: the stack's own E1.
//! - E2 close: `closed` is set, then the lines in use and the stack are emptied; a far line is made
//!   known, or a chain pushed, then `closed` is looked at. `fence(SeqCst)` on both sides.
//!
//! Cost: take and enter are one uncontended swap each on the caller's own line. Stealing walks the
//! lines in use, O(threads), and happens only when line and stack are empty.

use crate::links::END;
use crate::stack::Stack;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, OnceLock, Ordering, Padded, edge, fence};
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
/// A slot of a closed depot.
const CLOSED: u32 = u32::MAX - 1;

/// What `close` leaves in a slot.
const MARK: u32 = if cfg!(drill = "depot_close_unmarked") {
    EMPTY
} else {
    CLOSED
};

const ENTER: Ordering = edge!("depot_enter_publish", Release, Relaxed);
/// ORDER: what is in a line its owner put there, so the owner has seen it.
const OWN: Ordering = Ordering::Relaxed;
const STEAL: Ordering = edge!("depot_steal_acquire", Acquire, Relaxed);
const CLOSE: Ordering = edge!("depot_close_acquire", Acquire, Relaxed);

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
    /// Counts of the calls that named no line.
    aside: Tally,
}

/// The slots of one thread, and what that thread alone writes.
#[derive(Debug)]
struct Line {
    slots: [AtomicU32; SLOTS],
    top: AtomicU32,
    tally: Tally,
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
    /// In this slot, with [`enter`].
    Slot(&'a AtomicU32),
    /// On the stack, with [`Depot::put_aside`], while the caller keeps the depot alive.
    Aside,
    /// Nowhere: the depot was closed. The caller calls [`Depot::drain`] and disposes of the index.
    Closed,
}

/// Leaves `index` in a slot. `false` if the depot was closed: the caller still holds the index.
///
/// After a `true` the caller touches nothing that the index kept alive (I5).
#[inline]
pub(crate) fn enter(slot: &AtomicU32, index: u32) -> bool {
    slot.compare_exchange(EMPTY, index, ENTER, Ordering::Relaxed)
        .is_ok()
}

impl Depot {
    /// A depot that holds none of its `capacity` indices yet.
    pub(crate) fn new(capacity: u32) -> Depot {
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

    /// An idle index, newest first, if there is one anywhere. `thread` names the caller's line.
    #[inline(always)]
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
        line.tally.count_taken();
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

    /// Where the caller is to leave an index that it gives back; it is counted as given back.
    #[inline(always)]
    pub(crate) fn door(&self, thread: u32) -> Door<'_> {
        let Some(line) = self.line(thread) else {
            self.aside.put.fetch_add(1, Ordering::Relaxed);
            return Door::Aside;
        };
        line.tally.count_put();
        let mut top = line.top.load(Ordering::Relaxed) as usize;
        if top == SLOTS {
            if self.spill(line) {
                return Door::Closed;
            }
            top = SLOTS - SPILL;
        }
        // ORDER: Relaxed: `top` is the owner's alone (I3).
        line.top.store(top as u32 + 1, Ordering::Relaxed);
        Door::Slot(&line.slots[top])
    }

    /// Leaves `index` on the stack. `true` if the depot was closed: the caller drains it then.
    ///
    /// The caller holds something that keeps the depot alive until this returns.
    pub(crate) fn put_aside(&self, index: u32) -> bool {
        // ORDER: Relaxed: the push of the chain publishes it (the stack's E1).
        self.after[index].store(END, Ordering::Relaxed);
        self.push_chain(index)
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
    pub(crate) fn close(&self, mut dispose: impl FnMut(u32)) {
        self.closed.store(true, Ordering::Relaxed);
        if !cfg!(drill = "depot_close_unfenced") {
            // ORDER: E2, the closing side.
            fence(Ordering::SeqCst);
        }
        for line in self.lines_in_use() {
            line.close(&mut dispose);
        }
        self.drain(dispose);
    }

    /// How many indices were taken, and how many given back. O(threads); exact when nothing moves.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let lines = self.lines_in_use().map(|line| &line.tally);
        let read = |tally: &Tally| {
            // Given back first: a snapshot in between may then only miss returns, not invent them.
            let put = tally.put.load(Ordering::Relaxed);
            (tally.taken.load(Ordering::Relaxed), put)
        };
        let add = |sum: (u64, u64), next: (u64, u64)| (sum.0 + next.0, sum.1 + next.1);
        lines.map(read).fold(read(&self.aside), add)
    }

    #[inline]
    fn line(&self, thread: u32) -> Option<&Line> {
        match self.near.get(thread as usize) {
            Some(line) => Some(line),
            None => self.far_line(thread.wrapping_sub(NEAR_LINES)),
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
        // ORDER: the cell publishes the line; E2 makes `close` see both.
        self.far_used.fetch_max(number + 1, Ordering::Relaxed);
        if self.is_closed() {
            // Who closed the depot may have missed this line.
            line.close(|_| unreachable!("only the owner fills a line, and it has not yet"));
        }
        line
    }

    /// Looks at `closed` after something was made known that `close` should find.
    fn is_closed(&self) -> bool {
        if !cfg!(drill = "depot_look_unfenced") {
            // ORDER: E2, the side that adds.
            fence(Ordering::SeqCst);
        }
        self.closed.load(Ordering::Relaxed)
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
        // From the next line on and round, so that thieves do not all meet at the first.
        let after = self.lines_in_use().skip(thread as usize + 1);
        let mut others = after.chain(self.lines_in_use().take(thread as usize));
        others.find_map(|other| other.give_half_to(line))
    }

    /// Sends the upper slots of a full line to the stack. `true` if the depot was closed.
    #[cold]
    fn spill(&self, line: &Line) -> bool {
        let mut first = END;
        for slot in &line.slots[SLOTS - SPILL..] {
            match slot.swap(EMPTY, OWN) {
                EMPTY => {}
                // Closed meanwhile. The mark goes back, and `is_closed` below will say so as well.
                // ORDER: Relaxed: the mark carries nothing.
                CLOSED => _ = slot.swap(CLOSED, Ordering::Relaxed),
                index => {
                    // ORDER: Relaxed: the push of the chain publishes it.
                    self.after[index].store(first, Ordering::Relaxed);
                    first = index;
                }
            }
        }
        first != END && self.push_chain(first)
    }

    fn push_chain(&self, first: u32) -> bool {
        self.chains.push(first);
        self.is_closed()
    }
}

impl Line {
    fn new() -> Line {
        let slots = std::array::from_fn(|_| AtomicU32::new(EMPTY));
        Line {
            slots,
            top: AtomicU32::new(0),
            tally: Tally::new(),
        }
    }

    /// The newest that nobody stole. The owner's.
    #[inline]
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
        let entered = enter(&self.slots[top as usize], index);
        debug_assert!(
            entered,
            "only the owner fills a line, and nobody closes while it takes"
        );
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

    /// Marks every slot as closed and hands what was in it to `dispose`.
    fn close(&self, mut dispose: impl FnMut(u32)) {
        for slot in &self.slots {
            match slot.swap(MARK, CLOSE) {
                EMPTY | CLOSED => {}
                index => dispose(index),
            }
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

    /// One writer, the owner of the line, so a load and a store will do.
    #[inline]
    fn count_taken(&self) {
        self.taken
            .store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    fn count_put(&self) {
        self.put
            .store(self.put.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
