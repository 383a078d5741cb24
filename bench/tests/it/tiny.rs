//! Every bench with tiny inputs: it runs, and its report is whole. What the figures are does not
//! matter here.

use std::cell::Cell;
use std::rc::Rc;

use flatpath_bench::{BENCHES, BenchReport, Profile, Report, Role, Stage, run};

fn measured(bench: &str, only: Option<&str>) -> Report {
    let steps = Rc::new(Cell::new(0));
    let counted = Rc::clone(&steps);
    let mut stage = Stage {
        profile: Profile::Tiny,
        runs: None,
        server: flatpath_testkit::binary::flatpath().into(),
        only: only.map(Into::into),
        progress: Box::new(move |_| counted.set(counted.get() + 1)),
    };
    let bench = BENCHES.iter().find(|it| it.name == bench).expect("a bench");
    let report = Report::collect(stage.profile, || run(&[*bench], &mut stage));
    let report = report.expect("it runs");
    assert!(steps.get() > 0, "progress is shown");
    report
}

fn tiny(bench: &str) {
    let report = measured(bench, None);
    assert_eq!(report.benches.len(), 1);
    let result = &report.benches[0];
    check(result);

    let text = report.text();
    assert!(
        text.contains(result.name) && text.contains(&report.machine.kernel),
        "{text}"
    );
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["benches"][0]["name"], result.name);
    let rows = &json["benches"][0]["tables"][0]["rows"];
    assert!(rows[0]["figures"][0]["value"].is_number(), "{json}");
}

/// Tables are rectangular, and something is compared in at least one.
fn check(bench: &BenchReport) {
    assert!(!bench.tables.is_empty());
    let has = |role| {
        let mut columns = bench.tables.iter().flat_map(|table| &table.columns);
        columns.any(|column| column.role == role)
    };
    assert!(has(Role::Baseline) && has(Role::Ours), "{}", bench.name);
    for table in &bench.tables {
        assert!(!table.rows.is_empty(), "{}", table.title);
        for row in &table.rows {
            assert_eq!(row.labels.len(), table.labels.len(), "{}", table.title);
            assert_eq!(row.figures.len(), table.columns.len(), "{}", table.title);
            for figure in row.figures.iter().flatten() {
                assert!(
                    figure.value.is_finite() && figure.value >= 0.0,
                    "{}",
                    table.title
                );
                assert!(figure.least <= figure.value && figure.value <= figure.most);
            }
        }
    }
}

#[test]
fn accept_runs_small() {
    tiny("accept");
}

#[test]
fn buffers_runs_small() {
    tiny("buffers");
}

#[test]
fn dispatch_runs_small() {
    tiny("dispatch");
}

#[test]
fn tokens_runs_small() {
    tiny("tokens");
}

#[test]
fn pairing_runs_small() {
    tiny("pairing");
}

#[test]
fn events_run_small() {
    tiny("events");
}

#[test]
fn rules_run_small() {
    tiny("rules");
}

#[test]
fn queue_runs_small() {
    tiny("queue");
}

#[test]
fn neighbours_run_small() {
    let report = measured("neighbours", Some("handlers"));
    let rows = &report.benches[0].tables[0].rows;
    assert!(!rows.is_empty());
    for row in rows {
        let errors = row.figures.last().cloned().flatten();
        let errors = errors.map(|figure| figure.value);
        assert_eq!(errors, Some(0.0), "{:?}", row.labels);
    }
}

#[test]
fn wakeups_run_small() {
    tiny("wakeups");
}

#[test]
fn wheel_runs_small() {
    tiny("wheel");
}
