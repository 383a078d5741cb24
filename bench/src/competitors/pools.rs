//! Pools made of well-known queues: boxed memory goes in and comes out.

use std::time::Duration;

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::{ArrayQueue, SegQueue};

use flatpath_structures::lock::Lock;

use crate::buffers::{BUFFER_BYTES, Load, Recycler};
use flatpath_bench_common::measure::Turn;
use flatpath_bench_common::report::Role;

type Memory = Box<[u8]>;

/// In the order of [`turns`].
pub(crate) const COLUMNS: [(&str, Role); 4] = [
    ("Mutex<Vec>", Role::Competitor),
    ("ArrayQueue", Role::Competitor),
    ("SegQueue", Role::Competitor),
    ("concurrent-queue", Role::Competitor),
];

/// One turn per column, each with `idle` pieces of memory.
pub(crate) fn turns<'a>(idle: usize, load: Load, slice: Duration) -> [Turn<'a>; 4] {
    [
        turn(Lock::new(Vec::new()), idle, load, slice),
        turn(ArrayQueue::new(idle), idle, load, slice),
        turn(SegQueue::new(), idle, load, slice),
        turn(ConcurrentQueue::bounded(idle), idle, load, slice),
    ]
}

fn turn<'a, R>(queue: R, idle: usize, load: Load, slice: Duration) -> Turn<'a>
where
    R: Recycler<Item = Memory> + 'a,
{
    for _ in 0..idle {
        queue.put(vec![0; BUFFER_BYTES].into());
    }
    Box::new(move || load.measure(&queue, slice))
}

impl Recycler for Lock<Vec<Memory>> {
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
