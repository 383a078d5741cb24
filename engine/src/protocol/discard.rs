//! The bin: values of a program that a network thread must not drop itself.
//!
//! What a program gives the server has code of the program's own: methods, closures, `Display`, and
//! the `Drop` of everything it passes. Such code may panic, may call back into the server, and may
//! block. Three rules hold for all of it:
//!
//! - B1, lock: it never runs under a lock of ours, and only once the state it could look at is
//!   consistent. What is taken out under a lock is dropped or called after the unlock.
//! - B2, panic: on a network thread it runs within `contain`. A panic costs the connection it was
//!   made for, or nothing, and never the thread.
//! - B3, block: a value whose drop may block goes into the bin ([`discard`]). On a network thread
//!   it is put aside until the end of the turn; then workers drop it. On any other thread it is
//!   dropped at once: a worker and a thread of the program may block.
//!
//! | code of the program                     | where it runs    | may block | dropped             |
//! |-----------------------------------------|------------------|-----------|---------------------|
//! | `Protocol`: `run`, `panicked`           | worker           | yes       |                     |
//! | `Protocol`: the rest; `Session`, `Job`  | network thread   | no        | there, contained    |
//! | `Service`, handlers: pooled             | worker           | yes       | by the last thread  |
//! | `Service`, handlers: inline, `prompt`   | network thread   | no        | by the last thread  |
//! | HTTP `Sink`: all but what it answers    | worker           | yes       | bin                 |
//! | HTTP bodies: readers, bytes, extensions | worker           | yes       | bin                 |
//! | HTTP `Sender::on_event`                 | network thread   | no        | bin                 |
//! | WebSocket handler, pooled               | worker           | yes       | bin                 |
//! | WebSocket handler, inline: messages     | network thread   | no        | bin                 |
//! | WebSocket `Handler::closed`             | worker, mostly   | yes       | bin                 |
//! | `Successor::begin`'s closure            | network thread   | no        | bin, if not called  |
//! | `Handle::watch`'s function              | network thread   | no        | bin                 |
//! | owners of `Bytes` ([`guarded`])         | the last thread  | yes       | bin                 |
//! | `LogSink`, `LogOutput`                  | network thread   | no        | there, contained    |
//! | functions of `SignalWatch`              | a thread of ours | no        | there, contained    |
//!
//! `Bytes` are guarded once, where the program hands them over; from there on they are dropped like
//! any other value, clones of them and those that the server itself has made.
//!
//! | may run beside  | discard | take_gathered | empty_one |
//! |-----------------|---------|---------------|-----------|
//! | each of them    | yes     | yes           | yes       |
//!
//! `discard` and `take_gathered` work on what the calling thread has gathered.
//!
//! Invariants
//! - B4: what was discarded before the end of a network thread's turn is dropped by a worker, if
//!   one can be had, and never waits for that thread again: the thread does not sleep over it.
//! - B5: at most half of the workers drop at a time (one, where there is one). A drop that never
//!   returns holds its worker as a handler would, and leaves the others to requests.
//! - B6: a full bin admits nothing new. While it holds as many values as there are places for jobs,
//!   but [`ITEMS_MIN`] at least, no job is made and no message of a socket is moved: requests wait,
//!   and are refused after `stall_timeout`. So it holds at most that and what connections had when
//!   it became full.
//! - B7: a drain waits until the bin is empty, within its time; then the workers that still drop
//!   are reported ([`LeftBehind`](crate::LeftBehind)), and what was not begun stays undropped until
//!   the last handle of the server is gone.
//!
//! - B8: what the server itself leaves to a worker, reading a file ahead (`network/ahead.rs`), is a
//!   call in the same bin, of which each network thread has a few at a time.
//!
//! In a simulation the values are dropped after each turn of all network threads, in order.
//!
//! Ordering: a lock for the values. DE1: values are added and counted (`waiting`), then a worker is
//! woken, whose fence orders the count before the look at idle workers (E1 of the worker pool).
//!
//! Cost: nothing for a connection with nothing to discard but a load of thread-local memory in each
//! turn. A value costs an allocation (`Bytes` none), its part of one lock and one wake-up in a
//! turn, and a lock on the worker. So what cannot block does not go there, as memory that `Bytes`
//! have allocated themselves, and short bytes of a job's reply stay on its worker ([`copied`]).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flatpath_driver::monotonic_coarse_ns;
use flatpath_structures::lock::{Guard, Lock};
use flatpath_structures::panics::{contain, drop_contained};

