//! `bench wheel`: time-outs that are armed, moved and cancelled and hardly ever expire.
//!
//! Before: a balanced tree, and a heap with lazy deletion. Ours: [`flatpath_structures::wheel`].
//! Ticks of a millisecond, deadlines 1 to 60 seconds ahead, one thread.

use std::io;
use std::time::Instant;

use flatpath_structures::wheel::Wheel;

use crate::Stage;
use crate::baseline::timer_heap::TimerHeap;
use crate::baseline::timer_tree::TimerTree;
use flatpath_bench_common::measure::{per_operation, shuffled};
use flatpath_bench_common::profile::Profile;
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted};

const TICK_NS: u64 = 1_000_000;
/// 65 seconds.
const SLOTS: u32 = 1 << 16;
const TREE: &str = "BTreeSet";
const HEAP: &str = "BinaryHeap, lazy";
const OURS: &str = "ours";

/// A candidate.
pub(crate) trait Timers {
    /// Arms a timer, or moves it.
    fn arm(&mut self, timer: u32, deadline_ns: u64);
    fn cancel(&mut self, timer: u32);
    /// Appends what is due and disarms it.
    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>);
}

impl Timers for Wheel {
    fn arm(&mut self, timer: u32, deadline_ns: u64) {
        Wheel::arm(self, timer, deadline_ns);
    }

    fn cancel(&mut self, timer: u32) {
        Wheel::cancel(self, timer);
    }

    fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let from = due.len();
        Wheel::expire(self, now_ns, due);
        // The caller fires what was not cancelled meanwhile; asking is part of the cost.
        for &timer in &due[from..] {
            self.confirm(timer);
        }
    }
}

/// What is measured, in the order of the rows.
const STEPS: [(&str, &str); 6] = [
    ("arm", "ns"),
    ("refresh, random", "ns"),
    ("refresh, 30 s on", "ns"),
    ("cancel", "ns"),
    ("expire, per timer", "ns"),
    ("worst tick", "us"),
];

/// The last of [`STEPS`], which is found from all rounds of a candidate.
const WORST: usize = STEPS.len() - 1;

/// How long the timers are let expire: all of them, and a little more.
const TICKS: u64 = 61_000;

#[derive(Default)]
struct Samples {
    /// Each round's figures, in the order of [`STEPS`] without the last.
    rounds: Vec<[f64; WORST]>,
    /// The fastest that each tick was, in nanoseconds.
    ticks: Vec<u64>,
}

impl Samples {
    /// The figure of one step; `None` if this candidate had no turn.
    fn figure(&self, step: usize) -> Option<Figure> {
        if step == WORST {
            let worst = self.ticks.iter().max()?;
            return Some(Figure::of(&[*worst as f64 / 1e3]));
        }
        let column: Vec<f64> = self.rounds.iter().map(|steps| steps[step]).collect();
        (!column.is_empty()).then(|| Figure::of(&column))
    }
}

