//! What must be reached, and whether it was.
//!
//! A target compares one figure of one server with another server's (or its own) figure, or with
//! a plain number. Nothing here fails the run: speed is reported, it is not a test.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metric::{Figures, Metric, is_disturbed};
use crate::server::Kind;

/// Whose figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure(pub(crate) Kind, pub(crate) Metric);

/// The allowed range of the measured ratio or figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
    /// Less than this.
    Below(f64),
}

/// One thing to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// What is measured.
    pub(crate) subject: Figure,
    /// What it is divided by; nothing for an absolute bound.
    pub(crate) reference: Option<Figure>,
    /// The bound of the ratio, or of the figure itself.
    pub(crate) bound: Bound,
}

/// What became of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Within the bound.
    Met,
    /// Outside it, or reached by failing requests.
    Missed,
    /// A figure it needs is not there.
    NotMeasured,
}

/// A target with its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// The figures in words.
    pub(crate) what: String,
    /// The bound in words.
    pub(crate) bound: String,
    /// The measured ratio or figure.
    pub(crate) measured: Option<f64>,
    /// The result.
    pub(crate) outcome: Outcome,
    /// Other processes were at work meanwhile: the result is a hint and no more.
    pub(crate) disturbed: bool,
}

impl Target {
    /// Measures the target with the folded figures of a case.
    pub(crate) fn judge(&self, rows: &BTreeMap<Kind, Figures>) -> Verdict {
        let measured = self.measure(rows);
        let outcome = match measured {
            None => Outcome::NotMeasured,
            Some(_) if self.subject_failed(rows) => Outcome::Missed,
            Some(value) if self.bound.holds(value) => Outcome::Met,
            Some(_) => Outcome::Missed,
        };
        Verdict {
            what: self.words(),
            bound: self.bound.words(),
            measured,
            outcome,
            disturbed: measured.is_some() && self.was_disturbed(rows),
        }
    }

    fn measure(&self, rows: &BTreeMap<Kind, Figures>) -> Option<f64> {
        let value = self.subject.find(rows)?;
        let Some(reference) = self.reference else {
            return Some(value);
        };
        let divisor = reference.find(rows).filter(|divisor| *divisor > 0.0)?;
        Some(value / divisor)
    }

    /// A server that answers with errors must not win by it.
    fn subject_failed(&self, rows: &BTreeMap<Kind, Figures>) -> bool {
        failures(rows, self.subject.0) > 0.0
    }

    fn was_disturbed(&self, rows: &BTreeMap<Kind, Figures>) -> bool {
        let kinds = [Some(self.subject.0), self.reference.map(|figure| figure.0)];
        kinds
            .into_iter()
            .flatten()
            .any(|kind| rows.get(&kind).is_some_and(is_disturbed))
    }

    fn words(&self) -> String {
        let Figure(kind, metric) = self.subject;
        let subject = format!("{} {}", kind.label(), metric.heading());
        match self.reference {
            None => subject,
            Some(Figure(other, same)) if same == metric => format!("{subject} / {}", other.label()),
            Some(Figure(other, column)) if other == kind => {
                format!("{subject} / its own {}", column.heading())
            }
            Some(Figure(other, column)) => {
                format!("{subject} / {} {}", other.label(), column.heading())
            }
        }
    }
}

impl Figure {
    fn find(self, rows: &BTreeMap<Kind, Figures>) -> Option<f64> {
        rows.get(&self.0)?.get(&self.1).copied()
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Below(limit) => value < limit,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {limit}"),
            Self::AtLeast(limit) => format!("at least {limit}"),
            Self::Below(limit) => format!("below {limit}"),
        }
    }
}

fn failures(rows: &BTreeMap<Kind, Figures>, kind: Kind) -> f64 {
    let Some(figures) = rows.get(&kind) else {
        return 0.0;
    };
    [Metric::Errors, Metric::Lost]
        .iter()
        .filter_map(|metric| figures.get(metric))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Metric = Metric::ServerMicrosPerRequest;

    fn rows(ours: f64, nginx: f64) -> BTreeMap<Kind, Figures> {
        BTreeMap::from([
            (
                Kind::Flatpath,
                Figures::from([(CPU, ours), (Metric::Errors, 0.0)]),
            ),
            (
                Kind::Nginx,
                Figures::from([(CPU, nginx), (Metric::Errors, 0.0)]),
            ),
        ])
    }

    fn against_nginx(bound: Bound) -> Target {
        Target {
            subject: Figure(Kind::Flatpath, CPU),
            reference: Some(Figure(Kind::Nginx, CPU)),
            bound,
        }
    }

    #[test]
    fn a_ratio_at_the_bound_meets_at_most_but_not_below() {
        let rows = rows(3.0, 4.0);
        let outcome = |bound| against_nginx(bound).judge(&rows).outcome;
        assert_eq!(outcome(Bound::AtMost(0.75)), Outcome::Met);
        assert_eq!(outcome(Bound::AtLeast(0.75)), Outcome::Met);
        assert_eq!(outcome(Bound::Below(0.75)), Outcome::Missed);
        assert_eq!(outcome(Bound::AtMost(0.74)), Outcome::Missed);
    }

    #[test]
    fn a_missing_server_leaves_the_target_unmeasured() {
        let mut rows = rows(3.0, 4.0);
        rows.remove(&Kind::Nginx);
        let verdict = against_nginx(Bound::AtMost(9.0)).judge(&rows);
        assert_eq!(
            (verdict.measured, verdict.outcome),
            (None, Outcome::NotMeasured)
        );
    }

    #[test]
    fn a_server_that_fails_requests_does_not_meet_its_target() {
        let mut rows = rows(1.0, 4.0);
        rows.get_mut(&Kind::Flatpath)
            .expect("a row")
            .insert(Metric::Errors, 1.0);
        let verdict = against_nginx(Bound::AtMost(0.65)).judge(&rows);
        assert_eq!(verdict.outcome, Outcome::Missed);
    }

    #[test]
    fn a_result_beside_other_work_is_a_hint() {
        let mut rows = rows(1.0, 4.0);
        assert!(!against_nginx(Bound::AtMost(0.65)).judge(&rows).disturbed);
        rows.get_mut(&Kind::Nginx)
            .expect("a row")
            .insert(Metric::OthersPercent, 40.0);
        let verdict = against_nginx(Bound::AtMost(0.65)).judge(&rows);
        assert_eq!((verdict.outcome, verdict.disturbed), (Outcome::Met, true));
    }

    #[test]
    fn an_absolute_bound_needs_no_reference() {
        let target = Target {
            subject: Figure(Kind::Flatpath, CPU),
            reference: None,
            bound: Bound::AtMost(3.0),
        };
        let verdict = target.judge(&rows(3.0, 0.0));
        assert_eq!(
            (verdict.measured, verdict.outcome),
            (Some(3.0), Outcome::Met)
        );
        assert_eq!(verdict.bound, "at most 3");
    }

    #[test]
    fn a_reference_of_zero_does_not_divide() {
        let verdict = against_nginx(Bound::AtMost(0.65)).judge(&rows(3.0, 0.0));
        assert_eq!(verdict.outcome, Outcome::NotMeasured);
    }
}
