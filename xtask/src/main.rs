//! The project's own commands: `cargo xtask NAME`, one file per command.
//!
//! Here is what rustc, clippy, rustfmt and cargo do not check by themselves. Rules and metrics also
//! run as ordinary tests, so `cargo test` alone reports them.
//!
//! A command that needs something this machine does not have (a nightly toolchain, a component)
//! names it in one line with the way to get it, and succeeds: it found no fault. A fault is exit
//! code 1, wrong use is exit code 2.
#![forbid(unsafe_code)]

mod ci;
mod cost;
mod dist;
mod drill;
mod face;
mod fuzz;
mod kernels;
mod loom;
mod metrics;
mod miri;
mod mutate;
mod path;
mod refused;
mod semver;
mod style;
mod tsan;

mod process;
mod test_summary;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
enum Command {
    /// All that CI checks, or only the named steps
    Ci(ci::Options),
    /// Make the packages: a Debian package, a static file, an image of a container
    Dist(dist::Options),
    /// Compare the public items of the published crates with the committed text
    Face(face::Options),
    /// Build a small program with each feature of the library and without: seconds and bytes
    Cost(cost::Options),
    /// Check the rules of the repository: headers, orderings, layers, lengths, names
    Style,
    /// Print circles of imports, imports through roots, reaches, and lines outside tests
    Metrics,
    /// Run the tests where io_uring is refused, as in many containers
    Refused {
        /// Arguments for `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the tests on Debian's kernels, old and new, in virtual machines (QEMU)
    Kernels(kernels::Options),
    /// Print the functions and files of one GET of a hot file, from a trace (valgrind)
    Path,
    /// Model-check the structures with loom
    Loom { filters: Vec<String> },
    /// Run the structures under shuttle's random schedules
    Shuttle { filters: Vec<String> },
    /// Run the tests of code with `unsafe` under Miri (nightly)
    Miri(miri::Options),
    /// Run the structures' tests under ThreadSanitizer (nightly)
    Tsan { filters: Vec<String> },
    /// Fuzz what clients send
    Fuzz(fuzz::Options),
    /// Weaken each ordering in turn: a test must fail
    Drill(drill::Options),
    /// Change the code at random places and list what no test notices (cargo-mutants)
    Mutate(mutate::Options),
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Ci(options) => ci::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Face(options) => face::run(&options),
        Command::Cost(options) => cost::run(&options),
        Command::Style => style::run(),
        Command::Metrics => metrics::run(),
        Command::Refused { arguments } => refused::run(&arguments),
        Command::Kernels(options) => kernels::run(&options),
        Command::Path => path::run(),
        Command::Loom { filters } => loom::run("loom", &["loom_"], &filters),
        Command::Shuttle { filters } => loom::run("shuttle", &["loom_", "shuttle_"], &filters),
        Command::Miri(options) => miri::run(&options),
        Command::Tsan { filters } => tsan::run(&filters),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Drill(options) => drill::run(&options),
        Command::Mutate(options) => mutate::run(&options),
    }
}
