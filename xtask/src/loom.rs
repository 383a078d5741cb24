//! `cargo xtask loom [FILTER...]` and `cargo xtask shuttle [FILTER...]`: the structures under a
//! model checker.
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

/// Runs the tests whose names hold one of the filters, or else one of the prefixes.
pub(crate) fn run(checker: &str, prefixes: &[&str], filters: &[String]) -> Result<()> {
    let target = format!("target/{checker}");
    let mut command = process::cargo(&["test", "--package", "flatpath-structures", "--tests"]);
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
        End::TimedOut => bail!("still running after {TIME_MAX:?}"),
        End::Exited(status) => ensure!(
            status.success(),
            "{} of {} tests failed",
            summary.failed,
            summary.ran()
        ),
    }
    ensure!(summary.ran() > 0, "no test ran: nothing was checked");
    println!("{checker}: {} tests passed", summary.passed);
    Ok(())
}
