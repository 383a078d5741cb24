//! File systems that a test mounts for itself: unmounted when dropped.
//!
//! They are seen by other processes of the machine meanwhile. Where a test may not mount, it gets
//! `None` and a line with the reason.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::tools;

/// A mounted file system.
pub struct Mounted {
    at: TempDir,
    /// An overlay needs a second layer.
    _empty: Option<TempDir>,
}

impl Mounted {
    /// An empty one in memory, of a mebibyte.
    pub fn tmpfs() -> Option<Mounted> {
        Mounted::new(c"tmpfs", c"size=1m", None)
    }

    /// The files of a directory, as an overlay shows them: read-only.
    pub fn overlay(files: &Path) -> Option<Mounted> {
        let empty = tempfile::tempdir().expect("a directory");
        let (upper, lower) = (files.as_os_str(), empty.path().as_os_str());
        let layers = [b"lowerdir=", upper.as_bytes(), b":", lower.as_bytes()].concat();
        let layers = CString::new(layers).expect("paths have no NUL");
        Mounted::new(c"overlay", &layers, Some(empty))
    }

    fn new(kind: &CStr, options: &CStr, empty: Option<TempDir>) -> Option<Mounted> {
        let at = tempfile::tempdir().expect("a directory");
        match mount(kind, at.path(), kind, MountFlags::empty(), Some(options)) {
            Ok(()) => Some(Mounted { at, _empty: empty }),
            Err(cause) => tools::refused(&format!("{kind:?} cannot be mounted: {cause}")),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.at.path(), UnmountFlags::DETACH).expect("it was mounted");
    }
}
