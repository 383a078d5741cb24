//! Acts on a comparison: starts its candidates, gives them their turns, and makes a report of what
//! came of it, compared with what was wanted.

use std::fmt::Display;
use std::io;

use flatpath_bench_common::report::BenchReport;
use flatpath_bench_common::servers::interleave;

use crate::comparison::{Beside, Comparison, Row, Turn, Wish};
use crate::ground::Ground;

/// Measures each row of a comparison so often.
///
/// # Errors
/// Only if the bench was told to stop: a candidate that fails is a line in the report.
pub(crate) fn run(
    comparison: &Comparison,
    runs: usize,
    ground: &Ground,
) -> io::Result<BenchReport> {
    let Comparison { about, load, .. } = comparison;
    let rows: Vec<&Row> = comparison.rows.iter().collect();
    let start = |row| load.start(ground, row);
    let turn = |_, turn: &mut Turn<'_>| turn();
    let mut table = interleave(about, runs, &rows, start, turn)?;
    let remarks = load.remarks(ground, &mut table);
    for (metric, to) in &comparison.ratios {
        table = table.with_ratio(*metric, to);
    }
    let mut report = BenchReport::of_servers(comparison.bench, about.as_str(), table);
    report
        .notes
        .extend(comparison.notes.iter().map(ToString::to_string));
    report.notes.extend(remarks);
    for wish in &comparison.wishes {
        compare(&mut report, wish);
    }
    Ok(report)
}

/// Notes what came of a wish.
fn compare(report: &mut BenchReport, wish: &Wish) {
    let Wish {
        row,
        metric,
        beside,
        wanted,
    } = wish;
    let best;
    let reference = match beside {
        Beside::Nothing => None,
        Beside::Row(other) => Some((other as &dyn Display, *metric)),
        Beside::Best(others) => {
            let table = &report.tables[0];
            let known = others
                .iter()
                .filter_map(|it| Some((it, table.of(it, *metric)?)));
            let Some((lowest, _)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                return;
            };
            best = lowest;
            Some((best as &dyn Display, *metric))
        }
        Beside::Own(other) => Some((row as &dyn Display, *other)),
        Beside::Paired(other) => {
            let ratio = report.tables[0].paired(row, other, *metric);
            let what = format!("{row} {} / {other}", metric.name);
            return report.target(what, "x", *wanted, ratio);
        }
    };
    report.target_of((row, *metric), reference, *wanted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Load, beside};
    use crate::ground::{Pace, Programs};
    use crate::server::{Needs, Service};
    use flatpath_bench_common::report::Table;
    use flatpath_bench_common::report::Wanted::AtMost;
    use flatpath_bench_common::servers::{CPU, P50, P99};

    /// Figures by the row's name.
    struct Known;

    impl Load for Known {
        fn start<'a>(&'a self, _: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
            let cpu = if row.name == "ours" { 2.0 } else { 4.0 };
            Ok(Box::new(move || {
                Ok(vec![(CPU, cpu), (P99, 8.0), (P50, 1.0)])
            }))
        }

        fn remarks(&self, _: &Ground, table: &mut Table) -> Vec<String> {
            table.drop_column(P50);
            vec!["remarked".into()]
        }
    }

    #[test]
    fn a_comparison_becomes_a_table_with_ratios_targets_and_notes() {
        let pace = Pace {
            seconds: 1,
            is_quick: true,
        };
        let ground = Ground::prepare(Programs::default(), pace).expect("prepared");
        let needs = Needs::of(Service::Http, 1);
        let row = |name| Row::named(name, None, needs.clone());
        let rows = vec![row("theirs"), row("ours")];
        let mut table = Comparison::new("files", "kept", rows, Known)
            .ratios("theirs", &[CPU])
            .note("noted");
        for (beside, most) in [
            (beside("theirs"), 0.4),
            (Beside::Own(P99), 0.25),
            (Beside::Nothing, 1.0),
            (Beside::Paired("theirs".into()), 0.5),
            (Beside::Row("absent".into()), 1.0),
            (
                Beside::Best(vec!["absent".into(), "ours".into(), "theirs".into()]),
                1.0,
            ),
            (Beside::Best(vec!["absent".into()]), 1.0),
        ] {
            table = table.wants(["ours"], CPU, &beside, AtMost(most));
        }
        let report = run(&table, 3, &ground).expect("not interrupted");
        let columns = report.tables[0].columns.iter().map(|it| &*it.name);
        assert_eq!(columns.collect::<Vec<_>>(), [CPU.name, P99.name]);
        assert_eq!(report.tables[0].ratios.len(), 1);
        assert_eq!(report.notes, ["noted", "remarked"]);
        let targets = report.targets.iter();
        let targets: Vec<_> = targets
            .map(|it| (&*it.what, it.reached.to_string(), it.met))
            .collect();
        let expected = [
            ("ours CPU us/req / theirs", "0.5", false),
            ("ours CPU us/req / ours p99 us", "0.25", true),
            ("ours CPU us/req", "2", false),
            ("ours CPU us/req / theirs", "0.5", true),
            ("ours CPU us/req / ours", "1", true),
        ];
        assert_eq!(
            targets,
            expected.map(|(what, it, met)| (what, it.to_owned(), met))
        );
    }
}
