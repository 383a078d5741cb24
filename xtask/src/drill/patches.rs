//! Statements that the drill changes in a copy of the sources, so that no mutation stands in the
//! code itself.
//!
//! A patch replaces a text that stands exactly once in a file. One that no longer applies is an
//! error that names it: a mutation that changes nothing would prove nothing. `cargo test` looks at
//! that (rule `drill`), so a change of the code meets it before the next drill.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Value;

use super::Entry;
use crate::{Error, workspace};

/// Where the copy is, below the workspace's root.
const COPY: &str = "target/drill-sources";

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// What stands in the file once.
    pub old: String,
    /// What stands there in the mutation.
    pub new: String,
}

impl Patch {
    /// The patches of an entry of the list, in the order in which they are applied; none for a
    /// mutation that the code itself has.
    ///
    /// # Errors
    /// A patch without one of its two texts.
    pub(super) fn all_of(item: &Value) -> Result<Vec<Patch>, String> {
        let patches = item.get("patch").and_then(Value::as_array);
        let patches = patches.into_iter().flatten().map(|patch| {
            let text = |name| patch.get(name).and_then(Value::as_str).map(String::from);
            let (old, new) = (text("old"), text("new"));
            old.zip(new).map(|(old, new)| Patch { old, new })
        });
        let patches: Option<Vec<Patch>> = patches.collect();
        patches.ok_or_else(|| format!("a patch has no old or no new: {item}"))
    }
}

impl Entry {
    /// `text`, the whole of this entry's file, with its patches.
    ///
    /// # Errors
    /// A patch that does not apply, in words.
    pub fn patched(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for (nth, patch) in (1..).zip(&self.patches) {
            let count = text.matches(&patch.old).count();
            if count != 1 || patch.old == patch.new {
                let Entry { name, file, .. } = self;
                return Err(format!(
                    "patch {nth} of {name:?} does not apply: its text stands {count} times in \
                     {file}, and must once, and become another: {:?}",
                    patch.old
                ));
            }
            text = text.replacen(&patch.old, &patch.new, 1);
        }
        Ok(text)
    }
}

/// A copy of the workspace's sources.
pub(super) struct Copied {
    root: PathBuf,
}

impl Copied {
    /// Copies all files anew.
    pub(super) fn make() -> Result<Copied, Error> {
        let (from, root) = (workspace::root(), workspace::root().join(COPY));
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for file in workspace::files(&from, |_| true)? {
            let copy = root.join(&file);
            if let Some(directory) = copy.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::copy(from.join(&file), copy)?;
        }
        Ok(Copied { root })
    }

    /// Where to build.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Lets `act` see the copy with the patches of `entry`. Afterwards the file is as it was.
    pub(super) fn with<R>(
        &self,
        entry: &Entry,
        act: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let file = self.root.join("structures").join(&entry.file);
        let sound = workspace::text(&file)?;
        fs::write(&file, entry.patched(&sound).map_err(Error::Failed)?)?;
        let outcome = act();
        fs::write(&file, sound)?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(patches: &[(&str, &str)]) -> Entry {
        Entry {
            list: "a.toml".into(),
            name: "a".into(),
            file: "src/a.rs".into(),
            edge: "E1: a".into(),
            test: "t".into(),
            how: "loom".into(),
            patches: patches
                .iter()
                .map(|(old, new)| Patch {
                    old: (*old).into(),
                    new: (*new).into(),
                })
                .collect(),
        }
    }

    #[test]
    fn patches_apply_one_after_the_other() {
        let entry = entry(&[("a();\n", ""), ("b();\n", "b();\na();\n")]);
        assert_eq!(
            entry.patched("a();\nb();\nc();\n").as_deref(),
            Ok("b();\na();\nc();\n")
        );
    }

    #[test]
    fn a_patch_that_does_not_apply_once_or_changes_nothing_is_named() {
        let text = "a();\na();\nb();\n";
        for patch in [("c();", ""), ("a();", ""), ("b();", "b();")] {
            let refused = entry(&[patch]).patched(text);
            assert!(refused.is_err_and(|why| why.contains("patch 1 of \"a\"")));
        }
    }

    #[test]
    fn a_patch_without_its_new_text_is_refused() {
        let item: Value = toml::from_str("[[patch]]\nold = \"a\"\n").expect("a table");
        assert!(Patch::all_of(&item).is_err_and(|why| why.contains("patch")));
    }
}
