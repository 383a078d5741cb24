//! The rules of a `[[site]]`: what the files service does with its paths.
//!
//! ```toml
//! [[site]]
//! dir = "/srv/example"
//! clean-urls = true
//! spa = "/index.html"
//! spa-except = ["/api/*"]
//! try = ["$path", "$path.html"]
//! root-files = true
//! [[site.redirect]]
//! from = "/old/*"
//! to = "/new"
//! status = 301
//! [[site.rewrite]]
//! from = "~^/user/([0-9]+)$"
//! to = "/users/$1.json"
//! [[site.header]]
//! path = "/assets/*"
//! set = { Cache-Control = "max-age=3600" }
//! immutable = false
//! [site.error-pages]
//! 404 = "/404.html"
//! [site.types]
//! gmi = "text/gemini"
//! ```
//!
//! What a pattern or a target may be, and in which order rules are tried, is the service's own
//! affair ([`Rules`]); an error is in its words, at the value that it is about.

use std::fmt::{Display, Write};

use flatpath_files::{CleanUrls, HeaderChange, Pattern, RootFiles, Rules, TrailingSlash};
use flatpath_http::http::StatusCode;
use toml_span::Value;
use toml_span::value::{Key, Table, ValueInner};

use super::keys;
use super::refused::{Refused, quoted, values_of};

/// The status of a redirect that names none.
const REDIRECT: StatusCode = StatusCode::MOVED_PERMANENTLY;

/// The page of an application that names none.
const SPA: &str = "/index.html";

/// The rules of a site, and how they are written: those are the same that are written the same.
#[derive(Clone, Debug)]
pub(crate) struct SiteRules {
    pub(crate) rules: Rules,
    /// In TOML, a line for each key.
    pub(crate) text: String,
}

impl Default for SiteRules {
    fn default() -> Self {
        Self {
            rules: Rules::new(),
            text: String::new(),
        }
    }
}

impl PartialEq for SiteRules {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SiteRules {}

impl SiteRules {
    /// Takes a key of a site, if it is one of rules.
    pub(super) fn take(&mut self, key: &Key<'_>, value: &Value<'_>) -> Result<bool, Refused> {
        if !keys::has(keys::SITE, &key.name) {
            return Ok(false);
        }
        let Self { rules, mut text } = std::mem::take(self);
        let taken = match &*key.name {
            "redirect" => each(value, "redirect", rules, redirect),
            "rewrite" => each(value, "rewrite", rules, rewrite),
            "header" => each(value, "header", rules, header),
            "try" => try_files(value, rules),
            "spa" => spa(value, rules),
            "spa-except" => spa_except(value, rules),
            "clean-urls" => switch(value, "clean-urls").map(|is_on| match is_on {
                true => rules.clean_urls(CleanUrls::Served),
                false => rules.clean_urls(CleanUrls::Off),
            }),
            "root-files" => switch(value, "root-files").map(|is_on| match is_on {
                true => rules.root_files(RootFiles::Read),
                false => rules.root_files(RootFiles::Ignored),
            }),
            "trailing-slash" => trailing_slash(value).map(|how| rules.trailing_slash(how)),
            "error-pages" => error_pages(value, rules),
            "types" => types(value, rules),
            _ => {
                *self = Self { rules, text };
                return Ok(false);
            }
        };
        let _ = writeln!(text, "{} = {}", key.name, literal(value));
        *self = Self {
            rules: taken?,
            text,
        };
        Ok(true)
    }
}

fn wrong(value: &Value<'_>, why: impl Into<String>) -> Refused {
    Refused::new(value.span, why)
}

/// An error of a rule, at its value.
fn at<'v>(value: &'v Value<'_>, what: &'v str) -> impl Fn(&dyn Display) -> Refused + 'v {
    move |why| wrong(value, format!("{what}: {why}"))
}

/// Adds a rule for each of a list of tables.
fn each(
    value: &Value<'_>,
    name: &str,
    mut rules: Rules,
    add: fn(&Value<'_>, &Table<'_>, Rules) -> Result<Rules, Refused>,
) -> Result<Rules, Refused> {
    let shape = format!("{name} is a list of tables: write [[site.{name}]]");
    let tables = value.as_array().ok_or_else(|| wrong(value, &*shape))?;
    for table in tables {
        let entries = table.as_table().ok_or_else(|| wrong(table, &*shape))?;
        rules = add(table, entries, rules)?;
    }
    Ok(rules)
}

/// Refuses the keys that a table does not have.
fn only(table: &Table<'_>, name: &str, known: &[&str]) -> Result<(), Refused> {
    match table.keys().find(|key| !known.contains(&&*key.name)) {
        None => Ok(()),
        Some(key) => {
            let known = known.join(", ");
            let why = format!("{name} has no {}; it has {known}", key.name);
            Err(Refused::new(key.span, why))
        }
    }
}

