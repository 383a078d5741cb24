//! A test in a process of its own, because what it changes or counts is the whole process's:
//! signals, limits, the logger, allocations.
//!
//! The test is the same program started again, so it needs no program of its own. The driver's
//! tests, which build nothing else of the kit, include this file.

use std::io::Write;
use std::process::Command;

/// Runs one test of this program again, alone in a process of its own. `test` is its whole path:
/// `concat!(module_path!(), "::its_name")`. True in that process; false when it has come back
/// without a failure.
///
/// # Panics
/// When the test failed in its process, with what it printed there.
pub fn in_child(test: &str) -> bool {
    const MARK: &str = "FLATPATH_TEST_ALONE";
    if std::env::var_os(MARK).is_some_and(|mark| mark == *test) {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let (_, within) = test.split_once("::").expect("a path from the crate on");
    let output = Command::new(program)
        .args([within, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .output()
        .expect("a child");
    let words = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && words.contains("1 passed"),
        "{test} in a child: {}\n{words}\n{said}",
        output.status,
    );
    // What it left out is told past the test runner, which keeps what a passing test prints.
    for line in said.lines() {
        if super::skipped::BEGINS.iter().any(|it| line.starts_with(it)) {
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    }
    false
}
