//! `bench dispatch`: hand a request to an idle worker.
//!
//! Before: a locked deque and a walk over all threads. Ours: [`flatpath_structures::queue`] and
//! [`flatpath_structures::worker_pool`]. Beside: condition variables and the pools of well-known
//! crates.
//!
//! One producer, a microsecond of work per item. Saturated: items as fast as they can be enqueued,
//! so that with a quick enqueue there is always more work than workers and nobody is idle. Paced:
//! one item every 10 microseconds, so that most items find somebody idle, and waking is what costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_structures::queue::Queue;
use flatpath_structures::worker_pool::{Wait, WorkerPool, WorkerPoolLimits};
use hdrhistogram::Histogram;

use crate::Stage;
use crate::baseline::Claim;
use crate::baseline::locked_queue::LockedQueue;
use crate::baseline::thread_list::ThreadList;
use flatpath_bench_common::measure::{CLOCK_MEAN_NS, CLOCK_NS, Padded, median, raw_timed, timed};

mod tables;

pub(crate) use tables::run;

/// Items on their way at a time, at most.
const ITEMS: u32 = 4_096;
/// As many as come in one go when the queue is full: each burst has its share of wakes, and of
/// workers that fall idle.
const BURST: u64 = ITEMS as u64 / 2;
/// Items before the clock starts.
const WARM_UP_ITEMS: u64 = 1_024;
/// Between two items of a paced run.
const PACE: Duration = Duration::from_micros(10);
/// What a worker does for an item.
const WORK_NS: u64 = 1_000;
/// Longest time that one enqueue is counted with.
const ENQUEUE_NS_MAX: u64 = 60_000_000_000;

/// A way to hand items to workers.
pub(crate) trait Dispatcher {
    /// Hands over an item. This is what is measured.
    fn enqueue(&self, item: u32);
    /// Ends the workers, after the work there is. What they know about being woken.
    fn stop(self) -> Option<Wakes>;
}

/// How often workers were woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    pub(crate) all: u64,
    pub(crate) found_nothing: u64,
}

/// How items come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Always more than the workers can do.
    Saturated,
    /// One every 10 microseconds.
    Paced,
}

/// The items, and what is done with them.
#[derive(Debug)]
pub(crate) struct Work {
    /// By item: handed over and not yet done.
    away: Vec<Padded<AtomicBool>>,
}

/// What became of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Enqueued {
    /// Nanoseconds of each enqueue, without the clock's own.
    pub(crate) histogram: Histogram<u64>,
    /// Their sum as the clock told it, its own included: single enqueues may be shorter than its
    /// grain, and their sum is still right.
    pub(crate) raw_ns: u64,
    /// The same for each burst of [`BURST`] items.
    bursts: Vec<u64>,
    /// All items, those before the clock started included.
    pub(crate) items: u64,
    pub(crate) wakes: Option<Wakes>,
}

/// A candidate: its name, and what it does in a slice.
pub(crate) type Measured = (&'static str, fn(usize, Flow, Duration) -> Enqueued);

impl Work {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            away: (0..ITEMS).map(|_| Padded::default()).collect(),
        })
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.away.len()
    }

    /// A worker does an item.
    pub(crate) fn run(&self, item: u32) {
        spin(*SPINS);
        self.away[item as usize].0.store(false, Ordering::Release);
    }

    fn is_away(&self, item: u32) -> bool {
        self.away[(item % ITEMS) as usize].0.load(Ordering::Acquire)
    }

    fn send(&self, item: u32) {
        self.away[item as usize].0.store(true, Ordering::Relaxed);
    }
}

/// Turns of `spin` in [`WORK_NS`].
static SPINS: LazyLock<u64> = LazyLock::new(|| {
    const TRIAL: u64 = 1 << 14;
    let best = (0..32).map(|_| timed(|| spin(TRIAL))).min().unwrap_or(1);
    (TRIAL * WORK_NS / best.max(1)).max(1)
});

fn spin(turns: u64) {
    for turn in 0..turns {
        std::hint::black_box(turn);
    }
}