fn text<'v>(value: &'v Value<'_>, name: &str) -> Result<&'v str, Refused> {
    let why = || wrong(value, format!("{name} is a text: write {name} = \"...\""));
    value.as_str().ok_or_else(why)
}

fn needed<'v>(
    table: &'v Value<'_>,
    entries: &'v Table<'_>,
    name: &str,
) -> Result<(&'v Value<'v>, &'v str), Refused> {
    let why = || wrong(table, format!("this table needs {name} = \"...\""));
    let value = entries.get(name).ok_or_else(why)?;
    Ok((value, text(value, name)?))
}

fn switch(value: &Value<'_>, name: &str) -> Result<bool, Refused> {
    value
        .as_bool()
        .ok_or_else(|| wrong(value, format!("{name} is true or false")))
}

fn pattern(value: &Value<'_>, text: &str, name: &str) -> Result<Pattern, Refused> {
    text.parse().map_err(|why| at(value, name)(&why))
}

fn redirect(table: &Value<'_>, entries: &Table<'_>, rules: Rules) -> Result<Rules, Refused> {
    only(entries, "redirect", &["from", "to", "status"])?;
    let (at_from, from) = needed(table, entries, "from")?;
    let (at_to, to) = needed(table, entries, "to")?;
    let status = match entries.get("status") {
        None => REDIRECT,
        Some(value) => status(value, value.as_integer())?,
    };
    let from = pattern(at_from, from, "from")?;
    rules
        .redirect(from, to, status)
        .map_err(|why| at(at_to, "redirect")(&why))
}

fn status(value: &Value<'_>, number: Option<i64>) -> Result<StatusCode, Refused> {
    let number = number.and_then(|it| u16::try_from(it).ok());
    let status = number.and_then(|it| StatusCode::from_u16(it).ok());
    status.ok_or_else(|| wrong(value, "a status is a number such as 301"))
}

fn rewrite(table: &Value<'_>, entries: &Table<'_>, rules: Rules) -> Result<Rules, Refused> {
    only(entries, "rewrite", &["from", "to"])?;
    let (at_from, from) = needed(table, entries, "from")?;
    let (at_to, to) = needed(table, entries, "to")?;
    let from = pattern(at_from, from, "from")?;
    rules
        .rewrite(from, to)
        .map_err(|why| at(at_to, "rewrite")(&why))
}

fn header(table: &Value<'_>, entries: &Table<'_>, rules: Rules) -> Result<Rules, Refused> {
    only(
        entries,
        "header",
        &["path", "set", "append", "remove", "immutable"],
    )?;
    let on = match entries.get("path") {
        None => Pattern::any(),
        Some(value) => pattern(value, text(value, "path")?, "path")?,
    };
    let mut changes = Vec::new();
    for (name, change) in [
        ("set", HeaderChange::set as fn(&str, &str) -> _),
        ("append", HeaderChange::append),
    ] {
        let Some(values) = entries.get(name) else {
            continue;
        };
        let shape = || {
            wrong(
                values,
                format!("{name} is a table: {name} = {{ NAME = \"VALUE\" }}"),
            )
        };
        for (header, value) in values.as_table().ok_or_else(shape)? {
            let text = text(value, &header.name)?;
            changes.push(change(&header.name, text).map_err(|why| at(value, name)(&why))?);
        }
    }
    if let Some(names) = entries.get("remove") {
        for name in values_of(names) {
            let header = text(name, "remove")?;
            let removed = HeaderChange::remove(header);
            changes.push(removed.map_err(|why| at(name, "remove")(&why))?);
        }
    }
    if let Some(value) = entries.get("immutable")
        && switch(value, "immutable")?
    {
        changes.push(HeaderChange::immutable());
    }
    if changes.is_empty() {
        return Err(wrong(
            table,
            "this header changes nothing: write set, append, remove or immutable",
        ));
    }
    rules
        .headers(on, changes)
        .map_err(|why| at(table, "header")(&why))
}

fn try_files(value: &Value<'_>, rules: Rules) -> Result<Rules, Refused> {
    let files = values_of(value).iter().map(|file| text(file, "try"));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    rules
        .try_files(Pattern::any(), files)
        .map_err(|why| at(value, "try")(&why))
}

fn spa(value: &Value<'_>, rules: Rules) -> Result<Rules, Refused> {
    let file = match value.as_bool() {
        Some(false) => return Ok(rules),
        Some(true) => SPA,
        None => text(value, "spa")?,
    };
    rules
        .fallback(Pattern::any(), file)
        .map_err(|why| at(value, "spa")(&why))
}

