//! Measuring: slices of time, interleaved rounds, medians.
//!
//! Every candidate of a row has its turn in every round, so that a machine that grows slower or
//! faster during the run does it to all of them. The figure is the median of the rounds.
//!
//! Nanoseconds per operation are **wall time over operations of all threads together**: threads
//! that scale perfectly over two cores halve the figure. Threads beyond the cores take turns; they
//! show what preemption does to a structure, not what parallelism does.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use flatpath_structures::lock::Lock;

use crate::report::Figure;

/// The order of turns, (round, candidate): A B C, C B A, and so on. What changes slowly, such as
/// heat or another tenant's load, then meets all of them alike.
pub fn turns(rounds: usize, candidates: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds.max(1)).flat_map(move |round| {
        (0..candidates).map(move |step| match round % 2 {
            0 => (round, step),
            _ => (round, candidates - 1 - step),
        })
    })
}

/// One candidate's turn: returns its figure, or whatever it measures.
pub type Turn<'a, T = f64> = Box<dyn FnMut() -> T + 'a>;

/// Gives every candidate its turn in every round: what each measured, in order of the columns.
pub fn samples<T>(rounds: usize, candidates: &mut [Turn<'_, T>]) -> Vec<Vec<T>> {
    let mut samples: Vec<Vec<T>> = candidates.iter().map(|_| Vec::new()).collect();
    for (_, index) in turns(rounds, candidates.len()) {
        samples[index].push(candidates[index]());
    }
    samples
}

/// Gives every candidate its turn in every round. Candidates in order of the columns.
pub fn interleave(rounds: usize, candidates: &mut [Turn<'_>]) -> Vec<Figure> {
    let samples = samples(rounds, candidates);
    samples.iter().map(|runs| Figure::of(runs)).collect()
}

/// The figures of one of several things that each sample holds.
pub fn figures<T>(samples: &[Vec<T>], of: impl Fn(&T) -> f64) -> Vec<Figure> {
    let figure = |runs: &Vec<T>| Figure::of(&runs.iter().map(&of).collect::<Vec<_>>());
    samples.iter().map(figure).collect()
}

/// Items on their way in a hand-over, at most.
pub const IN_TRANSIT_MAX: usize = 1024;

/// Takes items on this thread for a slice, and puts them on another: nanoseconds per item, the
/// hand-over included. That is in batches, which makes it nearly free.
pub fn hand_over<T: Send>(
    slice: Duration,
    mut take: impl FnMut() -> Option<T>,
    mut put: impl FnMut(T) + Send,
) -> f64 {
    const BATCH: usize = 64;
    let transit = Lock::new(VecDeque::with_capacity(IN_TRANSIT_MAX));
    let lock = || transit.lock();
    let over = AtomicBool::new(false);
    let putter = || {
        let mut batch = VecDeque::with_capacity(IN_TRANSIT_MAX);
        loop {
            // Before the look: what was handed over before the end is seen after it.
            let is_over = over.load(Ordering::Acquire);
            std::mem::swap(&mut *lock(), &mut batch);
            if batch.is_empty() {
                if is_over {
                    return Instant::now();
                }
                thread::yield_now();
            }
            batch.drain(..).for_each(&mut put);
        }
    };
    thread::scope(|scope| {
        let putting = scope.spawn(putter);
        let begin = Instant::now();
        let (mut count, mut batch) = (0_u64, Vec::with_capacity(BATCH));
        while begin.elapsed() < slice {
            batch.extend((0..BATCH).map_while(|_| take()));
            count += batch.len() as u64;
            let mut waiting = lock();
            waiting.extend(batch.drain(..));
            let is_full = waiting.len() + BATCH > IN_TRANSIT_MAX;
            drop(waiting);
            if is_full {
                thread::yield_now();
            }
        }
        over.store(true, Ordering::Release);
        let end = putting.join().unwrap_or(begin);
        per_operation(end - begin, count)
    })
}

/// What an operation costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hammered {
    /// Wall time over operations of all threads together.
    pub wall_ns: f64,
    /// CPU time of all threads over their operations.
    pub cpu_ns: f64,
}

/// Runs an operation on `threads` threads for a slice of time: wall nanoseconds per operation.
/// `prepare` is called on each thread and makes its operation.
pub fn hammer<P, O>(threads: usize, slice: Duration, prepare: P) -> f64
where
    P: Fn(usize) -> O + Sync,
    O: FnMut(),
{
    hammered(threads, slice, prepare).wall_ns
}

/// Like [`hammer`], with the CPU time.
pub fn hammered<P, O>(threads: usize, slice: Duration, prepare: P) -> Hammered
where
    P: Fn(usize) -> O + Sync,
    O: FnMut(),
{
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads + 1);
    let spans = Lock::new(Vec::with_capacity(threads));
    thread::scope(|scope| {
        for index in 0..threads {
            let (stop, start, spans, prepare) = (&stop, &start, &spans, &prepare);
            scope.spawn(move || {
                let mut operation = prepare(index);
                operation();
                start.wait();
                let (begin, cpu_ns) = (Instant::now(), thread_cpu_ns());
                let mut count = 0_u64;
                loop {
                    operation();
                    count += 1;
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                let span = (begin, Instant::now(), count, thread_cpu_ns() - cpu_ns);
                spans.lock().push(span);
            });
        }
        start.wait();
        thread::sleep(slice);
        stop.store(true, Ordering::Relaxed);
    });
    let spans = spans.into_inner();
    let begin = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    let count: u64 = spans.iter().map(|span| span.2).sum();
    let cpu = Duration::from_nanos(spans.iter().map(|span| span.3).sum());
    let wall = begin
        .zip(end)
        .map_or(Duration::ZERO, |(begin, end)| end - begin);
    Hammered {
        wall_ns: per_operation(wall, count),
        cpu_ns: per_operation(cpu, count),
    }
}

/// Nanoseconds per operation.
pub fn per_operation(elapsed: Duration, operations: u64) -> f64 {
    elapsed.as_secs_f64() * 1e9 / operations.max(1) as f64
}

/// What reading the clock costs, in nanoseconds: taken off every single measured operation.
pub static CLOCK_NS: LazyLock<u64> = LazyLock::new(|| {
    let mut gaps: Vec<u64> = (0..10_000).map(|_| raw_timed(|| ())).collect();
    gaps.sort_unstable();
    gaps[gaps.len() / 2]
});

/// The same on average: taken off a mean. The best of several tries, which flatters no candidate.
pub static CLOCK_MEAN_NS: LazyLock<f64> = LazyLock::new(|| {
    const READINGS: u64 = 2_000;
    let mean = || (0..READINGS).map(|_| raw_timed(|| ())).sum::<u64>() as f64 / READINGS as f64;
    (0..20).map(|_| mean()).fold(f64::MAX, f64::min)
});

/// Nanoseconds of one operation, the clock's own included.
#[inline]
pub fn raw_timed(operation: impl FnOnce()) -> u64 {
    let begin = Instant::now();
    operation();
    begin.elapsed().as_nanos() as u64
}

/// Nanoseconds of one operation, without the clock's own.
#[inline]
pub fn timed(operation: impl FnOnce()) -> u64 {
    raw_timed(operation).saturating_sub(*CLOCK_NS)
}

/// An empty histogram of nanoseconds or microseconds: three digits, up to a minute of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3)
        .expect("three digits and a minute are within what a histogram can be")
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// The middle value, or the mean of the two middle ones. Zero for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(sorted[middle - 1], *value),
    }
}