/// Lets a dispatcher work for a slice.
pub(crate) fn measure<D: Dispatcher>(
    start: impl FnOnce(&Arc<Work>) -> D,
    flow: Flow,
    slice: Duration,
) -> Enqueued {
    // Both are measured once, not inside the first figure.
    let _ = (*CLOCK_NS, *CLOCK_MEAN_NS, *SPINS);
    let work = Work::new();
    let dispatcher = start(&work);
    let mut histogram = Histogram::new_with_max(ENQUEUE_NS_MAX, 3)
        .expect("three digits and a minute are within what a histogram can be");
    let mut item = 0;
    let mut pacer = Pacer::new(flow);
    // Threads start, caches fill: the first items do not count.
    for _ in 0..WARM_UP_ITEMS {
        pacer.wait();
        feed(&work, &mut item, |item| dispatcher.enqueue(item));
    }
    let (mut raw_ns, mut bursts, mut burst_from_ns) = (0, Vec::new(), 0);
    let begin = Instant::now();
    while begin.elapsed() < slice {
        pacer.wait();
        feed(&work, &mut item, |item| {
            let ns = raw_timed(|| dispatcher.enqueue(item));
            raw_ns += ns;
            histogram.saturating_record(ns.saturating_sub(*CLOCK_NS));
        });
        if flow == Flow::Saturated && histogram.len().is_multiple_of(BURST) {
            bursts.push(raw_ns - burst_from_ns);
            burst_from_ns = raw_ns;
        }
    }
    let wakes = dispatcher.stop();
    Enqueued {
        items: histogram.len() + WARM_UP_ITEMS,
        histogram,
        raw_ns,
        bursts,
        wakes,
    }
}

impl Enqueued {
    /// Nanoseconds of one enqueue, on average.
    pub(crate) fn mean_ns(&self) -> f64 {
        mean_ns(self.raw_ns, self.histogram.len())
    }

    /// The same in the middle one of all bursts: the producer shares the cores with its workers,
    /// and a time slice that it loses is as long as tens of thousands of enqueues. The mean, if not
    /// even one burst is over.
    pub(crate) fn burst_ns(&self) -> f64 {
        if self.bursts.is_empty() {
            return self.mean_ns();
        }
        let means = self.bursts.iter().map(|raw_ns| mean_ns(*raw_ns, BURST));
        median(&means.collect::<Vec<_>>())
    }
}

fn mean_ns(raw_ns: u64, enqueues: u64) -> f64 {
    let mean = raw_ns as f64 / enqueues.max(1) as f64;
    (mean - *CLOCK_MEAN_NS).max(0.0)
}

/// Says when the next item is due.
struct Pacer {
    flow: Flow,
    due: Instant,
}

impl Pacer {
    fn new(flow: Flow) -> Self {
        Self {
            flow,
            due: Instant::now(),
        }
    }

    fn wait(&mut self) {
        if self.flow == Flow::Saturated {
            return;
        }
        // Who was late does not catch up in a burst.
        self.due = self.due.max(Instant::now() - PACE) + PACE;
        while Instant::now() < self.due {
            std::hint::spin_loop();
        }
    }
}

/// Enqueues the next item as soon as there is one. Once it has to wait it waits for half of them,
/// so that items come in bursts and the queue never runs dry.
fn feed(work: &Work, item: &mut u32, enqueue: impl FnOnce(u32)) {
    const LOOK_AGAIN: Duration = Duration::from_micros(50);
    if work.is_away(*item) {
        while work.is_away(*item) || work.is_away(*item + ITEMS / 2) {
            thread::sleep(LOOK_AGAIN);
        }
    }
    work.send(*item);
    enqueue(*item);
    *item = (*item + 1) % ITEMS;
}

/// Queue and worker pool, as the engine uses them.
struct Ours {
    queue: Arc<Queue>,
    worker_pool: WorkerPool,
    threads: Vec<JoinHandle<()>>,
}

