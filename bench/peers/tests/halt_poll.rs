//! `--halt-poll` sets the machine's file for a run and puts back what it was, however the run ends.
//!
//! The file is one of a mount namespace, so the machine's own setting is never touched. That takes
//! root; without it the tests pass and say so.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flatpath_testkit::deadline::Deadline;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const HARNESS: &str = env!("CARGO_BIN_EXE_flatpath-peers");
/// What the harness finds.
const BEFORE: &str = "7";
/// Puts a file in the place of the machine's, in a mount namespace, and becomes the harness.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs none /sys/module
mkdir -p /sys/module/haltpoll/parameters
touch /sys/module/haltpoll/parameters/guest_halt_poll_ns
mount --bind "$0" /sys/module/haltpoll/parameters/guest_halt_poll_ns
exec "$@"
"#;

/// A harness that is not root's file system's; it does not outlive its test.
struct Harness {
    process: Child,
    place: TempDir,
}

impl Harness {
    fn start(arguments: &[&str]) -> Option<Self> {
        if !geteuid().is_root() {
            flatpath_testkit::skipped::cannot_run("mount namespaces take root");
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        fs::write(setting(place.path()), BEFORE).expect("written");
        let process = Command::new("unshare")
            .args(["--mount", "sh", "-c", SCRIPT])
            .arg(setting(place.path()))
            .arg(HARNESS)
            .args(arguments)
            .arg("--json")
            .arg(place.path().join("report.json"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = process.expect("unshare (util-linux) starts");
        Some(Self { process, place })
    }

    fn setting(&self) -> String {
        let text = fs::read_to_string(setting(self.place.path()));
        text.expect("it is there").trim().to_owned()
    }

    fn end(&mut self) -> Option<i32> {
        let deadline = Deadline::default();
        loop {
            if let Some(status) = self.process.try_wait().expect("waited") {
                return status.code();
            }
            assert!(!deadline.is_over(), "the harness did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn setting(place: &Path) -> std::path::PathBuf {
    place.join("guest_halt_poll_ns")
}

#[test]
fn each_setting_is_measured_and_the_one_before_put_back() {
    let idle = ["--quick", "--only", "idle", "--servers", "hyper"];
    let arguments = [&idle[..], &["--clients", "20", "--halt-poll", "1000,2000"]].concat();
    let Some(mut harness) = Harness::start(&arguments) else {
        return;
    };
    assert_eq!(harness.end(), Some(0));
    assert_eq!(harness.setting(), BEFORE);
    let report = fs::read(harness.place.path().join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let benches = report["benches"].as_array().expect("a list");
    let about = |index: usize| benches[index]["about"].as_str().expect("words").to_owned();
    assert_eq!(benches.len(), 2, "{report}");
    assert!(about(0).ends_with("guest_halt_poll_ns 1000"), "{report}");
    assert!(about(1).ends_with("guest_halt_poll_ns 2000"), "{report}");
}

#[test]
fn an_interrupted_run_puts_the_setting_back() {
    let arguments = [
        "--only",
        "sleepers",
        "--servers",
        "tiny-http",
        "--seconds",
        "600",
    ];
    let arguments = [&arguments[..], &["--halt-poll", "1000"]].concat();
    let Some(mut harness) = Harness::start(&arguments) else {
        return;
    };
    let deadline = Deadline::default();
    while harness.setting() != "1000" {
        assert!(!deadline.is_over(), "it was never set");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = i32::try_from(harness.process.id())
        .ok()
        .and_then(Pid::from_raw);
    kill_process(pid.expect("a number"), Signal::INT).expect("signalled");
    assert_eq!(harness.end(), Some(130));
    assert_eq!(harness.setting(), BEFORE);
}
