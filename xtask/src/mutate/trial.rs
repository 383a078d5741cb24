//! Trying woven mutants: which tests reach them, and does one of these fail?
//!
//! Each test runs alone at first, so that the mutants that it reaches and its usual time are known.
//! One that fails without a mutant, twice, is left out. A mutant is tried in batches that grow,
//! each in a process of its own per test program. What failed once without a mutant must fail with
//! it alone as well.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};

use super::woven::{self, Listed, Outcome, Outcomes};

/// So many processes of tests at a time, as those of many mutants only wait; each with so many
/// tests at a time.
const PROCESSES: usize = 4;
const THREADS: u32 = 4;
/// The first batch of a mutant; the next ones are larger by so many times.
const BATCH: usize = 4;
const GROWTH: usize = 4;
/// Tests that take longer together, one after the other, are not tried with one mutant.
const USUAL_MAX: Duration = Duration::from_secs(30);
/// A batch takes too long at so many times the usual time, and this.
const PATIENCE: u32 = 5;
const PATIENCE_MIN: Duration = Duration::from_secs(4);
/// For a test that was not timed yet.
const ALONE_MAX: Duration = Duration::from_secs(120);
/// What one process may allocate, should a mutant do nothing else.
const DATA_MAX: &str = "--data=6000000000";

/// What was built.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Of each test program: its package, where it is run, the file.
    pub(super) tests: Vec<(String, PathBuf, PathBuf)>,
    /// The server that tests above start.
    pub(super) flatpath: Option<PathBuf>,
}

/// A test that passes without a mutant.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Test {
    program: usize,
    name: String,
    usual: Duration,
    /// It failed once without a mutant.
    is_flaky: bool,
    reached: Vec<usize>,
}

/// How a process of tests ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    /// These tests failed, or something else if there is none.
    Failed(Vec<String>),
    TimedOut,
}

pub(super) fn run(
    programs: &Programs,
    listed: &[Listed],
    outcomes: &mut Outcomes,
    output: &Path,
) -> Result<()> {
    let tests = recorded(programs, output)?;
    let mut file = File::create(output.join("outcomes"))?;
    for (mutant, outcome) in &*outcomes {
        file.write_all(woven::line(mutant, outcome).as_bytes())?;
    }
    let open = listed.iter().enumerate();
    let open = open.filter(|(_, mutant)| !outcomes.contains_key(&mutant.name));
    let open: Vec<_> = open.collect();
    println!(
        "mutate: {} mutants to try, {} tests",
        open.len(),
        tests.len()
    );
    let found = Mutex::new((outcomes, file, 0));
    each(&open, output, |runner, (id, mutant)| {
        let outcome = attempt(runner, programs, &tests, *id, &mutant.package)?;
        let mut found = found.lock().expect("no panic");
        let (outcomes, file, done) = &mut *found;
        file.write_all(woven::line(&mutant.name, &outcome).as_bytes())?;
        outcomes.insert(mutant.name.clone(), outcome);
        *done += 1;
        if *done % 100 == 0 {
            println!("mutate: {done} of {} tried", open.len());
        }
        Ok(())
    })
}

