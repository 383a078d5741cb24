//! Rules `licence`, `document`, `changes` and `registry`: the files every release needs, and no
//! registry's host by name.
//!
//! A registry's host in a file ties it to one mirror: dependencies come through cargo's and apt's
//! own configuration.

use std::path::Path;

use super::Fault;
use crate::{Error, workspace};

/// The licences, and words that must stand in their texts.
const LICENCES: &[(&str, &str)] = &[
    ("LICENSE-APACHE", "Apache License"),
    ("LICENSE-MIT", "Permission is hereby granted"),
];
/// What a newcomer looks for first.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
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
/// Files that people write; what a tool writes (`Cargo.lock`) names its source.
const WRITTEN: &[&str] = &[
    "rs", "toml", "md", "sh", "yml", "yaml", "json", "c", "h", "py", "conf",
];

/// Reports missing files and host names.
///
/// # Errors
/// A directory or file that cannot be read.
pub fn check(root: &Path, faults: &mut Vec<Fault>) -> Result<(), Error> {
    let mut report = |file: &str, line: usize, rule: &'static str, message: String| {
        faults.push(Fault {
            file: file.into(),
            line,
            rule,
            message,
        });
    };
    for (file, words) in LICENCES {
        if !workspace::text(&root.join(file)).is_ok_and(|text| text.contains(words)) {
            report(
                file,
                1,
                "licence",
                format!("missing, or without the words {words:?}"),
            );
        }
    }
    for file in DOCUMENTS.iter().filter(|file| !root.join(file).is_file()) {
        report(file, 1, "document", "missing".into());
    }
    let changes = workspace::text(&root.join("CHANGELOG.md")).unwrap_or_default();
    if !changes
        .lines()
        .any(|line| line.starts_with("## ") && line.contains("Unreleased"))
    {
        report(
            "CHANGELOG.md",
            1,
            "changes",
            "missing, or without an Unreleased section".into(),
        );
    }
    for path in workspace::files(root, is_written)? {
        let name = path.to_string_lossy();
        for (line, host) in hosts(&workspace::text(&root.join(&path))?) {
            report(
                &name,
                line,
                "registry",
                format!("names {host}: leave it to the tool's settings"),
            );
        }
    }
    Ok(())
}

fn is_written(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    let script = path.components().any(|part| part.as_os_str() == ".ci");
    script || end.is_some_and(|end| WRITTEN.contains(&end))
}

fn hosts(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let named = HOSTS.iter().filter(move |host| line.contains(*host));
        named.map(move |host| (index + 1, *host))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_host_is_found_with_its_line() {
        let text = format!("one\nsee https://{}/crates/x\n", HOSTS[0]);
        assert_eq!(hosts(&text).collect::<Vec<_>>(), [(2, HOSTS[0])]);
        assert_eq!(hosts("a crate, published").count(), 0);
    }

    #[test]
    fn an_empty_directory_lacks_licences_and_changes() {
        let empty = std::env::temp_dir().join(format!("flatpath-style-{}", std::process::id()));
        std::fs::create_dir_all(&empty).unwrap();
        let mut faults = Vec::new();
        let outcome = check(&empty, &mut faults);
        std::fs::remove_dir(&empty).unwrap();
        outcome.unwrap();
        let rules: Vec<_> = faults.iter().map(|fault| fault.rule).collect();
        let documents = ["document"; DOCUMENTS.len()];
        assert_eq!(
            rules,
            [&["licence", "licence"], &documents[..], &["changes"]].concat()
        );
    }
}
