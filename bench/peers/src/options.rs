//! The command line: what to measure, with which servers, how long and how often.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use flatpath_bench_common::namespace::HOST;

use crate::launch::Launch;
use crate::peers::Serve;
use crate::server::Kind;

/// Flatpath beside nginx, hyper and `tiny_http`: the same work, the same machine, the same run.
#[derive(Debug, Parser)]
#[command(
    name = "flatpath-peers",
    version,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Hidden>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What the harness starts itself as.
#[derive(Debug, Subcommand)]
pub(crate) enum Hidden {
    /// One of the servers in this binary.
    #[command(hide = true)]
    Serve(Serve),
    /// A program that ends with the harness, on chosen cores.
    #[command(hide = true)]
    Launch(Launch),
}

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scenario {
    /// A small file, connections kept and closed.
    Files,
    /// A fixed reply that cannot block.
    Hello,
    /// A fixed reply that may block, on all cores and on one.
    Pooled,
    /// One request in ten sleeps: how long do the others take?
    Sleepers,
    /// A hot file and a pooled answer beside busy loops, one for each core.
    Busy,
    /// A large file is stored.
    Put,
    /// Memory of connections that do nothing.
    Idle,
    /// Everybody connects at once.
    Storm,
    /// What a request costs this build and the one of --before.
    Builds,
}

/// What to measure, and how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// One short run of everything: shows that it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these scenarios
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Scenario>,
    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) servers: Vec<Kind>,
    /// Length of a loaded interval [default: 5, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Runs per server, interleaved [default: 5, idle 3, storm 20; with --quick 1, storm 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Connections of idle and storm [default: 10000, with --quick 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    clients: Option<u32>,
    /// The driver of every server that is Flatpath: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    pub(crate) driver: String,
    /// Threads of wrk: with one it sets the rate, with more the servers share their cores with it
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) wrk_threads: u32,
    /// TCP congestion control, set in a network namespace of its own; `host` stays in the machine's
    /// network, with what is set there
    #[arg(long, default_value = HOST)]
    pub(crate) congestion: String,
    /// The flatpath command; without it the one of this workspace is built
    #[arg(long, value_name = "PATH")]
    pub(crate) server_binary: Option<PathBuf>,
    /// Compare with this build of the flatpath command: CPU of a request, memory of a connection
    #[arg(long, value_name = "PATH")]
    pub(crate) before: Option<PathBuf>,
    /// The `flatpath-peers` of that build: compares the library's fixed replies too
    #[arg(long, value_name = "PATH", requires = "before")]
    pub(crate) before_peers: Option<PathBuf>,
    /// Count instructions (valgrind) and system calls of a request instead of its CPU time; epoll
    #[arg(long, requires = "before")]
    pub(crate) instructions: bool,
    /// Also write everything, every single run too, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// Whether the scenario was asked for.
    pub(crate) fn wants(&self, scenario: Scenario) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&scenario);
        }
        match scenario {
            Scenario::Builds => self.before.is_some(),
            Scenario::Idle => !self.instructions,
            _ => self.before.is_none(),
        }
    }

    /// The servers of a case that were asked for, in the case's order.
    pub(crate) fn choose(&self, kinds: &[Kind]) -> Vec<Kind> {
        let chosen = |kind: &Kind| match (&self.servers[..], &self.before) {
            ([], None) => !kind.is_before(),
            ([], Some(_)) => kind.is_before() || *kind == Kind::Flatpath,
            (named, _) => named.contains(kind),
        };
        kinds.iter().copied().filter(chosen).collect()
    }

    /// Length of a loaded interval.
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 5 })
    }

    /// Runs per server, as asked for.
    pub(crate) fn runs_asked(&self) -> Option<u32> {
        self.runs
    }

    /// Runs per server in a scenario.
    pub(crate) fn runs(&self, scenario: Scenario) -> u32 {
        self.runs.unwrap_or(match (scenario, self.quick) {
            (Scenario::Storm, false) => 20,
            (Scenario::Storm, true) => 2,
            (Scenario::Idle, false) => 3,
            (Scenario::Builds, false) if self.instructions => 1,
            (_, false) => 5,
            (_, true) => 1,
        })
    }

    /// Connections of the scenarios that are about many.
    pub(crate) fn clients(&self) -> u32 {
        self.clients
            .unwrap_or(if self.quick { 1000 } else { 10_000 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(arguments: &[&str]) -> Options {
        let all = std::iter::once("flatpath-peers").chain(arguments.iter().copied());
        Arguments::try_parse_from(all).expect("parsed").options
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn quick_is_short_and_can_be_overruled() {
        let quick = parse(&["--quick"]);
        assert_eq!(
            (
                quick.seconds(),
                quick.runs(Scenario::Files),
                quick.clients()
            ),
            (1, 1, 1000)
        );
        let overruled = parse(&["--quick", "--seconds", "3", "--runs", "2", "--clients", "7"]);
        assert_eq!(
            (overruled.seconds(), overruled.runs(Scenario::Storm)),
            (3, 2)
        );
        assert_eq!(overruled.clients(), 7);
        let full = parse(&[]);
        assert_eq!(
            (full.seconds(), full.runs(Scenario::Files), full.clients()),
            (5, 5, 10_000)
        );
        assert_eq!(full.runs(Scenario::Storm), 20);
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        assert!(parse(&[]).wants(Scenario::Idle));
        let only = parse(&["--only", "hello,storm"]);
        assert!(only.wants(Scenario::Storm) && !only.wants(Scenario::Idle));
    }

    #[test]
    fn chosen_servers_keep_the_order_of_the_case() {
        let options = parse(&["--servers", "hyper,nginx"]);
        let chosen = options.choose(&[Kind::Nginx, Kind::FlatpathInline, Kind::Hyper]);
        assert_eq!(chosen, [Kind::Nginx, Kind::Hyper]);
    }

    #[test]
    fn no_time_and_unknown_names_are_refused() {
        for arguments in [
            ["--seconds", "0"],
            ["--only", "all"],
            ["--servers", "apache"],
        ] {
            let all = std::iter::once("flatpath-peers").chain(arguments);
            assert!(Arguments::try_parse_from(all).is_err(), "{arguments:?}");
        }
    }
}
