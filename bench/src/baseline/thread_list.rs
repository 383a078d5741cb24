//! Walked thread list: work goes on a locked deque, then a walk over all threads looks for an idle
//! one, test-and-set on each one's `busy`, and wakes it.
//!
//! Original: `svc_xprt_enqueue` up to Linux 6.5 (net/sunrpc): list under `sp_lock`, then
//! `list_for_each_entry_rcu` over `sp_all_threads` with `test_and_set_bit(RQ_BUSY)`. The walk needs
//! no lock there, and takes none here. A thread that finds no work clears its bit, looks once more
//! and sleeps.
//!
//! Many work items may wake many threads: each enqueue wakes another one as long as one is idle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use super::Claim;
use super::locked_queue::LockedQueue;
use crate::dispatch::{Dispatcher, Wakes, Work, join};
use flatpath_bench_common::measure::shuffled;

const NONE: u32 = u32::MAX;

/// One thread's descriptor. The original's are some KiB apart; four lines keep the walk honest
/// without making it slower than the memory of a busy server would.
#[derive(Debug)]
#[repr(align(256))]
struct Entry {
    busy: AtomicBool,
    next: u32,
    thread: OnceLock<Thread>,
}

#[derive(Debug)]
struct Shared {
    queue: LockedQueue,
    entries: Vec<Entry>,
    first: u32,
    claim: Claim,
    stop: AtomicBool,
    wakes: AtomicU64,
    wakes_that_found_nothing: AtomicU64,
}

/// The threads and their queue.
#[derive(Debug)]
pub(crate) struct ThreadList {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadList {
    /// Starts the threads; they stand in the list in random order.
    pub(crate) fn start(workers: usize, work: &Arc<Work>, claim: Claim) -> Self {
        let count = u32::try_from(workers).unwrap_or(NONE - 1);
        let order = shuffled(2, count);
        let mut entries: Vec<Entry> = (0..count)
            .map(|_| Entry {
                busy: AtomicBool::new(true),
                next: NONE,
                thread: OnceLock::new(),
            })
            .collect();
        for pair in order.windows(2) {
            entries[pair[0] as usize].next = pair[1];
        }
        let shared = Arc::new(Shared {
            queue: LockedQueue::with_capacity(work.items()),
            entries,
            first: order.first().copied().unwrap_or(NONE),
            claim,
            stop: AtomicBool::new(false),
            wakes: AtomicU64::new(0),
            wakes_that_found_nothing: AtomicU64::new(0),
        });
        let threads = (0..workers).map(|index| {
            let (shared, work) = (Arc::clone(&shared), Arc::clone(work));
            thread::spawn(move || shared.serve(&shared.entries[index], &work))
        });
        let threads = threads.collect();
        Self { shared, threads }
    }
}

impl Dispatcher for ThreadList {
    fn enqueue(&self, item: u32) {
        self.shared.queue.push(item);
        self.shared.wake_one();
    }

    fn stop(self) -> Option<Wakes> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for entry in &self.shared.entries {
            entry.busy.store(true, Ordering::SeqCst);
            if let Some(thread) = entry.thread.get() {
                thread.unpark();
            }
        }
        join(self.threads);
        Some(Wakes {
            all: self.shared.wakes.load(Ordering::Relaxed),
            found_nothing: self.shared.wakes_that_found_nothing.load(Ordering::Relaxed),
        })
    }
}

impl Shared {
    fn wake_one(&self) {
        // Work is published, then idle threads are looked for; threads do it the other way round.
        fence(Ordering::SeqCst);
        let mut index = self.first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            let looks_idle = self.claim == Claim::Swap || !entry.busy.load(Ordering::Relaxed);
            if looks_idle && !entry.busy.swap(true, Ordering::AcqRel) {
                self.wakes.fetch_add(1, Ordering::Relaxed);
                if let Some(thread) = entry.thread.get() {
                    thread.unpark();
                }
                return;
            }
            index = entry.next;
        }
    }

    fn serve(&self, entry: &Entry, work: &Work) {
        entry.thread.get_or_init(thread::current);
        let mut was_woken = false;
        loop {
            if let Some(item) = self.queue.pop() {
                was_woken = false;
                work.run(item);
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if std::mem::take(&mut was_woken) {
                self.wakes_that_found_nothing
                    .fetch_add(1, Ordering::Relaxed);
            }
            entry.busy.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if !self.queue.lock().is_empty() || self.stop.load(Ordering::SeqCst) {
                // Who set it meanwhile has woken this thread; the wake-up is then for nothing.
                entry.busy.store(true, Ordering::SeqCst);
                continue;
            }
            while !entry.busy.load(Ordering::Acquire) {
                thread::park();
            }
            was_woken = true;
        }
    }
}
