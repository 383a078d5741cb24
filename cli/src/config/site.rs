//! Tables `[[site]]`: a directory, or servers that are asked, for some hosts, below a prefix.
//!
//! ```toml
//! [[site]]
//! names = ["example.org", "*.example.org"]
//! dir = "/srv/example"
//! ```
//!
//! Without `names` it is for every host that no other site has. It may set what
//! [is of sites](Setting::is_of_sites); the rest is as its listener has it.

use flatpath_http::{HostPattern, Sites};
use toml_span::Value;

use super::keys::Place;
use super::refused::{Refused, tables as all_tables, values_of};
use super::rules::SiteRules;
use super::{Entry, over, read};
use crate::proxied::{self, Answers};
use crate::redirect::Redirect;
use crate::settings::{Setting, Settings};

/// One `[[site]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteTable {
    pub(crate) names: Vec<HostPattern>,
    /// As it is written; `/` for all paths.
    pub(crate) prefix: String,
    /// Its own settings.
    pub(crate) own: Settings,
    pub(crate) entries: Vec<Entry>,
    /// What it does with paths.
    pub(crate) rules: SiteRules,
}

/// All of them.
pub(super) fn tables(value: &Value<'_>) -> Result<Vec<SiteTable>, Refused> {
    let tables = all_tables(value, "site", SiteTable::parse)?;
    // One rule says which of them conflict: that by which they are served.
    let values = value.as_array().map_or(&[][..], Vec::as_slice);
    let mut sites = Sites::new();
    for (table, value) in tables.iter().zip(values) {
        let added = sites.add(&table.names, &table.prefix, Redirect::default());
        sites = added.map_err(|why| Refused::new(value.span, why.to_string()))?;
    }
    Ok(tables)
}

impl SiteTable {
    fn parse(table: &Value<'_>) -> Result<Self, Refused> {
        let mut site = Self {
            names: vec!["*".parse().expect("it is for every host")],
            prefix: "/".into(),
            own: Settings::default(),
            entries: Vec::new(),
            rules: SiteRules::default(),
        };
        for (key, value) in table.as_table().into_iter().flatten() {
            if site.rules.take(key, value)? {
                continue;
            }
            match &*key.name {
                "names" => site.names = names(value)?,
                "prefix" => site.prefix = prefix(value)?,
                name => {
                    // First what is no setting at all, and values that are wrong anywhere.
                    let entry = read(name, (Place::Site, key.span), value, &mut site.own)?;
                    if !entry.setting.is_of_sites() {
                        let why = cannot_take(name, entry.setting);
                        return Err(Refused::new(key.span, why));
                    }
                    site.entries.push(entry);
                }
            }
        }
        match proxied::answers(&site.own) {
            Answers::Files => return Ok(site),
            Answers::Servers => {}
            Answers::Nothing => {
                let why =
                    "this [[site]] needs dir = \"DIRECTORY\" or proxy = \"http://ADDRESS:PORT\"";
                return Err(Refused::new(table.span, why));
            }
            Answers::Both(_) => {
                let why = "this [[site]] has both dir and proxy: which of them answers?";
                return Err(Refused::new(table.span, why));
            }
        }
        if site.rules != SiteRules::default() {
            return Err(Refused::new(table.span, proxied::NO_RULES));
        }
        match site.own.allow_origin.is_empty() {
            true => Ok(site),
            false => Err(Refused::new(table.span, proxied::NO_ORIGINS)),
        }
    }

    /// Its settings at a listener that has these.
    pub(crate) fn over(&self, listener: &Settings) -> Settings {
        over(&self.own, &self.entries, listener)
    }

    /// Whether it is for every host that no other one has, and all paths.
    pub(crate) fn is_default(&self) -> bool {
        self.names.iter().any(HostPattern::is_any) && self.prefix.trim_end_matches('/').is_empty()
    }

    /// What tells it from others: its names, then its prefix.
    pub(crate) fn label(&self) -> String {
        let names: Vec<_> = self.names.iter().map(ToString::to_string).collect();
        format!("{} {}", names.join(", "), self.prefix)
    }
}

fn cannot_take(name: &str, setting: &Setting) -> String {
    if setting.listeners().is_empty() {
        return format!("{name} applies to the whole server: write it above all tables");
    }
    match setting.key_in_sites() {
        Some(key) => format!("{name} is for a listener: a [[site]] has {key}"),
        None => format!("{name} is for a listener: write it above all tables or in a [[listener]]"),
    }
}

fn names(value: &Value<'_>) -> Result<Vec<HostPattern>, Refused> {
    let values = values_of(value);
    if values.is_empty() {
        let why = "names is an empty list: write names = \"HOST\", or leave it out";
        return Err(Refused::new(value.span, why));
    }
    let read = values.iter().map(|value| {
        let wrong = |why: &dyn std::fmt::Display| Refused::new(value.span, format!("names: {why}"));
        let name = value
            .as_str()
            .ok_or_else(|| wrong(&"write names = \"HOST\""))?;
        name.parse().map_err(|why| wrong(&why))
    });
    read.collect()
}

fn prefix(value: &Value<'_>) -> Result<String, Refused> {
    let why = "prefix is a path: write prefix = \"/PATH\"";
    let prefix = value.as_str().filter(|prefix| prefix.starts_with('/'));
    prefix.map_or_else(
        || Err(Refused::new(value.span, why)),
        |it| Ok(it.to_owned()),
    )
}
