//! `flatpath-bench-relay`: the relay beside the Python transit relay, socat and haproxy.
//!
//! | scenario | what is measured                                        | beside                 |
//! |----------|---------------------------------------------------------|------------------------|
//! | stream   | processor time of the relay per GiB of one large stream | python, socat, haproxy |
//! | match    | processor time from the handshakes of a pair to its `ok`| python                 |
//! | visit    | the same with two accepts and two ends                  | python                 |
//! | rate     | the same while the relay is always busy                 | python, a bare server  |
//! | wait     | memory of the relay for each client that waits          | python                 |
//!
//! All run on this machine's loopback, in turn, round after round; each figure is the median of its
//! rounds. The processor time is that of all threads of the relay's process, in the kernel's
//! nanoseconds (schedstat), so it holds the kernel's work for it but not softirqs of the clients.
#![forbid(unsafe_code)]

mod bare;
mod process;
mod servers;
mod load;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use flatpath_bench_common::namespace::{self, HOST};

use crate::load::Span;
use crate::servers::{Kind, Server};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The relay beside others.
#[derive(Parser, Debug)]
struct Options {
    /// The flatpath binary
    #[arg(long, default_value = "target/release/flatpath")]
    flatpath: PathBuf,
    /// Directory with `twist` and magic-wormhole-transit-relay [default: PATH]
    #[arg(long)]
    python: Option<PathBuf>,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// GiB per stream
    #[arg(long, default_value_t = 2)]
    gib: usize,
    /// Pairs per round
    #[arg(long, default_value_t = 2000)]
    pairs: usize,
    /// Clients that wait, as far as the descriptor limit allows
    #[arg(long, default_value_t = 100_000)]
    waiting: usize,
    /// Scenarios to leave out
    #[arg(long)]
    without: Vec<String>,
    /// TCP congestion control, set in a network namespace of its own; `host` stays in the machine's
    /// network, with what is set there
    #[arg(long, default_value = HOST)]
    congestion: String,
    /// Write the figures as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Be the bare server of the scenario `rate`
    #[arg(long, hide = true, value_name = "ADDR")]
    bare: Option<SocketAddr>,
}

fn main() -> Result<ExitCode, Failure> {
    let mut options = Options::parse();
    if let Some(address) = options.bare {
        bare::serve(address)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(code) = namespace::enter(&options.congestion)? {
        return Ok(code);
    }
    let mut report = Report::new();
    options.flatpath = options.flatpath.canonicalize()?;
    let runs = |name: &str| !options.without.iter().any(|other| other == name);
    if runs("stream") {
        let kinds = [
            Kind::Uring,
            Kind::Epoll,
            Kind::Python,
            Kind::Socat,
            Kind::Haproxy,
        ];
        report.compare(
            "stream: processor seconds per GiB",
            &options,
            &kinds,
            |server| load::stream(server, options.gib),
        )?;
    }
    if runs("match") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python];
        let what = "match: processor microseconds per pair";
        report.compare(what, &options, &kinds, |server| {
            load::matches(server, options.pairs, Span::Match)
        })?;
        let what = "visit: the same with two accepts and two ends";
        report.compare(what, &options, &kinds, |server| {
            load::matches(server, options.pairs, Span::Visit)
        })?;
    }
    if runs("rate") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python, Kind::Bare];
        let what = "rate: processor microseconds per visit of a pair, the relay always busy";
        report.compare(what, &options, &kinds, |server| {
            load::rate(server, options.pairs * 5)
        })?;
    }
    if runs("wait") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python];
        let count = options
            .waiting
            .min(process::descriptors_max().saturating_sub(500));
        if count < options.waiting {
            println!("{count} clients wait: the descriptor limit allows no more");
        }
        report.compare(
            "wait: bytes of memory per client",
            &options,
            &kinds,
            |server| load::wait(server, count),
        )?;
    }
    if let Some(file) = &options.json {
        report.write(file)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was measured, told at once and written at the end.
#[derive(serde::Serialize)]
struct Report {
    machine: String,
    scenarios: Vec<Scenario>,
}

#[derive(serde::Serialize)]
struct Scenario {
    what: String,
    figures: Vec<Figure>,
}

#[derive(serde::Serialize)]
struct Figure {
    relay: &'static str,
    median: f64,
    least: f64,
    most: f64,
}

impl Report {
    fn new() -> Report {
        let machine = process::machine();
        println!("{machine}");
        Report {
            machine,
            scenarios: Vec::new(),
        }
    }

    /// Runs every kind in turn, as often as asked for, and prints medians and how they compare.
    fn compare(
        &mut self,
        what: &str,
        options: &Options,
        kinds: &[Kind],
        measure: impl Fn(&Server) -> Result<f64, Failure>,
    ) -> Result<(), Failure> {
        let mut rounds: Vec<Vec<f64>> = kinds.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (kind, rounds) in kinds.iter().zip(&mut rounds) {
                let server = Server::start(*kind, &options.flatpath, options.python.as_deref())?;
                let figure = measure(&server).map_err(|cause| format!("{kind:?}: {cause}"))?;
                rounds.push(figure);
            }
        }
        println!("\n{what} (median of {})", options.rounds);
        let mut figures: Vec<Figure> = Vec::new();
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.sort_by(f64::total_cmp);
            let (relay, median) = (kind.name(), rounds[rounds.len() / 2]);
            let (least, most) = (rounds[0], rounds[rounds.len() - 1]);
            let ratio = figures.first().map_or(1.0, |ours| ours.median / median);
            println!(
                "  {relay:8} {median:12.3}   ({least:.3} .. {most:.3})   uring is {ratio:.3} of it"
            );
            figures.push(Figure {
                relay,
                median,
                least,
                most,
            });
        }
        let what = what.to_owned();
        self.scenarios.push(Scenario { what, figures });
        Ok(())
    }

    fn write(&self, file: &Path) -> Result<(), Failure> {
        std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}
