//! Reports: what was measured, and what was published, as data.
//!
//! A report has benches, a bench has tables and targets, a table has rows of figures. `text.rs`
//! prints it, serde writes it. The layout of the JSON is that of these types.
//!
//! | a table of | rows | columns |
//! |---|---|---|
//! | structures | loads | candidates, each with its [`Role`] |
//! | servers (`servers.rs`) | candidates | metrics, the same as [`Role::Detail`] |

use std::fmt::Display;
use std::path::Path;
use std::time::{Instant, SystemTime};
use std::{fs, io};

use serde::Serialize;

use crate::machine::Machine;
use crate::measure::median;
use crate::profile::Profile;
use crate::text;

/// A core's share that other processes may use before the figures are called disturbed.
pub const OTHERS_PERCENT_MAX: f64 = 10.0;
/// Where the bounds of targets hold that are figures of a machine: `docs/figures.md` has the runs.
pub const MEASURED_ON: &str = "AMD EPYC, 2 cores";

#[derive(Debug, Serialize)]
pub struct Report {
    /// On what.
    pub machine: Machine,
    /// The day of the run: `2026-01-31`, UTC.
    pub date: String,
    pub arguments: Vec<String>,
    /// `full`, `quick` or `tiny`.
    pub profile: &'static str,
    pub seconds: f64,
    pub benches: Vec<BenchReport>,
}

impl Report {
    /// Runs the benches that `measure` collects, and describes what they ran on.
    pub fn collect<E>(
        profile: Profile,
        measure: impl FnOnce() -> Result<Vec<BenchReport>, E>,
    ) -> Result<Self, E> {
        let begin = Instant::now();
        let machine = Machine::describe();
        let benches = measure()?;
        Ok(Self {
            machine,
            date: humantime::format_rfc3339(SystemTime::now()).to_string()[..10].to_owned(),
            arguments: std::env::args().collect(),
            profile: profile.name(),
            seconds: begin.elapsed().as_secs_f64(),
            benches,
        })
    }

    pub fn text(&self) -> String {
        text::report(self)
    }

    /// Writes the report as JSON.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")
            .map_err(|cause| io::Error::new(cause.kind(), format!("{}: {cause}", file.display())))
    }
}

#[derive(Debug, Default, Serialize)]
pub struct BenchReport {
    /// As on the command line.
    pub name: &'static str,
    /// What is compared with what.
    pub about: String,
    pub tables: Vec<Table>,
    /// What the project wants to reach, and what this run reached.
    pub targets: Vec<Target>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
    /// Share of one core that other processes used meanwhile, in percent: noise.
    pub others_percent: f64,
}

impl BenchReport {
    /// Adds to what is compared the setting it was measured under.
    pub fn name_setting(&mut self, setting: &str) {
        self.about += &format!(", {setting}");
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Table {
    /// What was done.
    pub title: String,
    /// What the figures are.
    pub unit: &'static str,
    /// Headings of the labels that name a row.
    pub labels: Vec<&'static str>,
    /// The candidates, in the order of a row's figures.
    pub columns: Vec<Column>,
    /// One per load, or per candidate.
    pub rows: Vec<Row>,
    /// Columns that are also shown as ratios to one row's.
    pub ratios: Vec<Ratio>,
}

/// A column divided by its cell in one row.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub column: String,
    /// The first label of the row that counts as one.
    pub to: String,
}

/// What the figures below each other have in common.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name: of a candidate, or of a metric.
    pub name: String,
    pub role: Role,
}

/// Which part a candidate plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The old way as published.
    Baseline,
    /// The old way with the cheap fix, or another honest way to do it.
    Fixed,
    /// The structure of this project.
    Ours,
    Competitor,
    /// Something else to know about the row; not compared.
    Detail,
}

/// One load, measured with every candidate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub labels: Vec<String>,
    /// One per column; absent where a candidate was not measured.
    pub figures: Vec<Option<Figure>>,
    /// What the original publication measured here, before and after its change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// Why a server has fewer runs than were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Figures of the original publication, on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Published {
    pub before: &'static str,
    pub after: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The median of the runs, or what else says most about them.
    pub value: f64,
    pub least: f64,
    pub most: f64,
    pub runs: Vec<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub what: String,
    pub reached: f64,
    pub wanted: Wanted,
    /// Unit of both; `x` for a ratio.
    pub unit: &'static str,
    pub met: bool,
    /// The processor that the bound was measured on. None: it is relative to what another candidate
    /// needed in this run, so that it holds on any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_on: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

impl Column {
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
        }
    }
}

impl Figure {
    pub fn of(runs: &[f64]) -> Self {
        Self {
            value: median(runs),
            least: runs.iter().copied().reduce(f64::min).unwrap_or(0.0),
            most: runs.iter().copied().reduce(f64::max).unwrap_or(0.0),
            runs: runs.to_vec(),
        }
    }

    /// A figure that was not measured several times.
    pub fn once(value: f64) -> Self {
        Self::of(&[value])
    }

    /// How far the runs lie apart, in percent of the figure: its noise.
    pub fn spread_percent(&self) -> Option<f64> {
        let several = self.runs.len() > 1 && self.value > 0.0;
        several.then(|| (self.most - self.least) / self.value * 100.0)
    }
}

impl Wanted {
    /// Whether `reached` keeps to the bound.
    pub fn is_met_by(self, reached: f64) -> bool {
        match self {
            Self::AtMost(bound) => reached <= bound,
            Self::AtLeast(bound) => reached >= bound,
            Self::Below(bound) => reached < bound,
        }
    }
}

