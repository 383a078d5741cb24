//! Depot: which index is idle, for any number of threads: a magazine of indices per thread in front
//! of a stack of chains.
//!
//! Other names: magazines and depot (Bonwick), per-CPU free lists. A thread returns an index to its
//! own magazine and takes from there, newest first, with plain loads and stores (see `magazine`).
//! A full magazine sends half of what it holds, in chains, to a stack that all threads share; an
//! empty one fetches a chain. What is in the magazines of other threads is for
//! [`Depot::take_last`], so one of the two finds any idle index. Taking on one thread what another
//! gives back costs one shared swap per chain.
//!
//! | may run beside                     | take | put | empty | close                |
//! |------------------------------------|------|-----|-------|----------------------|
//! | take: also take_last and withdraw  | yes  | yes | yes   | no                   |
//! | put: reserve to commit, put_shared | yes  | yes | yes   | yes: waits for these |
//! | empty                              | yes  | yes | yes   | yes                  |
//! | close                              | no   | yes | yes   | once                 |
//!
//! One number, one thread: calls that name the same magazine must not overlap (see `number`). A
//! call that names none works on the shared stack.
//!
//! Invariants
//! - D1: an index is held by one caller, or is in one magazine, or in one chain.
//! - D2: one thread at a time is inside a magazine: its owner, or the one visitor that has `visits`
//!   (DM2 of `magazine`).
//! - D3: storage is type-stable: a magazine outlives its thread, and what it holds can be had by a
//!   visit. A thread that gets its number owns it next.
//! - D4: after the store that ends the step of a return, `commit` touches nothing of the depot: the
//!   index may be another thread's by then, which may tear down what the index keeps alive, this
//!   depot included.
//!
//! Teardown: stop users, wait, empty, free. `close` sets `closed`, bars the owners of magazines,
//! waits for steps under way, and empties the magazines. A later `reserve` is refused, and its
//! caller disposes of the index. The stack has no steps: a thread that pushed to it holds something
//! that keeps the depot alive, and reads `closed` afterwards. If the kernel refuses the closing
//! fence, a step may be missed: `close` returns false, leaves the magazines alone, and the depot is
//! leaked instead of freed.
//!
//! Ordering
//! - The edges of `magazine` and of the stack publish what holders wrote.
//! - DE1 close: `closed` is set and magazines are barred, then steps, magazines in use and stack
//!   are read; a step is begun, a far magazine is published, or a chain pushed, then `closed` is
//!   read, or for a near magazine the bar. `fence_seldom` on the first side and `fence_often` on
//!   the second (see `barrier`).
//!
//! Cost: take and return are plain loads and stores on the one or two cache lines of the caller's
//! own magazine. A visit is a system call and a wait for a thread that was scheduled out within a
//! step; it yields half of what a magazine holds. `take_last` walks the magazines in use,
//! O(threads). Closing is one system call, and as many such waits as there are magazines.

mod magazine;

pub(crate) use self::magazine::Reservation;

use self::magazine::Magazine;
use crate::barrier::{fence_often, fence_seldom, prepare};
use crate::links::END;
use crate::stack::Stack;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, Padded, lock};
use crate::table::Table;

/// Most indices of a chain: an empty magazine has room for them, and one swap is little for each.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };
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

/// The depot of one kind of index. See the module for who may run beside whom.
#[derive(Debug)]
pub(crate) struct Depot {
    near: [Padded<Magazine>; NEAR_MAGAZINES as usize],
    far: [OnceLock<Box<Padded<Magazine>>>; FAR_MAGAZINES as usize],
    far_used: AtomicU32,
    closed: AtomicBool,
    /// One visitor of magazines at a time.
    visits: Mutex<()>,
    capacity: u32,
    chains: Stack,
    /// The next index in the chain of an index.
    after: Table<AtomicU32>,
    /// Counts of the calls that named no magazine, or came after the close.
    shared: Tally,
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
    /// In the caller's own magazine, by [`Reservation::commit`].
    Reserved(Reservation<'a>),
    /// On the stack, by [`Depot::put_shared`], while the caller keeps the depot alive.
    Shared,
    /// Nowhere: the depot was closed. The caller calls [`Depot::empty`] and disposes of the index.
    Closed,
}

impl Depot {
    /// A depot that holds none of its `capacity` indices yet.
    pub(crate) fn new(capacity: u32) -> Depot {
        prepare();
        Depot {
            near: std::array::from_fn(|_| Padded(Magazine::new(capacity))),
            far: std::array::from_fn(|_| OnceLock::new()),
            far_used: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            visits: Mutex::new(()),
            capacity,
            chains: Stack::new(capacity),
            after: Table::new(capacity, |_| AtomicU32::new(END)),
            shared: Tally::new(),
        }
    }

    /// The newest of the caller's magazine, if that is near: the short half of [`Depot::take`].
    #[inline(always)]
    pub(crate) fn take_near(&self, thread: u32) -> Option<u32> {
        self.near.get(thread as usize)?.enter()?.take()
    }

    /// The newest idle index, but for those in magazines of other threads.
    /// `thread` names the caller's.
    pub(crate) fn take(&self, thread: u32) -> Option<u32> {
        let magazine = self.magazine(thread);
        let own = || magazine?.enter()?.take();
        if let Some(index) = own() {
            return Some(index);
        }
        let index = self.fetch(magazine)?;
        self.count_taken(magazine);
        Some(index)
    }

