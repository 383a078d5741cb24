//! Flatpath beside nginx, hyper and `tiny_http`: the same work, the same machine, the same run.
//!
//! Exit status: 0 measured (whether or not the targets were met), 1 failed, 2 wrong use,
//! 130 interrupted. README.md says what is measured and how.

#![forbid(unsafe_code)]

mod options;
mod machine;
mod tools;
mod command;
mod children;
mod launch;
mod nginx;
mod peers;
mod server;
mod proc;
mod wrk;
mod reply;
mod generator;
mod rounds;
mod calls;
mod bench;
mod scenarios;
mod metric;
mod target;
mod report;
mod table;

use std::fs;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use flatpath_bench_common::namespace;

use crate::bench::Bench;
use crate::machine::Machine;
use crate::options::{Arguments, Hidden, Options};
use crate::report::{Report, Settings};
use crate::tools::Tool;
use crate::wrk::Wrk;

/// Descriptors beyond the clients: pipes, logs, epoll.
const SPARE_DESCRIPTORS: u64 = 100;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.command {
        Some(Hidden::Serve(serve)) => peers::run(serve).map(|()| ExitCode::SUCCESS),
        Some(Hidden::Launch(launch)) => Err(launch::run(launch)),
        None => measure(arguments.options),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("flatpath-peers: {error}");
            ExitCode::from(children::exit_status_of(&error))
        }
    }
}

fn measure(options: Options) -> io::Result<ExitCode> {
    if let Some(code) = namespace::enter(&options.congestion)? {
        return Ok(code);
    }
    let tools = scenarios::tools(&options);
    tools::require(&tools)?;
    require_descriptors(&options)?;
    children::end_all_on_signals()?;
    scenarios::require_builds(&options)?;
    let needs_flatpath = scenarios::servers(&options)
        .iter()
        .any(|kind| kind.is_flatpath_command());
    let flatpath = needs_flatpath.then(|| command::locate(options.server_binary.as_deref()));
    let wrk = tools
        .contains(&Tool::Wrk)
        .then(|| Wrk::prepare(options.wrk_threads));
    let settings = Settings {
        seconds: options.seconds(),
        runs: options.runs_asked(),
        quick: options.quick,
        driver: options.driver.clone(),
        wrk_threads: options.wrk_threads,
        congestion: namespace::congestion_control()?,
    };
    let json = options.json.clone();
    let bench = Bench::new(options, wrk.transpose()?, flatpath.transpose()?)?;
    let machine = Machine::describe();
    let report = Report {
        machine,
        settings,
        cases: scenarios::run(&bench)?,
    };
    println!("{}", report.text().trim_end());
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
        fs::write(&file, text + "\n").map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn require_descriptors(options: &Options) -> io::Result<()> {
    let limit = launch::raise_descriptor_limit()?;
    let needed = u64::from(options.clients()) + SPARE_DESCRIPTORS;
    let many = [options::Scenario::Idle, options::Scenario::Storm];
    if limit < needed && many.iter().any(|scenario| options.wants(*scenario)) {
        let message = format!("{needed} descriptors are needed and {limit} allowed (ulimit -Hn)");
        return Err(io::Error::other(message));
    }
    Ok(())
}
