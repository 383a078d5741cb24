//! The tables and targets of `bench dispatch`.

use super::{Enqueued, FIXED, Flow, Load, Measured, OURS, WALK, candidates};
use crate::{Stage, published};
use flatpath_bench_common::measure::{Turn, figures, samples};
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};
use std::io;

/// Candidates that count how often workers are woken: the first ones.
const COUNTED: usize = 3;

/// All rounds of one candidate at one load.
struct Rounds {
    mean: Figure,
    merged: Enqueued,
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    let sizes: &[usize] = profile.pick(&[8, 32, 128, 512], &[8, 32, 512], &[8]);
    let candidates = candidates();
    for (flow, title) in [
        (
            Flow::Saturated,
            "Enqueue, saturated (items as fast as they can be enqueued)",
        ),
        (
            Flow::Paced,
            "Enqueue, one item every 10 us (mostly a wake-up)",
        ),
    ] {
        let unit = match flow {
            Flow::Saturated => "ns per enqueue: mean of a burst of 2,048, median of the bursts",
            Flow::Paced => "mean ns per enqueue",
        };
        let columns = candidates.iter().map(|(name, role, _)| (*name, *role));
        let mut means = Table::new(title, unit, &["workers"], columns);
        let mut details = details(&format!("{title}, in detail"));
        let mut last = Vec::new();
        for &workers in sizes {
            (stage.progress)(&format!("dispatch: {workers} workers, {flow:?}"));
            last = measure(&candidates, workers, flow, stage);
            let figures = last.iter().map(|rounds| rounds.mean.clone());
            means.push(&[&workers], figures).published =
                published::find(published::DISPATCH, workers);
            for (candidate, rounds) in candidates.iter().zip(&last).take(COUNTED) {
                details.push(&[&workers, &candidate.0], detail(&rounds.merged));
            }
        }
        let shares = histogram(
            &format!("{title}, {} workers", sizes[sizes.len() - 1]),
            &last,
        );
        targets(report, flow, &means, &details);
        report.tables.extend([means, details, shares]);
    }
    report.notes.extend(notes());
    Ok(())
}

fn notes() -> [String; 3] {
    let saturated = "saturated: a candidate whose enqueue takes longer than the work is never \
                     saturated itself; its workers fall idle, and it wakes one for each item, as \
                     the published before did";
    let published = format!(
        "the published figures are min/mean/max of svc_xprt_enqueue under NFS load on 4 cores; \
         {} of the clock's own nanoseconds are taken off each of ours",
        *flatpath_bench_common::measure::CLOCK_NS
    );
    let cores = format!(
        "one producer and the workers share {} cores; maxima of milliseconds are the producer \
         being scheduled out, with every candidate: they are in the mean of the details, and in \
         that of one burst",
        flatpath_bench_common::profile::cores()
    );
    [saturated.into(), published, cores]
}

fn details(title: &str) -> Table {
    let names = [
        "min",
        "mean",
        "p50",
        "p99",
        "max",
        "wakes per item",
        "% found nothing",
    ];
    let (unit, labels) = ("ns per enqueue, all rounds", ["workers", "candidate"]);
    Table::new(title, unit, &labels, names.map(|name| (name, Role::Detail)))
}

fn detail(enqueued: &Enqueued) -> [Option<Figure>; 7] {
    let histogram = &enqueued.histogram;
    let ns = |value: u64| Some(Figure::once(value as f64));
    let share = |part: u64, whole: u64| Figure::once(part as f64 / whole.max(1) as f64);
    let wakes = enqueued.wakes;
    [
        ns(histogram.min()),
        Some(Figure::once(enqueued.mean_ns())),
        ns(histogram.value_at_quantile(0.5)),
        ns(histogram.value_at_quantile(0.99)),
        ns(histogram.max()),
        wakes.map(|wakes| share(wakes.all, enqueued.items)),
        wakes.map(|wakes| share(wakes.found_nothing * 100, wakes.all)),
    ]
}

fn measure(candidates: &[Measured], workers: usize, flow: Flow, stage: &Stage) -> Vec<Rounds> {
    let load = Load {
        workers,
        flow,
        slice: stage.profile.slice(workers) * stage.profile.pick(2, 2, 4),
    };
    let mut turns: Vec<Turn<'_, Enqueued>> = Vec::new();
    for (_, _, run) in candidates {
        turns.push(Box::new(move || run(&load)));
    }
    let samples = samples(stage.runs(stage.profile.rounds()), &mut turns);
    let means = figures(&samples, Enqueued::burst_ns);
    let merged = samples.into_iter().map(|rounds| {
        let merged = rounds.into_iter().reduce(merge);
        merged.expect("every candidate had its turn")
    });
    let pairs = means.into_iter().zip(merged);
    pairs
        .map(|(mean, merged)| Rounds { mean, merged })
        .collect()
}

fn merge(mut sum: Enqueued, round: Enqueued) -> Enqueued {
    // The same bounds: always fits.
    let _ = sum.histogram.add(&round.histogram);
    sum.raw_ns += round.raw_ns;
    sum.items += round.items;
    if let (Some(sum), Some(round)) = (&mut sum.wakes, round.wakes) {
        sum.all += round.all;
        sum.found_nothing += round.found_nothing;
    }
    sum
}

/// Shares by powers of two.
fn histogram(title: &str, rounds: &[Rounds]) -> Table {
    const FIRST: u32 = 3;
    const LAST: u32 = 16;
    let counted = &rounds[..COUNTED];
    let columns = [WALK, FIXED, OURS].map(|name| (name, Role::Competitor));
    let unit = "% of enqueues that took at least so many ns and less than twice as many";
    let mut table = Table::new(title, unit, &["ns"], columns);
    for power in FIRST..=LAST {
        let low = if power == FIRST { 0 } else { 1_u64 << power };
        let high = if power == LAST {
            u64::MAX
        } else {
            (1_u64 << (power + 1)) - 1
        };
        let share = |rounds: &Rounds| {
            let histogram = &rounds.merged.histogram;
            let count = histogram.count_between(low, high);
            Figure::once(count as f64 * 100.0 / histogram.len().max(1) as f64)
        };
        table.push(&[&(1_u64 << power)], counted.iter().map(share));
    }
    table
}

fn targets(report: &mut BenchReport, flow: Flow, means: &Table, details: &Table) {
    use Wanted::{AtLeast, AtMost};
    let of = |workers, name| means.figure(&[workers], name);
    if flow == Flow::Saturated {
        for workers in ["8", "32", "128", "512"] {
            let what = format!("saturated enqueue, {workers} workers");
            report.target(what, "ns", AtMost(40.0), of(workers, OURS));
        }
        let flat = ratio(of("512", OURS), of("8", OURS));
        report.target("512 workers against 8, saturated", "x", AtMost(1.3), flat);
        for (workers, bound) in [("8", 4.0), ("32", 50.0), ("128", 50.0), ("512", 50.0)] {
            let what = format!("walked list against ours, {workers} workers, saturated");
            let reached = ratio(of(workers, WALK), of(workers, OURS));
            report.target(what, "x", AtLeast(bound), reached);
        }
    } else {
        for workers in ["8", "32", "128", "512"] {
            let of = |column| details.figure(&[workers, OURS], column);
            let what = format!("wakes that found nothing, {workers} workers, paced");
            report.target(what, "%", AtMost(3.0), of("% found nothing"));
            let what = format!("wakes per item, {workers} workers, paced");
            report.target(what, "", AtMost(1.0), of("wakes per item"));
        }
    }
}
