//! Programs of others that tests use as clients.
//!
//! One that is missing is named, and the test passes without it; where `CI=true` it fails: there
//! the tools are installed, and a test left out would go unnoticed.

use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::deadline::Deadline;
use crate::skipped::not_run;

/// Administrators' programs are often missing from the search path of a user.
const ALSO_IN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Where `name` is installed.
pub fn locate(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(ALSO_IN.iter().map(PathBuf::from));
    locate_in(directories, name)
}

fn locate_in(directories: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let mut paths = directories.map(|directory| directory.join(name));
    paths.find(|path| {
        path.metadata()
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    })
}

/// The same, or `None` after a message that it is missing.
pub fn find(name: &str) -> Option<PathBuf> {
    let found = locate(name);
    if found.is_none() {
        not_run(&format!("{name} is not installed"));
    }
    found
}

/// The directory that the environment's `variable` names, where something is installed that has no
/// place in the search path, or `None` after a message that it is not set.
pub fn installed(variable: &str) -> Option<PathBuf> {
    let directory = std::env::var_os(variable).map(PathBuf::from);
    if directory.is_none() {
        not_run(&format!("{variable} is not set"));
    }
    directory
}

/// Says that this machine refuses what a test needs, and why.
pub fn refused<T>(what: &str) -> Option<T> {
    not_run(&format!("refused: {what}"));
    None
}

/// Brings up the loopback interface of this thread's network namespace. In a new one it is down.
///
/// # Errors
/// As [`ip`].
pub fn loopback_up() -> io::Result<()> {
    ip(&["link", "set", "lo", "up"])
}

/// Runs `ip` (iproute2) in this thread's network namespace.
///
/// # Errors
/// It is not installed, or fails; the error has its words.
pub fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output();
    let named = |cause| io::Error::new(ErrorKind::NotFound, format!("ip (iproute2): {cause}"));
    let output = output.map_err(named)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let what = format!("ip {}: {}: {words}", arguments.join(" "), output.status);
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Runs `command` to its end and returns what it wrote.
pub fn run(command: &mut Command, time_max: Duration) -> Output {
    let deadline = Deadline::after(time_max);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let group = child.id();
    // Both pipes are read by a thread, so that the program never blocks on us; it ends the wait.
    let (sender, receiver) = std::sync::mpsc::channel();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let waiter = std::thread::spawn(move || {
        let errors = std::thread::spawn(move || read_all(stderr));
        let out = read_all(stdout);
        let output = child.wait().map(|status| Output {
            status,
            stdout: out,
            stderr: errors.join().unwrap_or_default(),
        });
        // After the deadline no receiver is left.
        let _ = sender.send(output);
    });
    if let Ok(output) = receiver.recv_timeout(deadline.left()) {
        waiter.join().expect("the waiter does not panic");
        return output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
    if let Some(process) = i32::try_from(group)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have ended this very moment.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
    panic!("{command:?} did not end within {time_max:?}");
}

fn read_all(stream: Option<impl io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What came before an error is still worth showing.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_run_is_not_a_program() {
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("wrk"), "text").expect("written");
        let found = locate_in([directory.path().to_path_buf()].into_iter(), "wrk");
        assert_eq!(found, None);
    }

    #[test]
    fn the_shell_is_found() {
        let found = locate_in([PathBuf::from("/bin")].into_iter(), "sh");
        assert_eq!(found, Some(PathBuf::from("/bin/sh")));
    }
}
