//! Load on NFSv3 servers: ours beside nfs-ganesha, ours with more and more workers, or any one.
//!
//! `bench/nfs/README.md` has the command lines and what the figures mean.
#![forbid(unsafe_code)]

mod connection;
mod load;
mod observed;
mod report;
mod servers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use flatpath_bench_common::namespace;
use serde::Serialize;

use connection::Mount;
use load::{Amount, Workload};
use report::{HEAD, Row, Verdict, judge, judge_sweep};
use servers::{flatpath, ganesha, observed};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Load on NFSv3 servers.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One run against a server that runs; prints its figures as JSON
    Load(Load),
    /// Ours and nfs-ganesha in turn, every workload
    Compare(Compare),
    /// Ours with more and more workers
    Sweep(Sweep),
    /// What `sweep` starts: ours, saying on request what dispatch costs
    #[command(hide = true)]
    Serve(observed::Serve),
}

#[derive(Debug, Args)]
struct Load {
    /// Where NFS is
    nfs: SocketAddr,
    /// Where MOUNT is [default: where NFS is]
    #[arg(long)]
    mount: Option<SocketAddr>,
    /// The export
    #[arg(long, default_value = "/")]
    path: String,
    /// What every call does
    #[arg(long, value_enum, default_value = "random-read")]
    workload: Workload,
    #[command(flatten)]
    amount: Amount,
    /// The server's process, for its CPU time
    #[arg(long)]
    process: Option<u32>,
}

/// What both comparisons need.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    amount: Amount,
    /// Only these workloads [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Runs of each, interleaved; the medians are shown
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The `flatpath` to measure
    #[arg(long, default_value = "target/release/flatpath")]
    server_binary: PathBuf,
    /// Its driver
    #[arg(long, default_value = "auto")]
    driver: String,
    /// Where the exports are made and removed; a memory file system
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// TCP congestion control, set in a network namespace of its own; `host` stays in the machine's
    /// network, with what is set there
    #[arg(long, default_value = "reno")]
    congestion: String,
    /// Write every run, the medians and the verdicts here
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Compare {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Sweep {
    #[command(flatten)]
    common: Common,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', default_values_t = [8, 32, 128, 512])]
    workers: Vec<u32>,
}

/// Everything, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    amount: Amount,
    congestion: String,
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
}

/// Directories that are removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(memory: &Path) -> Result<Scratch, Failure> {
        let path = memory.join(format!("flatpath-bench-nfs-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    fn directory(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(cause) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {cause}", self.0.display());
        }
    }
}

impl Common {
    fn workloads(&self) -> Vec<Workload> {
        if self.workload.is_empty() {
            Workload::ALL.to_vec()
        } else {
            self.workload.clone()
        }
    }

    fn options(&self, scratch: &Scratch, more: &[&str]) -> Result<Vec<String>, Failure> {
        let state = scratch.0.join("state").to_string_lossy().into_owned();
        let own = ["--driver", &self.driver, "--nfs-state", &state];
        Ok(own.iter().chain(more).map(ToString::to_string).collect())
    }

    /// Runs every workload on all servers in turn.
    fn measure(&self, servers: &mut [(String, servers::Server)]) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let congestion = namespace::congestion_control()?;
        println!(
            "congestion control {congestion}, {} processors",
            processors()
        );
        println!("{HEAD}");
        for workload in self.workloads() {
            let mut runs = vec![Vec::new(); servers.len()];
            for _ in 0..self.runs {
                for ((_, server), runs) in servers.iter_mut().zip(&mut runs) {
                    let process = Some(server.process());
                    let before = server.dispatches()?;
                    let mut figures = load::run(&server.mount, workload, &self.amount, process)?;
                    let after = server.dispatches()?;
                    let means = before.zip(after);
                    figures.dispatch_ns = means.map(|(before, after)| after.mean_since(before));
                    runs.push(figures);
                }
            }
            for ((name, _), runs) in servers.iter().zip(runs) {
                let row = Row::new(workload, name, runs);
                println!("{}", row.line());
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn finish(&self, rows: Vec<Row>, verdicts: Vec<Verdict>) -> Result<(), Failure> {
        for verdict in &verdicts {
            let word = if verdict.met { "met" } else { "MISSED" };
            let Verdict {
                workload,
                target,
                ratio,
                ..
            } = verdict;
            println!("{word:6} {workload:?}: {target}: {ratio:.2}");
        }
        if let Some(path) = &self.json {
            let report = Report {
                amount: self.amount,
                congestion: namespace::congestion_control()?,
                rows,
                verdicts,
            };
            std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        }
        Ok(())
    }
}

/// Processors that servers and clients share.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn compare(Compare { common }: &Compare) -> Result<(), Failure> {
    let scratch = Scratch::new(&common.memory)?;
    let (ours, peers) = (scratch.directory("ours")?, scratch.directory("peers")?);
    let mut servers = [
        (
            "flatpath".to_owned(),
            flatpath(
                &common.server_binary,
                &ours,
                &common.options(&scratch, &[])?,
            )?,
        ),
        ("nfs-ganesha".to_owned(), ganesha(&peers, &scratch.0)?),
    ];
    let rows = common.measure(&mut servers)?;
    drop(servers);
    let verdicts = rows
        .chunks_exact(2)
        .flat_map(|pair| judge(&pair[0], &pair[1]))
        .collect();
    common.finish(rows, verdicts)
}

fn sweep(Sweep { common, workers }: &Sweep) -> Result<(), Failure> {
    let scratch = Scratch::new(&common.memory)?;
    let mut servers = Vec::new();
    for count in workers {
        let directory = scratch.directory(&format!("with-{count}"))?;
        let server = observed(&directory, *count, &common.driver)?;
        servers.push((format!("{count} workers"), server));
    }
    let rows = common.measure(&mut servers)?;
    drop(servers);
    let verdicts = rows
        .chunks_exact(workers.len().max(1))
        .flat_map(judge_sweep)
        .collect();
    common.finish(rows, verdicts)
}

fn load_once(arguments: Load) -> Result<(), Failure> {
    let mount = Mount {
        nfs: arguments.nfs,
        mount: arguments.mount.unwrap_or(arguments.nfs),
        path: arguments.path,
    };
    let Load {
        workload,
        amount,
        process,
        ..
    } = arguments;
    let figures = load::run(&mount, workload, &amount, process)?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn main() -> Result<ExitCode, Failure> {
    let command = Arguments::parse().command;
    if let Command::Compare(Compare { common }) | Command::Sweep(Sweep { common, .. }) = &command
        && let Some(code) = namespace::enter(&common.congestion)?
    {
        return Ok(code);
    }
    match command {
        Command::Load(arguments) => load_once(arguments),
        Command::Compare(arguments) => compare(&arguments),
        Command::Sweep(arguments) => sweep(&arguments),
        Command::Serve(arguments) => observed::serve(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}
