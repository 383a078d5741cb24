//! Well-known queues of numbers.

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::{ArrayQueue, SegQueue};
use parking_lot::Mutex;
use std::collections::VecDeque;

use crate::queue::{Channel, Measured};
use flatpath_bench_common::report::Role;

struct Crossbeam(
    crossbeam_channel::Sender<u32>,
    crossbeam_channel::Receiver<u32>,
);
struct Flume(flume::Sender<u32>, flume::Receiver<u32>);

/// All of them.
pub(crate) fn candidates() -> Vec<Measured> {
    vec![
        ("parking_lot deque", Role::Competitor, |load| {
            load.pass(&Mutex::new(
                VecDeque::with_capacity(load.numbers() as usize),
            ))
        }),
        ("ArrayQueue", Role::Competitor, |load| {
            load.pass(&ArrayQueue::new(load.numbers() as usize))
        }),
        ("SegQueue", Role::Competitor, |load| {
            load.pass(&SegQueue::new())
        }),
        ("concurrent-queue", Role::Competitor, |load| {
            load.pass(&ConcurrentQueue::unbounded())
        }),
        ("crossbeam-channel", Role::Competitor, |load| {
            let (sender, receiver) = crossbeam_channel::unbounded();
            load.pass(&Crossbeam(sender, receiver))
        }),
        ("flume", Role::Competitor, |load| {
            let (sender, receiver) = flume::unbounded();
            load.pass(&Flume(sender, receiver))
        }),
    ]
}

impl Channel for Mutex<VecDeque<u32>> {
    fn push(&self, number: u32) {
        self.lock().push_back(number);
    }

    fn pop(&self) -> Option<u32> {
        self.lock().pop_front()
    }
}

impl Channel for ArrayQueue<u32> {
    fn push(&self, number: u32) {
        // As many places as numbers: never full.
        let _ = ArrayQueue::push(self, number);
    }

    fn pop(&self) -> Option<u32> {
        ArrayQueue::pop(self)
    }
}

impl Channel for SegQueue<u32> {
    fn push(&self, number: u32) {
        SegQueue::push(self, number);
    }

    fn pop(&self) -> Option<u32> {
        SegQueue::pop(self)
    }
}

impl Channel for ConcurrentQueue<u32> {
    fn push(&self, number: u32) {
        // Unbounded and never closed.
        let _ = ConcurrentQueue::push(self, number);
    }

    fn pop(&self) -> Option<u32> {
        ConcurrentQueue::pop(self).ok()
    }
}

impl Channel for Crossbeam {
    fn push(&self, number: u32) {
        // The receiver lives as long as this.
        let _ = self.0.send(number);
    }

    fn pop(&self) -> Option<u32> {
        self.1.try_recv().ok()
    }
}

impl Channel for Flume {
    fn push(&self, number: u32) {
        // The receiver lives as long as this.
        let _ = self.0.send(number);
    }

    fn pop(&self) -> Option<u32> {
        self.1.try_recv().ok()
    }
}