impl Table {
    /// A table without rows yet: what was done, what the figures are, what names a row, and the
    /// candidates.
    pub fn new(
        title: impl Into<String>,
        unit: &'static str,
        labels: &[&'static str],
        columns: impl IntoIterator<Item = (impl Into<String>, Role)>,
    ) -> Self {
        let columns = columns.into_iter();
        Self {
            title: title.into(),
            unit,
            labels: labels.to_vec(),
            columns: columns
                .map(|(name, role)| Column::new(name, role))
                .collect(),
            ..Self::default()
        }
    }

    pub fn push(
        &mut self,
        labels: &[&dyn Display],
        figures: impl IntoIterator<Item = impl Into<Option<Figure>>>,
    ) -> &mut Row {
        self.rows.push(Row {
            labels: labels.iter().map(ToString::to_string).collect(),
            figures: figures.into_iter().map(Into::into).collect(),
            ..Row::default()
        });
        self.rows.last_mut().expect("it was just pushed")
    }

    /// The figure of column `name` in the row with these labels.
    pub fn figure(&self, labels: &[&str], name: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.labels == labels)?;
        Some(self.cell(row, name)?.value)
    }

    /// The best of the columns of this role in the row with these labels.
    pub fn best(&self, labels: &[&str], role: Role) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.labels == labels)?;
        Some(self.best_of(row, role)?.1)
    }

    /// The best of the columns of this role in a row, by name, and its figure.
    pub fn best_of(&self, row: &Row, role: Role) -> Option<(&str, f64)> {
        let paired = self.columns.iter().zip(&row.figures);
        let figures = paired.filter(|(column, _)| column.role == role);
        figures
            .filter_map(|(column, figure)| Some((&*column.name, figure.as_ref()?.value)))
            .min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

impl Table {
    /// The cell of a row in the column of this name.
    pub fn cell<'a>(&self, row: &'a Row, column: &str) -> Option<&'a Figure> {
        let index = self.columns.iter().position(|it| it.name == column)?;
        row.figures.get(index)?.as_ref()
    }

    /// A row's cell of the ratio's column, divided by that of the ratio's row.
    pub fn ratio(&self, row: &Row, to: &Ratio) -> Option<f64> {
        let reference = self.rows.iter().find(|row| row.labels[0] == to.to)?;
        let value = |row| self.cell(row, &to.column).map(|figure| figure.value);
        ratio(value(row), value(reference))
    }
}

impl BenchReport {
    /// A report without figures yet.
    pub fn new(name: &'static str, about: impl Into<String>) -> Self {
        Self {
            name,
            about: about.into(),
            ..Self::default()
        }
    }

    /// Adds what to know when reading the figures.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Notes which part of another candidate's figure ours is, if both were measured, and that at
    /// most `bound` is wanted: on whatever machine.
    pub fn target_beside(
        &mut self,
        what: impl Into<String>,
        bound: f64,
        ours: Option<f64>,
        other: Option<f64>,
    ) {
        self.target(what, "x", Wanted::AtMost(bound), ratio(ours, other));
        if let (Some(_), Some(target)) = (ratio(ours, other), self.targets.last_mut()) {
            target.measured_on = None;
        }
    }

    /// Notes what was reached, if it was measured at all in this profile. The bound is one that was
    /// measured on [`MEASURED_ON`].
    pub fn target(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        wanted: Wanted,
        reached: Option<f64>,
    ) {
        let Some(reached) = reached else { return };
        self.targets.push(Target {
            what: what.into(),
            reached,
            wanted,
            unit,
            met: wanted.is_met_by(reached),
            measured_on: Some(MEASURED_ON),
        });
    }
}

/// How many times `high` is of `low`, if both were measured.
pub fn ratio(high: Option<f64>, low: Option<f64>) -> Option<f64> {
    let (high, low) = (high?, low?);
    (low > 0.0).then(|| high / low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_on_both_sides() {
        assert!(Wanted::AtMost(1.2).is_met_by(1.2) && !Wanted::AtMost(1.2).is_met_by(1.3));
        assert!(Wanted::AtLeast(50.0).is_met_by(50.0) && !Wanted::AtLeast(50.0).is_met_by(49.0));
    }

    #[test]
    fn a_target_of_a_row_that_was_not_measured_is_left_out() {
        let mut bench = BenchReport::default();
        bench.target("absent", "x", Wanted::AtLeast(2.0), ratio(Some(4.0), None));
        bench.target(
            "there",
            "x",
            Wanted::AtLeast(2.0),
            ratio(Some(4.0), Some(1.0)),
        );
        assert_eq!(bench.targets.len(), 1);
        assert!(bench.targets[0].met);
        bench.target_beside("best absent", 1.0, Some(1.0), None);
        assert_eq!(bench.targets.len(), 1);
        assert_eq!(bench.targets[0].measured_on, Some(MEASURED_ON));
        bench.target_beside("of the best", 1.0, Some(3.0), Some(2.0));
        let beside = &bench.targets[1];
        assert_eq!(
            (beside.reached, beside.met, beside.measured_on),
            (1.5, false, None)
        );
    }

    #[test]
    fn the_best_of_a_role_is_its_lowest_figure() {
        let columns = ["a", "b", "c"].map(|name| Column::new(name, Role::Competitor));
        let table = Table {
            columns: columns.to_vec(),
            rows: vec![Row {
                labels: vec!["10".into()],
                figures: vec![Some(Figure::once(3.0)), None, Some(Figure::once(2.0))],
                ..Row::default()
            }],
            ..Table::default()
        };
        assert_eq!(table.best(&["10"], Role::Competitor), Some(2.0));
        assert_eq!(table.best(&["10"], Role::Ours), None);
        assert_eq!(table.figure(&["10"], "a"), Some(3.0));
        assert_eq!(table.figure(&["11"], "a"), None);
    }
}
