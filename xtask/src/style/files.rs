//! Rules `header`, `file-length` and `columns`: a file opens with what it is, and a reader sees a
//! whole thing at once.
//!
//! The length of functions is clippy's `too_many_lines`; rustfmt leaves lines of comments and
//! literals as long as they are. A file that is better long has `// LONG: reason` among its first
//! lines.

use super::Fault;
use super::source::Source;

/// A header shorter than this says nothing.
const HEADER_WORDS_MIN: usize = 4;
const FILE_LINES_MAX: usize = 600;
/// Characters of a line.
const COLUMNS_MAX: usize = 100;
/// Where a file's `LONG:` marker may stand.
const FILE_MARKER_LINES: usize = 60;

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    if source.header().split_whitespace().count() < HEADER_WORDS_MIN {
        let message = "the file does not open with a `//!` header that states its contract";
        faults.push(source.fault(1, "header", message));
    }
    let lines = source.lines().count();
    let explained = (1..=FILE_MARKER_LINES).any(|line| is_marked(source, line));
    if lines > FILE_LINES_MAX && !explained {
        let message = format!("{lines} lines; split it ({FILE_LINES_MAX} at most)");
        faults.push(source.fault(1, "file-length", &message));
    }
    for (line, text) in source.lines() {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX && !is_one_long_word(text) {
            let message = format!("{columns} columns ({COLUMNS_MAX} at most)");
            faults.push(source.fault(line, "columns", &message));
        }
    }
}

fn is_marked(source: &Source, line: usize) -> bool {
    let reason = source.comment(line).split_once("LONG: ");
    reason.is_some_and(|(_, reason)| !reason.trim().is_empty())
}

/// A link in a comment cannot be broken.
fn is_one_long_word(text: &str) -> bool {
    let comment = text.trim_start().strip_prefix("//");
    let words = comment.map(|rest| rest.trim_start_matches(['/', '!']));
    words.is_some_and(|words| words.split_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn rules(text: &str) -> Vec<(usize, &'static str)> {
        faults(check, "engine/src/a.rs", text)
    }

    /// A file with a header and `lines` lines in all.
    fn file(lines: usize) -> String {
        format!(
            "//! Slots: a table of slots.\n{}",
            "// x\n".repeat(lines - 1)
        )
    }

    #[test]
    fn a_missing_header_and_a_placeholder_are_faults() {
        for text in ["use std::fs;\n", "", "// A comment is not a header.\n"] {
            assert_eq!(rules(text), [(1, "header")]);
        }
        assert_eq!(rules("//! Placeholder.\nfn main() {}\n"), [(1, "header")]);
        assert_eq!(rules(&file(1)), []);
    }

    #[test]
    fn a_file_may_have_600_lines_and_not_601() {
        assert_eq!(rules(&file(600)), []);
        assert_eq!(rules(&file(601)), [(1, "file-length")]);
        assert_eq!(
            rules(&file(601).replacen("// x", "// LONG: generated.", 1)),
            []
        );
    }

    #[test]
    fn a_line_may_have_100_columns_and_not_101() {
        let line = |width: usize| format!("{}\nconst A: {} = 1;", file(1), "é".repeat(width));
        assert_eq!(rules(&line(86)), []);
        assert_eq!(rules(&line(87)), [(3, "columns")]);
        let link = format!("{}/// <https://{}>\n", file(1), "x".repeat(120));
        assert_eq!(rules(&link), []);
    }
}
