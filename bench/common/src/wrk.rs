//! Drives a server with wrk and reads what wrk counted.
//!
//! wrk's own text rounds; a script's `done` function gets the exact figures, and costs nothing
//! while requests run: a script without a `request` function leaves wrk's request static.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use crate::tools::WRK;
use flatpath_testkit::child::{self, Child};

/// What may pass beyond the asked time before wrk counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the line with the figures begins with.
const MARK: &str = "flatpath-bench ";
const SCRIPT: &str = r#"
init = function(arguments)
    if arguments[1] then
        wrk.method, wrk.body = "POST", arguments[1]
        wrk.headers["Content-Type"] = "application/json"
    end
end

done = function(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        'flatpath-bench {"requests":%d,"micros":%d,"mean_micros":%d,' ..
        '"p50_micros":%d,"p99_micros":%d,' ..
        '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
        summary.requests, summary.duration, latency.mean,
        latency:percentile(50.0), latency:percentile(99.0),
        errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the run.
    KeepAlive,
    /// One request: `Connection: close`.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    /// wrk verifies no certificate. What closes its connections resumes its sessions: OpenSSL
    /// keeps one for each of its connections.
    Https,
}

impl Scheme {
    /// The front of an address there, without a path.
    pub fn origin(self, address: SocketAddr) -> String {
        let name = match self {
            Self::Http => "http",
            Self::Https => "https",
        };
        format!("{name}://{address}")
    }
}

#[derive(Clone, Debug)]
pub struct Load {
    pub scheme: Scheme,
    pub address: SocketAddr,
    pub path: String,
    /// What is posted; without it the path is read.
    pub json: Option<String>,
    /// Lines of the head beside wrk's own, such as `Accept-Encoding: gzip`.
    pub headers: Vec<String>,
    /// Connections at once.
    pub connections: u32,
    /// How long; wrk knows whole seconds only.
    pub seconds: u32,
    pub lifetime: Lifetime,
    /// The cores wrk may use; all if empty.
    pub cores: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    pub requests: u64,
    /// How long they took, together.
    pub micros: u64,
    /// Mean latency.
    mean_micros: u64,
    pub p50_micros: u64,
    pub p99_micros: u64,
    connect: u64,
    read: u64,
    write: u64,
    status: u64,
    timeout: u64,
}

impl Counted {
    /// Everything that went wrong, where this status is right: wrk counts those of errors, from 400
    /// on, as such.
    pub fn errors(&self, status: u16) -> u64 {
        let other_status = match status {
            400.. => self.requests.saturating_sub(self.status),
            _ => self.status,
        };
        self.connect + self.read + self.write + other_status + self.timeout
    }

    /// How many connections were waiting for a reply on average (Little's law). It is well below
    /// the number of connections when wrk is the slower side, and next to nothing of it when the
    /// server leaves connections without an answer: wrk never counts those.
    pub fn answered(&self) -> f64 {
        self.requests_per_second() * self.mean_micros as f64 / 1e6
    }

    /// Replies per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 * 1e6 / self.micros.max(1) as f64
    }
}

/// wrk with its script, ready to run.
pub struct Wrk {
    program: PathBuf,
    script: PathBuf,
    threads: u32,
    _directory: TempDir,
}

impl Wrk {
    /// Finds wrk and writes the script. It will run with this many threads, or one for each
    /// connection if there are fewer.
    pub fn prepare(threads: u32) -> io::Result<Self> {
        let program = WRK.find()?;
        let directory = tempfile::tempdir()?;
        let script = directory.path().join("figures.lua");
        fs::write(&script, SCRIPT)?;
        Ok(Self {
            program,
            script,
            threads,
            _directory: directory,
        })
    }

    /// Runs wrk once, to its end.
    pub fn run(&self, load: &Load) -> io::Result<Counted> {
        let mut command = child::command(&self.program, &load.cores);
        command
            .arg(format!("--threads={}", self.threads.min(load.connections)))
            .arg(format!("--connections={}", load.connections))
            .arg(format!("--duration={}s", load.seconds))
            .args(["--latency", "--script"])
            .arg(&self.script);
        if load.lifetime == Lifetime::Close {
            command.args(["--header", "Connection: close"]);
        }
        for header in &load.headers {
            command.args(["--header", header]);
        }
        command.arg(format!("{}{}", load.scheme.origin(load.address), load.path));
        if let Some(json) = &load.json {
            command.args(["--", json]);
        }
        let limit = Duration::from_secs(load.seconds.into()) + PATIENCE;
        let output = Child::start(&mut command)?.finish(limit);
        let text = output.map_err(|error| named(&error.to_string()))?;
        parse(&text).ok_or_else(|| named(&format!("printed no figures: {}", text.trim())))
    }
}

fn named(message: &str) -> io::Error {
    io::Error::other(format!("wrk: {message}"))
}

fn parse(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 1s test @ http://127.0.0.1:8089/hello
  1 threads and 50 connections
Requests/sec: 220000.00
flatpath-bench {\"requests\":441000,\"micros\":2000000,\"mean_micros\":220,\"p50_micros\":210,\
\"p99_micros\":350,\"connect\":1,\"read\":2,\"write\":3,\"status\":4,\"timeout\":5}
";

    #[test]
    fn the_figures_are_found_among_the_text() {
        let counted = parse(OUTPUT).expect("figures");
        assert_eq!(
            (counted.requests, counted.p50_micros, counted.p99_micros),
            (441_000, 210, 350)
        );
        assert_eq!(counted.errors(200), 15);
        // All but four had a status that is none of an error, and 404 is right.
        assert_eq!(counted.errors(404), 441_000 - 4 + 11);
        assert!((counted.requests_per_second() - 220_500.0).abs() < 1e-6);
        assert!((counted.answered() - 48.51).abs() < 1e-6);
    }

    #[test]
    fn text_without_figures_is_refused() {
        assert_eq!(
            parse("unable to connect to 127.0.0.1:1 Connection refused\n"),
            None
        );
        assert_eq!(parse("flatpath-bench {\"requests\":1}\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_run_without_time_does_not_divide_by_zero() {
        let line = OUTPUT.replace("2000000", "0");
        assert!(
            parse(&line)
                .expect("figures")
                .requests_per_second()
                .is_finite()
        );
    }
}
