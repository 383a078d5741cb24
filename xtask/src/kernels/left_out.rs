//! Tests that do not run on emulated kernels.
//!
//! - Those that compute the same on each kernel, by one rule: what runs on the simulated driver or
//!   in a model of threads, and tables of functions without system calls. Names tell them
//!   (CONTRIBUTING.md: `sim_`, `loom_`, files named `simulation_...`), or the table `computes` of
//!   `left-out.toml` where names do not. They are none of a kernel's, and most of the time of an
//!   emulated processor would be theirs.
//! - Those that take too long there, each with its reason: `left_out` of the same file.
//!
//! An entry names a program and the beginning of a test's name; one that names no test is an error,
//! so that the list does not outlive its reasons.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::programs::Program;

const FILE: &str = include_str!("left-out.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    /// By program, the beginnings of names.
    #[serde(default)]
    computes: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    left_out: Vec<Entry>,
}

/// The tests of a program on one kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Divided<'a> {
    pub(super) runs: Vec<&'a str>,
    /// With the reason.
    pub(super) out: Vec<(&'a str, &'a str)>,
    /// Those that compute the same on each kernel.
    pub(super) computes: Vec<&'a str>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    program: String,
    /// The beginning of the names.
    test: String,
    /// Only there; everywhere, if none is named.
    #[serde(default)]
    kernels: Vec<String>,
    reason: String,
}

impl LeftOut {
    pub(super) fn read() -> Result<Self> {
        Self::of(FILE)
    }

    fn of(text: &str) -> Result<Self> {
        let read: Self = toml::from_str(text).context("left-out.toml")?;
        for entry in &read.left_out {
            ensure!(
                !entry.reason.is_empty(),
                "{} is left out for no reason",
                entry.test
            );
        }
        Ok(read)
    }

    /// Each entry that is about one of these programs names a test of it.
    pub(super) fn check(&self, programs: &[Program]) -> Result<()> {
        let computes = self.computes.iter().flat_map(|(program, begins)| {
            let pairs = begins.iter().map(move |begin| (program, begin));
            pairs.collect::<Vec<_>>()
        });
        let left_out = self.left_out.iter().map(|it| (&it.program, &it.test));
        for (name, begin) in computes.chain(left_out) {
            let Some(program) = programs.iter().find(|it| it.name == *name) else {
                continue;
            };
            ensure!(
                program.tests.iter().any(|test| test.starts_with(begin)),
                "left-out.toml: {name} has no test {begin}"
            );
        }
        Ok(())
    }

    /// What becomes of each test of a program on this kernel.
    pub(super) fn divide<'a>(&'a self, program: &'a Program, version: &str) -> Divided<'a> {
        let mut divided = Divided::default();
        for test in &program.tests {
            if computes_by_name(test) || self.computes(program, test) {
                divided.computes.push(test);
                continue;
            }
            let entry = self.left_out.iter().find(|entry| {
                let is_here =
                    entry.kernels.is_empty() || entry.kernels.iter().any(|it| it == version);
                is_here && entry.program == program.name && test.starts_with(&entry.test)
            });
            match entry {
                Some(entry) => divided.out.push((test, &entry.reason)),
                None => divided.runs.push(test),
            }
        }
        divided
    }

    fn computes(&self, program: &Program, test: &str) -> bool {
        let begins = self.computes.get(&program.name);
        begins.is_some_and(|begins| begins.iter().any(|begin| test.starts_with(begin)))
    }
}

/// Whether the name of a test says that it computes the same on each kernel. So do the files of
/// tests that are named after the simulation (`simulation_drain`), whatever their tests are named.
fn computes_by_name(test: &str) -> bool {
    let (place, name) = test.rsplit_once("::").unwrap_or(("", test));
    let computes = ["sim_", "model_sim_", "loom_", "shuttle_"];
    place.starts_with("simulation_") || computes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            package: "p".into(),
            name: "p it".into(),
            file: "f".into(),
            directory: "d".into(),
            tests: ["a::one", "a::two", "b::one", "b::sim_two", "d::one"]
                .map(String::from)
                .to_vec(),
        }
    }

    #[test]
    fn a_test_on_the_simulated_driver_is_no_matter_of_a_kernel() {
        for (test, expected) in [
            ("simulation::sim_all_arrives", true),
            ("waker::tests::loom_no_wake_is_lost", true),
            ("room::model_sim_the_largest_ends", true),
            (
                "simulation_drain::a_drain_that_is_delayed_still_accepts",
                true,
            ),
            ("simulation::a_real_one::holds_on_uring", false),
            ("model_random_writes::holds_on_epoll", false),
        ] {
            assert_eq!(computes_by_name(test), expected, "{test}");
        }
    }

    #[test]
    fn a_test_is_left_out_by_the_beginning_of_its_name_on_its_kernels() {
        let text = "[computes]\n'p it' = ['d::']\n'q it' = ['z']\n\
                    [[left_out]]\nprogram = 'p it'\ntest = 'a::'\nkernels = ['6.1']\n\
                    reason = 'slow'\n[[left_out]]\nprogram = 'q it'\ntest = 'b'\nreason = 'x'\n\
                    [[left_out]]\nprogram = 'p it'\ntest = 'c'\nreason = 'gone'\n";
        let (list, program) = (LeftOut::of(text).unwrap(), program());
        let here = Divided {
            runs: vec!["b::one"],
            out: vec![("a::one", "slow"), ("a::two", "slow")],
            computes: vec!["b::sim_two", "d::one"],
        };
        assert_eq!(list.divide(&program, "6.1"), here);
        assert_eq!(list.divide(&program, "6.12").runs.len(), 3);
        let error = list.check(&[program]).unwrap_err().to_string();
        assert!(error.contains("p it has no test c"), "{error}");
    }

    #[test]
    fn what_computes_and_is_no_test_is_an_error() {
        let list = LeftOut::of("[computes]\n'p it' = ['d::', 'e::']\n").unwrap();
        let error = list.check(&[program()]).unwrap_err().to_string();
        assert!(error.contains("p it has no test e::"), "{error}");
    }

    #[test]
    fn the_list_can_be_read_and_no_reason_is_refused() {
        LeftOut::read().unwrap();
        let none = "[[left_out]]\nprogram = 'p it'\ntest = 'a'\nreason = ''\n";
        assert!(LeftOut::of(none).is_err());
    }
}
