//! Where a rule leads: an address with variables.
//!
//! `$1` and `${name}` are groups of an expression, `$splat` and `$name` those of a glob, `$rest` is
//! the path below a prefix, `$path` the whole path without a slash at its end, and `$$` is a
//! dollar. Below a prefix the rest is appended if the target does not say where it goes.
//!
//! Invariants, whatever a client sends:
//! - What a variable brings is percent-encoded, but for its slashes: it adds no query, no line, no
//!   escape that a second reader would decode, and nothing but ASCII.
//! - The host is fixed text, and ends before the first variable.
//! - A path begins with one slash and not with two: `//host` is another server.
//! - What is longer than `RULE_TARGET_BYTES_MAX` leads nowhere.
//! - What looks like a variable is one, or the target is refused (`plain_text`).

use percent_encoding::{CONTROLS, percent_encode, utf8_percent_encode};

use super::error::RuleError;
use super::pattern::{Kind, Matched, Pattern};
use super::plain_text;
use crate::limits::RULE_TARGET_BYTES_MAX;
use crate::target::{ENCODED_PATH, Hidden, Target};

/// What a target is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client goes there: a path, or an address of any server.
    Redirect,
    /// The service reads it instead: a path.
    Rewrite,
    /// A file, whatever is below the pattern.
    File,
}

#[derive(Clone, Debug)]
pub(crate) struct Template {
    text: String,
    /// `https://host`, or nothing.
    origin: String,
    path: Vec<Piece>,
    /// With their `?` and `#`.
    query: Vec<Piece>,
    fragment: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
    /// The path, from its slash.
    Path,
    /// What is below a prefix, with a slash before it if there is anything.
    Rest,
}

impl Template {
    pub(crate) fn parse(
        text: &str,
        pattern: &Pattern,
        purpose: Purpose,
    ) -> Result<Self, RuleError> {
        let refuse = |reason| RuleError::Target {
            text: text.to_owned(),
            reason,
        };
        if text.len() > RULE_TARGET_BYTES_MAX {
            return Err(refuse("it is too long"));
        }
        check_characters(text).map_err(refuse)?;
        let (origin, local) = split_origin(text).map_err(refuse)?;
        let (rest, fragment) = split_before(local, '#');
        let (path, query) = split_before(rest, '?');
        let is_path = [origin, query, fragment].iter().all(|part| part.is_empty());
        if purpose != Purpose::Redirect && !is_path {
            return Err(refuse(
                "the service reads a path alone, no host, query or fragment",
            ));
        }
        let pieces = |part| pieces(text, part, pattern);
        let mut path = pieces(path)?;
        if path.is_empty() && origin.is_empty() {
            return Err(refuse("it is empty"));
        }
        if let Some(Piece::Text(start)) = path.first()
            && (!start.starts_with('/') || start.starts_with("//"))
        {
            return Err(refuse(
                "it does not begin with one slash, nor with http:// or https://",
            ));
        }
        let (query, fragment) = (pieces(query)?, pieces(fragment)?);
        let says_where = |piece: &Piece| matches!(piece, Piece::Variable(_) | Piece::Path);
        let is_free = ![&path, &query, &fragment]
            .into_iter()
            .flatten()
            .any(says_where);
        let is_prefix = matches!(pattern.kind(), Kind::Prefix(_));
        if is_prefix && is_free && purpose != Purpose::File {
            path.push(Piece::Rest);
        }
        Ok(Self {
            text: text.to_owned(),
            origin: origin.to_owned(),
            path,
            query,
            fragment,
        })
    }

