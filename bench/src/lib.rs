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

mod error;
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

pub use accept::ServerProgram;
pub use error::Error;
pub use flatpath_bench_common::profile::Profile;
pub use flatpath_bench_common::report::{BenchReport, Report, Role};

/// A core's share that other processes may use before the figures are called disturbed.
const OTHERS_PERCENT_MAX: f64 = 10.0;

/// One bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bench {
    /// Single accepts against one multishot accept, in the real server.
    Accept,
    /// A walked buffer list against the pool.
    Buffers,
    /// A walked thread list against queue and worker pool.
    Dispatch,
    /// A tree, or an array, per socket against tokens.
    Tokens,
    /// Two lists under a mutex against pairing.
    Pairing,
    /// A worker that is woken for a signal against a call on the network thread.
    Events,
    /// A locked deque against the queue.
    Queue,
    /// A tree and a heap of timers against the wheel.
    Wheel,
    /// Innocent clients beside one party in trouble after another, in the real server.
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
) -> Result<Report, Error> {
    let mut stage = Stage {
        profile: options.profile,
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
    server: &'a ServerProgram,
    only: Option<&'a str>,
    progress: &'a mut dyn FnMut(&str),
}

impl Stage<'_> {
    /// Tells what is measured at the moment.
    fn step(&mut self, what: &str) {
        (self.progress)(what);
    }

    fn run(&mut self, bench: Bench) -> Result<BenchReport, Error> {
        let before = Reading::take(None)?;
        let mut report = self.measure(bench)?;
        let others = before.used()?.others_percent();
        if others > OTHERS_PERCENT_MAX {
            report.notes.push(format!(
                "disturbed: other processes used {others:.0} % of a core meanwhile; threads that \
                 should have met did not, and the figures mean little"
            ));
        }
        report.others_percent = others;
        Ok(report)
    }

    fn measure(&mut self, bench: Bench) -> Result<BenchReport, Error> {
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
