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
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::config::keys::{self, EXPORT, Key, LISTENER, SITE};
use crate::failure::Failure;
use crate::settings::Setting;

/// Where the packages have the book.
const BOOK: &str = "/usr/share/doc/flatpath/book/SUMMARY.md";

/// The command line of `generate`, which is for those who make packages.
pub(crate) fn command() -> Command {
    let directory = Arg::new("directory").value_name("DIR").required(true);
    Command::new("generate")
        .about("Write manual pages and completions for shells into a directory")
        .hide(true)
        .arg(
            directory
                .value_parser(value_parser!(PathBuf))
                .help("Where to write them; made if it is missing"),
        )
}

/// Writes `man/flatpath.1`, a page beside it for each of its commands, and
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
    // Nothing of an earlier version is packed.
    for made in [&pages, &completions] {
        if made.exists() {
            fs::remove_dir_all(made)?;
        }
        fs::create_dir_all(made)?;
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "flatpath", &completions)?;
    }
    command.build();
    for command in [command.clone()].iter().chain(command.get_subcommands()) {
        let page = Man::new(command.clone().after_help(None::<&str>));
        let mut text = Vec::new();
        page.render(&mut text)?;
        write_more(command, &mut text)?;
        fs::write(pages.join(page.get_filename()), text)?;
    }
    Ok(())
}

/// What a page has beside the command line: what follows the help, and for `serve` the tables of
/// the file.
fn write_more(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    if let Some(help) = command.get_after_help() {
        roff.control("SH", ["NOTES"]);
        for line in help.to_string().lines() {
            // Each begins with what it explains, and continues in the next line.
            if line.contains(": ") {
                roff.control("PP", []);
            }
            roff.text([roman(line)]);
        }
    }
    if command.get_name() == "serve" {
        write_tables(&mut roff);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(format!("The book: {BOOK}, or book/ in the source."))]);
    roff.to_writer(page)
}

fn write_tables(roff: &mut Roff) {
    roff.control("SH", ["CONFIGURATION FILE"]);
    roff.text([roman(
        "The file of --config is in TOML. Above all tables it has the options by their long names, \
         without the dashes, and dir. Then come tables, each as often as needed.",
    )]);
    let settings: Vec<&str> = keys::settings_of_sites().map(Setting::name).collect();
    let also = format!("It may also have {}.", settings.join(", "));
    for (name, about, keys, also) in [
        (
            "[[listener]]",
            "A listener with settings of its own.",
            LISTENER,
            "It may also have the options of its protocol, dir among them, and the time-outs.",
        ),
        (
            "[[site]]",
            "A directory for some hosts, at every HTTP listener without a dir of its own.",
            SITE,
            &*also,
        ),
        (
            "[[export]]",
            "A directory for NFS, in place of dir.",
            EXPORT,
            "",
        ),
    ] {
        roff.control("SS", [name]);
        roff.text([roman(about)]);
        for key in keys {
            write_key(key, roff);
        }
        if !also.is_empty() {
            roff.control("PP", []);
            roff.text([roman(also)]);
        }
    }
}

fn write_key(key: &Key, roff: &mut Roff) {
    roff.control("TP", []);
    roff.text([bold(key.name)]);
    roff.text([roman(key.help)]);
    roff.control("br", []);
    roff.text([roman(key.example)]);
}
