//! The tables, targets and pictures of `bench dispatch`.

use std::sync::{Mutex, PoisonError};

use super::{Enqueued, Flow, Measured, Stage, candidates};
use crate::error::Error;
use crate::published;
use flatpath_bench_common::measure::{Turn, interleave};
use flatpath_bench_common::plot::Plot;
use flatpath_bench_common::report::{BenchReport, Column, Figure, Role, Row, Table, Wanted, ratio};

/// Candidates that count how often workers are woken: the first ones.
const COUNTED: usize = 3;
const WALK: &str = "walked list";
const OURS: &str = "ours";

/// All rounds of one candidate at one load.
struct Rounds {
    mean: Figure,
    merged: Enqueued,
}

/// Runs the bench.
pub(crate) fn run(stage: &mut Stage<'_>) -> Result<BenchReport, Error> {
    let profile = stage.profile;
    let sizes: &[usize] = profile.pick(&[8, 32, 128, 512], &[8, 32, 512], &[8]);
    let candidates = candidates();
    let mut report = BenchReport {
        name: "dispatch",
        about: "a request for an idle worker: a walk over all threads, against an idle stack"
            .into(),
        ..BenchReport::default()
    };
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
        let mut means = table(title, unit, &candidates);
        let mut details = details(&format!("{title}, in detail"));
        let mut last = Vec::new();
        for &workers in sizes {
            stage.step(&format!("dispatch: {workers} workers, {flow:?}"));
            last = measure(&candidates, workers, flow, stage);
            means.rows.push(Row {
                labels: vec![workers.to_string()],
                figures: last
                    .iter()
                    .map(|rounds| Some(rounds.mean.clone()))
                    .collect(),
                published: published::find(published::DISPATCH, workers),
                ..Row::default()
            });
            for (candidate, rounds) in candidates.iter().zip(&last).take(COUNTED) {
                details
                    .rows
                    .push(detail(workers, candidate.0, &rounds.merged));
            }
        }
        let shares = histogram(
            &format!("{title}, {} workers", sizes[sizes.len() - 1]),
            &last,
        );
        report.plots.extend(plots(flow, &means, &shares));
        targets(&mut report, flow, &means, &details);
        report.tables.extend([means, details, shares]);
    }
    report.notes.extend(notes());
    Ok(report)
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

fn plots(flow: Flow, means: &Table, shares: &Table) -> [Plot; 2] {
    let names = match flow {
        Flow::Saturated => ("saturated", "saturated-histogram"),
        Flow::Paced => ("paced", "paced-histogram"),
    };
    let x = "ns: from here to twice as many";
    let mut histogram = Plot::lines(names.1, shares, &[], x);
    histogram.y = "% of enqueues";
    [Plot::lines(names.0, means, &[], "workers"), histogram]
}

fn role(name: &str) -> Role {
    match name {
        WALK => Role::Baseline,
        "fixed: test first" => Role::Fixed,
        OURS => Role::Ours,
        _ => Role::Competitor,
    }
}

fn table(title: &str, unit: &'static str, candidates: &[Measured]) -> Table {
    let columns = candidates
        .iter()
        .map(|(name, _)| Column::new(*name, role(name)));
    Table {
        title: title.into(),
        unit,
        labels: vec!["workers"],
        columns: columns.collect(),
        ..Table::default()
    }
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
    Table {
        title: title.into(),
        unit: "ns per enqueue, all rounds",
        labels: vec!["workers", "candidate"],
        columns: names.map(|name| Column::new(name, Role::Detail)).to_vec(),
        ..Table::default()
    }
}

fn detail(workers: usize, name: &str, enqueued: &Enqueued) -> Row {
    let histogram = &enqueued.histogram;
    let ns = |value: u64| Some(Figure::once(value as f64));
    let share = |part: u64, whole: u64| Figure::once(part as f64 / whole.max(1) as f64);
    let wakes = enqueued.wakes;
    Row {
        labels: vec![workers.to_string(), name.into()],
        figures: vec![
            ns(histogram.min()),
            Some(Figure::once(enqueued.mean_ns())),
            ns(histogram.value_at_quantile(0.5)),
            ns(histogram.value_at_quantile(0.99)),
            ns(histogram.max()),
            wakes.map(|wakes| share(wakes.all, enqueued.items)),
            wakes.map(|wakes| share(wakes.found_nothing * 100, wakes.all)),
        ],
        published: None,
        failure: None,
    }
}

fn measure(candidates: &[Measured], workers: usize, flow: Flow, stage: &Stage<'_>) -> Vec<Rounds> {
    let slice = stage.profile.slice(workers) * stage.profile.pick(2, 2, 4);
    let merged: Vec<Mutex<Option<Enqueued>>> =
        candidates.iter().map(|_| Mutex::new(None)).collect();
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for ((_, run), merged) in candidates.iter().zip(&merged) {
        turns.push(Box::new(move || {
            let enqueued = run(workers, flow, slice);
            let mean = enqueued.burst_ns();
            merge(
                &mut merged.lock().unwrap_or_else(PoisonError::into_inner),
                enqueued,
            );
            mean
        }));
    }
    let means = interleave(stage.profile.rounds(), &mut turns);
    drop(turns);
    let merged = merged.into_iter().map(|cell| {
        let inner = cell.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.expect("every candidate had its turn")
    });
    let pairs = means.into_iter().zip(merged);
    pairs
        .map(|(mean, merged)| Rounds { mean, merged })
        .collect()
}

fn merge(sum: &mut Option<Enqueued>, round: Enqueued) {
    let Some(sum) = sum else {
        *sum = Some(round);
        return;
    };
    // The same bounds: always fits.
    let _ = sum.histogram.add(&round.histogram);
    sum.raw_ns += round.raw_ns;
    sum.items += round.items;
    if let (Some(sum), Some(round)) = (&mut sum.wakes, round.wakes) {
        sum.all += round.all;
        sum.found_nothing += round.found_nothing;
    }
}

/// Shares by powers of two.
fn histogram(title: &str, rounds: &[Rounds]) -> Table {
    const FIRST: u32 = 3;
    const LAST: u32 = 16;
    let counted = &rounds[..COUNTED.min(rounds.len())];
    let names = [WALK, "fixed: test first", OURS];
    let row = |power: u32| {
        let low = if power == FIRST { 0 } else { 1_u64 << power };
        let high = if power == LAST {
            u64::MAX
        } else {
            (1_u64 << (power + 1)) - 1
        };
        let share = |rounds: &Rounds| {
            let histogram = &rounds.merged.histogram;
            let count = histogram.count_between(low, high);
            Some(Figure::once(
                count as f64 * 100.0 / histogram.len().max(1) as f64,
            ))
        };
        Row {
            labels: vec![(1_u64 << power).to_string()],
            figures: counted.iter().map(share).collect(),
            ..Row::default()
        }
    };
    let columns = names.iter().zip(counted).map(|(name, _)| Column {
        name: (*name).into(),
        role: Role::Competitor,
    });
    Table {
        title: title.into(),
        unit: "% of enqueues that took at least so many ns and less than twice as many",
        labels: vec!["ns"],
        columns: columns.collect(),
        rows: (FIRST..=LAST).map(row).collect(),
        ..Table::default()
    }
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
