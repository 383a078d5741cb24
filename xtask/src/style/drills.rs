//! Rule `drill`: the mutation drill's list and the code's mutations are the same set.
//!
//! A mutation in the code that the list does not name is never tried; a name in the list without
//! code would compare the code with itself.

use std::collections::BTreeMap;
use std::path::Path;

use super::Fault;
use super::source::Source;
use crate::{Error, drill};

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
    for entry in listed
        .iter()
        .filter(|entry| !written.contains_key(&entry.name))
    {
        let message = format!("no code has mutation {:?}", entry.name);
        faults.push(Fault {
            file: entry.list.clone(),
            line: 1,
            rule: "drill",
            message,
        });
    }
    Ok(())
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
}