    /// The same without what is below a prefix: for a page that stands for all of them.
    #[must_use]
    pub(crate) fn without_rest(mut self) -> Self {
        self.path.retain(|piece| *piece != Piece::Rest);
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it leads to this server, as far as it says.
    pub(crate) fn is_local(&self) -> bool {
        self.origin.is_empty()
    }

    /// The path, if it is the same for all.
    pub(crate) fn fixed(&self) -> Option<String> {
        let is_text = |piece: &Piece| matches!(piece, Piece::Text(_));
        let is_fixed = self.is_local() && self.path.iter().all(is_text);
        is_fixed.then(|| self.path(b"", &Matched::Whole)).flatten()
    }

    /// The same, decoded.
    pub(crate) fn fixed_path(&self) -> Option<Vec<u8>> {
        let path = self.fixed()?;
        let target = Target::parse(path.as_bytes(), Hidden::Served).ok()?;
        Some(target.address())
    }

    /// The path for what a pattern matched in `path`; `None` if it is too long.
    pub(crate) fn path(&self, path: &[u8], matched: &Matched<'_>) -> Option<String> {
        let mut expanded = String::new();
        push_all(&self.path, path, matched, &mut expanded)?;
        let local = expanded.trim_start_matches('/');
        (local.len() < RULE_TARGET_BYTES_MAX).then(|| format!("/{local}"))
    }

    /// The address of the path `local` that it leads to, with the query of the request unless it
    /// has one of its own. `prefix` is where the service is mounted.
    pub(crate) fn location(
        &self,
        local: &str,
        path: &[u8],
        matched: &Matched<'_>,
        query: Option<&str>,
        prefix: &str,
    ) -> Option<String> {
        let prefix = if self.is_local() { prefix } else { "" };
        let mut address = format!("{}{prefix}{}", self.origin, local);
        push_all(&self.query, path, matched, &mut address)?;
        if let Some(query) = query.filter(|_| self.query.is_empty()) {
            address.push('?');
            // What is no visible ASCII is not as it was sent, but no header could have it.
            address.extend(utf8_percent_encode(query, CONTROLS));
        }
        push_all(&self.fragment, path, matched, &mut address)?;
        (address.len() <= 2 * RULE_TARGET_BYTES_MAX).then_some(address)
    }
}

fn push_all(
    pieces: &[Piece],
    path: &[u8],
    matched: &Matched<'_>,
    expanded: &mut String,
) -> Option<()> {
    for piece in pieces {
        let bytes = match piece {
            Piece::Text(text) => {
                expanded.push_str(text);
                continue;
            }
            Piece::Variable(name) => matched.variable(name),
            Piece::Path => path.strip_suffix(b"/").unwrap_or(path),
            Piece::Rest => matched.variable("rest"),
        };
        if *piece == Piece::Rest && !bytes.is_empty() && !expanded.ends_with('/') {
            expanded.push('/');
        }
        expanded.extend(percent_encode(bytes, ENCODED_PATH));
        if expanded.len() > 2 * RULE_TARGET_BYTES_MAX {
            return None;
        }
    }
    Some(())
}

/// The scheme and host, and what is after them.
fn split_origin(text: &str) -> Result<(&str, &str), &'static str> {
    let Some((scheme, after)) = text.split_once("://").filter(|(scheme, _)| is_word(scheme)) else {
        return Ok(("", text));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err("its scheme is neither http nor https");
    }
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let is_host = |it: char| it.is_ascii_alphanumeric() || "-.:[]".contains(it);
    let host = &after[..end];
    if host.is_empty() || !host.chars().all(is_host) {
        return Err("its host is not fixed text of letters, digits, dots and dashes");
    }
    Ok(text.split_at(text.len() - after.len() + end))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// What is before the first of these characters, and the rest from there.
fn split_before(text: &str, character: char) -> (&str, &str) {
    text.split_at(text.find(character).unwrap_or(text.len()))
}

fn check_characters(text: &str) -> Result<(), &'static str> {
    if text
        .chars()
        .any(|it| it.is_ascii_control() || " \"<>\\^`|".contains(it))
    {
        return Err("it has a character that an address must have percent-encoded");
    }
    let mut left = text.as_bytes();
    while let Some(at) = left.iter().position(|byte| *byte == b'%') {
        let escape = left.get(at + 1..at + 3);
        if !escape.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err("a % is not followed by two hexadecimal digits");
        }
        left = &left[at + 3..];
    }
    Ok(())
}

