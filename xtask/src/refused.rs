//! `cargo xtask refused [ARGUMENT...]`: all tests where the kernel refuses io_uring.
//!
//! Many machines do: containers' default filters, hardened kernels, some clouds. The tests must
//! pass there too, with whatever needs io_uring saying that it was not run. The refusal is a
//! seccomp filter around `cargo test`; the arguments go to it.

use std::process::Command;

use crate::{Error, process, workspace};

/// For the help text.
pub const SUMMARY: &str = "run the tests with io_uring refused, as many containers do";

/// What containers' filters answer.
const ERROR: &str = "EPERM";

/// Runs `cargo test` with these arguments under the filter.
///
/// # Errors
/// A test fails, or the filter cannot be built or applied.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let build = ["build", "--package", "flatpath-e2e", "--bin", "confine"];
    process::run(&mut process::cargo(&build))?;
    let cargo = process::cargo(&["test"]);
    let mut command = Command::new(workspace::root().join("target/debug/confine"));
    command
        .args(["--refuse-uring", ERROR, "--"])
        .arg(cargo.get_program());
    command
        .args(cargo.get_args())
        .args(arguments)
        .current_dir(workspace::root());
    process::run(&mut command)
}
