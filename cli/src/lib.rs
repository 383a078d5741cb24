//! The `flatpath` command: one file per command.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong use, 3 (of `doctor`) a mismatch. Results go to standard
//! output, everything else to standard error.
#![forbid(unsafe_code)]

mod failure;
mod units;
mod logging;
mod built;
mod settings;
mod slow;
mod bounded_file;
mod config;
mod environment;
mod control_group;
mod memory;
mod nfs;
mod nfs_exports;
mod portmapper;
mod proxied;
mod relay;
mod ingest;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod redirect;
mod service_metrics;
mod directories;
#[cfg(feature = "passwords")]
mod passwords;
#[cfg(not(feature = "passwords"))]
#[path = "without_passwords.rs"]
mod passwords;
mod access;
mod cross_origin;
mod sites;
mod owners;
mod listener;
mod reach;
mod services;
mod listeners;
mod hosts;
mod live;
mod effect;
mod references;
mod report;
mod watchdog;
mod scanners;
mod serve;
mod explain;
mod check;
mod service_manager;
mod restart;
mod roots;
mod settled_file;
mod reload;
mod doctor;
mod admin;
mod access_log;
mod bench;
mod client;
mod health;
mod top;
#[cfg(feature = "generate")]
mod generate;

use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};

use crate::failure::Failure;

/// A debug build says so: a bench that measures it without a word misleads.
const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " (debug build)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// The commands, in the order of the help.
fn commands() -> Vec<Command> {
    vec![
        serve::command(),
        check::command(),
        doctor::command(),
        health::command(),
        top::command(),
        bench::command(),
        #[cfg(feature = "generate")]
        generate::command(),
        Command::new("version")
            .about("Tell the version, as --version does")
            .hide(true),
    ]
}

/// The command line with these commands.
fn command_of(commands: impl IntoIterator<Item = Command>) -> Command {
    Command::new("flatpath")
        .version(VERSION)
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(settings::common_arguments())
        .subcommands(commands)
}

fn command() -> Command {
    command_of(commands())
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // A wrong command line ends here, with code 2.
    let matches = environment::added_to(command()).try_get_matches();
    let matches = matches.unwrap_or_else(|error| hinted(error).exit());
    if let Err(cause) = logging::start(matches.get_one("log").map(String::as_str)) {
        eprintln!("flatpath: cannot start a thread: {cause}");
        return ExitCode::from(1);
    }
    let outcome = run(matches.subcommand().expect("it is required"));
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

/// The error, with a hint where there is one.
fn hinted(mut error: clap::Error) -> clap::Error {
    let key = key_hint(&error);
    if key.is_some() {
        // What is similar is not what is meant.
        error.remove(ContextKind::SuggestedArg);
    }
    let hint = key
        .or_else(|| directory_hint(&error))
        .or_else(|| environment::hint(&error));
    if let Some(hint) = hint {
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

/// What a flag is in the configuration file, if it is no flag.
fn key_hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(flag) => {
            let elsewhere = config::keys::elsewhere(flag.trim_start_matches("--"))?;
            Some(format!("in the file of --config: {elsewhere}"))
        }
        _ => None,
    }
}

/// How to serve a directory, if one was named instead of a command.
fn directory_hint(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if Path::new(word).is_dir() => {
            Some(format!("to serve a directory: flatpath serve {word}"))
        }
        _ => None,
    }
}

fn run((name, arguments): (&str, &ArgMatches)) -> Result<(), Failure> {
    match name {
        "serve" => serve::run(arguments),
        "check" => check::run(arguments),
        "doctor" => doctor::run(arguments),
        "health" => health::run(arguments),
        "top" => top::run(arguments),
        "bench" => Err(bench::run(arguments)),
        #[cfg(feature = "generate")]
        "generate" => {
            let shown = commands().into_iter().filter(|it| !it.is_hide_set());
            generate::run(arguments, command_of(shown))
        }
        _ => {
            print!("{}", command().render_version());
            Ok(())
        }
    }
}