/// The numbers 0 to `end` - 1 in an order that the seed decides.
pub fn shuffled(seed: u64, end: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..end).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut numbers);
    numbers
}

/// A value alone on its pair of cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert_eq!(median(&[3.5, 90.0, 3.6]).to_bits(), 3.6_f64.to_bits());
        assert_eq!(median(&[4.0, 2.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(median(&[]).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn every_candidate_has_every_turn() {
        let counts = [Cell::new(0), Cell::new(0), Cell::new(0)];
        let mut turns: Vec<Turn<'_>> = Vec::new();
        for count in &counts {
            turns.push(Box::new(|| {
                count.set(count.get() + 1);
                f64::from(count.get())
            }));
        }
        let figures = interleave(3, &mut turns);
        let order: Vec<usize> = super::turns(2, 3).map(|turn| turn.1).collect();
        assert_eq!(order, [0, 1, 2, 2, 1, 0]);
        for figure in figures {
            assert_eq!((figure.least, figure.value, figure.most), (1.0, 2.0, 3.0));
        }
    }

    #[test]
    fn all_threads_work_until_the_slice_is_over() {
        let operations: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let slice = Duration::from_millis(5);
        let ns = hammer(3, slice, |index| {
            let mine = &operations[index];
            move || {
                mine.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(ns > 0.0);
        // One before the clock starts, at least one while it runs.
        assert!(
            operations
                .iter()
                .all(|count| count.load(Ordering::Relaxed) >= 2)
        );
    }
}
