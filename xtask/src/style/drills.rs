//! Rule `drill`: the mutation drill's lists have every edge that the code can weaken, their patches
//! apply, and every named edge of the structures is in one.
//!
//! An edge in the code that the list does not name is never tried; a name in the list that neither
//! the code nor a patch has would compare the code with itself. Statements are changed by patches
//! alone, in a copy: no `cfg(drill = ...)` stands in the code but that of `edge!`. An edge in a
//! header (`- E1 publish: ...`) has an entry whose edge begins with its name, in the same file or
//! below it. `docs/drill.md` has a line for every entry that says it was caught.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::source::Source;
use super::{Fault, hazard_table, labels};
use crate::drill::list::{self, Entry};
use crate::drill::table;
use crate::workspace;

const RULE: &str = "drill";

pub(super) fn check(root: &Path, sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let listed = list::listed(root)?;
    let written: BTreeMap<&str, (&Source, usize)> = sources.iter().flat_map(mutations).collect();
    for (name, (source, line)) in &written {
        if !listed.iter().any(|entry| entry.name == *name) {
            let message = format!("mutation {name:?} is in no drill list");
            faults.push(source.fault(*line, RULE, &message));
        }
    }
    let recorded = table::recorded(root);
    let tests = hazard_table::tests(sources);
    for entry in &listed {
        let Entry { name, test, .. } = entry;
        let function = test.rsplit("::").next().unwrap_or(test);
        let place = written.get(name.as_str()).map(|(source, _)| &*source.path);
        let is_caught = |line: &String| table::is_caught(entry, line);
        let message = if let Some(why) = misplaced(root, entry, place) {
            why
        } else if !tests.iter().any(|(_, known)| *known == function)
            && !is_function(sources, entry, function)
        {
            format!("no test is called {test:?}")
        } else if !recorded.get(name).is_some_and(is_caught) {
            format!("docs/drill.md has no result: run `cargo xtask drill {name}`")
        } else {
            continue;
        };
        faults.push(Fault::new(&entry.list(), 1, RULE, &message));
    }
    for source in sources {
        check_edges(source, &listed, faults);
        check_statements(source, faults);
    }
    Ok(())
}

/// Whether the crate's `tests/` have a function of that name, which a macro makes tests of.
fn is_function(sources: &[Source], entry: &Entry, name: &str) -> bool {
    let tests = format!("{}/tests/", entry.directory);
    let mut here = sources.iter().filter(|it| it.path.starts_with(&tests));
    here.any(|it| (0..it.tokens.len()).any(|at| it.spells(at, &["fn", name])))
}

/// Why an entry's mutation is not where the entry says, if it is not.
fn misplaced(root: &Path, entry: &Entry, place: Option<&str>) -> Option<String> {
    let (name, path) = (&entry.name, entry.path());
    match (place, entry.patches.is_empty()) {
        (None, true) => Some(format!("no code and no patch has mutation {name:?}")),
        (Some(_), false) => Some(format!("mutation {name:?} has patches and is in the code")),
        (Some(place), true) => {
            (place != path).then(|| format!("mutation {name:?} is in {place:?}, not in {path:?}"))
        }
        (None, false) => {
            let text = workspace::text(&root.join(path));
            let error = text.and_then(|text| entry.patched(&text)).err()?;
            Some(format!("mutation {name:?}: {error:#}"))
        }
    }
}

/// Reports mutations of statements in the code.
fn check_statements(source: &Source, faults: &mut Vec<Fault>) {
    for index in 1..source.tokens.len() {
        let is_inside = matches!(source.word(index - 1), "(" | ",");
        let is_condition = is_inside && source.spells(index, &["drill", "="]);
        if is_condition && source.literal(index + 2).is_some() {
            let message = "a mutation in the code: make it a patch in the crate's drill.toml";
            faults.push(source.fault(source.tokens[index].line, RULE, message));
        }
    }
}

