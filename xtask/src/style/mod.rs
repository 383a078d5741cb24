//! `cargo xtask style`: the rules of the house that a program can check.
//!
//! Every rule is a file beside this one and says `file:line: [rule] what is wrong`. The scanner in
//! `source.rs` knows strings, comments and braces, not Rust's grammar: a rule is a check for the
//! honest, not a proof.
//!
//! What it does not do: formatting (rustfmt) and everything clippy already says.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Error, workspace};

pub mod arrows;
pub mod drills;
pub mod forbidden;
pub mod hazards;
pub mod header;
pub mod house;
pub mod lengths;
pub mod names;
pub mod orders;
pub mod source;
pub mod unsafety;

use source::Source;

/// For the help text.
pub const SUMMARY: &str =
    "check the rules of the house: headers, orderings, arrows, lengths, names";

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Path relative to the workspace's root.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The rule's short name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}:{}: [{}] {}",
            self.file, self.line, self.rule, self.message
        )
    }
}

/// A rule over one Rust file.
type FileRule = fn(&Source, &mut Vec<Fault>);

/// The rules that look at one Rust file at a time.
const FILE_RULES: &[FileRule] = &[
    header::check,
    lengths::check,
    orders::check,
    unsafety::check,
    names::check,
    forbidden::check,
];

/// Runs every rule over the workspace at `root`; the faults in order of file and line.
///
/// # Errors
/// A file or manifest that cannot be read; broken rules are not errors here.
pub fn check(root: &Path) -> Result<Vec<Fault>, Error> {
    let mut faults = Vec::new();
    let sources = source::read_all(root)?;
    for source in &sources {
        for rule in FILE_RULES {
            rule(source, &mut faults);
        }
    }
    orders::check_edges(&sources, &mut faults);
    drills::check(root, &sources, &mut faults)?;
    hazards::check(root, &sources, &mut faults)?;
    arrows::check(root, &mut faults)?;
    house::check(root, &mut faults)?;
    faults.sort();
    Ok(faults)
}

/// Prints the faults of this workspace, or of the one in the named directory.
///
/// # Errors
/// [`Error::Failed`] when there is a fault.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let root = match arguments {
        [] => workspace::root(),
        [directory] => PathBuf::from(directory),
        [_, other, ..] => return Err(Error::Usage(format!("unexpected argument {other:?}"))),
    };
    let faults = check(&root)?;
    for fault in &faults {
        println!("{fault}");
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(Error::Failed(format!("{count} faults"))),
    }
}
