//! `cargo run -p flatpath-fuzz -- …`: the targets without libFuzzer, and seeds in and out.
//!
//! `cargo xtask fuzz` is the way in for people; see README.md.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use flatpath_fuzz::{TARGETS, Target, run_mutation, run_seeds, seeds, target};

const USAGE: &str = "\
use: flatpath-fuzz run SECONDS [TARGET...]    seeds, then mutations of them for so long each
     flatpath-fuzz corpus TARGET DIRECTORY    write the seeds as libFuzzer wants them
     flatpath-fuzz seed FILE                  print an input of libFuzzer's as a seed, both ways
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", seconds, ref names @ ..] => run(seconds, names),
        ["corpus", name, directory] => corpus(name, Path::new(directory)),
        ["seed", file] => show(Path::new(file)),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprint!("{why}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    target(name).ok_or_else(|| {
        let names = names.join(", ");
        format!("there is no target {name:?}; there are {names}\n")
    })
}

fn run(seconds: &str, names: &[&str]) -> Result<(), String> {
    let seconds: u64 = seconds
        .parse()
        .map_err(|_| format!("{seconds:?} is not a number of seconds\n"))?;
    let named: Vec<&Target> = names
        .iter()
        .map(|name| named(name))
        .collect::<Result<_, _>>()?;
    let wanted = if named.is_empty() {
        TARGETS.iter().collect()
    } else {
        named
    };
    for target in wanted {
        let seeds = run_seeds(target);
        let begin = Instant::now();
        // Behind those of `cargo test`.
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
    Ok(())
}

fn corpus(name: &str, directory: &Path) -> Result<(), String> {
    let target = named(name)?;
    let failed = |error: io::Error| format!("{}: {error}\n", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    for seed in seeds::of(target.name) {
        fs::write(directory.join(&seed.name), &seed.bytes).map_err(failed)?;
    }
    Ok(())
}

fn show(file: &Path) -> Result<(), String> {
    let bytes = fs::read(file).map_err(|error| format!("{}: {error}\n", file.display()))?;
    print!(
        "# .txt\n{}# .hex\n{}",
        seeds::to_text(&bytes),
        seeds::to_hex(&bytes)
    );
    Ok(())
}
