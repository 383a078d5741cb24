//! `cargo xtask miri [FILTER...]`: the structures' unit tests under Miri.
//!
//! Miri sees undefined behaviour, data races and weak memory that the hardware hides, in the one
//! schedule that a seed gives. It needs a nightly toolchain with the components miri and rust-src.
//!
//! It sees every structure, `memory.rs` with its raw memory included. Not: system calls, so not the
//! driver; all schedules, which are loom's. All tests take long, the pool's model alone minutes:
//! name some, as in `cargo xtask miri stack::`; for more schedules set `MIRIFLAGS` with
//! `-Zmiri-many-seeds=0..8`.

use crate::{Error, process};

/// For the help text.
pub const SUMMARY: &str = "run the structures' tests under Miri (nightly)";

/// Strict about pointers. The clock is the machine's, as deadlines of tests are.
const FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-disable-isolation";

/// Runs the unit tests whose names hold one of the filters.
///
/// # Errors
/// Miri finds a fault. A missing component is said and is no error.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    if !process::works(&mut process::nightly_cargo(&["miri", "--version"])) {
        println!(
            "miri: not run: the nightly toolchain with Miri is missing; to get it:\n\
             rustup toolchain install nightly --component miri --component rust-src"
        );
        return Ok(());
    }
    let mut command = process::nightly_cargo(&["miri", "test"]);
    command.args([
        "--package",
        "flatpath-structures",
        "--lib",
        "--target-dir",
        "target/miri",
        "--",
    ]);
    command.args(arguments);
    if std::env::var_os("MIRIFLAGS").is_none() {
        command.env("MIRIFLAGS", FLAGS);
    }
    process::run(&mut command)
}
