//! `cargo xtask miri [--seeds N] [FILTER...]`: what has `unsafe`, under Miri.
//!
//! Miri sees undefined behaviour, data races, leaks and weak memory that the hardware hides, in the
//! one schedule that a seed gives: every test runs with each seed, and the seeds run side by side.
//! Its clock is virtual, so a run depends on nothing but the code and the seed, however busy the
//! machine is. A fault names its seed.
//!
//! It sees every structure, `memory.rs` with its raw memory included, and of the driver the pages
//! that threads share. It sees no system calls, so neither the rest of the driver nor `sys`, and
//! not all schedules, which are loom's. Tests do less under it (`structures/src/testing.rs`).

use std::num::NonZero;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::process::{self, Show};

/// Strict about pointers. Isolated, so that the clock is virtual and nothing but the seed decides.
const FLAGS: &str = "-Zmiri-strict-provenance";
/// The packages, and the modules of each that do without the kernel; none: all of them.
const PACKAGES: &[(&str, &[&str])] = &[
    ("flatpath-structures", &[]),
    ("flatpath-driver", &["region::", "buffers::"]),
];
/// All tests of a package take minutes; a run that has not ended by then hangs.
const TIME_MAX: Duration = Duration::from_secs(2 * 60 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seeds, each with a schedule of its own
    #[arg(long, default_value = "4")]
    seeds: NonZero<u32>,
    /// Parts of test names; all tests, if none is given
    filters: Vec<String>,
}

pub(crate) fn run(Options { seeds, filters }: &Options) -> Result<()> {
    let Some(version) = process::output(process::nightly("cargo").args(["miri", "--version"]))
    else {
        println!(
            "miri: not run: the nightly toolchain with Miri is missing; to get it:\n\
             rustup toolchain install nightly --component miri --component rust-src"
        );
        return Ok(());
    };
    println!("miri: {version}, {seeds} seeds");
    let mut has_run = false;
    for &(package, modules) in PACKAGES {
        let can_run = |filter: &&str| {
            modules.is_empty() || modules.iter().any(|module| filter.starts_with(module))
        };
        let wanted: Vec<&str> = match filters.is_empty() {
            true => modules.to_vec(),
            false => filters.iter().map(String::as_str).filter(can_run).collect(),
        };
        if filters.is_empty() || !wanted.is_empty() {
            has_run |= test(package, &wanted, seeds.get())?;
        }
    }
    ensure!(has_run, "no test is named {filters:?}");
    Ok(())
}

/// Runs a package's tests. False: none of them is named so.
fn test(package: &str, filters: &[&str], seeds: u32) -> Result<bool> {
    let flags = std::env::var("MIRIFLAGS").unwrap_or_else(|_| FLAGS.into());
    let mut command = process::nightly("cargo");
    command
        .args(["miri", "test", "--package", package, "--lib"])
        .args(["--target-dir", "target/miri", "--", "--quiet"])
        .args(filters)
        .env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds} {flags}"));
    let report = process::watch(&command, TIME_MAX, Show::Lines)?;
    ensure!(report.succeeded(), "{package}: {:?}", report.end);
    // What the seeds print is mixed, in the middle of lines too.
    let mut ends = report
        .lines
        .iter()
        .filter_map(|line| line.split_once(" passed;"));
    Ok(ends.any(|(before, _)| !before.ends_with(" 0")))
}
