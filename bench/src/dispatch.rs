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
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_structures::queue::Queue;
use flatpath_structures::worker_pool::{Wait, WorkerPool, WorkerPoolLimits};
use hdrhistogram::Histogram;

use crate::baseline::Claim;
use crate::baseline::thread_list::ThreadList;
use flatpath_bench_common::measure::{
    CLOCK_MEAN_NS, CLOCK_NS, Padded, histogram, median, raw_timed, timed,
};
use flatpath_bench_common::report::Role;

mod tables;

pub(crate) use tables::run;

const WALK: &str = "walked list";
const FIXED: &str = "fixed: test first";
const OURS: &str = "ours";

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

/// A way to hand items to workers.
pub(crate) trait Dispatcher {
    /// Hands over an item. This is what is measured.
    fn enqueue(&self, item: u32);
    /// Ends the workers, after the work there is. What they know about being woken.
    fn stop(self) -> Option<Wakes>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    pub(crate) all: u64,
    pub(crate) found_nothing: u64,
}

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

/// A candidate: its name, its part, and what it does in a slice.
pub(crate) type Measured = (&'static str, Role, fn(&Load) -> Enqueued);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workers: usize,
    flow: Flow,
    slice: Duration,
}

impl Work {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            away: (0..ITEMS).map(|_| Padded::default()).collect(),
        })
    }

    pub(crate) fn items(&self) -> usize {
        self.away.len()
    }

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

impl Load {
    /// Lets a dispatcher work for a slice.
    pub(crate) fn measure<D: Dispatcher>(&self, start: impl FnOnce(&Arc<Work>) -> D) -> Enqueued {
        // Both are measured once, not inside the first figure.
        let _ = (*CLOCK_NS, *CLOCK_MEAN_NS, *SPINS);
        let work = Work::new();
        let dispatcher = start(&work);
        let mut histogram = histogram();
        let mut item = 0;
        let mut pacer = Pacer::new(self.flow);
        // Threads start, caches fill: the first items do not count.
        for _ in 0..WARM_UP_ITEMS {
            pacer.wait();
            feed(&work, &mut item, |item| dispatcher.enqueue(item));
        }
        let (mut raw_ns, mut bursts, mut burst_from_ns) = (0, Vec::new(), 0);
        let begin = Instant::now();
        while begin.elapsed() < self.slice {
            pacer.wait();
            feed(&work, &mut item, |item| {
                let ns = raw_timed(|| dispatcher.enqueue(item));
                raw_ns += ns;
                histogram.saturating_record(ns.saturating_sub(*CLOCK_NS));
            });
            if self.flow == Flow::Saturated && histogram.len().is_multiple_of(BURST) {
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

/// Queue and worker pool, as the engine uses them. Dropping it ends the workers, after the work
/// there is.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    pool: WorkerPool,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` workers that call `act` with each item; at most `items` are on their way at a
    /// time.
    pub(crate) fn start(
        count: u32,
        items: u32,
        act: impl Fn(u32) + Clone + Send + 'static,
    ) -> Self {
        let queue = Arc::new(Queue::new(items));
        let pool = WorkerPool::new(WorkerPoolLimits {
            workers_min: count,
            workers_max: count,
            idle_ns_max: u64::MAX,
        });
        let threads = (0..count).map(|_| {
            let (queue, pool, act) = (Arc::clone(&queue), pool.clone(), act.clone());
            thread::spawn(move || {
                let Some(mut worker) = pool.register() else {
                    return;
                };
                let has_work = || !queue.is_empty();
                while worker.wait(has_work) == Wait::Work {
                    if let Some(item) = queue.pop() {
                        worker.took_work(has_work);
                        act(item);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self {
            queue,
            pool,
            threads,
        }
    }

    fn end(&mut self) {
        self.pool.stop();
        join(std::mem::take(&mut self.threads));
    }
}

impl Dispatcher for Workers {
    fn enqueue(&self, item: u32) {
        self.queue.push(item);
        self.pool.wake_one();
    }

    fn stop(mut self) -> Option<Wakes> {
        self.end();
        let statistics = self.pool.statistics();
        Some(Wakes {
            all: statistics.wakes,
            found_nothing: statistics.wakes_that_found_nothing,
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
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
        (WALK, Role::Baseline, |load| {
            load.measure(|work| ThreadList::start(load.workers, work, Claim::Swap))
        }),
        (FIXED, Role::Fixed, |load| {
            load.measure(|work| ThreadList::start(load.workers, work, Claim::TestThenSwap))
        }),
        (OURS, Role::Ours, |load| {
            load.measure(|work| {
                let work = Arc::clone(work);
                Workers::start(load.workers as u32, ITEMS, move |item| work.run(item))
            })
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
        for (name, _, run) in candidates() {
            for flow in [Flow::Saturated, Flow::Paced] {
                let load = Load {
                    workers: 3,
                    flow,
                    slice: Duration::from_millis(2),
                };
                // On a busy machine a slice may be over before much is done.
                flatpath_testkit::until_true(&format!("{name} {flow:?} to do ten items"), || {
                    run(&load).histogram.len() > 10
                });
            }
        }
    }
}
