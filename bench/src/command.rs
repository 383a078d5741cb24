//! The command line of `flatpath-bench`.
//!
//! Its options, its report and its exit status are those of every bench
//! ([`flatpath_bench_common::options`]). Standard error shows what is measured at the moment: on a
//! terminal one line that changes, elsewhere a line now and then.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use flatpath_bench::{BENCHES, Bench, Stage};
use flatpath_bench_common::options::Common;

const ALL: &str = "all";
const SERVER: &str = "flatpath";
/// Names it in the environment; `flatpath bench` sets it to itself.
const SERVER_VARIABLE: &str = "FLATPATH";

/// Measures the old way and ours in one run, with the published figures beside.
#[derive(Debug, Parser)]
#[command(name = "flatpath-bench", bin_name = "flatpath bench", version)]
pub(crate) struct Arguments {
    /// What to measure; several may be named
    #[arg(value_name = "NAME", required = true, value_parser = names())]
    names: Vec<String>,

    /// Of neighbours, only the rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// The server that accept and neighbours measure [default: $FLATPATH, else `flatpath` beside
    /// this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

/// Runs the benches that were named.
pub(crate) fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let benches = benches(&arguments.names);
    let mut stage = Stage {
        profile: arguments.common.profile(),
        runs: arguments.common.runs,
        server: server_for(&benches, arguments)?,
        only: arguments.only.clone(),
        progress: Box::new(progress()),
    };
    if let Some(code) = arguments.common.begin()? {
        return Ok(code);
    }
    let measured = || flatpath_bench::run(&benches, &mut stage);
    let outcome = arguments.common.measure(measured);
    (stage.progress)("");
    arguments.common.deliver(&outcome?)?;
    Ok(ExitCode::SUCCESS)
}

/// The server that these benches measure, if any does: the one that was named, or the one that is
/// installed beside this program.
fn server_for(benches: &[Bench], arguments: &Arguments) -> io::Result<PathBuf> {
    let beside = || Some(env::current_exe().ok()?.parent()?.join(SERVER));
    let variable = env::var_os(SERVER_VARIABLE);
    let server = choose(arguments.server.clone(), variable).or_else(beside);
    let server = server.unwrap_or_else(|| SERVER.into());
    if benches.iter().any(|bench| bench.needs_server) && !server.is_file() {
        let message = format!(
            "there is no server to measure at {}: `cargo build --profile dist -p flatpath-cli \
             --features full` builds it beside such a build of this program, --server PATH names \
             another one",
            server.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(server)
}

/// The command line comes before the environment; an empty variable says nothing.
fn choose(named: Option<PathBuf>, variable: Option<OsString>) -> Option<PathBuf> {
    named.or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from))
}

/// What may be named: each bench, or all of them.
fn names() -> PossibleValuesParser {
    let benches = BENCHES
        .iter()
        .map(|it| PossibleValue::new(it.name).help(it.about));
    benches
        .chain([PossibleValue::new(ALL).help("all of them")])
        .into()
}

/// Each bench once, in the order of a connection's path.
fn benches(names: &[String]) -> Vec<Bench> {
    let is_named = |bench: &Bench| names.iter().any(|name| name == bench.name || name == ALL);
    BENCHES.into_iter().filter(is_named).collect()
}

/// How often a line is written where standard error is no terminal, so that a log shows progress.
const LINES_APART: Duration = Duration::from_secs(5);

/// What shows each step.
fn progress() -> impl FnMut(&str) {
    let mut said: Option<Instant> = None;
    move |step| {
        let mut errors = io::stderr();
        // An error here does not stop the measurement.
        if errors.is_terminal() {
            // Back to the first column, and clear the line.
            let _ = write!(errors, "\r\x1b[K{step}").and_then(|()| errors.flush());
        } else if !step.is_empty() && said.is_none_or(|at| at.elapsed() >= LINES_APART) {
            said = Some(Instant::now());
            let _ = writeln!(errors, "{step}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Arguments {
        let arguments = ["flatpath-bench"].iter().chain(arguments);
        Arguments::try_parse_from(arguments).expect("it can be meant")
    }

    #[test]
    fn the_server_is_looked_for_only_where_one_is_measured() {
        let arguments = parse(&["wheel", "--server", "/no/such/server"]);
        let [wheel, all] = ["wheel", ALL].map(|name| benches(&[name.to_owned()]));
        assert!(server_for(&wheel, &arguments).is_ok());
        let refused = server_for(&all, &arguments);
        let refused = refused.expect_err("no server");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let text = refused.to_string();
        assert!(text.contains("/no/such/server") && text.contains("-p flatpath-cli"));
    }

    #[test]
    fn a_server_on_the_command_line_comes_before_the_environment() {
        let named = Some(PathBuf::from("named"));
        assert_eq!(choose(named.clone(), Some("variable".into())), named);
        let variable = Some("variable".into());
        assert_eq!(choose(None, Some("variable".into())), variable);
        assert_eq!(choose(None, Some("".into())), None);
    }

    #[test]
    fn all_names_every_bench_and_each_is_run_once() {
        let named = |names: &[&str]| {
            let arguments = parse(names);
            let benches = benches(&arguments.names).into_iter();
            benches.map(|bench| bench.name).collect::<Vec<_>>()
        };
        assert_eq!(named(&["all", "wheel"]), BENCHES.map(|bench| bench.name));
        assert_eq!(named(&["wheel", "accept", "wheel"]), ["accept", "wheel"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_wrong_use_before_anything_is_measured() {
        let arguments = parse(&[
            "wheel",
            "--quick",
            "--json",
            "/no/such/directory/report.json",
        ]);
        let failure = run(&arguments).expect_err("nothing to write to");
        assert_eq!(failure.kind(), io::ErrorKind::InvalidInput);
        assert!(failure.to_string().contains("--json"));
    }
}
