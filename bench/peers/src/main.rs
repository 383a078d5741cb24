//! `flatpath-peers`: Flatpath and other servers, with the same work, on the same machine, in the
//! same run. README.md says what is measured and how.
//!
//! | module | what it is |
//! |---|---|
//! | `comparison` | what a scenario is: candidates, a load, what is wanted |
//! | `scenarios` | all comparisons, and which of them the options ask for |
//! | `loads` | what is done to a candidate, and what is counted |
//! | `runner` | acts on a comparison |
//! | `kind`, `candidates` | the servers: their names, and those that are in this binary |
//! | `ground` | programs, documents, a certificate, cores |
//! | `server` | starts a candidate and ends it |
//! | `instructions` | counts instructions by callgrind |

#![forbid(unsafe_code)]

mod options;
mod scenarios;
mod runner;
mod comparison;
mod loads;
mod server;
mod ground;
mod candidates;
mod kind;
mod instructions;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use flatpath_bench_common::machine::locked_versions;
use flatpath_bench_common::options::exit_code;
use flatpath_bench_common::tools;
use flatpath_testkit::binary;
use flatpath_testkit::process::raise_descriptor_limit;

use crate::comparison::Comparison;
use crate::ground::{Ground, LOCK_FILE, Pace, Programs, cores};
use crate::kind::Kind;
use crate::loads::ingest;
use crate::options::{Arguments, Options, Role, Scenario};
use crate::scenarios::Machine;

/// The crates that are compared.
const CRATES: [&str; 8] = [
    "axum",
    "hyper",
    "rusqlite",
    "rustls",
    "tiny_http",
    "tokio",
    "tokio-rustls",
    "tower-http",
];
/// Descriptors beyond the clients: pipes, logs, epoll.
const SPARE_DESCRIPTORS: u64 = 100;

fn main() -> ExitCode {
    let Arguments { role, options } = Arguments::parse();
    let outcome = match role {
        None => measure(options),
        Some(role) => play(role).map(|()| ExitCode::SUCCESS),
    };
    exit_code("flatpath-peers", outcome)
}

fn play(role: Role) -> io::Result<()> {
    match role {
        Role::Serve(serve) => candidates::run(&serve),
        Role::Observed(serve) => candidates::observed::serve(serve),
        Role::Consume(consume) => ingest::consume(&consume),
        Role::Produce(produce) => ingest::produce(&produce),
        Role::Launch(launch) => Err(instructions::run(&launch)),
    }
}

fn measure(options: Options) -> io::Result<ExitCode> {
    if let Some(code) = options.common.begin()? {
        return Ok(code);
    }
    if options.wants(Scenario::Builds) && options.before.is_none() {
        let message = "--only builds compares with another build: name it with --before";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let machine = Machine {
        cores: cores()?.len(),
        descriptors: raise_descriptor_limit()?,
    };
    let comparisons = scenarios::wanted(&options, machine);
    tools::require(&scenarios::tools(&comparisons))?;
    require_descriptors(&comparisons, machine)?;
    let pace = Pace {
        seconds: options.seconds(),
        is_quick: options.common.quick,
    };
    let ground = Ground::prepare(programs(&options, &comparisons)?, pace)?;
    let mut report = options.common.measure(|| {
        let run = |it: &Comparison| runner::run(it, options.common.runs(it.runs), &ground);
        comparisons.iter().map(run).collect()
    })?;
    let tools = [tools::NGINX, tools::WRK, tools::H2LOAD].iter();
    report.machine.versions = tools.filter_map(|tool| tool.version()).collect();
    report
        .machine
        .versions
        .extend(locked_versions(LOCK_FILE, &CRATES));
    options.common.deliver(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// The programs of these comparisons. The `flatpath` command is built if it is needed, as this
/// program was.
fn programs(options: &Options, comparisons: &[Comparison]) -> io::Result<Programs> {
    let rows = comparisons.iter().flat_map(|it| &it.rows);
    let mut kinds = rows.filter_map(|row| row.kind);
    let flatpath = match &options.server_binary {
        Some(path) => path.canonicalize().map_err(|error| {
            let message = format!("--server-binary {}: {error}", path.display());
            io::Error::new(error.kind(), message)
        })?,
        // Built and never merely found: a stale binary measures yesterday's code.
        None if kinds.any(Kind::is_command) => binary::flatpath().to_path_buf(),
        None => PathBuf::new(),
    };
    Ok(Programs {
        flatpath,
        serve: options.serve.clone(),
        driver: options.driver.clone(),
        before: options.before.clone(),
        before_peers: options.before_peers.clone(),
        python: options.python.clone(),
        wrk_threads: options.wrk_threads,
    })
}

fn require_descriptors(comparisons: &[Comparison], machine: Machine) -> io::Result<()> {
    let limit = machine.descriptors;
    let most = comparisons.iter().map(|it| it.crowd).max().unwrap_or(0);
    let needed = u64::from(most) + SPARE_DESCRIPTORS;
    if most > 0 && limit < needed {
        let message = format!("{needed} descriptors are needed and {limit} allowed (ulimit -Hn)");
        return Err(io::Error::other(message));
    }
    Ok(())
}
