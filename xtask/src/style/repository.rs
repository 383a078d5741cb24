//! Rules `document`, `registry` and `conflict`: the files that every release needs, no registry's
//! host by name, and no marker of a merge that was not finished.
//!
//! A registry's host in a file ties it to one mirror: dependencies come through cargo's and apt's
//! own configuration.

use std::path::Path;

use anyhow::Result;

use super::Fault;
use crate::workspace;

/// Files, and words that must stand in them.
const DOCUMENTS: &[(&str, &str)] = &[
    ("LICENSE-APACHE", "Apache License"),
    ("LICENSE-MIT", "Permission is hereby granted"),
    ("README.md", "# Flatpath"),
    ("ARCHITECTURE.md", "# "),
    ("CONTRIBUTING.md", "# "),
    ("CHANGELOG.md", "\n## Unreleased"),
];
/// Pieces of host names, cut so that this file does not name them.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("registry.npm", "js"),
    concat!("proxy.go", "lang"),
    concat!("repo1.ma", "ven"),
    concat!("repo.ma", "ven"),
    concat!("deb.deb", "ian.org"),
];
/// How git marks the two sides of a conflict; cut like the hosts.
const MARKERS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];
/// Files that people write; what a tool writes (`Cargo.lock`) names its source.
const WRITTEN: &[&str] = &[
    "rs", "toml", "md", "sh", "yml", "yaml", "json", "c", "h", "py", "conf",
];

pub(super) fn check(root: &Path, faults: &mut Vec<Fault>) -> Result<()> {
    for (file, words) in DOCUMENTS {
        if !workspace::text(&root.join(file)).is_ok_and(|text| text.contains(words)) {
            let message = format!("missing, or without the words {words:?}");
            faults.push(Fault::new(file, 1, "document", &message));
        }
    }
    for path in workspace::files(root, is_written)? {
        let (name, text) = (path.to_string_lossy(), workspace::text(&root.join(&path))?);
        for (line, host) in hosts(&text) {
            let message = format!("names {host}: leave it to the tool's settings");
            faults.push(Fault::new(&name, line, "registry", &message));
        }
        for line in conflicts(&text) {
            let message = "git left both sides of a conflict here";
            faults.push(Fault::new(&name, line, "conflict", message));
        }
    }
    Ok(())
}

fn is_written(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    let is_script = path.components().any(|part| part.as_os_str() == ".ci");
    is_script || end.is_some_and(|end| WRITTEN.contains(&end))
}

fn hosts(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    (1..).zip(text.lines()).flat_map(|(line, text)| {
        let named = HOSTS.iter().filter(move |host| text.contains(*host));
        named.map(move |host| (line, *host))
    })
}

fn conflicts(text: &str) -> impl Iterator<Item = usize> {
    let is_marker = |line: &str| MARKERS.iter().any(|marker| line.starts_with(marker));
    (1..)
        .zip(text.lines())
        .filter_map(move |(number, line)| is_marker(line).then_some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_conflict_are_found() {
        let text = format!("{}HEAD\nours\n=======\n{}theirs\n", MARKERS[0], MARKERS[1]);
        assert_eq!(conflicts(&text).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(conflicts("a << b\n=======\n").count(), 0);
    }

    #[test]
    fn a_registry_host_is_found_with_its_line() {
        let text = format!("one\nsee https://{}/crates/x\n", HOSTS[0]);
        assert_eq!(hosts(&text).collect::<Vec<_>>(), [(2, HOSTS[0])]);
        assert_eq!(hosts("a crate, published").count(), 0);
    }

    #[test]
    fn an_empty_directory_lacks_every_document() {
        let empty = tempfile::tempdir().expect("a directory");
        let mut faults = Vec::new();
        check(empty.path(), &mut faults).expect("nothing to read");
        let rules: Vec<_> = faults.iter().map(|fault| fault.rule).collect();
        assert_eq!(rules, ["document"; DOCUMENTS.len()]);
    }
}
