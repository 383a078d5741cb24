//! A Rust file cut into tokens, comments and tests, with just enough structure for the rules.
//!
//! Tokens are those of `proc_macro2`, each with its line: words, literals, brackets and single
//! punctuation marks. Doc comments and line comments are comments; block comments are not used
//! here. A test is what a `#[cfg(test)]` or `#[test]` item covers.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};

use super::Fault;
use crate::workspace;

/// A word, a literal, a bracket or a single punctuation mark of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// From 1.
    pub(crate) line: usize,
}

/// One file, scanned.
pub(crate) struct Source {
    /// Path relative to the workspace's root.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// The whole file is for tests: its path shows it, or a `#[cfg(test)] mod` names it.
    pub(crate) is_test_file: bool,
    /// Per line, its comment from `//` on.
    comments: Vec<String>,
    tests: Vec<Range<usize>>,
}

impl Source {
    /// Scans `text`, the contents of the file at `path`.
    pub(crate) fn new(path: &Path, text: &str) -> Result<Self> {
        let path = path.to_string_lossy().into_owned();
        let stream: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        // What literals hold is no comment.
        let mut lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
        let (mut tokens, mut tests) = (Vec::new(), Vec::new());
        scan(stream, &mut lines, &mut tokens, &mut tests);
        let comment = |line: &Vec<char>| {
            let start = line.windows(2).position(|pair| pair == ['/', '/']);
            start.map_or(String::new(), |start| line[start..].iter().collect())
        };
        Ok(Self {
            is_test_file: is_test_path(&path),
            comments: lines.iter().map(comment).collect(),
            text: text.to_owned(),
            path,
            tokens,
            tests,
        })
    }

    /// A fault in this file.
    pub(crate) fn fault(&self, line: usize, rule: &'static str, message: &str) -> Fault {
        Fault::new(&self.path, line, rule, message)
    }

    /// Whether `line` (from 1) belongs to tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test_file || self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The word at `index`, or the empty string past the end.
    pub(crate) fn word(&self, index: usize) -> &str {
        let token = self.tokens.get(index);
        token.map_or("", |token| token.text.as_str())
    }

    /// Whether the tokens from `index` on spell `words`.
    pub(crate) fn spells(&self, index: usize, words: &[&str]) -> bool {
        let mut numbered = (index..).zip(words);
        numbered.all(|(index, word)| self.word(index) == *word)
    }

    /// The contents of the plain string literal at `index`.
    pub(crate) fn literal(&self, index: usize) -> Option<&str> {
        self.word(index).strip_prefix('"')?.strip_suffix('"')
    }

    /// The comment of `line` (from 1), or the empty string.
    pub(crate) fn comment(&self, line: usize) -> &str {
        let index = line.checked_sub(1);
        let comment = index.and_then(|index| self.comments.get(index));
        comment.map_or("", String::as_str)
    }

    /// The text of the `//!` header.
    pub(crate) fn header(&self) -> String {
        let header = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        header.collect::<Vec<_>>().join("\n")
    }

    /// The files that this file declares as modules for tests only.
    fn test_modules(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.path);
        let home = match path.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs" | "mod.rs") => path.with_file_name(""),
            _ => path.with_extension(""),
        };
        let is_declared = |&index: &usize| {
            let Token { text, line } = &self.tokens[index];
            text == "mod" && self.word(index + 2) == ";" && self.is_test(*line)
        };
        let declared = (0..self.tokens.len()).filter(is_declared);
        let modules = declared.map(|index| home.join(self.word(index + 1)));
        modules
            .flat_map(|module| [module.with_extension("rs"), module.join("mod.rs")])
            .collect()
    }
}

/// Every Rust file of the workspace. They are read once in a process, which takes seconds where it
/// is not optimised.
pub(crate) fn all() -> Result<&'static [Source]> {
    static ALL: OnceLock<Result<Vec<Source>>> = OnceLock::new();
    let sources = ALL.get_or_init(|| read_all(&workspace::root()));
    sources
        .as_deref()
        .map_err(|error| anyhow!("the sources: {error:#}"))
}

/// Reads them, knowing which modules were declared for tests only.
fn read_all(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in workspace::files(root, |path| path.extension().is_some_and(|end| end == "rs"))? {
        sources.push(Source::new(&path, &workspace::text(&root.join(&path))?)?);
    }
    let test_files: HashSet<PathBuf> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        source.is_test_file |= test_files.contains(Path::new(&source.path));
    }
    Ok(sources)
}