fn pieces(whole: &str, part: &str, pattern: &Pattern) -> Result<Vec<Piece>, RuleError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut left = part;
    while let Some((before, after)) = left.split_once('$') {
        plain_text::check(whole, before, pattern)?;
        literal.extend(utf8_percent_encode(before, CONTROLS));
        if let Some(after) = after.strip_prefix('$') {
            literal.push('$');
            left = after;
            continue;
        }
        let (name, after) = variable(after).ok_or_else(|| RuleError::Target {
            text: whole.to_owned(),
            reason: "a $ is followed by no variable; $$ is a dollar",
        })?;
        push_text(&mut literal, &mut pieces);
        pieces.push(match name {
            "path" => Piece::Path,
            name if pattern.sets(name) => Piece::Variable(name.to_owned()),
            name => {
                return Err(RuleError::Variable {
                    text: whole.to_owned(),
                    name: name.to_owned(),
                });
            }
        });
        left = after;
    }
    plain_text::check(whole, left, pattern)?;
    literal.extend(utf8_percent_encode(left, CONTROLS));
    push_text(&mut literal, &mut pieces);
    Ok(pieces)
}

fn push_text(literal: &mut String, pieces: &mut Vec<Piece>) {
    if !literal.is_empty() {
        pieces.push(Piece::Text(std::mem::take(literal)));
    }
}

