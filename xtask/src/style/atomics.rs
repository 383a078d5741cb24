//! Rules `order` and `edge`: an ordering says which edge it is.
//!
//! In structures, driver and engine, outside tests: every fence, and every ordering stronger than
//! `Relaxed`, has a comment `// ORDER: …` in its statement or in the lines above it. `Relaxed`
//! needs none where it counts or looks (`fetch_*`, `load`, a failed exchange); where it publishes
//! (`store`, `swap`, a successful exchange) it is a weakening and is explained too, unless a fence
//! right behind it is. A constant of type `Ordering` has a name for an explanation.
//!
//! An edge named in such a comment, as `E1`, stands in the header of the file or of a module above.

use std::collections::HashMap;
use std::path::Path;

use super::source::{Source, Token};
use super::{Fault, labels};

/// Crates in which orderings are explained.
const CRATES: &[&str] = &["structures/", "driver/", "engine/"];
/// Where the shim is: it passes orderings on and chooses none.
const SHIM: &str = "structures/src/sync.rs";
/// How far below an ordering its statement may end and still explain it there.
const TRAILING_LINES_MAX: usize = 2;
/// A fence so close behind a store belongs to it.
const FENCE_LINES_BEHIND_MAX: usize = 3;
/// Lines of code that may stand between the comment and its statement; lines of comment do not
/// count.
const CODE_LINES_BETWEEN_MAX: usize = 4;
const STRONG: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// Reports orderings without a reason.
pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    if !is_checked(source) || source.path == SHIM {
        return;
    }
    let imported = imports_orderings(source);
    let mut last_line = 0;
    for index in 0..source.tokens.len() {
        let line = source.tokens[index].line;
        if line == last_line || source.is_test(line) || in_use_statement(source, index) {
            continue;
        }
        let Some(what) = needs_reason(source, index, imported) else {
            continue;
        };
        if !is_explained(source, index) && !names_a_constant(source, index) {
            last_line = line;
            let message = format!("{what} without an `// ORDER:` comment that names its edge");
            faults.push(source.fault(line, "order", &message));
        }
    }
}

/// What at `index` wants a reason, if anything does.
fn needs_reason(source: &Source, index: usize, imported: bool) -> Option<String> {
    let word = source.word(index);
    let qualified = index >= 3 && source.spells(index - 3, &["Ordering", ":", ":"]);
    let after_path = index >= 1 && source.word(index - 1) == ":";
    if word == "fence" && source.word(index + 1) == "(" && !is_definition(source, index) {
        return Some("a fence".into());
    }
    let alone = imported && !after_path;
    if !qualified && !alone {
        return None;
    }
    if STRONG.contains(&word) {
        return Some(format!("`{word}`"));
    }
    let publishes = |token: &Token| {
        token.text == "store" || token.text == "swap" || token.text.starts_with("compare_exchange")
    };
    let statement = &source.tokens[statement_start(source, index)..index];
    let call = statement.iter().rposition(|token| {
        publishes(token) || token.text == "load" || token.text.starts_with("fetch_")
    });
    let call = &statement[call?];
    // The last argument of an exchange is the ordering of a failure, which publishes nothing.
    let is_last = source.spells(index + 1, &[")"]) || source.spells(index + 1, &[",", ")"]);
    let is_failure = is_last && call.text.starts_with("compare_exchange");
    let weakens = word == "Relaxed" && publishes(call) && !is_failure;
    weakens.then(|| "`Relaxed` on a write that publishes".into())
}

/// Whether the statement at `index` is `const NAME: Ordering = …`, whatever braces it has.
fn names_a_constant(source: &Source, index: usize) -> bool {
    let before = source.tokens[..index]
        .iter()
        .rposition(|token| token.text == "const");
    before.is_some_and(|at| {
        let ended = source.tokens[at..index]
            .iter()
            .any(|token| token.text == ";");
        !ended && source.spells(at + 2, &[":", "Ordering", "="])
    })
}

fn is_definition(source: &Source, index: usize) -> bool {
    index >= 1 && source.word(index - 1) == "fn"
}

/// Whether `Acquire` and the like stand alone in this file: imported from `Ordering`.
fn imports_orderings(source: &Source) -> bool {
    (0..source.tokens.len()).any(|index| {
        source.spells(index, &["Ordering", ":", ":"])
            && matches!(source.word(index + 3), "{" | "*")
            && in_use_statement(source, index)
    })
}

fn in_use_statement(source: &Source, index: usize) -> bool {
    let before = source.tokens[..index].iter().rev();
    let mut statement = before.take_while(|token| token.text != ";" && token.text != "}");
    statement.any(|token| token.text == "use")
}

