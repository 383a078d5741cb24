//! Lines of Rust in and outside tests, for each crate.
//!
//! A line is outside tests when its file is not for tests alone (`tests/`, a fuzz target) and no
//! `#[cfg(test)]` or `#[test]` covers it. Comments and empty lines count: they are read as well.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::style::layering::PRODUCT;
use crate::style::source::Source;
use crate::workspace;

/// What a crate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Part of what users run or build on.
    Product,
    /// Benches, test kits and the project's own commands.
    Tool,
}

/// What tests share is no test itself: a tool.
const TEST_KIT: &str = "e2e/src";

/// What a fuzz target checks is a test, though it is no file of `tests/`: two programs run it.
const FUZZ_TARGETS: &str = "fuzz/src/targets";

/// Programs that prove what a user of the crates can reach: crates, or files of a crate.
const EXAMPLES: &str = "examples";

/// The lines of one crate.
#[derive(Debug)]
pub(super) struct Lines {
    /// Its directory, relative to the workspace's root.
    pub(super) directory: String,
    /// What it is for.
    pub(super) kind: Kind,
    /// Lines outside tests.
    pub(super) code: usize,
    /// Lines of tests, those of `tests/` among them.
    pub(super) tests: usize,
}

/// Counts the lines of every crate of the workspace at `root`, whose files are `sources`.
pub(super) fn count(root: &Path, sources: &[Source]) -> Result<Vec<Lines>> {
    let crates = crates(root)?;
    let mut counts: BTreeMap<&String, (usize, usize)> =
        crates.iter().map(|name| (name, (0, 0))).collect();
    for source in sources {
        let homes = crates
            .iter()
            .filter(|name| Path::new(&source.path).starts_with(name));
        let Some(home) = homes.max_by_key(|name| name.len()) else {
            continue;
        };
        let is_kit = Path::new(&source.path).starts_with(TEST_KIT);
        let is_target = Path::new(&source.path).starts_with(FUZZ_TARGETS);
        let mut parts = Path::new(&source.path).components();
        let is_example = parts.any(|part| part.as_os_str() == EXAMPLES);
        let is_test = |line: &usize| is_target || is_example || !is_kit && source.is_test(*line);
        let lines = source.lines().count();
        let tests = (1..=lines).filter(is_test).count();
        if let Some((code, in_tests)) = counts.get_mut(home) {
            *code += lines - tests;
            *in_tests += tests;
        }
    }
    let lines = counts.into_iter().map(|(directory, (code, tests))| Lines {
        directory: directory.clone(),
        kind: kind_of(directory),
        code,
        tests,
    });
    Ok(lines.collect())
}

fn kind_of(directory: &str) -> Kind {
    let is_in = |product: &&str| Path::new(directory).starts_with(product);
    match PRODUCT.iter().any(is_in) {
        true => Kind::Product,
        false => Kind::Tool,
    }
}

/// Directories with a manifest of a package.
fn crates(root: &Path) -> Result<Vec<String>> {
    let manifests = workspace::files(root, |path| path.ends_with("Cargo.toml"))?;
    let homes = manifests.iter().filter_map(|path| path.parent());
    Ok(homes
        .map(|home| home.to_string_lossy().into_owned())
        .filter(|home| !home.is_empty())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::source;

    #[test]
    fn the_workspace_has_both_kinds() {
        let root = workspace::root();
        let sources = source::all().expect("the files can be read");
        let lines = count(&root, sources).expect("the workspace can be read");
        let of = |name: &str| lines.iter().find(|lines| lines.directory == name);
        let engine = of("engine").expect("the engine is counted");
        assert!(engine.kind == Kind::Product && engine.code > 1_000 && engine.tests > 1_000);
        assert!(of("xtask").is_some_and(|lines| lines.kind == Kind::Tool));
        assert!(
            of("bench/common").is_some(),
            "a crate within another's directory"
        );
    }
}
