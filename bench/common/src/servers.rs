//! Comparing servers: interleaved runs of each, folded into a table with a row per server.
//!
//! A server that fails keeps the runs it had, with a note; the others continue. What makes figures
//! doubtful becomes a note of the bench: failed requests, a load generator at its limit, other work
//! on the machine, replies of different length.

use std::fmt::Display;
use std::io;

use crate::measure::{median, turns};
use crate::report::{
    BenchReport, Column, Figure, MEASURED_ON, Ratio, Role, Row, Table, Target, Wanted, ratio,
};
use flatpath_testkit::child::refuse_if_interrupted;

/// Above this share of a core, the load generator decides the rate and not the server.
const GENERATOR_PERCENT_MAX: f64 = 95.0;
/// Above this share of a core, other processes may have disturbed a figure.
const OTHERS_PERCENT_MAX: f64 = 5.0;
/// Replies that differ by more than this are not the same work.
const REPLY_BYTES_APART_MAX: f64 = 128.0;

/// A measured quantity: a column of a table whose rows are servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The heading of its column, with the unit.
    pub name: &'static str,
    fold: Fold,
}

/// How the figures of several runs become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Median,
    Sum,
    Most,
}

impl Metric {
    /// The median of the runs is shown.
    pub const fn median(name: &'static str) -> Self {
        let fold = Fold::Median;
        Self { name, fold }
    }

    /// The sum of the runs is shown.
    pub const fn sum(name: &'static str) -> Self {
        let fold = Fold::Sum;
        Self { name, fold }
    }

    /// The highest of the runs is shown.
    pub const fn most(name: &'static str) -> Self {
        let fold = Fold::Most;
        Self { name, fold }
    }

    fn fold(self, runs: &[f64]) -> Figure {
        let figure = Figure::of(runs);
        let value = match self.fold {
            Fold::Median => figure.value,
            Fold::Sum => runs.iter().sum(),
            Fold::Most => figure.most,
        };
        Figure { value, ..figure }
    }
}

/// Replies per second, counted by the load generator.
pub const RATE: Metric = Metric::median("req/s");
/// CPU time of the server over the loaded interval, by the replies counted.
pub const CPU: Metric = Metric::median("CPU us/req");
pub const P50: Metric = Metric::median("p50 us");
pub const P99: Metric = Metric::median("p99 us");
/// Failed connections, reads, writes, time-outs, and replies that are not what was asked for.
pub const ERRORS: Metric = Metric::sum("errors");
/// Clients that got everything they waited for.
pub const SERVED: Metric = Metric::sum("served");
/// Clients that did not.
pub const LOST: Metric = Metric::sum("lost");
/// Head and body of one reply.
pub const REPLY_BYTES: Metric = Metric::median("reply B");
/// The most memory the server ever had resident.
pub const PEAK_MIB: Metric = Metric::most("peak MiB");
/// The share of one core that the load generator used.
pub const GENERATOR: Metric = Metric::median("generator %");
/// The share of one core that other processes used meanwhile.
pub const OTHERS: Metric = Metric::median("others %");

pub type Run = Vec<(Metric, f64)>;

struct Candidate<S> {
    name: String,
    server: Option<S>,
    runs: Vec<Run>,
    failure: Option<String>,
}

impl<S> Candidate<S> {
    fn failed(&mut self, what: &str, error: &io::Error) {
        eprintln!("{what}: {} failed: {error}", self.name);
        self.failure = Some(error.to_string());
        self.server = None;
    }

    fn row(self, metrics: &[Metric]) -> Row {
        let figure = |metric: &Metric| {
            let runs = self.runs.iter().flatten();
            let runs = runs
                .filter(|figure| figure.0 == *metric)
                .map(|figure| figure.1);
            let runs: Vec<f64> = runs.collect();
            (!runs.is_empty()).then(|| metric.fold(&runs))
        };
        Row {
            figures: metrics.iter().map(figure).collect(),
            labels: vec![self.name],
            failure: self.failure,
            published: None,
        }
    }
}

/// Starts every server of `kinds` and gives each its turn in every run: the folded figures. Servers
/// that wait for their turn cost nothing; where each turn needs a fresh server, `start` returns
/// what `turn` needs to start it.
///
/// # Errors
/// Only if the bench was told to stop.
pub fn interleave<K: Copy + Display, S>(
    what: &str,
    runs: usize,
    kinds: &[K],
    start: impl Fn(K) -> io::Result<S>,
    mut turn: impl FnMut(K, &mut S) -> io::Result<Run>,
) -> io::Result<Table> {
    let mut candidates: Vec<Candidate<S>> = Vec::new();
    for kind in kinds {
        refuse_if_interrupted()?;
        let mut candidate = Candidate {
            name: kind.to_string(),
            server: None,
            runs: Vec::new(),
            failure: None,
        };
        match start(*kind) {
            Ok(server) => candidate.server = Some(server),
            Err(error) => candidate.failed(what, &error),
        }
        candidates.push(candidate);
    }
    for (run, index) in turns(runs, kinds.len()) {
        refuse_if_interrupted()?;
        let candidate = &mut candidates[index];
        let Some(server) = &mut candidate.server else {
            continue;
        };
        eprintln!("{what}: run {} of {runs}: {}", run + 1, candidate.name);
        match turn(kinds[index], server) {
            Ok(figures) => candidate.runs.push(figures),
            Err(error) => candidate.failed(what, &error),
        }
    }
    refuse_if_interrupted()?;
    Ok(table(candidates))
}

