//! `cargo run -p flatpath-fuzz -- …`: the targets without libFuzzer, and seeds in and out.
//!
//! `cargo xtask fuzz` is the way in for people; see README.md.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::Parser;
use flatpath_fuzz::{TARGETS, Target, run_mutation, run_seeds, seeds, target};

#[derive(Parser)]
enum Command {
    /// Seeds, then mutations of them, for so many seconds each target
    Run {
        seconds: u64,
        #[arg(value_parser = named)]
        targets: Vec<&'static Target>,
    },
    /// Write the seeds as libFuzzer wants them
    Corpus {
        #[arg(value_parser = named)]
        target: &'static Target,
        directory: PathBuf,
    },
    /// Print an input of libFuzzer's as a seed, both ways
    Seed { file: PathBuf },
}

fn main() -> io::Result<()> {
    match Command::parse() {
        Command::Run { seconds, targets } if targets.is_empty() => {
            TARGETS.iter().for_each(|target| run(target, seconds));
        }
        Command::Run { seconds, targets } => {
            targets.into_iter().for_each(|target| run(target, seconds));
        }
        Command::Corpus { target, directory } => corpus(target, &directory)?,
        Command::Seed { file } => {
            let bytes = fs::read(file)?;
            let (text, hex) = (seeds::to_text(&bytes), seeds::to_hex(&bytes));
            print!("# .txt\n{text}# .hex\n{hex}");
        }
    }
    Ok(())
}

fn named(name: &str) -> Result<&'static Target, String> {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    target(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn run(target: &Target, seconds: u64) {
    let seeds = run_seeds(target);
    let begin = Instant::now();
    // After those of `cargo test`.
    let first = target.mutations;
    let mut next = first;
    while begin.elapsed() < Duration::from_secs(seconds) {
        run_mutation(target, &seeds, next);
        next += 1;
    }
    println!(
        "fuzz: {}: {} seeds and mutations {first} to {next} keep every promise",
        target.name,
        seeds.len()
    );
}

fn corpus(target: &Target, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for seed in seeds::of(target.name) {
        fs::write(directory.join(&seed.name), &seed.bytes)?;
    }
    Ok(())
}