use crate::error::LeftBehind;
use crate::memory::held::{Backing, held};
use crate::observe::episode::Episode;

/// Of the workers, one in this many may drop at a time.
const WORKERS_DIVISOR: u32 = 2;

/// A bin is not full with fewer values: a turn brings as many where many sockets are sent to.
const ITEMS_MIN: usize = 1024;

/// Something to drop, or to call.
enum Item {
    #[expect(dead_code, reason = "what is inside is only dropped")]
    Bytes(Bytes),
    #[expect(dead_code, reason = "what is inside is only dropped")]
    Other(Box<dyn Any + Send>),
    /// Of the server itself.
    Call(Box<dyn FnOnce() + Send>),
}

impl Item {
    /// Drops it, or calls it. A panic ends here.
    fn end(self) {
        match self {
            Item::Call(call) => {
                contain(call);
            }
            item => drop_contained(item),
        }
    }
}

thread_local! {
    static IS_NETWORK_THREAD: Cell<bool> = const { Cell::new(false) };
    /// Something is gathered.
    static HAS_GATHERED: Cell<bool> = const { Cell::new(false) };
    /// What this network thread has discarded in its turn, or this worker's job has left.
    static GATHERED: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
}

/// Whether the caller runs on a network thread of a server, where nothing may block: all other
/// connections of the thread would wait. In a simulation it does within a turn, and not in a job.
///
/// ```
/// assert!(!flatpath::on_network_thread());
/// ```
#[must_use]
pub fn on_network_thread() -> bool {
    IS_NETWORK_THREAD.get()
}

/// Drops a value where that may block: a worker does it when the caller is a network thread, and
/// the caller otherwise. A panic of the drop ends there. For what a protocol is given by a program
/// and cannot vouch for.
///
/// Call it without a lock.
pub fn discard<T: Send + 'static>(value: T) {
    if !on_network_thread() {
        return drop_contained(value);
    }
    gather(Item::Other(Box::new(value)));
}

/// Whether these bytes have no owner of the program's ([`Bytes::from_owner`]): nor have clones of
/// them. Others may have none, either; that cannot be seen.
fn has_no_owner(bytes: &Bytes) -> bool {
    // Unique is only memory that `bytes` has allocated itself.
    bytes.is_empty() || bytes.is_unique()
}

/// The same for bytes, which may have an owner of the program's ([`Bytes::from_owner`]). Those that
/// have none, and are not shared, are freed at once.
#[inline]
pub fn discard_bytes(bytes: Bytes) {
    if has_no_owner(&bytes) || !on_network_thread() {
        return drop_contained(bytes);
    }
    gather(Item::Bytes(bytes));
}

/// Has a worker call this, which may block, after the turn; on a thread other than a network thread
/// it is called at once. It is dropped without a call when the server ends before. For the few
/// things that the server itself cannot do on a network thread (B8): their caller bounds them.
pub(crate) fn call_later(call: impl FnOnce() + Send + 'static) {
    if !on_network_thread() {
        contain(call);
        return;
    }
    gather(Item::Call(Box::new(call)));
}

/// Discards what a reference is the last to, and drops any other reference at once.
pub(crate) fn discard_last<T: Send + Sync + 'static>(reference: Arc<T>) {
    if let Some(last) = Arc::into_inner(reference) {
        discard(last);
    }
}

