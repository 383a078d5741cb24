//! Which paths a rule is for.
//!
//! A pattern is compared with the path as the service reads it: percent-decoded once, without the
//! query, with the slash at its end if the client sent one. So `/%61dmin` is `/admin`, and no
//! spelling of a path avoids a rule. Expressions see bytes: `.` is any byte, a line feed as well,
//! and `\w` is ASCII.
//!
//! Cost: an expression is linear in the path (the crate `regex` does not backtrack), and compiled
//! within `EXPRESSION_BYTES_MAX`. What a glob begins with is compared before its expression runs.

use std::str::FromStr;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::error::RuleError;
use crate::error::FilesError;
use crate::limits::{EXPRESSION_BYTES_MAX, HASH_LENGTH_MAX, HASH_LENGTH_MIN};
use crate::target::{Hidden, Target, decode, name_of};

/// The name of what the first `*` of a glob stands for.
pub(super) const SPLAT: &str = "splat";

/// The paths that a rule is for.
///
/// The text forms are those of [`Pattern::from_str`]; the functions say which form is meant.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// With the slash at its start.
    Exact(Vec<u8>),
    /// Without the slash at its end: empty for every path.
    Prefix(Vec<u8>),
    Expression {
        regex: Regex,
        /// What every match begins with.
        start: Vec<u8>,
    },
    Hashed,
}

/// What a pattern found in a path.
#[derive(Debug)]
pub(crate) enum Matched<'p> {
    Whole,
    /// The path below a prefix, without a slash at its start.
    Rest(&'p [u8]),
    Groups(Captures<'p>),
}

impl Pattern {
    /// One path, with or without a slash at its end as it is written. It may be percent-encoded.
    ///
    /// # Errors
    /// [`RuleError::Path`] if no request can have this path.
    pub fn exact(path: &str) -> Result<Self, RuleError> {
        let kind = Kind::Exact(path_of(path)?.address());
        Ok(Self::new(path, kind))
    }

    /// A directory with all that is below it: `/old` is for `/old`, `/old/` and `/old/a`, and not
    /// for `/older`. A slash at the end changes nothing.
    ///
    /// # Errors
    /// [`RuleError::Path`] if no request can have this path.
    pub fn prefix(path: &str) -> Result<Self, RuleError> {
        let mut base = path_of(path)?.address();
        if base.ends_with(b"/") {
            base.pop();
        }
        Ok(Self::new(path, Kind::Prefix(base)))
    }

    /// A path in which `*` stands for any text, with slashes, and `:name` for one name. The first
    /// `*` is the variable `$splat`, and a name is a variable, too.
    ///
    /// # Errors
    /// [`RuleError::Path`] if it does not begin with a slash or its escapes are broken,
    /// [`RuleError::Expression`] if a name is there twice.
    pub fn glob(glob: &str) -> Result<Self, RuleError> {
        let (expression, start) = expression_of(glob)?;
        let regex = compile(glob, &expression)?;
        Ok(Self::new(glob, Kind::Expression { regex, start }))
    }

    /// A regular expression of the crate [`regex`](https://docs.rs/regex), which is found anywhere
    /// in the path unless it has `^` and `$`. Its groups are the variables `$1` and `${name}`.
    ///
    /// # Errors
    /// [`RuleError::Expression`] if it cannot be read, or is too large when it is compiled.
    pub fn regex(expression: &str) -> Result<Self, RuleError> {
        let regex = compile(expression, expression)?;
        let start = start_of(expression).into();
        let text = format!("~{expression}");
        Ok(Self::new(&text, Kind::Expression { regex, start }))
    }

    /// Files with a hash of their content in the name, before the ending: `app.3f2a9c1b.js` and
    /// `app-QX4T7RZA.css`. The hash follows a dot or a dash, and is 8 to 64 hexadecimal digits, or
    /// 8 characters of base 32 (`A` to `Z` and `2` to `7`) as esbuild has them; with a letter and
    /// a digit, so that a date or a word is none. Bundlers with other hashes (Vite) have a
    /// directory for such files: use a [prefix](Pattern::prefix).
    #[must_use]
    pub fn hashed() -> Self {
        Self::new("hashed", Kind::Hashed)
    }

    /// Every path.
    #[must_use]
    pub fn any() -> Self {
        Self::new("/*", Kind::Prefix(Vec::new()))
    }

    fn new(text: &str, kind: Kind) -> Self {
        let text = text.to_owned();
        Self { text, kind }
    }

    /// The pattern as [`Pattern::from_str`] reads it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// What it finds in a path, which begins with a slash and is decoded.
    pub(crate) fn find<'p>(&self, path: &'p [u8]) -> Option<Matched<'p>> {
        match &self.kind {
            Kind::Exact(exact) => (exact == path).then_some(Matched::Whole),
            Kind::Prefix(base) => rest_below(base, path).map(Matched::Rest),
            Kind::Expression { regex, start } => {
                // Most rules are for other paths, and finding groups allocates.
                let is_for = path.starts_with(start) && regex.is_match(path);
                is_for.then(|| regex.captures(path))?.map(Matched::Groups)
            }
            Kind::Hashed => is_hashed(name_of(path)).then_some(Matched::Whole),
        }
    }

    /// Paths that it is for, to try a rule with; none of an expression.
    pub(crate) fn probes(&self) -> Vec<Vec<u8>> {
        match &self.kind {
            Kind::Exact(path) => vec![path.clone()],
            Kind::Prefix(base) if base.is_empty() => vec![b"/".to_vec(), b"/x".to_vec()],
            Kind::Prefix(base) => vec![base.clone(), [base, &b"/x"[..]].concat()],
            Kind::Expression { .. } | Kind::Hashed => Vec::new(),
        }
    }

    /// Whether a target may use this variable.
    pub(crate) fn sets(&self, variable: &str) -> bool {
        match &self.kind {
            Kind::Exact(_) | Kind::Hashed => false,
            Kind::Prefix(_) => variable == "rest" || variable == SPLAT,
            Kind::Expression { regex, .. } => match variable.parse::<usize>() {
                Ok(number) => number < regex.captures_len(),
                Err(_) => regex.capture_names().flatten().any(|name| name == variable),
            },
        }
    }
}

