//! Running other programs: said aloud, watched line by line, with a deadline.
//!
//! A program runs in a process group of its own, so that at the deadline its children (a test
//! binary under cargo) end with it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Error, workspace};

/// How a watched program ended.
#[derive(Debug)]
pub enum End {
    /// It exited, or a signal killed it.
    Exited(ExitStatus),
    /// It was still running at the deadline and was killed.
    TimedOut,
}

/// What a watched program did.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Its standard output and standard error, line by line as they came.
    pub lines: Vec<String>,
}

impl Report {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        matches!(self.end, End::Exited(status) if status.success())
    }
}

/// Whether the output is shown while the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Each line as it comes.
    Lines,
    /// Nothing: the caller looks at the report.
    Nothing,
}

/// A `cargo` command in the workspace's root. The cargo that runs us, or the one on `PATH`.
#[must_use]
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// A `cargo` command of the nightly toolchain, through rustup.
#[must_use]
pub fn nightly_cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .args(arguments)
        .current_dir(workspace::root());
    command
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Runs `command` with our own terminal and fails when it fails.
///
/// # Errors
/// It could not be started, or did not exit with code 0.
pub fn run(command: &mut Command) -> Result<(), Error> {
    println!("$ {}", line_of(command));
    let status = command
        .status()
        .map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "`{}` ended with {status}",
        line_of(command)
    )))
}

/// Whether `command` can be started and exits with code 0; its output is dropped.
#[must_use]
pub fn works(command: &mut Command) -> bool {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs `command`, collects its lines, and kills it with its children at the deadline.
///
/// # Errors
/// It could not be started or waited for. A program that fails is not an error: see [`Report`].
pub fn watch(command: &mut Command, time_max: Duration, show: Show) -> Result<Report, Error> {
    if show == Show::Lines {
        println!("$ {}", line_of(command));
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| not_started(command, &error))?;
    let (sender, receiver) = mpsc::channel();
    for stream in streams(&mut child) {
        let sender = sender.clone();
        std::thread::spawn(move || {
            // Bytes that are not UTF-8 end the reading of one line only, never the program.
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    return;
                }
            }
        });
    }
    drop(sender);
    let deadline = Instant::now() + time_max;
    let mut lines = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(line) => {
                if show == Show::Lines {
                    println!("{line}");
                }
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill_group(&mut child);
                return Ok(Report {
                    end: End::TimedOut,
                    lines,
                });
            }
        }
    }
    Ok(Report {
        end: End::Exited(child.wait()?),
        lines,
    })
}

/// The command as one would type it, with the environment variables it adds.
#[must_use]
pub fn line_of(command: &Command) -> String {
    let mut words = Vec::new();
    let mut seen = HashSet::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| seen.insert(name)) {
            words.push(format!(
                "{}={:?}",
                name.to_string_lossy(),
                value.to_string_lossy()
            ));
        }
    }
    let program = std::path::Path::new(command.get_program());
    words.push(
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    );
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

fn streams(child: &mut Child) -> Vec<Box<dyn Read + Send>> {
    let mut streams: Vec<Box<dyn Read + Send>> = Vec::new();
    if let Some(stream) = child.stdout.take() {
        streams.push(Box::new(stream));
    }
    if let Some(stream) = child.stderr.take() {
        streams.push(Box::new(stream));
    }
    streams
}

fn kill_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended by itself a moment ago: then there is nothing to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn not_started(command: &Command, error: &std::io::Error) -> Error {
    Error::Failed(format!("cannot start {:?}: {error}", command.get_program()))
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
