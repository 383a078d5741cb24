//! An export ends when its directory is removed: every handle of it is stale from then on.
//!
//! Whoever looks at the exports regularly notices it ([`Export::notices_end`]). No call pays a
//! system call for the question; until it is noticed, a call sees what becomes of what it does in a
//! directory without a name.

use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, StatxFlags};

use super::Export;

impl Export {
    /// Whether the directory was removed; the log has one line of it, with this path. Asks what the
    /// kernel knows: never waits.
    pub(crate) fn notices_end(&self, directory: &Path) -> bool {
        // ORDER: Relaxed: see `root`.
        if self.is_gone.load(Ordering::Relaxed) {
            return true;
        }
        let has_no_links = || {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let found = rustix::fs::statx(&self.root, c"", flags, StatxFlags::NLINK);
            found.is_ok_and(|found| found.stx_nlink == 0)
        };
        if !self.root_is_removed() || !has_no_links() {
            return false;
        }
        // ORDER: Relaxed: see `root`.
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            let directory = directory.display();
            log::warn!(
                "the directory of the NFS export {directory} was removed: its handles are stale, \
                 until there is a new one to mount"
            );
        }
        true
    }
}