fn is_test_path(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop().unwrap_or_default();
    let named = file == "tests.rs" || file.ends_with("_tests.rs");
    let is_test = |part: &&str| matches!(*part, "tests" | "benches");
    named || path.starts_with("e2e/") || parts.iter().any(is_test)
}

/// Collects tokens and tests, and blanks what literals hold.
fn scan(
    stream: TokenStream,
    lines: &mut [Vec<char>],
    tokens: &mut Vec<Token>,
    tests: &mut Vec<Range<usize>>,
) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        let LineColumn { line, column } = tree.span().start();
        let mut push = |text: String, span: Span| {
            let line = span.start().line;
            tokens.push(Token { text, line });
        };
        match tree {
            // A doc comment is the tokens of an attribute, all at the place of its slashes.
            _ if lines[line - 1].get(column) == Some(&'/') && !is_slash(tree) => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket | Delimiter::None => ("[", "]"),
                };
                push(open.into(), group.span_open());
                let is_attribute = index > 0 && is_mark(&trees[index - 1], '#');
                if is_attribute && is_for_tests(group.stream()) {
                    let rest = trees[index..].iter();
                    let end = rest.skip(1).find(|tree| ends_item(tree)).unwrap_or(tree);
                    tests.push(line..end.span().end().line + 1);
                }
                scan(group.stream(), lines, tokens, tests);
                tokens.push(Token {
                    text: close.into(),
                    line: group.span_close().start().line,
                });
            }
            TokenTree::Literal(literal) => {
                push(literal.to_string(), literal.span());
                blank(lines, literal.span());
            }
            other => push(other.to_string(), other.span()),
        }
    }
}

fn is_mark(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_slash(tree: &TokenTree) -> bool {
    is_mark(tree, '/')
}

/// Whether an item ends here: with its `;`, or the braces of its body.
fn ends_item(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
        || is_mark(tree, ';')
}

/// Whether an attribute is `test`, or a `cfg` that includes it.
pub(crate) fn is_for_tests(attribute: TokenStream) -> bool {
    let mut trees = attribute.into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Ident(word)), None) => word == "test",
        (Some(TokenTree::Ident(word)), Some(TokenTree::Group(condition))) => {
            word == "cfg" && asks_for_tests(condition.stream())
        }
        _ => false,
    }
}

/// Whether `test` stands in a condition outside of every `not(...)`.
fn asks_for_tests(condition: TokenStream) -> bool {
    let mut is_negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(word) => {
            is_negated = word == "not";
            word == "test"
        }
        TokenTree::Group(group) => !is_negated && asks_for_tests(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn blank(lines: &mut [Vec<char>], span: Span) {
    let (start, end) = (span.start(), span.end());
    for (number, line) in (start.line..).zip(&mut lines[start.line - 1..end.line]) {
        let first = if number == start.line {
            start.column
        } else {
            0
        };
        let last = if number == end.line {
            end.column
        } else {
            line.len()
        };
        line[first..last].fill(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(Path::new("structures/src/sample.rs"), text).expect("Rust")
    }

    #[test]
    fn literals_and_comments_are_no_words() {
        let sample = source("/// unsafe //\nfn a() { b(\"unsafe // {\\\"\", 'd') } // unsafe\n");
        let words: Vec<&str> = (0..).map(|at| sample.word(at)).take(13).collect();
        let expected = ["fn", "a", "(", ")", "{", "b", "("];
        assert_eq!(words[..7], expected);
        assert_eq!(words[8..], [",", "'d'", ")", "}", ""]);
        assert_eq!(sample.literal(7), Some("unsafe // {\\\""));
        assert_eq!(sample.literal(1), None);
        assert_eq!(sample.comment(1), "/// unsafe //");
        assert_eq!(sample.comment(2), "// unsafe");
    }

    #[test]
    fn lines_survive_literals_over_several_lines() {
        let sample = source("a\n\"three // x\nfour\" b // é\n// five\nc");
        let lines: Vec<usize> = sample.tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 5]);
        assert_eq!(sample.comment(2), "");
        assert_eq!(sample.comment(3), "// é");
    }

    #[test]
    fn a_test_ends_with_its_item() {
        let sample = source("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        let tests: Vec<bool> = (1..=6).map(|line| sample.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_condition_that_is_not_test_covers_no_test() {
        let text = "#[cfg(not(test))]\nfn a() {}\n#[cfg(all(test, loom))]\nfn b() {}\n";
        let sample = source(text);
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
