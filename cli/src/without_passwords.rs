//! The module `passwords` of a build without them: `--auth-file` is refused before any of this is
//! asked (`built.rs`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use flatpath::memory::SharePart;
use flatpath_layers::Access;

use crate::built;
use crate::failure::Failure;

pub(crate) const FILE_MEMORY_BYTES: usize = 0;

/// How many passwords are checked at a time: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PasswordChecks;

impl PasswordChecks {
    pub(crate) fn usual() -> u32 {
        0
    }

    pub(crate) fn at_most(_: u32) -> Self {
        Self
    }

    #[must_use]
    pub(crate) fn memory(self, _: SharePart) -> Self {
        self
    }
}

/// Files of passwords: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PasswordFiles {
    pub(crate) checks: PasswordChecks,
}

impl PasswordFiles {
    /// # Errors
    /// Always: a site with `auth-file` would be open to all.
    pub(crate) fn asked_by(
        &mut self,
        access: Access,
        _: &str,
        _: &Path,
    ) -> Result<Access, Failure> {
        let built = built::PASSWORDS.require().map(|()| access);
        built.map_err(|why| Failure::WrongUse(format!("auth-file: {why}")))
    }

    pub(crate) fn reload(&self) {}

    pub(crate) fn retain(&mut self, _: &HashSet<PathBuf>) {}
}

pub(crate) fn check_bytes(_: &HashSet<PathBuf>) -> usize {
    0
}