/// One pass through the life of `count` timers, the same in each round.
fn pass(timers: &mut impl Timers, count: u32, samples: &mut Samples) {
    let mut rng = fastrand::Rng::with_seed(3);
    const SECOND_NS: u64 = 1_000_000_000;
    let mut far = || SECOND_NS + u64::from(rng.u32(..59_000)) * TICK_NS;
    let deadlines: Vec<u64> = (0..count).map(|_| far()).collect();
    let moved: Vec<u64> = (0..count).map(|_| far()).collect();
    let order = shuffled(3, count);
    let per_timer = |begin: Instant| per_operation(begin.elapsed(), u64::from(count));

    let begin = Instant::now();
    for (timer, deadline) in (0..).zip(&deadlines) {
        timers.arm(timer, *deadline);
    }
    let arm = per_timer(begin);
    let begin = Instant::now();
    for (timer, deadline) in order.iter().zip(&moved) {
        timers.arm(*timer, *deadline);
    }
    let random = per_timer(begin);
    let begin = Instant::now();
    for timer in &order {
        timers.arm(*timer, 30 * SECOND_NS);
    }
    let onwards = per_timer(begin);
    let begin = Instant::now();
    for timer in &order {
        timers.cancel(*timer);
    }
    let cancel = per_timer(begin);

    for (timer, deadline) in order.iter().zip(&deadlines) {
        timers.arm(*timer, *deadline);
    }
    // Touched already: the first use of its memory is no part of a tick.
    let mut due = vec![0; count as usize];
    due.clear();
    samples.ticks.resize(TICKS as usize, u64::MAX);
    let (mut sum_ns, mut now_ns) = (0, 0);
    for fastest in &mut samples.ticks {
        let begin = Instant::now();
        timers.expire(now_ns, &mut due);
        let ns = begin.elapsed().as_nanos() as u64;
        (*fastest, sum_ns) = (ns.min(*fastest), sum_ns + ns);
        now_ns += TICK_NS;
    }
    let each = sum_ns as f64 / due.len().max(1) as f64;
    samples.rounds.push([arm, random, onwards, cancel, each]);
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    let counts: &[u32] = profile.pick(
        &[10_000, 100_000, 1_000_000],
        &[10_000, 1_000_000],
        &[1_000],
    );
    for &count in counts {
        let rounds = if count >= 1_000_000 {
            profile.pick(5, 3, 1)
        } else {
            profile.rounds()
        };
        let table = table(stage, count, stage.runs(rounds));
        if count == 1_000_000 {
            let ours = |step| table.figure(&[step, "ns"], OURS);
            for step in ["arm", "refresh, random", "refresh, 30 s on", "cancel"] {
                let what = format!("{step}, 1,000,000 timers");
                report.target(what, "ns", Wanted::AtMost(25.0), ours(step));
            }
            let worst = table.figure(&["worst tick", "us"], OURS);
            let what = "worst tick, 1,000,000 timers";
            report.target(what, "us", Wanted::AtMost(200.0), worst);
        }
        report.tables.push(table);
    }
    report.note(
        "the heap's cancel only marks: the work is left for its expiry. At 10,000 timers most of \
         expire is the clock and empty ticks, six for each timer",
    );
    Ok(())
}

fn table(stage: &mut Stage, count: u32, rounds: usize) -> Table {
    let mut samples: [Samples; 3] = Default::default();
    for round in 0..rounds {
        (stage.progress)(&format!("wheel: {count} timers, round {}", round + 1));
        // A million times in a tree takes longer than all the others together.
        if stage.profile != Profile::Quick || count < 1_000_000 {
            pass(&mut TimerTree::new(count), count, &mut samples[0]);
        }
        pass(&mut TimerHeap::new(count), count, &mut samples[1]);
        let mut wheel = Wheel::new(TICK_NS, SLOTS);
        wheel.reserve(count);
        pass(&mut wheel, count, &mut samples[2]);
    }
    let columns = [
        (TREE, Role::Baseline),
        (HEAP, Role::Fixed),
        (OURS, Role::Ours),
    ];
    let (title, unit) = (format!("{count} timers"), "ns or us per operation");
    let mut table = Table::new(title, unit, &["operation", "unit"], columns);
    for (step, (name, unit)) in STEPS.iter().enumerate() {
        let figures = samples.iter().map(|sample| sample.figure(step));
        table.push(&[name, unit], figures);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All three against each other, with moves and cancellations in between.
    #[test]
    fn every_candidate_expires_the_same_timers_in_the_same_tick() {
        const TIMERS: u32 = 200;
        let mut rng = fastrand::Rng::with_seed(11);
        let mut wheel = Wheel::new(TICK_NS, 256);
        let mut tree = TimerTree::new(TIMERS);
        let mut heap = TimerHeap::new(TIMERS);
        let all: [&mut dyn Timers; 3] = [&mut wheel, &mut tree, &mut heap];
        let mut all = all;
        for tick in 1..400_u64 {
            for _ in 0..20 {
                let timer = rng.u32(..TIMERS);
                let ahead = u64::from(rng.u32(..1_000)) + 1;
                let is_cancelled = rng.u32(..4) == 0;
                for timers in &mut all {
                    match is_cancelled {
                        true => timers.cancel(timer),
                        false => timers.arm(timer, (tick + ahead) * TICK_NS),
                    }
                }
            }
            let due = all.each_mut().map(|timers| {
                let mut due = Vec::new();
                timers.expire(tick * TICK_NS, &mut due);
                due.sort_unstable();
                due
            });
            assert_eq!(due[0], due[1], "tick {tick}");
            assert_eq!(due[1], due[2], "tick {tick}");
        }
    }
}
