//! `flatpath generate DIR`: manual pages and completions, made from the command line's own
//! definition, so that they say what this binary understands.
//!
//! Behind the feature `generate`, which the packages are built with: a user who builds the command
//! alone needs no typesetter.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, ValueEnum, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;

/// The command line of `generate`.
pub(crate) fn command() -> Command {
    let directory = Arg::new("directory").value_name("DIR").required(true);
    Command::new("generate")
        .about("Write manual pages and completions for shells into a directory")
        .arg(
            directory
                .value_parser(value_parser!(PathBuf))
                .help("Where to write them; made if it is missing"),
        )
}

/// Writes `man/flatpath.1`, a page beside it for each visible command, and
/// a file for each shell in `completions/`.
pub(crate) fn run(arguments: &ArgMatches, command: Command) -> Result<(), Failure> {
    let directory: &PathBuf = arguments.get_one("directory").expect("it is required");
    write(directory, command).map_err(|cause| {
        let name = directory.display();
        Failure::Failed(format!("cannot write to {name}: {cause}"))
    })
}

fn write(directory: &Path, command: Command) -> io::Result<()> {
    // The subcommand `help` repeats every page.
    let mut command = command.disable_help_subcommand(true);
    let (pages, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "flatpath", &completions)?;
    }
    clap_mangen::generate_to(command, pages)
}
