//! The command line: what to measure, with which servers, how long and how often.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use flatpath_bench_common::options::Common;

use crate::candidates::observed;
use crate::candidates::serve::Serve;
use crate::instructions::Launch;
use crate::kind::Kind;
use crate::loads::calls::Workload;
use crate::loads::ingest::{Consume, Produce};

/// Flatpath and other servers: the same work, the same machine, the same run.
#[derive(Debug, Parser)]
#[command(
    name = "flatpath-peers",
    version,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What the bench starts itself as.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// A server in this binary.
    #[command(hide = true)]
    Serve(Serve),
    /// The server of `nfs-sweep`.
    #[command(hide = true)]
    Observed(observed::Serve),
    /// A consumer of `ingest`.
    #[command(hide = true)]
    Consume(Consume),
    /// All producers of `ingest`.
    #[command(hide = true)]
    Produce(Produce),
    /// A program that runs under callgrind.
    #[command(hide = true)]
    Launch(Launch),
}

/// A group of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scenario {
    /// What a request costs this build and the one of --before
    Builds,
    /// A small file, connections kept and closed
    Files,
    /// A small file, one connection and one request at a time
    Alone,
    /// A fixed reply that cannot block
    Hello,
    /// A fixed reply that may block, on all cores and on one
    Pooled,
    /// JSON and SQLite
    Rest,
    /// Messages over WebSockets, and sockets that wait
    Websocket,
    /// One request in ten sleeps: how long do the others take?
    Sleepers,
    /// A hot file and a pooled answer while busy loops run, one for each core
    Busy,
    /// What an access log, scrapes and a crowd that waits add to a request
    Operate,
    /// Memory of connections that do nothing
    Idle,
    /// An application of real size, and its twin in axum; only if named
    App,
    /// Many listen to server-sent events; only if named
    Sse,
    /// Files over TLS, full handshakes, connections that wait; only if named
    Https,
    /// HTTP/2 with and without TLS: files, connections that wait; only if named
    Http2,
    /// Files of 16 KiB to 1 GiB beside nginx, lighttpd and h2o; only if named
    Large,
    /// A reverse proxy beside nginx and haproxy; only if named
    Proxy,
    /// Hello world and axum's: crates, time to build, size; only if named
    Adopt,
    /// Compression, passwords, redirects, sites, groups of NFS callers; only if named
    Rules,
    /// NFSv3: ours and nfs-ganesha; only if named
    Nfs,
    /// NFSv3: ours with more and more workers; only if named
    NfsSweep,
    /// Large messages to other processes; only if named
    Ingest,
    /// CPU time of a relay per GiB of one stream; only if named
    RelayStream,
    /// CPU time of a relay per pair of clients while it is always busy; only if named
    RelayRate,
    /// Memory of clients that wait for their partner; only if named
    RelayWait,
}