/// Reports edges in a header of the structures that no entry weakens.
fn check_edges(source: &Source, listed: &[Entry], faults: &mut Vec<Fault>) {
    let Some(file) = source.path.strip_prefix("structures/") else {
        return;
    };
    let module = file.trim_end_matches(".rs");
    let is_here = |entry: &&Entry| {
        let rest = entry.file.strip_prefix(module);
        entry.directory == "structures"
            && rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let here: Vec<&Entry> = listed.iter().filter(is_here).collect();
    for (line, text) in source.lines() {
        let Some(edge) = edge_defined(text) else {
            continue;
        };
        let start = format!("{edge}:");
        if !here.iter().any(|entry| entry.edge.starts_with(&start)) {
            let message = format!("edge {edge} has no mutation: no entry of {file} is for it");
            faults.push(source.fault(line, RULE, &message));
        }
    }
}

/// `QE1` of the header line `//! - QE1 publish: ...`.
fn edge_defined(line: &str) -> Option<&str> {
    labels::defined(line).filter(|label| labels::is_edge(label))
}

/// The names in `edge!("NAME", …)`, with their places.
fn mutations(source: &Source) -> impl Iterator<Item = (&str, (&Source, usize))> {
    let calls = (0..source.tokens.len()).filter(move |&at| source.spells(at, &["edge", "!", "("]));
    calls.filter_map(move |at| {
        let name = source.literal(at + 3)?;
        Some((name, (source, source.tokens[at].line)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::list::{How, Patch};

    #[test]
    fn edges_are_mutations_and_other_conditions_are_faults() {
        let text = "#[cfg(not(drill = \"a-one\"))]\nfn a() {\n    \
                    if cfg!(any(drill = \"b\", drill = \"c\")) {}\n    let drill = \"d\";\n}\n\
                    // #[cfg(drill = \"e\")]\n\
                    const P: Ordering = edge!(\n    \"f\", Release, Relaxed);\n";
        let source = Source::new(Path::new("structures/src/a.rs"), text).expect("Rust");
        let names: Vec<_> = mutations(&source).map(|(name, _)| name).collect();
        assert_eq!(names, ["f"]);
        let mut faults = Vec::new();
        check_statements(&source, &mut faults);
        let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 3, 3]);
    }

    #[test]
    fn a_patch_that_no_longer_applies_and_a_mutation_in_two_places_are_faults() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(root.path().join("structures/src")).expect("a directory");
        std::fs::write(root.path().join("structures/src/a.rs"), "a();\n").expect("a file");
        let found = |old: &str, place| {
            let mut entry = entry("src/a.rs", "E1: a");
            entry.patches = vec![Patch {
                old: old.into(),
                new: "b();\n".into(),
            }];
            misplaced(root.path(), &entry, place)
        };
        assert_eq!(found("a();\n", None), None);
        assert!(found("c();\n", None).is_some_and(|why| why.contains("does not apply")));
        assert!(found("a();\n", Some("structures/src/a.rs")).is_some());
        let missing = entry("src/a.rs", "E1: a");
        assert!(misplaced(root.path(), &missing, None).is_some());
        assert_eq!(
            misplaced(root.path(), &missing, Some("structures/src/a.rs")),
            None
        );
        assert!(misplaced(root.path(), &missing, Some("structures/src/b.rs")).is_some());
    }

    fn entry(file: &str, edge: &str) -> Entry {
        Entry {
            directory: "structures".into(),
            binary: None,
            name: "a".into(),
            file: file.into(),
            edge: edge.into(),
            test: "t".into(),
            how: How::Loom,
            patches: Vec::new(),
        }
    }

    #[test]
    fn an_edge_without_a_mutation_is_a_fault() {
        let text = "//! - E1 publish: a.\n//! - E2 look: b.\n//! - Else: c.\nfn a() {}\n";
        let source = Source::new(Path::new("structures/src/a.rs"), text).expect("Rust");
        let lines = |listed: &[Entry]| {
            let mut faults = Vec::new();
            check_edges(&source, listed, &mut faults);
            faults.iter().map(|fault| fault.line).collect::<Vec<_>>()
        };
        assert_eq!(lines(&[]), [1, 2]);
        let elsewhere = [entry("src/a/b.rs", "E2: x"), entry("src/ab.rs", "E1: y")];
        assert_eq!(lines(&elsewhere), [1]);
        assert_eq!(lines(&[entry("src/a.rs", "E12: x")]), [1, 2]);
    }
}
