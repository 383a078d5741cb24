//! `flatpath check`: what a configuration file comes to, as another one with the same meaning.
//!
//! The output has each setting: those that are set, and as comments those that are not, with their
//! defaults; what a reload takes over is marked. A listener of a table has what it inherits written
//! out. A file with a mistake is refused as `serve` refuses it. Nothing is bound, created or
//! written.

use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use flatpath::NetworkThreads;

use crate::config::{Configuration, Entry, ListenerTable, OF_ONE, line, quoted};
use crate::failure::Failure;
use crate::listeners;
use crate::reload::{self, Part};
use crate::serve::demands;

/// The command line of `check`.
pub(crate) fn command() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true);
    Command::new("check")
        .about("Read a configuration file, and print the settings that it comes to")
        .arg(
            file.value_parser(value_parser!(PathBuf))
                .help("The configuration file, as for serve --config"),
        )
}

/// Prints the settings.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Failure> {
    let path: &PathBuf = arguments.get_one("file").expect("it is required");
    let file = Configuration::from_file(path)?;
    let listeners = listeners::of(&file.settings, &file.listeners)?;
    demands(&file.settings, &listeners).divide()?;
    listeners.iter().try_for_each(listeners::Listener::check)?;
    let written = io::stdout().lock().write_all(text_of(&file).as_bytes());
    written.map_err(|cause| Failure::Failed(format!("standard output: {cause}")))
}

/// The file with everything in it.
fn text_of(file: &Configuration) -> String {
    let mut text = String::new();
    let threads = file.settings.network_threads.unwrap_or_default();
    let line = line();
    let arguments = || line.get_arguments();
    let mut topics: Vec<_> = arguments().map(Arg::get_help_heading).collect();
    let mut seen = Vec::new();
    topics.retain(|topic| {
        let is_new = !seen.contains(topic);
        seen.push(*topic);
        is_new
    });
    for topic in topics {
        if let Some(topic) = topic {
            let _ = writeln!(text, "\n# {topic}");
        }
        for argument in arguments().filter(|it| it.get_help_heading() == topic) {
            let name = name_of(argument);
            let mut mark = mark(Part::AboveTables, &name).to_string();
            if let ("network-threads", NetworkThreads::Auto) = (&*name, threads) {
                mark = format!("  # {} here", threads.count());
            }
            let _ = match entry_of(&file.entries, &name) {
                Some(value) => writeln!(text, "{name} = {value}{mark}"),
                None => writeln!(
                    text,
                    "# {name}: {}{}",
                    default_of(argument),
                    mark.replace("  #", ";")
                ),
            };
        }
    }
    for table in &file.listeners {
        write_table(file, table, &mut text);
    }
    text
}

fn write_table(file: &Configuration, table: &ListenerTable, text: &mut String) {
    let addresses = table.addresses.iter().map(|it| quoted(&it.to_string()));
    let addresses: Vec<String> = addresses.collect();
    let _ = writeln!(
        text,
        "\n[[listener]]\nprotocol = {}\naddress = [{}]",
        quoted(&table.protocol.name()),
        addresses.join(", ")
    );
    for argument in line().get_arguments() {
        let name = name_of(argument);
        if !table.protocol.takes(&name) {
            continue;
        }
        let inherited = || match OF_ONE.contains(&&*name) {
            true => None,
            false => entry_of(&file.entries, &name),
        };
        let value = entry_of(&table.entries, &name).or_else(inherited);
        if let Some(value) = value {
            let _ = writeln!(text, "{name} = {value}{}", mark(Part::Table, &name));
        }
    }
}

/// What follows a setting that SIGHUP changes.
fn mark(part: Part, name: &str) -> &'static str {
    match reload::takes(part, name) {
        true => "  # SIGHUP reloads it",
        false => "",
    }
}

fn entry_of<'a>(entries: &'a [Entry], name: &str) -> Option<&'a str> {
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(|entry| &*entry.value)
}

fn name_of(argument: &Arg) -> String {
    argument.get_id().as_str().replace('_', "-")
}

/// What its help says about the default.
fn default_of(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let default = help.split_once("[default: ").map(|(_, default)| default);
    match default.and_then(|default| default.split_once(']')) {
        Some((default, _)) => format!("not set; default: {default}"),
        None => "not set".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_means_the_same_and_names_everything() {
        let text = "dir = \"a \\\"b\\\"\"\nhttp = [8080, \"[::1]:80\"]\nhidden = true\n\
            idle-timeout = 0.5\nmax-connections = 9\n\
            [[listener]]\nprotocol = \"http\"\naddress = 81\nwritable = true\ndir = \"c\"\n\
            [[listener]]\nprotocol = \"relay\"\naddress = [1, 2]\nrelay-wait = \"5m\"\n";
        let file = Configuration::from_text(text).expect("a good file");
        let printed = text_of(&file);
        let again = Configuration::from_text(&printed).expect("it can be read");
        assert_eq!(again.settings, file.settings, "{printed}");
        for (left, right) in file.listeners.iter().zip(&again.listeners) {
            assert_eq!(left.addresses, right.addresses);
            assert_eq!(left.over(&file.settings), right.over(&again.settings));
            assert_eq!(left.own.max_connections, right.own.max_connections);
        }
        assert_eq!(text_of(&again), printed, "nothing more to say");
        for topic in ["Listeners", "HTTP", "NFS", "Limits"] {
            let heading = format!("\n# {topic}\n");
            assert_eq!(printed.matches(&heading).count(), 1, "{topic}");
        }
        for argument in line().get_arguments() {
            assert!(
                printed.contains(&name_of(argument)),
                "{argument}: {printed}"
            );
        }
        let auto = NetworkThreads::Auto.count();
        for part in [
            "# relay-idle: not set; default: 1h; SIGHUP reloads it",
            "idle-timeout = 0.5  # SIGHUP reloads it",
            "max-connections = 9\n",
            "# HTTP\nhidden = true",
            &format!("# network-threads: not set; default: auto; {auto} here"),
        ] {
            assert!(printed.contains(part), "{part} in {printed}");
        }
    }
}
