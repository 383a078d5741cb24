//! A Rust file cut into code and comments, with just enough structure for the rules.
//!
//! The scanner knows strings (plain, raw, byte, C), character literals, lifetimes, line and nested
//! block comments. From what remains it makes tokens: words and single punctuation marks, each with
//! its line. Test regions are what a `#[cfg(test)]` or `#[test]` item covers.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::{Error, workspace};

/// A word or a single punctuation mark of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The word or mark.
    pub text: String,
    /// Line, from 1.
    pub line: usize,
}

/// One file, scanned.
pub struct Source {
    /// Path relative to the workspace's root, with `/`.
    pub path: String,
    /// The lines as written.
    pub lines: Vec<String>,
    /// Per line, the comments only.
    pub comments: Vec<String>,
    /// The code.
    pub tokens: Vec<Token>,
    /// The literals of the code in order, with their quotes; in `tokens` each is a pair of quotes.
    literals: Vec<String>,
    /// The whole file is for tests: its path says so, or a `#[cfg(test)] mod` names it.
    pub is_test_file: bool,
    test_regions: Vec<Range<usize>>,
}

impl Source {
    /// Scans `text`, the contents of the file at `path`.
    #[must_use]
    pub fn new(path: &Path, text: &str) -> Self {
        let (code, comments, literals) = separate(text);
        let tokens = tokens(&code);
        let test_regions = test_regions(&tokens);
        let path = path.to_string_lossy().replace('\\', "/");
        let lines: Vec<String> = text.lines().map(String::from).collect();
        let mut comments: Vec<String> = comments.split('\n').map(String::from).collect();
        comments.resize(lines.len(), String::new());
        let is_test_file = is_test_path(&path);
        Self {
            path,
            lines,
            comments,
            tokens,
            literals,
            is_test_file,
            test_regions,
        }
    }

    /// Whether `line` (from 1) belongs to tests.
    #[must_use]
    pub fn is_test(&self, line: usize) -> bool {
        self.is_test_file
            || self
                .test_regions
                .iter()
                .any(|region| region.contains(&line))
    }

    /// The word at `index`, or the empty string past the end.
    #[must_use]
    pub fn word(&self, index: usize) -> &str {
        self.tokens
            .get(index)
            .map_or("", |token| token.text.as_str())
    }

    /// Whether the tokens from `index` on spell `words`.
    #[must_use]
    pub fn spells(&self, index: usize, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(offset, word)| self.word(index + offset) == *word)
    }

    /// The contents of the string literal whose first quote is the token at `index`.
    #[must_use]
    pub fn literal(&self, index: usize) -> Option<&str> {
        if self.word(index) != "\"" {
            return None;
        }
        let quotes = self.tokens[..index]
            .iter()
            .filter(|token| token.text == "\"")
            .count();
        let literal = self.literals.get(quotes / 2)?;
        Some(
            literal
                .trim_start_matches(['r', 'b', 'c', '#'])
                .trim_end_matches('#')
                .trim_matches('"'),
        )
    }

    /// The comments of `line` (from 1), or the empty string.
    #[must_use]
    pub fn comment(&self, line: usize) -> &str {
        line.checked_sub(1)
            .and_then(|index| self.comments.get(index))
            .map_or("", String::as_str)
    }

    /// Whether `line` (from 1) holds nothing but a comment.
    #[must_use]
    pub fn is_comment_only(&self, line: usize) -> bool {
        let text = line.checked_sub(1).and_then(|index| self.lines.get(index));
        text.is_some_and(|text| text.trim_start().starts_with("//"))
    }

    /// The text of the `//!` header.
    #[must_use]
    pub fn header(&self) -> String {
        let header = self.lines.iter().take_while(|line| line.starts_with("//!"));
        header
            .map(|line| line.trim_start_matches("//!"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The files that this file declares as modules for tests only.
    #[must_use]
    pub fn test_modules(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.path);
        let directory = path.parent().unwrap_or(Path::new(""));
        let stem = path.file_stem().unwrap_or_default();
        let home = match stem.to_str() {
            Some("lib" | "main" | "mod") => directory.to_path_buf(),
            _ => directory.join(stem),
        };
        let declared = (0..self.tokens.len()).filter(|&index| {
            self.word(index) == "mod"
                && self.word(index + 2) == ";"
                && self.is_test(self.tokens[index].line)
        });
        let names = declared.map(|index| self.word(index + 1).to_string());
        names
            .flat_map(|name| {
                [
                    home.join(format!("{name}.rs")),
                    home.join(name).join("mod.rs"),
                ]
            })
            .collect()
    }
}

/// Reads every Rust file of the workspace at `root`, knowing which modules were declared for tests
/// only.
///
/// # Errors
/// A file that cannot be read.
pub fn read_all(root: &Path) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for path in workspace::files(root, |path| path.extension().is_some_and(|end| end == "rs"))? {
        sources.push(Source::new(&path, &workspace::text(&root.join(&path))?));
    }
    let test_files: HashSet<PathBuf> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        source.is_test_file |= test_files.contains(Path::new(&source.path));
    }
    Ok(sources)
}

