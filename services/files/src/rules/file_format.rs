//! The text of `_redirects` and `_headers`, in the form that Netlify and Cloudflare Pages have.
//!
//! Of `_redirects` a line is `FROM TO [STATUS]`:
//! - `FROM` is a path, in which `*` stands for any text and `:name` for one name. `/old/*` is for
//!   `/old`, too.
//! - `TO` is a path, or an address with `http://` or `https://`; `:splat` and `:name` are what was
//!   found. The query is kept unless `TO` has one.
//! - `STATUS` is 301, 302 (also if it is left out, as at Cloudflare), 303, 307 or 308; a `!` after
//!   it changes nothing, as redirects come before files. `200` answers with the file `TO` where
//!   nothing is found, and `200!` in any case.
//!
//! Of `_headers` a line that begins with `/` is a path as above, and the lines below it that are
//! indented are for it: `Name: value`, or `! Name` to remove a header. Several values of one header
//! are joined with commas.
//!
//! `#` begins a comment, at the start of a line; in `_redirects` also after white space. Not
//! understood: conditions (`Country=`, `Language=`, query parameters), hosts in `FROM`, proxying
//! (`200` to another server), other statuses, and what the rules themselves refuse. Such a line is
//! a mistake and has no effect; the other lines have. So a typing error costs its own line and not
//! the site.

use std::fmt::Display;

use http::StatusCode;

use super::changes::HeaderChange;
use super::error::RuleError;
use super::pattern::Pattern;
use super::set::Rules;
use super::template::{Purpose, Template};

/// Names of the files, in the root.
pub(crate) const REDIRECTS: &str = "_redirects";
pub(crate) const HEADERS: &str = "_headers";

/// Lines that have no effect, each with its place: `_headers:3: ...`.
pub(crate) type Mistakes = Vec<String>;

impl Rules {
    /// Adds the lines of a text in the form of `_redirects`, after the rules that are there.
    /// [`RootFiles::Read`](super::RootFiles::Read) does the same with the file of a root, each time
    /// that it changes; this is for a text from elsewhere, and to check one before it is put there.
    ///
    /// Returns a text for each line that has no effect, such as `_redirects:3: ...`, in their
    /// order. Costs some microseconds for each line.
    #[must_use = "lines with mistakes have no effect"]
    pub fn add_redirects_text(&mut self, text: &[u8]) -> Vec<String> {
        let mut mistakes = Mistakes::new();
        read_redirects(text, self, &mut mistakes);
        mistakes
    }

    /// The same with a text in the form of `_headers`.
    #[must_use = "lines with mistakes have no effect"]
    pub fn add_headers_text(&mut self, text: &[u8]) -> Vec<String> {
        let mut mistakes = Mistakes::new();
        read_headers(text, self, &mut mistakes);
        mistakes
    }
}

/// Adds the lines of a `_redirects`.
pub(crate) fn read_redirects(text: &[u8], rules: &mut Rules, mistakes: &mut Mistakes) {
    for (number, line) in lines(text) {
        let outcome = text_of(line).and_then(|line| add_redirect(line, rules));
        note(REDIRECTS, number, outcome, mistakes);
    }
}

/// Adds the lines of a `_headers`.
pub(crate) fn read_headers(text: &[u8], rules: &mut Rules, mistakes: &mut Mistakes) {
    // A path that is a mistake has headers, too, which are then for no path.
    let mut on: Option<Result<Pattern, String>> = None;
    for (number, line) in lines(text) {
        let outcome = match &on {
            Some(Ok(on)) if is_indented(line) => {
                text_of(line).and_then(|line| add_header(line.trim(), on, rules))
            }
            Some(Err(_)) if is_indented(line) => Ok(()),
            None if is_indented(line) => Err("a header stands before the first path".to_owned()),
            _ => {
                let path = text_of(line)
                    .and_then(|line| path_pattern(line.trim()).map_err(|error| error.to_string()));
                let outcome = path.as_ref().map(|_| ()).map_err(Clone::clone);
                on = Some(path);
                outcome
            }
        };
        note(HEADERS, number, outcome, mistakes);
    }
}

fn note(file: &str, number: usize, outcome: Result<(), impl Display>, mistakes: &mut Mistakes) {
    if let Err(cause) = outcome {
        mistakes.push(format!("{file}:{number}: {cause}"));
    }
}

/// Lines by their numbers, from 1, without those that say nothing.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| {
        let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        text_of(line).map_or(true, says)
    })
}

fn text_of(line: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())
}

fn is_indented(line: &[u8]) -> bool {
    matches!(line, [b' ' | b'\t', ..])
}

fn path_pattern(text: &str) -> Result<Pattern, RuleError> {
    if text.starts_with('/') {
        return text.parse();
    }
    Err(RuleError::Path {
        text: text.to_owned(),
        reason: "it does not begin with a slash",
    })
}

fn add_redirect(line: &str, rules: &mut Rules) -> Result<(), String> {
    let words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let words: Vec<&str> = words.collect();
    let (from, to, status) = match words[..] {
        [from, to] => (from, to, "302"),
        [from, to, status] => (from, to, status),
        _ => return Err("it is not FROM TO [STATUS]; conditions are not understood".to_owned()),
    };
    let from = path_pattern(from).map_err(|error| error.to_string())?;
    let to = with_variables(to, &from);
    let (status, is_forced) = match status.strip_suffix('!') {
        Some(status) => (status, true),
        None => (status, false),
    };
    let added = match status {
        "200" => Template::parse(&to, &from, Purpose::File).and_then(|to| {
            let list = match is_forced {
                true => &mut rules.rewrites,
                false => &mut rules.fallbacks,
            };
            list.push(from, to)
        }),
        _ => {
            let status = StatusCode::from_bytes(status.as_bytes());
            let status =
                status.map_err(|_| format!("{:?} is no status", words[words.len() - 1]))?;
            let to = Template::parse(&to, &from, Purpose::Redirect);
            to.and_then(|to| rules.add_redirect(from, to.without_rest(), status))
        }
    };
    added.map_err(|error| error.to_string())
}

/// A target in the syntax of rules: `:splat` and `:name` are variables where the pattern sets them.
fn with_variables(to: &str, from: &Pattern) -> String {
    let mut target = String::new();
    let mut left = to;
    while let Some((before, after)) = left.split_once(':') {
        target.push_str(&before.replace('$', "$$"));
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let end = after
            .find(|character| !is_part(character))
            .unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        let is_name = name.starts_with(|character: char| character.is_ascii_alphabetic());
        match is_name && from.sets(name) {
            true => target.push_str(&format!("${{{name}}}")),
            false => target.push_str(&format!(":{name}")),
        }
        left = rest;
    }
    target + &left.replace('$', "$$")
}

fn add_header(line: &str, on: &Pattern, rules: &mut Rules) -> Result<(), String> {
    let change = match (line.strip_prefix('!'), line.split_once(':')) {
        (Some(name), _) => HeaderChange::remove(name.trim()),
        (None, Some((name, value))) => HeaderChange::join(name.trim(), value),
        (None, None) => return Err("it is not NAME: VALUE".to_owned()),
    };
    let added = change.and_then(|change| rules.add_headers(on.clone(), vec![change]));
    added.map_err(|error| error.to_string())
}