/// Columns in the order in which the first runs name them.
fn table<S>(candidates: Vec<Candidate<S>>) -> Table {
    let mut metrics: Vec<Metric> = Vec::new();
    for (metric, _) in candidates.iter().flat_map(|it| it.runs.iter().flatten()) {
        if !metrics.contains(metric) {
            metrics.push(*metric);
        }
    }
    let columns = metrics.iter().map(|it| Column::new(it.name, Role::Detail));
    Table {
        labels: vec!["server"],
        columns: columns.collect(),
        rows: candidates.into_iter().map(|it| it.row(&metrics)).collect(),
        ..Table::default()
    }
}

impl Table {
    /// The figure of a server, unless it failed.
    pub fn of(&self, server: impl Display, metric: Metric) -> Option<f64> {
        let server = server.to_string();
        let row = self.rows.iter().find(|row| row.labels[0] == server)?;
        let figure = self
            .cell(row, metric.name)
            .filter(|_| row.failure.is_none());
        Some(figure?.value)
    }

    /// The median over the runs of one server's figure divided by the other's of the same run.
    pub fn paired(
        &self,
        server: impl Display,
        reference: impl Display,
        metric: Metric,
    ) -> Option<f64> {
        let runs = |server: String| {
            let row = self.rows.iter().find(|row| row.labels[0] == server)?;
            Some(&self.cell(row, metric.name)?.runs)
        };
        let (runs, others) = (runs(server.to_string())?, runs(reference.to_string())?);
        let ratios: Vec<f64> = runs.iter().zip(others).map(|(run, of)| run / of).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// Also shows this column as a ratio to this server's figure, if it has one.
    #[must_use]
    pub fn with_ratio(mut self, metric: Metric, to: impl Display) -> Self {
        if self.of(&to, metric).is_some() {
            self.ratios.push(Ratio {
                column: metric.name.into(),
                to: to.to_string(),
            });
        }
        self
    }

    /// Leaves a column out that was measured for a note.
    pub fn drop_column(&mut self, metric: Metric) {
        if let Some(index) = self.columns.iter().position(|it| it.name == metric.name) {
            self.columns.remove(index);
            for row in &mut self.rows {
                row.figures.remove(index);
            }
        }
    }

    /// The servers whose figure is above `bound`.
    fn above(&self, metric: Metric, bound: f64) -> Vec<&str> {
        let names = self.rows.iter().map(|row| row.labels[0].as_str());
        let above = |name: &&str| self.of(name, metric).is_some_and(|value| value > bound);
        names.filter(above).collect()
    }

    /// What the reader must know.
    fn doubts(&self) -> Vec<String> {
        let failed = self.rows.iter().filter_map(|row| {
            let failure = row.failure.as_ref()?;
            Some(format!("{} failed: {failure}", row.labels[0]))
        });
        let mut notes: Vec<String> = failed.collect();
        let mut note = |servers: Vec<&str>, what: &str| {
            if !servers.is_empty() {
                notes.push(format!("{}: {what}", servers.join(", ")));
            }
        };
        note(
            self.above(ERRORS, 0.0),
            "requests failed, the figures flatter it",
        );
        note(
            self.above(GENERATOR, GENERATOR_PERCENT_MAX),
            "the load generator was at its limit; compare CPU, not rates",
        );
        note(
            self.above(OTHERS, OTHERS_PERCENT_MAX),
            "other processes were at work; measure again",
        );
        let sizes = self
            .rows
            .iter()
            .filter_map(|row| self.of(&row.labels[0], REPLY_BYTES));
        let sizes = Figure::of(&sizes.collect::<Vec<_>>());
        let apart = sizes.most - sizes.least;
        if apart > REPLY_BYTES_APART_MAX {
            notes.push(format!(
                "replies differ by {apart:.0} bytes: not quite the same work"
            ));
        }
        notes
    }
}

impl BenchReport {
    /// The report of one comparison of servers, with what makes it doubtful.
    pub fn of_servers(name: &'static str, about: impl Into<String>, table: Table) -> Self {
        Self {
            name,
            about: about.into(),
            notes: table.doubts(),
            tables: vec![table],
            ..Self::default()
        }
    }