/// The same bytes without code of the program's in their drop: what a program hands over is to go
/// through this once, and may then be cloned and dropped on any thread; on others than network
/// threads without a lock. Bytes that have no owner come back as they are. Others get an owner that
/// discards them, which allocates.
#[must_use]
pub fn guarded(bytes: Bytes) -> Bytes {
    if has_no_owner(&bytes) {
        return bytes;
    }
    held(bytes, Backing::Nothing)
}

/// The same bytes in memory of their own, unless they have no owner anyway: for what a job takes to
/// its network thread, which would copy it in any case. What they were in goes into the bin once
/// the job is home, so that nothing waits for its drop, and no worker is woken for it. Call it in a
/// job.
#[must_use]
pub fn copied(bytes: Bytes) -> Bytes {
    if has_no_owner(&bytes) {
        return bytes;
    }
    let copy = Bytes::copy_from_slice(&bytes);
    gather(Item::Bytes(bytes));
    copy
}

/// Puts an item aside until the end of the turn, or of the job.
#[cold]
fn gather(item: Item) {
    HAS_GATHERED.set(true);
    GATHERED.with_borrow_mut(|gathered| gathered.push(item));
}

/// Whether this thread has something for the bin.
#[inline]
pub(crate) fn has_gathered() -> bool {
    HAS_GATHERED.get()
}

/// While it lives, the caller's thread is a network thread. What is gathered is left for
/// [`Bin::take_gathered`].
pub(crate) struct OnNetworkThread;

impl OnNetworkThread {
    pub(crate) fn enter() -> Self {
        IS_NETWORK_THREAD.set(true);
        Self
    }
}

impl Drop for OnNetworkThread {
    fn drop(&mut self) {
        IS_NETWORK_THREAD.set(false);
    }
}

/// The bin of a server.
pub(crate) struct Bin {
    state: Lock<State>,
    /// Items that no worker has taken.
    waiting: AtomicUsize,
    /// Workers that drop one.
    dropping: AtomicUsize,
    /// Items put in and taken out since the start, for the scaler.
    put: AtomicU64,
    taken: AtomicU64,
    droppers_max: usize,
    /// The number at which it is full (B6).
    items_max: usize,
    /// It is full, and until it is empty again.
    full: Episode,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// The workers that drop something, by the numbers that the kernel gave them, and since when.
    droppers: Vec<(u32, u64)>,
}

impl Bin {
    pub(crate) fn new(workers_max: u32, items_max: usize) -> Self {
        Self {
            state: Lock::default(),
            waiting: AtomicUsize::new(0),
            dropping: AtomicUsize::new(0),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            droppers_max: (workers_max / WORKERS_DIVISOR).max(1) as usize,
            items_max: items_max.max(ITEMS_MIN),
            full: Episode::until_ended(),
        }
    }

