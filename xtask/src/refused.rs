//! `cargo xtask refused [ARGUMENT...]`: all tests where the kernel refuses io_uring.
//!
//! Many machines do: containers' default filters, hardened kernels, some clouds. The tests must
//! pass there too, and name what needs io_uring and was not run. The refusal is a seccomp filter
//! around `cargo test`; the arguments go to it.

use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// What containers' filters answer.
const ERROR: &str = "EPERM";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let build = ["build", "--package", "flatpath-e2e", "--bin", "confine"];
    process::run(&mut process::cargo(&build))?;
    let cargo = process::cargo(&["test"]);
    let mut command = Command::new(workspace::root().join("target/debug/confine"));
    command
        .args(["--refuse-uring", ERROR, "--"])
        .arg(cargo.get_program())
        .args(cargo.get_args())
        .args(arguments)
        .current_dir(workspace::root());
    process::run(&mut command)
}
