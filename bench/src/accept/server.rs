//! The server under test, a child process.
//!
//! What it did is read from `/proc` (CPU time of its threads) and from its log when it ends (system
//! calls of its driver).

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use flatpath::OperationMode;
use flatpath_bench_common::usage::{ThreadTimes, thread_times};
use flatpath_testkit::child::{Child, command};

/// How long a server may take to become quiet, or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server is watched before it counts as quiet.
const QUIET: Duration = Duration::from_millis(10);
/// CPU time it may use meanwhile, for its timers: with connections left to close it uses more.
const QUIET_MAX: Duration = Duration::from_micros(100);

pub(crate) struct Server {
    address: SocketAddr,
    process: Child,
}

/// What the log of a server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// System calls of its driver, if they were counted.
    pub(crate) system_calls: Option<u64>,
    /// Its driver, and why.
    pub(crate) driver: String,
}

impl Server {
    /// Starts an echo server on a free port.
    pub(crate) fn start(program: &Path, mode: OperationMode) -> io::Result<Self> {
        let how = match mode {
            OperationMode::Single => "single",
            OperationMode::Multishot => "multishot",
        };
        let mut command = command(program, &[]);
        command
            .args(["serve", "--echo", "127.0.0.1:0", "--accept", how])
            // The engine logs what its driver did only at this level.
            .env("RUST_LOG", "warn,flatpath=debug");
        let mut process = Child::start(&mut command)?;
        Ok(Self {
            address: process.listeners()?[0].1,
            process,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of the server's threads so far.
    pub(crate) fn cpu_time(&self) -> io::Result<ThreadTimes> {
        thread_times(self.process.id())
    }

    /// CPU time once the server has nothing left to do.
    pub(crate) fn settled_cpu_time(&self) -> io::Result<ThreadTimes> {
        let begin = Instant::now();
        let mut last = self.cpu_time()?;
        loop {
            thread::sleep(QUIET);
            let now = self.cpu_time()?;
            if now.since(&last) <= QUIET_MAX || begin.elapsed() > PATIENCE {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Ends it and reads its log.
    pub(crate) fn stop(self) -> io::Result<End> {
        Ok(End::read(&self.process.stop(PATIENCE)?))
    }
}

impl End {
    fn read(log: &str) -> Self {
        let after = |line: &str, name: &str| {
            let (_, rest) = line.split_once(name)?;
            Some(rest.to_owned())
        };
        let calls = log.lines().filter_map(|line| {
            let rest = after(line, "system_calls: ")?;
            let end = rest.find(|byte: char| !byte.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse::<u64>().ok()
        });
        let driver = log.lines().find_map(|line| after(line, "] driver "));
        Self {
            system_calls: calls.reduce(|sum, calls| sum + calls),
            driver: driver.unwrap_or_else(|| "unknown".into()),
        }
    }
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
        for program in ["/bin/false", "/no/such/program"] {
            assert!(Server::start(program.as_ref(), OperationMode::Multishot).is_err());
        }
    }

    #[test]
    fn the_cpu_time_of_a_server_is_that_of_its_threads() {
        let program = flatpath_testkit::binary::flatpath();
        let server = Server::start(program, OperationMode::Multishot).expect("it starts");
        let all = server.settled_cpu_time().expect("it lives");
        assert!(all.since(&ThreadTimes::default()) > Duration::ZERO);
        let end = server.stop().expect("it ends");
        assert!(end.system_calls.is_some() && end.driver != "unknown");
    }
}
