//! The configuration file of `serve`.
//!
//! It has the long names of the flags, and `dir`: `max-connections = 1000`. What the command line
//! sets replaces what the file sets. Tables `[[listener]]` add listeners with settings of their
//! own:
//!
//! ```toml
//! idle-timeout = "30s"
//!
//! [[listener]]
//! protocol = "http"
//! address = "127.0.0.1:8080"
//! dir = "public"
//! max-connections = 1000
//! ```
//!
//! A table may set what its protocol [takes](ListenerProtocol::takes). What it leaves out is as
//! above the tables or on the command line, if it [is inherited](Setting::is_inherited). What it
//! sets, no flag replaces: flags do not name a listener.
//!
//! Tables `[[site]]` ([`site`]) are directories for some hosts, which all listeners for HTTP serve
//! that have no directory of their own. Tables `[[export]]` are exports of NFS ([`exports`]).
//!
//! An error begins with its place, `FILE:LINE:COLUMN`.

mod exports;
pub(crate) mod keys;
mod refused;
mod rules;
pub(crate) mod site;
#[cfg(test)]
mod mutations;

use std::fmt::Display;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use flatpath::sockets::ListenAddress;
use toml_span::value::ValueInner;
use toml_span::{Span, Value};

use crate::bounded_file;
use crate::failure::Failure;
use crate::settings::{ListenerProtocol, SETTINGS, Setting, Settings};
use crate::settled_file;
use crate::units::listen_address;
pub(crate) use exports::ExportTable;
use keys::Place;
pub(crate) use refused::quoted;
use refused::{Refused, place, tables, values_of};
use site::SiteTable;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// The settings above the tables.
    pub(crate) settings: Settings,
    /// The same, as it is written.
    pub(crate) entries: Vec<Entry>,
    pub(crate) listeners: Vec<ListenerTable>,
    pub(crate) exports: Vec<ExportTable>,
    pub(crate) sites: Vec<SiteTable>,
    /// How errors call the file.
    pub(crate) name: String,
}

/// One `[[listener]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerTable {
    pub(crate) protocol: ListenerProtocol,
    pub(crate) addresses: Vec<ListenAddress>,
    /// Its own settings.
    pub(crate) own: Settings,
    pub(crate) entries: Vec<Entry>,
}

/// A setting with its value in TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) setting: &'static Setting,
    pub(crate) value: String,
}

impl Configuration {
    /// Reads a file.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        Self::from_path(path, bounded_file::read)
    }

    /// The same for a server that runs: what may be half written is refused.
    pub(crate) fn from_settled(path: &Path) -> Result<Self, Failure> {
        Self::from_path(path, settled_file::read)
    }

    fn from_path(
        path: &Path,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Self, Failure> {
        let path_text = path.display();
        let wrong =
            |cause: &dyn Display| Failure::WrongUse(format!("configuration {path_text}: {cause}"));
        let content = read(path).map_err(|cause| wrong(&cause))?;
        let text = io::read_to_string(&content[..]).map_err(|cause| wrong(&cause))?;
        let read = Self::from_text(&text);
        let mut file = read.map_err(|why| Failure::WrongUse(format!("{path_text}:{why}")))?;
        file.name = path_text.to_string();
        Ok(file)
    }

    /// Reads the text of a file; an error begins with `LINE:COLUMN: `.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|refused| {
            let (line, column) = place(text, refused.at.start);
            format!("{line}:{column}: {}", refused.why)
        })
    }

    fn parse(text: &str) -> Result<Self, Refused> {
        let document = toml_span::parse(text).map_err(|error| {
            let (line, _) = place(text, error.span.start);
            let shown = text.lines().nth(line - 1).unwrap_or_default();
            Refused::new(error.span, format!("{error}: {shown}"))
        })?;
        let mut file = Self::default();
        for (key, value) in document.as_table().into_iter().flatten() {
            if key.name == "listener" {
                file.listeners = tables(value, "listener", ListenerTable::parse)?;
                continue;
            }
            if key.name == "site" {
                file.sites = site::tables(value)?;
                continue;
            }
            if key.name == "export" {
                file.exports = exports::tables(value, text)?;
                continue;
            }
            let at = (Place::AboveTables, key.span);
            let entry = read(&key.name, at, value, &mut file.settings)?;
            file.entries.push(entry);
        }
        // What a table says together with what stands above it.
        let settings = &file.settings;
        let listeners = file.listeners.iter().map(|it| it.over(settings));
        check_networks(&document, "listener", listeners)?;
        let sites = file.sites.iter().map(|it| it.over(settings));
        check_networks(&document, "site", sites)?;
        Ok(file)
    }
}

/// Refuses the first of these tables that allows and denies a network.
fn check_networks(
    document: &Value<'_>,
    name: &str,
    tables: impl Iterator<Item = Settings>,
) -> Result<(), Refused> {
    let values = document.as_table().and_then(|table| table.get(name));
    let values = values.map_or(&[][..], values_of);
    for (settings, value) in tables.zip(values) {
        if let Some(why) = settings.networks_conflict() {
            return Err(Refused::new(value.span, why));
        }
    }
    Ok(())
}

