//! The `flatpath` command: one file per command.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong use. Results go to standard output, everything else to
//! standard error.
#![forbid(unsafe_code)]

mod failure;
mod units;
mod logging;
mod settings;
mod slow;
mod config;
mod environment;
mod memory;
mod nfs;
mod relay;
mod ingest;
mod service_metrics;
mod listeners;
mod report;
mod watchdog;
mod serve;
mod check;
mod service_manager;
mod restart;
mod doctor;
mod admin;
mod bench;
mod top;
#[cfg(feature = "generate")]
mod generate;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A server engine on which every step of a connection costs the same at any size.
#[derive(Debug, Parser)]
#[command(name = "flatpath", version, about)]
struct Arguments {
    /// What is logged to standard error: error, warn, info, debug, trace or off; TARGET=LEVEL for a
    /// part, such as warn,flatpath_http=debug [default: RUST_LOG, else info]
    #[arg(long, global = true, value_name = "LEVELS", value_parser = logging::levels)]
    log: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTP or NFS, echo, relay, or hand messages to other processes.
    Serve(Box<serve::Arguments>),
    /// Read a configuration file, and print the settings that it comes to.
    Check(check::Arguments),
    /// Tell what this machine offers, what the engine will use, and why.
    Doctor(doctor::Arguments),
    /// Show the figures of a running server in a terminal, live, from its --admin address.
    Top(top::Arguments),
    /// Measure the old way and ours in one run, by the program flatpath-bench.
    Bench(bench::Arguments),
    /// Write manual pages and completions for shells into a directory.
    #[cfg(feature = "generate")]
    Generate(generate::Arguments),
    /// Tell the version, as --version does.
    #[command(hide = true)]
    Version,
}

fn main() -> ExitCode {
    // A wrong command line ends here, with code 2.
    let matches = environment::added_to(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Err(cause) = logging::start(arguments.log.as_deref()) {
        eprintln!("flatpath: cannot start a thread: {cause}");
        return ExitCode::from(1);
    }
    let (_, matches) = matches.subcommand().expect("it is required");
    let outcome = match arguments.command {
        Command::Serve(arguments) => serve::run(*arguments, matches),
        Command::Check(arguments) => check::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Bench(arguments) => Err(bench::run(&arguments)),
        #[cfg(feature = "generate")]
        Command::Generate(arguments) => generate::run(&arguments, Arguments::command()),
        Command::Version => {
            print!("{}", Arguments::command().render_version());
            Ok(())
        }
    };
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logging::say(&format!("flatpath: {failure}"));
            failure.exit_code()
        }
    };
    logging::finish();
    code
}
