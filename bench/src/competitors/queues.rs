//! Well-known queues of numbers.

use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::{ArrayQueue, SegQueue};
use flatpath_bench_common::report::Role;

use crate::queue::Measured;

/// All of them. Pushes cannot fail: there are as many places as numbers, and receivers live as long
/// as their senders.
pub(crate) fn candidates() -> Vec<Measured> {
    vec![
        ("ArrayQueue", Role::Competitor, |load| {
            let queue = ArrayQueue::new(load.numbers() as usize);
            load.pass(|number| _ = queue.push(number), || queue.pop())
        }),
        ("SegQueue", Role::Competitor, |load| {
            let queue = SegQueue::new();
            load.pass(|number| queue.push(number), || queue.pop())
        }),
        ("concurrent-queue", Role::Competitor, |load| {
            let queue = ConcurrentQueue::unbounded();
            load.pass(|number| _ = queue.push(number), || queue.pop().ok())
        }),
        ("crossbeam-channel", Role::Competitor, |load| {
            let (sender, receiver) = crossbeam_channel::unbounded();
            load.pass(
                |number| _ = sender.send(number),
                || receiver.try_recv().ok(),
            )
        }),
        ("flume", Role::Competitor, |load| {
            let (sender, receiver) = flume::unbounded();
            load.pass(
                |number| _ = sender.send(number),
                || receiver.try_recv().ok(),
            )
        }),
    ]
}
