//! Well-known ways to hand work to threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rayon_core::ThreadPoolBuilder;
use tokio::runtime::Builder;

use crate::baseline::locked_queue::LockedQueue;
use crate::dispatch::{Dispatcher, Measured, Wakes, Work, join};
use flatpath_bench_common::report::Role;
use flatpath_structures::lock::Condition;

pub(crate) fn candidates() -> Vec<Measured> {
    vec![
        ("std Condvar", Role::Competitor, |load| {
            load.measure(|work| condvar(load.workers, work))
        }),
        ("crossbeam-channel", Role::Competitor, |load| {
            load.measure(|work| crossbeam(load.workers, work))
        }),
        ("flume", Role::Competitor, |load| {
            load.measure(|work| flume(load.workers, work))
        }),
        ("tokio spawn_blocking", Role::Competitor, |load| {
            load.measure(|work| tokio(load.workers, work))
        }),
        ("rayon", Role::Competitor, |load| {
            load.measure(|work| rayon(load.workers, work))
        }),
    ]
}

/// Threads, and the function that hands them work: they end when it is dropped.
struct Pool<F> {
    enqueue: F,
    threads: Vec<JoinHandle<()>>,
}

impl<F: Fn(u32)> Dispatcher for Pool<F> {
    fn enqueue(&self, item: u32) {
        (self.enqueue)(item);
    }

    fn stop(self) -> Option<Wakes> {
        drop(self.enqueue);
        join(self.threads);
        None
    }
}

fn start(
    workers: usize,
    work: &Arc<Work>,
    next: impl Fn() -> Option<u32> + Clone + Send + 'static,
) -> Vec<JoinHandle<()>> {
    let threads = (0..workers).map(|_| {
        let (next, work) = (next.clone(), Arc::clone(work));
        thread::spawn(move || {
            while let Some(item) = next() {
                work.run(item);
            }
        })
    });
    threads.collect()
}

/// A deque with a condition variable of the standard library: what one writes without thinking.
fn condvar(workers: usize, work: &Arc<Work>) -> impl Dispatcher + use<> {
    struct Shared {
        queue: LockedQueue,
        condition: Condition,
        stop: AtomicBool,
    }

    /// The producer's end: workers stop when it is dropped.
    struct Sender(Arc<Shared>);

    impl Drop for Sender {
        fn drop(&mut self) {
            let items = self.0.queue.lock();
            self.0.stop.store(true, Ordering::Relaxed);
            drop(items);
            self.0.condition.notify_all();
        }
    }

    let shared = Arc::new(Shared {
        queue: LockedQueue::with_capacity(work.items()),
        condition: Condition::new(),
        stop: AtomicBool::new(false),
    });
    let sender = Sender(Arc::clone(&shared));
    let threads = start(workers, work, move || {
        let has_to_wait =
            |items: &mut VecDeque<u32>| items.is_empty() && !shared.stop.load(Ordering::Relaxed);
        let items = shared.queue.lock();
        shared.condition.wait_while(items, has_to_wait).pop_front()
    });
    let enqueue = move |item| {
        let Sender(shared) = &sender;
        shared.queue.push(item);
        shared.condition.notify_one();
    };
    Pool { enqueue, threads }
}

fn crossbeam(workers: usize, work: &Arc<Work>) -> impl Dispatcher + use<> {
    let (sender, receiver) = crossbeam_channel::unbounded();
    let threads = start(workers, work, move || receiver.recv().ok());
    // Receivers live until the sender is dropped.
    let enqueue = move |item| _ = sender.send(item);
    Pool { enqueue, threads }
}

fn flume(workers: usize, work: &Arc<Work>) -> impl Dispatcher + use<> {
    let (sender, receiver) = flume::unbounded();
    let threads = start(workers, work, move || receiver.recv().ok());
    // Receivers live until the sender is dropped.
    let enqueue = move |item| _ = sender.send(item);
    Pool { enqueue, threads }
}

/// The pool that `spawn_blocking` uses. It starts threads as they are needed, and waits for them
/// when it is dropped.
fn tokio(workers: usize, work: &Arc<Work>) -> impl Dispatcher + use<> {
    let runtime = Builder::new_current_thread()
        .max_blocking_threads(workers)
        .build()
        .expect("a runtime without I/O needs nothing that could be refused");
    let work = Arc::clone(work);
    let enqueue = move |item| {
        let work = Arc::clone(&work);
        drop(runtime.spawn_blocking(move || work.run(item)));
    };
    Pool {
        enqueue,
        threads: Vec::new(),
    }
}

/// Its threads end by themselves after the pool is dropped and what was spawned is done.
fn rayon(workers: usize, work: &Arc<Work>) -> impl Dispatcher + use<> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(workers)
        .build()
        .expect("threads can be started, as for the candidates before");
    let work = Arc::clone(work);
    let enqueue = move |item| {
        let work = Arc::clone(&work);
        pool.spawn(move || work.run(item));
    };
    Pool {
        enqueue,
        threads: Vec::new(),
    }
}
