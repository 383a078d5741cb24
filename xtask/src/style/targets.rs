//! Rule `untested`: a library or program that cargo is told not to test has no tests.
//!
//! `test = false` in a manifest saves the build of a test program without a test. A test that is
//! added later would never run.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Fault;
use super::source::Source;
use crate::{process, workspace};

/// What `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: String,
    test: bool,
}

pub(super) fn check(sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let mut command = process::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let text = process::output(&mut command).context("cargo metadata fails")?;
    let metadata: Metadata = serde_json::from_str(&text)?;
    let targets = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets);
    for target in targets.filter(|target| !target.test) {
        let root = workspace::root();
        let path = target.src_path.strip_prefix(&*root.to_string_lossy());
        check_target(
            path.unwrap_or(&target.src_path).trim_start_matches('/'),
            target,
            sources,
            faults,
        );
    }
    Ok(())
}

/// A library is all files of its directory, but those of programs; a program is one file.
fn check_target(path: &str, target: &Target, sources: &[Source], faults: &mut Vec<Fault>) {
    let home = path
        .strip_suffix("lib.rs")
        .filter(|_| target.kind.contains(&"lib".to_owned()));
    for source in sources {
        let is_ours = match (home, home.and_then(|home| source.path.strip_prefix(home))) {
            (Some(_), Some(inside)) => inside != "main.rs" && !inside.starts_with("bin/"),
            _ => source.path == path,
        };
        let line = source.lines().find(|(_, line)| line.trim() == "#[test]");
        if let Some((line, _)) = line.filter(|_| is_ours) {
            let message = "never runs: the manifest of its crate has `test = false`";
            faults.push(source.fault(line, "untested", message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_what_is_not_tested_is_a_fault() {
        let text = "fn a() {}\n#[test]\nfn b() {}\n";
        let at = |path: &str| Source::new(path.as_ref(), text).expect("Rust");
        let sources = ["a/src/b.rs", "a/src/main.rs", "b/src/b.rs"].map(at);
        let places = |kind: &str, src_path: &str| {
            let target = Target {
                kind: vec![kind.to_owned()],
                src_path: src_path.to_owned(),
                test: false,
            };
            let mut faults = Vec::new();
            check_target(src_path, &target, &sources, &mut faults);
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let message = "never runs: the manifest of its crate has `test = false`";
        assert_eq!(
            places("lib", "a/src/lib.rs"),
            [format!("a/src/b.rs:2: [untested] {message}")]
        );
        assert_eq!(
            places("bin", "a/src/main.rs"),
            [format!("a/src/main.rs:2: [untested] {message}")]
        );
    }
}
