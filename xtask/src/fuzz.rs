//! `cargo xtask fuzz`: the targets of `fuzz/`, for seconds on any toolchain or for hours with
//! libFuzzer.
//!
//! | arguments                                   | what runs                                    |
//! |---------------------------------------------|----------------------------------------------|
//! | `[--seconds N] [TARGET...]`                 | seeds, then mutations of them, N s a target  |
//! | `--libfuzzer [--seconds N] [TARGET...]`     | the same seeds under libFuzzer (nightly)     |
//! | `--seed FILE`                               | prints what libFuzzer found as a seed        |
//!
//! Without targets: all of them, one after the other.

use std::time::Duration;

use crate::process::{self, Show};
use crate::{Error, workspace};

/// For the help text.
pub const SUMMARY: &str = "fuzz what clients send (--seconds N, --libfuzzer with nightly, --seed)";

const SECONDS: u64 = 10;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Mutations { seconds: u64, targets: Vec<String> },
    LibFuzzer { seconds: u64, targets: Vec<String> },
    Seed(String),
}

/// Runs what the arguments ask for.
///
/// # Errors
/// A target fails. A missing toolchain is said and is no error.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    match parse(arguments)? {
        Wish::Mutations { seconds, targets } => own(&mutations(seconds, &targets)),
        Wish::Seed(file) => own(&["seed".into(), absolute(&file)?]),
        Wish::LibFuzzer { seconds, targets } => libfuzzer(seconds, &targets),
    }
}

fn parse(arguments: &[String]) -> Result<Wish, Error> {
    let (mut seconds, mut is_libfuzzer, mut targets) = (SECONDS, false, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .ok_or_else(|| Error::Usage(format!("{argument} wants a value")))
        };
        match argument.as_str() {
            "--libfuzzer" => is_libfuzzer = true,
            "--seed" => return Ok(Wish::Seed(value()?.clone())),
            "--seconds" => {
                let text = value()?;
                seconds = text
                    .parse()
                    .map_err(|_| Error::Usage(format!("--seconds wants a number, not {text:?}")))?;
            }
            option if option.starts_with('-') => {
                return Err(Error::Usage(format!("there is no option {option:?}")));
            }
            target => targets.push(target.to_owned()),
        }
    }
    Ok(match is_libfuzzer {
        true => Wish::LibFuzzer { seconds, targets },
        false => Wish::Mutations { seconds, targets },
    })
}

fn mutations(seconds: u64, targets: &[String]) -> Vec<String> {
    let mut arguments = vec!["run".to_owned(), seconds.to_string()];
    arguments.extend_from_slice(targets);
    arguments
}

/// A path as seen from the workspace's root, where the program runs.
fn absolute(file: &str) -> Result<String, Error> {
    let path =
        std::path::absolute(file).map_err(|error| Error::Usage(format!("{file:?}: {error}")))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The fuzz crate's own program.
fn own(arguments: &[String]) -> Result<(), Error> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "flatpath-fuzz"]);
    command.args(["--bin", "flatpath-fuzz", "--"]);
    process::run(command.args(arguments))
}

fn libfuzzer(seconds: u64, targets: &[String]) -> Result<(), Error> {
    if !process::works(&mut process::nightly_cargo(&["fuzz", "--version"])) {
        println!(
            "fuzz: not run: a nightly toolchain or cargo-fuzz is missing; to get them:\n\
             rustup toolchain install nightly && cargo install cargo-fuzz"
        );
        return Ok(());
    }
    let all = names()?;
    if let Some(unknown) = targets.iter().find(|target| !all.contains(target)) {
        let all = all.join(", ");
        return Err(Error::Usage(format!(
            "there is no target {unknown:?}; there are {all}"
        )));
    }
    let wanted = if targets.is_empty() {
        &all[..]
    } else {
        targets
    };
    for target in wanted {
        let corpus = format!("fuzz/corpus/{target}");
        own(&["corpus".into(), target.clone(), corpus.clone()])?;
        // Without LTO, which takes the instrumentation away.
        let mut command = process::nightly_cargo(&["fuzz", "run", "--features", "libfuzzer"]);
        command.env("CARGO_PROFILE_RELEASE_LTO", "off");
        command.args([target, &corpus, "--", "-max_len=8192"]);
        command.arg(format!("-max_total_time={seconds}"));
        let time_max = Duration::from_secs(seconds.saturating_add(60 * 60));
        let report = process::watch(&mut command, time_max, Show::Lines)?;
        if !report.succeeded() {
            return Err(Error::Failed(format!(
                "{target} fails; see fuzz/artifacts/{target}"
            )));
        }
    }
    Ok(())
}

/// The targets, by the programs that libFuzzer runs.
fn names() -> Result<Vec<String>, Error> {
    let root = workspace::root().join("fuzz/fuzz_targets");
    let files = workspace::files(&root, |path| path.extension().is_some_and(|e| e == "rs"))?;
    let stems = files.iter().filter_map(|file| file.file_stem());
    Ok(stems
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wish, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        parse(&arguments).map_err(|error| match error {
            Error::Usage(why) | Error::Failed(why) => why,
        })
    }

    #[test]
    fn arguments_say_what_runs_how_long() {
        let targets = vec!["ranges".to_owned()];
        let seconds = 3;
        let wish = parsed(&["--seconds", "3", "ranges"]);
        assert_eq!(
            wish,
            Ok(Wish::Mutations {
                seconds,
                targets: targets.clone()
            })
        );
        let wish = parsed(&["--libfuzzer", "ranges", "--seconds", "3"]);
        assert_eq!(wish, Ok(Wish::LibFuzzer { seconds, targets }));
        assert_eq!(parsed(&["--seed", "a"]), Ok(Wish::Seed("a".into())));
    }

    #[test]
    fn wrong_use_is_named() {
        for (arguments, word) in [
            (&["--seconds", "soon"][..], "\"soon\""),
            (&["--seconds"], "--seconds"),
            (&["--hours", "3"], "\"--hours\""),
        ] {
            let why = parsed(arguments).expect_err("it is wrong");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn the_targets_are_found() {
        assert!(names().unwrap().contains(&"http_requests".to_owned()));
    }
}
