//! `cargo xtask ci [STEP...]`: what the continuous integration checks, with one command.
//!
//! Without steps: all of them, cheapest first, so that a fault which rustfmt finds does not wait
//! for the tests. `.ci/run` prepares a bare machine, runs the tests and then the other steps.

use anyhow::Result;
use clap::ValueEnum;

use crate::{loom, process};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Step {
    Format,
    Lint,
    Docs,
    /// With the other C library everything still compiles: its types differ in places that no test
    /// of this machine sees. Needs the target (`rustup target add`), as `.ci/run` installs it.
    Musl,
    Test,
    Loom,
}

pub(crate) fn run(steps: &[Step]) -> Result<()> {
    let all = Step::value_variants();
    let steps = if steps.is_empty() { all } else { steps };
    steps.iter().try_for_each(|step| run_step(*step))
}

fn run_step(step: Step) -> Result<()> {
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut command = match step {
        Step::Format => process::cargo(&["fmt", "--all", "--", "--check"]),
        Step::Lint => {
            let mut command = process::cargo(&["clippy", "--workspace", "--all-targets"]);
            command.args(["--", "-D", "warnings"]);
            command
        }
        Step::Docs => {
            let mut command = process::cargo(&["doc", "--workspace", "--no-deps"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            command
        }
        Step::Musl => process::cargo(&["check", "--workspace", "--target", &musl]),
        Step::Test => process::cargo(&["test"]),
        Step::Loom => return loom::run("loom", &["loom_"], &[]),
    };
    process::run(&mut command)
}
