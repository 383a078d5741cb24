//! Rules `file-length`, `function-length` and `columns`: a reader sees a whole thing at once.
//!
//! A file or function that is better long says so: `// LONG: reason` among a file's first lines, or
//! just above or inside the head of a function.

use super::Fault;
use super::source::{Source, closing};

/// Lines of a file.
pub const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from `fn` to its closing brace, must stay below this.
pub const FUNCTION_LINES_END: usize = 70;
/// Characters of a line.
pub const COLUMNS_MAX: usize = 100;
/// Where a file's `LONG:` marker may stand.
const FILE_MARKER_LINES: usize = 60;
/// How far above `fn` a function's `LONG:` marker may stand (attributes and doc comments between).
const FUNCTION_MARKER_LINES: usize = 3;

/// Reports files, functions and lines that are too long.
pub fn check(source: &Source, faults: &mut Vec<Fault>) {
    let mut report = |line: usize, rule: &'static str, message: String| {
        faults.push(Fault {
            file: source.path.clone(),
            line,
            rule,
            message,
        });
    };
    let lines = source.lines.len();
    let explained = (1..=FILE_MARKER_LINES).any(|line| is_marked(source, line));
    if lines > FILE_LINES_MAX && !explained {
        report(
            1,
            "file-length",
            format!("{lines} lines; split it ({FILE_LINES_MAX} at most)"),
        );
    }
    for (index, text) in source.lines.iter().enumerate() {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX && !is_one_long_word(text) {
            report(
                index + 1,
                "columns",
                format!("{columns} columns ({COLUMNS_MAX} at most)"),
            );
        }
    }
    for function in functions(source) {
        let explained = function.first.saturating_sub(FUNCTION_MARKER_LINES)..=function.open;
        let lines = function.last - function.first + 1;
        if lines >= FUNCTION_LINES_END && !explained.into_iter().any(|l| is_marked(source, l)) {
            let message = format!(
                "fn {} has {lines} lines (under {FUNCTION_LINES_END})",
                function.name
            );
            report(function.first, "function-length", message);
        }
    }
}

/// A function with a body.
struct Function {
    name: String,
    first: usize,
    open: usize,
    last: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let tokens = &source.tokens;
    let mut functions = Vec::new();
    for index in 0..tokens.len() {
        // `fn(u32) -> u32` is a type; a function's name follows the word.
        if tokens[index].text != "fn" || source.word(index + 1) == "(" {
            continue;
        }
        let mut at = index + 1;
        while at < tokens.len() && !matches!(tokens[at].text.as_str(), "{" | ";") {
            at = match tokens[at].text.as_str() {
                "(" | "[" => closing(tokens, at) + 1,
                _ => at + 1,
            };
        }
        if source.word(at) == "{" {
            functions.push(Function {
                name: source.word(index + 1).to_string(),
                first: tokens[index].line,
                open: tokens[at].line,
                last: tokens[closing(tokens, at)].line,
            });
        }
    }
    functions
}

fn is_marked(source: &Source, line: usize) -> bool {
    let reason = source
        .comment(line)
        .split_once("LONG: ")
        .map_or("", |(_, reason)| reason);
    !reason.trim().is_empty()
}

/// A link in a comment cannot be broken.
fn is_one_long_word(text: &str) -> bool {
    let comment = text
        .trim_start()
        .strip_prefix("//")
        .map(|rest| rest.trim_start_matches(['/', '!']));
    comment.is_some_and(|words| words.split_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        check(
            &Source::new(Path::new("engine/src/a.rs"), text),
            &mut faults,
        );
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }

    /// A function of `lines` lines in all.
    fn function(lines: usize) -> String {
        format!(
            "fn long(a: [u8; 2]) -> u32\n{{\n{}}}\n",
            "    a();\n".repeat(lines - 3)
        )
    }

    #[test]
    fn a_function_may_have_69_lines_and_not_70() {
        assert_eq!(rules(&function(69)), []);
        assert_eq!(
            rules(&format!("\n{}", function(70))),
            [(2, "function-length")]
        );
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_hide_a_long_function() {
        let body = "    let _ = \"}\"; // }\n".repeat(70);
        assert_eq!(
            rules(&format!("fn long() {{\n{body}}}\n")),
            [(1, "function-length")]
        );
    }

    #[test]
    fn a_long_function_that_says_why_is_fine() {
        let text = format!("// LONG: one arm per opcode.\n#[inline]\n{}", function(200));
        assert_eq!(rules(&text), []);
        assert_eq!(rules(&format!("// LONG: \n{}", function(200))).len(), 1);
    }

    #[test]
    fn function_types_and_declarations_have_no_body() {
        let text = format!(
            "struct A {{ make: fn(u32) -> u32 }}\n{}",
            "const X: u8 = 1;\n".repeat(80)
        );
        assert_eq!(rules(&text), []);
        assert_eq!(
            rules(&format!("trait A {{ fn a(); }}\n{}", "// x\n".repeat(80))),
            []
        );
    }

    #[test]
    fn a_file_may_have_600_lines_and_not_601() {
        assert_eq!(rules(&"// x\n".repeat(600)), []);
        assert_eq!(rules(&"// x\n".repeat(601)), [(1, "file-length")]);
        assert_eq!(
            rules(&format!(
                "// LONG: generated table.\n{}",
                "// x\n".repeat(601)
            )),
            []
        );
    }

    #[test]
    fn a_line_may_have_100_columns_and_not_101() {
        assert_eq!(rules(&format!("const A: {} = 1;", "é".repeat(86))), []);
        assert_eq!(
            rules(&format!("\nconst A: {} = 1;", "é".repeat(87))),
            [(2, "columns")]
        );
        assert_eq!(rules(&format!("/// <https://{}>\n", "x".repeat(120))), []);
    }
}
