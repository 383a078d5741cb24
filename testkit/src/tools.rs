//! Programs of others that tests use as clients.
//!
//! One that is missing is named, and the test passes without it; where `CI=true` it fails: there
//! the tools are installed, and a test left out would go unnoticed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
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

/// Runs `command`, and says `words` to it. Its input ends when what it has written is enough, or
/// when it has ended: for a client that leaves with its input, however long the reply takes.
/// Returns what it wrote; its errors are dropped.
pub fn converse(
    command: &mut Command,
    words: &[u8],
    is_enough: impl Fn(&[u8]) -> bool,
    time_max: Duration,
) -> Output {
    let deadline = Deadline::after(time_max);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        // It may have ended already.
        let _ = input.write_all(words);
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Some(Ok(count @ 1..)) = output.as_mut().map(|output| output.read(&mut piece))
            && sender.send(piece[..count].to_vec()).is_ok()
        {}
    });
    let mut stdout = Vec::new();
    let status = loop {
        match receiver.recv_timeout(deadline.left()) {
            Ok(piece) => {
                stdout.extend(piece);
                if is_enough(&stdout) {
                    input = None;
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                drop(input);
                break child.wait();
            }
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended this very moment.
                let _ = child.kill();
                panic!("{command:?} did not end within {time_max:?}: {stdout:?}");
            }
        }
    };
    reader.join().expect("the reader does not panic");
    Output {
        status: status.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        stdout,
        stderr: Vec::new(),
    }
}

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
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
    use crate::deadline::patience;

    #[test]
    fn a_file_that_cannot_run_is_not_a_program() {
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("wrk"), "text").expect("written");
        let found = locate_in([directory.path().to_path_buf()].into_iter(), "wrk");
        assert_eq!(found, None);
    }

    #[test]
    fn the_input_of_a_program_stays_open_until_its_words_are_enough() {
        let mut shell = Command::new("sh");
        // What it says last it says when its input has ended.
        shell.args(["-c", "read a; echo $a; read b; echo $a $b; cat; echo end"]);
        let is_enough = |said: &[u8]| said.ends_with(b"one two\n");
        let output = converse(&mut shell, b"one\ntwo\n", is_enough, patience());
        assert_eq!(output.stdout, b"one\none two\nend\n");
        assert!(output.status.success());
        let mut shell = Command::new("sh");
        shell.args(["-c", "exit 3"]);
        let output = converse(&mut shell, b"", |_| false, patience());
        assert_eq!((output.status.code(), output.stdout), (Some(3), vec![]));
    }

    #[test]
    fn the_shell_is_found() {
        let found = locate_in([PathBuf::from("/bin")].into_iter(), "sh");
        assert_eq!(found, Some(PathBuf::from("/bin/sh")));
    }
}
