//! The result of a whole session: for people as tables, for machines as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::machine::Machine;
use crate::metric::{Figures, Metric, fold, is_disturbed, spread_percent};
use crate::server::Kind;
use crate::table;
use crate::target::{Outcome, Target, Verdict};

/// Above this share of a core, the load generator decides the rate and not the server.
const GENERATOR_PERCENT_MAX: f64 = 95.0;
/// Replies that differ by more than this are not the same work.
const REPLY_BYTES_APART_MAX: f64 = 128.0;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// On what.
    pub(crate) machine: Machine,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// What came out.
    pub(crate) cases: Vec<Case>,
}

/// The options that decide how much the figures mean.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// Length of a loaded interval.
    pub(crate) seconds: u32,
    /// Runs per server; nothing if each scenario had its own number.
    pub(crate) runs: Option<u32>,
    /// `--quick`: too short to be quoted.
    pub(crate) quick: bool,
    /// The driver asked of Flatpath.
    pub(crate) driver: String,
    /// Threads of wrk.
    pub(crate) wrk_threads: u32,
    /// TCP congestion control of servers and clients.
    pub(crate) congestion: String,
}

/// Several servers under one load.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    /// The scenario and what is special here.
    pub(crate) name: String,
    /// One per server, in the order they ran.
    pub(crate) rows: Vec<Row>,
    /// Which columns are also shown as ratios, and to whom.
    pub(crate) ratios: Vec<Ratio>,
    /// The targets that could be judged here.
    pub(crate) verdicts: Vec<Verdict>,
    /// What the reader must know.
    pub(crate) notes: Vec<String>,
}

/// One server's runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The server.
    pub(crate) server: Kind,
    /// Every run as it was.
    pub(crate) runs: Vec<Figures>,
    /// The runs folded: medians, and sums of errors.
    pub(crate) figures: Figures,
    /// Why there are fewer runs than asked for.
    pub(crate) failure: Option<String>,
}

/// A column divided by one server's cell.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratio {
    /// The column.
    pub(crate) metric: Metric,
    /// The server that counts as one.
    pub(crate) to: Kind,
}

impl Row {
    /// Folds the runs of a server.
    pub(crate) fn new(server: Kind, runs: Vec<Figures>, failure: Option<String>) -> Self {
        let figures = fold(&runs);
        Self {
            server,
            runs,
            figures,
            failure,
        }
    }
}

impl Case {
    /// Judges the targets and looks for what makes the figures doubtful.
    pub(crate) fn new(
        name: String,
        rows: Vec<Row>,
        ratios: Vec<Ratio>,
        targets: &[Target],
        mut notes: Vec<String>,
    ) -> Self {
        let complete = rows.iter().filter(|row| row.failure.is_none());
        let figures: BTreeMap<Kind, Figures> = complete
            .map(|row| (row.server, row.figures.clone()))
            .collect();
        let ratios = ratios
            .into_iter()
            .filter(|ratio| figures.contains_key(&ratio.to))
            .collect();
        let verdicts = targets
            .iter()
            .map(|target| target.judge(&figures))
            .collect();
        notes.extend(rows.iter().filter_map(failure_note));
        notes.extend(rows.iter().filter_map(errors_note));
        notes.extend(saturation_note(&rows));
        notes.extend(noise_note(&rows));
        notes.extend(unequal_note(&rows));
        Self {
            name,
            rows,
            ratios,
            verdicts,
            notes,
        }
    }

    fn text(&self) -> String {
        let all = self.rows.iter().flat_map(|row| row.figures.keys().copied());
        let metrics: BTreeSet<Metric> = all.filter(|metric| metric.has_column()).collect();
        let mut headings = vec!["server".to_owned()];
        headings.extend(metrics.iter().map(|metric| metric.heading().to_owned()));
        headings.extend(self.ratios.iter().map(Ratio::heading));
        let repeated = self.rows.iter().any(|row| row.runs.len() > 1);
        let spread = self
            .ratios
            .first()
            .map(|ratio| ratio.metric)
            .filter(|_| repeated);
        headings.extend(spread.map(|_| "spread".to_owned()));
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| self.cells(row, &metrics, spread))
            .collect();
        let mut text = format!("## {}\n\n{}", self.name, table::render(&headings, &rows));
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    fn cells(&self, row: &Row, metrics: &BTreeSet<Metric>, spread: Option<Metric>) -> Vec<String> {
        let mut cells = vec![row.server.label().to_owned()];
        cells.extend(metrics.iter().map(|metric| {
            let value = row.figures.get(metric);
            value.map_or_else(String::new, |value| {
                table::figure(*value, metric.decimals())
            })
        }));
        cells.extend(self.ratios.iter().map(|ratio| {
            let value = self.ratio(row, *ratio);
            value.map_or_else(String::new, |value| table::figure(value, 2))
        }));
        cells.extend(spread.map(|metric| {
            let value = spread_percent(&row.runs, metric).filter(|_| row.runs.len() > 1);
            value.map_or_else(String::new, |value| format!("{value:.0} %"))
        }));
        cells
    }