    fn state(&self) -> Guard<'_, State> {
        // Nothing under the lock panics half way.
        self.state.lock()
    }

    /// Takes over what this thread has gathered; a worker is to look at it afterwards.
    pub(crate) fn take_gathered(&self) {
        HAS_GATHERED.set(false);
        let gathered = GATHERED.with_borrow_mut(std::mem::take);
        let count = gathered.len();
        let mut state = self.state();
        state.items.extend(gathered);
        // ORDER: Relaxed: DE1; and figures.
        self.waiting.store(state.items.len(), Ordering::Relaxed);
        self.put.fetch_add(count as u64, Ordering::Relaxed);
        let is_first = self.is_full() && self.full.begins();
        drop(state);
        if is_first {
            log::warn!(
                "{} values of the program wait to be dropped, as their drops block: requests wait",
                self.items_max
            );
        }
    }

    /// Whether a worker may take something out.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        // ORDER: Relaxed: DE1.
        self.waiting.load(Ordering::Relaxed) > 0
            && self.dropping.load(Ordering::Relaxed) < self.droppers_max
    }

    /// Whether nothing new may come (B6).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        waiting > 0 && waiting >= self.items_max
    }

    /// Nothing waits, and nothing is being dropped.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.items.is_empty() && state.droppers.is_empty()
    }

    /// How many were put in since the start, and how many of them taken out.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        (self.put.load(Ordering::Relaxed), taken)
    }

    /// Drops the oldest value on this thread, whose number the kernel gave; false if there is none,
    /// or as many workers drop as may (B5). `took` is called once it is out of the bin.
    pub(crate) fn empty_one(&self, thread: u32, took: impl FnOnce()) -> bool {
        if !self.has_work() {
            return false;
        }
        let Some(item) = self.take(thread) else {
            return false;
        };
        took();
        item.end();
        self.dropped(thread);
        true
    }

    fn take(&self, thread: u32) -> Option<Item> {
        let mut state = self.state();
        if state.droppers.len() >= self.droppers_max {
            return None;
        }
        let item = state.items.pop_front()?;
        state.droppers.push((thread, monotonic_coarse_ns()));
        // ORDER: Relaxed: DE1.
        self.waiting.store(state.items.len(), Ordering::Relaxed);
        self.dropping.store(state.droppers.len(), Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        if state.items.is_empty() {
            // A peak's room goes with it.
            state.items = VecDeque::new(); // OURS: it is empty.
            self.full.end();
        }
        Some(item)
    }

    fn dropped(&self, thread: u32) {
        let mut state = self.state();
        let place = state.droppers.iter().position(|(one, _)| *one == thread);
        if let Some(place) = place {
            state.droppers.swap_remove(place); // OURS: two numbers.
        }
        // ORDER: Relaxed: DE1.
        self.dropping.store(state.droppers.len(), Ordering::Relaxed);
    }

    /// The workers that drop something now, by the numbers that the kernel gave them.
    pub(crate) fn droppers(&self) -> Vec<u32> {
        let state = self.state();
        state.droppers.iter().map(|(thread, _)| *thread).collect()
    }

    /// The workers that have not come back from a drop (B7).
    pub(crate) fn left_behind(&self) -> Vec<LeftBehind> {
        let now_ns = monotonic_coarse_ns();
        let state = self.state();
        let left = state.droppers.iter().map(|&(thread, since_ns)| LeftBehind {
            thread: format!("worker {thread}, in a drop of the program's"),
            listener: None,
            busy: Duration::from_nanos(now_ns.saturating_sub(since_ns)),
        });
        left.collect()
    }
}

impl Drop for Bin {
    /// What no worker could take; one by one, as drops may panic.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        std::mem::take(&mut state.items)
            .into_iter()
            .for_each(drop_contained);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{self, ThreadId};

    use flatpath_testkit::patience;

