//! `cargo xtask miri [--seeds N] [FILTER...]`: what has `unsafe`, under Miri.
//!
//! Miri sees undefined behaviour, data races, leaks and weak memory that the hardware hides, in the
//! one schedule that a seed gives: every test runs with seed 0, and those with threads in the
//! modules that hand memory from one to another with further seeds. Its clock is virtual, so a run
//! depends on nothing but the code and the seed, however busy the machine is.
//!
//! It sees every structure, `memory.rs` with its raw memory included, and of the driver the pages
//! that threads share. Not: system calls, so not the rest of the driver nor `sys`; all schedules,
//! which are loom's. Tests do less under it (`structures/src/testing.rs`).
//!
//! The tests are divided among processes, as many at a time as there are processors. It needs a
//! nightly toolchain with the components miri and rust-src, and says which it took.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process::{self, End, Report, Show};
use crate::test_summary::TestSummary;

/// Strict about pointers. Isolated, so that the clock is virtual and nothing but the seed decides.
const FLAGS: &str = "-Zmiri-strict-provenance";
/// What runs: all unit tests of a package, or those of the modules that do without the kernel.
const PACKAGES: &[(&str, &[&str])] = &[
    ("flatpath-structures", &[]),
    ("flatpath-driver", &["region", "buffers"]),
];
/// Modules whose tests with threads run with more than one seed: they hand memory on, or order
/// those that do.
const RACING: &[&str] = &["pool", "depot", "memory", "stack", "queue", "region"];
/// Tests with threads.
const PREFIXES: &[&str] = &["loom_", "shuttle_", "stress_"];
/// Tests of one process, which takes two seconds to start.
const TESTS_MAX: usize = 16;
/// A process that has not ended by then hangs: the slowest takes about a minute.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seeds of tests with threads in modules that hand memory from one thread to another
    #[arg(long, default_value = "4")]
    seeds: NonZero<u32>,
    /// Parts of test names; all tests, if none is given
    filters: Vec<String>,
}

/// Some tests of one module, for one process.
#[derive(Debug, PartialEq, Eq)]
struct Job {
    package: &'static str,
    module: String,
    tests: Vec<String>,
    seed: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(version) = process::output(process::nightly("cargo").args(["miri", "--version"]))
    else {
        println!(
            "miri: not run: the nightly toolchain with Miri is missing; to get it:\n\
             rustup toolchain install nightly --component miri --component rust-src"
        );
        return Ok(());
    };
    println!("miri: {version}, MIRIFLAGS={:?}", flags());
    let Options { seeds, filters } = options;
    let (mut tests, mut jobs) = (0, VecDeque::new());
    for &(package, modules) in PACKAGES {
        let is_wanted = |name: &String| {
            (modules.is_empty() || modules.contains(&module_of(name)))
                && (filters.is_empty() || filters.iter().any(|part| name.contains(part)))
        };
        let names: Vec<String> = list(package)?.into_iter().filter(is_wanted).collect();
        tests += names.len();
        jobs.extend(jobs_of(package, names, seeds.get()));
    }
    ensure!(tests > 0, "no test is named {filters:?}");
    let (begin, count) = (Instant::now(), jobs.len());
    let faults = run_all(jobs);
    ensure!(
        faults.is_empty(),
        "{} of {count} runs found a fault\n{}",
        faults.len(),
        faults.join("\n")
    );
    let seconds = begin.elapsed().as_secs();
    println!("miri: no fault in {tests} tests, with threads under {seeds} seeds; {seconds} s");
    Ok(())
}

fn flags() -> String {
    std::env::var("MIRIFLAGS").unwrap_or_else(|_| FLAGS.into())
}

/// Builds the tests and asks for their names.
fn list(package: &str) -> Result<Vec<String>> {
    let report = test(package, &["--list"], 0)?;
    ensure!(report.succeeded(), "{}", report.lines.join("\n"));
    let names = report.lines.iter();
    Ok(names
        .filter_map(|line| line.strip_suffix(": test").map(String::from))
        .collect())
}

fn test(package: &str, arguments: &[&str], seed: u32) -> Result<Report> {
    let mut command = process::nightly("cargo");
    command
        .args(["miri", "test", "--package", package, "--lib"])
        .args(["--target-dir", "target/miri", "--"])
        .args(arguments)
        // The caller's flags last: they may name another seed.
        .env("MIRIFLAGS", format!("-Zmiri-seed={seed} {}", flags()));
    process::watch(&mut command, TIME_MAX, Show::Nothing)
}

/// Divides the tests among processes, those first that take longest.
fn jobs_of(package: &'static str, mut names: Vec<String>, seeds: u32) -> Vec<Job> {
    let rank = |name: &str| RACING.iter().position(|racing| *racing == module_of(name));
    names.sort_by_key(|name| {
        (
            rank(name).unwrap_or(RACING.len()),
            module_of(name).to_string(),
        )
    });
    let races = |name: &&String| {
        let leaf = name.rsplit("::").next().unwrap_or_default();
        rank(name).is_some() && PREFIXES.iter().any(|prefix| leaf.starts_with(prefix))
    };
    let racing: Vec<String> = names.iter().filter(races).cloned().collect();
    let mut jobs = divided(package, &names, 0);
    jobs.extend((1..seeds).flat_map(|seed| divided(package, &racing, seed)));
    jobs
}

