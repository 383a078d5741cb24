//! `cargo xtask path`: the functions and files of one GET of a hot file, from a trace, over HTTP/1
//! and over HTTP/2.
//!
//! The server runs under valgrind's callgrind, on the epoll driver (callgrind knows no io_uring),
//! and answers one kept connection: once N requests, once 2 N, after a warm-up. What was called at
//! least once more for each of the N requests between is on the path of a request: all of a turn
//! from its wait to the next one. The server is built for this without optimisation, in a directory
//! of its own, so that no function is inlined and the numbers do not depend on the compiler.
//!
//! A request takes milliseconds under valgrind, and with it would be counted what a server does
//! every few milliseconds. So the server is built with a clock that is as slow (`--cfg
//! slow_clock`): it moves by a microsecond for each reading. A chore that each request makes due
//! still counts.
//!
//! Counted are functions of our own crates. A closure is part of the function it stands in, and
//! what `derive` makes of comparisons, clones and defaults is left out. A function of which at
//! least `LINES_READ` lines ran is counted once more as one that a reader has to read; the others
//! are accessors and the like, whose names say what they do.

mod callgrind;
mod clients;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use flatpath_testkit::Launch;

use crate::{process, workspace};
use callgrind::Function;
use clients::Version;

/// A function is read if so many of its lines run.
const LINES_READ: usize = 7;
/// Requests before those that are counted: caches are warm, and the file is hot.
const WARM_UP: u64 = 50;
/// Requests of the shorter trace; the longer one has twice as many.
const REQUESTS: u64 = 20;
/// Where the server is built for this.
const TARGET: &str = "target/path";

/// By file and name: lines that ran.
type OnPath = BTreeMap<(String, String), BTreeSet<u64>>;

/// Prints the functions and the numbers.
pub(crate) fn run() -> Result<()> {
    if process::output(Command::new("valgrind").arg("--version")).is_none() {
        println!("path: not run: valgrind is not installed (Debian package valgrind)");
        return Ok(());
    }
    let server = build()?;
    println!("* at least {LINES_READ} lines");
    for (version, name) in [(Version::Http1, "HTTP/1"), (Version::Http2, "HTTP/2")] {
        let trace = |requests| trace(&server, version, requests);
        let (short, long) = (trace(REQUESTS)?, trace(2 * REQUESTS)?);
        print(name, &on_path(&short, &long, &workspace::root()));
    }
    Ok(())
}

fn print(version: &str, path: &OnPath) {
    for ((file, name), lines) in path {
        let mark = if lines.len() >= LINES_READ { '*' } else { ' ' };
        println!("{mark} {:3} {file}: {name}", lines.len());
    }
    let [functions, files, read_functions, read_files] = numbers(path);
    println!("a GET over {version} runs {functions} functions in {files} files");
    println!("to read are {read_functions} functions in {read_files} files");
}

/// The server without optimisation. It asks the C library for the auxiliary vector, as valgrind
/// shows a program its own there, and the kernel's names memory that is not mapped.
fn build() -> Result<PathBuf> {
    let mut command = process::cargo(&["build", "--quiet", "--package", "flatpath-cli"]);
    command
        .args(["--features", "rustix/use-libc-auxv,http2"])
        .args(["--config", "profile.dev.debug='line-tables-only'"])
        .args(["--target-dir", TARGET])
        .env("RUSTFLAGS", "--cfg slow_clock");
    for setting in workspace::unoptimised()? {
        command.args(["--config", &setting]);
    }
    process::run(&mut command)?;
    Ok(workspace::root().join(TARGET).join("debug/flatpath"))
}

