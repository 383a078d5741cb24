//! Rule `exhaustive`: a public enum of a published crate can grow, or says why it does not.
//!
//! A new case of an enum without `#[non_exhaustive]` breaks each `match` of a user. Where users are
//! better off with all cases, because the protocol has no other or because they have to act on
//! each, a line above the enum has `// Exhaustive: reason`. An enum without cases is a marker.

use super::Fault;
use super::source::Source;

/// What no user can depend on; the rest is published.
const UNPUBLISHED: &[&str] = &["bench/", "e2e/", "examples/", "fuzz/", "testkit/", "xtask/"];
const MARKER: &str = "Exhaustive: ";

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let is_unpublished = |place: &&str| source.path.starts_with(*place);
    if UNPUBLISHED.iter().any(is_unpublished) || !source.path.contains("src/") {
        return;
    }
    for index in (0..source.tokens.len()).filter(|&at| source.spells(at, &["pub", "enum"])) {
        let (line, name) = (source.tokens[index].line, source.word(index + 2));
        if source.is_test(line) || has_no_case(source, index + 3) {
            continue;
        }
        // Its attributes: what stands after the item before.
        let attributes = (0..index).rev().map(|at| source.word(at));
        let mut attributes = attributes.take_while(|word| !matches!(*word, ";" | "{" | "}"));
        if !attributes.any(|word| word == "non_exhaustive") && !is_explained(source, line) {
            let message =
                format!("`{name}` is public: `#[non_exhaustive]`, or `// {MARKER}reason` above it");
            faults.push(source.fault(line, "exhaustive", &message));
        }
    }
}

/// Whether the braces after the generics at `from` are empty.
fn has_no_case(source: &Source, from: usize) -> bool {
    let open = (from..source.tokens.len()).find(|&at| source.word(at) == "{");
    open.is_some_and(|open| source.word(open + 1) == "}")
}

/// Whether a reason stands among the comments and attributes before `line`.
fn is_explained(source: &Source, line: usize) -> bool {
    let lines: Vec<&str> = source.lines().map(|(_, text)| text.trim_start()).collect();
    let before = lines[..line - 1].iter().rev();
    let mut head = before.take_while(|text| text.starts_with("//") || text.starts_with("#["));
    head.any(|text| {
        let reason = text
            .strip_prefix("// ")
            .and_then(|it| it.strip_prefix(MARKER));
        reason.is_some_and(|reason| !reason.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = faults(check, path, text);
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_public_enum_without_a_reason_is_a_fault() {
        for text in [
            "/// A.\n#[derive(Debug)]\npub enum A<T> { B(T) }",
            "#[non_exhaustive]\nstruct A;\npub enum B { C }",
            "// Exhaustive: it has all.\npub struct A {}\npub enum B { C }",
            "// Exhaustive: \n#[derive(Debug)]\npub enum B { C }",
            "// Exhaustive: the item after a line between.\n\npub enum B { C }",
            "/// Exhaustive: for users to read.\n///\npub enum B { C }",
        ] {
            assert_eq!(lines("engine/src/a.rs", text), [3], "{text}");
        }
    }

    #[test]
    fn an_enum_that_may_grow_or_explains_itself_is_fine() {
        for text in [
            "#[derive(Debug)]\n#[non_exhaustive]\npub enum A { B }",
            "#[derive(Debug)]\n// Exhaustive: the RFC has these two.\npub enum A { B, C }",
            "// Exhaustive: it has all.\n#[derive(Debug)]\npub enum A { B }",
            "pub enum A {}",
            "pub(crate) enum A { B }\nenum C { D }",
            "#[cfg(test)]\nmod tests {\npub enum A { B }\n}",
        ] {
            assert_eq!(lines("engine/src/a.rs", text), [0; 0], "{text}");
        }
        let bare = "pub enum A { B }";
        assert_eq!(lines("protocols/http/src/router/a.rs", bare), [1]);
        assert_eq!(lines("testkit/src/a.rs", bare), [0; 0]);
        assert_eq!(lines("engine/tests/it/a.rs", bare), [0; 0]);
        assert_eq!(lines("pairing/examples/a.rs", bare), [0; 0]);
    }
}
