//! `cargo xtask style`: the rules of this repository that rustc, clippy, rustfmt and cargo do not
//! check.
//!
//! Every rule is a file beside this one and reports `file:line: [rule] what is wrong`. The scanner
//! in `source.rs` knows tokens, not Rust's grammar: a rule is a check for the honest, not a proof.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace;

mod absent;
mod atomics;
mod denied;
mod drills;
mod exhaustive;
mod features;
mod files;
mod forbidden;
mod hazard_table;
mod labels;
pub(crate) mod layering;
mod names;
mod repository;
pub(crate) mod source;
mod targets;
mod user_code;

use source::Source;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    /// Path relative to the workspace's root.
    file: String,
    /// From 1.
    line: usize,
    rule: &'static str,
    message: String,
}

impl Fault {
    fn new(file: &str, line: usize, rule: &'static str, message: &str) -> Self {
        let (file, message) = (file.to_owned(), message.to_owned());
        Self {
            file,
            line,
            rule,
            message,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            rule,
            message,
        } = self;
        write!(out, "{file}:{line}: [{rule}] {message}")
    }
}

/// A rule over one Rust file.
type FileRule = fn(&Source, &mut Vec<Fault>);

const FILE_RULES: &[FileRule] = &[
    files::check,
    atomics::check,
    names::check,
    forbidden::check,
    user_code::check,
    exhaustive::check,
];

/// Runs every rule over the workspace at `root`; the faults in order of file and line.
fn check(root: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let sources = source::all()?;
    for source in sources {
        for rule in FILE_RULES {
            rule(source, &mut faults);
        }
    }
    atomics::check_edges(sources, &mut faults);
    labels::check(sources, &mut faults);
    drills::check(root, sources, &mut faults)?;
    hazard_table::check(root, sources, &mut faults)?;
    layering::check(&mut faults)?;
    features::check(&mut faults)?;
    absent::check(&mut faults)?;
    targets::check(sources, &mut faults)?;
    denied::check(root, sources, &mut faults)?;
    repository::check(root, &mut faults)?;
    faults.sort();
    Ok(faults)
}

/// Prints the faults of this workspace.
pub(crate) fn run() -> Result<()> {
    let faults = check(&workspace::root())?;
    for fault in &faults {
        println!("{fault}");
    }
    ensure!(faults.is_empty(), "{} faults", faults.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_the_rules_of_the_repository() {
        run().expect("no fault, or those above");
    }

    #[test]
    fn the_checker_reads_every_crate_of_the_workspace() {
        let files = workspace::files(&workspace::root(), |path| path.ends_with("src/lib.rs"));
        let files = files.expect("the workspace can be read");
        for directory in [
            "structures",
            "driver",
            "engine",
            "protocols/http",
            "services/files",
            "testkit",
        ] {
            let root = Path::new(directory).join("src/lib.rs");
            assert!(files.contains(&root), "{} was not seen", root.display());
        }
    }

    /// The line and rule of each fault that a rule finds in a file.
    pub(super) fn faults(rule: FileRule, path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        let source = Source::new(Path::new(path), text).expect("Rust");
        rule(&source, &mut faults);
        faults
            .iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }
}