/// Calls `work` with each item, a few at a time.
fn each<T: Sync>(
    items: &[T],
    output: &Path,
    work: impl Fn(&Runner, &T) -> Result<()> + Sync,
) -> Result<()> {
    let next = Mutex::new(items.iter());
    let (next, work) = (&next, &work);
    let worker = |number: usize| {
        move || {
            let runner = Runner::new(&output.join(number.to_string()))?;
            loop {
                let item = next.lock().expect("no panic").next();
                let Some(item) = item else { return Ok(()) };
                work(&runner, item)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PROCESSES)
            .map(|number| scope.spawn(worker(number)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })
}

/// What [`record`] found, or found before in the same programs.
fn recorded(programs: &Programs, output: &Path) -> Result<Vec<Test>> {
    let built = |(_, _, file): &(String, PathBuf, PathBuf)| Ok(fs::metadata(file)?.modified()?);
    let built: Vec<SystemTime> = programs.tests.iter().map(built).collect::<Result<_>>()?;
    let path = output.join("reached.json");
    let old = fs::read(&path).ok();
    let old = old.and_then(|json| serde_json::from_slice::<(Vec<SystemTime>, _)>(&json).ok());
    if let Some((_, tests)) = old.filter(|(then, _)| *then == built) {
        return Ok(tests);
    }
    let tests = record(programs, output)?;
    fs::write(path, serde_json::to_vec(&(built, &tests))?)?;
    Ok(tests)
}

/// Runs each test alone.
fn record(programs: &Programs, output: &Path) -> Result<Vec<Test>> {
    let mut names = Vec::new();
    for (program, (_, directory, file)) in programs.tests.iter().enumerate() {
        let mut list = Command::new(file);
        list.args(["--list", "--format", "terse"])
            .current_dir(directory);
        let list = crate::process::output(&mut list).context("a test program lists its tests")?;
        let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
        names.extend(tests.map(|name| (program, name.to_string())));
    }
    println!("mutate: {} tests run alone", names.len());
    let tests = Mutex::new(Vec::new());
    each(&names, output, |runner, (program, name)| {
        let record = runner.directory.join("record");
        for is_flaky in [false, true] {
            fs::write(&record, "")?;
            let begin = Instant::now();
            let variable = ("WOVEN_RECORD", record.as_os_str());
            let end = runner.run(programs, *program, &[name], variable, ALONE_MAX)?;
            if end == End::Passed {
                let mut reached: Vec<usize> = fs::read_to_string(&record)?
                    .lines()
                    .map(str::parse)
                    .collect::<Result<_, _>>()?;
                reached.sort_unstable();
                let (program, name, usual) = (*program, name.clone(), begin.elapsed());
                let test = Test {
                    program,
                    name,
                    usual,
                    is_flaky,
                    reached,
                };
                tests.lock().expect("no panic").push(test);
                return Ok(());
            }
        }
        println!("mutate: without a mutant {name} does not pass");
        Ok(())
    })?;
    Ok(tests.into_inner()?)
}

/// Tries a mutant with the tests that reach it, those of its package and the quickest first.
fn attempt(
    runner: &Runner,
    programs: &Programs,
    tests: &[Test],
    id: usize,
    package: &str,
) -> Result<(Outcome, String)> {
    let reaching = tests
        .iter()
        .filter(|test| test.reached.binary_search(&id).is_ok());
    let mut reaching: Vec<&Test> = reaching.collect();
    if reaching.is_empty() {
        return Ok((Outcome::NotReached, String::new()));
    }
    reaching.sort_by_key(|test| (programs.tests[test.program].0 != package, test.usual));
    let number = id.to_string();
    let variable = ("WOVEN_ON", number.as_ref());
    for (program, batch) in batches(&reaching) {
        let names: Vec<&str> = batch.iter().map(|test| &*test.name).collect();
        match runner.run(programs, program, &names, variable, patience(&batch))? {
            End::Passed => {}
            End::TimedOut => return Ok((Outcome::TimedOut, names.join(" "))),
            End::Failed(failed) => {
                let Some(test) = batch.iter().find(|test| failed.contains(&test.name)) else {
                    return Ok((Outcome::Caught, format!("one of {}", names.join(" "))));
                };
                let (time_max, name) = (patience(&[test]), [&*test.name]);
                if !test.is_flaky
                    || runner.run(programs, program, &name, variable, time_max)? != End::Passed
                {
                    let package = &programs.tests[program].0;
                    return Ok((Outcome::Caught, format!("{package} {}", test.name)));
                }
            }
        }
    }
    let tried: usize = batches(&reaching)
        .iter()
        .map(|(_, batch)| batch.len())
        .sum();
    Ok((
        Outcome::Missed,
        format!("{tried} of {} tests tried", reaching.len()),
    ))
}

/// The tests in batches of one program each, as many as there is time for.
fn batches<'a>(tests: &[&'a Test]) -> Vec<(usize, Vec<&'a Test>)> {
    let mut batches = Vec::new();
    let (mut usual, mut size, mut left) = (Duration::ZERO, BATCH, tests);
    while !left.is_empty() && usual < USUAL_MAX {
        let (now, later) = left.split_at(size.min(left.len()));
        (size, left) = (size * GROWTH, later);
        let mut by_program: BTreeMap<usize, Vec<&Test>> = BTreeMap::new();
        for test in now {
            if usual < USUAL_MAX {
                usual += test.usual;
                by_program.entry(test.program).or_default().push(test);
            }
        }
        batches.extend(by_program);
    }
    batches
}

