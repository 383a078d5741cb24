//! `left-out.toml`: tests that do not run on emulated kernels, each with its reason.
//!
//! An entry names a program and the beginning of a test's name; one that names no test is an error,
//! so that the list does not outlive its reasons.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::programs::Program;

const FILE: &str = include_str!("left-out.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    #[serde(default)]
    left_out: Vec<Entry>,
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
        for entry in &self.left_out {
            let mut of_it = programs.iter();
            let Some(program) = of_it.find(|program| program.name == entry.program) else {
                continue;
            };
            let mut tests = program.tests.iter();
            ensure!(
                tests.any(|test| test.starts_with(&entry.test)),
                "left-out.toml: {} has no test {}",
                entry.program,
                entry.test
            );
        }
        Ok(())
    }

    /// The tests of a program that run on this kernel, and those that do not with the reason.
    pub(super) fn divide<'a>(
        &'a self,
        program: &'a Program,
        version: &str,
    ) -> (Vec<&'a str>, Vec<(&'a str, &'a str)>) {
        let (mut runs, mut out) = (Vec::new(), Vec::new());
        for test in &program.tests {
            let entry = self.left_out.iter().find(|entry| {
                let is_here =
                    entry.kernels.is_empty() || entry.kernels.iter().any(|it| it == version);
                is_here && entry.program == program.name && test.starts_with(&entry.test)
            });
            match entry {
                Some(entry) => out.push((test.as_str(), entry.reason.as_str())),
                None => runs.push(test.as_str()),
            }
        }
        (runs, out)
    }
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
            tests: ["a::one", "a::two", "b::one"].map(String::from).to_vec(),
        }
    }

    #[test]
    fn a_test_is_left_out_by_the_beginning_of_its_name_on_its_kernels() {
        let text = "[[left_out]]\nprogram = 'p it'\ntest = 'a::'\nkernels = ['6.1']\n\
                    reason = 'slow'\n[[left_out]]\nprogram = 'q it'\ntest = 'b'\nreason = 'x'\n\
                    [[left_out]]\nprogram = 'p it'\ntest = 'c'\nreason = 'gone'\n";
        let (list, program) = (LeftOut::of(text).unwrap(), program());
        let (runs, out) = list.divide(&program, "6.1");
        assert_eq!(
            (runs, out),
            (vec!["b::one"], vec![("a::one", "slow"), ("a::two", "slow")])
        );
        assert_eq!(list.divide(&program, "6.12").0.len(), 3);
        let error = list.check(&[program]).unwrap_err().to_string();
        assert!(error.contains("p it has no test c"), "{error}");
    }

    #[test]
    fn the_list_can_be_read_and_no_reason_is_refused() {
        LeftOut::read().unwrap();
        let none = "[[left_out]]\nprogram = 'p it'\ntest = 'a'\nreason = ''\n";
        assert!(LeftOut::of(none).is_err());
    }
}