/// The index of the token that closes the bracket opened at `open`, or the last index.
#[must_use]
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len().saturating_sub(1)
}

fn is_test_path(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop().unwrap_or_default();
    let named = file == "tests.rs" || file.ends_with("_tests.rs");
    named
        || path.starts_with("e2e/")
        || parts
            .iter()
            .any(|part| matches!(*part, "tests" | "benches"))
}

/// What a stretch of characters is.
#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits `text` into code and comments of the same number of lines, and the literals, which are in
/// neither.
fn separate(text: &str) -> (String, String, Vec<String>) {
    let characters: Vec<char> = text.chars().collect();
    let (mut code, mut comments, mut literals) = (String::new(), String::new(), Vec::new());
    let mut at = 0;
    while at < characters.len() {
        let (kind, length) = stretch(&characters, at);
        let passed = &characters[at..at + length];
        at += length;
        match kind {
            Kind::Code => code.extend(passed),
            Kind::Comment => comments.extend(passed),
            // A literal stays visible as a pair of quotes.
            Kind::Literal => {
                code.push_str("\"\"");
                literals.push(passed.iter().collect());
            }
        }
        if !matches!(kind, Kind::Code) {
            push_line_ends(&mut code, passed);
        }
        if !matches!(kind, Kind::Comment) {
            push_line_ends(&mut comments, passed);
        }
    }
    (code, comments, literals)
}

/// What begins at `at`, and how long it is.
fn stretch(characters: &[char], at: usize) -> (Kind, usize) {
    let rest = &characters[at..];
    if rest.starts_with(&['/', '/']) {
        return (
            Kind::Comment,
            rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        );
    }
    if rest.starts_with(&['/', '*']) {
        return (Kind::Comment, block_comment_length(rest));
    }
    match literal_length(characters, at) {
        Some(length) => (Kind::Literal, length),
        None => (Kind::Code, 1),
    }
}

fn push_line_ends(text: &mut String, passed: &[char]) {
    text.extend(passed.iter().filter(|&&c| c == '\n'));
}

