//! What the programs said, and the table of it.
//!
//! A test has passed if it says so and nothing of it was left out. What one leaves out is in a line
//! of `flatpath_testkit::skipped`. Where that names a feature and the version of Linux which
//! brought it, the kernel that was booted decides: an older one has not the feature, on any other
//! the test has failed, whatever refused it, for these kernels are whole and nothing in them
//! filters. So a change of ours that a kernel refuses is not taken for the kernel's age. A line
//! without a version lacks something else of the machine. A test that was to run and says nothing
//! has failed: its program hung or crashed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use flatpath_testkit::skipped::{Version, version, version_in};

use super::left_out::Divided;
use super::machine::TOOK;
use super::programs::Program;
use crate::test_summary::first_panic;

/// The lines of tests that leave themselves out, as `flatpath_testkit::skipped` prints them.
const NOT_ON_THIS_KERNEL: &str = "not on this kernel: ";
const NOT_RUN: &str = "not run: ";

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Passed,
    Failed(String),
    NotOnThisKernel(String),
    LeftOut(String),
    /// The same on each kernel: it did not run.
    Computes,
}

/// Of one kernel.
#[derive(Debug)]
pub(super) struct Results {
    version: String,
    release: String,
    /// Of the machine that emulates: how long it took, and its processors' seconds.
    pub(super) took: Took,
    /// By program, in their order.
    programs: Vec<Row>,
}

/// Of a program.
#[derive(Debug)]
struct Row {
    name: String,
    /// By test.
    fates: BTreeMap<String, Fate>,
    took: Took,
    /// How long each test took that ended, with its name.
    tests: Vec<(Duration, String)>,
}

/// Seconds that a program took, and those of processors. None, if it did not come to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Took {
    pub(super) all: f64,
    pub(super) computed: f64,
}

/// How many tests are listed that took longest.
const SLOWEST: usize = 8;

impl Results {
    pub(super) fn new(version: &str, release: &str) -> Self {
        Self {
            version: version.to_owned(),
            release: release.to_owned(),
            took: Took::default(),
            programs: Vec::new(),
        }
    }

    fn of(&mut self, program: &str) -> &mut Row {
        let place = self.programs.iter().position(|row| row.name == program);
        let place = place.unwrap_or_else(|| {
            self.programs.push(Row {
                name: program.to_owned(),
                fates: BTreeMap::new(),
                took: Took::default(),
                tests: Vec::new(),
            });
            self.programs.len() - 1
        });
        &mut self.programs[place]
    }

    /// Notes the tests that do not run here.
    pub(super) fn leave_out(&mut self, program: &Program, divided: &Divided<'_>) {
        let fates = &mut self.of(&program.name).fates;
        for (test, reason) in &divided.out {
            fates.insert((*test).to_owned(), Fate::LeftOut((*reason).to_owned()));
        }
        for test in &divided.computes {
            fates.insert((*test).to_owned(), Fate::Computes);
        }
    }

    /// Notes what the programs said, which were to run these tests.
    pub(super) fn read(&mut self, programs: &[(&Program, Vec<&str>)], lines: &[String]) {
        for (number, (program, tests)) in programs.iter().enumerate() {
            let of_it = format!("{number}: ");
            let said = lines.iter().filter_map(|line| line.strip_prefix(&of_it));
            let said: Vec<String> = said.map(String::from).collect();
            let fates = fates(tests, &said, version(&self.release));
            let row = self.of(&program.name);
            row.fates.extend(fates);
            row.took = said.iter().find_map(|line| took(line)).unwrap_or_default();
            let times = tests.iter().filter_map(|test| {
                let (_, time) = verdict(test, &said)?;
                Some((time?, (*test).to_owned()))
            });
            row.tests.extend(times);
        }
    }

    /// How many tests failed.
    pub(super) fn failed(&self) -> usize {
        let fates = self.programs.iter().flat_map(|row| row.fates.values());
        fates.filter(|fate| matches!(fate, Fate::Failed(_))).count()
    }
}

