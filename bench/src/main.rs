//! `flatpath-bench`: the program that `flatpath bench` runs.
//!
//! A program of its own, so that the server links none of the crates that are measured beside ours.
//! It starts the server as a child where a whole server is measured.
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

use clap::Parser;
use flatpath_bench_common::options::exit_code;

fn main() -> ExitCode {
    // A wrong command line ends here, with code 2.
    let arguments = command::Arguments::parse();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    exit_code("flatpath bench", command::run(&arguments))
}