/// The name of the variable that a text begins with, and what is after it.
fn variable(text: &str) -> Option<(&str, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        return braced.split_once('}').filter(|(name, _)| !name.is_empty());
    }
    let is_part: fn(char) -> bool = match text.starts_with(|it: char| it.is_ascii_digit()) {
        true => |it| it.is_ascii_digit(),
        false => |it| it.is_ascii_alphanumeric() || it == '_',
    };
    let end = text.find(|it| !is_part(it)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a redirect of `from` to `to` leads from `path`, with the query `q`.
    fn led(from: &str, to: &str, path: &[u8]) -> String {
        let pattern: Pattern = from.parse().expect(from);
        let template = Template::parse(to, &pattern, Purpose::Redirect).expect(to);
        let matched = pattern.find(path).expect("the pattern is for it");
        let local = template.path(path, &matched).expect("not too long");
        let location = template.location(&local, path, &matched, Some("q"), "");
        location.expect("not too long")
    }

    fn refused(from: &str, to: &str, purpose: Purpose) -> RuleError {
        let pattern: Pattern = from.parse().expect(from);
        Template::parse(to, &pattern, purpose).expect_err(to)
    }

    #[test]
    fn variables_are_what_the_pattern_found() {
        assert_eq!(led("/a", "/b", b"/a"), "/b?q");
        assert_eq!(led("~^/(.)(?<x>.)$", "/$2/${x}-$1$$", b"/ab"), "/b/b-a$?q");
        assert_eq!(
            led("~^/(a)?b$", "/x$1y", b"/b"),
            "/xy?q",
            "a group that took no part"
        );
        assert_eq!(
            led("/u/:id/*", "/$splat/of/$id", b"/u/7/a/b"),
            "/a/b/of/7?q"
        );
        assert_eq!(
            led("/a/*", "https://h.example/x$path", b"/a/b/"),
            "https://h.example/x/a/b?q"
        );
    }

    #[test]
    fn the_rest_of_a_prefix_follows_unless_the_target_says_where() {
        for (to, path, location) in [
            ("/new", &b"/old/a/b/"[..], "/new/a/b/?q"),
            ("/new/", b"/old/a", "/new/a?q"),
            ("/new", b"/old", "/new?q"),
            ("/new", b"/old/", "/new?q"),
            ("/", b"/old/a", "/a?q"),
            ("https://h.example", b"/old/a", "https://h.example/a?q"),
            (
                "https://h.example:8443/x",
                b"/old/a",
                "https://h.example:8443/x/a?q",
            ),
            ("/new?from=$rest", b"/old/a b", "/new?from=a%20b"),
            ("/$rest/new", b"/old/a", "/a/new?q"),
            ("/new#top", b"/old/a", "/new/a?q#top"),
        ] {
            assert_eq!(led("/old/*", to, path), location, "{to}");
        }
    }

    #[test]
    fn where_the_service_is_mounted_is_a_part_of_its_own_addresses_alone() {
        for (to, location) in [
            ("/b", "/mount/b"),
            ("https://h.example/b", "https://h.example/b"),
        ] {
            let pattern: Pattern = "/a".parse().expect("a pattern");
            let template = Template::parse(to, &pattern, Purpose::Redirect).expect(to);
            let (path, whole) = (b"/a", Matched::Whole);
            let local = template.path(path, &whole).expect("not too long");
            let found = template.location(&local, path, &whole, None, "/mount");
            assert_eq!(found.as_deref(), Some(location), "{to}");
        }
    }

    #[test]
    fn a_variable_brings_nothing_but_a_path() {
        let evil = b"/a/\r\nSet-Cookie: x=1?y#z%2f\\..\xff\xc3\xa9";
        let location = led("/a/*", "/b", evil);
        let only = |byte: u8| byte.is_ascii_alphanumeric() || b"/%-._~?=".contains(&byte);
        assert!(location.bytes().all(only), "{location}");
        assert_eq!(location.matches('?').count(), 1, "{location}");
        assert!(
            location.contains("%0D%0ASet-Cookie%3A%20x%3D1%3Fy%23z%252f%5C"),
            "{location}"
        );
    }

    #[test]
    fn no_path_leads_to_another_server() {
        for (from, to) in [
            ("~^/go(/.*)$", "/$1"),
            ("~^/go(/.*)$", "$1"),
            ("~^/go/(.*)$", "/$1"),
        ] {
            for path in [
                &b"/go//evil.example"[..],
                b"/go/evil.example",
                b"/go/\\evil.example",
            ] {
                let location = led(from, to, path);
                assert!(location.starts_with('/'), "{location}");
                assert!(
                    !location.starts_with("//") && !location.contains('\\'),
                    "{location}"
                );
            }
        }
    }

    #[test]
    fn targets_that_could_lead_anywhere_are_refused() {
        for to in [
            "//evil.example",
            "evil",
            "",
            "javascript://x",
            "ftp://h/",
            "https://",
            "https://u@h/",
            "https://h$1/",
            "https://$1",
            "https://h.$1",
            "/a b",
            "/a\r\nX: y",
            "/\\evil.example",
            "/a%2",
            "/%zz",
            "/a$",
            "/a$-",
            "/a${",
        ] {
            let error = refused("~^(.*)$", to, Purpose::Redirect);
            assert!(matches!(error, RuleError::Target { .. }), "{to}: {error}");
        }
        let error = refused("~^(.*)$", "/$2", Purpose::Redirect);
        assert!(
            matches!(error, RuleError::Variable { ref name, .. } if name == "2"),
            "{error}"
        );
        for to in ["https://h/", "/a?b", "/a#b"] {
            let error = refused("/a", to, Purpose::Rewrite);
            assert!(matches!(error, RuleError::Target { .. }), "{to}: {error}");
        }
    }

    #[test]
    fn an_address_that_grows_too_long_leads_nowhere() {
        let pattern: Pattern = "~^(.*)$".parse().expect("a pattern");
        let many = format!("/{}", "$1".repeat(3_000));
        let template = Template::parse(&many, &pattern, Purpose::Rewrite).expect("a target");
        let path = [b"/", &[b'\n'; 4_000][..]].concat();
        let matched = pattern.find(&path).expect("it is for it");
        assert_eq!(template.path(&path, &matched), None);
        let query = format!("/a?{}", "$1".repeat(3_000));
        let template = Template::parse(&query, &pattern, Purpose::Redirect).expect("a target");
        assert_eq!(template.location("/a", &path, &matched, None, ""), None);
    }
}
