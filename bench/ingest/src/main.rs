//! Large messages from producers to consumers in other processes: ours beside a tokio server that
//! copies the payload into the consumer's shared memory, and one that reads straight into it.
//!
//! `bench/ingest/README.md` has the command line and what the figures mean.
#![forbid(unsafe_code)]

mod clients;
mod compare;
mod report;
mod share;
mod tokio_server;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use flatpath_bench_common::namespace::{self, HOST};
use serde::Serialize;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Large messages to other processes.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All servers in turn, and the medians
    Compare(Compare),
    /// One consumer; prints what it received as JSON
    Consume(clients::Consume),
    /// All producers; prints how long they took as JSON
    Produce(clients::Produce),
    /// The server on tokio
    Tokio(tokio_server::Serve),
}

/// How much of what.
#[derive(Args, Clone, Copy, Debug, Serialize)]
struct Amount {
    /// Producers, and consumers
    #[arg(long, default_value_t = 4)]
    flows: u32,
    /// Bytes of a message
    #[arg(long, default_value_t = 1 << 20)]
    message_bytes: u32,
    /// Messages of each producer
    #[arg(long, default_value_t = 1024)]
    messages: u32,
}

#[derive(Args, Debug)]
struct Compare {
    #[command(flatten)]
    amount: Amount,
    /// Runs of each, interleaved; the medians are shown
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The `flatpath` to measure
    #[arg(long, default_value = "target/release/flatpath")]
    server_binary: PathBuf,
    /// More arguments for it; the default has pages for large messages
    #[arg(
        long,
        allow_hyphen_values = true,
        default_values_t = ["--ingest-page=1M".to_owned(), "--ingest-memory=1G".to_owned()]
    )]
    serve: Vec<String>,
    /// Its drivers
    #[arg(long, value_delimiter = ',', default_values_t = ["uring".to_owned(), "epoll".to_owned()])]
    drivers: Vec<String>,
    /// TCP congestion control, set in a network namespace of its own; `host` stays in the machine's
    /// network, with what is set there
    #[arg(long, default_value = HOST)]
    congestion: String,
    /// Write every run, the medians and the verdict here
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Failure> {
    let command = Arguments::parse().command;
    if let Command::Compare(Compare { congestion, .. }) = &command
        && let Some(code) = namespace::enter(congestion)?
    {
        return Ok(code);
    }
    match command {
        Command::Compare(compare) => compare::run(&compare),
        Command::Consume(consume) => clients::consume(&consume),
        Command::Produce(produce) => clients::produce(&produce),
        Command::Tokio(serve) => tokio_server::serve(&serve),
    }?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
