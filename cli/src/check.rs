//! `flatpath check`: what a configuration file comes to, as another one with the same meaning.
//!
//! The output has each setting that is set, and the others as comments, with their
//! defaults; what a reload takes over is marked. A listener of a table has what it inherits written
//! out. A file with a mistake is refused as `serve` refuses it. Nothing is bound, created or
//! written; but for `--url` ([`explain`]) a port of this machine alone, for a moment.

use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use flatpath::NetworkThreads;

use crate::config::site::SiteTable;
use crate::config::{Configuration, Entry, ExportTable, ListenerTable, quoted};
use crate::effect;
use crate::explain;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::listeners;
use crate::nfs_exports;
use crate::owners;
use crate::serve::demands;
use crate::settings::{Part, SETTINGS, Setting};
use crate::tls;

const URL: &str = "Print instead what a GET of this address gets, such as http://example.org/a: \
    the listener, the site, its access rules, the rules that are for it, and the head of \
    the answer";

/// The command line of `check`.
pub(crate) fn command() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true);
    Command::new("check")
        .about("Read a configuration file, and print the settings that it comes to")
        .arg(
            file.value_parser(value_parser!(PathBuf))
                .help("The configuration file, as for serve --config"),
        )
        .arg(Arg::new("url").long("url").value_name("URL").help(URL))
}

/// Prints the settings.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Failure> {
    let path: &PathBuf = arguments.get_one("file").expect("it is required");
    let file = Configuration::from_file(path)?;
    let listeners = listeners::named_in(&file.settings, &file)?;
    let parts = demands(&file.settings, &listeners).divide()?;
    listeners.iter().try_for_each(Listener::check)?;
    effect::warn(&listeners, &file);
    nfs_exports::warn(&listeners, &file)?;
    let secured = listeners.iter().filter_map(|it| it.tls.as_ref());
    let text = match arguments.get_one::<String>("url") {
        Some(url) => explain::url(url, &listeners, &parts)?,
        None => text_of(&file) + &tls::comments(secured)? + &exposed(&listeners, &file),
    };
    let written = io::stdout().lock().write_all(text.as_bytes());
    written.map_err(|cause| Failure::Failed(format!("standard output: {cause}")))
}

/// What exports of NFS show of what sites protect, as comments.
fn exposed(listeners: &[Listener], file: &Configuration) -> String {
    let lines = owners::exposed(listeners, file);
    lines.iter().map(|line| format!("\n# {line}\n")).collect()
}

/// The file with everything in it.
fn text_of(file: &Configuration) -> String {
    let mut text = String::new();
    let mut seen = Vec::new();
    for topic in SETTINGS.iter().map(Setting::topic) {
        if seen.contains(&topic) {
            continue;
        }
        seen.push(topic);
        if let Some(topic) = topic {
            let _ = writeln!(text, "\n# {topic}");
        }
        for setting in SETTINGS.iter().filter(|it| it.topic() == topic) {
            write_setting(file, setting, &mut text);
        }
    }
    for table in &file.listeners {
        write_table(file, table, &mut text);
    }
    for table in &file.exports {
        write_export(table, &mut text);
    }
    for site in &file.sites {
        write_site(site, &mut text);
    }
    text
}

fn write_site(site: &SiteTable, text: &mut String) {
    let names = site.names.iter().map(|it| quoted(&it.to_string()));
    let names: Vec<String> = names.collect();
    let prefix = quoted(&site.prefix);
    let _ = writeln!(
        text,
        "\n[[site]]\nnames = [{}]\nprefix = {prefix}",
        names.join(", ")
    );
    for setting in SETTINGS.iter().filter(|it| it.is_of_sites()) {
        if let Some(value) = value_of(&site.entries, setting) {
            let mark = mark(Part::Site, setting);
            let _ = writeln!(text, "{} = {value}{mark}", setting.name());
        }
    }
    text.push_str(&site.rules.text);
}