    fn ratio(&self, row: &Row, ratio: Ratio) -> Option<f64> {
        let reference = self.rows.iter().find(|other| other.server == ratio.to)?;
        let divisor = reference
            .figures
            .get(&ratio.metric)
            .filter(|value| **value > 0.0)?;
        Some(row.figures.get(&ratio.metric)? / divisor)
    }
}

impl Ratio {
    fn heading(&self) -> String {
        format!("{} / {}", self.metric.heading(), self.to.label())
    }
}

impl Report {
    /// The tables, the targets and the machine.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine.words());
        if self.settings.quick {
            text.push_str("quick: shows that everything runs; too short to be quoted\n");
        }
        text.push_str(&format!(
            "congestion control {}\n",
            self.settings.congestion
        ));
        if self.settings.wrk_threads > 1 {
            text.push_str(&format!("wrk with {} threads\n", self.settings.wrk_threads));
        }
        if cfg!(debug_assertions) {
            text.push_str("debug build: the servers in this binary are slower than they are\n");
        }
        for case in &self.cases {
            text.push_str(&format!("\n{}", case.text()));
        }
        text.push_str(&format!("\n## targets\n\n{}", self.targets()));
        text
    }

    fn targets(&self) -> String {
        let headings = ["target", "bound", "measured", "result"].map(str::to_owned);
        let verdicts = self.cases.iter().flat_map(|case| {
            case.verdicts
                .iter()
                .map(|verdict| verdict_cells(&case.name, verdict))
        });
        let rows: Vec<_> = verdicts.collect();
        if rows.is_empty() {
            return "none in these scenarios\n".to_owned();
        }
        table::render(&headings, &rows)
    }
}

fn verdict_cells(case: &str, verdict: &Verdict) -> Vec<String> {
    let result = match verdict.outcome {
        Outcome::Met => "met",
        Outcome::Missed => "MISSED",
        Outcome::NotMeasured => "not measured",
    };
    let noise = if verdict.disturbed { ", but noisy" } else { "" };
    let measured = verdict
        .measured
        .map_or_else(|| "-".to_owned(), |value| table::figure(value, 2));
    vec![
        format!("{case}: {}", verdict.what),
        verdict.bound.clone(),
        measured,
        format!("{result}{noise}"),
    ]
}

fn failure_note(row: &Row) -> Option<String> {
    let failure = row.failure.as_ref()?;
    Some(format!("{} failed: {failure}", row.server.label()))
}

fn errors_note(row: &Row) -> Option<String> {
    let errors = row
        .figures
        .get(&Metric::Errors)
        .filter(|errors| **errors > 0.0)?;
    Some(format!(
        "{}: {} requests failed, its figures flatter it",
        row.server.label(),
        table::figure(*errors, 0)
    ))
}

fn saturation_note(rows: &[Row]) -> Option<String> {
    let saturated = |row: &&Row| {
        row.figures
            .get(&Metric::GeneratorPercent)
            .is_some_and(|p| *p > GENERATOR_PERCENT_MAX)
    };
    let names: Vec<_> = rows
        .iter()
        .filter(saturated)
        .map(|row| row.server.label())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "the load generator was at its limit with {}: compare CPU, not rates",
            names.join(", ")
        )
    })
}

fn noise_note(rows: &[Row]) -> Option<String> {
    let disturbed: Vec<_> = rows
        .iter()
        .filter(|row| is_disturbed(&row.figures))
        .map(|row| row.server.label())
        .collect();
    (!disturbed.is_empty()).then(|| {
        format!(
            "other processes were at work beside {}: measure again",
            disturbed.join(", ")
        )
    })
}

