//! Where the workspace is and which files belong to it.
//!
//! Files are found by walking the directories, not by asking git: the checks also work in an
//! unpacked archive and see a file before it is added. Build output, git's own directory and
//! fuzzing's findings are left out.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Directories that hold nothing we wrote.
const SKIPPED_DIRECTORIES: &[&str] = &["target", ".git", "corpus", "artifacts"];

/// The workspace's root directory: the parent of this crate.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Every file below `root` for which `wanted` says yes, as paths relative to `root`, sorted.
///
/// # Errors
/// A directory that cannot be read.
pub fn files(root: &Path, wanted: fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory)
            .map_err(|error| Error::Failed(format!("{}: {error}", directory.display())))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = entry.file_name();
            let skipped = SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped);
            if kind.is_dir() && !skipped {
                pending.push(path);
            } else if kind.is_file() && wanted(&path) {
                found.push(
                    path.strip_prefix(root)
                        .map_or(path.clone(), Path::to_path_buf),
                );
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a file as text, naming it when that fails.
///
/// # Errors
/// The file cannot be read or is not UTF-8.
pub fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
}
