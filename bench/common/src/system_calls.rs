//! Counts the system calls of a running server.
//!
//! perf counts in the kernel and hardly disturbs; strace stops the server at every call, which
//! lets more work pile up for each. perf is used where its trace points can be reached as the
//! machine stands (it would mount a file system to reach them, which is not for a bench to do).

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::NamedTempFile;

use crate::tools::{PERF, STRACE, Tool};
use flatpath_testkit::child::{self, Child};

/// Where perf's trace point is, if it is mounted.
const TRACE_POINTS: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter",
];
const EVENT: &str = "raw_syscalls:sys_enter";
/// How long the tool gets to attach to every thread.
const ATTACH: Duration = Duration::from_millis(500);
/// How long it gets to write its summary.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tool that is attached.
pub struct Counting {
    tool: Tool,
    process: Child,
    output: NamedTempFile,
}

impl Counting {
    /// Attaches to every thread of the process.
    pub fn begin(pid: u32) -> io::Result<Self> {
        let tool = choose();
        let output = NamedTempFile::new()?;
        let mut command = child::command(tool.find()?, &[]);
        arguments(tool, &mut command, pid, output.path());
        let mut process = Child::start(&mut command)?;
        thread::sleep(ATTACH);
        if !process.is_running() {
            let message = format!("{} could not attach to the server", tool.program);
            return Err(io::Error::other(message));
        }
        Ok(Self {
            tool,
            process,
            output,
        })
    }

    pub fn name(&self) -> &'static str {
        self.tool.program
    }

    /// Detaches and returns the number of calls.
    pub fn finish(mut self) -> io::Result<u64> {
        self.process.signal(Signal::INT);
        self.process.wait(PATIENCE)?;
        let text = fs::read_to_string(self.output.path())?;
        let total = match self.tool {
            PERF => parse_perf(&text),
            _ => parse_strace(&text),
        };
        total.ok_or_else(|| {
            io::Error::other(format!("{} counted nothing: {}", self.name(), text.trim()))
        })
    }
}

fn choose() -> Tool {
    let reachable = TRACE_POINTS.iter().any(|path| Path::new(path).exists());
    if reachable && PERF.find().is_ok() {
        PERF
    } else {
        STRACE
    }
}

fn arguments(tool: Tool, command: &mut Command, pid: u32, output: &Path) {
    let pid = pid.to_string();
    match tool {
        PERF => {
            command.args([
                "stat",
                "--field-separator",
                ",",
                "--event",
                EVENT,
                "--pid",
                &pid,
            ]);
            command.arg("--output").arg(output);
        }
        _ => {
            command
                .args(["-f", "-c", "-U", "calls,name", "-p", &pid])
                .arg("-o")
                .arg(output);
        }
    }
}

/// The last line of strace's summary: `  1234 total`.
fn parse_strace(text: &str) -> Option<u64> {
    text.lines()
        .rev()
        .find_map(|line| line.strip_suffix("total")?.trim().parse().ok())
}

/// `1234,,raw_syscalls:sys_enter,...`
fn parse_perf(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(EVENT))?;
    line.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_strace_is_found() {
        let text = "    calls syscall\n--------- ----------------\n     1200 epoll_wait\n       \
                    34 accept4\n--------- ----------------\n     1234 total\n";
        assert_eq!(parse_strace(text), Some(1234));
        assert_eq!(parse_strace(""), None);
    }

    #[test]
    fn the_count_of_perf_is_found() {
        let text = "# started on Sat\n\n1234,,raw_syscalls:sys_enter,100,100.00,,\n";
        assert_eq!(parse_perf(text), Some(1234));
        let refused = "<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(parse_perf(refused), None);
    }
}