fn block_comment_length(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        if rest[at..].starts_with(&['/', '*']) {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(&['*', '/']) {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string or character literal that begins at `at`, or `None` when none does.
fn literal_length(characters: &[char], at: usize) -> Option<usize> {
    let rest = &characters[at..];
    let after_word = at > 0 && is_word(characters[at - 1]);
    match rest[0] {
        '"' => Some(quoted_length(rest, '"')),
        '\'' => character_length(rest),
        'r' | 'b' | 'c' if !after_word => {
            let prefix = rest
                .iter()
                .take_while(|c| matches!(c, 'r' | 'b' | 'c'))
                .count();
            let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
            let raw = rest[..prefix].contains(&'r');
            match rest.get(prefix + hashes) {
                Some('"') if raw => Some(raw_length(rest, prefix + hashes, hashes)),
                Some('"') if hashes == 0 => Some(prefix + quoted_length(&rest[prefix..], '"')),
                Some('\'') if hashes == 0 && rest[..prefix] == ['b'] => {
                    Some(prefix + quoted_length(&rest[prefix..], '\''))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn quoted_length(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw_length(rest: &[char], quote: usize, hashes: usize) -> usize {
    let mut at = quote + 1;
    while at < rest.len() {
        let closes = rest[at + 1..]
            .iter()
            .take(hashes)
            .filter(|&&c| c == '#')
            .count()
            == hashes;
        if rest[at] == '"' && closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}

/// A character literal, or `None` for a lifetime.
fn character_length(rest: &[char]) -> Option<usize> {
    let lifetime = rest.get(1).is_some_and(|&c| is_word(c)) && rest.get(2) != Some(&'\'');
    (!lifetime).then(|| quoted_length(rest, '\''))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut in_word = false;
    let mut line = 1;
    for c in code.chars() {
        if c == '\n' {
            line += 1;
        }
        match (is_word(c), in_word, tokens.last_mut()) {
            (true, true, Some(last)) => last.text.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(Token {
                text: c.to_string(),
                line,
            }),
        }
        in_word = is_word(c);
    }
    tokens
}

/// The lines that `#[cfg(test)]` and `#[test]` items cover.
fn test_regions(tokens: &[Token]) -> Vec<Range<usize>> {
    let mut regions = Vec::new();
    let mut index = 0;
    while index + 1 < tokens.len() {
        let opens = tokens[index].text == "#" && tokens[index + 1].text == "[";
        if !opens {
            index += 1;
            continue;
        }
        let first = tokens[index].line;
        let end = closing(tokens, index + 1);
        if !tokens[index + 1..end]
            .iter()
            .any(|token| token.text == "test")
        {
            index = end + 1;
            continue;
        }
        let last = item_end(tokens, end + 1);
        regions.push(first..tokens[last].line + 1);
        index = last + 1;
    }
    regions
}

/// The last token of the item that starts at `index`: its `;`, or the brace that closes its body.
fn item_end(tokens: &[Token], mut index: usize) -> usize {
    while index < tokens.len() {
        match tokens[index].text.as_str() {
            ";" => return index,
            "{" => return closing(tokens, index),
            "(" | "[" => index = closing(tokens, index) + 1,
            _ => index += 1,
        }
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(Path::new("structures/src/sample.rs"), text)
    }

    fn words(text: &str) -> Vec<String> {
        source(text)
            .tokens
            .into_iter()
            .map(|token| token.text)
            .collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let text =
            "a \"unsafe {\" b // unsafe\n/* x /* unsafe */ y */ c r#\"un\"safe\"# b\"q\\\"\" 'd' d";
        assert_eq!(
            words(text),
            [
                "a", "\"", "\"", "b", "c", "\"", "\"", "\"", "\"", "\"", "\"", "d"
            ]
        );
    }

    #[test]
    fn a_literal_is_found_by_its_first_quote() {
        let sample = source("a('x', \"one\", r#\"two\"#);");
        let found: Vec<_> = (0..sample.tokens.len())
            .filter_map(|at| sample.literal(at))
            .collect();
        assert_eq!(
            found[2..5],
            ["one", "one", "two"],
            "each by both of its quotes"
        );
        assert_eq!(sample.literal(0), None);
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        assert_eq!(
            words("&'a T '\\'' '{' b'}' x"),
            ["&", "'", "a", "T", "\"", "\"", "\"", "\"", "\"", "\"", "x"]
        );
    }

    #[test]
    fn lines_survive_strings_and_comments_over_several_lines() {
        let sample = source("/* one\ntwo */ a\n\"three\nfour\" b\n// five\nc");
        let places: Vec<_> = sample
            .tokens
            .iter()
            .map(|t| (t.text.as_str(), t.line))
            .collect();
        assert_eq!(places, [("a", 2), ("\"", 3), ("\"", 3), ("b", 4), ("c", 6)]);
        assert_eq!(sample.comment(1), "/* one");
        assert_eq!(sample.comment(5), "// five");
    }

    #[test]
    fn a_test_region_ends_with_its_item() {
        let sample = source("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        let tests: Vec<bool> = (1..=6).map(|line| sample.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_condition_that_is_not_test_is_not_a_test_region() {
        let sample = source("#[cfg(loom)]\nfn a() {}\n#[cfg(all(test, loom))]\nfn b() {}\n");
        assert!(!sample.is_test(2));
        assert!(sample.is_test(4));
    }

    #[test]
    fn a_module_declared_for_tests_is_named_with_its_path() {
        let sample = source("#[cfg(test)]\nmod checks;\nmod other;\n");
        assert_eq!(
            sample.test_modules(),
            [
                PathBuf::from("structures/src/sample/checks.rs"),
                PathBuf::from("structures/src/sample/checks/mod.rs"),
            ]
        );
    }
}
