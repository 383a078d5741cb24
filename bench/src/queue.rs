//! `bench queue`: hand numbers from producers to consumers, oldest first.
//!
//! Before: a deque under a mutex. Ours: [`flatpath_structures::queue`]. Each producer owns 256
//! numbers and may push one again when it was consumed, so every queue is bounded by its users.

use std::fmt::Display;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_structures::lock::Lock;
use flatpath_structures::queue::Queue;

use crate::Stage;
use crate::baseline::locked_queue::LockedQueue;
use flatpath_bench_common::measure::{
    CLOCK_MEAN_NS, Padded, Turn, figures, per_operation, raw_timed, samples,
};
use flatpath_bench_common::report::{BenchReport, Role, Table, Wanted, ratio};

/// Numbers of one producer.
pub(crate) const NUMBERS_EACH: u32 = 256;
/// One push in so many is timed by itself: reading the clock costs as much as a push.
const TIMED_EVERY: u64 = 8;

const BEFORE: &str = "Mutex<VecDeque>";
const OURS: &str = "ours";

/// A queue made for `numbers` numbers, measured with so many producers and consumers.
pub(crate) type Measured = (&'static str, Role, fn(&Load) -> Passed);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    producers: usize,
    consumers: usize,
    slice: Duration,
}

/// What became of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// Wall nanoseconds per number handed over.
    wall_ns: f64,
    /// What a producer waits for one push, on average.
    push_ns: f64,
}

impl Load {
    /// Numbers of all producers.
    pub(crate) fn numbers(&self) -> u32 {
        self.producers as u32 * NUMBERS_EACH
    }

    /// Hands numbers over for the slice: `push` appends one, `pop` takes the oldest.
    pub(crate) fn pass(
        &self,
        push: impl Fn(u32) + Sync,
        pop: impl Fn() -> Option<u32> + Sync,
    ) -> Passed {
        let field = Field {
            away: (0..self.numbers()).map(|_| Padded::default()).collect(),
            over: AtomicBool::new(false),
            popped: AtomicU64::new(0),
            pushed: Lock::default(),
            start: Barrier::new(self.producers + self.consumers + 1),
        };
        let _ = *CLOCK_MEAN_NS;
        let begin = thread::scope(|scope| {
            for producer in 0..self.producers {
                let (field, push) = (&field, &push);
                scope.spawn(move || field.produce(producer as u32, push));
            }
            for _ in 0..self.consumers {
                scope.spawn(|| field.consume(&pop));
            }
            field.start.wait();
            let begin = Instant::now();
            thread::sleep(self.slice);
            field.over.store(true, Ordering::Relaxed);
            (begin, Instant::now())
        });
        let (push_ns, timed) = *field.pushed.lock();
        Passed {
            wall_ns: per_operation(begin.1 - begin.0, field.popped.load(Ordering::Relaxed)),
            push_ns: (push_ns as f64 / timed.max(1) as f64 - *CLOCK_MEAN_NS).max(0.0),
        }
    }
}

/// What producers and consumers share beside the queue.
struct Field {
    /// By number: pushed and not yet consumed.
    away: Vec<Padded<AtomicBool>>,
    over: AtomicBool,
    popped: AtomicU64,
    /// Sum and count of the timed pushes.
    pushed: Lock<(u64, u64)>,
    start: Barrier,
}

impl Field {
    fn produce(&self, producer: u32, push: impl Fn(u32)) {
        let first = producer * NUMBERS_EACH;
        let (mut count, mut sum, mut timings) = (0_u64, 0, 0);
        self.start.wait();
        while !self.over.load(Ordering::Relaxed) {
            let number = first + (count % u64::from(NUMBERS_EACH)) as u32;
            let away = &self.away[number as usize].0;
            if away.load(Ordering::Acquire) {
                thread::yield_now();
                continue;
            }
            away.store(true, Ordering::Relaxed);
            if count.is_multiple_of(TIMED_EVERY) {
                sum += raw_timed(|| push(number));
                timings += 1;
            } else {
                push(number);
            }
            count += 1;
        }
        let mut pushed = self.pushed.lock();
        pushed.0 += sum;
        pushed.1 += timings;
    }

