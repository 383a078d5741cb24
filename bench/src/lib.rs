//! Before and after: the measurements that the originals of Flatpath's five structures published,
//! replayed on this machine, with a column for the published figures.
//!
//! Every bench measures a baseline (an honest implementation of the old way), ours and, as
//! competitors, well-known crates, in the same run, in turns. Where the old way can be helped by a
//! cheap fix, it is measured with it as well; where it wins, the table reports it.
//!
//! | module | what it is |
//! |--------|------------|
//! | `accept`, `buffers`, `dispatch`, `tokens`, `pairing` | the five published measurements |
//! | `events` | an eventfd and its consumer, past the workers |
//! | `wakeups` | what it costs to wake a thread, by each means |
//! | `prompt` | requests that need not wait, past the workers |
//! | `rules` | rules of a site, on files that are not cached |
//! | `queue`, `wheel` | two structures that the five need |
//! | `neighbours` | innocent clients beside one party in trouble after another |
//! | `baseline/` | the old ways, one file each |
//! | `competitors/` | well-known crates |
//! | `published` | what the originals published |
//!
//! A bench states its candidates, loads, tables and targets; [`run`] gives them their turns and
//! reports disturbances. The program is `flatpath-bench`, which `flatpath bench` runs. Its tests
//! run each bench with tiny inputs. Not here: whole servers beside other servers (`bench/peers`).
#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, reason = "benches print none of these")]

mod published;
mod baseline;
mod competitors;
mod accept;
mod buffers;
mod dispatch;
mod tokens;
mod pairing;
mod events;
mod prompt;
mod rules;
mod queue;
mod wakeups;
mod wheel;
mod neighbours;

use std::io;
use std::path::PathBuf;

use flatpath_bench_common::measure::{Turn, interleave};
use flatpath_bench_common::report::{Figure, OTHERS_PERCENT_MAX};
use flatpath_bench_common::usage::Reading;

pub use flatpath_bench_common::profile::Profile;
pub use flatpath_bench_common::report::{BenchReport, Report, Role};

#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// As on the command line.
    pub name: &'static str,
    /// What is compared with what.
    pub about: &'static str,
    /// Whether it measures the server that [`Stage::server`] names.
    pub needs_server: bool,
    measure: fn(&mut Stage, &mut BenchReport) -> io::Result<()>,
}

/// All of them, in the order of the path of a connection.
pub const BENCHES: [Bench; 12] = [
    Bench {
        name: "accept",
        about: "one accept for each connection, against one multishot accept for all",
        needs_server: true,
        measure: accept::run,
    },
    Bench {
        name: "buffers",
        about: "an idle buffer: a walk over those in use, against a pool",
        needs_server: false,
        measure: buffers::run,
    },
    Bench {
        name: "dispatch",
        about: "a request for an idle worker: a walk over all threads, against an idle stack",
        needs_server: false,
        measure: dispatch::run,
    },
    Bench {
        name: "tokens",
        about: "references to pages: a tree or an array per socket, against a ledger per holder",
        needs_server: false,
        measure: tokens::run,
    },
    Bench {
        name: "pairing",
        about: "a key's two sides: two lists under a mutex, against a sharded table",
        needs_server: false,
        measure: pairing::run,
    },
    Bench {
        name: "events",
        about: "a signal of an eventfd: a worker is woken for it, or the network thread calls",
        needs_server: false,
        measure: events::run,
    },
    Bench {
        name: "wakeups",
        about: "a thread that sleeps is woken: a condition variable, against futex and io_uring",
        needs_server: false,
        measure: wakeups::run,
    },
    Bench {
        name: "prompt",
        about: "one request at a time: a worker answers, or the network thread tries first",
        needs_server: false,
        measure: prompt::run,
    },
    Bench {
        name: "rules",
        about: "a file that is not cached: without a rule, against a header or redirects",
        needs_server: false,
        measure: rules::run,
    },
    Bench {
        name: "queue",
        about: "a work queue: a locked deque, against a queue that is pushed to without a lock",
        needs_server: false,
        measure: queue::run,
    },
    Bench {
        name: "wheel",
        about: "time-outs: a tree and a heap, against a timer wheel",
        needs_server: false,
        measure: wheel::run,
    },
    Bench {
        name: "neighbours",
        about: "innocent clients, alone and beside each of many troubles",
        needs_server: true,
        measure: neighbours::run,
    },
];

pub struct Stage {
    pub profile: Profile,
    /// Turns of each candidate, where that is not the profile's choice. Of `neighbours` there is
    /// one.
    pub runs: Option<u32>,
    /// The server that `accept` and `neighbours` measure, as the command line `SERVER serve ...`.
    pub server: PathBuf,
    /// Of `neighbours`, only the rows whose name contains this.
    pub only: Option<String>,
    /// Called with what is measured at the moment.
    pub progress: Box<dyn FnMut(&str)>,
}

/// Runs benches one after the other.
///
/// # Errors
/// A server or client that does not work; figures that disappoint are no error.
pub fn run(benches: &[Bench], stage: &mut Stage) -> io::Result<Vec<BenchReport>> {
    let mut reports = Vec::with_capacity(benches.len());
    for bench in benches {
        let place = format!("bench {} of {}", reports.len() + 1, benches.len());
        (stage.progress)(&format!("{place}: {}, {}", bench.name, bench.about));
        reports.push(stage.run(bench)?);
    }
    Ok(reports)
}

impl Stage {
    /// Turns of each candidate: what was asked for, or else these.
    fn runs(&self, default: usize) -> usize {
        self.runs.map_or(default, |runs| runs as usize)
    }

    /// Gives each candidate of a row its turns: the figures, in the order of the columns.
    fn row(&mut self, what: &str, rounds: usize, turns: &mut [Turn<'_>]) -> Vec<Figure> {
        (self.progress)(what);
        interleave(self.runs(rounds), turns)
    }

    fn run(&mut self, bench: &Bench) -> io::Result<BenchReport> {
        let before = Reading::take(None)?;
        let mut report = BenchReport::new(bench.name, bench.about);
        (bench.measure)(self, &mut report)?;
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
}
