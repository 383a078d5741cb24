//! Where the workspace is and which files belong to it.
//!
//! Files are found by walking the directories, not by asking git: the checks also work in an
//! unpacked archive and see a file before it is added. Build output, git's own directory and the
//! findings of fuzzing are left out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories that hold nothing we wrote.
const SKIPPED_DIRECTORIES: &[&str] = &["target", ".git", "corpus", "artifacts"];

/// The workspace's root directory: the parent of this crate.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Settings for cargo with which none of our crates is optimised: for what is built anew each time.
///
/// # Errors
/// The workspace's manifest cannot be read.
pub(crate) fn unoptimised() -> Result<Vec<String>> {
    let manifest: toml::Table = text(&root().join("Cargo.toml"))?.parse()?;
    let packages = manifest["profile"]["dev"]["package"].as_table();
    let packages = packages.context("no [profile.dev.package]")?;
    let ours = packages.keys().filter(|name| name.starts_with("flatpath"));
    Ok(ours
        .map(|name| format!("profile.dev.package.{name}.opt-level=0"))
        .collect())
}

/// Every file below `root` for which `wanted` is true, as paths relative to `root`, sorted.
pub(crate) fn files(root: &Path, wanted: fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = entry.file_name();
            let skipped = SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped);
            if kind.is_dir() && !skipped {
                pending.push(path);
            } else if kind.is_file() && wanted(&path) {
                found.push(path.strip_prefix(root)?.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a file as text; an error names it.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
