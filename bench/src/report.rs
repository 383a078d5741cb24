//! Reports: what was measured, beside what was published, as data.
//!
//! A report has benches, a bench has tables and targets, a table has rows of figures. `text.rs`
//! prints it, serde writes it, `plot.rs` draws it. The layout of the JSON is that of these types.

use serde::Serialize;

use crate::machine::Machine;
use crate::measure::median;
use crate::plot::Plot;

/// Everything one run found out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// On what.
    pub machine: Machine,
    /// `full`, `quick` or `tiny`.
    pub pace: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// In the order they were asked for.
    pub benches: Vec<BenchReport>,
}

/// What one bench found out.
#[derive(Debug, Default, Serialize)]
pub struct BenchReport {
    /// As on the command line.
    pub name: &'static str,
    /// What is compared with what.
    pub about: &'static str,
    /// Figures.
    pub tables: Vec<Table>,
    /// What the project wants to reach, and what this run reached.
    pub targets: Vec<Target>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
    /// Share of one core that other processes used meanwhile, in percent: noise.
    pub others_percent: f64,
    /// Pictures of the tables.
    #[serde(skip)]
    pub(crate) plots: Vec<Plot>,
}

/// One comparison.
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
    /// One per load.
    pub rows: Vec<Row>,
}

/// One candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Which part it plays.
    pub role: Role,
}

/// Which part a candidate plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The old way as published.
    Before,
    /// The old way with the cheap fix, or another honest way to do it.
    Fixed,
    /// The structure of this project.
    Ours,
    /// A well-known crate.
    Beside,
    /// Something else to know about the row; not compared.
    Detail,
}

/// One load, measured with every candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Names the load.
    pub labels: Vec<String>,
    /// One per column; absent where a candidate was not measured.
    pub figures: Vec<Option<Figure>>,
    /// What the original publication measured here, before and after its change.
    pub published: Option<Published>,
}

/// Figures of the original publication, on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Published {
    /// Before the change.
    pub before: &'static str,
    /// After it.
    pub after: &'static str,
}

/// The rounds of one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The figure.
    pub median: f64,
    /// The lowest round.
    pub least: f64,
    /// The highest round.
    pub most: f64,
}

/// Something to reach.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is compared.
    pub what: String,
    /// What this run reached.
    pub reached: f64,
    /// What is wanted.
    pub wanted: Wanted,
    /// Unit of both; `x` for a ratio.
    pub unit: &'static str,
    /// Whether it was reached.
    pub met: bool,
}

/// A bound of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Column {
    /// A candidate and its part.
    pub(crate) fn new(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
        }
    }
}

impl Figure {
    /// Folds the rounds.
    pub(crate) fn of(samples: &[f64]) -> Self {
        Self {
            median: median(samples),
            least: samples.iter().copied().reduce(f64::min).unwrap_or(0.0),
            most: samples.iter().copied().reduce(f64::max).unwrap_or(0.0),
        }
    }

    /// A figure that was not measured several times.
    pub(crate) fn once(value: f64) -> Self {
        Self {
            median: value,
            least: value,
            most: value,
        }
    }
}

impl Wanted {
    /// Whether `reached` keeps to the bound.
    pub fn is_met_by(self, reached: f64) -> bool {
        match self {
            Self::AtMost(bound) => reached <= bound,
            Self::AtLeast(bound) => reached >= bound,
        }
    }
}

impl Table {
    /// The figure of column `name` in the row with these labels.
    pub(crate) fn figure(&self, labels: &[&str], name: &str) -> Option<f64> {
        let column = self.columns.iter().position(|column| column.name == name)?;
        let row = self.rows.iter().find(|row| row.labels == labels)?;
        Some(row.figures[column]?.median)
    }

    /// The best of the columns of this role in the row with these labels.
    pub(crate) fn best(&self, labels: &[&str], role: Role) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.labels == labels)?;
        let paired = self.columns.iter().zip(&row.figures);
        let figures = paired.filter(|(column, _)| column.role == role);
        figures
            .filter_map(|(_, figure)| Some((*figure)?.median))
            .reduce(f64::min)
    }
}

impl BenchReport {
    /// Notes what was reached, if it was measured at all at this pace.
    pub(crate) fn target(
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
        });
    }
}

/// How many times `high` is of `low`, if both were measured.
pub(crate) fn ratio(high: Option<f64>, low: Option<f64>) -> Option<f64> {
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
    }

    #[test]
    fn the_best_of_a_role_is_its_lowest_figure() {
        let columns = ["a", "b", "c"].map(|name| Column::new(name, Role::Beside));
        let table = Table {
            columns: columns.to_vec(),
            rows: vec![Row {
                labels: vec!["10".into()],
                figures: vec![Some(Figure::once(3.0)), None, Some(Figure::once(2.0))],
                published: None,
            }],
            ..Table::default()
        };
        assert_eq!(table.best(&["10"], Role::Beside), Some(2.0));
        assert_eq!(table.best(&["10"], Role::Ours), None);
        assert_eq!(table.figure(&["10"], "a"), Some(3.0));
        assert_eq!(table.figure(&["11"], "a"), None);
    }
}