/// What to measure, and how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only these scenarios
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Scenario>,
    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) servers: Vec<Kind>,
    /// Length of a loaded interval [default: 5, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Connections that wait [default: 10000; listeners of sse: 50000; with --quick 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    clients: Option<u32>,
    /// The driver of every server that is Flatpath: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    pub(crate) driver: String,
    /// Threads of wrk: with one it sets the rate, with more the servers share their cores with it
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) wrk_threads: u32,
    /// The flatpath command; without it $FLATPATH, or the one of this workspace, which is built
    #[arg(long, value_name = "PATH")]
    pub(crate) server_binary: Option<PathBuf>,
    /// One more argument of `flatpath serve`; may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) serve: Vec<String>,
    /// Compare with this build of the flatpath command: CPU of a request, memory of a connection
    #[arg(long, value_name = "PATH")]
    pub(crate) before: Option<PathBuf>,
    /// The `flatpath-peers` of that build: compares the library's fixed replies too
    #[arg(long, value_name = "PATH", requires = "before")]
    pub(crate) before_peers: Option<PathBuf>,
    /// Count instructions (valgrind) and system calls of a request instead of its CPU time, with
    /// epoll: of two builds, with --before, and of rules
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Only these workloads of nfs and nfs-sweep
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) workload: Vec<Workload>,
    /// Numbers of workers of nfs-sweep
    #[arg(long, value_delimiter = ',', default_values_t = [8, 32, 128, 512])]
    pub(crate) workers: Vec<u32>,
    /// Directory with `twist` and magic-wormhole-transit-relay [default: PATH]
    #[arg(long, value_name = "DIR")]
    pub(crate) python: Option<PathBuf>,
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
            scenario => scenario <= Scenario::Idle && self.before.is_none(),
        }
    }

    /// Whether a server was asked for.
    pub(crate) fn chooses(&self, kind: Kind) -> bool {
        let is_of_library = || {
            let is_compared = matches!(
                kind,
                Kind::FlatpathInline
                    | Kind::FlatpathPooled
                    | Kind::SocketsEpoll
                    | Kind::SocketsPooled
            );
            is_compared && self.before_peers.is_some()
        };
        match (&self.servers[..], &self.before) {
            ([], None) => !kind.is_before(),
            ([], Some(_)) => kind.is_before() || kind == Kind::Flatpath || is_of_library(),
            (named, _) => named.contains(&kind),
        }
    }

    /// Length of a loaded interval.
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(self.sized(5, 1))
    }

    /// Connections of the scenarios that are about many.
    pub(crate) fn clients(&self) -> u32 {
        self.clients.unwrap_or(self.sized(10_000, 1000))
    }

    /// Listeners of server-sent events.
    pub(crate) fn listeners(&self) -> u32 {
        self.clients.unwrap_or(self.sized(50_000, 1000))
    }

    /// Time between two server-sent events.
    pub(crate) fn event_interval(&self) -> Duration {
        self.sized(Duration::from_secs(1), Duration::from_millis(50))
    }

    /// Length of an interval with server-sent events: that of five where it is not given.
    pub(crate) fn event_seconds(&self) -> Duration {
        match self.seconds {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => self.event_interval() * 5,
        }
    }

    /// An amount of work, and the one that shows that it works.
    pub(crate) fn sized<T>(&self, full: T, quick: T) -> T {
        if self.common.quick { quick } else { full }
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
        let amounts = |options: Options| {
            let runs = options.common.runs(5);
            (options.seconds(), runs, options.clients())
        };
        assert_eq!(amounts(parse(&["--quick"])), (1, 1, 1000));
        let overruled = ["--quick", "--seconds", "3", "--runs", "2", "--clients", "7"];
        assert_eq!(amounts(parse(&overruled)), (3, 2, 7));
        assert_eq!(amounts(parse(&[])), (5, 5, 10_000));
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        assert!(parse(&[]).wants(Scenario::Idle) && !parse(&[]).wants(Scenario::Nfs));
        let only = parse(&["--only", "hello,sleepers,nfs"]);
        assert!(only.wants(Scenario::Sleepers) && only.wants(Scenario::Nfs));
        assert!(!only.wants(Scenario::Idle));
    }

    #[test]
    fn another_build_is_measured_where_one_is_named() {
        let kinds = [
            Kind::Nginx,
            Kind::FlatpathBefore,
            Kind::Flatpath,
            Kind::FlatpathInline,
        ];
        let chosen = |arguments: &[&str]| {
            let options = parse(arguments);
            kinds.map(|kind| options.chooses(kind))
        };
        assert_eq!(chosen(&[]), [true, false, true, true]);
        assert_eq!(chosen(&["--servers", "nginx"]), [true, false, false, false]);
        let before = ["--before", "there", "--before-peers", "there"];
        assert_eq!(chosen(&before[..2]), [false, true, true, false]);
        assert_eq!(chosen(&before), [false, true, true, true]);
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