    /// Notes what a server reached: its figure, divided by the other one if there is one. A server
    /// that failed requests misses the target; without one of the figures there is none.
    pub fn target_of(
        &mut self,
        (server, metric): (impl Display, Metric),
        reference: Option<(&dyn Display, Metric)>,
        wanted: Wanted,
    ) {
        let Some(table) = self.tables.last() else {
            return;
        };
        let value = table.of(&server, metric);
        let mut what = format!("{server} {}", metric.name);
        let (reached, unit) = match reference {
            None => (value, ""),
            Some((other, column)) => {
                what += &format!(" / {other}");
                if column != metric {
                    what += &format!(" {}", column.name);
                }
                (ratio(value, table.of(other, column)), "x")
            }
        };
        let failures = [ERRORS, LOST].map(|metric| table.of(&server, metric).unwrap_or(0.0));
        let Some(reached) = reached else { return };
        self.targets.push(Target {
            what,
            reached,
            wanted,
            unit,
            met: wanted.is_met_by(reached) && failures.iter().sum::<f64>() == 0.0,
            measured_on: reference.is_none().then_some(MEASURED_ON),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(servers: &[(&'static str, &[f64])], more: &[(Metric, f64)]) -> BenchReport {
        let names: Vec<&str> = servers.iter().map(|server| server.0).collect();
        let runs = servers.iter().map(|server| server.1.len()).max();
        let start = |name: &str| {
            Ok(servers
                .iter()
                .find(|it| it.0 == name)
                .expect("one")
                .1
                .iter())
        };
        let table = interleave("a test", runs.unwrap_or(1), &names, start, |_, left| {
            let next = left.next().ok_or_else(|| io::Error::other("no more"))?;
            Ok([&[(CPU, *next)], more].concat())
        });
        let table = table.expect("not interrupted").with_ratio(CPU, "nginx");
        BenchReport::of_servers("files", "kept", table)
    }

    fn judged(mut report: BenchReport, wanted: Wanted) -> Option<bool> {
        report.target_of(("flatpath", CPU), Some((&"nginx", CPU)), wanted);
        Some(report.targets.first()?.met)
    }

    const TWO: &[(&str, &[f64])] = &[("nginx", &[4.0, 5.0, 9.0]), ("flatpath", &[3.0; 3])];

    #[test]
    fn medians_ratios_and_spread_are_shown() {
        let report = measured(TWO, &[(ERRORS, 0.0)]);
        let text = crate::text::of_bench(&report);
        for line in [
            "server    CPU us/req  errors  CPU us/req / nginx  spread",
            "nginx           5.00       0                1.00   100 %",
            "flatpath        3.00       0                0.60     0 %",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_ratio_at_the_bound_meets_at_most_but_not_below() {
        for (wanted, met) in [
            (Wanted::AtMost(0.6), true),
            (Wanted::AtLeast(0.6), true),
            (Wanted::Below(0.6), false),
            (Wanted::AtMost(0.59), false),
        ] {
            assert_eq!(judged(measured(TWO, &[]), wanted), Some(met), "{wanted:?}");
        }
    }

    #[test]
    fn errors_are_added_up_and_miss_every_target() {
        let report = measured(TWO, &[(ERRORS, 2.0), (PEAK_MIB, 7.0)]);
        assert_eq!(report.tables[0].of("nginx", ERRORS), Some(6.0));
        assert_eq!(report.tables[0].of("nginx", PEAK_MIB), Some(7.0));
        assert!(report.notes[0].starts_with("nginx, flatpath: requests failed"));
        assert_eq!(judged(report, Wanted::AtMost(9.0)), Some(false));
    }

    #[test]
    fn a_server_that_failed_is_named_and_judges_nothing() {
        let report = measured(&[("nginx", &[4.0, 4.0]), ("flatpath", &[1.0])], &[]);
        assert_eq!(report.notes, ["flatpath failed: no more"]);
        assert_eq!(judged(report, Wanted::AtMost(9.0)), None);
        let alone = measured(&[("flatpath", &[1.0])], &[]);
        assert!(alone.tables[0].ratios.is_empty());
    }

    #[test]
    fn paired_runs_are_compared_one_by_one() {
        let report = measured(TWO, &[]);
        // 3/4, 3/5 and 3/9, not 3/5 of the medians alone.
        let paired = report.tables[0].paired("flatpath", "nginx", CPU);
        assert_eq!(paired, Some(0.6));
        assert_eq!(report.tables[0].paired("flatpath", "absent", CPU), None);
    }

    #[test]
    fn noise_saturation_and_unequal_work_are_reported() {
        let report = measured(TWO, &[(OTHERS, 40.0), (GENERATOR, 99.0)]);
        assert_eq!(report.notes.len(), 2, "{:?}", report.notes);
        let mut sizes = [300.0, 900.0].into_iter();
        let start = |_| Ok(());
        let run = |_, (): &mut ()| Ok(vec![(REPLY_BYTES, sizes.next().unwrap_or(0.0))]);
        let mut table = interleave("a test", 1, &["a", "b"], start, run).expect("no signal");
        assert!(table.doubts()[0].contains("differ by 600 bytes"));
        table.drop_column(REPLY_BYTES);
        assert!(table.columns.is_empty() && table.rows[0].figures.is_empty());
    }
}
