//! `cargo xtask metrics`: how easy the code is to find one's way in.
//!
//! | number  | of what                                                                |
//! |---------|------------------------------------------------------------------------|
//! | imports | circles of files of a crate that import each other (`imports.rs`)      |
//! | roots   | imports through a crate's root of what a sibling defines               |
//! | reach   | fields that a function can name, of all that it is given (`reach.rs`)  |
//! | lines   | Rust outside tests: product, and what stands beside it (`lines.rs`)    |
//!
//! Circles, imports through roots and the reach in the network threads have limits, which an
//! ordinary test holds.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::style::source::{self, Source};
use crate::workspace;

mod imports;
mod lines;
mod reach;

use imports::{Imports, Module};
use lines::{Kind, Lines};
use reach::{Reach, Reached};

/// What may be at most.
const LIMITS: [(&str, usize); 3] = [
    ("files of the largest circle of imports", 3),
    ("imports through a root", 0),
    (
        "fields within the reach of a function of the network threads",
        34,
    ),
];

/// The folder of the last limit.
const NETWORK: &str = "engine/src/network";

/// What a reader can keep in mind: folders below are not shown.
const REACH_SHOWN: usize = 30;

struct Metrics {
    /// Per circle of imports: its crate's directory and its files.
    circles: Vec<(String, Vec<String>)>,
    /// Where imports go through a root: file, line, name.
    through_root: Vec<(String, usize, String)>,
    /// Per folder of a crate, by its place: the largest reach, and the function.
    reach: Vec<(String, Reached)>,
    lines: Vec<Lines>,
}

impl Metrics {
    fn of(root: &Path) -> Result<Self> {
        let sources = source::all()?;
        let lines = lines::count(root, sources)?;
        let (mut circles, mut through_root) = (Vec::new(), Vec::new());
        let mut reach = Vec::new();
        for Lines { directory, .. } in lines.iter().filter(|lines| lines.kind == Kind::Product) {
            let (imports, reaches) = read(sources, directory)?;
            for (folder, largest) in reaches.largest() {
                reach.push((format!("{directory}/src/{folder}"), largest));
            }
            for circle in imports.circles() {
                let files = circle.into_iter().map(String::from).collect();
                circles.push((directory.clone(), files));
            }
            through_root.extend(imports.through_root);
        }
        Ok(Self {
            circles,
            through_root,
            reach,
            lines,
        })
    }

    /// The numbers that have limits.
    fn numbers(&self) -> [usize; 3] {
        let of_imports = self.circles.iter().map(|(_, files)| files.len());
        let network = self.reach.iter().find(|(folder, _)| folder == NETWORK);
        [
            of_imports.max().unwrap_or(0),
            self.through_root.len(),
            network.map_or(usize::MAX, |(_, reached)| reached.fields()),
        ]
    }
}

/// Prints numbers beside their limits, and fails if one is beyond.
fn hold(found: &[usize], limits: &[(&str, usize)]) -> Result<()> {
    let mut beyond = Vec::new();
    for ((what, limit), found) in limits.iter().zip(found) {
        println!("{what}: {found}, at most {limit}");
        if found > limit {
            beyond.push(*what);
        }
    }
    ensure!(beyond.is_empty(), "beyond the limit: {}", beyond.join(", "));
    Ok(())
}

fn read(sources: &[Source], directory: &str) -> Result<(Imports, Reach)> {
    let home = Path::new(directory).join("src");
    let is_ours =
        |source: &&Source| !source.is_test_file && Path::new(&source.path).starts_with(&home);
    let ours = sources.iter().filter(is_ours);
    let files: Vec<(Module, &Source)> = ours
        .map(|source| (module_of(&source.path, directory), source))
        .collect();
    let parse = |(_, source): &(Module, &Source)| {
        syn::parse_file(&source.text).with_context(|| source.path.clone())
    };
    let parsed: Vec<syn::File> = files.iter().map(parse).collect::<Result<_>>()?;
    Ok((Imports::read(&files, &parsed), Reach::read(&files, &parsed)))
}

/// In `engine`, `engine/src/network/mod.rs` is `network`.
fn module_of(path: &str, directory: &str) -> Module {
    let inside = path.strip_prefix(directory).unwrap_or(path);
    let inside = inside.trim_start_matches("/src/").trim_end_matches(".rs");
    let mut module: Module = inside.split('/').map(String::from).collect();
    module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    module
}

/// Prints the numbers with what they are made of.
pub(crate) fn run() -> Result<()> {
    let metrics = Metrics::of(&workspace::root())?;
    for (directory, files) in &metrics.circles {
        let count = files.len();
        println!(
            "{count} files in {directory} import each other: {}",
            files.join(" ")
        );
    }
    for (file, line, name) in &metrics.through_root {
        println!("{file}:{line}: {name} is imported through the root");
    }
    println!("fields within the reach of a function: the largest of a folder, above {REACH_SHOWN}");
    for (folder, reached) in &metrics.reach {
        let (fields, name) = (reached.fields(), &reached.function);
        if fields > REACH_SHOWN {
            println!("  {folder:40} {fields:4} {name}");
        }
        if folder == NETWORK {
            println!("    of {}", reached.parts());
        }
    }
    for kind in [Kind::Product, Kind::Tool] {
        println!("{kind:?}: lines outside tests, in tests");
        for lines in metrics.lines.iter().filter(|lines| lines.kind == kind) {
            let Lines {
                directory,
                code,
                tests,
                ..
            } = lines;
            println!("  {directory:24} {code:6} {tests:6}");
        }
    }
    hold(&metrics.numbers(), &LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_roots_stay_within_their_limits() {
        run().expect("cargo xtask metrics shows where");
    }

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
    fn what_is_beyond_a_limit_is_named() {
        let metrics = Metrics {
            circles: vec![
                ("engine".into(), vec!["a".into(); 4]),
                ("engine".into(), vec!["b".into(); 2]),
            ],
            through_root: vec![("a".into(), 1, "B".into())],
            reach: vec![(NETWORK.into(), Reached::of("A", 5))],
            lines: Vec::new(),
        };
        assert_eq!(metrics.numbers(), [4, 1, 5]);
        assert!(hold(&[2, 1], &[("a", 2), ("b", 1)]).is_ok());
        let beyond = hold(&[3, 1], &[("a", 2), ("b", 1)]).expect_err("one is");
        assert!(beyond.to_string().ends_with(": a"));
    }
}