    /// Tells where it is dropped, and stays there until it may go on.
    struct Slow(Sender<ThreadId>, Option<Receiver<()>>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
            if let Some(gate) = &self.1 {
                let _ = gate.recv_timeout(patience());
            }
        }
    }

    struct Loud;

    impl Drop for Loud {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }

    struct Owner(Slow);

    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            let _ = &self.0;
            b"bytes"
        }
    }

    fn gathers(bin: &Bin, act: impl FnOnce()) {
        let network = OnNetworkThread::enter();
        act();
        bin.take_gathered();
        drop(network);
    }

    #[test]
    fn a_value_is_dropped_here_but_not_on_a_network_thread() {
        let (bin, (told, dropped)) = (Bin::new(4, 100), channel());
        discard(Slow(told.clone(), None));
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
        gathers(&bin, || {
            discard(Slow(told.clone(), None));
            assert!(has_gathered());
            discard_bytes(Bytes::from_owner(Owner(Slow(told.clone(), None))));
            drop(guarded(Bytes::from_owner(Owner(Slow(told.clone(), None)))));
            assert!(dropped.try_recv().is_err(), "none of them here");
        });
        assert!(!has_gathered() && bin.has_work() && !bin.is_empty());
        while bin.empty_one(1, || ()) {}
        assert_eq!((dropped.try_iter().count(), bin.counts()), (3, (3, 3)));
        assert!(bin.is_empty());
    }

    #[test]
    fn bytes_are_guarded_once_for_all_clones() {
        let bin = Bin::new(1, 100);
        let (told, dropped) = channel();
        let bytes = Bytes::from_owner(Owner(Slow(told, None)));
        gathers(&bin, || {
            let bytes = guarded(bytes);
            let clones: Vec<_> = (0..9).map(|_| bytes.clone()).collect();
            drop((bytes, clones));
            assert!(dropped.try_recv().is_err(), "not here");
        });
        while bin.empty_one(1, || ()) {}
        assert_eq!((dropped.try_iter().count(), bin.counts()), (1, (1, 1)));
    }

    #[test]
    fn what_a_job_copies_is_dropped_once_it_is_home() {
        let bin = Bin::new(1, 100);
        let (told, dropped) = channel();
        let copy = copied(Bytes::from_owner(Owner(Slow(told, None))));
        assert!(copy == "bytes" && copy.is_unique() && has_gathered());
        assert!(dropped.try_recv().is_err(), "the reply comes first");
        bin.take_gathered();
        assert!(bin.empty_one(1, || ()) && !has_gathered());
        assert_eq!(dropped.try_iter().count(), 1);
        drop(copied(copy));
        assert!(!has_gathered(), "it has no owner");
    }

    #[test]
    fn bytes_without_an_owner_need_no_bin() {
        let bytes = Bytes::from(vec![7; 100]);
        let address = bytes.as_ptr();
        let same = guarded(bytes);
        assert!(same.as_ptr() == address && same.is_unique());
        let network = OnNetworkThread::enter();
        let same = guarded(same);
        drop((same.clone(), same));
        discard_bytes(Bytes::from(vec![7; 100]));
        discard_bytes(Bytes::new());
        assert!(!has_gathered());
        drop(network);
    }

    #[test]
    fn drops_that_panic_cost_nothing() {
        let bin = Bin::new(1, 100);
        discard(Loud);
        gathers(&bin, || (0..3).for_each(|_| discard(Loud)));
        assert!(bin.empty_one(1, || ()) && bin.empty_one(1, || ()));
        assert_eq!(bin.counts(), (3, 2));
        // The third is dropped with the bin.
    }

    #[test]
    fn half_of_the_workers_drop_at_a_time_and_are_named() {
        let (bin, (told, dropped)) = (Arc::new(Bin::new(4, 100)), channel());
        let mut gates = Vec::new();
        gathers(&bin, || {
            for _ in 0..3 {
                let (open, gate) = channel();
                gates.push(open);
                discard(Slow(told.clone(), Some(gate)));
            }
        });
        let workers = [7, 8].map(|number| {
            let bin = Arc::clone(&bin);
            thread::spawn(move || bin.empty_one(number, || ()))
        });
        for _ in 0..2 {
            dropped.recv_timeout(patience()).expect("one is at it");
        }
        assert!(!bin.has_work() && !bin.empty_one(9, || ()), "B5");
        let mut left = bin.left_behind();
        left.sort_by(|one, other| one.thread.cmp(&other.thread));
        assert!(left.len() == 2 && left[1].thread.starts_with("worker 8, in a drop"));
        drop(gates);
        for worker in workers {
            assert!(worker.join().expect("no panic"));
        }
        assert!(bin.has_work() && bin.empty_one(9, || ()) && bin.is_empty());
        assert_eq!(bin.left_behind(), []);
    }

    #[test]
    fn a_bin_is_full_with_so_many_and_again_has_room() {
        let bin = Bin::new(2, 2);
        gathers(&bin, || (1..ITEMS_MIN).for_each(|_| discard(Loud)));
        assert!(!bin.is_full());
        gathers(&bin, || discard(Loud));
        assert!(bin.is_full());
        assert!(bin.empty_one(1, || ()));
        assert!(!bin.is_full());
    }
}
