//! Drives a server of HTTP/2 with h2load and reads what h2load counted.
//!
//! Its own text has no quantiles; its log has the time of each request.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use tempfile::TempDir;

use crate::measure::histogram;
use crate::tools::H2LOAD;
use crate::wrk::Scheme;
use flatpath_testkit::child::{self, Child};

/// What may pass beyond the asked time before h2load counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// No number of requests takes longer.
const REQUESTS_TIME: Duration = Duration::from_secs(100);

#[derive(Clone, Debug)]
pub struct Load {
    /// Over TLS it takes any certificate, and HTTP/2 by ALPN; else by prior knowledge.
    pub scheme: Scheme,
    pub address: SocketAddr,
    pub path: String,
    /// The class of the status that replies have to have.
    pub wanted: Class,
    pub connections: u32,
    /// Requests at once on each of them.
    pub streams: u32,
    pub amount: Amount,
    /// The cores h2load may use; all if empty.
    pub cores: Vec<usize>,
}

/// Of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Success,
    ClientError,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// As much as goes in this time; what is not whole at its end is not counted.
    Seconds(u32),
    /// This many requests, however long they take.
    Requests(u64),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Those that were answered with a status of the wanted class.
    pub requests: u64,
    /// All others that were begun before the time was over.
    pub errors: u64,
    /// Of bodies, also of those that were not whole.
    pub body_bytes: u64,
    /// Microseconds from a request to the end of its reply.
    pub latencies: Histogram<u64>,
}

/// h2load, ready to run.
pub struct H2load {
    program: PathBuf,
    directory: TempDir,
}

impl H2load {
    /// Finds h2load.
    ///
    /// # Errors
    /// It is not installed; no temporary directory.
    pub fn prepare() -> io::Result<Self> {
        Ok(Self {
            program: H2LOAD.find()?,
            directory: tempfile::tempdir()?,
        })
    }

    /// Runs it once, to its end, with one thread.
    ///
    /// # Errors
    /// If it fails, or counted nothing that can be read.
    pub fn run(&self, load: &Load) -> io::Result<Counted> {
        let log = self.directory.path().join("requests.log");
        let mut command = child::command(&self.program, &load.cores);
        command
            .arg(format!("--clients={}", load.connections))
            .arg(format!("--max-concurrent-streams={}", load.streams))
            .arg(match load.amount {
                Amount::Seconds(seconds) => format!("--duration={seconds}"),
                Amount::Requests(requests) => format!("--requests={requests}"),
            })
            .arg("--log-file")
            .arg(&log)
            .arg(format!("{}{}", load.scheme.origin(load.address), load.path));
        let time = match load.amount {
            Amount::Seconds(seconds) => Duration::from_secs(seconds.into()),
            Amount::Requests(_) => REQUESTS_TIME,
        };
        let limit = time + PATIENCE;
        let output = Child::start(&mut command)?.finish(limit);
        let text = output.map_err(|error| named(&error.to_string()))?;
        let counts = parse(&text, load.wanted);
        let (requests, errors, body_bytes) =
            counts.ok_or_else(|| named(&format!("printed no figures: {}", text.trim())))?;
        let latencies = latencies(&fs::read_to_string(&log)?)?;
        fs::remove_file(&log)?;
        Ok(Counted {
            requests,
            errors,
            body_bytes,
            latencies,
        })
    }
}

/// Requests that were answered, and that were not; bytes of bodies.
fn parse(text: &str, wanted: Class) -> Option<(u64, u64, u64)> {
    let begins = |mark| text.lines().find_map(|line| line.strip_prefix(mark));
    let requests = begins("requests: ")?;
    let answers = begins("status codes: ")?;
    let (success, error) = (count(answers, "2xx")?, count(answers, "4xx")?);
    // What failed has all other statuses than of success among it.
    let (right, other, failed) = match wanted {
        Class::Success => (success, error, "failed"),
        Class::ClientError => (error, success, "errored"),
    };
    let wrong = [
        count(requests, failed)?,
        count(requests, "timeout")?,
        count(answers, "3xx")?,
        count(answers, "5xx")?,
        other,
    ];
    // `484.00MB (507510784) data`
    let bodies = begins("traffic: ")?.split('(').next_back()?;
    let body_bytes = bodies.strip_suffix(") data")?.parse().ok()?;
    Some((right, wrong.iter().sum(), body_bytes))
}

/// The number before a word, in a list with commas.
fn count(list: &str, word: &str) -> Option<u64> {
    let mut parts = list.split(", ").map(str::trim);
    let number = parts.find_map(|part| part.strip_suffix(word)?.strip_suffix(' '))?;
    number.parse().ok()
}

/// A line of the log has the moment of a request, its status, and how long it took, by tabs.
fn latencies(log: &str) -> io::Result<Histogram<u64>> {
    let mut latencies = histogram();
    for line in log.lines() {
        let micros = line.split('\t').nth(2).and_then(|it| it.parse().ok());
        let micros = micros.ok_or_else(|| named(&format!("not a line of its log: {line}")))?;
        latencies.saturating_record(micros);
    }
    Ok(latencies)
}

fn named(message: &str) -> io::Error {
    io::Error::other(format!("h2load: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "progress: 100% of clients started
finished in 2.00s, 25827.50 req/s, 242.07MB/s
requests: 100 total, 115 started, 108 done, 104 succeeded, 4 failed, 1 errored, 2 timeout
status codes: 97 2xx, 7 3xx, 3 4xx, 1 5xx
traffic: 484.15MB (507667320) total, 91.19KB (93376) headers (space savings 95%), \
484.00MB (507510784) data
";

    #[test]
    fn what_was_not_answered_well_is_an_error() {
        let of = |wanted| parse(OUTPUT, wanted).map(|(right, wrong, _)| (right, wrong));
        assert_eq!(of(Class::Success), Some((97, 4 + 2 + 7 + 1 + 3)));
        assert_eq!(of(Class::ClientError), Some((3, 1 + 2 + 7 + 1 + 97)));
        let bytes = parse(OUTPUT, Class::Success).map(|(_, _, bytes)| bytes);
        assert_eq!(bytes, Some(507_510_784));
        assert_eq!(parse("finished in 2.00s\n", Class::Success), None);
    }

    #[test]
    fn times_are_read_from_the_log() {
        let times = latencies("1795770242453007\t200\t40\n1795770242453008\t200\t60\n");
        let times = times.expect("read");
        assert_eq!((times.len(), times.min(), times.max()), (2, 40, 60));
        assert!(latencies("1795770242453007 200 40\n").is_err());
    }
}
