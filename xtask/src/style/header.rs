//! Rule `header`: every Rust file opens with a `//!` header that says something.

use super::Fault;
use super::source::Source;

/// A header shorter than this says nothing.
const HEADER_WORDS_MIN: usize = 4;

/// Reports a file whose first line is not `//!`, or whose header is a stand-in.
pub fn check(source: &Source, faults: &mut Vec<Fault>) {
    let opens = source
        .lines
        .first()
        .is_some_and(|line| line.starts_with("//!"));
    let words = source.header().split_whitespace().count();
    let message = match (opens, words < HEADER_WORDS_MIN) {
        (false, _) => "the file does not open with a `//!` header",
        (true, true) => "the header says nothing: state the contract",
        (true, false) => return,
    };
    faults.push(Fault {
        file: source.path.clone(),
        line: 1,
        rule: "header",
        message: message.into(),
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn faults(text: &str) -> usize {
        let mut faults = Vec::new();
        check(
            &Source::new(Path::new("engine/src/a.rs"), text),
            &mut faults,
        );
        faults.len()
    }

    #[test]
    fn a_missing_header_is_a_fault() {
        assert_eq!(faults("use std::fs;\n"), 1);
        assert_eq!(faults(""), 1);
        assert_eq!(faults("// A comment is not a header at all.\n"), 1);
    }

    #[test]
    fn a_stand_in_is_a_fault() {
        assert_eq!(faults("//! Placeholder.\nfn main() {}\n"), 1);
    }

    #[test]
    fn a_header_that_says_something_is_fine() {
        assert_eq!(faults("//! Slots: a table keyed by generation.\n"), 0);
    }
}
