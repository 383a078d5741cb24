//! The lists of mutations, one per crate (`drill.toml` beside its `Cargo.toml`), and the statements
//! that they change in a copy of the sources, so that no mutation stands in the code itself.
//!
//! A patch replaces a text that stands exactly once in a file. One that no longer applies is an
//! error that names it: a mutation that changes nothing would prove nothing. `cargo test` checks
//! that (rule `drill`), so a change of the code meets it before the next drill.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::workspace;

/// The name of a crate's list.
const LIST: &str = "drill.toml";
/// Where the copy is, below the workspace's root.
const COPY: &str = "target/drill-sources";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    drill: Vec<Entry>,
}

/// One mutation, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The directory of the crate, below the workspace's root.
    #[serde(skip)]
    pub(crate) directory: String,
    /// The value of `--cfg drill`, unless it has patches.
    pub(crate) name: String,
    /// The file it changes, below the crate's directory.
    pub(crate) file: String,
    /// The edge it weakens, or the step it leaves out.
    pub(crate) edge: String,
    /// The test that must fail: a filter for the test binary.
    pub(crate) test: String,
    pub(crate) how: How,
    /// The test binary of the crate's `tests/` that has the test; its unit tests, if none is named.
    pub(crate) binary: Option<String>,
    /// What it changes in a copy of the file; none for the weaker ordering of an edge.
    #[serde(default, rename = "patch")]
    pub(crate) patches: Vec<Patch>,
}

/// The build that the test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    Loom,
    Shuttle,
    /// A plain one.
    Test,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            How::Loom => "loom",
            How::Shuttle => "shuttle",
            How::Test => "test",
        }
    }
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Every listed mutation, in the order of the lists: those of the structures first.
pub(crate) fn listed(root: &Path) -> Result<Vec<Entry>> {
    let mut lists = workspace::files(root, |path| path.ends_with(LIST))?;
    lists.sort_by_key(|list| !list.starts_with("structures"));
    let mut entries: Vec<Entry> = Vec::new();
    for list in lists {
        let directory = list.parent().unwrap_or(Path::new("")).to_string_lossy();
        let text = workspace::text(&root.join(&list))?;
        for entry in parse(&directory, &text)? {
            let is_twice = entries.iter().any(|other| other.name == entry.name);
            ensure!(!is_twice, "two mutations are called {:?}", entry.name);
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// The mutations of the list of one crate.
pub(super) fn parse(directory: &str, text: &str) -> Result<Vec<Entry>> {
    let list: List = toml::from_str(text).with_context(|| format!("{directory}/{LIST}"))?;
    let mut entries = list.drill;
    for entry in &mut entries {
        directory.clone_into(&mut entry.directory);
    }
    Ok(entries)
}

impl Entry {
    /// The file it changes, below the workspace's root.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.directory, self.file)
    }

    /// The list that it is in.
    pub(crate) fn list(&self) -> String {
        format!("{}/{LIST}", self.directory)
    }

    /// `text`, the whole of this entry's file, with its patches.
    pub(crate) fn patched(&self, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for (nth, Patch { old, new }) in (1..).zip(&self.patches) {
            let (Entry { name, file, .. }, count) = (self, text.matches(old).count());
            ensure!(
                count == 1 && old != new,
                "patch {nth} of {name:?} does not apply: its text stands {count} times in {file}, \
                 and must once, and become another: {old:?}",
            );
            text = text.replacen(old, new, 1);
        }
        Ok(text)
    }
}

/// A copy of the workspace's sources.
pub(super) struct Copied {
    pub(super) root: PathBuf,
}

impl Copied {
    /// Brings the copy up to date. Files that did not change keep their times, so that cargo does
    /// not build their crates anew.
    pub(super) fn make() -> Result<Copied> {
        let (from, root) = (workspace::root(), workspace::root().join(COPY));
        fs::create_dir_all(&root)?;
        let files = workspace::files(&from, |_| true)?;
        for stale in workspace::files(&root, |_| true)? {
            if files.binary_search(&stale).is_err() {
                fs::remove_file(root.join(stale))?;
            }
        }
        for file in files {
            let copy = root.join(&file);
            let wanted = fs::read(from.join(&file))?;
            if fs::read(&copy).is_ok_and(|known| known == wanted) {
                continue;
            }
            if let Some(directory) = copy.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::copy(from.join(&file), copy)?;
        }
        Ok(Copied { root })
    }

    /// Runs `act` on the copy with the patches of `entry`. Afterwards the file is as it was.
    pub(super) fn with<R>(&self, entry: &Entry, act: impl FnOnce() -> Result<R>) -> Result<R> {
        let file = self.root.join(entry.path());
        let sound = workspace::text(&file)?;
        fs::write(&file, entry.patched(&sound)?)?;
        let outcome = act();
        fs::write(&file, sound)?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[drill]]\nname = \"a\"\nfile = \"src/a.rs\"\nedge = \"E1: a\"\n\
                        test = \"loom_pop\"\nhow = \"loom\"\n";

    fn entry(patches: &[(&str, &str)]) -> Entry {
        let mut entry = parse("structures", TEXT).expect("a list").remove(0);
        let patches = patches.iter().map(|(old, new)| Patch {
            old: (*old).into(),
            new: (*new).into(),
        });
        entry.patches = patches.collect();
        entry
    }

    #[test]
    fn an_entry_without_a_test_is_refused() {
        let refused = parse("structures", &TEXT.replace("test = \"loom_pop\"\n", ""));
        assert!(refused.is_err_and(|why| format!("{why:#}").contains("test")));
    }

    #[test]
    fn patches_apply_one_after_the_other() {
        let entry = entry(&[("a();\n", ""), ("b();\n", "b();\na();\n")]);
        let patched = entry.patched("a();\nb();\nc();\n").expect("both apply");
        assert_eq!(patched, "b();\na();\nc();\n");
    }

    #[test]
    fn a_patch_that_does_not_apply_once_or_changes_nothing_is_named() {
        let text = "a();\na();\nb();\n";
        for patch in [("c();", ""), ("a();", ""), ("b();", "b();")] {
            let refused = entry(&[patch]).patched(text);
            assert!(refused.is_err_and(|why| why.to_string().contains("patch 1 of \"a\"")));
        }
    }

    #[test]
    fn a_patch_without_its_new_text_is_refused() {
        let refused = parse(
            "structures",
            &format!("{TEXT}[[drill.patch]]\nold = \"a\"\n"),
        );
        assert!(refused.is_err_and(|why| format!("{why:#}").contains("new")));
    }
}
