//! Medians over runs, ratios, and what was to be reached.

use serde::Serialize;

use crate::load::{Figures, Workload};

/// The runs of one server under one workload, and the median of each figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) server: String,
    pub(crate) median: Figures,
    pub(crate) runs: Vec<Figures>,
}

/// One target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) workload: Workload,
    pub(crate) target: &'static str,
    /// Ours divided by the peer's.
    pub(crate) ratio: f64,
    pub(crate) met: bool,
}

/// The middle value; of two the higher.
fn median(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Row {
    pub(crate) fn new(workload: Workload, server: &str, runs: Vec<Figures>) -> Row {
        let cpu = runs.iter().all(|run| run.cpu_us_per_operation.is_some());
        let cpu_us = median(&runs, |run| run.cpu_us_per_operation.unwrap_or(f64::NAN));
        let client_us = median(&runs, |run| run.client_us_per_operation.unwrap_or(f64::NAN));
        let observed = runs.iter().all(|run| run.dispatch_ns.is_some());
        let dispatch_ns = median(&runs, |run| run.dispatch_ns.unwrap_or(f64::NAN));
        let median = Figures {
            operations_per_second: median(&runs, |run| run.operations_per_second),
            mebibytes_per_second: median(&runs, |run| run.mebibytes_per_second),
            p50_us: median(&runs, |run| run.p50_us),
            p99_us: median(&runs, |run| run.p99_us),
            p999_us: median(&runs, |run| run.p999_us),
            cpu_us_per_operation: cpu.then_some(cpu_us),
            client_us_per_operation: Some(client_us).filter(|us| !us.is_nan()),
            dispatch_ns: observed.then_some(dispatch_ns),
        };
        Row {
            workload,
            server: server.to_owned(),
            median,
            runs,
        }
    }

    /// As one line under [`HEAD`].
    pub(crate) fn line(&self) -> String {
        let of = &self.median;
        let cpu = of
            .cpu_us_per_operation
            .map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
        let client = of
            .client_us_per_operation
            .map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
        let share = of.client_us_per_operation.map_or_else(
            || "-".to_owned(),
            |us| format!("{:.2}", us * of.operations_per_second / 1e6),
        );
        let dispatch = of
            .dispatch_ns
            .map_or_else(String::new, |mean| format!("{mean:.0}"));
        let spent = format!("{cpu:>9} {client:>9} {share:>6} {dispatch:>11}");
        format!(
            "{:16} {:14} {:>10.0} {:>9.0} {:>9.0} {:>9.0} {spent}",
            format!("{:?}", self.workload),
            self.server,
            of.operations_per_second,
            of.mebibytes_per_second,
            of.p50_us,
            of.p99_us
        )
    }
}

/// Over the lines of [`Row`]. "client" is the load generator's CPU time per operation, and "cores"
/// how many processors it kept busy.
pub(crate) const HEAD: &str = "workload         server              ops/s     MiB/s    p50 us    \
     p99 us CPU us/op    client  cores dispatch ns";

/// The targets of one workload.
pub(crate) fn judge(ours: &Row, peer: &Row) -> Vec<Verdict> {
    let (mine, other) = (&ours.median, &peer.median);
    let rate = mine.operations_per_second / other.operations_per_second;
    let verdict = |target, ratio: f64, met| Verdict {
        workload: ours.workload,
        target,
        ratio,
        met,
    };
    if !ours.workload.is_random() {
        return vec![verdict("at least 1.5 x the rate", rate, rate >= 1.5)];
    }
    let cpu = mine
        .cpu_us_per_operation
        .zip(other.cpu_us_per_operation)
        .map_or(f64::NAN, |(mine, other)| mine / other);
    let tail = mine.p99_us / other.p99_us;
    vec![
        verdict("at least 2 x the rate", rate, rate >= 2.0),
        verdict("at most 0.5 x the CPU per operation", cpu, cpu <= 0.5),
        verdict("p99 below", tail, tail < 1.0),
    ]
}

/// The median over the rounds of one row's figure divided by the other's.
fn of_rounds(row: &Row, first: &Row, figure: impl Fn(&Figures) -> Option<f64>) -> f64 {
    let rounds = row.runs.iter().zip(&first.runs);
    let ratios: Option<Vec<f64>> = rounds
        .map(|(run, of_first)| Some(figure(run)? / figure(of_first)?))
        .collect();
    let mut ratios = ratios.unwrap_or_default();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Throughput must not fall from the first number of workers to a higher one (a twentieth is
/// noise), and the mean cost of a dispatch stays within a tenth. Runs of one round are compared
/// with each other, and the median of these ratios counts: the machine changes more between rounds.
pub(crate) fn judge_sweep(rows: &[Row]) -> Vec<Verdict> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    rows.iter()
        .skip(1)
        .flat_map(|row| {
            let ratio = of_rounds(row, first, |run| Some(run.operations_per_second));
            let cost = of_rounds(row, first, |run| run.dispatch_ns);
            let verdict = |target, ratio, met| Verdict {
                workload: row.workload,
                target,
                ratio,
                met,
            };
            [
                verdict(
                    "throughput not falling with workers (0.95 or more)",
                    ratio,
                    ratio >= 0.95,
                ),
                verdict(
                    "mean dispatch cost flat within a tenth (1.1 or less)",
                    cost,
                    cost <= 1.1,
                ),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64, cpu: Option<f64>, p99_us: f64) -> Figures {
        Figures {
            operations_per_second: rate,
            mebibytes_per_second: 1.0,
            p50_us: 1.0,
            p99_us,
            p999_us: 1.0,
            cpu_us_per_operation: cpu,
            client_us_per_operation: None,
            dispatch_ns: None,
        }
    }

    #[test]
    fn a_sweep_is_judged_against_its_first_row() {
        let row = |rate, dispatch| {
            let mut figures = figures(rate, None, 1.0);
            figures.dispatch_ns = dispatch;
            Row::new(Workload::RandomRead, "x", vec![figures])
        };
        let met = |rows: &[Row]| -> Vec<bool> {
            let verdicts = judge_sweep(rows);
            verdicts.iter().map(|verdict| verdict.met).collect()
        };
        let first = row(100.0, Some(1000.0));
        let rows = [first, row(95.0, Some(1100.0)), row(94.0, Some(1101.0))];
        assert_eq!(met(&rows), [true, true, false, false]);
        let silent = [row(100.0, None), row(100.0, None)];
        assert_eq!(met(&silent), [true, false], "unknown is not met");
    }

    #[test]
    fn a_median_is_the_middle_run_of_each_figure() {
        let runs = [(3.0, 9.0), (1.0, 7.0), (2.0, 8.0)];
        let runs = runs
            .map(|(rate, p99)| figures(rate, Some(rate), p99))
            .to_vec();
        let row = Row::new(Workload::RandomRead, "x", runs);
        assert!((row.median.operations_per_second - 2.0).abs() < 1e-9);
        assert!((row.median.p99_us - 8.0).abs() < 1e-9);
    }

    #[test]
    fn targets_are_met_exactly_at_their_bounds() {
        let row = |rate, cpu, p99, workload| Row::new(workload, "x", vec![figures(rate, cpu, p99)]);
        let met = |ours: &Row, peer: &Row| -> Vec<bool> {
            judge(ours, peer)
                .iter()
                .map(|verdict| verdict.met)
                .collect()
        };
        let random = Workload::RandomRead;
        let peer = row(100.0, Some(10.0), 50.0, random);
        let good = row(200.0, Some(5.0), 49.0, random);
        assert_eq!(met(&good, &peer), [true, true, true]);
        let bad = row(199.0, Some(5.1), 50.0, random);
        assert_eq!(met(&bad, &peer), [false, false, false]);
        let unknown = row(200.0, None, 49.0, random);
        assert_eq!(
            met(&unknown, &peer),
            [true, false, true],
            "unknown is not met"
        );
        let sequential = Workload::SequentialRead;
        let peer = row(100.0, None, 50.0, sequential);
        assert_eq!(met(&row(150.0, None, 99.0, sequential), &peer), [true]);
        assert_eq!(met(&row(149.0, None, 99.0, sequential), &peer), [false]);
    }
}
