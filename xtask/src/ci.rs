//! `cargo xtask ci [STEP...]`: what the continuous integration checks, with one command.
//!
//! Without steps: all of them, cheapest first, so that a fault which rustfmt finds does not wait
//! for the tests. `.ci/run` prepares a bare machine, runs the tests and then the other steps.

use crate::{Error, loom, process};

/// For the help text.
pub const SUMMARY: &str =
    "all that CI checks: format lint docs musl test loom (or the named steps)";

/// One step by name.
struct Step {
    name: &'static str,
    run: fn() -> Result<(), Error>,
}

const STEPS: &[Step] = &[
    Step {
        name: "format",
        run: format,
    },
    Step {
        name: "lint",
        run: lint,
    },
    Step {
        name: "docs",
        run: docs,
    },
    Step {
        name: "musl",
        run: musl,
    },
    Step {
        name: "test",
        run: test,
    },
    Step {
        name: "loom",
        run: || loom::run(&[]),
    },
];

/// Runs the named steps, or all.
///
/// # Errors
/// A step that does not exist, or the first that fails.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let exists = |name: &String| STEPS.iter().any(|step| step.name == *name);
    if let Some(name) = arguments.iter().find(|name| !exists(name)) {
        return Err(Error::Usage(format!("there is no step {name:?}")));
    }
    let wanted = |step: &&Step| arguments.is_empty() || arguments.iter().any(|n| n == step.name);
    STEPS
        .iter()
        .filter(wanted)
        .try_for_each(|step| (step.run)())
}

fn format() -> Result<(), Error> {
    process::run(&mut process::cargo(&["fmt", "--all", "--", "--check"]))
}

fn lint() -> Result<(), Error> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    process::run(&mut process::cargo(&arguments))
}

fn docs() -> Result<(), Error> {
    let mut command = process::cargo(&["doc", "--workspace", "--no-deps"]);
    process::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// With the other C library everything still compiles: its types differ in places that no test of
/// this machine sees. Needs the target (`rustup target add`), as `.ci/run` installs it.
fn musl() -> Result<(), Error> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    process::run(&mut process::cargo(&[
        "check",
        "--workspace",
        "--target",
        &target,
    ]))
}

fn test() -> Result<(), Error> {
    process::run(&mut process::cargo(&["test"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_step_is_wrong_use() {
        let outcome = run(&["lint".into(), "publish".into()]);
        assert!(matches!(outcome, Err(Error::Usage(why)) if why.contains("publish")));
    }
}