    fn consume(&self, pop: impl Fn() -> Option<u32>) {
        let mut count = 0;
        self.start.wait();
        while !self.over.load(Ordering::Relaxed) {
            match pop() {
                Some(number) => {
                    self.away[number as usize].0.store(false, Ordering::Release);
                    count += 1;
                }
                None => thread::yield_now(),
            }
        }
        self.popped.fetch_add(count, Ordering::Relaxed);
    }
}

/// All candidates, ours first but for the old way.
fn candidates() -> Vec<Measured> {
    let mut all: Vec<Measured> = vec![
        (BEFORE, Role::Baseline, |load| {
            let queue = LockedQueue::with_capacity(load.numbers() as usize);
            load.pass(|number| queue.push(number), || queue.pop())
        }),
        (OURS, Role::Ours, |load| {
            let queue = Queue::new(load.numbers());
            load.pass(|number| _ = queue.push(number), || queue.pop())
        }),
    ];
    all.extend(crate::competitors::queues::candidates());
    all
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    const FULL: &[(usize, usize)] = &[(1, 1), (4, 1), (8, 2), (64, 1), (64, 2), (64, 8)];
    let shapes = profile.pick(FULL, &[(1, 1), (4, 1), (8, 2), (64, 2)], &[(1, 1)]);
    let candidates = candidates();
    let columns = candidates.iter().map(|(name, role, _)| (*name, *role));
    let table = |title, unit| Table::new(title, unit, &["producers", "consumers"], columns.clone());
    let mut walls = table("Numbers handed over", "wall ns per number");
    let mut pushes = table("What a producer waits", "ns per push, mean");
    for &(producers, consumers) in shapes {
        (stage.progress)(&format!(
            "queue: {producers} producers, {consumers} consumers"
        ));
        let slice = profile.slice(producers + consumers) * profile.pick(1, 2, 1);
        let load = Load {
            producers,
            consumers,
            slice,
        };
        let mut turns: Vec<Turn<'_, Passed>> = Vec::new();
        for (_, _, run) in &candidates {
            turns.push(Box::new(|| run(&load)));
        }
        let samples = samples(stage.runs(profile.pick(5, 5, 1)), &mut turns);
        let labels: [&dyn Display; 2] = [&producers, &consumers];
        walls.push(&labels, figures(&samples, |passed| passed.wall_ns));
        pushes.push(&labels, figures(&samples, |passed| passed.push_ns));
    }
    targets(report, &walls, &pushes);
    report.tables = vec![walls, pushes];
    report.note(
        "ArrayQueue is a bounded ring and faster one to one; the targets compare with the \
         unbounded ones",
    );
    Ok(())
}

/// Crates without a bound, which the targets compare with.
const UNBOUNDED: &[&str] = &["SegQueue", "concurrent-queue", "crossbeam-channel", "flume"];

fn targets(report: &mut BenchReport, walls: &Table, pushes: &Table) {
    let best = |labels: &[&str]| {
        let figures = UNBOUNDED
            .iter()
            .filter_map(|name| walls.figure(labels, name));
        figures.reduce(f64::min)
    };
    for labels in [
        ["4", "1"],
        ["8", "2"],
        ["64", "1"],
        ["64", "2"],
        ["64", "8"],
    ] {
        let over =
            |table: &Table| ratio(table.figure(&labels, BEFORE), table.figure(&labels, OURS));
        let what = format!("locked deque against ours, {} to {}", labels[0], labels[1]);
        let time = over(walls);
        report.target(format!("{what}, time"), "x", Wanted::AtLeast(4.0), time);
        let push = over(pushes);
        report.target(format!("{what}, push"), "x", Wanted::AtLeast(10.0), push);
    }
    for row in &walls.rows {
        let labels: Vec<&str> = row.labels.iter().map(String::as_str).collect();
        let shape = labels.join(" to ");
        let what = format!("{shape}, against the best unbounded crate");
        report.target_beside(what, 1.0, walls.figure(&labels, OURS), best(&labels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_hands_numbers_over() {
        let load = Load {
            producers: 2,
            consumers: 2,
            slice: Duration::from_millis(2),
        };
        for (name, _, run) in candidates() {
            let passed = run(&load);
            assert!(
                passed.wall_ns > 0.0 && passed.wall_ns < 1e9,
                "{name}: {passed:?}"
            );
        }
    }
}