fn unequal_note(rows: &[Row]) -> Option<String> {
    let sizes = rows
        .iter()
        .filter_map(|row| row.figures.get(&Metric::ReplyBytes).copied());
    let (least, most) = sizes.fold((f64::MAX, 0.0_f64), |(least, most), size| {
        (least.min(size), most.max(size))
    });
    (most - least > REPLY_BYTES_APART_MAX).then(|| {
        format!(
            "replies differ by {:.0} bytes: not quite the same work",
            most - least
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Bound, Figure};

    const CPU: Metric = Metric::ServerMicrosPerRequest;

    fn row(server: Kind, cpu: &[f64], reply: f64) -> Row {
        let run = |value: &f64| {
            Figures::from([
                (CPU, *value),
                (Metric::Errors, 0.0),
                (Metric::ReplyBytes, reply),
                (Metric::OthersPercent, 1.0),
            ])
        };
        Row::new(server, cpu.iter().map(run).collect(), None)
    }

    fn case(rows: Vec<Row>) -> Case {
        let target = Target {
            subject: Figure(Kind::Flatpath, CPU),
            reference: Some(Figure(Kind::Nginx, CPU)),
            bound: Bound::AtMost(0.65),
        };
        let ratios = vec![Ratio {
            metric: CPU,
            to: Kind::Nginx,
        }];
        Case::new("files".into(), rows, ratios, &[target], Vec::new())
    }

    fn report(cases: Vec<Case>) -> Report {
        Report {
            machine: Machine::describe(),
            settings: Settings {
                seconds: 1,
                runs: Some(3),
                quick: true,
                driver: "auto".into(),
                wrk_threads: 1,
                congestion: "reno".into(),
            },
            cases,
        }
    }

    #[test]
    fn the_table_shows_medians_ratios_and_spread() {
        let nginx = row(Kind::Nginx, &[4.0, 5.0, 9.0], 300.0);
        let ours = row(Kind::Flatpath, &[3.0, 3.0, 3.0], 290.0);
        let text = case(vec![nginx, ours]).text();
        let expected = "\
## files

server    CPU us/req  errors  reply B  others %  CPU us/req / nginx  spread
--------  ----------  ------  -------  --------  ------------------  ------
nginx           5.00       0      300         1                1.00   100 %
flatpath        3.00       0      290         1                0.60     0 %
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_targets_stand_beside_what_was_measured() {
        let met = case(vec![
            row(Kind::Nginx, &[5.0], 1.0),
            row(Kind::Flatpath, &[3.0], 1.0),
        ]);
        let missed = case(vec![
            row(Kind::Nginx, &[4.0], 1.0),
            row(Kind::Flatpath, &[3.0], 1.0),
        ]);
        let absent = case(vec![row(Kind::Nginx, &[4.0], 1.0)]);
        let text = report(vec![met, missed, absent]).targets();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(
            lines[0].starts_with("files: flatpath CPU us/req / nginx"),
            "{text}"
        );
        assert!(
            lines[0].ends_with("at most 0.65      0.60           met"),
            "{text}"
        );
        assert!(lines[1].ends_with("0.75        MISSED"), "{text}");
        assert!(lines[2].ends_with("-  not measured"), "{text}");
    }

    #[test]
    fn a_server_that_failed_is_named_and_judges_nothing() {
        let mut ours = row(Kind::Flatpath, &[1.0], 300.0);
        ours.failure = Some("was not ready in time".into());
        let case = case(vec![row(Kind::Nginx, &[4.0], 300.0), ours]);
        assert_eq!(case.notes, ["flatpath failed: was not ready in time"]);
        assert_eq!(case.verdicts[0].outcome, Outcome::NotMeasured);
    }

    #[test]
    fn unequal_work_and_noise_are_said() {
        let mut nginx = row(Kind::Nginx, &[4.0], 300.0);
        nginx.figures.insert(Metric::OthersPercent, 40.0);
        let case = case(vec![nginx, row(Kind::Flatpath, &[3.0], 900.0)]);
        assert_eq!(case.notes.len(), 2, "{:?}", case.notes);
        assert_eq!(
            case.notes[0],
            "other processes were at work beside nginx: measure again"
        );
        assert!(case.notes[1].contains("differ by 600 bytes"));
    }

    #[test]
    fn a_saturated_generator_and_failed_requests_are_said() {
        let mut nginx = row(Kind::Nginx, &[4.0], 300.0);
        nginx.figures.insert(Metric::GeneratorPercent, 99.0);
        let mut ours = row(Kind::Flatpath, &[3.0], 300.0);
        ours.figures.insert(Metric::Errors, 1234.0);
        let case = case(vec![nginx, ours]);
        assert!(
            case.notes[0].starts_with("flatpath: 1,234 requests failed"),
            "{:?}",
            case.notes
        );
        assert!(
            case.notes[1].contains("at its limit with nginx:"),
            "{:?}",
            case.notes
        );
        assert_eq!(case.verdicts[0].outcome, Outcome::Missed);
    }

    #[test]
    fn a_ratio_to_an_absent_server_is_not_shown() {
        let case = case(vec![row(Kind::Flatpath, &[3.0], 300.0)]);
        assert!(case.ratios.is_empty());
        assert!(!case.text().contains("nginx"), "{}", case.text());
    }

    #[test]
    fn the_json_holds_every_run_and_every_verdict() {
        let case = case(vec![
            row(Kind::Nginx, &[4.0, 6.0], 1.0),
            row(Kind::Flatpath, &[2.0], 1.0),
        ]);
        let json = serde_json::to_value(report(vec![case])).expect("serialised");
        let case = &json["cases"][0];
        assert_eq!(case["rows"][0]["server"], "nginx");
        assert_eq!(case["rows"][0]["runs"][1]["server_micros_per_request"], 6.0);
        assert_eq!(case["rows"][0]["figures"]["server_micros_per_request"], 5.0);
        assert_eq!(case["verdicts"][0]["outcome"], "met");
        assert_eq!(json["settings"]["quick"], true);
        assert!(json["machine"]["cores"].as_u64().expect("a number") > 0);
    }
}
