//! `cargo xtask metrics`: how easy the code is to find one's way in, in numbers that may only fall.
//!
//! | number  | of what                                                                |
//! |---------|------------------------------------------------------------------------|
//! | circles | files of a crate that import each other, see `imports.rs`              |
//! | roots   | imports through a crate's root of what a sibling defines               |
//! | lines   | Rust outside tests: product, and what stands beside it (`lines.rs`)    |
//!
//! The limits stand here and are held by an ordinary test (`tests/metrics.rs`). Whoever gets below
//! one lowers it in the same change.

use std::path::Path;

use crate::style::source::{Source, read_all};
use crate::{Error, workspace};

pub mod imports;
pub mod lines;

use imports::{Imports, Module};
use lines::{Kind, Lines};

/// For the help text.
pub const SUMMARY: &str = "circles of imports, imports through roots, lines outside tests";

/// What may be at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files of the largest circle of any crate.
    pub circle_files: usize,
    /// Circles of more than three files.
    pub large_circles: usize,
    /// Imports through a crate's root of what a sibling defines.
    pub through_root: usize,
    /// Lines outside tests of the product's crates.
    pub product_lines: usize,
    /// The same of benches, test kits and tools.
    pub tool_lines: usize,
}

/// The limits of today.
pub const LIMITS: Limits = Limits {
    circle_files: 30,
    large_circles: 3,
    through_root: 0,
    product_lines: 56_800,
    tool_lines: 27_600,
};

/// A circle may have so many files without being counted as a large one.
const SMALL_CIRCLE_FILES: usize = 3;

/// What was found.
#[derive(Debug)]
pub struct Metrics {
    /// Per crate with a circle: its directory and the circles, the largest first.
    pub circles: Vec<(String, Vec<Vec<String>>)>,
    /// Where imports go through a root: file, line, name.
    pub through_root: Vec<(String, usize, String)>,
    /// Lines per crate.
    pub lines: Vec<Lines>,
}

impl Metrics {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    /// A file that cannot be read or is not Rust.
    pub fn of(root: &Path) -> Result<Self, Error> {
        let sources = read_all(root)?;
        let lines = lines::count(root, &sources)?;
        let mut circles = Vec::new();
        let mut through_root = Vec::new();
        for member in lines.iter().filter(|lines| lines.kind == Kind::Product) {
            let imports = read(&sources, &member.directory)?;
            let found: Vec<Vec<String>> = imports
                .circles()
                .into_iter()
                .map(|circle| circle.into_iter().map(String::from).collect())
                .collect();
            if !found.is_empty() {
                circles.push((member.directory.clone(), found));
            }
            through_root.extend(imports.through_root);
        }
        Ok(Self {
            circles,
            through_root,
            lines,
        })
    }

    /// The numbers that have limits.
    #[must_use]
    pub fn numbers(&self) -> Limits {
        let sizes = self
            .circles
            .iter()
            .flat_map(|(_, circles)| circles.iter().map(Vec::len));
        let sum = |kind: Kind| {
            let crates = self.lines.iter().filter(|lines| lines.kind == kind);
            crates.map(|lines| lines.code).sum()
        };
        Limits {
            circle_files: sizes.clone().max().unwrap_or(0),
            large_circles: sizes.filter(|files| *files > SMALL_CIRCLE_FILES).count(),
            through_root: self.through_root.len(),
            product_lines: sum(Kind::Product),
            tool_lines: sum(Kind::Tool),
        }
    }

    /// What is beyond `limits`, a sentence each.
    #[must_use]
    pub fn beyond(&self, limits: &Limits) -> Vec<String> {
        let found = self.numbers();
        let all = [
            (
                "files of the largest circle",
                found.circle_files,
                limits.circle_files,
            ),
            (
                "circles of more than three files",
                found.large_circles,
                limits.large_circles,
            ),
            (
                "imports through a root",
                found.through_root,
                limits.through_root,
            ),
            (
                "lines of the product",
                found.product_lines,
                limits.product_lines,
            ),
            (
                "lines of benches and tools",
                found.tool_lines,
                limits.tool_lines,
            ),
        ];
        all.iter()
            .filter(|(_, found, limit)| found > limit)
            .map(|(what, found, limit)| format!("{what}: {found}, at most {limit} wanted"))
            .collect()
    }
}

fn read(sources: &[Source], directory: &str) -> Result<Imports, Error> {
    let home = Path::new(directory).join("src");
    let is_ours =
        |source: &&Source| !source.is_test_file && Path::new(&source.path).starts_with(&home);
    let files: Vec<(Module, String, String)> = sources
        .iter()
        .filter(is_ours)
        .map(|source| {
            (
                module_of(&source.path, directory),
                source.path.clone(),
                source.lines.join("\n"),
            )
        })
        .collect();
    Imports::read(&files).map_err(Error::Failed)
}

/// `engine`, `engine/src/network/mod.rs` is `network`.
fn module_of(path: &str, directory: &str) -> Module {
    let inside = path.strip_prefix(directory).unwrap_or(path);
    let inside = inside.trim_start_matches("/src/").trim_end_matches(".rs");
    let mut module: Module = inside.split('/').map(String::from).collect();
    let is_home = module
        .last()
        .is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    if is_home {
        module.pop();
    }
    module
}

/// Prints the numbers with what they are made of.
///
/// # Errors
/// [`Error::Failed`] when a limit is broken.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(other) = arguments.first() {
        return Err(Error::Usage(format!("unexpected argument {other:?}")));
    }
    let metrics = Metrics::of(&workspace::root())?;
    for (directory, circles) in &metrics.circles {
        for circle in circles {
            println!(
                "circle of {} files in {directory}: {}",
                circle.len(),
                circle.join(" ")
            );
        }
    }
    for (file, line, name) in &metrics.through_root {
        println!("{file}:{line}: {name} is imported through the root");
    }
    for kind in [Kind::Product, Kind::Tool] {
        println!("{kind:?}: lines outside tests, in tests");
        for lines in metrics.lines.iter().filter(|lines| lines.kind == kind) {
            println!(
                "  {:24} {:6} {:6}",
                lines.directory, lines.code, lines.tests
            );
        }
    }
    println!("{:#?}", metrics.numbers());
    match metrics.beyond(&LIMITS) {
        beyond if beyond.is_empty() => Ok(()),
        beyond => Err(Error::Failed(beyond.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_a_file_is_its_place() {
        assert_eq!(module_of("engine/src/lib.rs", "engine"), Module::new());
        assert_eq!(
            module_of("engine/src/network/mod.rs", "engine"),
            ["network"]
        );
        assert_eq!(
            module_of("engine/src/network/accept.rs", "engine"),
            ["network", "accept"]
        );
    }

    #[test]
    fn what_is_beyond_a_limit_is_said() {
        let metrics = Metrics {
            circles: vec![(
                "engine".into(),
                vec![vec!["a".into(); 4], vec!["b".into(); 2]],
            )],
            through_root: vec![("a".into(), 1, "B".into())],
            lines: Vec::new(),
        };
        let nothing = Limits {
            circle_files: 0,
            large_circles: 0,
            through_root: 0,
            product_lines: 0,
            tool_lines: 0,
        };
        assert_eq!(metrics.beyond(&nothing).len(), 3);
        assert!(metrics.beyond(&metrics.numbers()).is_empty());
        assert_eq!(metrics.numbers().large_circles, 1);
    }
}
