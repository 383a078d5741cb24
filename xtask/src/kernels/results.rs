//! What the programs said, and the table of it.
//!
//! A test has passed if it says so and nothing of it was left out. One that says
//! `not on this kernel: NAME: WHAT` needs a feature that this kernel has not; `not run: NAME: WHY`
//! lacks something else of the machine. One that was to run and says nothing has failed: its
//! program hung or crashed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use super::machine::{BEGIN, END};
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
}

/// Of one kernel.
#[derive(Debug)]
pub(super) struct Results {
    version: String,
    release: String,
    pub(super) took: Duration,
    /// By program, in their order, and test.
    fates: Vec<(String, BTreeMap<String, Fate>)>,
}

impl Results {
    pub(super) fn new(version: &str, release: &str) -> Self {
        Self {
            version: version.to_owned(),
            release: release.to_owned(),
            took: Duration::ZERO,
            fates: Vec::new(),
        }
    }

    fn of(&mut self, program: &str) -> &mut BTreeMap<String, Fate> {
        let place = self.fates.iter().position(|(name, _)| name == program);
        let place = place.unwrap_or_else(|| {
            self.fates.push((program.to_owned(), BTreeMap::new()));
            self.fates.len() - 1
        });
        &mut self.fates[place].1
    }

    /// Notes tests that do not run here, with reasons.
    pub(super) fn leave_out(&mut self, program: &Program, tests: Vec<(&str, &str)>) {
        let fates = self.of(&program.name);
        for (test, reason) in tests {
            fates.insert(test.to_owned(), Fate::LeftOut(reason.to_owned()));
        }
    }

    /// Notes what the programs said, which were to run these tests.
    pub(super) fn read(&mut self, programs: &[(&Program, Vec<&str>)], lines: &[String]) {
        for (number, (program, tests)) in programs.iter().enumerate() {
            let begin = format!("{BEGIN}{number}");
            let said = lines.iter().skip_while(|line| **line != begin).skip(1);
            let said: Vec<String> = said
                .take_while(|line| !line.starts_with(END) && !line.starts_with(BEGIN))
                .cloned()
                .collect();
            let fates = fates(tests, &said);
            self.of(&program.name).extend(fates);
        }
    }

    /// How many tests failed.
    pub(super) fn failed(&self) -> usize {
        let fates = self.fates.iter().flat_map(|(_, fates)| fates.values());
        fates.filter(|fate| matches!(fate, Fate::Failed(_))).count()
    }
}

/// What became of these tests, from what their program said.
fn fates(tests: &[&str], said: &[String]) -> BTreeMap<String, Fate> {
    let fates = tests.iter().map(|test| {
        let fate = match (verdict(test, said), left_out(test, said)) {
            (Some("ok"), Some(fate)) => fate,
            (Some("ok"), None) => Fate::Passed,
            (Some(_), _) => Fate::Failed(failure(test, said)),
            (None, _) => Fate::Failed("it did not end".to_owned()),
        };
        ((*test).to_owned(), fate)
    });
    fates.collect()
}

/// What its line says.
fn verdict<'a>(test: &str, said: &'a [String]) -> Option<&'a str> {
    said.iter().find_map(|line| {
        let rest = line.strip_prefix("test ")?.strip_prefix(test)?;
        let rest = rest.strip_prefix(" - should panic").unwrap_or(rest);
        rest.strip_prefix(" ... ")
    })
}

/// What it left itself out for.
fn left_out(test: &str, said: &[String]) -> Option<Fate> {
    said.iter().find_map(|line| {
        let why = |kind| {
            let (whose, why) = line.strip_prefix(kind)?.split_once(": ")?;
            (whose == test).then(|| why.to_owned())
        };
        let on_kernel = why(NOT_ON_THIS_KERNEL).map(Fate::NotOnThisKernel);
        on_kernel.or_else(|| why(NOT_RUN).map(Fate::LeftOut))
    })
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

/// A kernel's rows.
impl fmt::Display for Results {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (program, fates) in &self.fates {
            let count = |wanted: fn(&Fate) -> bool| fates.values().filter(|it| wanted(it)).count();
            writeln!(
                to,
                "{:<8} {program:<22} {:>6} {:>6} {:>18} {:>8}",
                self.version,
                count(|fate| *fate == Fate::Passed),
                count(|fate| matches!(fate, Fate::Failed(_))),
                count(|fate| matches!(fate, Fate::NotOnThisKernel(_))),
                count(|fate| matches!(fate, Fate::LeftOut(_))),
            )?;
        }
        let seconds = self.took.as_secs();
        writeln!(to, "{:<8} {} in {seconds} s", self.version, self.release)
    }
}

/// The table of all kernels, then why tests failed or did not run: each reason once.
pub(super) fn report(all: &[Results]) -> String {
    let mut report = format!(
        "\n{:<8} {:<22} {:>6} {:>6} {:>18} {:>8}\n",
        "kernel", "program", "passed", "failed", "not on this kernel", "left out"
    );
    let mut reasons: BTreeMap<(&str, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    let (mut tests, mut out) = (0, 0);
    for results in all {
        let _ = write!(report, "{results}");
        for (program, fates) in &results.fates {
            for (test, fate) in fates {
                tests += 1;
                let (what, why) = match fate {
                    Fate::Passed => continue,
                    Fate::Failed(why) => {
                        let _ = writeln!(report, "FAILED {program} {test}: {why}");
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

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    const SAID: &str = "running 6 tests\n\
        not on this kernel: a::old: multishot accept\n\
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
        let fates = fates(&tests, &lines(SAID));
        let of = |name: &str| fates[name].clone();
        assert_eq!(of("a::good"), Fate::Passed);
        assert_eq!(
            of("a::old"),
            Fate::NotOnThisKernel("multishot accept".into())
        );
        assert_eq!(of("a::poor"), Fate::LeftOut("no nginx".into()));
        assert_eq!(of("a::bad"), Fate::Failed("two is not three".into()));
        assert_eq!(of("a::panics"), Fate::Passed);
        assert_eq!(of("a::hangs"), Fate::Failed("it did not end".into()));
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
        let said = format!("{BEGIN}0\ntest x ... ok\n\n{END}0\n{BEGIN}1\n\n{END}124\n");
        let mut results = Results::new("6.1", "6.1.0-37-amd64");
        results.leave_out(&programs[0], vec![("y", "slow")]);
        results.read(&wanted, &lines(&said));
        assert_eq!(results.failed(), 1);
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