fn divided(package: &'static str, names: &[String], seed: u32) -> Vec<Job> {
    let of_modules = names.chunk_by(|one, next| module_of(one) == module_of(next));
    let of_processes = of_modules.flat_map(|names| names.chunks(TESTS_MAX));
    of_processes
        .map(|tests| Job {
            package,
            module: module_of(&tests[0]).to_string(),
            tests: tests.to_vec(),
            seed,
        })
        .collect()
}

fn module_of(name: &str) -> &str {
    name.split("::").next().unwrap_or(name)
}

/// Runs the jobs, as many at a time as there are processors, and returns what each found wrong.
fn run_all(jobs: VecDeque<Job>) -> Vec<String> {
    let left = Mutex::new(jobs);
    let next = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop_front().map(|job| (job, left.len()))
    };
    let work = || {
        let mut faults = Vec::new();
        while let Some((job, left)) = next() {
            let begin = Instant::now();
            let outcome = run_one(&job);
            // The whole fault follows at the end.
            let first_line = outcome.as_ref().map_or_else(
                |fault| fault.lines().next().unwrap_or_default().to_owned(),
                |summary| format!("{} passed, {} left out", summary.passed, summary.ignored),
            );
            let (Job { module, seed, .. }, seconds) = (&job, begin.elapsed().as_secs());
            println!("miri: {module}, seed {seed}: {first_line} after {seconds} s; {left} to go");
            faults.extend(outcome.err());
        }
        faults
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let faults = workers.into_iter().map(thread::ScopedJoinHandle::join);
        faults
            .flat_map(|faults| faults.expect("a worker does not panic"))
            .collect()
    })
}

fn run_one(job: &Job) -> Result<TestSummary, String> {
    let mut arguments = vec!["--exact"];
    arguments.extend(job.tests.iter().map(String::as_str));
    let report = test(job.package, &arguments, job.seed).map_err(|error| format!("{error:#}"))?;
    let summary = TestSummary::of(&report.lines);
    let (flags, seed, culprit) = (flags(), job.seed, culprit(&job.tests, &report.lines));
    let again =
        format!("MIRIFLAGS=\"{flags} -Zmiri-seed={seed}\" cargo xtask miri --seeds 1 {culprit}");
    match report.end {
        End::TimedOut => Err(format!("still in `{culprit}`; again: {again}")),
        End::Exited(status) if !status.success() => {
            let lines = report.lines.join("\n");
            Err(format!("FAILED; again: {again}\n{lines}"))
        }
        End::Exited(_) if (summary.passed + summary.ignored) as usize != job.tests.len() => Err(
            format!("only {} of {} tests ran", summary.ran(), job.tests.len()),
        ),
        End::Exited(_) => Ok(summary),
    }
}

/// The test that failed, or in which the process ended: the first that did not report.
fn culprit(tests: &[String], lines: &[String]) -> String {
    let says = |name: &String, how: &str| {
        let begin = format!("test {name} ");
        let mut of_test = lines.iter().filter(|line| line.starts_with(&begin));
        of_test.any(|line| line.ends_with(how))
    };
    let failed = tests.iter().find(|name| says(name, "FAILED"));
    let silent = || tests.iter().find(|name| !says(name, ""));
    failed.or_else(silent).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn every_test_runs_once_and_those_that_race_with_every_seed() {
        let all = names(&[
            "wheel::tests::model_random",
            "stack::tests::loom_pop",
            "stack::tests::pop_of_none",
            "wheel::tests::loom_none",
        ]);
        let jobs = jobs_of("one", all, 2);
        let job = |module: &str, seed, tests: &[&str]| Job {
            package: "one",
            module: module.into(),
            tests: names(tests),
            seed,
        };
        let expected = [
            job(
                "stack",
                0,
                &["stack::tests::loom_pop", "stack::tests::pop_of_none"],
            ),
            job(
                "wheel",
                0,
                &["wheel::tests::model_random", "wheel::tests::loom_none"],
            ),
            job("stack", 1, &["stack::tests::loom_pop"]),
        ];
        assert_eq!(jobs, expected);
    }

    #[test]
    fn a_module_with_many_tests_is_divided() {
        let all = (0..2 * TESTS_MAX + 1).map(|nth| format!("pool::tests::number_{nth}"));
        let jobs = jobs_of("one", all.collect(), 1);
        assert_eq!(jobs.len(), 3);
    }

    #[test]
    fn the_test_that_failed_or_never_ended_is_named() {
        let tests = names(&["a::one", "a::two", "a::three"]);
        let failed = names(&["test a::one ... ok", "test a::three ... FAILED"]);
        assert_eq!(culprit(&tests, &failed), "a::three");
        let aborted = names(&["test a::one ... ok", "test a::two - should panic ... ok"]);
        assert_eq!(culprit(&tests, &aborted), "a::three");
    }
}
