//! Rules `unsafe` and `forbid`: unsafe code lives in two places, and every other crate forbids it.
//!
//! The places are the driver (the kernel's rings) and the one file of structures that hands out
//! memory. A crate that holds such code denies it at its root, so that a second place needs an
//! `allow` that a reviewer sees; every other crate root forbids it.

use super::Fault;
use super::source::Source;

/// Where the word may stand.
const PLACES: &[&str] = &["driver/src/", "structures/src/memory.rs"];
/// Crate roots that cannot forbid, and what they say instead.
const DENYING_ROOTS: &[&str] = &["structures/src/lib.rs"];
const FREE_ROOTS: &[&str] = &["driver/src/lib.rs"];

/// Reports unsafe code out of place and crate roots that do not forbid it.
pub fn check(source: &Source, faults: &mut Vec<Fault>) {
    let mut report = |line: usize, rule: &'static str, message: &str| {
        let (file, message) = (source.path.clone(), message.to_string());
        faults.push(Fault {
            file,
            line,
            rule,
            message,
        });
    };
    if !PLACES.iter().any(|place| source.path.starts_with(place)) {
        for token in source.tokens.iter().filter(|token| token.text == "unsafe") {
            report(
                token.line,
                "unsafe",
                "unsafe code belongs in driver or structures' memory.rs",
            );
        }
    }
    if !is_crate_root(&source.path) || FREE_ROOTS.contains(&source.path.as_str()) {
        return;
    }
    let has = |level: &str| {
        let words = ["#", "!", "[", level, "(", "unsafe_code"];
        (0..source.tokens.len()).any(|index| source.spells(index, &words))
    };
    if DENYING_ROOTS.contains(&source.path.as_str()) {
        if !has("deny") && !has("forbid") {
            report(1, "forbid", "the crate root lacks #![deny(unsafe_code)]");
        }
    } else if !has("forbid") {
        report(1, "forbid", "the crate root lacks #![forbid(unsafe_code)]");
    }
}

/// Roots of libraries and binaries; roots of integration tests inherit the word check only.
fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let library = matches!(parts.as_slice(), [.., "src", "lib.rs" | "main.rs"]);
    let binary = matches!(
        parts.as_slice(),
        [.., "src", "bin", _] | [.., "bin", _, "main.rs"]
    );
    library || binary
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        check(&Source::new(Path::new(path), text), &mut faults);
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }

    #[test]
    fn unsafe_out_of_place_is_a_fault_even_in_tests() {
        let text = "//! A.\nfn a() { unsafe { b() } }";
        assert_eq!(rules("engine/src/a.rs", text), [(2, "unsafe")]);
        assert_eq!(rules("structures/src/pool.rs", text), [(2, "unsafe")]);
        assert_eq!(rules("structures/tests/a.rs", text), [(2, "unsafe")]);
        assert_eq!(rules("driver/src/uring/ring.rs", text), []);
        assert_eq!(rules("structures/src/memory.rs", text), []);
    }

    #[test]
    fn the_word_in_strings_comments_and_attributes_is_fine() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";";
        assert_eq!(rules("engine/src/lib.rs", text), []);
    }

    #[test]
    fn a_crate_root_forbids() {
        assert_eq!(
            rules("services/echo/src/lib.rs", "//! A.\n"),
            [(1, "forbid")]
        );
        assert_eq!(rules("e2e/src/bin/a.rs", "//! A.\n"), [(1, "forbid")]);
        assert_eq!(
            rules("cli/src/main.rs", "#![deny(unsafe_code)]"),
            [(1, "forbid")]
        );
        assert_eq!(rules("driver/src/lib.rs", "//! A.\n"), []);
        assert_eq!(rules("structures/src/lib.rs", "//! A.\n"), [(1, "forbid")]);
        assert_eq!(rules("structures/src/lib.rs", "#![deny(unsafe_code)]"), []);
    }

    #[test]
    fn a_forbid_in_a_comment_does_not_count() {
        assert_eq!(
            rules("cli/src/main.rs", "// #![forbid(unsafe_code)]").len(),
            1
        );
    }
}
