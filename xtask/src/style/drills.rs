//! Rule `drill`: the mutation drill's list and the code's mutations are the same set, and every
//! named edge of the structures is in it.
//!
//! A mutation in the code that the list does not name is never tried; a name in the list without
//! code would compare the code with itself. An edge in a header (`- E1 publish: ...`) has an entry
//! whose edge begins with its name, in the same file or below it. `docs/drill.md` has a line for
//! every entry that says it was caught.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::Source;
use super::{Fault, hazards};
use crate::Error;
use crate::drill::{self, Entry};

/// Reports mutations without an entry and entries without a mutation.
///
/// # Errors
/// A list that cannot be read or parsed.
pub fn check(root: &Path, sources: &[Source], faults: &mut Vec<Fault>) -> Result<(), Error> {
    let listed = drill::listed(root)?;
    let written: BTreeMap<String, (String, usize)> = sources.iter().flat_map(mutations).collect();
    for (name, (file, line)) in &written {
        if !listed.iter().any(|entry| entry.name == *name) {
            let message = format!("mutation {name:?} is in no drill list");
            faults.push(Fault {
                file: file.clone(),
                line: *line,
                rule: "drill",
                message,
            });
        }
    }
    let recorded = drill::recorded(root);
    let tests = hazards::tests(sources);
    for entry in &listed {
        let Entry { name, test, .. } = entry;
        let place = written.get(name).map(|(file, _)| file.as_str());
        let is_caught = |line: &String| drill::is_caught(entry, line);
        let message = if place.is_none() {
            format!("no code has mutation {name:?}")
        } else if place != Some(&format!("structures/{}", entry.file)) {
            format!("mutation {name:?} is in {place:?}, not in {:?}", entry.file)
        } else if !tests.iter().any(|(_, known)| known == test) {
            format!("no test is called {test:?}")
        } else if !recorded.get(name).is_some_and(is_caught) {
            format!("docs/drill.md has no result: run `cargo xtask drill {name}`")
        } else {
            continue;
        };
        faults.push(Fault {
            file: entry.list.clone(),
            line: 1,
            rule: "drill",
            message,
        });
    }
    for source in sources {
        check_edges(source, &listed, faults);
    }
    Ok(())
}

/// Reports edges in a header of the structures that no entry weakens.
fn check_edges(source: &Source, listed: &[Entry], faults: &mut Vec<Fault>) {
    let Some(file) = source.path.strip_prefix("structures/") else {
        return;
    };
    let module = file.trim_end_matches(".rs");
    let is_here = |entry: &&Entry| {
        let rest = entry.file.strip_prefix(module);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let edges: Vec<&str> = listed
        .iter()
        .filter(is_here)
        .map(|entry| entry.edge.as_str())
        .collect();
    for (line, text) in (1..).zip(&source.lines) {
        let Some(edge) = edge_defined(text) else {
            continue;
        };
        let start = format!("{edge}:");
        if !edges.iter().any(|known| known.starts_with(&start)) {
            let message = format!("edge {edge} has no mutation: no entry of {file} is for it");
            faults.push(Fault {
                file: source.path.clone(),
                line,
                rule: "drill",
                message,
            });
        }
    }
}

/// `E1` of the header line `//! - E1 publish: ...`.
fn edge_defined(line: &str) -> Option<&str> {
    let edge = line.strip_prefix("//! - ")?.split(' ').next()?;
    let digits = edge.strip_prefix('E')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(edge)
}

/// The names in `cfg(drill = "NAME")` and `edge!("NAME", …)`, with their places.
fn mutations(source: &Source) -> Vec<(String, (String, usize))> {
    let mut found = Vec::new();
    for index in 0..source.tokens.len() {
        let before = index.checked_sub(1).map_or("", |at| source.word(at));
        let condition = source.spells(index, &["drill", "="]) && matches!(before, "(" | ",");
        let name_at = match source.spells(index, &["edge", "!", "("]) {
            true => index + 3,
            false if condition => index + 2,
            false => continue,
        };
        if let Some(name) = source.literal(name_at) {
            found.push((
                name.to_string(),
                (source.path.clone(), source.tokens[index].line),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_found_in_attributes_and_macros() {
        let text = "#[cfg(not(drill = \"a-one\"))]\nfn a() {\n    \
                    if cfg!(any(drill = \"b\", drill = \"c\")) {}\n    let drill = \"d\";\n}\n\
                    // #[cfg(drill = \"e\")]\n\
                    const P: Ordering = edge!(\n    \"f\", Release, Relaxed);\n";
        let source = Source::new(Path::new("structures/src/a.rs"), text);
        let names: Vec<_> = mutations(&source)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a-one", "b", "c", "f"]);
    }

    #[test]
    fn an_edge_without_a_mutation_is_a_fault() {
        let text = "//! - E1 publish: a.\n//! - E2 look: b.\n//! - Else: c.\nfn a() {}\n";
        let source = Source::new(Path::new("structures/src/a.rs"), text);
        let entry = |file: &str, edge: &str| Entry {
            list: "a.toml".into(),
            name: "a".into(),
            file: file.into(),
            edge: edge.into(),
            test: "t".into(),
            how: "loom".into(),
        };
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
