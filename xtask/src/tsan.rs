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

use std::path::Path;

use anyhow::Result;

use crate::process;

const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn run(filters: &[String]) -> Result<()> {
    let sysroot = process::output(process::nightly("rustc").args(["--print", "sysroot"]));
    let source = "lib/rustlib/src/rust/library/std/src/lib.rs";
    if !sysroot.is_some_and(|sysroot| Path::new(&sysroot).join(source).is_file()) {
        println!(
            "tsan: not run: the nightly toolchain with rust-src is missing; to get it:\n\
             rustup toolchain install nightly --component rust-src"
        );
        return Ok(());
    }
    let mut command = process::nightly("cargo");
    command
        .args(["test", "-Zbuild-std", "--target", TARGET, "--lib"])
        .args(["--package", "flatpath-structures"])
        .args(["--target-dir", "target/tsan", "--"])
        .args(filters)
        // Its reports name lines.
        .env("CARGO_PROFILE_TEST_DEBUG", "line-tables-only")
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("TSAN_OPTIONS", "halt_on_error=1 enable_adaptive_delay=1");
    process::run(&mut command)
}
