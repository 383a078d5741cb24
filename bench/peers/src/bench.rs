//! What every scenario works with, and the one way in which runs are interleaved.
//!
//! A B C C B A ...: whatever changes slowly, heat or a neighbour's load, meets every server alike.
//! All servers of a case run all the time; the ones that are not driven wait, and cost nothing.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rustix::thread::sched_getaffinity;
use tempfile::TempDir;

use crate::children::refuse_if_interrupted;
use crate::generator;
use crate::metric::{Figures, Metric};
use crate::options::{Options, Scenario};
use crate::proc::{self, Ticks};
use crate::report::Row;
use crate::server::{Before, Kind, Server, Setup};
use crate::wrk::{Load, Wrk};

/// How long ago the files were changed.
const SETTLED: Duration = Duration::from_secs(3600);
/// Name of the file that NFS reads 4 KiB of.
pub(crate) const PAGES: &str = "pages.bin";
const PAGES_BYTES: usize = 64 << 10;
/// Name of the small file.
pub(crate) const SMALL_PATH: &str = "/small.txt";
/// Its length: a page of text, an icon.
const SMALL_BYTES: usize = 1024;
/// Traffic before the first run, so that caches, threads and pools are there.
const WARM_UP: Duration = Duration::from_millis(300);
const WARM_UP_CONNECTIONS: usize = 32;
/// Beyond the connections a case drives: probes, and those that are still closing.
const SPARE_CONNECTIONS: u32 = 256;

/// Options, tools and places of a session.
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) wrk: Option<Wrk>,
    flatpath: Option<PathBuf>,
    documents: TempDir,
    cores: Vec<usize>,
}

/// On which cores a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinning {
    /// Server and generator wherever the kernel puts them.
    Free,
    /// The server on one core, the generator on the others.
    ServerOnOneCore,
    /// The generator on the last core, the server on the others.
    GeneratorOnOneCore,
}

impl Bench {
    /// Makes the documents; `flatpath` is nothing if no server needs the command.
    ///
    /// # Errors
    /// If a temporary directory cannot be made.
    pub(crate) fn new(
        options: Options,
        wrk: Option<Wrk>,
        flatpath: Option<PathBuf>,
    ) -> io::Result<Self> {
        let documents = tempfile::tempdir()?;
        let files = [
            (&SMALL_PATH[1..], small_body()),
            (PAGES, vec![0x5a; PAGES_BYTES]),
        ];
        for (name, bytes) in files {
            let path = documents.path().join(name);
            fs::write(&path, bytes)?;
            // The validators of a file that has just changed are others a moment later.
            File::options()
                .write(true)
                .open(&path)?
                .set_modified(SystemTime::now() - SETTLED)?;
        }
        let set = sched_getaffinity(None)?;
        let cores = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect();
        Ok(Self {
            options,
            wrk,
            flatpath,
            documents,
            cores,
        })
    }

    /// What the servers of a case get.
    pub(crate) fn setup(&self, pinning: Pinning, workers: Option<u32>, clients: u32) -> Setup {
        Setup {
            flatpath: self.flatpath.clone().unwrap_or_default(),
            driver: self.options.driver.clone(),
            documents: self.documents.path().to_path_buf(),
            workers,
            cores: match pinning {
                Pinning::Free => Vec::new(),
                Pinning::ServerOnOneCore => self.cores.iter().copied().take(1).collect(),
                Pinning::GeneratorOnOneCore => {
                    self.cores.split_last().map_or(&[][..], |c| c.1).to_vec()
                }
            },
            connections: clients + SPARE_CONNECTIONS,
            service: "http",
            before: Before {
                flatpath: self.options.before.clone().unwrap_or_default(),
                peers: self.options.before_peers.clone().unwrap_or_default(),
                library: None,
            },
            counts: None,
        }
    }

