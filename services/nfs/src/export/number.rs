//! Which directory an export is: its number in handles, and whether a path leads to it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::Export;
use crate::attributes::Attributes;
use crate::handle::{self, HandleKey};
use crate::status::Status;

/// The number of an export with this root.
pub(super) fn of(secret: &HandleKey, root: &[u8]) -> u32 {
    (secret.mac(root) & u128::from(u32::MAX)) as u32
}

impl Export {
    /// The number by the root alone, as long as no other export has it.
    pub(crate) fn plain_number(&self) -> u32 {
        of(&self.secret, &self.root_key.to_bytes())
    }

    /// The number by the root and its path.
    pub(crate) fn number_by_path(&self, path: &Path) -> u32 {
        let root = self.root_key.to_bytes();
        let words = [&b"path"[..], &root[..], path.as_os_str().as_bytes()];
        of(&self.secret, &words.concat())
    }

    /// Whether a path leads to this directory, on the same mount.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(found) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else {
            return false;
        };
        let mount = |file: BorrowedFd<'_>| {
            let wanted = StatxFlags::MNT_ID;
            let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted);
            found.map(|found| found.stx_mnt_id).ok()
        };
        Attributes::of(&found).is_ok_and(|attributes| attributes.key == self.root_key)
            && mount(found.as_fd()) == mount(self.root.as_fd())
    }

    /// Whether these bytes are a handle that this server has made, of whatever export.
    ///
    /// # Errors
    /// As for [`handle::open`].
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Status> {
        handle::open(&self.secret, bytes).map(drop)
    }
}
