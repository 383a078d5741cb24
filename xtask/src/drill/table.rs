//! The table `docs/drill.md`: what became of each mutation.
//!
//! A row whose entry changed is dropped, and what follows the table under a heading of its own
//! stays. It has no times, so that it changes only when a result does.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use super::Outcome;
use super::list::Entry;
use crate::workspace;

pub(super) const TABLE: &str = "docs/drill.md";
/// The line of the table that names the tree.
pub(super) const TREE: &str =
    "All rows of the structures are of one tree (`git rev-parse HEAD:structures`): ";
const HEAD: &str = "# Mutation drill\n\n\
    Each line weakens one ordering edge, or one step that a proof rests on, and names the\n\
    test that turns red. Written by `cargo xtask drill`; a mutation that no test catches\n\
    fails that command, and `cargo test` fails when a mutation has no line here.\n\n";

/// The line of each mutation that the table has, by its name.
pub(crate) fn recorded(root: &Path) -> HashMap<String, String> {
    let text = workspace::text(&root.join(TABLE)).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((name.to_string(), line.to_string()))
    });
    rows.collect()
}

/// The table with the row of `tried` brought up to date.
pub(super) fn with(
    all: &[Entry],
    (tried, outcome): (&Entry, &Outcome),
    known: &HashMap<String, String>,
    tree: Option<&str>,
) -> String {
    let mut text = String::from(HEAD);
    if let Some(tree) = tree {
        let _ = writeln!(text, "{TREE}`{tree}`.\n");
    }
    text.push_str("| mutation | edge | test | how | outcome |\n|---|---|---|---|---|\n");
    for entry in all {
        let start = row_of(entry);
        let line = if entry == tried {
            Some(format!("{start} {} |", as_cell(&outcome.to_string())))
        } else {
            known.get(&entry.name).cloned()
        };
        if let Some(line) = line.filter(|line| line.starts_with(&start)) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// What is written by hand after the table, from its first heading on.
pub(super) fn notes_of(text: &str) -> &str {
    text.find("\n## ").map_or("", |at| &text[at..])
}

/// The line of a mutation, up to its outcome.
fn row_of(entry: &Entry) -> String {
    let (name, file) = (&entry.name, entry.path());
    let (edge, test) = (as_cell(&entry.edge), as_cell(&entry.test));
    let how = entry.how.name();
    format!("| `{name}` in `{file}` | {edge} | `{test}` | {how} |")
}

/// Whether a line of the table is that of this entry and has it as caught.
pub(crate) fn is_caught(entry: &Entry, line: &str) -> bool {
    let outcome = line.strip_prefix(&row_of(entry));
    outcome.is_some_and(|outcome| outcome.starts_with(" caught: "))
}

fn as_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::list::parse;
    use super::*;

    const LIST: &str = "[[drill]]\nname = \"stack-tag\"\nfile = \"stack.rs\"\nedge = \"E2\"\n\
                        test = \"loom_pop\"\nhow = \"loom\"\n";

    fn entries() -> Vec<Entry> {
        parse(
            "structures",
            &LIST.repeat(2).replacen("stack-tag", "queue", 1),
        )
        .expect("a list")
    }

    #[test]
    fn the_table_keeps_the_rows_of_what_was_not_tried() {
        let entries = entries();
        let caught = Outcome::Caught("slot 1 | twice; threads = [..]".into());
        let tried = (&entries[0], &caught);
        let first = with(&entries, tried, &HashMap::new(), Some("abc"));
        let row = "| `queue` in `structures/stack.rs` | E2 | `loom_pop` | loom | \
                   caught: slot 1 \\| twice |";
        assert!(first.lines().any(|line| line == row), "{first}");
        assert!(first.contains("HEAD:structures`): `abc`."), "{first}");
        let known = HashMap::from([("queue".to_string(), row.to_string())]);
        let second = with(&entries, (&entries[1], &Outcome::Survived), &known, None);
        assert!(second.lines().any(|line| line == row), "{second}");
        assert!(second.contains("| `stack-tag` in"), "{second}");
        assert!(is_caught(&entries[0], row));
        assert!(!is_caught(&entries[1], second.lines().last().unwrap()));
    }

    #[test]
    fn notes_below_the_table_are_kept() {
        let notes = "\n## Beside it\n\n| no | row |\n";
        assert_eq!(notes_of(&format!("# Drill\n\n| a | row |\n{notes}")), notes);
        assert_eq!(notes_of("# Drill\n\n| a | row |\n"), "");
    }

    #[test]
    fn the_row_of_an_entry_that_changed_is_dropped() {
        let entries = entries();
        let stale = "| `stack-tag` in `structures/stack.rs` | E1 | `loom_pop` | loom | caught: x |";
        let known = HashMap::from([("stack-tag".to_string(), stale.to_string())]);
        let table = with(&entries, (&entries[0], &Outcome::Survived), &known, None);
        assert!(!table.contains("stack-tag"));
    }
}