impl Ours {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let count = u32::try_from(workers).unwrap_or(1);
        let queue = Arc::new(Queue::new(ITEMS));
        let worker_pool = WorkerPool::new(WorkerPoolLimits {
            workers_min: count,
            workers_max: count,
            idle_ns_max: u64::MAX,
        });
        let threads = (0..workers).map(|_| {
            let (queue, worker_pool, work) =
                (Arc::clone(&queue), worker_pool.clone(), Arc::clone(work));
            thread::spawn(move || {
                let Some(mut worker) = worker_pool.register() else {
                    return;
                };
                let has_work = || !queue.is_empty();
                while worker.wait(has_work) == Wait::Work {
                    if let Some(item) = queue.pop() {
                        worker.took_work(has_work);
                        work.run(item);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self {
            queue,
            worker_pool,
            threads,
        }
    }
}

impl Dispatcher for Ours {
    fn enqueue(&self, item: u32) {
        self.queue.push(item);
        self.worker_pool.wake_one();
    }

    fn stop(self) -> Option<Wakes> {
        self.worker_pool.stop();
        join(self.threads);
        let statistics = self.worker_pool.statistics();
        Some(Wakes {
            all: statistics.wakes,
            found_nothing: statistics.wakes_that_found_nothing,
        })
    }
}

/// A deque with a condition variable of the standard library: what one writes without thinking.
struct StdCondvar {
    shared: Arc<(LockedQueue, Condvar, AtomicBool)>,
    threads: Vec<JoinHandle<()>>,
}

impl StdCondvar {
    fn start(workers: usize, work: &Arc<Work>) -> Self {
        let queue = LockedQueue::with_capacity(work.items());
        let shared = Arc::new((queue, Condvar::new(), AtomicBool::new(false)));
        let threads = (0..workers).map(|_| {
            let (shared, work) = (Arc::clone(&shared), Arc::clone(work));
            thread::spawn(move || {
                let (queue, condition, stop) = &*shared;
                loop {
                    let mut items = queue.lock();
                    let item = loop {
                        match items.pop_front() {
                            Some(item) => break item,
                            None if stop.load(Ordering::Relaxed) => return,
                            None => {
                                items = condition
                                    .wait(items)
                                    .unwrap_or_else(PoisonError::into_inner);
                            }
                        }
                    };
                    drop(items);
                    work.run(item);
                }
            })
        });
        let threads = threads.collect();
        Self { shared, threads }
    }
}

impl Dispatcher for StdCondvar {
    fn enqueue(&self, item: u32) {
        self.shared.0.push(item);
        self.shared.1.notify_one();
    }

    fn stop(self) -> Option<Wakes> {
        let (queue, condition, stop) = &*self.shared;
        let items = queue.lock();
        stop.store(true, Ordering::Relaxed);
        drop(items);
        condition.notify_all();
        join(self.threads);
        None
    }
}

/// Waits for the threads; a panic was printed where it happened.
pub(crate) fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        let _ = thread.join();
    }
}

/// The old way, the fixed one, ours, then the others.
fn candidates() -> Vec<Measured> {
    let mut all: Vec<Measured> = vec![
        ("walked list", |workers, flow, slice| {
            let start = |work: &_| ThreadList::start(workers, work, Claim::Swap);
            measure(start, flow, slice)
        }),
        ("fixed: test first", |workers, flow, slice| {
            let start = |work: &_| ThreadList::start(workers, work, Claim::TestThenSwap);
            measure(start, flow, slice)
        }),
        ("ours", |workers, flow, slice| {
            measure(|work| Ours::start(workers, work), flow, slice)
        }),
        ("std Condvar", |workers, flow, slice| {
            measure(|work| StdCondvar::start(workers, work), flow, slice)
        }),
    ];
    all.extend(crate::competitors::dispatchers::candidates());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_does_the_work_it_is_given() {
        for (name, run) in candidates() {
            for flow in [Flow::Saturated, Flow::Paced] {
                let enqueued = run(3, flow, Duration::from_millis(2));
                assert!(
                    enqueued.histogram.len() > 10,
                    "{name} {flow:?}: {enqueued:?}"
                );
            }
        }
    }
}
