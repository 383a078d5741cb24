//! `flatpath-peers`: Flatpath and other servers, with the same work, on the same machine, in the
//! same run. README.md says what is measured and how.
//!
//! | module | what it is |
//! |---|---|
//! | `scenarios` | the workloads, a file or a directory each, with their targets |
//! | `kind`, `candidates` | the servers: their names, and those that are in this binary |
//! | `certificate` | what the servers over TLS have in common |
//! | `server` | starts a candidate and ends it |
//! | `session` | what all scenarios share: options, documents, cores |
//! | `instructions` | counts instructions by callgrind |

#![forbid(unsafe_code)]

mod options;
mod kind;
mod instructions;
mod candidates;
mod certificate;
mod server;
mod session;
mod scenarios;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use flatpath_bench_common::machine::locked_versions;
use flatpath_bench_common::options::exit_code;
use flatpath_bench_common::tools;
use flatpath_testkit::process::raise_descriptor_limit;

use crate::options::{Arguments, Options, Role, Scenario};
use crate::scenarios::ingest::clients;
use crate::session::Session;

/// The lock file this binary was built from: the versions are the real ones.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
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
        Role::Consume(consume) => clients::consume(&consume),
        Role::Produce(produce) => clients::produce(&produce),
        Role::Launch(launch) => Err(instructions::run(&launch)),
    }
}

fn measure(options: Options) -> io::Result<ExitCode> {
    if let Some(code) = options.common.begin()? {
        return Ok(code);
    }
    tools::require(&scenarios::tools(&options))?;
    require_descriptors(&options)?;
    if options.wants(Scenario::Builds) && options.before.is_none() {
        let message = "--only builds compares with another build: name it with --before";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let session = Session::begin(options)?;
    let options = &session.options;
    let mut report = options.common.measure(|| scenarios::run(&session))?;
    let tools = [tools::NGINX, tools::WRK, tools::H2LOAD].iter();
    report.machine.versions = tools.filter_map(|tool| tool.version()).collect();
    report
        .machine
        .versions
        .extend(locked_versions(LOCK_FILE, &CRATES));
    options.common.deliver(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn require_descriptors(options: &Options) -> io::Result<()> {
    let limit = raise_descriptor_limit()?;
    let many = [
        (Scenario::Operate, options.clients()),
        (Scenario::Idle, options.clients()),
        (Scenario::Burst, options.clients()),
        (Scenario::App, options.app_listeners()),
        (Scenario::Sse, options.listeners()),
        (Scenario::Https, options.clients()),
        (Scenario::Http2, options.clients()),
    ];
    let wanted = many.iter().filter(|(scenario, _)| options.wants(*scenario));
    let most = wanted.map(|(_, clients)| *clients).max().unwrap_or(0);
    let needed = u64::from(most) + SPARE_DESCRIPTORS;
    if most > 0 && limit < needed {
        let message = format!("{needed} descriptors are needed and {limit} allowed (ulimit -Hn)");
        return Err(io::Error::other(message));
    }
    Ok(())
}
