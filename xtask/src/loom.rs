//! `cargo xtask loom [FILTER...]`: the structures under the loom model checker.
//!
//! Every `loom_` test, in every interleaving of at most two preemptions (set `LOOM_MAX_PREEMPTIONS`
//! for more). Loom wants its own build of everything, so it has its own target directory. Loom does
//! not model relaxed accesses fully and sees nothing outside `sync.rs`: the other tools are not
//! optional.

use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::process::{self, End, Show};
use crate::tally::Tally;

/// For the help text.
pub const SUMMARY: &str = "model-check the structures with loom";

/// Preemptions per execution, unless the caller sets the variable.
const PREEMPTIONS: (&str, &str) = ("LOOM_MAX_PREEMPTIONS", "2");
/// Optimised, with the assertions on: a model runs its body many thousand times.
const SPEED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "3");
const TEST_SPEED: (&str, &str) = ("CARGO_PROFILE_TEST_OPT_LEVEL", "3");
/// A model that has not ended by then explores too much.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Runs the `loom_` tests whose names hold one of the filters.
///
/// # Errors
/// A test fails, none ran, or the time is over.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    model("loom", &["loom_"], arguments)
}

/// Sets what a build and run under a model checker needs: its `cfg`, full speed, and the bound on
/// preemptions.
pub fn configure(command: &mut Command, checker: &str) {
    command.env("RUSTFLAGS", format!("--cfg {checker}"));
    for (name, value) in [SPEED, TEST_SPEED, PREEMPTIONS] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
}

/// Builds the structures with `--cfg CHECKER` and runs the tests with one of the prefixes, or those
/// the caller names.
///
/// # Errors
/// A test fails, none ran, or the time is over.
pub fn model(checker: &str, prefixes: &[&str], arguments: &[String]) -> Result<(), Error> {
    let target = format!("target/{checker}");
    let mut command = process::cargo(&["test", "--package", "flatpath-structures", "--tests"]);
    command.args(["--target-dir", &target, "--"]);
    if arguments.is_empty() {
        command.args(prefixes);
    } else {
        command.args(arguments);
    }
    configure(&mut command, checker);
    let report = process::watch(&mut command, TIME_MAX, Show::Lines)?;
    let tally = Tally::of(&report.lines);
    match report.end {
        End::TimedOut => Err(Error::Failed(format!("still running after {TIME_MAX:?}"))),
        End::Exited(status) if !status.success() => Err(Error::Failed(format!(
            "{} of {} tests failed",
            tally.failed,
            tally.ran()
        ))),
        End::Exited(_) if tally.ran() == 0 => Err(Error::Failed(format!(
            "no test is named {prefixes:?}: nothing was checked"
        ))),
        End::Exited(_) => {
            println!("{checker}: {} tests passed", tally.passed);
            Ok(())
        }
    }
}