/// | text                       | pattern                             |
/// |----------------------------|-------------------------------------|
/// | `~^/user/(\d+)$`           | [`regex`](Pattern::regex)           |
/// | `hashed`                   | [`hashed`](Pattern::hashed)         |
/// | `/old/*`                   | [`prefix`](Pattern::prefix)         |
/// | `/img/*.png`, `/post/:id`  | [`glob`](Pattern::glob)             |
/// | `/old`                     | [`exact`](Pattern::exact)           |
impl FromStr for Pattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if let Some(expression) = text.strip_prefix('~') {
            return Self::regex(expression);
        }
        if text == "hashed" {
            return Ok(Self::hashed());
        }
        if text.contains(['{', '}']) {
            return Err(RuleError::Path {
                text: text.to_owned(),
                reason: "a name is written :name, any text *, and a brace %7B or %7D",
            });
        }
        if let Some(base) = text.strip_suffix("/*")
            && wildcard_in(base).is_none()
        {
            let base = if base.is_empty() { "/" } else { base };
            let kind = Self::prefix(base)?.kind;
            return Ok(Self::new(text, kind));
        }
        match wildcard_in(text).is_some() {
            true => Self::glob(text),
            false => Self::exact(text),
        }
    }
}

impl Matched<'_> {
    /// The text of a variable, decoded; empty if its group took no part.
    pub(crate) fn variable(&self, name: &str) -> &[u8] {
        match self {
            Self::Whole => b"",
            Self::Rest(rest) => rest,
            Self::Groups(groups) => {
                let group = match name.parse() {
                    Ok(number) => groups.get(number),
                    Err(_) => groups.name(name),
                };
                group.map_or(b"", |group| group.as_bytes())
            }
        }
    }
}

/// The path of a file beneath the root, decoded, with or without a slash at its start.
pub(crate) fn file_path(text: &str) -> Result<Vec<u8>, RuleError> {
    let address = format!("/{}", text.trim_start_matches('/'));
    Ok(path_of(&address)?.path().to_vec())
}

fn path_of(text: &str) -> Result<Target<'_>, RuleError> {
    let refuse = |reason| RuleError::Path {
        text: text.to_owned(),
        reason,
    };
    if !text.starts_with('/') {
        return Err(refuse("it does not begin with a slash"));
    }
    match Target::parse(text.as_bytes(), Hidden::Served) {
        Ok(target) if target.query().is_none() => Ok(target),
        Ok(_) => Err(refuse("rules do not see the query")),
        Err(FilesError::MalformedTarget) => Err(refuse(
            "it has a dot segment, a broken escape, a NUL or a #",
        )),
        Err(_) => Err(refuse(
            "it has an empty or overlong name, or an encoded slash",
        )),
    }
}

fn compile(text: &str, expression: &str) -> Result<Regex, RuleError> {
    let built = RegexBuilder::new(expression)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(EXPRESSION_BYTES_MAX)
        .dfa_size_limit(EXPRESSION_BYTES_MAX)
        .build();
    built.map_err(|error| {
        let error = error.to_string();
        // The last line has the cause; those above it draw where it is.
        let cause = error.lines().last().unwrap_or_default();
        RuleError::Expression {
            text: text.to_owned(),
            cause: cause.trim_start_matches("error: ").to_owned(),
        }
    })
}