impl ListenerTable {
    fn parse(table: &Value<'_>) -> Result<Self, Refused> {
        let missing = |what| Refused::new(table.span, format!("this [[listener]] needs {what}"));
        let one = |name| table.as_table().and_then(|table| table.get(name));
        let protocol = one("protocol").ok_or_else(|| missing("protocol = \"http\""))?;
        let protocol = protocol_of(protocol)?;
        let addresses = one("address").ok_or_else(|| missing("address = \"HOST:PORT\""))?;
        let mut listener = Self {
            protocol,
            addresses: addresses_of(addresses)?,
            own: Settings::default(),
            entries: Vec::new(),
        };
        for (key, value) in table.as_table().into_iter().flatten() {
            let name = &*key.name;
            if keys::has(keys::LISTENER, name) {
                continue;
            }
            // First what is no setting at all, and values that are wrong wherever they stand.
            let at = (Place::Listener(protocol), key.span);
            let entry = read(name, at, value, &mut listener.own)?;
            if !protocol.takes(entry.setting) {
                return Err(Refused::new(
                    key.span,
                    protocol.cannot_take(name, entry.setting),
                ));
            }
            listener.entries.push(entry);
        }
        Ok(listener)
    }

    /// Its settings in a server that has these.
    pub(crate) fn over(&self, settings: &Settings) -> Settings {
        over(&self.own, &self.entries, settings)
    }
}

impl ListenerProtocol {
    fn cannot_take(self, name: &str, setting: &Setting) -> String {
        let others = setting.listeners().iter().map(|other| other.name());
        let others: Vec<String> = others.collect();
        let own = self.name();
        match others.is_empty() {
            true if setting.is_of_sites() => {
                format!(
                    "{name} is not for a listener: it stands {}",
                    setting.stands()
                )
            }
            true => format!("{name} applies to the whole server: write it above all tables"),
            false => format!(
                "{name} is for {}, and this listener speaks {own}",
                others.join(", ")
            ),
        }
    }
}

fn protocol_of(value: &Value<'_>) -> Result<ListenerProtocol, Refused> {
    let known = value.as_str();
    let known = known.and_then(|name| ListenerProtocol::from_str(name, false).ok());
    known.ok_or_else(|| {
        let all: Vec<_> = ListenerProtocol::value_variants()
            .iter()
            .map(|it| it.name())
            .collect();
        let why = format!("protocol is one of \"{}\"", all.join("\", \""));
        Refused::new(value.span, why)
    })
}

fn addresses_of(value: &Value<'_>) -> Result<Vec<ListenAddress>, Refused> {
    let values = values_of(value);
    if values.is_empty() {
        return Err(Refused::new(
            value.span,
            "address is an empty list: write address = \"HOST:PORT\"",
        ));
    }
    let read = values.iter().map(|value| {
        let text = match value.as_ref() {
            ValueInner::String(text) => text.to_string(),
            ValueInner::Integer(port) => port.to_string(),
            _ => String::new(),
        };
        listen_address(&text).map_err(|why| Refused::new(value.span, format!("address: {why}")))
    });
    read.collect()
}

/// The settings of a table, which has these entries, over those that it stands below. Of what is
/// [not inherited](Setting::is_inherited) it has its own alone.
fn over(own: &Settings, entries: &[Entry], above: &Settings) -> Settings {
    let mut settings = above.clone();
    for setting in SETTINGS.iter().filter(|it| !it.is_inherited()) {
        setting.assign(own, &mut settings);
    }
    // What is answered with is one thing: that of the table, if it names one.
    if own.dir.is_some() {
        settings.proxy.clear();
    }
    if !own.proxy.is_empty() {
        settings.dir = None;
    }
    for entry in entries {
        entry.setting.copy(own, &mut settings);
    }
    settings
}

/// Reads one setting of the file.
fn read(
    name: &str,
    (place, at): (Place, Span),
    value: &Value<'_>,
    settings: &mut Settings,
) -> Result<Entry, Refused> {
    if name.contains('_') && SETTINGS.iter().any(|it| it.id() == name) {
        let right = name.replace('_', "-");
        return Err(Refused::new(at, format!("{name}: write {right}")));
    }
    let unknown = || Refused::new(at, keys::unknown(name, place));
    let setting = Setting::named(name).ok_or_else(unknown)?;
    let values = values_of(value);
    let (mut texts, mut literals) = (Vec::new(), Vec::new());
    for value in values {
        let (text, literal) = match value.as_ref() {
            ValueInner::String(text) => (text.to_string(), quoted(text)),
            ValueInner::Integer(number) => (number.to_string(), number.to_string()),
            ValueInner::Float(number) => (number.to_string(), format!("{number:?}")),
            ValueInner::Boolean(switch) => (switch.to_string(), switch.to_string()),
            _ => {
                let why = format!(
                    "{name} takes a value or a list of values: write {name} = VALUE, or \
                     {name} = [VALUE, VALUE]"
                );
                return Err(Refused::new(value.span, why));
            }
        };
        texts.push(text);
        literals.push(literal);
    }
    let refused = |error| Refused::new(at, in_short(&error));
    setting.parse(settings, &texts).map_err(refused)?;
    if let Some(why) = settings.networks_conflict() {
        return Err(Refused::new(at, why));
    }
    let value = match value.as_array() {
        Some(_) => format!("[{}]", literals.join(", ")),
        None => literals.concat(),
    };
    Ok(Entry { setting, value })
}

/// Without what concerns the command line as a whole.
fn in_short(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\n\nUsage").unwrap_or(text.len());
    text[..end].trim_end().into()
}

#[cfg(test)]
mod tests;
