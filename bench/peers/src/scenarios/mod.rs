//! The scenarios: each has a function `run` that yields reports, a table with targets each. It
//! fails only if the bench was told to stop: a server that fails is a line in its report.

mod app;
mod adopt;
mod builds;
mod busy;
mod http2;
mod https;
mod idle;
pub(crate) mod ingest;
pub(crate) mod nfs;
mod operate;
mod put;
mod relay;
mod requests;
mod rest;
mod rounds;
mod rules;
mod sleepers;
mod sse;
mod burst;
mod websocket;

use std::io;

use clap::ValueEnum;
use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::BenchReport;
use flatpath_bench_common::tools::{self, Tool};

use crate::kind::Kind;
use crate::options::{Options, Scenario};
use crate::session::{SMALL_PATH, Session, small_body};

/// Runs everything that was asked for: the short ones that need nothing special first.
pub(crate) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let mut reports = Vec::new();
    for scenario in wanted(&session.options) {
        reports.extend(match scenario {
            Scenario::Files | Scenario::Alone | Scenario::Hello | Scenario::Pooled => {
                requests::run(session, scenario)?
            }
            Scenario::Rest => rest::run(session)?,
            Scenario::Websocket => websocket::run(session)?,
            Scenario::Sleepers => vec![sleepers::run(session)?],
            Scenario::Busy => busy::run(session)?,
            Scenario::Operate => vec![operate::run(session)?],
            Scenario::Put => vec![put::run(session)?],
            Scenario::Idle => vec![idle::run(session)?],
            Scenario::Burst => vec![burst::run(session)?],
            Scenario::App => app::run(session)?,
            Scenario::Sse => vec![sse::run(session)?],
            Scenario::Https => https::run(session)?,
            Scenario::Http2 => http2::run(session)?,
            Scenario::Builds => builds::run(session)?,
            Scenario::Rules => rules::run(session)?,
            Scenario::Adopt => vec![adopt::run(session)?],
            Scenario::Nfs => nfs::compare(session)?,
            Scenario::NfsSweep => nfs::sweep(session)?,
            Scenario::Ingest => vec![ingest::run(session)?],
            Scenario::RelayStream
            | Scenario::RelayMatch
            | Scenario::RelayRate
            | Scenario::RelayWait => relay::run(session, scenario)?,
        });
    }
    Ok(reports)
}

fn wanted(options: &Options) -> impl Iterator<Item = Scenario> {
    let all = Scenario::value_variants().iter().copied();
    all.filter(|scenario| options.wants(*scenario))
}

/// Every server the options will start.
pub(crate) fn servers(options: &Options) -> Vec<Kind> {
    wanted(options)
        .flat_map(|scenario| options.choose(kinds_of(scenario)))
        .collect()
}

/// Whether wrk drives a scenario.
pub(crate) fn need_wrk(options: &Options) -> bool {
    let driven = [
        Scenario::Files,
        Scenario::Alone,
        Scenario::Hello,
        Scenario::Pooled,
        Scenario::Busy,
        Scenario::Rest,
        Scenario::App,
        Scenario::Https,
    ];
    let of_rules = options.wants(Scenario::Rules) && !options.instructions;
    of_rules || driven.iter().any(|scenario| options.wants(*scenario))
}

/// The tools without which the options cannot be followed.
pub(crate) fn tools(options: &Options) -> Vec<Tool> {
    let servers = servers(options);
    let counted = [Scenario::Builds, Scenario::Rules];
    let counts = options.instructions && counted.iter().any(|it| options.wants(*it));
    let needed = [
        (tools::WRK, need_wrk(options)),
        (tools::H2LOAD, options.wants(Scenario::Http2)),
        (tools::NGINX, servers.iter().copied().any(Kind::is_nginx)),
        (tools::STRACE, counts || options.wants(Scenario::Burst)),
        (tools::VALGRIND, counts),
        (tools::GANESHA, servers.contains(&Kind::Ganesha)),
        (tools::RPCBIND, servers.contains(&Kind::Ganesha)),
        (tools::SOCAT, servers.contains(&Kind::Socat)),
        (tools::HAPROXY, servers.contains(&Kind::Haproxy)),
    ];
    let needed = needed.into_iter().filter(|(_, needed)| *needed);
    needed.map(|(tool, _)| tool).collect()
}

fn kinds_of(scenario: Scenario) -> &'static [Kind] {
    match scenario {
        Scenario::Files | Scenario::Alone => &requests::FILES,
        Scenario::Hello => &requests::HELLO,
        Scenario::Pooled => &requests::POOLED,
        Scenario::Rest => &rest::KINDS,
        Scenario::Websocket => &websocket::KINDS,
        Scenario::Sleepers => &sleepers::KINDS,
        Scenario::Busy => &busy::KINDS,
        Scenario::Operate => &operate::KINDS,
        Scenario::Put => &put::KINDS,
        Scenario::Idle => &idle::KINDS,
        Scenario::Burst => &burst::KINDS,
        Scenario::App => &app::KINDS,
        Scenario::Sse => &sse::KINDS,
        Scenario::Https => &https::KINDS,
        Scenario::Http2 => &http2::KINDS,
        Scenario::Builds => &builds::KINDS,
        Scenario::Rules => &rules::KINDS,
        Scenario::Nfs => &nfs::KINDS,
        Scenario::Adopt | Scenario::NfsSweep => &[],
        Scenario::Ingest => &ingest::KINDS,
        Scenario::RelayStream => &relay::STREAM,
        Scenario::RelayMatch | Scenario::RelayWait => &relay::MATCH,
        Scenario::RelayRate => &relay::RATE,
    }
}

/// What a server answers, and to which path.
fn path_and_body(kind: Kind) -> (&'static str, Vec<u8>) {
    match kind {
        Kind::Flatpath | Kind::FlatpathBefore => (SMALL_PATH, small_body()),
        _ => (HELLO_PATH, HELLO_BODY.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Arguments;
    use clap::Parser;

    fn options(arguments: &[&str]) -> Options {
        let all = std::iter::once("flatpath-peers").chain(arguments.iter().copied());
        Arguments::try_parse_from(all).expect("parsed").options
    }

    #[test]
    fn only_what_is_needed_must_be_installed() {
        use tools::{GANESHA, NGINX, RPCBIND, STRACE, VALGRIND, WRK};
        assert_eq!(tools(&options(&[])), [WRK, NGINX, STRACE]);
        assert_eq!(tools(&options(&["--only", "sleepers"])), []);
        assert_eq!(tools(&options(&["--only", "idle"])), [NGINX]);
        assert_eq!(tools(&options(&["--only", "nfs"])), [GANESHA, RPCBIND]);
        let hyper = options(&["--only", "hello", "--servers", "hyper"]);
        assert_eq!(tools(&hyper), [WRK]);
        assert_eq!(tools(&options(&["--only", "rules"])), [WRK, NGINX]);
        let counted = ["--only", "rules", "--instructions", "--servers", "flatpath"];
        assert_eq!(tools(&options(&counted)), [STRACE, VALGRIND]);
    }

    #[test]
    fn every_server_takes_part_somewhere() {
        let before = ["--before", "flatpath", "--before-peers", "flatpath-peers"];
        let named = [
            "--only",
            "app,sse,https,http2,nfs,ingest,relay-stream,relay-match,relay-rate",
        ];
        let mut started = servers(&options(&[]));
        started.extend(servers(&options(&before)));
        started.extend(servers(&options(&named)));
        for kind in Kind::value_variants() {
            assert!(started.contains(kind), "{kind} takes part nowhere");
        }
    }
}