    /// An idle index out of a magazine, of whichever thread: where [`Depot::take`] found nothing,
    /// and nothing can be allocated.
    pub(crate) fn take_last(&self, thread: u32) -> Option<u32> {
        let index = self.visit()?;
        self.count_taken(self.magazine(thread));
        Some(index)
    }

    /// An idle index for removal, wherever it is; not counted as taken.
    pub(crate) fn withdraw(&self) -> Option<u32> {
        self.fetch(None).or_else(|| self.visit())
    }

    fn count_taken(&self, magazine: Option<&Magazine>) {
        match magazine {
            Some(magazine) => magazine.count_taken(),
            None => _ = self.shared.taken.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// A place of the caller's magazine, if that is near: the short half of [`Depot::reserve`].
    /// `None` has changed and counted nothing.
    #[inline(always)]
    pub(crate) fn reserve_near(&self, thread: u32) -> Option<Reservation<'_>> {
        // DE1: a close bars each near magazine.
        self.near.get(thread as usize)?.enter()?.reserve()
    }

    /// Where the caller is to leave an index that it gives back; it is counted as given back.
    pub(crate) fn reserve(&self, thread: u32) -> PutSlot<'_> {
        let step = self.magazine(thread).and_then(Magazine::enter);
        // DE1: within the step, or after the bar of a close.
        let is_closed = self.closed.load(Ordering::Relaxed);
        let Some(step) = step.filter(|_| !is_closed) else {
            self.shared.put.fetch_add(1, Ordering::Relaxed);
            return match is_closed {
                true => PutSlot::Closed,
                false => PutSlot::Shared,
            };
        };
        // Within the step, so that a close that has not been seen yet waits for the chains.
        PutSlot::Reserved(step.make_room(|spilled| self.send(spilled)))
    }

    /// Leaves `index` on the stack. `true` if the depot was closed: the caller drains it then.
    ///
    /// The caller holds something that keeps the depot alive until this returns.
    pub(crate) fn put_shared(&self, index: u32) -> bool {
        // ORDER: Relaxed: the push of the chain publishes it (the edge of the stack).
        self.after[index].store(END, Ordering::Relaxed);
        self.chains.push(index);
        // DE1, the side that adds a chain.
        fence_often();
        self.closed.load(Ordering::Relaxed)
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
        // ORDER: DE1, the closing side, with the fence below.
        self.closed.store(true, Ordering::Relaxed);
        self.magazines_in_use().for_each(Magazine::bar);
        let is_fenced = fence_seldom();
        if is_fenced {
            for magazine in self.magazines_in_use() {
                magazine.wait_for_step();
                magazine.empty().for_each(&mut dispose);
            }
        }
        self.empty(dispose);
        is_fenced
    }

    /// How many indices were taken, and how many given back. O(threads); exact when nothing moves.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let put = self.shared.put.load(Ordering::Relaxed);
        let shared = (self.shared.taken.load(Ordering::Relaxed), put);
        let add = |sum: (u64, u64), next: (u64, u64)| (sum.0 + next.0, sum.1 + next.1);
        self.magazines_in_use()
            .map(Magazine::tally)
            .fold(shared, add)
    }

    fn magazine(&self, thread: u32) -> Option<&Magazine> {
        match self.near.get(thread as usize) {
            Some(magazine) => Some(magazine),
            None => self.far_magazine(thread.wrapping_sub(NEAR_MAGAZINES)),
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
        let magazine = cell.get_or_init(|| Box::new(Padded(Magazine::new(self.capacity))));
        // ORDER: the cell publishes the magazine. DE1: a thread that is about to put into it reads
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

    /// One of a chain from the stack. The others go to the caller's magazine, and back to the stack
    /// if that has no room.
    fn fetch(&self, magazine: Option<&Magazine>) -> Option<u32> {
        let first = self.chains.pop()?;
        let mut rest = self.after[first].load(Ordering::Relaxed);
        if let Some(step) = magazine.and_then(Magazine::enter) {
            step.refill(std::iter::from_fn(|| {
                let index = (rest != END).then_some(rest)?;
                rest = self.after[index].load(Ordering::Relaxed);
                Some(index)
            }));
        }
        if rest != END {
            self.chains.push(rest);
        }
        Some(first)
    }

    /// One out of the first magazine that is not empty. The others of its half go to the stack.
    #[cold]
    fn visit(&self) -> Option<u32> {
        let _alone = lock(&self.visits);
        self.magazines_in_use().find_map(|magazine| {
            if magazine.seems_empty() {
                return None;
            }
            let visit = magazine.visit()?;
            let mut half = visit.take_half();
            let first = half.next();
            self.send(half);
            first
        })
    }

    /// Sends indices, the caller's own, to the stack.
    #[cold]
    fn send(&self, mut indices: impl Iterator<Item = u32>) {
        loop {
            let mut first = END;
            for index in indices.by_ref().take(CHAIN) {
                // ORDER: Relaxed: the push of the chain publishes it.
                self.after[index].store(first, Ordering::Relaxed);
                first = index;
            }
            if first == END {
                return;
            }
            self.chains.push(first);
        }
    }
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
