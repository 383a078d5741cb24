//! Running other programs: shown, watched line by line, with a deadline.
//!
//! A watched program runs in a process group of its own, so that at the deadline its children (a
//! test binary under cargo) end with it.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::workspace;

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
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
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
    println!("$ {command:?}");
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Runs `command`, collects its lines, and kills it with its children at the deadline. A program
/// that fails is not an error: see [`Report`].
pub(crate) fn watch(command: &mut Command, time_max: Duration, show: Show) -> Result<Report> {
    if show == Show::Lines {
        println!("$ {command:?}");
    }
    let (reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    // The pipe ends with the program: the command must not hold it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Bytes that are not UTF-8 do not end the reading.
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + time_max;
    let mut lines = Vec::new();
    let end = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(line) => {
                if show == Show::Lines {
                    println!("{line}");
                }
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break End::Exited(child.wait()?),
            Err(RecvTimeoutError::Timeout) => {
                kill_group(&mut child);
                break End::TimedOut;
            }
        }
    };
    Ok(Report { end, lines })
}

fn kill_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended by itself a moment ago: then there is nothing to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn watch_collects_both_streams_and_the_exit_code() {
        let mut command = shell("echo out; echo err >&2; exit 3");
        let report = watch(&mut command, Duration::from_secs(30), Show::Nothing).unwrap();
        let mut lines = report.lines.clone();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        assert!(matches!(report.end, End::Exited(status) if status.code() == Some(3)));
        assert!(!report.succeeded());
    }

    #[test]
    fn watch_kills_the_whole_group_at_the_deadline() {
        // The grandchild holds the pipe: without the group kill it would live on for an hour.
        let mut command = shell("sleep 3600 & echo $!; wait");
        let report = watch(&mut command, Duration::from_millis(500), Show::Nothing).unwrap();
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