/// The plain text that every match of an expression begins with, as far as it is simple to see:
/// what follows `^`, where there is no alternative. Comparing it costs a tenth of a search.
fn start_of(expression: &str) -> &str {
    let anchored = expression
        .strip_prefix('^')
        .filter(|text| !text.contains('|'));
    let anchored = anchored.unwrap_or_default();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/-_".contains(character);
    let end = anchored.find(|it| !is_plain(it)).unwrap_or(anchored.len());
    // The last character may be there once, never or often.
    let is_repeated = anchored[end..].starts_with(['?', '*', '+', '{']);
    &anchored[..end.saturating_sub(usize::from(is_repeated))]
}

/// Where the first wildcard of a glob is.
fn wildcard_in(glob: &str) -> Option<usize> {
    let begins = |at: usize| {
        let left = &glob[at..];
        let name = left.strip_prefix(':');
        left.starts_with('*') || name.is_some_and(|name| name.starts_with(is_letter))
    };
    glob.char_indices().map(|(at, _)| at).find(|at| begins(*at))
}

fn is_letter(character: char) -> bool {
    character.is_ascii_alphabetic()
}

/// The expression of a glob, and what every match begins with.
fn expression_of(glob: &str) -> Result<(String, Vec<u8>), RuleError> {
    let refuse = |reason| RuleError::Path {
        text: glob.to_owned(),
        reason,
    };
    if !glob.starts_with('/') {
        return Err(refuse("it does not begin with a slash"));
    }
    let mut expression = String::from("^");
    let mut start = None;
    let mut splats = 0;
    let mut left = glob;
    while !left.is_empty() {
        let end = wildcard_in(left).unwrap_or(left.len());
        let mut literal = Vec::new();
        decode(&left.as_bytes()[..end], &mut literal).map_err(|_| refuse("a broken escape"))?;
        literal
            .iter()
            .for_each(|byte| push_literal(*byte, &mut expression));
        start.get_or_insert(literal);
        left = &left[end..];
        if let Some(after) = left.strip_prefix('*') {
            splats += 1;
            expression.push_str(if splats == 1 { "(?<splat>.*)" } else { "(.*)" });
            left = after;
        } else if let Some(after) = left.strip_prefix(':') {
            let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let length = after
                .find(|character| !is_part(character))
                .unwrap_or(after.len());
            expression.extend(["(?<", &after[..length], ">[^/]+)"]);
            left = &after[length..];
        }
    }
    expression.push('$');
    Ok((expression, start.unwrap_or_default()))
}

fn push_literal(byte: u8, expression: &mut String) {
    match byte {
        b'/' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => expression.push(byte.into()),
        other => expression.extend(["\\x", &format!("{other:02x}")]),
    }
}