/// What ran while the server answered the warm-up and `requests` more, one after the other on one
/// connection.
fn trace(server: &Path, version: Version, requests: u64) -> Result<HashMap<String, Function>> {
    let home = workspace::root().join(TARGET);
    let (site, counts) = (home.join("site"), home.join("callgrind.out"));
    std::fs::create_dir_all(&site)?;
    std::fs::write(site.join("file"), "one hot file\n")?;
    let output = format!("--callgrind-out-file={}", counts.display());
    let mut traced = Launch::new("valgrind".into())
        .with(["--quiet", "--tool=callgrind", &output])
        .with([server.as_os_str()])
        .with(["serve", "--http", "127.0.0.1:0", "--driver", "epoll"])
        .with([&site])
        .start();
    // The slow clock would let the server wait long for its client's end, which is there then.
    clients::ask(version, traced.address("http"), WARM_UP + requests)?;
    // Callgrind writes its counts at the end.
    traced.terminate();
    let status = traced.exit_status();
    ensure!(status.success(), "the server ended with {status}");
    Ok(callgrind::parse(&workspace::text(&counts)?))
}

/// The functions of our crates that run for each request.
fn on_path(
    short: &HashMap<String, Function>,
    long: &HashMap<String, Function>,
    root: &Path,
) -> OnPath {
    let mut path = OnPath::new();
    for (name, function) in long {
        let before = short.get(name).map_or(0, |function| function.calls);
        let file = Path::new(&function.file).strip_prefix(root).ok();
        let Some(file) = file.and_then(Path::to_str) else {
            continue;
        };
        if function.calls.saturating_sub(before) < REQUESTS || is_derived(name) {
            continue;
        }
        let key = (file.to_owned(), enclosing(name).to_owned());
        path.entry(key).or_default().extend(&function.lines);
    }
    path
}

/// `a` of `a::{{closure}}` and of `a'2`, as a second activation is called.
fn enclosing(name: &str) -> &str {
    let name = name.split("::{{").next().unwrap_or(name);
    match name.rsplit_once('\'') {
        Some((first, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => first,
        _ => name,
    }
}

fn is_derived(name: &str) -> bool {
    [
        " as core::cmp::",
        " as core::clone::",
        " as core::default::",
    ]
    .iter()
    .any(|derived| name.contains(derived))
}

/// Functions, files, and those that are read.
fn numbers(path: &OnPath) -> [usize; 4] {
    let count = |lines_min: usize| {
        let read = path.iter().filter(|(_, lines)| lines.len() >= lines_min);
        let files: BTreeSet<&String> = read.clone().map(|((file, _), _)| file).collect();
        [read.count(), files.len()]
    };
    let ([functions, files], [read_functions, read_files]) = (count(0), count(LINES_READ));
    [functions, files, read_functions, read_files]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(file: &str, calls: u64, lines: std::ops::Range<u64>) -> Function {
        Function {
            file: file.into(),
            calls,
            lines: lines.collect(),
        }
    }

    #[test]
    fn what_runs_for_each_request_is_on_the_path_and_closures_are_part_of_their_function() {
        let trace = |requests: u64| {
            HashMap::from([
                (
                    "a::turn".to_owned(),
                    function("/w/a.rs", 50 + requests, 1..9),
                ),
                (
                    "a::turn::{{closure}}".into(),
                    function("/w/a.rs", requests, 3..11),
                ),
                ("a::turn'2".into(), function("/w/a.rs", requests, 1..2)),
                (
                    "a::timer".into(),
                    function("/w/a.rs", 7 + requests / 2, 1..9),
                ),
                (
                    "<a::X as core::cmp::PartialEq>::eq".into(),
                    function("/w/a.rs", requests, 1..2),
                ),
                ("b::len".into(), function("/w/b.rs", requests, 1..2)),
                ("malloc".into(), function("/libc/malloc.c", requests, 1..99)),
            ])
        };
        let path = on_path(&trace(REQUESTS), &trace(2 * REQUESTS), Path::new("/w"));
        let names: Vec<_> = path.keys().map(|(file, name)| (&**file, &**name)).collect();
        assert_eq!(names, [("a.rs", "a::turn"), ("b.rs", "b::len")]);
        assert_eq!(numbers(&path), [2, 2, 1, 1]);
    }
}
