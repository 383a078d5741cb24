//! What a test leaves out because this machine lacks it: told at once, and once more at the end of
//! `cargo test`. `cargo xtask kernels` counts the same lines.
//!
//! The test runner keeps what a passing test prints, so this writes past it. Each line goes into a
//! file beside the test programs as well; the last of them, that of `xtask`, prints and removes it.
//! The driver's tests, which build nothing else of the kit, include this file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file, in the directory of the build.
const FILE: &str = "not-run.txt";

/// Says that the test that calls it, or a part of it, is left out for want of something that can be
/// installed or allowed, and what.
///
/// # Panics
/// Where `CI=true`.
pub fn not_run(why: &str) {
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!strict, "left out, and CI=true leaves out nothing: {why}");
    cannot_run(why);
}

/// The same for what depends on the machine, which also CI's may lack.
pub fn cannot_run(why: &str) {
    tell("not run", why);
}

/// The same for a feature of Linux that the running kernel does not have: which.
pub fn not_on_this_kernel(feature: &str) {
    tell("not on this kernel", feature);
}

/// What the lines begin with that a test prints in a process of its own and its parent passes on.
pub(crate) const BEGINS: [&str; 2] = ["not run: ", "not on this kernel: "];

fn tell(what: &str, why: &str) {
    let thread = std::thread::current();
    // In a process of its own, a test runs on the first thread.
    let alone = std::env::var("FLATPATH_TEST_ALONE").ok();
    let alone = alone.as_deref().and_then(|path| path.split_once("::"));
    let name = alone.map(|(_, within)| within).or(thread.name());
    // A reason is one line.
    let why = why.replace('\n', " ");
    let line = format!("{what}: {}: {why}\n", name.unwrap_or("a test"));
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(path) = file() {
        append(&path, &line);
    }
}

/// Takes what has been left out since the last time, each line once.
pub fn take() -> Vec<String> {
    file().map_or_else(Vec::new, |path| take_from(&path))
}

/// `target/debug/not-run.txt`, beside `deps`.
fn file() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join(FILE))
}

fn append(path: &Path, line: &str) {
    let file = File::options().append(true).create(true).open(path);
    // One write, so that lines of several programs stay whole.
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

fn take_from(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    let lines: BTreeSet<&str> = text.lines().collect();
    lines.into_iter().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_once_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        for line in ["b: why\n", "a: why\n", "b: why\n"] {
            append(&path, line);
        }
        assert_eq!(take_from(&path), ["a: why", "b: why"]);
        assert!(take_from(&path).is_empty());
    }
}
