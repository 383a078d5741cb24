//! The command line of `flatpath-bench`, and what is done with the report.
//!
//! The report goes to standard output as text, and with `--json` to a file as well. On a terminal,
//! standard error shows what is measured at the moment. Code 0 says that everything was measured,
//! whatever came out: a missed target is a result, not a failure. Code 1: it could not be measured;
//! 2: wrong use.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use flatpath_bench::{Bench, Options, Profile, Report, ServerProgram};

/// The server under test.
const SERVER: &str = "flatpath";
/// Names it in the environment; `flatpath bench` sets it to itself.
const SERVER_VARIABLE: &str = "FLATPATH";

/// Measures the old way and ours in one run, with the published figures beside.
#[derive(Debug, Parser)]
#[command(name = "flatpath-bench", bin_name = "flatpath bench", version)]
pub(crate) struct Arguments {
    /// What to measure; several may be named
    #[arg(value_name = "NAME", required = true)]
    names: Vec<Name>,

    /// Fewer rows and shorter slices: all of it in a few minutes
    #[arg(long)]
    quick: bool,

    /// Write the report as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Of neighbours, only the rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Draw the figures as SVG files into this directory, which is made if need be
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// The server that accept and neighbours measure [default: $FLATPATH, else `flatpath` beside
    /// this program]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
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
    /// All of them
    All,
}

/// Runs the benches that were named.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Before anything is measured: it would be a pity afterwards.
    if let Some(directory) = &arguments.plot {
        fs::create_dir_all(directory).map_err(|cause| unusable("--plot", directory, &cause))?;
    }
    if let Some(file) = &arguments.json {
        fs::write(file, "").map_err(|cause| unusable("--json", file, &cause))?;
    }
    if cfg!(debug_assertions) {
        log::warn!("this is a debug build: its figures mean little");
    }
    let benches = benches(&arguments.names);
    let options = Options {
        profile: if arguments.quick {
            Profile::Quick
        } else {
            Profile::Full
        },
        server: ServerProgram::Program(server_for(&benches, arguments)?),
        only: arguments.only.clone(),
    };
    let mut progress = Progress::begin();
    let outcome = flatpath_bench::run(&benches, &options, &mut |step| {
        progress.show(step);
    });
    progress.end();
    let report = outcome.map_err(|error| Failure::Failed(error.to_string()))?;
    deliver(&report, arguments)
}

/// The server that these benches measure, if any does: the one that was named, or the one that is
/// installed beside this program.
fn server_for(benches: &[Bench], arguments: &Arguments) -> Result<PathBuf, Failure> {
    let beside = || Some(env::current_exe().ok()?.parent()?.join(SERVER));
    let variable = env::var_os(SERVER_VARIABLE);
    let server = choose(arguments.server.clone(), variable).or_else(beside);
    let server = server.unwrap_or_else(|| SERVER.into());
    if benches.iter().any(|bench| bench.needs_server()) && !server.is_file() {
        return Err(Failure::WrongUse(format!(
            "there is no server to measure at {}: `cargo build --release -p flatpath-cli` builds \
             it beside a release build of this program, --server PATH names another one",
            server.display()
        )));
    }
    Ok(server)
}

/// The command line comes before the environment; an empty variable says nothing.
fn choose(named: Option<PathBuf>, variable: Option<OsString>) -> Option<PathBuf> {
    named.or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from))
}

/// Each bench once, in the order of a connection's path.
fn benches(names: &[Name]) -> Vec<Bench> {
    let is_named = |bench: &Bench| {
        let name = match bench {
            Bench::Accept => Name::Accept,
            Bench::Buffers => Name::Buffers,
            Bench::Dispatch => Name::Dispatch,
            Bench::Tokens => Name::Tokens,
            Bench::Pairing => Name::Pairing,
            Bench::Events => Name::Events,
            Bench::Queue => Name::Queue,
            Bench::Wheel => Name::Wheel,
            Bench::Neighbours => Name::Neighbours,
        };
        names.contains(&name) || names.contains(&Name::All)
    };
    Bench::ALL.into_iter().filter(is_named).collect()
}

fn deliver(report: &Report, arguments: &Arguments) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output
        .write_all(report.text().as_bytes())
        .and_then(|()| output.flush())
        .map_err(|cause| Failure::Failed(format!("standard output is closed: {cause}")))?;
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|cause| Failure::Failed(format!("the report has no JSON form: {cause}")))?;
        fs::write(file, text + "\n").map_err(|cause| unusable("--json", file, &cause))?;
    }
    if let Some(directory) = &arguments.plot {
        let files = report.draw(directory);
        for file in files.map_err(|error| Failure::Failed(error.to_string()))? {
            log::info!("drawn {}", file.display());
        }
    }
    Ok(())
}

fn unusable(flag: &str, path: &Path, cause: &io::Error) -> Failure {
    Failure::WrongUse(format!("{flag} {}: {cause}", path.display()))
}

/// Why the bench ended without a report.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line cannot be meant. Code 2.
    WrongUse(String),
    /// It did not work out. Code 1.
    Failed(String),
}

impl Failure {
    /// The exit status that says so.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::WrongUse(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::WrongUse(text) | Self::Failed(text)) = self;
        formatter.write_str(text)
    }
}

/// One line on a terminal, rewritten with every step; nothing elsewhere.
struct Progress {
    is_shown: bool,
}

impl Progress {
    fn begin() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, step: &str) {
        if self.is_shown {
            // Back to the first column, and clear the line.
            self.write(&format!("\r\x1b[K{step}"));
        }
    }

    fn end(&mut self) {
        if self.is_shown {
            self.write("\r\x1b[K");
        }
    }

    /// Writes to the terminal; if it is gone, the measurement continues without progress.
    fn write(&mut self, text: &str) {
        let mut terminal = io::stderr().lock();
        let written = terminal
            .write_all(text.as_bytes())
            .and_then(|()| terminal.flush());
        self.is_shown = written.is_ok();
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
        assert!(server_for(&[Bench::Wheel], &arguments).is_ok());
        let refused = server_for(&[Bench::Wheel, Bench::Accept], &arguments);
        assert!(matches!(refused, Err(Failure::WrongUse(ref text))
            if text.contains("/no/such/server") && text.contains("-p flatpath-cli")));
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
        assert_eq!(benches(&[Name::All, Name::Wheel]), Bench::ALL);
        let two = [Name::Wheel, Name::Accept, Name::Wheel];
        assert_eq!(benches(&two), [Bench::Accept, Bench::Wheel]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_wrong_use_before_anything_is_measured() {
        let arguments = parse(&["all", "--quick", "--json", "/no/such/directory/report.json"]);
        let failure = run(&arguments).expect_err("nothing to write to");
        assert!(matches!(failure, Failure::WrongUse(ref text) if text.contains("--json")));
    }
}
