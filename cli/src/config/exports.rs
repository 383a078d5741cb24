//! Tables `[[export]]`: what a line of `/etc/exports` says, in the configuration.
//!
//! ```toml
//! [[export]]
//! path = "/srv/www"
//! clients = ["192.0.2.0/24(rw,no_root_squash)", "*"]
//! options = "ro,insecure"     # of clients that do not say more
//! ```
//!
//! Clients and options are read by the parser of such files, and mean the same.

use flatpath_nfs::{ClientRule, ExportOptions, ExportsFile};
use toml_span::value::{Key, ValueInner};
use toml_span::{Span, Value};

use super::keys::{self, Place};
use super::refused::{Refused, place, tables as all_tables, values_of};

/// One `[[export]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportTable {
    pub(crate) path: String,
    pub(crate) clients: Vec<String>,
    pub(crate) options: Option<String>,
    /// Of the clients, with their places in the file.
    rules: Vec<ClientRule>,
    /// What has no effect.
    notices: Vec<String>,
    /// `LINE:COLUMN`.
    place: String,
}

/// All tables of a file with this text.
pub(super) fn tables(value: &Value<'_>, text: &str) -> Result<Vec<ExportTable>, Refused> {
    all_tables(value, "export", |table| ExportTable::parse(table, text))
}

/// A text, or each of several.
fn texts<'a>(name: &str, value: &'a Value<'_>) -> Result<Vec<(&'a str, Span)>, Refused> {
    let texts = values_of(value).iter().map(|value| match value.as_ref() {
        ValueInner::String(text) => Ok((&**text, value.span)),
        _ => Err(Refused::new(
            value.span,
            format!("{name} is text in quotes"),
        )),
    });
    texts.collect()
}

fn text<'a>(name: &str, value: &'a Value<'_>) -> Result<(&'a str, Span), Refused> {
    match texts(name, value)?[..] {
        [one] if value.as_array().is_none() => Ok(one),
        _ => Err(Refused::new(
            value.span,
            format!("{name} is one text in quotes"),
        )),
    }
}

impl ExportTable {
    fn parse(table: &Value<'_>, file: &str) -> Result<Self, Refused> {
        let unknown =
            |key: &Key<'_>| Refused::new(key.span, keys::unknown(&key.name, Place::Export));
        let (mut path, mut clients, mut options) = (None, Vec::new(), None);
        for (key, value) in table.as_table().into_iter().flatten() {
            match &*key.name {
                other if !keys::has(keys::EXPORT, other) => return Err(unknown(key)),
                "path" => path = Some(text("path", value)?),
                "clients" => clients = texts("clients", value)?,
                "options" => options = Some(text("options", value)?),
                _ => return Err(unknown(key)),
            }
        }
        let missing = |what| Refused::new(table.span, format!("this [[export]] needs {what}"));
        let (path, at) = path.ok_or_else(|| missing("path = \"/DIR\""))?;
        if !path.starts_with('/') {
            let why = "path begins with /: clients mount it by its whole path";
            return Err(Refused::new(at, why));
        }
        if clients.is_empty() {
            let what = "clients = [\"CLIENT(OPTIONS)\"]; \"*\" stands for everybody";
            return Err(missing(what));
        }
        let words = options.map_or("", |(words, _)| words);
        let read = |clients: &[&str], at: Span| {
            let (line, column) = place(file, at.start);
            let read = ExportsFile::clients(words, clients, &format!("{line}:{column}"));
            read.map_err(|why| Refused::new(at, why))
        };
        if let Some((_, at)) = options {
            read(&[], at)?;
        }
        let mut rules = Vec::new();
        for (client, at) in &clients {
            rules.extend(read(&[*client], *at)?.0);
        }
        let clients: Vec<&str> = clients.into_iter().map(|(client, _)| client).collect();
        let (_, notices) = read(&clients, table.span)?;
        let (line, column) = place(file, table.span.start);
        Ok(Self {
            path: path.into(),
            clients: clients.into_iter().map(Into::into).collect(),
            options: options.map(|(words, _)| words.into()),
            rules,
            notices,
            place: format!("{line}:{column}"),
        })
    }

    /// What it exports, in a file with this name.
    pub(crate) fn export(&self, name: &str) -> ExportOptions {
        let rules = self.rules.iter().map(|rule| ClientRule {
            place: format!("{name}:{}", rule.place),
            ..rule.clone()
        });
        ExportOptions {
            directory: self.path.clone().into(),
            rules: rules.collect(),
            place: format!("{name}:{}", self.place),
        }
    }

    /// What has no effect, for the log.
    pub(crate) fn notices(&self, name: &str) -> impl Iterator<Item = String> {
        self.notices
            .iter()
            .map(move |notice| format!("{name}:{notice}"))
    }
}
