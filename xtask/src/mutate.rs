//! `cargo xtask mutate [--file GLOB] [--shard K/N] [--timeout SECONDS] [--iterate] [--list]
//! [-- TEST OPTIONS]`: change the code at random places; which changes does no test notice?
//!
//! The drill has mutations that were thought of; `cargo-mutants` makes up those that were not. It
//! runs here over one area at a time, each with the tests of its own crate, in a copy of the
//! sources, one job at low priority, in random order: a run that was interrupted is a fair sample,
//! and `--iterate` continues it. `.cargo/mutants.toml` names what is left out, and why.
//!
//! Cost of a mutant: a build of one crate without optimisation, and its tests until the first that
//! fails. So tests that take long are worth leaving out at first (`-- --skip NAME`); then
//! `--iterate` tries what survived with all tests.
//!
//! What survives is printed and is no fault of the command: some changes alter nothing that can be
//! seen. `target/mutate/AREA` has the logs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{process, workspace};

/// What is tried if nothing is named: an area of the crate, and the files of it.
const AREAS: &[&str] = &[
    "engine/src/network/**/*.rs",
    "services/nfs/src/procedures/**/*.rs",
    "protocols/http/src/{h1,connection,streams}/*.rs",
    "driver/src/uring/**/*.rs",
];
/// Where the outcomes are.
const OUTPUT: &str = "target/mutate";
/// Runs the tests: to end at the first that fails, they need an option that is not stable yet.
const RUNNER: &str = "target.'cfg(unix)'.runner=['env','RUSTC_BOOTSTRAP=1']";
const UNTIL_FAILED: [&str; 3] = ["-Z", "unstable-options", "--fail-fast"];
/// cargo-mutants ends so when mutants survived, or ran out of time.
const FOUND: [i32; 2] = [2, 3];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Files of one crate, as a glob below the workspace's root; the default areas without it
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Try only every Nth mutant, from the Kth on: K/N, K from 0
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// The tests of a mutant time out after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u32,
    /// Try again what an earlier run did not catch or did not come to
    #[arg(long)]
    iterate: bool,
    /// Only count what would be tried
    #[arg(long)]
    list: bool,
    /// For the test programs, such as `--skip NAME`
    #[arg(last = true, value_name = "TEST OPTIONS")]
    tests: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if process::output(&mut process::cargo(&["mutants", "--version"])).is_none() {
        println!(
            "mutate: not run: cargo-mutants is missing; to get it:\n\
             cargo install cargo-mutants --locked"
        );
        return Ok(());
    }
    let named: Vec<&str> = options.file.iter().map(String::as_str).collect();
    let areas = if named.is_empty() { AREAS } else { &named[..] };
    areas.iter().try_for_each(|area| run_area(options, area))
}

fn run_area(options: &Options, area: &str) -> Result<()> {
    let root = workspace::root();
    let directory = crate_of(&root, area)?;
    let output = root
        .join(OUTPUT)
        .join(directory.to_string_lossy().replace('/', "-"));
    std::fs::create_dir_all(&output)?;
    let mut command = Command::new("nice");
    command.args(["-n", "19", "cargo", "mutants", "--shuffle"]);
    // From there only this crate is searched for mutants.
    command
        .args(["--jobs", "1", "--jobserver-tasks", "1", "--file", area])
        .current_dir(root.join(&directory));
    if let Some(shard) = &options.shard {
        // Neighbours are alike: one of each group is tried.
        command.args(["--sharding", "round-robin", "--shard", shard]);
    }
    if options.list {
        let listed = process::output(command.arg("--list")).context("cargo mutants --list")?;
        println!("mutate: {area}: {} mutants", listed.lines().count());
        return Ok(());
    }
    // The tests are run by CI without mutations, so only the first time here.
    let baseline = if options.iterate { "skip" } else { "run" };
    command.args(["--baseline", baseline, "--timeout"]);
    command.arg(options.timeout.to_string());
    if options.iterate {
        command.arg("--iterate");
    }
    command.arg("--output").arg(&output);
    for setting in workspace::unoptimised()?
        .iter()
        .map(String::as_str)
        .chain([RUNNER])
    {
        command.args(["--cargo-arg=--config", "--cargo-arg", setting]);
    }
    // Examples in the documentation are no tests of what is changed.
    command.args(["--", "--lib", "--tests", "--"]);
    command.args(UNTIL_FAILED).args(&options.tests);
    let status = command.status()?;
    let is_run = status.success() || status.code().is_some_and(|code| FOUND.contains(&code));
    ensure!(is_run, "cargo mutants: {status}");
    print_outcome(area, &output.join("mutants.out"))
}

/// Prints how many there were of each outcome, and those that survived.
fn print_outcome(area: &str, output: &Path) -> Result<()> {
    let lines_of = |name: &str| -> Result<Vec<String>> {
        let text = workspace::text(&output.join(format!("{name}.txt")))?;
        Ok(text.lines().map(String::from).collect())
    };
    let missed = lines_of("missed")?;
    println!(
        "mutate: {area}: {} caught, {} missed, {} unviable, {} timed out",
        lines_of("caught")?.len(),
        missed.len(),
        lines_of("unviable")?.len(),
        lines_of("timeout")?.len(),
    );
    for mutant in missed {
        println!("missed: {mutant}");
    }
    Ok(())
}

/// The directory of the crate that has the files of `area`, below `root`.
fn crate_of(root: &Path, area: &str) -> Result<PathBuf> {
    let mut directories = Path::new(area).ancestors().skip(1);
    match directories.find(|directory| root.join(directory).join("Cargo.toml").is_file()) {
        Some(directory) if !directory.as_os_str().is_empty() => Ok(directory.to_path_buf()),
        _ => bail!("{area:?} is in no crate"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_area_is_in_a_crate() {
        let crates = AREAS.iter().map(|area| crate_of(&workspace::root(), area));
        let crates: Vec<PathBuf> = crates.collect::<Result<_>>().expect("crates");
        let expected = ["engine", "services/nfs", "protocols/http", "driver"];
        assert_eq!(crates, expected.map(PathBuf::from));
    }

    #[test]
    fn an_area_outside_the_crates_is_refused() {
        assert!(crate_of(&workspace::root(), "book/src/*.md").is_err());
    }
}
