//! Pools made of well-known queues: boxed memory goes in and comes out.

use std::time::Duration;

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::{ArrayQueue, SegQueue};
use parking_lot::Mutex;

use crate::buffers::{Recycler, boxes, pairs as measure_pairs, split as measure_split};
use flatpath_bench_common::measure::Turn;
use flatpath_bench_common::report::Role;

type Memory = Box<[u8]>;

/// In the order of [`pairs`] and [`splits`].
pub(crate) const COLUMNS: [(&str, Role); 4] = [
    ("parking_lot Mutex<Vec>", Role::Competitor),
    ("ArrayQueue", Role::Competitor),
    ("SegQueue", Role::Competitor),
    ("concurrent-queue", Role::Competitor),
];

/// One turn per column: take + put with `idle` pieces of memory.
pub(crate) fn pairs<'a>(
    idle: usize,
    threads: usize,
    hold: usize,
    slice: Duration,
) -> Vec<Turn<'a>> {
    let (stack, array, list, bounded) = all(idle);
    vec![
        Box::new(move || measure_pairs(&stack, threads, hold, slice)),
        Box::new(move || measure_pairs(&array, threads, hold, slice)),
        Box::new(move || measure_pairs(&list, threads, hold, slice)),
        Box::new(move || measure_pairs(&bounded, threads, hold, slice)),
    ]
}

/// One turn per column: taken on one thread, put on another.
pub(crate) fn splits<'a>(idle: usize, slice: Duration) -> Vec<Turn<'a>> {
    let (stack, array, list, bounded) = all(idle);
    vec![
        Box::new(move || measure_split(&stack, slice)),
        Box::new(move || measure_split(&array, slice)),
        Box::new(move || measure_split(&list, slice)),
        Box::new(move || measure_split(&bounded, slice)),
    ]
}

fn filled<R: Recycler<Item = Memory>>(queue: R, idle: usize) -> R {
    boxes(idle).into_iter().for_each(|memory| queue.put(memory));
    queue
}

/// All of them; each keeps this number of idle pieces of memory.
fn all(
    idle: usize,
) -> (
    Mutex<Vec<Memory>>,
    ArrayQueue<Memory>,
    SegQueue<Memory>,
    ConcurrentQueue<Memory>,
) {
    (
        Mutex::new(boxes(idle)),
        filled(ArrayQueue::new(idle), idle),
        filled(SegQueue::new(), idle),
        filled(ConcurrentQueue::bounded(idle), idle),
    )
}

impl Recycler for Mutex<Vec<Memory>> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.lock().pop()
    }

    fn put(&self, item: Memory) {
        self.lock().push(item);
    }
}

impl Recycler for ArrayQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop()
    }

    fn put(&self, item: Memory) {
        // As many places as pieces of memory: never full.
        let _ = self.push(item);
    }
}

impl Recycler for SegQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop()
    }

    fn put(&self, item: Memory) {
        self.push(item);
    }
}

impl Recycler for ConcurrentQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop().ok()
    }

    fn put(&self, item: Memory) {
        // As many places as pieces of memory: never full.
        let _ = self.push(item);
    }
}