/// How long a batch may take.
fn patience(batch: &[&Test]) -> Duration {
    let longest = batch
        .iter()
        .map(|test| test.usual)
        .max()
        .unwrap_or_default();
    let all: Duration = batch.iter().map(|test| test.usual).sum();
    longest.max(all / THREADS) * PATIENCE + PATIENCE_MIN
}

/// Runs tests, one process at a time.
struct Runner {
    /// What they write is in it.
    directory: PathBuf,
}

impl Runner {
    fn new(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self {
            directory: directory.to_path_buf(),
        })
    }

    /// Runs these tests of a program until one fails, and ends with the process all that it began.
    fn run(
        &self,
        programs: &Programs,
        program: usize,
        names: &[&str],
        (variable, value): (&str, &std::ffi::OsStr),
        time_max: Duration,
    ) -> Result<End> {
        let (_, directory, file) = &programs.tests[program];
        let (log, temporary) = (self.directory.join("log"), self.directory.join("tmp"));
        fs::create_dir_all(&temporary)?;
        let written = File::create(&log)?;
        let mut command = Command::new("nice");
        command
            .args(["-n", "10", "prlimit", DATA_MAX])
            .arg(file)
            .args(names);
        command.args(["--exact", "-Z", "unstable-options", "--fail-fast"]);
        command
            .current_dir(directory)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUST_TEST_THREADS", THREADS.to_string())
            .env("TMPDIR", &temporary)
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(written.try_clone()?)
            .stderr(written)
            .process_group(0);
        if let Some(flatpath) = &programs.flatpath {
            command.env("FLATPATH", flatpath);
        }
        let mut child = command.spawn()?;
        let deadline = Instant::now() + time_max;
        let status = loop {
            let status = child.try_wait()?;
            if status.is_some() || Instant::now() > deadline {
                break status;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let group = format!("-{}", child.id());
        let mut kill = Command::new("kill");
        kill.args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status()?;
        // What the kernel does not end, as a thread that waits in a file system, is left behind.
        let deadline = Instant::now() + PATIENCE_MIN;
        while child.try_wait()?.is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--one-file-system"]).arg(&temporary);
        let _ = remove.stderr(Stdio::null()).status()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        match status {
            None => Ok(End::TimedOut),
            Some(status) if status.success() => {
                let ran = format!("test result: ok. {} passed", names.len());
                ensure!(text.contains(&ran), "{names:?}: {text}");
                Ok(End::Passed)
            }
            Some(_) => Ok(End::Failed(failed(&text))),
        }
    }
}

/// The names of the tests that failed, in the output of a test program.
fn failed(output: &str) -> Vec<String> {
    let results = output.lines().filter(|line| line.ends_with("... FAILED"));
    let names = results.filter_map(|line| line.split(' ').nth(1));
    names.map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(program: usize, name: &str, seconds: u64) -> Test {
        let usual = Duration::from_secs(seconds);
        Test {
            program,
            name: name.to_string(),
            usual,
            is_flaky: false,
            reached: Vec::new(),
        }
    }

    #[test]
    fn batches_grow_and_are_of_one_program_each() {
        let tests: Vec<Test> = (0..20).map(|number| test(number % 2, "a", 1)).collect();
        let all: Vec<&Test> = tests.iter().collect();
        let sizes = batches(&all)
            .into_iter()
            .map(|(program, batch)| (program, batch.len()));
        assert_eq!(sizes.collect::<Vec<_>>(), [(0, 2), (1, 2), (0, 8), (1, 8)]);
    }

    #[test]
    fn tests_that_take_too_long_together_are_left_out() {
        let tests: Vec<Test> = (0..20).map(|_| test(0, "a", 10)).collect();
        let all: Vec<&Test> = tests.iter().collect();
        assert_eq!(
            batches(&all)
                .iter()
                .map(|(_, batch)| batch.len())
                .sum::<usize>(),
            3
        );
    }

    #[test]
    fn a_batch_has_time_for_its_longest_test() {
        let (long, short) = (test(0, "a", 10), test(0, "b", 2));
        let seconds = |batch: &[&Test]| patience(batch).as_secs();
        assert_eq!(seconds(&[&long, &short]), 54);
        assert_eq!(seconds(&[&short; 40]), 104);
    }

    #[test]
    fn the_tests_that_failed_are_named() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... FAILED\n";
        assert_eq!(failed(output), ["a::c", "d"]);
    }
}
