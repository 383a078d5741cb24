//! Before and after: the measurements that the originals of Flatpath's five structures published,
//! replayed on this machine, with a column for the published figures.
//!
//! Every bench measures a baseline (an honest implementation of the old way), ours and, as
//! competitors, well-known crates, in the same run, in turns. Where the old way can be helped by a
//! cheap fix, it is measured with it as well; where it wins, the table says so.
//!
//! | module | what it is |
//! |--------|------------|
//! | `accept`, `buffers`, `dispatch`, `tokens`, `pairing` | the five published measurements |
//! | `events` | an eventfd and its consumer, past the workers |
//! | `queue`, `wheel` | two structures that the five need |
//! | `neighbours` | innocent clients beside one party in trouble after another |
//! | `baseline/` | the old ways, one file each |
//! | `competitors/` | well-known crates |
//! | `published` | what the originals published |
//!
//! The program is `flatpath-bench`, which `flatpath bench` runs. Its tests run each bench with tiny
//! inputs. Not here: whole servers beside other servers (`bench/peers`).
#![forbid(unsafe_code)]

mod published;
mod baseline;
mod competitors;
mod accept;
mod buffers;
mod dispatch;
mod tokens;
mod pairing;
mod events;
mod queue;
mod wheel;
mod neighbours;

use flatpath_bench_common::usage::Reading;
use std::io;

pub use accept::ServerProgram;
pub use flatpath_bench_common::profile::Profile;
pub use flatpath_bench_common::report::{BenchReport, Report, Role};

/// A core's share that other processes may use before the figures are called disturbed.
const OTHERS_PERCENT_MAX: f64 = 10.0;

/// One bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Bench {
    /// Single accepts, or one multishot accept for all
    Accept,
    /// An idle buffer: a walk over those in use, or a pool
    Buffers,
    /// A request for an idle worker: a walk over all threads, or an idle stack
    Dispatch,
    /// References to pages: a tree or an array per socket, or tokens
    Tokens,
    /// Partners that find each other: two lists, or a table
    Pairing,
    /// A signal of an eventfd: a worker that is woken, or a call on the network thread
    Events,
    /// A work queue: a locked deque, or a queue pushed to without a lock
    Queue,
    /// Time-outs: a tree or a heap, or a wheel
    Wheel,
    /// Clients in trouble of every sort, and how long all others wait
    Neighbours,
}

impl Bench {
    /// All of them, in the order of the path of a connection.
    pub const ALL: [Bench; 9] = [
        Bench::Accept,
        Bench::Buffers,
        Bench::Dispatch,
        Bench::Tokens,
        Bench::Pairing,
        Bench::Events,
        Bench::Queue,
        Bench::Wheel,
        Bench::Neighbours,
    ];

    /// Whether it measures the server that [`Options::server`] names.
    #[must_use]
    pub fn needs_server(self) -> bool {
        matches!(self, Bench::Accept | Bench::Neighbours)
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How thorough.
    pub profile: Profile,
    /// Turns of each candidate, where that is not the profile's choice. Of `neighbours` there is
    /// one.
    pub runs: Option<u32>,
    /// Where the real server comes from, for `accept` and `neighbours`.
    pub server: ServerProgram,
    /// Of `neighbours`, only the rows whose name contains this.
    pub only: Option<String>,
}

/// Runs benches one after the other. `progress` is told what is measured at the moment.
///
/// # Errors
/// A server or client that does not work; figures that disappoint are no error.
pub fn run(
    benches: &[Bench],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Report> {
    let mut stage = Stage {
        profile: options.profile,
        runs: options.runs,
        server: &options.server,
        only: options.only.as_deref(),
        progress,
    };
    Report::collect(options.profile, || {
        benches.iter().map(|bench| stage.run(*bench)).collect()
    })
}

/// What a bench is given.
struct Stage<'a> {
    profile: Profile,
    runs: Option<u32>,
    server: &'a ServerProgram,
    only: Option<&'a str>,
    progress: &'a mut dyn FnMut(&str),
}

impl Stage<'_> {
    /// Tells what is measured at the moment.
    fn step(&mut self, what: &str) {
        (self.progress)(what);
    }

    /// Turns of each candidate: what was asked for, or else these.
    fn runs(&self, default: usize) -> usize {
        self.runs.map_or(default, |runs| runs as usize)
    }

    fn run(&mut self, bench: Bench) -> io::Result<BenchReport> {
        let before = Reading::take(None)?;
        let mut report = self.measure(bench)?;
        let others = before.used()?.others_percent();
        if others > OTHERS_PERCENT_MAX {
            report.note(format!(
                "disturbed: other processes used {others:.0} % of a core meanwhile; threads that \
                 should have met did not, and the figures mean little"
            ));
        }
        report.others_percent = others;
        Ok(report)
    }

    fn measure(&mut self, bench: Bench) -> io::Result<BenchReport> {
        match bench {
            Bench::Accept => accept::run(self),
            Bench::Buffers => buffers::run(self),
            Bench::Dispatch => dispatch::run(self),
            Bench::Tokens => tokens::run(self),
            Bench::Pairing => pairing::run(self),
            Bench::Events => events::run(self),
            Bench::Queue => queue::run(self),
            Bench::Wheel => wheel::run(self),
            Bench::Neighbours => neighbours::run(self),
        }
    }
}
