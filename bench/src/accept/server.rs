//! The server under test: a child process, or threads of this one.
//!
//! A child is killed when it is dropped before it was stopped. What it did is read from `/proc`
//! (CPU time of its threads) and from its log when it ends (system calls of its driver).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath::Running;
use flatpath_echo::Echo;
use rustix::process::{Pid, Signal, kill_process};

use super::ServerProgram;
use crate::error::Error;

pub(crate) use flatpath::OperationMode;

/// How long a server may take to start, to become quiet, or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server is watched before it counts as quiet.
const QUIET: Duration = Duration::from_millis(10);
/// CPU time it may use meanwhile, for its timers: with connections left to close it uses more.
const QUIET_NS_MAX: u64 = 100_000;

/// A running echo server.
pub(crate) struct Server {
    address: SocketAddr,
    home: Home,
}

enum Home {
    Child(Process),
    Here {
        running: Running,
        tasks: BTreeSet<u32>,
    },
}

/// What a server said when it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// System calls of its driver, if they were counted.
    pub(crate) system_calls: Option<u64>,
    /// Its driver, and why.
    pub(crate) driver: String,
}

impl Server {
    /// Starts an echo server on a free port.
    pub(crate) fn start(program: &ServerProgram, mode: OperationMode) -> Result<Self, Error> {
        match program {
            ServerProgram::Program(path) => Process::start(path, mode),
            ServerProgram::ThisProcess => here(mode),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of the server's threads so far.
    pub(crate) fn cpu_ns(&self) -> Result<u64, Error> {
        let sum = match &self.home {
            Home::Child(process) => cpu_ns(process.child.id(), &tasks(process.child.id())?),
            Home::Here { tasks, .. } => cpu_ns(std::process::id(), tasks),
        };
        sum.ok_or_else(|| Error::Server("it ended early".into()))
    }

    /// CPU time once the server has nothing left to do.
    pub(crate) fn settled_cpu_ns(&self) -> Result<u64, Error> {
        let begin = Instant::now();
        let mut last = self.cpu_ns()?;
        loop {
            thread::sleep(QUIET);
            let now = self.cpu_ns()?;
            if now.saturating_sub(last) <= QUIET_NS_MAX || begin.elapsed() > PATIENCE {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Ends it and collects what it has to say.
    pub(crate) fn stop(self) -> Result<End, Error> {
        match self.home {
            Home::Child(process) => process.stop(),
            Home::Here { running, .. } => {
                let driver = running.driver().to_owned();
                running.handle().drain();
                running
                    .wait()
                    .map_err(|error| Error::Server(error.to_string()))?;
                Ok(End {
                    system_calls: None,
                    driver,
                })
            }
        }
    }
}

fn here(mode: OperationMode) -> Result<Server, Error> {
    let failed = |error: flatpath::Error| Error::Server(error.to_string());
    let before = tasks(std::process::id())?;
    let server = flatpath::Server::new()
        .listen("127.0.0.1:0", Echo)
        .accept(mode);
    let running = server.start().map_err(failed)?;
    let after = tasks(std::process::id())?;
    let bound = running.addresses().first().map(|bound| bound.address);
    Ok(Server {
        address: bound.ok_or_else(|| Error::Server("it listens nowhere".into()))?,
        home: Home::Here {
            running,
            tasks: after.difference(&before).copied().collect(),
        },
    })
}

struct Process {
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl Process {
    fn start(program: &Path, mode: OperationMode) -> Result<Server, Error> {
        let how = match mode {
            OperationMode::Single => "single",
            OperationMode::Multishot => "multishot",
        };
        let failed = |cause: io::Error| Error::Server(format!("{}: {cause}", program.display()));
        let mut child = Command::new(program)
            .args(["serve", "--echo", "127.0.0.1:0", "--accept", how])
            // The engine tells what its driver did only at this level.
            .env("RUST_LOG", "warn,flatpath=debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let log = child.stderr.take().map(|mut log| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // What was read until an error is what there is.
                let _ = log.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        let output = child.stdout.take();
        let process = Self { child, log };
        match output.and_then(listening) {
            Some(address) => Ok(Server {
                address,
                home: Home::Child(process),
            }),
            None => {
                let log = process.kill();
                Err(Error::Server(format!("it did not begin to listen: {log}")))
            }
        }
    }

    fn stop(mut self) -> Result<End, Error> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(Error::Server("it did not end when told to".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(End::read(&self.take_log()))
    }

    fn kill(mut self) -> String {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        self.take_log()
    }

    fn take_log(&mut self) -> String {
        let log = self.log.take().and_then(|log| log.join().ok());
        log.unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Fails only if it has ended, which is what is wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl End {
    fn read(log: &str) -> Self {
        let after = |text: &str, name: &str| {
            let start = text.find(name)? + name.len();
            Some(text[start..].to_owned())
        };
        let calls = log.lines().filter_map(|line| {
            let rest = after(line, "system_calls: ")?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        Self {
            system_calls: calls.reduce(|sum, calls| sum + calls),
            driver: log
                .lines()
                .find_map(|line| after(line, "] driver "))
                .unwrap_or_else(|| "unknown".into()),
        }
    }
}

/// Waits for `listening echo ADDR` and `ready`, and then reads no more.
fn listening(output: impl Read + Send + 'static) -> Option<SocketAddr> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut address = None;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(text) = line.strip_prefix("listening echo ") {
                address = text.parse().ok();
            }
            if line == "ready" {
                break;
            }
        }
        // Nobody waits any more if this took too long.
        let _ = sender.send(address);
    });
    receiver.recv_timeout(PATIENCE).ok().flatten()
}

/// The threads of a process.
pub(crate) fn tasks(process: u32) -> Result<BTreeSet<u32>, Error> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))
        .map_err(|cause| Error::Server(format!("it ended early: {cause}")))?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(number).collect())
}

/// CPU time of these threads, as the scheduler counts it. `None` if none of them lives.
pub(crate) fn cpu_ns(process: u32, tasks: &BTreeSet<u32>) -> Option<u64> {
    let of = |task: &u32| {
        let text = fs::read_to_string(format!("/proc/{process}/task/{task}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.iter().filter_map(of).reduce(|sum, ns| sum + ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_server_tells_driver_and_system_calls() {
        let log = "[2026-01-01T00:00:00Z INFO  flatpath::running] driver uring: because\n\
                   [2026-01-01T00:00:01Z DEBUG flatpath::running] ring 0: DriverStatistics { \
                   system_calls: 120, enters: 100 }\n\
                   [2026-01-01T00:00:01Z DEBUG flatpath::running] ring 1: DriverStatistics { \
                   system_calls: 3, enters: 1 }\n";
        let end = End {
            system_calls: Some(123),
            driver: "uring: because".into(),
        };
        assert_eq!(End::read(log), end);
        assert_eq!(End::read("").system_calls, None);
    }

    #[test]
    fn a_program_that_is_no_server_is_an_error() {
        let program = ServerProgram::Program("/bin/false".into());
        let error = Server::start(&program, OperationMode::Multishot).err();
        assert!(matches!(error, Some(Error::Server(_))), "{error:?}");
        let program = ServerProgram::Program("/no/such/program".into());
        assert!(Server::start(&program, OperationMode::Multishot).is_err());
    }

    #[test]
    fn the_cpu_time_of_a_server_in_this_process_is_that_of_its_threads() {
        let server = Server::start(&ServerProgram::ThisProcess, OperationMode::Multishot)
            .expect("it starts");
        assert!(server.settled_cpu_ns().expect("it lives") > 0);
        let Home::Here { tasks, .. } = &server.home else {
            panic!("it is in this process")
        };
        assert!(!tasks.contains(&std::process::id()));
        assert_eq!(server.stop().expect("it ends").system_calls, None);
    }
}
