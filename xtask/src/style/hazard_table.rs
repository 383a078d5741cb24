//! Rule `hazard`: every hazard in `docs/hazards.md` has a test, and every test named there exists.
//!
//! The table's last two columns say where a hazard is met and which tests hold it: a path below the
//! root, without `.rs`, and names in backquotes. A test that was renamed or moved away breaks the
//! promise that the table makes.
//!
//! The page on security names tests, too: a file with `.rs`, and the tests in it after it. Those
//! may be functions that a macro makes tests of, one for each driver.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;

use super::Fault;
use super::source::Source;
use crate::workspace;

const TABLE: &str = "docs/hazards.md";
const PAGE: &str = "book/src/security.md";
/// A table shorter than this was cut off or is written in a way that this rule does not read.
const ROWS_MIN: usize = 20;

pub(super) fn check(root: &Path, sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let text = workspace::text(&root.join(TABLE))?;
    let rows = check_rows(&text, &tests(sources), faults);
    if rows < ROWS_MIN {
        report(
            faults,
            1,
            format!("{rows} rows are read: where is the rest?"),
        );
    }
    let page = workspace::text(&root.join(PAGE))?;
    check_page(&page, sources, faults);
    Ok(())
}

/// Checks the tests that the rows of a page name.
fn check_page(text: &str, sources: &[Source], faults: &mut Vec<Fault>) {
    let rows = (1..)
        .zip(text.lines())
        .filter(|(_, row)| row.starts_with('|'));
    for (line, row) in rows {
        let mut file = None;
        for name in quoted(row) {
            if name.ends_with(".rs") {
                file = sources.iter().find(|source| source.path == name);
                if file.is_none() {
                    faults.push(Fault::new(
                        PAGE,
                        line,
                        "hazard",
                        &format!("no file {name:?}"),
                    ));
                }
            } else if let Some(file) = file
                && !(0..file.tokens.len()).any(|at| file.spells(at, &["fn", name]))
            {
                let message = format!("no test {name:?} in {}", file.path);
                faults.push(Fault::new(PAGE, line, "hazard", &message));
            }
        }
    }
}

/// Every test with the file it is in.
pub(super) fn tests(sources: &[Source]) -> HashSet<(&str, &str)> {
    sources.iter().flat_map(tests_of).collect()
}

fn tests_of(source: &Source) -> impl Iterator<Item = (&str, &str)> {
    let marks = (0..source.tokens.len()).filter(|&at| source.spells(at, &["#", "[", "test", "]"]));
    marks.filter_map(|mark| {
        let behind = (mark..source.tokens.len()).find(|&at| source.word(at) == "fn")?;
        Some((source.path.as_str(), source.word(behind + 1)))
    })
}

/// Checks the rows and says how many there are.
fn check_rows(text: &str, tests: &HashSet<(&str, &str)>, faults: &mut Vec<Fault>) -> usize {
    let mut rows = 0;
    for (line, row) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').collect();
        let [.., place, names] = cells[..] else {
            continue;
        };
        let (places, names) = (quoted(place), quoted(names));
        let is_row = row.starts_with('|') && !row.starts_with("|--") && !places.is_empty();
        if !is_row {
            continue;
        }
        rows += 1;
        if names.is_empty() {
            report(faults, line, "a hazard without a test".into());
        }
        for name in names {
            let is_there = |(path, test): &(&str, &str)| {
                *test == name && places.iter().any(|place| is_in(path, place))
            };
            if !tests.iter().any(is_there) {
                report(faults, line, format!("no test {name:?} in {places:?}"));
            }
        }
    }
    rows
}

/// Whether a file is the module at `place` or below it.
fn is_in(path: &str, place: &str) -> bool {
    let rest = path.strip_prefix(place);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// What stands in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn report(faults: &mut Vec<Fault>, line: usize, message: String) {
    faults.push(Fault::new(TABLE, line, "hazard", &message));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(usize, String)> {
        let code = "#[cfg(test)]\nmod tests {\n    #[test]\n    #[should_panic]\n    fn pop() {}\n\
                    fn helper() {}\n}\n";
        let sources = [Source::new(Path::new("a/src/stack.rs"), code).expect("Rust")];
        let mut faults = Vec::new();
        check_rows(text, &tests(&sources), &mut faults);
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.message))
            .collect()
    }

    #[test]
    fn a_page_names_files_and_tests_that_exist() {
        let sources = [Source::new(Path::new("a/tests/b.rs"), "fn c() {}").expect("Rust")];
        let faults = |row: &str| {
            let mut faults = Vec::new();
            check_page(row, &sources, &mut faults);
            faults.len()
        };
        assert_eq!(faults("| what `x` means | `a/tests/b.rs`: `c` |"), 0);
        assert_eq!(faults("| what | `a/tests/b.rs`: `c`, `d` |"), 1);
        assert_eq!(faults("| what | `a/tests/no.rs`: `c` |"), 1);
    }

    #[test]
    fn a_test_that_exists_where_the_table_says_is_fine() {
        let table = "| what | where | test |\n|---|---|---|\n| ABA | `a/src/stack` | `pop` |\n";
        assert_eq!(faults(table), []);
    }

    #[test]
    fn a_name_that_is_no_test_or_is_elsewhere_is_a_fault() {
        for row in [
            "| ABA | `a/src/stack` | `pop`, `helper` |",
            "| ABA | `a/src/queue` | `pop` |",
            "| ABA | `a/src/sta` | `pop` |",
            "| ABA | `a/src/stack` | none |",
        ] {
            assert_eq!(faults(row).len(), 1, "{row}");
        }
    }
}
