//! The test programs of this build, and the tests in each.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::selection::{self, name_in};
use crate::process;

/// The package whose tests start `flatpath serve`, and the one that is it.
const TESTS_THE_SERVER: &str = "flatpath-e2e";
const SERVER: &str = "flatpath-cli";

/// A test program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) package: String,
    /// The package and the program.
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// The package's: where cargo runs it.
    pub(super) directory: PathBuf,
    /// The names of its tests, sorted.
    pub(super) tests: Vec<String>,
}

impl Program {
    /// Leaves the tests that have one of these in their names; all, if there is none.
    pub(super) fn select(&mut self, filters: &[&str]) {
        let wanted = |test: &String| filters.iter().any(|filter| test.contains(filter));
        self.tests.retain(|test| filters.is_empty() || wanted(test));
    }
}

/// How much is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of the workspace, as `cargo test --workspace` does: what that has built is taken.
    Workspace,
    /// The packages and what they use.
    Packages,
}

/// Builds the test programs of these packages, and the server if their tests start it. Of each only
/// the tests whose names begin as told.
pub(super) fn build(packages: &[(&str, &[&str])], extent: Extent) -> Result<Vec<Program>> {
    let names: Vec<&str> = packages.iter().map(|(package, _)| *package).collect();
    let selected = |names: &[&str]| match extent {
        Extent::Workspace => selection::of(&[]),
        Extent::Packages => selection::of(names),
    };
    if names.contains(&TESTS_THE_SERVER) {
        let mut command = process::cargo(&["build", "--bin", "flatpath"]);
        process::run(command.args(selected(&[SERVER])?))?;
    }
    let mut command = process::cargo(&["test", "--no-run"]);
    command.args(selected(&names)?);
    command.arg("--message-format=json-render-diagnostics");
    let lines = process::output(&mut command).context("the tests do not build")?;
    let mut programs = Vec::new();
    for line in lines.lines() {
        programs.extend(program(line, packages)?);
    }
    for (package, begins) in packages {
        let mut of_it = programs
            .iter()
            .filter(|program| program.package == *package);
        ensure!(
            of_it.next().is_some(),
            "no test program of {package} {begins:?}"
        );
    }
    programs.sort_by_key(|program| {
        let place = packages
            .iter()
            .position(|(name, _)| *name == program.package);
        (place, program.name.clone())
    });
    Ok(programs)
}

/// The program in a line of cargo's, if it is one with tests that are wanted.
fn program(line: &str, packages: &[(&str, &[&str])]) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(line)?;
    if message["profile"]["test"] != true {
        return Ok(None);
    }
    let (Some(file), Some(manifest)) = (
        message["executable"].as_str(),
        message["manifest_path"].as_str(),
    ) else {
        return Ok(None);
    };
    let identity = message["package_id"].as_str().context("a package")?;
    let Some(&(package, begins)) = packages.iter().find(|(it, _)| *it == name_in(identity)) else {
        return Ok(None);
    };
    let target = message["target"]["name"].as_str().context("a target")?;
    let listed = process::output(Command::new(file).args(["--list", "--format=terse"]));
    let listed = listed.with_context(|| format!("{file} lists no tests"))?;
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let mut tests: Vec<String> = names
        .filter(|name| begins.iter().any(|begin| name.starts_with(begin)))
        .map(String::from)
        .collect();
    tests.sort();
    let kind = match message["target"]["kind"][0].as_str() {
        Some("lib") => "(lib)",
        _ => target,
    };
    Ok((!tests.is_empty()).then(|| Program {
        package: package.to_owned(),
        name: format!("{package} {kind}"),
        file: file.into(),
        directory: PathBuf::from(manifest).with_file_name(""),
        tests,
    }))
}