fn write_setting(file: &Configuration, setting: &Setting, text: &mut String) {
    let name = setting.name();
    let mut mark = mark(Part::AboveTables, setting).to_string();
    let threads = file.settings.network_threads.unwrap_or_default();
    if let ("network-threads", NetworkThreads::Auto) = (name, threads) {
        mark = format!("  # {} here", threads.count());
    }
    let _ = match value_of(&file.entries, setting) {
        Some(value) => writeln!(text, "{name} = {value}{mark}"),
        None => {
            let default = setting.default_text();
            let default = default.map(|default| format!("; default: {default}"));
            let mark = mark.replace("  #", ";");
            writeln!(
                text,
                "# {name}: not set{}{mark}",
                default.unwrap_or_default()
            )
        }
    };
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
    for setting in SETTINGS.iter().filter(|it| table.protocol.takes(it)) {
        let inherited = match setting.is_inherited() {
            true => value_of(&file.entries, setting),
            false => None,
        };
        if let Some(value) = value_of(&table.entries, setting).or(inherited) {
            let _ = writeln!(
                text,
                "{} = {value}{}",
                setting.name(),
                mark(Part::Table, setting)
            );
        }
    }
}

fn write_export(table: &ExportTable, text: &mut String) {
    let clients: Vec<String> = table.clients.iter().map(|it| quoted(it)).collect();
    let _ = writeln!(
        text,
        "\n[[export]]  # SIGHUP reloads it\npath = {}\nclients = [{}]",
        quoted(&table.path),
        clients.join(", ")
    );
    if let Some(options) = &table.options {
        let _ = writeln!(text, "options = {}", quoted(options));
    }
}

/// The mark of a setting that SIGHUP changes.
fn mark(part: Part, setting: &Setting) -> &'static str {
    match setting.is_reloaded(part) {
        true => "  # SIGHUP reloads it",
        false => "",
    }
}

fn value_of<'a>(entries: &'a [Entry], setting: &Setting) -> Option<&'a str> {
    // The last one counts, if a file has it by two names.
    let found = entries.iter().rfind(|entry| entry.setting == setting);
    found.map(|entry| &*entry.value)
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    #[test]
    fn what_is_printed_means_the_same_and_names_everything() {
        let text = "dir = \"a \\\"b\\\"\"\nhttp = [8080, \"[::1]:80\"]\nhidden = true\n\
            idle-timeout = 0.5\nmax-connections = 9\n\
            [[listener]]\nprotocol = \"http\"\naddress = 81\nwritable = true\ndir = \"c\"\n\
            [[listener]]\nprotocol = \"relay\"\naddress = [1, 2]\nrelay-wait = \"5m\"\n\
            [[export]]\npath = \"/srv/www\"\noptions = \"rw\"\nclients = [\"::1\", \"*(ro)\"]\n\
            [[site]]\ndir = \"d\"\n\
            [[site]]\nnames = [\"e.example\", \"*.e.example\"]\nprefix = \"/p\"\ndir = \"e\"\n\
            allow = [\"10.0.0.0/8\", \"::1\"]\nauth-file = \"users\"\nrate = \"10/s\"\n\
            [[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\n[site.error-pages]\n404 = \"/e.html\"\n";
        let file = Configuration::from_text(text).expect("a good file");
        let printed = text_of(&file);
        let again = Configuration::from_text(&printed).expect("it can be read");
        assert_eq!(again.settings, file.settings, "{printed}");
        for (left, right) in file.listeners.iter().zip(&again.listeners) {
            assert_eq!(left.addresses, right.addresses);
            assert_eq!(left.over(&file.settings), right.over(&again.settings));
            assert_eq!(left.own.max_connections, right.own.max_connections);
        }
        let exports = |file: &Configuration| {
            let tables = file.exports.iter();
            let all = tables.map(|it| (it.path.clone(), it.clients.clone(), it.options.clone()));
            all.collect::<Vec<_>>()
        };
        assert_eq!(exports(&file), exports(&again));
        assert_eq!(again.sites.len(), 2);
        for (left, right) in file.sites.iter().zip(&again.sites) {
            assert_eq!((&left.own, left.label()), (&right.own, right.label()));
            assert_eq!(left.rules, right.rules);
        }
        assert_eq!(text_of(&again), printed, "nothing more to say");
        for setting in SETTINGS.iter() {
            assert!(printed.contains(setting.name()), "{setting:?}: {printed}");
        }
        let here = format!("; {} here", NetworkThreads::Auto.count());
        expect_file!["check.toml"].assert_eq(&printed.replace(&here, "; N here"));
    }
}