/// What became of these tests, from what their program said on this kernel.
fn fates(tests: &[&str], said: &[String], running: Option<Version>) -> BTreeMap<String, Fate> {
    let mut fates: BTreeMap<String, Fate> = tests
        .iter()
        .map(|test| {
            let fate = match verdict(test, said) {
                Some(("ok", _)) => Fate::Passed,
                Some(_) => Fate::Failed(failure(test, said)),
                None => Fate::Failed("it did not end".to_owned()),
            };
            ((*test).to_owned(), fate)
        })
        .collect();
    let left_out = said.iter().filter_map(|line| left_out(line, running));
    for (test, fate) in left_out {
        let fails = |fate: &Fate| matches!(fate, Fate::Failed(_));
        match fates.get_mut(test) {
            // A failure counts before all else, then the first reason.
            Some(known) if *known == Fate::Passed || (fails(&fate) && !fails(known)) => {
                *known = fate;
            }
            // Of a thread that is not named as its test.
            None if fails(&fate) => drop(fates.insert(test.to_owned(), fate)),
            _ => {}
        }
    }
    fates
}

/// What its line says, and how long it took, if that is told.
fn verdict<'a>(test: &str, said: &'a [String]) -> Option<(&'a str, Option<Duration>)> {
    said.iter().find_map(|line| {
        let rest = line.strip_prefix("test ")?.strip_prefix(test)?;
        let rest = rest.strip_prefix(" - should panic").unwrap_or(rest);
        let verdict = rest.strip_prefix(" ... ")?;
        let Some((verdict, time)) = verdict.split_once(" <") else {
            return Some((verdict, None));
        };
        let seconds = time.strip_suffix("s>").and_then(|it| it.parse().ok());
        let time = seconds.and_then(|it| Duration::try_from_secs_f64(it).ok());
        Some((verdict, time))
    })
}

/// What the line says that a program ends with, if it is that.
fn took(line: &str) -> Option<Took> {
    let numbers = line.strip_prefix(TOOK)?.split(' ').map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>().ok()?;
    let [all, itself, kernel] = numbers[..] else {
        return None;
    };
    Some(Took {
        all,
        computed: itself + kernel,
    })
}

/// The test that this line is of, and what it left itself out for.
fn left_out(line: &str, running: Option<Version>) -> Option<(&str, Fate)> {
    let (kind, rest) = [NOT_ON_THIS_KERNEL, NOT_RUN]
        .iter()
        .find_map(|kind| Some((*kind, line.strip_prefix(kind)?)))?;
    let (test, why) = rest.split_once(": ")?;
    let why = why.to_owned();
    let fate = match (version_in(line), running) {
        (Some(since), Some(running)) if running < since => Fate::NotOnThisKernel(why),
        (Some(_), _) => Fate::Failed(format!("this kernel has it, and the test did not: {why}")),
        (None, _) if kind == NOT_RUN => Fate::LeftOut(why),
        (None, _) => Fate::Failed(format!("of no version, left out: {why}")),
    };
    Some((test, fate))
}

/// What it said before it failed.
fn failure(test: &str, said: &[String]) -> String {
    let head = format!("---- {test} stdout ----");
    let lines = said.iter().skip_while(|line| **line != head).skip(1);
    let lines: Vec<String> = lines
        .take_while(|line| !line.starts_with("---- "))
        .cloned()
        .collect();
    first_panic(&lines).unwrap_or_else(|| "it does not say why".to_owned())
}

/// A kernel's rows, and the tests that took longest.
impl fmt::Display for Results {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row {
            name, fates, took, ..
        } in &self.programs
        {
            let count = |wanted: fn(&Fate) -> bool| fates.values().filter(|it| wanted(it)).count();
            writeln!(
                to,
                "{:<8} {name:<22} {:>6} {:>6} {:>18} {:>8} {:>8} {:>7.0} {:>7.0}",
                self.version,
                count(|fate| *fate == Fate::Passed),
                count(|fate| matches!(fate, Fate::Failed(_))),
                count(|fate| matches!(fate, Fate::NotOnThisKernel(_))),
                count(|fate| matches!(fate, Fate::LeftOut(_))),
                count(|fate| *fate == Fate::Computes),
                took.all,
                took.computed,
            )?;
        }
        let tests = self.programs.iter().flat_map(|row| {
            let named = |(time, test): &(Duration, String)| (*time, format!("{} {test}", row.name));
            row.tests.iter().map(named)
        });
        let mut tests: Vec<(Duration, String)> = tests.collect();
        tests.sort_by(|one, other| other.cmp(one));
        for (time, test) in tests.iter().take(SLOWEST) {
            writeln!(to, "{:<8} {:>4} s {test}", self.version, time.as_secs())?;
        }
        let Took { all, computed } = self.took;
        let (version, release) = (&self.version, &self.release);
        writeln!(
            to,
            "{version:<8} {release} in {all:.0} s, {computed:.0} of processors"
        )
    }
}