/// The index of the first token of the statement that `index` is in.
fn statement_start(source: &Source, index: usize) -> usize {
    let ends = |token: &Token| matches!(token.text.as_str(), ";" | "{" | "}");
    source.tokens[..index]
        .iter()
        .rposition(ends)
        .map_or(0, |end| end + 1)
}

fn is_explained(source: &Source, index: usize) -> bool {
    let start = source.tokens[statement_start(source, index)].line;
    let here = source.tokens[index].line;
    // The comment may trail the statement's last line.
    let end = source.tokens[index..]
        .iter()
        .find(|token| token.text == ";")
        .map_or(here, |token| token.line.min(here + TRAILING_LINES_MAX));
    // A relaxed store whose order a fence right behind it gives is explained with that fence.
    let behind = end + 1..=end + FENCE_LINES_BEHIND_MAX;
    let fence = behind.into_iter().find(|line| names_fence(source, *line));
    let in_statement = (start..=fence.unwrap_or(end)).any(|line| says_order(source, line));
    let mut code_lines = 0;
    let above = (1..start).rev().take_while(|&line| {
        code_lines += usize::from(source.tokens.iter().any(|token| token.line == line));
        code_lines <= CODE_LINES_BETWEEN_MAX
    });
    in_statement || above.into_iter().any(|line| says_order(source, line))
}

fn names_fence(source: &Source, line: usize) -> bool {
    source
        .tokens
        .iter()
        .any(|token| token.line == line && token.text == "fence")
}

fn says_order(source: &Source, line: usize) -> bool {
    let reason = source
        .comment(line)
        .split_once("ORDER:")
        .map_or("", |(_, reason)| reason);
    !reason.trim().is_empty()
}

/// Reports reasons that name an edge which no header explains.
pub(super) fn check_edges(sources: &[Source], faults: &mut Vec<Fault>) {
    let headers: HashMap<&str, String> = sources
        .iter()
        .map(|source| (source.path.as_str(), source.header()))
        .collect();
    for source in sources.iter().filter(|source| is_checked(source)) {
        let places = modules_above(&source.path);
        let texts = places
            .iter()
            .filter_map(|place| headers.get(place.as_str()));
        let known: Vec<&str> = texts.flat_map(|text| edge_names(text)).collect();
        for (line, _) in source.lines() {
            let Some((_, reason)) = source.comment(line).split_once("ORDER:") else {
                continue;
            };
            for edge in edge_names(reason).filter(|edge| !known.contains(edge)) {
                let message = format!("no header of this file or above it names edge {edge}");
                faults.push(source.fault(line, "edge", &message));
            }
        }
    }
}

fn is_checked(source: &Source) -> bool {
    CRATES
        .iter()
        .any(|directory| source.path.starts_with(directory))
}

/// The file itself and the modules that hold it: `a/b.rs` is in `a.rs` or `a/mod.rs`, and in
/// `lib.rs`.
fn modules_above(path: &str) -> Vec<String> {
    let mut places = vec![path.to_string()];
    let mut directory = Path::new(path).parent();
    while let Some(home) = directory.filter(|home| home.file_name().is_some()) {
        places.extend(["mod.rs", "lib.rs"].map(|file| home.join(file).display().to_string()));
        places.push(format!("{}.rs", home.display()));
        directory = home.parent();
    }
    places
}

