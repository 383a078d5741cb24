//! `cargo xtask loom [FILTER...]` and `cargo xtask shuttle [FILTER...]`: what threads share without
//! a lock, the structures and the driver's wakers, under a model checker.
//!
//! Loom runs every `loom_` test in every interleaving of at most two preemptions (set
//! `LOOM_MAX_PREEMPTIONS` for more). It does not model relaxed accesses fully and sees nothing
//! outside `sync.rs`: the other tools are not optional.
//!
//! Shuttle tries random schedules of the same bodies, and of larger ones called `shuttle_`. It sees
//! spurious wake-ups, which loom does not, and scales to shapes that loom cannot finish; it models
//! only sequential consistency and proves nothing.
//!
//! Each wants its own build of everything, so it has its own target directory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::process::{self, End, Show};
use crate::test_summary::TestSummary;

/// What a build and run under a model checker needs, unless the caller sets it: the bound on
/// preemptions, and optimisation with the assertions on, as a model runs its body many times.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("LOOM_MAX_PREEMPTIONS", "2"),
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_TEST_OPT_LEVEL", "3"),
];
/// A model that has not ended by then explores too much.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Sets the checker's `cfg`, and what its build and run need.
pub(crate) fn configure(command: &mut Command, checker: &str) {
    command.env("RUSTFLAGS", format!("--cfg {checker}"));
    for (name, value) in ENVIRONMENT {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
}

/// The crates that have bodies of models, by the directory of each.
const MODELLED: [(&str, &str); 2] = [
    ("flatpath-structures", "structures"),
    ("flatpath-driver", "driver"),
];
/// Those that shuttle can run.
const SHUTTLED: usize = 1;

/// Runs the tests of each crate with models whose names hold one of the filters, or else one of the
/// prefixes.
pub(crate) fn run(checker: &str, prefixes: &[&str], filters: &[String]) -> Result<()> {
    let crates = match checker {
        "shuttle" => &MODELLED[..SHUTTLED],
        _ => &MODELLED[..],
    };
    let mut passed = 0;
    for (package, _) in crates {
        let summary = run_package(checker, package, prefixes, filters)?;
        // A filter may be for one of them.
        let is_empty = summary.ran() == 0 && filters.is_empty();
        ensure!(!is_empty, "no test of {package} ran: nothing was checked");
        passed += summary.passed;
    }
    ensure!(passed > 0, "no test ran: nothing was checked");
    println!("{checker}: {passed} tests passed");
    Ok(())
}

fn run_package(
    checker: &str,
    package: &str,
    prefixes: &[&str],
    filters: &[String],
) -> Result<TestSummary> {
    let target = format!("target/{checker}");
    let mut command = process::cargo(&["test", "--package", package, "--lib"]);
    command.args(["--target-dir", &target, "--"]);
    if filters.is_empty() {
        command.args(prefixes);
    } else {
        command.args(filters);
    }
    configure(&mut command, checker);
    let report = process::watch(&command, TIME_MAX, Show::Lines)?;
    let summary = TestSummary::of(&report.lines);
    match report.end {
        End::TimedOut => bail!("{package} is still running after {TIME_MAX:?}"),
        End::Exited(status) => ensure!(
            status.success(),
            "{} of {} tests of {package} failed",
            summary.failed,
            summary.ran()
        ),
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use crate::style::source;

    use super::*;

    #[test]
    fn every_crate_with_bodies_of_models_is_run() {
        for source in source::all().expect("the sources") {
            let is_listed = MODELLED
                .iter()
                .any(|(_, directory)| source.path.starts_with(&format!("{directory}/")));
            // The tools have such names in texts.
            let has_models = source
                .text
                .lines()
                .any(|it| it.trim().starts_with("fn loom_"));
            assert!(is_listed || !has_models, "{} has models", source.path);
        }
    }
}