fn spa_except(value: &Value<'_>, mut rules: Rules) -> Result<Rules, Refused> {
    for path in values_of(value) {
        let on = pattern(path, text(path, "spa-except")?, "spa-except")?;
        let added = rules.without_fallback(on);
        rules = added.map_err(|why| at(path, "spa-except")(&why))?;
    }
    Ok(rules)
}

fn trailing_slash(value: &Value<'_>) -> Result<TrailingSlash, Refused> {
    match value.as_str() {
        Some("directories") => Ok(TrailingSlash::Directories),
        Some("add") => Ok(TrailingSlash::Add),
        Some("remove") => Ok(TrailingSlash::Remove),
        Some("leave") => Ok(TrailingSlash::Leave),
        _ => Err(wrong(
            value,
            "trailing-slash is \"directories\", \"add\", \"remove\" or \"leave\"",
        )),
    }
}

fn error_pages(value: &Value<'_>, mut rules: Rules) -> Result<Rules, Refused> {
    let shape = || wrong(value, "error-pages is a table: 404 = \"/404.html\"");
    for (key, value) in value.as_table().ok_or_else(shape)? {
        let file = text(value, &key.name)?;
        let status = status(value, key.name.parse().ok())?;
        let added = rules.error_page(status, file);
        rules = added.map_err(|why| at(value, "error-pages")(&why))?;
    }
    Ok(rules)
}

fn types(value: &Value<'_>, mut rules: Rules) -> Result<Rules, Refused> {
    let shape = || wrong(value, "types is a table: ENDING = \"text/plain\"");
    for (key, value) in value.as_table().ok_or_else(shape)? {
        let added = rules.media_type(&key.name, text(value, &key.name)?);
        rules = added.map_err(|why| at(value, "types")(&why))?;
    }
    Ok(rules)
}

/// A value in TOML, in one line.
fn literal(value: &Value<'_>) -> String {
    match value.as_ref() {
        ValueInner::String(text) => quoted(text),
        ValueInner::Integer(number) => number.to_string(),
        ValueInner::Float(number) => format!("{number:?}"),
        ValueInner::Boolean(switch) => switch.to_string(),
        ValueInner::Array(values) => {
            let values: Vec<_> = values.iter().map(literal).collect();
            format!("[{}]", values.join(", "))
        }
        ValueInner::Table(entries) => {
            let entry =
                |(key, value): (&Key<'_>, _)| format!("{} = {}", quoted(&key.name), literal(value));
            let entries: Vec<_> = entries.iter().map(entry).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;

    /// The rules of a table say what those of a program do, down to each switch.
    #[test]
    fn a_table_is_the_rules_that_a_program_would_set() {
        let any = Pattern::any;
        let set = |name, value| HeaderChange::set(name, value);
        let pattern = |text: &str| text.parse().expect("a pattern");
        let path = |text: &str| Rules::new().without_fallback(pattern(text));
        let rules = |made: Result<Rules, flatpath_files::RuleError>| made.expect("rules");
        let cases = [
            (
                "trailing-slash = \"add\"",
                Rules::new().trailing_slash(TrailingSlash::Add),
            ),
            (
                "trailing-slash = \"remove\"",
                Rules::new().trailing_slash(TrailingSlash::Remove),
            ),
            (
                "trailing-slash = \"leave\"",
                Rules::new().trailing_slash(TrailingSlash::Leave),
            ),
            ("trailing-slash = \"directories\"", Rules::new()),
            (
                "clean-urls = true",
                Rules::new().clean_urls(CleanUrls::Served),
            ),
            ("clean-urls = false", Rules::new()),
            (
                "root-files = true",
                Rules::new().root_files(RootFiles::Read),
            ),
            ("spa = false", Rules::new()),
            (
                "spa = true",
                rules(Rules::new().fallback(any(), "/index.html")),
            ),
            ("spa = \"/a\"", rules(Rules::new().fallback(any(), "/a"))),
            (
                "spa-except = [\"/a/*\", \"/b\"]",
                rules(path("/a/*").and_then(|rules| rules.without_fallback(pattern("/b")))),
            ),
            (
                "error-pages = { 404 = \"/a\" }",
                rules(Rules::new().error_page(StatusCode::NOT_FOUND, "/a")),
            ),
            (
                "types = { gmi = \"text/gemini\" }",
                rules(Rules::new().media_type("gmi", "text/gemini")),
            ),
            (
                "header = [{ set = { X-A = \"1\" }, immutable = false }]",
                rules(set("X-A", "1").and_then(|change| Rules::new().headers(any(), [change]))),
            ),
            (
                "header = [{ immutable = true }]",
                rules(Rules::new().headers(any(), [HeaderChange::immutable()])),
            ),
        ];
        for (line, expected) in cases {
            let text = format!("[[site]]\ndir = \"a\"\n{line}\n");
            let file = Configuration::from_text(&text).expect(line);
            let found = &file.sites[0].rules.rules;
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{line}");
        }
    }
}
