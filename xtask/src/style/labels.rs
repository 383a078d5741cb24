//! Rules `label` and `alone`: a label of an invariant or an edge has one meaning, and words beside
//! it.
//!
//! A label is one to three capitals and a number, `Q2`; that of an edge has an `E` before the
//! number, `QE1`. The header of a file, or of an item, gives it its meaning: `//! - Q2: ...`,
//! `//! - QE1 publish: ...` or `//! Invariant Q2: ...`. Within a crate no other header gives it
//! another one. A comment that is about a label says a few words more, so that a reader need not
//! look it up. Labels alone in brackets are of the same crate.

use std::collections::HashMap;

use super::Fault;
use super::source::Source;

/// A comment that names a label has at least so many words beside.
const WORDS_MIN: usize = 3;
/// Not counted: every comment of that kind has it.
const MARKS: &[&str] = &["ORDER", "SAFETY", "Relaxed"];

/// Labels with their meanings: by crate and label, where it stands.
type Meanings<'a> = HashMap<(&'a str, &'a str), String>;

pub(super) fn check(sources: &[Source], faults: &mut Vec<Fault>) {
    let mut meanings = Meanings::new();
    for source in sources {
        for (line, text) in source.lines() {
            let Some(label) = defined(text) else { continue };
            let place = format!("{}:{line}", source.path);
            if let Some(other) = meanings.insert((crate_of(source), label), place) {
                let message = format!("{label} has a meaning in {other} already");
                faults.push(source.fault(line, "label", &message));
            }
        }
    }
    for source in sources {
        for (line, comment) in comments(source) {
            check_comment(source, line, &comment, &meanings, faults);
        }
    }
}

fn check_comment(
    source: &Source,
    line: usize,
    comment: &str,
    meanings: &Meanings<'_>,
    faults: &mut Vec<Fault>,
) {
    let is_known = |label: &&str| meanings.contains_key(&(crate_of(source), *label));
    let is_beside = |word: &&str| !is_label(word) && !MARKS.contains(word);
    if let Some(label) = labels(comment).find(is_known)
        && words(comment).filter(is_beside).count() < WORDS_MIN
    {
        let message = format!("{label} stands alone: say in a few words what it is about");
        faults.push(source.fault(line, "alone", &message));
    }
    for inside in comment.split('(').skip(1) {
        let inside = inside.split(')').next().unwrap_or_default();
        let is_of_labels = words(inside).all(is_label);
        let unknown = labels(inside).find(|label| is_of_labels && !is_known(label));
        if let Some(label) = unknown {
            let message = format!("no header of this crate gives {label} a meaning");
            faults.push(source.fault(line, "label", &message));
        }
    }
}

/// The comments of a file, each with its first line. Comments on lines of their own are one as long
/// as no other line is between them.
fn comments(source: &Source) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (line, text) in source.lines() {
        let comment = source.comment(line);
        let is_own_line = !comment.is_empty() && text.trim_start().starts_with("//");
        match comments.last_mut() {
            _ if comment.is_empty() => {}
            Some((_, last)) if continues && is_own_line => {
                last.push('\n');
                last.push_str(comment);
            }
            _ => comments.push((line, comment.to_owned())),
        }
        continues = is_own_line;
    }
    comments
}

/// The labels in a text.
pub(super) fn labels(text: &str) -> impl Iterator<Item = &str> {
    words(text).filter(|word| is_label(word))
}

/// Whether a label is that of an edge.
pub(super) fn is_edge(label: &str) -> bool {
    let letters = label.trim_end_matches(|letter: char| letter.is_ascii_digit());
    letters.ends_with('E')
}

/// The label that a line of a header gives a meaning.
pub(super) fn defined(line: &str) -> Option<&str> {
    let line = line
        .strip_prefix("//! ")
        .or_else(|| line.strip_prefix("/// "))?;
    let item = line.strip_prefix("- ");
    let meaning = item.or_else(|| line.strip_prefix("Invariant "))?;
    let label = meaning.split([':', ' ']).next()?;
    is_label(label).then_some(label)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| !word.is_empty())
}

fn is_label(word: &str) -> bool {
    let number = word.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    let letters = word.len() - number.len();
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&letters) && (1..=2).contains(&number.len()) && is_number
}

/// The directory of the crate that a file belongs to.
fn crate_of(source: &Source) -> &str {
    let inside = ["/src/", "/tests/", "/examples/", "/benches/"];
    let ends = inside.into_iter().filter_map(|part| source.path.find(part));
    &source.path[..ends.min().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<(String, usize, &'static str)> {
        let source =
            |(path, text): &(&str, &str)| Source::new(Path::new(path), text).expect("Rust");
        let sources: Vec<_> = files.iter().map(source).collect();
        let mut faults = Vec::new();
        check(&sources, &mut faults);
        let shown = faults.into_iter().map(|it| (it.file, it.line, it.rule));
        shown.collect()
    }

    #[test]
    fn a_label_has_one_meaning_in_its_crate() {
        let one = (
            "a/src/b.rs",
            "//! - Q1: at most one of them is there.\nfn b() {}",
        );
        let same = (
            "a/src/c/d.rs",
            "//! - Q1 push: (Release) -> pop (Acquire).\nfn d() {}",
        );
        let invariant = (
            "a/src/e.rs",
            "//! B.\n//! Invariant Q1: this is one, too.\nfn e() {}",
        );
        let other = (
            "b/src/b.rs",
            "//! - Q1: at most two of them are there.\nfn b() {}",
        );
        assert_eq!(faults(&[one, other]), []);
        assert_eq!(faults(&[one, same]), [("a/src/c/d.rs".into(), 1, "label")]);
        assert_eq!(
            faults(&[one, invariant]),
            [("a/src/e.rs".into(), 2, "label")]
        );
    }

    #[test]
    fn a_label_does_not_stand_alone() {
        let rules = |comment: &str| {
            let text = format!("//! - Q1: at most one of them is there.\nfn b() {{\n{comment}\n}}");
            let faults = faults(&[("a/src/b.rs", &text)]);
            faults
                .into_iter()
                .map(|it| (it.1, it.2))
                .collect::<Vec<_>>()
        };
        for comment in [
            "// Q1.",
            "c(); // ORDER: Relaxed: Q1.",
            "// Q1\nc();\n// more of them",
        ] {
            assert_eq!(rules(comment), [(3, "alone")], "{comment}");
        }
        for comment in [
            "// Q1: there is one already.",
            "// ORDER: as there\n// is one (Q1).",
            "// HTTP2, U1.",
            "let a = \"Q1\";",
        ] {
            assert_eq!(rules(comment), [], "{comment}");
        }
        assert_eq!(rules("// There is no such one (Q1, Q2)."), [(3, "label")]);
        assert_eq!(rules("// There is one elsewhere (Q2 of `b`)."), []);
    }

    #[test]
    fn edges_are_told_from_other_labels() {
        assert_eq!(defined("//! - QE1 publish: push -> pop."), Some("QE1"));
        assert_eq!(defined("//! - Qe1: no."), None);
        assert_eq!(defined("//! Q1: no."), None);
        assert!(is_edge("E1") && is_edge("QE12") && !is_edge("Q1") && !is_edge("EW1"));
    }
}
