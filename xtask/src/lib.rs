//! The project's own commands: `cargo xtask NAME`, one file per command.
//!
//! Everything here is plain Rust over `cargo` and `git`: no shell scripts, nothing to install. The
//! style checker also runs as an ordinary test (`tests/style.rs`), so that `cargo test` alone tells
//! a contributor about it.
//!
//! A command that needs something this machine does not have (a nightly toolchain, a component)
//! says in one line what is missing and how to get it, and succeeds: it did not find a fault. A
//! fault it does find is exit code 1.
#![forbid(unsafe_code)]

pub mod ci;
pub mod drill;
pub mod fuzz;
pub mod loom;
pub mod metrics;
pub mod miri;
pub mod path;
pub mod refused;
pub mod shuttle;
pub mod style;
pub mod tsan;

pub mod process;
pub mod tally;
pub mod workspace;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Error {
    /// The command ran and found a fault, or something it needs broke: exit code 1.
    Failed(String),
    /// The command was called with arguments it does not know: exit code 2.
    Usage(String),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// One `cargo xtask` command.
pub struct Command {
    /// What the user types.
    pub name: &'static str,
    /// One line for the help text.
    pub summary: &'static str,
    /// Runs it with the arguments after the name.
    pub run: fn(&[String]) -> Result<(), Error>,
}

/// All commands, in the order of the help text.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        summary: ci::SUMMARY,
        run: ci::run,
    },
    Command {
        name: "style",
        summary: style::SUMMARY,
        run: style::run,
    },
    Command {
        name: "metrics",
        summary: metrics::SUMMARY,
        run: metrics::run,
    },
    Command {
        name: "refused",
        summary: refused::SUMMARY,
        run: refused::run,
    },
    Command {
        name: "path",
        summary: path::SUMMARY,
        run: path::run,
    },
    Command {
        name: "loom",
        summary: loom::SUMMARY,
        run: loom::run,
    },
    Command {
        name: "shuttle",
        summary: shuttle::SUMMARY,
        run: shuttle::run,
    },
    Command {
        name: "miri",
        summary: miri::SUMMARY,
        run: miri::run,
    },
    Command {
        name: "tsan",
        summary: tsan::SUMMARY,
        run: tsan::run,
    },
    Command {
        name: "fuzz",
        summary: fuzz::SUMMARY,
        run: fuzz::run,
    },
    Command {
        name: "drill",
        summary: drill::SUMMARY,
        run: drill::run,
    },
];
