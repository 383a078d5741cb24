//! The Debian package on a kernel whose first process is systemd, with `package.sh`: a row of the
//! table like a test program.
//!
//! The files are this machine's, so it runs where they are Debian's, and where cargo-deb makes the
//! package.

use std::path::PathBuf;

use anyhow::Result;
use flatpath_testkit::tools;

use super::programs::Program;
use crate::{dist, workspace};

/// How the table and the command line name it.
pub(super) const NAME: &str = "package";

/// The functions of the script that are tests, in the order in which they run.
const TESTS: &[&str] = &[
    "it_is_installed_and_started_by_its_unit",
    "it_reads_its_settings_again",
    "it_runs_where_a_setting_of_the_kernel_refuses_io_uring",
    "it_runs_where_seccomp_refuses_io_uring",
    "it_is_removed_and_its_files_stay_until_it_is_purged",
];

const SYSTEMD: &str = "/lib/systemd/systemd";

/// The package, made of a debug build, as a program. `None` after a line with what is missing.
pub(super) fn program() -> Result<Option<Program>> {
    if !std::path::Path::new(SYSTEMD).exists() {
        println!("kernels: the package is not tried: no systemd");
        return Ok(None);
    }
    if tools::find("curl").is_none() {
        return Ok(None);
    }
    let made = dist::deb(dist::Profile::Debug)?;
    Ok(made.map(|file| Program {
        package: NAME.to_owned(),
        name: "Debian package".to_owned(),
        file,
        directory: workspace::root(),
        tests: TESTS.iter().map(|test| (*test).to_owned()).collect(),
    }))
}

/// The lines that run these tests of the package.
pub(super) fn commands(program: &Program, tests: &[&str]) -> String {
    let script: PathBuf = workspace::root().join("xtask/src/kernels/package.sh");
    format!(
        "/bin/bash '{}' '{}' {}",
        script.display(),
        program.file.display(),
        tests.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_a_function_of_the_script() {
        let script = include_str!("package.sh");
        for test in TESTS {
            assert!(script.contains(&format!("\n{test}() {{\n")), "{test}");
        }
        let functions = script.lines().filter(|line| line.starts_with("it_"));
        assert_eq!(functions.count(), TESTS.len());
    }
}
