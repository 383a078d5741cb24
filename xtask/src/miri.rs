//! `cargo xtask miri [--seeds N] [FILTER...]`: what has `unsafe`, under Miri.
//!
//! Miri sees undefined behaviour, data races, leaks and weak memory that the hardware hides, in the
//! one schedule that a seed gives: every test runs with seed 0, and those with threads in the
//! modules that hand memory from one to another with further seeds. Its clock is virtual, so a run
//! depends on nothing but the code and the seed, however busy the machine is.
//!
//! It sees every structure, `memory.rs` with its raw memory included, and of the driver the pages
//! that threads share. Not: system calls, so not the rest of the driver; all schedules, which are
//! loom's. Tests do less under it (`structures/src/testing.rs`).
//!
//! The tests are divided among processes, as many at a time as there are processors. It needs a
//! nightly toolchain with the components miri and rust-src, and says which it took.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::process::{self, End, Report, Show};
use crate::tally::Tally;

/// For the help text.
pub const SUMMARY: &str = "run the tests of what has unsafe under Miri (nightly; --seeds N)";

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
const SEEDS: u32 = 4;
/// Tests of one process, which takes two seconds to start.
const TESTS_MAX: usize = 16;
/// A process that has not ended by then hangs: the slowest takes about a minute.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// Some tests of one module, for one process.
#[derive(Debug, PartialEq, Eq)]
struct Job {
    package: &'static str,
    module: String,
    tests: Vec<String>,
    seed: u32,
}

/// Runs the unit tests whose names hold one of the filters.
///
/// # Errors
/// Miri finds a fault, or a test fails, hangs or does not run. A missing component is said and is
/// no error.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let (seeds, filters) = parse(arguments)?;
    let Some(version) = version() else {
        println!(
            "miri: not run: the nightly toolchain with Miri is missing; to get it:\n\
             rustup toolchain install nightly --component miri --component rust-src"
        );
        return Ok(());
    };
    println!("miri: {version}, MIRIFLAGS={:?}", flags());
    let (mut tests, mut jobs) = (0, VecDeque::new());
    for &(package, modules) in PACKAGES {
        let is_wanted = |name: &String| {
            (modules.is_empty() || modules.contains(&module_of(name)))
                && (filters.is_empty() || filters.iter().any(|part| name.contains(part)))
        };
        let names: Vec<String> = list(package)?.into_iter().filter(is_wanted).collect();
        tests += names.len();
        jobs.extend(jobs_of(package, names, seeds));
    }
    if tests == 0 {
        return Err(Error::Failed(format!("no test is named {filters:?}")));
    }
    let begin = Instant::now();
    let outcomes = run_all(jobs);
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    for why in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        println!("miri: {why}");
    }
    if failed > 0 {
        let all = outcomes.len();
        return Err(Error::Failed(format!(
            "{failed} of {all} runs found a fault"
        )));
    }
    let ignored: u32 = outcomes
        .iter()
        .flatten()
        .filter(|(seed, _)| *seed == 0)
        .map(|(_, tally)| tally.ignored)
        .sum();
    println!(
        "miri: no fault in {} tests, with threads under {seeds} seeds; {ignored} left out; {} s",
        tests - ignored as usize,
        begin.elapsed().as_secs()
    );
    Ok(())
}

fn parse(arguments: &[String]) -> Result<(u32, Vec<&str>), Error> {
    let (mut seeds, mut filters) = (SEEDS, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument != "--seeds" {
            filters.push(argument.as_str());
            continue;
        }
        let text = rest.next().map_or("", String::as_str);
        let count = text.parse().ok().filter(|&count| count > 0);
        seeds = count.ok_or_else(|| {
            Error::Usage(format!("--seeds wants how many, from 1 on, not {text:?}"))
        })?;
    }
    Ok((seeds, filters))
}

/// What Miri calls itself, with the day of its toolchain; `None` if there is none.
fn version() -> Option<String> {
    let output = process::nightly_cargo(&["miri", "--version"]).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn flags() -> String {
    std::env::var("MIRIFLAGS").unwrap_or_else(|_| FLAGS.into())
}

/// Builds the tests and asks for their names.
fn list(package: &str) -> Result<Vec<String>, Error> {
    let report = test(package, &["--list"], 0)?;
    if !report.succeeded() {
        return Err(Error::Failed(report.lines.join("\n")));
    }
    let names = report.lines.iter();
    Ok(names
        .filter_map(|line| line.strip_suffix(": test").map(String::from))
        .collect())
}

fn test(package: &str, arguments: &[&str], seed: u32) -> Result<Report, Error> {
    let mut command = process::nightly_cargo(&["miri", "test"]);
    command.args(["--package", package, "--lib"]);
    command.args(["--target-dir", "target/miri", "--"]);
    command.args(arguments);
    // The caller's flags last: they may name another seed.
    command.env("MIRIFLAGS", format!("-Zmiri-seed={seed} {}", flags()));
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
fn run_all(jobs: VecDeque<Job>) -> Vec<Result<(u32, Tally), String>> {
    let (count, done) = (jobs.len(), AtomicUsize::new(0));
    let (left, outcomes) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let next = || lock(&left).pop_front();
    let work = || {
        while let Some(job) = next() {
            let begin = Instant::now();
            let outcome = run_one(&job);
            let nth = 1 + done.fetch_add(1, Ordering::Relaxed);
            println!(
                "miri: {nth}/{count}: {}, seed {}: {} after {} s",
                job.module,
                job.seed,
                outcome.as_ref().map_or_else(|why| brief(why).into(), said),
                begin.elapsed().as_secs()
            );
            lock(&outcomes).push(outcome.map(|tally| (job.seed, tally)));
        }
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(work);
        }
    });
    outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first line of what is wrong; the whole follows at the end.
fn brief(why: &str) -> &str {
    why.lines().next().unwrap_or(why)
}

fn said(tally: &Tally) -> String {
    format!("{} passed, {} left out", tally.passed, tally.ignored)
}

fn run_one(job: &Job) -> Result<Tally, String> {
    let mut arguments = vec!["--exact"];
    arguments.extend(job.tests.iter().map(String::as_str));
    let report = test(job.package, &arguments, job.seed).map_err(|error| format!("{error:?}"))?;
    let tally = Tally::of(&report.lines);
    let again = format!(
        "MIRIFLAGS=\"{} -Zmiri-seed={}\" cargo xtask miri --seeds 1",
        flags(),
        job.seed
    );
    let culprit = culprit(&job.tests, &report.lines);
    match report.end {
        End::TimedOut => Err(format!("still in `{culprit}`; again: {again} {culprit}")),
        End::Exited(status) if !status.success() => {
            let lines = report.lines.join("\n");
            Err(format!("FAILED; again: {again} {culprit}\n{lines}"))
        }
        End::Exited(_) if (tally.passed + tally.ignored) as usize != job.tests.len() => Err(
            format!("only {} of {} tests ran", tally.ran(), job.tests.len()),
        ),
        End::Exited(_) => Ok(tally),
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

    #[test]
    fn the_number_of_seeds_is_not_taken_for_a_filter() {
        let arguments = names(&["stack::", "--seeds", "7"]);
        assert!(matches!(parse(&arguments), Ok((7, filters)) if filters == ["stack::"]));
        for wrong in [&["--seeds"][..], &["--seeds", "0"], &["--seeds", "stack"]] {
            assert!(matches!(parse(&names(wrong)), Err(Error::Usage(_))));
        }
    }
}
