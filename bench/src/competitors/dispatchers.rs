//! Well-known ways to hand work to threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use tokio::runtime::{Builder, Runtime};

use crate::dispatch::{Dispatcher, Measured, Wakes, Work, join, measure};

/// All of them.
pub(crate) fn candidates() -> Vec<Measured> {
    vec![
        ("parking_lot Condvar", |workers, flow, slice| {
            measure(|work| ParkingLot::start(workers, work), flow, slice)
        }),
        ("crossbeam-channel", |workers, flow, slice| {
            measure(|work| Crossbeam::start(workers, work), flow, slice)
        }),
        ("flume", |workers, flow, slice| {
            measure(|work| Flume::start(workers, work), flow, slice)
        }),
        ("tokio spawn_blocking", |workers, flow, slice| {
            measure(|work| Tokio::start(workers, work), flow, slice)
        }),
        ("rayon", |workers, flow, slice| {
            measure(|work| Rayon::start(workers, work), flow, slice)
        }),
    ]
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

/// Items, and whether it is over; somebody waits for either.
type Waited = (Mutex<(VecDeque<u32>, bool)>, Condvar);

struct ParkingLot {
    shared: Arc<Waited>,
    threads: Vec<JoinHandle<()>>,
}

impl ParkingLot {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let items = VecDeque::with_capacity(work.items());
        let shared: Arc<Waited> = Arc::new((Mutex::new((items, false)), Condvar::new()));
        let waited = Arc::clone(&shared);
        let threads = start(workers, work, move || {
            let mut state = waited.0.lock();
            loop {
                if let Some(item) = state.0.pop_front() {
                    return Some(item);
                }
                if state.1 {
                    return None;
                }
                waited.1.wait(&mut state);
            }
        });
        Self { shared, threads }
    }
}

impl Dispatcher for ParkingLot {
    fn enqueue(&self, item: u32) {
        self.shared.0.lock().0.push_back(item);
        self.shared.1.notify_one();
    }

    fn stop(self) -> Option<Wakes> {
        self.shared.0.lock().1 = true;
        self.shared.1.notify_all();
        join(self.threads);
        None
    }
}

struct Crossbeam {
    sender: crossbeam_channel::Sender<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Crossbeam {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let threads = start(workers, work, move || receiver.recv().ok());
        Self { sender, threads }
    }
}

impl Dispatcher for Crossbeam {
    fn enqueue(&self, item: u32) {
        // Receivers live until the sender is dropped.
        let _ = self.sender.send(item);
    }

    fn stop(self) -> Option<Wakes> {
        drop(self.sender);
        join(self.threads);
        None
    }
}

struct Flume {
    sender: flume::Sender<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Flume {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let (sender, receiver) = flume::unbounded();
        let threads = start(workers, work, move || receiver.recv().ok());
        Self { sender, threads }
    }
}

impl Dispatcher for Flume {
    fn enqueue(&self, item: u32) {
        // Receivers live until the sender is dropped.
        let _ = self.sender.send(item);
    }

    fn stop(self) -> Option<Wakes> {
        drop(self.sender);
        join(self.threads);
        None
    }
}

/// The pool that `spawn_blocking` uses. It starts threads as they are needed.
struct Tokio {
    runtime: Runtime,
    work: Arc<Work>,
}

impl Tokio {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(workers)
            .build()
            .expect("a runtime without I/O needs nothing that could be refused");
        Self {
            runtime,
            work: Arc::clone(work),
        }
    }
}

impl Dispatcher for Tokio {
    fn enqueue(&self, item: u32) {
        let work = Arc::clone(&self.work);
        drop(self.runtime.spawn_blocking(move || work.run(item)));
    }

    fn stop(self) -> Option<Wakes> {
        // Waits for its threads.
        drop(self.runtime);
        None
    }
}

struct Rayon {
    pool: ThreadPool,
    work: Arc<Work>,
}

impl Rayon {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let pool = ThreadPoolBuilder::new()
            .num_threads(workers)
            .build()
            .expect("threads can be started, as for the candidates before");
        Self {
            pool,
            work: Arc::clone(work),
        }
    }
}

impl Dispatcher for Rayon {
    fn enqueue(&self, item: u32) {
        let work = Arc::clone(&self.work);
        self.pool.spawn(move || work.run(item));
    }

    fn stop(self) -> Option<Wakes> {
        // Its threads end by themselves when the pool is dropped, after what was spawned.
        drop(self.pool);
        None
    }
}
