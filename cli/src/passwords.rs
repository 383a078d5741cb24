//! Files of passwords, each open once, and the memory in which their passwords are checked.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use flatpath_layers::{Access, Htpasswd};

use crate::bounded_file;
use crate::failure::Failure;

pub(crate) use flatpath_layers::PasswordChecks;
pub(crate) use flatpath_layers::limits::HTPASSWD_MEMORY_BYTES as FILE_MEMORY_BYTES;

/// Files of passwords that are open, each once, and how many of all their passwords are checked at
/// a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct PasswordFiles {
    open: Vec<Htpasswd>,
    pub(crate) checks: PasswordChecks,
}

impl PasswordFiles {
    fn open(&mut self, path: &Path) -> Result<Htpasswd, Failure> {
        if let Some(open) = self.open.iter().find(|file| file.path() == path) {
            return Ok(open.clone());
        }
        let _reading = bounded_file::begin(path.display().to_string());
        let file = Htpasswd::open_with(path, &self.checks);
        let file = file.map_err(|why| Failure::WrongUse(format!("auth-file {why}")))?;
        self.open.push(file.clone());
        Ok(file)
    }

    /// Access with a password of this file.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn asked_by(
        &mut self,
        access: Access,
        realm: &str,
        path: &Path,
    ) -> Result<Access, Failure> {
        Ok(access.passwords(realm, &self.open(path)?))
    }

    /// Reads them again, if they have changed.
    pub(crate) fn reload(&self) {
        for file in &self.open {
            let _reading = bounded_file::begin(file.path().display().to_string());
            // What is wrong is in the log.
            let _logged = file.reload();
        }
    }

    /// Closes all but these.
    pub(crate) fn retain(&mut self, paths: &HashSet<PathBuf>) {
        self.open.retain(|file| paths.contains(file.path()));
    }
}

/// The memory that the largest check of a password takes, in bytes. A file that cannot be read has
/// none: that is an error of its own.
pub(crate) fn check_bytes(paths: &HashSet<PathBuf>) -> usize {
    let check_bytes = |path: &PathBuf| {
        let _reading = bounded_file::begin(path.display().to_string());
        Htpasswd::open(path).ok().map(|file| file.check_bytes())
    };
    paths.iter().filter_map(check_bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_with_one_file_of_passwords_share_what_is_known_of_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("users");
        let ada = "ada:$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy\n";
        std::fs::write(&path, ada).expect("written");
        let mut files = PasswordFiles::default();
        for _ in 0..2 {
            files.open(&path).expect("good");
        }
        assert_eq!(files.open.len(), 1);
    }
}
