//! Running other programs: shown, watched line by line, with a deadline.
//!
//! A watched program runs under `timeout` of the coreutils, so that at the deadline its children (a
//! test binary under cargo) end with it.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// How `timeout` ends when the deadline passed, and when it took the second signal.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;

/// How a watched program ended.
#[derive(Debug)]
pub(crate) enum End {
    /// It exited, or a signal killed it.
    Exited(ExitStatus),
    /// It was still running at the deadline and was killed.
    TimedOut,
}

/// What a watched program did.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) end: End,
    /// Its standard output and standard error, line by line as they came.
    pub(crate) lines: Vec<String>,
}

impl Report {
    /// Whether it exited with code 0.
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.end, End::Exited(status) if status.success())
    }
}

/// Whether the output is shown while the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Each line as it comes.
    Lines,
    /// Nothing: the caller reads the report.
    Nothing,
}

/// A `cargo` command in the workspace's root. The cargo that runs us, or the one on `PATH`.
///
/// It builds as one from a shell does. A build script of ours' dependencies (ring's) runs anew when
/// what cargo tells of a package differs, and with it all that needs that crate is built anew: each
/// time, as xtask and a shell take turns. So what was told of xtask is not passed on.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    for (name, _) in std::env::vars_os() {
        if is_of_a_package(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Whether cargo sets this variable of the environment for the package that it runs.
fn is_of_a_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// A command as one types it, with the variables that are set for it and not those that it does
/// without.
fn shown(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{}={value:?}", name.display()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| format!("{word:?}"));
    set.chain(words).collect::<Vec<_>>().join(" ")
}

/// A program of the nightly toolchain, through rustup, in the workspace's root.
pub(crate) fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", program])
        .current_dir(workspace::root())
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// What `command` writes to standard output, if it can be started and exits with code 0.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then(text)
}

/// Runs `command` with our own terminal and fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| shown(command))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// Runs `command`, collects its lines, and ends it with its children at the deadline. A program
/// that fails is not an error: see [`Report`].
pub(crate) fn watch(command: &Command, time_max: Duration, show: Show) -> Result<Report> {
    if show == Show::Lines {
        println!("$ {}", shown(command));
    }
    let (reader, writer) = io::pipe()?;
    let mut child = limited(command, time_max)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| shown(command))?;
    let mut lines = Vec::new();
    // Bytes that are not UTF-8 do not end the reading.
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if show == Show::Lines {
            println!("{line}");
        }
        lines.push(line);
    }
    let status = child.wait()?;
    let end = match status.code() {
        Some(TIMED_OUT | KILLED) => End::TimedOut,
        _ => End::Exited(status),
    };
    Ok(Report { end, lines })
}

/// `command` under `timeout`, which gives it a process group of its own and ends the whole group.
fn limited(command: &Command, time_max: Duration) -> Command {
    let mut limited = Command::new("timeout");
    limited
        .arg("--kill-after=5")
        .arg(time_max.as_secs_f64().to_string())
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn cargo_builds_as_from_a_shell() {
        // cargo has set them for this test.
        let ours = [
            "CARGO_MANIFEST_DIR",
            "CARGO_PKG_NAME",
            "CARGO_PKG_VERSION_MAJOR",
        ];
        let command = cargo(&["build"]);
        for name in ours {
            assert!(std::env::var_os(name).is_some(), "{name}");
            let passed = command.get_envs().find(|(it, _)| *it == name);
            assert_eq!(passed, Some((name.as_ref(), None)));
        }
        assert!(!is_of_a_package("CARGO_INCREMENTAL".as_ref()));
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn watch_collects_both_streams_and_the_exit_code() {
        let command = shell("echo out; echo err >&2; exit 3");
        let report = watch(&command, Duration::from_secs(30), Show::Nothing).unwrap();
        let mut lines = report.lines.clone();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        assert!(matches!(report.end, End::Exited(status) if status.code() == Some(3)));
        assert!(!report.succeeded());
    }

    #[test]
    fn watch_kills_the_whole_group_at_the_deadline() {
        // The grandchild holds the pipe: without the group kill it would live on for an hour.
        let command = shell("sleep 3600 & echo $!; wait");
        let report = watch(&command, Duration::from_millis(500), Show::Nothing).unwrap();
        assert!(matches!(report.end, End::TimedOut));
        let grandchild = report.lines.first().expect("the shell names its child");
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_running(grandchild) {
            assert!(
                Instant::now() < deadline,
                "process {grandchild} outlived its group"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Gone, or a zombie that nobody waits for: both are not running.
    fn is_running(process: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let state = status
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .chars()
            .next();
        state.is_some_and(|state| state != 'Z')
    }
}
