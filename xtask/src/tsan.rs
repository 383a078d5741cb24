//! `cargo xtask tsan [FILTER...]`: the structures' tests under ThreadSanitizer.
//!
//! It watches real threads at full size, where the model checkers see two or three. It does not
//! know fences, which here only stand between atomics: plain memory is handed on by the swaps and
//! stores themselves, and those it knows. It needs a nightly toolchain with rust-src, to build std
//! as well; with that it takes two minutes, of which the tests take ten seconds.
//!
//! What it sees: whether the bytes of a buffer, and all that safe code shares, are ordered in the
//! runs that happened. Not: orderings that this processor never shows (loom), memory that is used
//! after its end (Miri), the driver's memory, which the kernel writes.

use std::path::PathBuf;
use std::process::Command;

use crate::{Error, process};

/// For the help text.
pub const SUMMARY: &str = "run the structures' tests under ThreadSanitizer (nightly)";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests whose names hold one of the filters.
///
/// # Errors
/// ThreadSanitizer reports a race or a test fails. A missing component is said and is no error.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    if !has_standard_library_source() {
        println!(
            "tsan: not run: the nightly toolchain with rust-src is missing; to get it:\n\
             rustup toolchain install nightly --component rust-src"
        );
        return Ok(());
    }
    let mut command = process::nightly_cargo(&["test", "-Zbuild-std", "--target", TARGET]);
    command.args([
        "--package",
        "flatpath-structures",
        "--lib",
        "--target-dir",
        "target/tsan",
        "--",
    ]);
    command.args(arguments);
    command.env("RUSTFLAGS", "-Zsanitizer=thread");
    command.env("TSAN_OPTIONS", "halt_on_error=1 enable_adaptive_delay=1");
    process::run(&mut command)
}

fn has_standard_library_source() -> bool {
    let output = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--print", "sysroot"])
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        return false;
    };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    sysroot
        .join("lib/rustlib/src/rust/library/std/src/lib.rs")
        .is_file()
}