/// The table of all kernels, then why tests failed or did not run: each reason once. What computes
/// the same on each kernel is no part of the share that is left out.
pub(super) fn report(all: &[Results]) -> String {
    let mut report = format!(
        "\n{:<8} {:<22} {:>6} {:>6} {:>18} {:>8} {:>8} {:>7} {:>7}\n",
        "kernel",
        "program",
        "passed",
        "failed",
        "not on this kernel",
        "left out",
        "computes",
        "seconds",
        "of CPU"
    );
    let mut reasons: BTreeMap<(&str, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    let (mut tests, mut out) = (0, 0);
    for results in all {
        let _ = write!(report, "{results}");
        for Row { name, fates, .. } in &results.programs {
            for (test, fate) in fates {
                tests += usize::from(*fate != Fate::Computes);
                let (what, why) = match fate {
                    Fate::Passed | Fate::Computes => continue,
                    Fate::Failed(why) => {
                        let _ = writeln!(report, "FAILED {name} {test}: {why}");
                        continue;
                    }
                    Fate::NotOnThisKernel(why) => ("not on this kernel", why),
                    Fate::LeftOut(why) => ("left out", why),
                };
                out += usize::from(what == "left out");
                let key = (results.version.as_str(), what, why.as_str());
                reasons.entry(key).or_default().insert(test);
            }
        }
    }
    for ((version, what, why), names) in reasons {
        let first = names.first().copied().unwrap_or_default();
        let _ = writeln!(
            report,
            "{version} {what}: {why}: {} as {first}",
            names.len()
        );
    }
    let tests_max = tests.max(1);
    let share = (1000 * out + tests_max / 2) / tests_max;
    let (percent, tenth) = (share / 10, share % 10);
    let _ = writeln!(report, "{out} of {tests} are left out, {percent}.{tenth} %");
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::machine::BEGIN;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    const SAID: &str = "running 6 tests\n\
        not on this kernel: a::old: multishot accept (Linux 6.2)\n\
        not run: a::poor: no nginx\n\
        test a::good ... ok\n\
        test a::old ... ok\n\
        test a::poor ... ok\n\
        test a::bad ... FAILED\n\
        test a::panics - should panic ... ok\n\
        \n\
        ---- a::bad stdout ----\n\
        thread 'a::bad' (9) panicked at driver/src/x.rs:1:1:\n\
        two is not three\n";

    #[test]
    fn a_test_passes_only_by_its_own_line_and_with_nothing_left_out() {
        let tests = [
            "a::good",
            "a::old",
            "a::poor",
            "a::bad",
            "a::panics",
            "a::hangs",
        ];
        let fates = fates(&tests, &lines(SAID), Some((6, 1)));
        let of = |name: &str| fates[name].clone();
        let old = "multishot accept (Linux 6.2)";
        assert_eq!(of("a::good"), Fate::Passed);
        assert_eq!(of("a::old"), Fate::NotOnThisKernel(old.into()));
        assert_eq!(of("a::poor"), Fate::LeftOut("no nginx".into()));
        assert_eq!(of("a::bad"), Fate::Failed("two is not three".into()));
        assert_eq!(of("a::panics"), Fate::Passed);
        assert_eq!(of("a::hangs"), Fate::Failed("it did not end".into()));
    }

    #[test]
    fn what_the_kernel_is_new_enough_for_is_not_left_out_but_failed() {
        for (line, running, is_failed) in [
            ("not on this kernel: t: x (Linux 6.0)", (5, 10), false),
            ("not on this kernel: t: x (Linux 6.0)", (6, 0), true),
            ("not on this kernel: t: x (Linux 6.0)", (6, 1), true),
            ("not on this kernel: t: x (Linux 6.12)", (6, 1), false),
            ("not on this kernel: t: x (Linux 6.12)", (6, 12), true),
            ("not on this kernel: t: x (Linux 6.12)", (7, 2), true),
            (
                "not run: t: io_uring is refused: EPERM (Linux 6.0)",
                (5, 10),
                false,
            ),
            (
                "not run: t: io_uring is refused: EPERM (Linux 6.0)",
                (6, 1),
                true,
            ),
            ("not run: t: no nginx", (6, 1), false),
            ("not on this kernel: t: x", (5, 10), true),
        ] {
            let (test, fate) = left_out(line, Some(running)).unwrap();
            assert_eq!(test, "t");
            let words = line.strip_prefix("not on this kernel: t: ");
            let words = words.unwrap_or_else(|| line.strip_prefix("not run: t: ").unwrap());
            match fate {
                Fate::Failed(why) => assert!(is_failed && why.ends_with(words), "{line}: {why}"),
                Fate::NotOnThisKernel(why) | Fate::LeftOut(why) => {
                    assert!(!is_failed && why == words, "{line} on {running:?}: {why}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        assert_eq!(left_out("test t ... ok", Some((6, 1))), None);
        // What a kernel calls itself must be known to say that it is too old.
        let unknown = left_out("not on this kernel: t: x (Linux 6.0)", None);
        assert!(matches!(unknown, Some((_, Fate::Failed(_)))));
    }

    #[test]
    fn of_several_reasons_a_failure_counts_also_that_of_a_thread_without_a_name() {
        let said = "not run: t: no nginx\n\
            not on this kernel: t: x (Linux 6.0)\n\
            not run: u: no nginx\n\
            not run: u: no curl\n\
            not run: a test: no curl\n\
            not on this kernel: a test: y (Linux 5.1)\n\
            test t ... ok\ntest u ... ok\n";
        let fates = fates(&["t", "u"], &lines(said), Some((6, 1)));
        assert!(matches!(fates["t"], Fate::Failed(_)), "{fates:?}");
        assert_eq!(fates["u"], Fate::LeftOut("no nginx".into()));
        assert!(matches!(fates["a test"], Fate::Failed(_)), "{fates:?}");
    }

    #[test]
    fn each_program_has_its_own_lines_and_the_report_counts_them() {
        let program = |name: &str| Program {
            package: "p".into(),
            name: name.into(),
            file: "f".into(),
            directory: "d".into(),
            tests: vec!["x".into()],
        };
        let programs = [program("p one"), program("p two")];
        let wanted: Vec<_> = programs.iter().map(|it| (it, vec!["x"])).collect();
        // They ran beside each other, and the second was ended.
        let said = format!(
            "0: {BEGIN}\n1: {BEGIN}\n0: test x ... ok <12.345s>\n0: \n1: {TOOK}1200.0 0.5 0.25\n\
             0: {TOOK}20.0 1.5 2.5\n"
        );
        let mut results = Results::new("6.1", "6.1.0-37-amd64");
        let divided = Divided {
            out: vec![("y", "slow")],
            computes: vec!["sim_z"],
            ..Divided::default()
        };
        results.leave_out(&programs[0], &divided);
        results.read(&wanted, &lines(&said));
        assert_eq!(results.failed(), 1);
        let of_first = &results.programs[0];
        let expected = Took {
            all: 20.0,
            computed: 4.0,
        };
        assert_eq!(of_first.took, expected);
        assert_eq!(
            of_first.tests,
            [(Duration::from_millis(12_345), "x".to_owned())]
        );
        let report = report(&[results]);
        assert!(
            report.contains("FAILED p two x: it did not end"),
            "{report}"
        );
        assert!(report.contains("6.1 left out: slow: 1 as y"), "{report}");
        assert!(
            report.ends_with("1 of 3 are left out, 33.3 %\n"),
            "{report}"
        );
    }
}