fn rest_below<'p>(base: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(base)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn is_hashed(name: &[u8]) -> bool {
    let Some(ending) = name.iter().rposition(|byte| *byte == b'.') else {
        return false;
    };
    let stem = &name[..ending];
    let Some(at) = stem.iter().rposition(|byte| matches!(byte, b'.' | b'-')) else {
        return false;
    };
    let (before, hash) = (&stem[..at], &stem[at + 1..]);
    let is_hex = (HASH_LENGTH_MIN..=HASH_LENGTH_MAX).contains(&hash.len())
        && hash.iter().all(u8::is_ascii_hexdigit);
    let is_base32 = hash.len() == HASH_LENGTH_MIN
        && hash
            .iter()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    let is_mixed = hash.iter().any(u8::is_ascii_digit) && hash.iter().any(u8::is_ascii_alphabetic);
    !before.is_empty() && is_mixed && (is_hex || is_base32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().expect("a pattern")
    }

    fn is_for(text: &str, path: &str) -> bool {
        pattern(text).find(path.as_bytes()).is_some()
    }

    #[test]
    fn an_exact_path_is_for_itself_however_it_is_written() {
        assert!(is_for("/a", "/a") && is_for("/", "/") && is_for("/a/", "/a/"));
        assert!(is_for("/a%20b", "/a b") && is_for("/a b", "/a b") && is_for("/%c3%a9", "/é"));
        for path in ["/a/", "/ab", "/", "/A"] {
            assert!(!is_for("/a", path), "{path}");
        }
    }

    #[test]
    fn a_prefix_ends_where_a_name_ends() {
        for path in ["/old", "/old/", "/old/a", "/old/a/b/"] {
            assert!(is_for("/old/*", path), "{path}");
        }
        for path in ["/older", "/ol", "/", "/x/old/"] {
            assert!(!is_for("/old/*", path), "{path}");
        }
        assert!(is_for("/*", "/") && is_for("/*", "/a/b"));
        let slash = Pattern::prefix("/old/").expect("a pattern");
        assert!(slash.find(b"/old").is_some() && slash.find(b"/older").is_none());
        let found = pattern("/old/*");
        let found = found.find(b"/old/a/b/").expect("below");
        assert_eq!(found.variable("rest"), b"a/b/");
    }

    #[test]
    fn a_glob_stands_for_whole_paths() {
        assert!(is_for("/img/*.png", "/img/a/b.png") && is_for("/*.js", "/a.js"));
        assert!(!is_for("/img/*.png", "/img/a.png.exe") && !is_for("/img/*.png", "/x/img/a.png"));
        assert!(!is_for("/a.*", "/axb"), "a dot is a dot");
        assert!(
            is_for("/a/*.png", "/a/\n.png"),
            "a line feed is text like any other"
        );
        let post = pattern("/post/:year/:name/*");
        let found = post.find(b"/post/2024/title/x/y").expect("it is for it");
        assert_eq!(found.variable("year"), b"2024");
        assert_eq!(found.variable("name"), b"title");
        assert_eq!(found.variable("splat"), b"x/y");
        assert!(post.find(b"/post/2024/title").is_none());
        assert!(!is_for("/%ff*", "/x"));
        assert!(
            pattern("/%ff*").find(b"/\xffx").is_some(),
            "names are bytes"
        );
    }

    #[test]
    fn an_expression_is_found_anywhere_and_sees_all_bytes() {
        assert!(is_for("~/b", "/a/b/c") && !is_for("~^/b", "/a/b/c"));
        assert!(
            is_for("~^/a.b$", "/a\nb"),
            "no escaped line feed avoids a rule"
        );
        assert!(pattern("~^/a.b$").find(b"/a\xffb").is_some());
        let groups = pattern("~^/(?<user>[a-z]+)/(\\d+)$");
        let found = groups.find(b"/me/7").expect("it is for it");
        assert_eq!(
            (found.variable("user"), found.variable("2")),
            (&b"me"[..], &b"7"[..])
        );
        assert!(groups.sets("user") && groups.sets("2") && !groups.sets("3"));
        assert!(!groups.sets("rest"));
    }

    #[test]
    fn what_an_expression_begins_with_never_hides_a_match() {
        for (expression, start) in [
            ("^/x7/(\\d+)$", "/x7/"),
            ("^/ab?", "/a"),
            ("^/ab*c", "/a"),
            ("^/ab{0,2}", "/a"),
            ("^/a.b", "/a"),
            ("^/a|/b", ""),
            ("^(?i)/a", ""),
            ("(?i)^/a", ""),
            ("/a", ""),
            ("^", ""),
            ("^?", ""),
        ] {
            assert_eq!(start_of(expression), start, "{expression}");
        }
        assert!(is_for("~^/ab?$", "/a") && is_for("~^/a|/b", "/x/b") && is_for("~(?i)^/a", "/A"));
    }

    #[test]
    fn hashed_names_have_a_hash_and_not_a_date_or_a_word() {
        for path in [
            "/app.3f2a9c1b.js",
            "/a/app-QX4T7RZA.css",
            "/x.0123456789abcdef0123.woff2",
        ] {
            assert!(is_for("hashed", path), "{path}");
        }
        for path in [
            "/app.js",
            "/report-20240101.pdf",
            "/jquery-slideshow.js",
            "/a-deadbeef.js",
            "/notes-Version2.txt",
            "/app.3f2a9c1.js",
            "/.3f2a9c1b.js",
            "/app.3f2a9c1b",
            "/3f2a9c1b.js/",
            "/",
        ] {
            assert!(!is_for("hashed", path), "{path}");
        }
        let longest = format!("/a.{}1f.js", "0".repeat(HASH_LENGTH_MAX - 2));
        assert!(is_for("hashed", &longest));
        assert!(!is_for("hashed", &longest.replace("1f", "1ff")));
    }

    #[test]
    fn what_no_request_can_have_is_refused_with_its_reason() {
        for text in [
            "a", "", "/a?b", "/a/../b", "/a%", "/a%00", "/a//b", "/a%2fb", "/a#b", "*",
        ] {
            let error = text.parse::<Pattern>().expect_err(text);
            assert!(matches!(error, RuleError::Path { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn expressions_that_would_be_large_are_refused_at_once() {
        for text in ["~(", "~a{9999}{9999}", "~(((a{40}){40}){40})", "/:a/:a"] {
            let error = text.parse::<Pattern>().expect_err(text);
            assert!(
                matches!(error, RuleError::Expression { .. }),
                "{text}: {error}"
            );
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn an_expression_that_others_backtrack_in_is_linear() {
        let evil = pattern("~^/(a+)+$");
        let path = format!("/{}!", "a".repeat(4_000));
        assert!(evil.find(path.as_bytes()).is_none());
    }
}