    /// How many cores there are.
    pub(crate) fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// The cores for the load generator; with a single core it shares that one.
    pub(crate) fn generator_cores(&self, pinning: Pinning) -> Vec<usize> {
        match pinning {
            Pinning::Free => Vec::new(),
            Pinning::ServerOnOneCore => self.cores.iter().copied().skip(1).collect(),
            Pinning::GeneratorOnOneCore => self.cores.last().copied().into_iter().collect(),
        }
    }

    /// Starts every server, then measures them in turn as often as the scenario says.
    ///
    /// A server that fails keeps the runs it had; the others go on.
    ///
    /// # Errors
    /// Only if the harness was told to stop.
    pub(crate) fn interleave(
        &self,
        scenario: Scenario,
        name: &str,
        kinds: &[Kind],
        start: impl Fn(Kind) -> io::Result<Server>,
        mut measure: impl FnMut(&Server) -> io::Result<Figures>,
    ) -> io::Result<Vec<Row>> {
        let mut entrants: Vec<Entrant> = self
            .options
            .choose(kinds)
            .into_iter()
            .map(|kind| Entrant::new(kind, &start))
            .collect();
        let runs = self.options.runs(scenario);
        for run in 1..=runs {
            for entrant in &mut entrants {
                refuse_if_interrupted()?;
                entrant.run(&mut measure, &format!("{name}: run {run}/{runs}"));
            }
            entrants.reverse();
        }
        refuse_if_interrupted()?;
        if runs % 2 == 1 {
            entrants.reverse();
        }
        Ok(entrants.into_iter().map(Entrant::finish).collect())
    }

    /// Drives the server with wrk once.
    ///
    /// # Errors
    /// If wrk fails or the server is gone.
    pub(crate) fn drive(&self, server: &Server, load: &Load) -> io::Result<Figures> {
        let wrk = self
            .wrk
            .as_ref()
            .ok_or_else(|| io::Error::other("wrk was not prepared"))?;
        let accepted = proc::accepted()?;
        let before = Reading::take(server)?;
        let counted = wrk.run(load)?;
        let used = before.until_now(server)?;
        let accepted = proc::accepted()?.saturating_sub(accepted);
        if counted.requests == 0 {
            return Err(io::Error::other("not one reply"));
        }
        let mut figures = used.figures();
        figures.insert(Metric::RequestsPerSecond, counted.requests_per_second());
        figures.insert(
            Metric::ServerMicrosPerRequest,
            used.server_micros_over(counted.requests),
        );
        figures.insert(Metric::P50Micros, float(counted.p50_micros));
        figures.insert(Metric::P99Micros, float(counted.p99_micros));
        figures.insert(Metric::Errors, float(counted.errors()));
        figures.insert(Metric::Accepted, float(accepted));
        figures.insert(Metric::Answered, counted.answered());
        Ok(figures)
    }
}

/// One server of a case with its runs.
struct Entrant {
    kind: Kind,
    server: Option<Server>,
    runs: Vec<Figures>,
    failure: Option<String>,
}

impl Entrant {
    fn new(kind: Kind, start: &impl Fn(Kind) -> io::Result<Server>) -> Self {
        let (server, failure) = match start(kind) {
            Ok(server) => (Some(server), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            kind,
            server,
            runs: Vec::new(),
            failure,
        }
    }

    fn run(&mut self, measure: &mut impl FnMut(&Server) -> io::Result<Figures>, name: &str) {
        let Some(server) = &self.server else { return };
        match measure(server) {
            Ok(figures) => {
                eprintln!("{name}: {}", self.kind.label());
                self.runs.push(figures);
            }
            Err(error) => {
                eprintln!("{name}: {} failed: {error}", self.kind.label());
                self.failure = Some(error.to_string());
                self.server = None;
            }
        }
    }

    fn finish(self) -> Row {
        Row::new(self.kind, self.runs, self.failure)
    }
}

/// The clocks before an interval.
pub(crate) struct Reading {
    wall: Instant,
    server: Ticks,
    generators: Ticks,
    harness: Ticks,
    machine: Ticks,
}

/// What an interval cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    wall: Duration,
    server: Duration,
    generator: Duration,
    machine: Duration,
    peak_kib: u64,
}

