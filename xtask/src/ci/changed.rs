//! Which of the steps that not every change needs must run: those that cover a file which has
//! changed since `.ci/full` last passed.
//!
//! `.ci/covered` has the commit on which it passed; who runs `.ci/full` commits the new one. The
//! decision errs on the side of work: where that commit or the difference cannot be read, every
//! step runs, and each decision is printed with its reason, so that a wrong one is seen.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result};

use super::Step;
use crate::{process, workspace};

/// Where the commit is that passed.
const COVERED: &str = ".ci/covered";

/// The steps, and the paths that each covers: a directory (with a slash at the end), or the end of
/// a path.
const COVERS: [(Step, &[&str]); 6] = [
    // A manifest decides what is in a package, and what a crate finds beside it.
    (Step::Package, &["Cargo.toml", "README.md", "LICENSE-MIT"]),
    // A manifest has the features, a crate's first file most of what they leave out, and the others
    // what is there in its place.
    (
        Step::Features,
        &[
            "Cargo.toml",
            "src/lib.rs",
            "off.rs",
            "engine/src/network/open_driver.rs",
        ],
    ),
    // Types of the kernel's interface differ by processor; nothing above these names them.
    (Step::Aarch64, &["sys/", "driver/"]),
    // The bodies of models run without the checker with every change.
    (
        Step::Loom,
        &["structures/", "driver/src/waker.rs", "xtask/src/loom.rs"],
    ),
    // Too long for each change of a driver.
    (
        Step::Kernels,
        &["xtask/src/kernels/", "xtask/src/kernels.rs"],
    ),
    (
        Step::Dist,
        &[
            "dist/",
            "xtask/src/dist/",
            "xtask/src/dist.rs",
            "cli/Cargo.toml",
            "cli/src/generate.rs",
            "cli/src/restart.rs",
            "cli/src/service_manager.rs",
        ],
    ),
];

/// What was decided of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Run(Reason),
    Skip { since: String },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// How many files, and the first.
    Changed(usize, String),
    /// Nothing is known of what has changed.
    Unknown(String),
}

impl fmt::Display for Decision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(Reason::Changed(count, first)) => {
                write!(
                    formatter,
                    "runs: {count} files it covers changed, as {first}"
                )
            }
            Self::Run(Reason::Unknown(why)) => write!(formatter, "runs: {why}"),
            Self::Skip { since } => {
                write!(
                    formatter,
                    "NOT RUN: no file it covers changed since {since}; .ci/full runs it"
                )
            }
        }
    }
}

/// What is decided of each step of [`COVERS`] for the tree that is checked out.
pub(super) fn decisions() -> Vec<(Step, Decision)> {
    let changed = changed();
    let decided = COVERS.iter().map(|(step, paths)| {
        let decision = match &changed {
            Ok((since, files)) => decide(paths, since, files),
            Err(why) => Decision::Run(Reason::Unknown(format!("{why:#}"))),
        };
        (*step, decision)
    });
    decided.collect()
}

/// The commit on which all passed, and the files that have changed since.
fn changed() -> Result<(String, Vec<String>)> {
    let root = workspace::root();
    let since = workspace::text(&root.join(COVERED))?.trim().to_owned();
    let mut command = Command::new("git");
    command.current_dir(root);
    command.args([
        "diff",
        "--name-only",
        "--no-renames",
        "--end-of-options",
        &since,
    ]);
    let files = process::output(&mut command);
    let files = files.with_context(|| format!("git knows no {since:?}, as {COVERED} has it"))?;
    Ok((since, files.lines().map(String::from).collect()))
}

fn decide(paths: &[&str], since: &str, changed: &[String]) -> Decision {
    let mut covered = changed.iter().filter(|file| covers(paths, file));
    match covered.next() {
        Some(first) => Decision::Run(Reason::Changed(1 + covered.count(), first.clone())),
        None => Decision::Skip {
            since: since.to_owned(),
        },
    }
}

fn covers(paths: &[&str], file: &str) -> bool {
    paths.iter().any(|path| match path.ends_with('/') {
        true => file.starts_with(path),
        false => file
            .strip_suffix(path)
            .is_some_and(|before| before.is_empty() || before.ends_with('/')),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_runs_if_a_file_it_covers_changed_and_names_it() {
        let paths = ["structures/", "Cargo.toml"];
        let of = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            decide(&paths, "abc", &files)
        };
        let runs = |count, first: &str| Decision::Run(Reason::Changed(count, first.into()));
        assert_eq!(
            of(&["structures/src/queue.rs"]),
            runs(1, "structures/src/queue.rs")
        );
        assert_eq!(
            of(&["a.md", "cli/Cargo.toml", "Cargo.toml"]),
            runs(2, "cli/Cargo.toml")
        );
        let skip = Decision::Skip {
            since: "abc".into(),
        };
        assert_eq!(
            of(&["engine/structures/x.rs", "MyCargo.toml", "Cargo.toml.md"]),
            skip
        );
        assert_eq!(of(&[]), skip);
    }

    #[test]
    fn every_covered_path_exists() {
        let files = process::output(
            Command::new("git")
                .current_dir(workspace::root())
                .args(["ls-files"]),
        );
        let files = files.expect("git lists the files");
        for (step, paths) in COVERS {
            for path in paths {
                let is_there = files.lines().any(|file| covers(&[path], file));
                assert!(is_there, "{} covers {path}, which is nowhere", step.name());
            }
        }
    }

    #[test]
    fn a_step_that_is_left_out_is_named_in_capitals_with_its_reason() {
        let skip = Decision::Skip {
            since: "abc".into(),
        };
        assert!(skip.to_string().starts_with("NOT RUN: "), "{skip}");
    }
}