/// Words like `E1` and `QE1`.
fn edge_names(text: &str) -> impl Iterator<Item = &str> {
    labels::labels(text).filter(|label| labels::is_edge(label))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(Path::new(path), text).expect("Rust")
    }

    fn faults_in(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        let source = source(path, text);
        check(&source, &mut faults);
        check_edges(&[source], &mut faults);
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }

    fn faults(text: &str) -> Vec<(usize, &'static str)> {
        faults_in("structures/src/a.rs", text)
    }

    #[test]
    fn a_strong_ordering_needs_a_reason() {
        assert_eq!(
            faults("fn a() {\n    x.load(Ordering::Acquire);\n}"),
            [(2, "order")]
        );
        assert_eq!(
            faults("fn a() {\n    // ORDER: publish.\n    x.load(Ordering::Acquire);\n}"),
            []
        );
        assert_eq!(
            faults("fn a() {\n    x.load(Ordering::Acquire); // ORDER: publish.\n}"),
            []
        );
    }

    #[test]
    fn an_empty_reason_is_none() {
        assert_eq!(
            faults("fn a() {\n    // ORDER:\n    x.load(Ordering::Acquire);\n}").len(),
            1
        );
    }

    #[test]
    fn imported_orderings_count_too() {
        let text = "use std::Ordering::{Acquire, Relaxed};\nfn a() {\n    x.load(Acquire);\n}";
        assert_eq!(faults(text), [(3, "order")]);
        assert_eq!(faults("fn a() {\n    Then::Release;\n    Release;\n}"), []);
    }

    #[test]
    fn a_fence_needs_a_reason() {
        assert_eq!(
            faults("fn a() {\n    fence(Ordering::SeqCst);\n}"),
            [(2, "order")]
        );
    }

    #[test]
    fn relaxed_may_count_and_look_but_not_publish() {
        assert_eq!(
            faults("fn a() {\n    x.fetch_add(1, Ordering::Relaxed);\n}"),
            []
        );
        assert_eq!(faults("fn a() {\n    x.load(Ordering::Relaxed);\n}"), []);
        assert_eq!(
            faults("fn a() {\n    x.store(1, Ordering::Relaxed);\n}"),
            [(2, "order")]
        );
        let exchange = "x.compare_exchange(1,\n 2,\n Ordering::Relaxed,\n Ordering::Relaxed);";
        assert_eq!(faults(exchange), [(3, "order")]);
    }

    #[test]
    fn a_store_is_explained_by_the_fence_behind_it() {
        let store = "    x.store(true, Ordering::Relaxed);\n";
        let fence = "    // ORDER: asleep before the look.\n    fence(Ordering::SeqCst);\n";
        assert_eq!(faults(&format!("fn a() {{\n{store}{fence}}}")), []);
        assert_eq!(
            faults(&format!("fn a() {{\n{store}    b();\n    c();\n{fence}}}")).len(),
            1
        );
    }

    #[test]
    fn the_reason_may_stand_above_a_long_statement_and_a_long_comment() {
        let comment = "    // ORDER: E1 publish.\n".to_string() + &"    // more\n".repeat(9);
        let statement = "    let a = x\n        .y\n        .load(Ordering::Acquire);\n";
        let header = "//! E1 publish: push to take.\n";
        assert_eq!(
            faults(&format!("{header}fn a() {{\n{comment}{statement}}}")),
            []
        );
    }

    #[test]
    fn a_reason_too_far_above_does_not_count() {
        let text = format!(
            "fn a() {{\n // ORDER: no.\n{} x.load(Ordering::Acquire);\n}}",
            " b();\n".repeat(CODE_LINES_BETWEEN_MAX + 1)
        );
        assert_eq!(faults(&text).len(), 1);
    }

    #[test]
    fn a_named_constant_explains_itself() {
        assert_eq!(
            faults("const PUSH: Ordering = Ordering::Release;\nfn a() {}"),
            []
        );
        let choice = "if cfg!(drill = \"x\") {\n Ordering::Acquire\n} else {\n Ordering::AcqRel\n}";
        assert_eq!(faults(&format!("const TAKE: Ordering = {choice};")), []);
        assert_eq!(
            faults("const A: u8 = 1;\nfn a() { x.load(Ordering::Acquire); }").len(),
            1
        );
    }

    #[test]
    fn a_failed_exchange_may_be_relaxed() {
        assert_eq!(
            faults("fn a() { x.compare_exchange(1, 2, PUSH, Ordering::Relaxed); }"),
            []
        );
        let strong = "x.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Acquire,);";
        assert_eq!(faults(&format!("fn a() {{ {strong} }}")).len(), 1);
    }

    #[test]
    fn an_edge_must_be_in_a_header_of_the_file_or_above() {
        let code = "fn a() {\n    // ORDER: E2 publish.\n    x.load(Ordering::Acquire);\n}";
        assert_eq!(faults(&format!("//! - E1 publish\n{code}")), [(3, "edge")]);
        assert_eq!(faults(&format!("//! - E2 publish\n{code}")), []);
        let child = source("structures/src/worker_pool/worker.rs", code);
        let parent = source("structures/src/worker_pool.rs", "//! - E2 publish\n");
        let other = source("structures/src/queue.rs", "//! - E2 publish\n");
        let mut faults = Vec::new();
        check_edges(&[child, parent], &mut faults);
        assert_eq!(faults, []);
        let child = source("structures/src/worker_pool/worker.rs", code);
        check_edges(&[child, other], &mut faults);
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn tests_and_other_crates_are_free() {
        let text = "#[cfg(test)]\nmod tests {\n    fn a() { x.load(Ordering::SeqCst); }\n}";
        assert_eq!(faults(text), []);
        assert_eq!(
            faults_in("cli/src/a.rs", "fn a() { x.load(Ordering::SeqCst); }"),
            []
        );
    }
}
