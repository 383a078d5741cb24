//! `flatpath-bench-relay`: the relay beside the Python transit relay, socat and haproxy.
//!
//! | scenario | what is measured                                        | beside                 |
//! |----------|---------------------------------------------------------|------------------------|
//! | stream   | processor time of the relay per GiB of one large stream | python, socat, haproxy |
//! | match    | processor time from the handshakes of a pair to its `ok`| python                 |
//! | visit    | the same with two accepts and two ends                  | python                 |
//! | wait     | memory of the relay for each client that waits          | python                 |
//!
//! All run on this machine's loopback, in turn, round after round; each figure is the median of its
//! rounds. The processor time is that of all threads of the relay's process, in the kernel's
//! nanoseconds (schedstat), so it holds the kernel's work for it but not softirqs of the clients.
#![forbid(unsafe_code)]

mod process;
mod servers;
mod load;

use std::path::PathBuf;

use clap::Parser;

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
}

fn main() -> Result<(), Failure> {
    let mut options = Options::parse();
    options.flatpath = options.flatpath.canonicalize()?;
    println!("{}", process::machine());
    let runs = |name: &str| !options.without.iter().any(|other| other == name);
    if runs("stream") {
        let kinds = [
            Kind::Uring,
            Kind::Epoll,
            Kind::Python,
            Kind::Socat,
            Kind::Haproxy,
        ];
        compare(
            "stream: processor seconds per GiB",
            &options,
            &kinds,
            |server| load::stream(server, options.gib),
        )?;
    }
    if runs("match") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python];
        let what = "match: processor microseconds per pair";
        compare(what, &options, &kinds, |server| {
            load::matches(server, options.pairs, Span::Match)
        })?;
        let what = "visit: the same with two accepts and two ends";
        compare(what, &options, &kinds, |server| {
            load::matches(server, options.pairs, Span::Visit)
        })?;
    }
    if runs("rate") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python];
        let what = "rate: processor microseconds per visit of a pair, the relay always busy";
        compare(what, &options, &kinds, |server| {
            load::rate(server, options.pairs * 5)
        })?;
    }
    if runs("wait") {
        let kinds = [Kind::Uring, Kind::Epoll, Kind::Python];
        let count = options
            .waiting
            .min(process::descriptors_max().saturating_sub(500));
        println!("{count} clients wait (the descriptor limit allows no more than that)");
        compare(
            "wait: bytes of memory per client",
            &options,
            &kinds,
            |server| load::wait(server, count),
        )?;
    }
    Ok(())
}

/// Runs every kind in turn, as often as asked for, and prints medians and how they compare.
fn compare(
    what: &str,
    options: &Options,
    kinds: &[Kind],
    measure: impl Fn(&Server) -> Result<f64, Failure>,
) -> Result<(), Failure> {
    let mut figures: Vec<Vec<f64>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (kind, figures) in kinds.iter().zip(&mut figures) {
            let server = Server::start(*kind, &options.flatpath, options.python.as_deref())?;
            let figure = measure(&server).map_err(|cause| format!("{kind:?}: {cause}"))?;
            figures.push(figure);
        }
    }
    println!("\n{what} (median of {})", options.rounds);
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let medians: Vec<f64> = figures.iter_mut().map(median).collect();
    for ((kind, median), all) in kinds.iter().zip(&medians).zip(&figures) {
        let ratio = medians[0] / median;
        let (low, high) = (all[0], all[all.len() - 1]);
        println!(
            "  {:8} {median:12.3}   ({low:.3} .. {high:.3})   uring is {ratio:.3} of it",
            kind.name()
        );
    }
    Ok(())
}
