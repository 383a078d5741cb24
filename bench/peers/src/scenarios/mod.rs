//! The scenarios; each yields cases, each case a table and verdicts.

mod builds;
mod busy;
mod idle;
mod put;
mod requests;
mod sleepers;
mod storm;

use std::io;

use crate::bench::Bench;
use crate::options::{Options, Scenario};
use crate::report::Case;
use crate::server::Kind;
use crate::tools::Tool;

/// In the order in which they run: the short ones that need nothing special first.
const ALL: [Scenario; 9] = [
    Scenario::Builds,
    Scenario::Files,
    Scenario::Hello,
    Scenario::Pooled,
    Scenario::Sleepers,
    Scenario::Busy,
    Scenario::Put,
    Scenario::Idle,
    Scenario::Storm,
];

/// Runs everything that was asked for.
///
/// # Errors
/// Only if the harness was told to stop: a server that fails is a line in the report.
pub(crate) fn run(bench: &Bench) -> io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for scenario in ALL
        .into_iter()
        .filter(|scenario| bench.options.wants(*scenario))
    {
        cases.extend(match scenario {
            Scenario::Files | Scenario::Hello | Scenario::Pooled => requests::run(bench, scenario)?,
            Scenario::Sleepers => vec![sleepers::run(bench)?],
            Scenario::Busy => busy::run(bench)?,
            Scenario::Put => vec![put::run(bench)?],
            Scenario::Idle => vec![idle::run(bench)?],
            Scenario::Storm => vec![storm::run(bench)?],
            Scenario::Builds => builds::run(bench)?,
        });
    }
    Ok(cases)
}

/// The comparison of two builds needs the other one.
///
/// # Errors
/// `InvalidInput` if it was not named.
pub(crate) fn require_builds(options: &Options) -> io::Result<()> {
    if options.wants(Scenario::Builds) && options.before.is_none() {
        let message = "--only builds compares with another build: name it with --before";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Every server the options will start.
pub(crate) fn servers(options: &Options) -> Vec<Kind> {
    let scenarios = ALL.into_iter().filter(|scenario| options.wants(*scenario));
    let kinds = scenarios.flat_map(|scenario| options.choose(kinds_of(scenario)));
    kinds.collect()
}

/// The tools without which the options cannot be followed.
pub(crate) fn tools(options: &Options) -> Vec<Tool> {
    let driven = [
        Scenario::Files,
        Scenario::Hello,
        Scenario::Pooled,
        Scenario::Busy,
    ];
    let wrk = driven
        .iter()
        .any(|scenario| options.wants(*scenario))
        .then_some(Tool::Wrk);
    let nginx = servers(options)
        .iter()
        .any(|kind| kind.is_nginx())
        .then_some(Tool::Nginx);
    let counts = options.instructions && options.wants(Scenario::Builds);
    let strace = (counts || options.wants(Scenario::Storm)).then_some(Tool::Strace);
    let valgrind = counts.then_some(Tool::Valgrind);
    [wrk, nginx, strace, valgrind]
        .into_iter()
        .flatten()
        .collect()
}

fn kinds_of(scenario: Scenario) -> &'static [Kind] {
    match scenario {
        Scenario::Files => &requests::FILES,
        Scenario::Hello => &requests::HELLO,
        Scenario::Pooled => &requests::POOLED,
        Scenario::Sleepers => &sleepers::KINDS,
        Scenario::Busy => &busy::KINDS,
        Scenario::Put => &put::KINDS,
        Scenario::Idle => &idle::KINDS,
        Scenario::Storm => &storm::KINDS,
        Scenario::Builds => &builds::KINDS,
    }
}

/// What a server answers, and to which path.
fn path_and_body(kind: Kind) -> (&'static str, Vec<u8>) {
    match kind {
        Kind::Flatpath | Kind::FlatpathBefore => {
            (crate::bench::SMALL_PATH, crate::bench::small_body())
        }
        _ => (crate::nginx::HELLO_PATH, crate::nginx::HELLO_BODY.into()),
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
        assert_eq!(tools(&options(&[])), [Tool::Wrk, Tool::Nginx, Tool::Strace]);
        assert_eq!(tools(&options(&["--only", "sleepers"])), []);
        assert_eq!(tools(&options(&["--only", "idle"])), [Tool::Nginx]);
        assert_eq!(
            tools(&options(&["--only", "hello", "--servers", "hyper"])),
            [Tool::Wrk]
        );
    }

    #[test]
    fn every_server_takes_part_somewhere() {
        use clap::ValueEnum;
        let before = ["--before", "flatpath", "--before-peers", "flatpath-peers"];
        let mut started = servers(&options(&[]));
        started.extend(servers(&options(&before)));
        for kind in Kind::value_variants() {
            assert!(
                started.contains(kind),
                "{} takes part nowhere",
                kind.label()
            );
        }
    }
}
