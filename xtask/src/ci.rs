//! `cargo xtask ci [STEP...]`: what the continuous integration checks, with one command.
//!
//! Without steps: all of them, cheapest first. `.ci/run` prepares a bare machine, runs the tests
//! and then the others.

use crate::{Error, process};

/// For the help text.
pub const SUMMARY: &str = "all that CI checks: format lint docs test (or only the named steps)";

/// A step: its name, the arguments for cargo, and a variable to set.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
}

/// Cheapest first: a fault that rustfmt finds should not wait for the tests.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        arguments: &["fmt", "--all", "--", "--check"],
        variable: None,
    },
    Step {
        name: "lint",
        arguments: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        variable: None,
    },
    Step {
        name: "docs",
        arguments: &["doc", "--workspace", "--no-deps"],
        variable: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
    Step {
        name: "test",
        arguments: &["test"],
        variable: None,
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
    for step in STEPS.iter().filter(wanted) {
        let mut command = process::cargo(step.arguments);
        if let Some((name, value)) = step.variable {
            command.env(name, value);
        }
        process::run(&mut command)?;
    }
    Ok(())
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
