//! What the services say of a place whose directory it is.

use crate::rules::RootFiles;
use crate::target::{Hidden, is_forbidden};

/// What the owners of a place say of it, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) hidden: Hidden,
    /// Whether directories are listed.
    pub(crate) is_listed: bool,
    /// Of the place itself, where it is the root of an owner.
    pub(crate) root_files: RootFiles,
    pub(crate) is_writable: bool,
}

impl Terms {
    /// Those of no owner.
    pub(crate) const FREE: Self = Self {
        hidden: Hidden::Served,
        is_listed: true,
        root_files: RootFiles::Ignored,
        is_writable: true,
    };

    /// Whether a file of this name may be written there.
    pub(crate) fn admits_writing(self, name: &[u8]) -> bool {
        let is_forbidden = is_forbidden(name, self.hidden) || self.root_files.keeps_back(name);
        self.is_writable && !is_forbidden
    }
}
