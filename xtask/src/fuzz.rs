//! `cargo xtask fuzz`: the targets of `fuzz/`, for seconds on any toolchain or for hours with
//! libFuzzer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::process::{self, Show};
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Run the same seeds under libFuzzer (nightly)
    #[arg(long)]
    libfuzzer: bool,
    /// Print a file that libFuzzer found as a seed
    #[arg(long, value_name = "FILE", conflicts_with = "libfuzzer")]
    seed: Option<PathBuf>,
    /// Targets; all, one after the other, if none is named
    targets: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(file) = &options.seed {
        // The program runs in the workspace's root.
        let file = std::path::absolute(file)?;
        return own(&["seed", &file.to_string_lossy()]);
    }
    let seconds = options.seconds.to_string();
    let named: Vec<&str> = options.targets.iter().map(String::as_str).collect();
    match options.libfuzzer {
        true => libfuzzer(options.seconds, &named),
        false => own(&[&["run", seconds.as_str()], &named[..]].concat()),
    }
}

/// The fuzz crate's own program.
fn own(arguments: &[&str]) -> Result<()> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "flatpath-fuzz"]);
    command.args(["--bin", "flatpath-fuzz", "--"]);
    process::run(command.args(arguments))
}

fn libfuzzer(seconds: u64, named: &[&str]) -> Result<()> {
    if process::output(process::nightly("cargo").args(["fuzz", "--version"])).is_none() {
        println!(
            "fuzz: not run: a nightly toolchain or cargo-fuzz is missing; to get them:\n\
             rustup toolchain install nightly && cargo install cargo-fuzz"
        );
        return Ok(());
    }
    let all = names()?;
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    if let Some(unknown) = named.iter().find(|target| !all.contains(target)) {
        bail!("there is no target {unknown:?}; there are {all:?}");
    }
    for target in if named.is_empty() { &all } else { named } {
        let corpus = format!("fuzz/corpus/{target}");
        own(&["corpus", target, &corpus])?;
        // Without LTO, which takes the instrumentation away.
        let mut command = process::nightly("cargo");
        command
            .args(["fuzz", "run", "--features", "libfuzzer"])
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .args([target, corpus.as_str(), "--", "-max_len=8192"])
            .arg(format!("-max_total_time={seconds}"));
        let time_max = Duration::from_secs(seconds.saturating_add(60 * 60));
        let report = process::watch(&command, time_max, Show::Lines)?;
        ensure!(
            report.succeeded(),
            "{target} fails; see fuzz/artifacts/{target}"
        );
    }
    Ok(())
}

/// The targets, by the programs that libFuzzer runs.
fn names() -> Result<Vec<String>> {
    let root = workspace::root().join("fuzz/fuzz_targets");
    let files = workspace::files(&root, |path| path.extension().is_some_and(|e| e == "rs"))?;
    let stems = files.iter().filter_map(|file| file.file_stem());
    Ok(stems
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_found() {
        assert!(names().unwrap().contains(&"http_requests".to_owned()));
    }
}