impl Reading {
    /// Reads all clocks.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn take(server: &Server) -> io::Result<Self> {
        Ok(Self {
            generators: proc::reaped_ticks()?,
            harness: proc::harness_ticks()?,
            machine: proc::machine_ticks()?,
            server: proc::group_ticks(server.group())?,
            wall: Instant::now(),
        })
    }

    /// What was used since. wrk and the harness's own generators count as generator alike.
    ///
    /// # Errors
    /// If the server is gone.
    pub(crate) fn until_now(&self, server: &Server) -> io::Result<Used> {
        Ok(Used {
            wall: self.wall.elapsed(),
            server: proc::group_ticks(server.group())?.since(self.server),
            generator: proc::reaped_ticks()?.since(self.generators)
                + proc::harness_ticks()?.since(self.harness),
            machine: proc::machine_ticks()?.since(self.machine),
            peak_kib: proc::group_memory(server.group())?.peak_kib,
        })
    }
}

impl Used {
    /// The figures every scenario shows.
    pub(crate) fn figures(&self) -> Figures {
        let others = self.machine.saturating_sub(self.server + self.generator);
        Figures::from([
            (Metric::PeakMib, float(self.peak_kib) / 1024.0),
            (Metric::GeneratorPercent, self.percent(self.generator)),
            (Metric::OthersPercent, self.percent(others)),
        ])
    }

    /// CPU time of the server per piece of work.
    pub(crate) fn server_micros_over(&self, pieces: u64) -> f64 {
        self.server.as_secs_f64() * 1e6 / float(pieces.max(1))
    }

    /// CPU time of the server.
    pub(crate) fn server_millis(&self) -> f64 {
        self.server.as_secs_f64() * 1e3
    }

    fn percent(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.wall.as_secs_f64().max(1e-9) * 100.0
    }
}

/// Traffic that is not counted.
///
/// # Errors
/// If the server refuses it altogether.
pub(crate) fn warm_up(server: &Server, quick_path: &str, sleep_path: &str) -> io::Result<()> {
    let plan = generator::Plan {
        address: server.address(),
        connections: WARM_UP_CONNECTIONS,
        settle: Duration::ZERO,
        counted: WARM_UP,
        quick_path: quick_path.to_owned(),
        sleep_path: sleep_path.to_owned(),
        sleepers_per_mille: 100,
        requests_per_second: None,
    };
    let counted = generator::run(&plan, || Ok(()))?;
    if counted.requests() == 0 {
        return Err(io::Error::other("answered nothing while warming up"));
    }
    Ok(())
}

/// The content of the small file: text that compresses like text.
pub(crate) fn small_body() -> Vec<u8> {
    let lines = (0..).flat_map(|number| format!("line {number} of a small file\n").into_bytes());
    lines.take(SMALL_BYTES).collect()
}

/// Counts are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_file_has_its_length() {
        let body = small_body();
        assert_eq!(body.len(), SMALL_BYTES);
        assert!(body.starts_with(b"line 0 of a small file\nline 1 "));
    }

    #[test]
    fn what_neither_server_nor_generator_used_is_others() {
        let used = Used {
            wall: Duration::from_secs(2),
            server: Duration::from_millis(1000),
            generator: Duration::from_millis(1500),
            machine: Duration::from_millis(2700),
            peak_kib: 2048,
        };
        let figures = used.figures();
        let near = |metric: Metric, value: f64| (figures[&metric] - value).abs() < 1e-9;
        assert!(near(Metric::GeneratorPercent, 75.0), "{figures:?}");
        assert!(near(Metric::OthersPercent, 10.0), "{figures:?}");
        assert!(near(Metric::PeakMib, 2.0), "{figures:?}");
        assert!((used.server_micros_over(250_000) - 4.0).abs() < 1e-9);
    }
}
