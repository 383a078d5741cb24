//! What a test leaves out because this machine lacks it: told at once, and once more at the end of
//! `cargo test`. `cargo xtask kernels` counts the same lines, and reads the version of Linux with
//! which one ends.
//!
//! The test runner keeps what a passing test prints, so this writes past it. Each line goes into a
//! file beside the test programs as well; the last of them, that of `xtask`, prints and removes it.
//! The tests of the driver and of `sys`, which build nothing else of the kit, include this file.

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

/// The same for a feature of Linux that the running kernel is too old for: which, and the version
/// that brought it. From that on its absence is a fault of ours.
///
/// # Panics
/// The running kernel is not older.
pub fn not_on_this_kernel(feature: &str, since: Version) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let is_older = version(release).is_none_or(|running| running < since);
    assert!(
        is_older,
        "Linux {release} has it and we do not get it: {feature}"
    );
    tell("not on this kernel", &with_version(feature, since));
}

/// The same for a feature that a kernel from this version on may still refuse, as its settings, a
/// filter or its build decide: why. `cargo xtask kernels`, whose kernels refuse none, fails such a
/// test there.
pub fn not_offered(why: &str, since: Version) {
    cannot_run(&with_version(why, since));
}

/// The first two numbers of a version of Linux.
pub type Version = (u32, u32);

/// The version of a release as `6.1.0-50-amd64`.
pub fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// How a line ends that is about a feature of Linux.
fn with_version(what: &str, (major, minor): Version) -> String {
    format!("{what} (Linux {major}.{minor})")
}

/// The version at the end of such a line.
pub fn version_in(line: &str) -> Option<Version> {
    let (_, version_text) = line.strip_suffix(')')?.rsplit_once(" (Linux ")?;
    version(version_text)
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
    fn a_feature_that_the_kernel_is_new_enough_for_is_not_left_out() {
        assert_eq!(version("6.1.0-50-amd64\n"), Some((6, 1)));
        let left_out = std::panic::catch_unwind(|| not_on_this_kernel("all of it", (1, 0)));
        assert!(left_out.is_err(), "Linux 1.0 had it");
    }

    #[test]
    fn the_version_of_a_line_is_read_as_it_was_written() {
        let line = with_version("not run: a: its cure (Linux 6.0)", (6, 12));
        assert_eq!(line, "not run: a: its cure (Linux 6.0) (Linux 6.12)");
        assert_eq!(version_in(&line), Some((6, 12)));
        for none in ["not run: a: no nginx", "not run: a: io_uring (EPERM)", ""] {
            assert_eq!(version_in(none), None, "{none}");
        }
    }

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
