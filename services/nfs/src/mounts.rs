//! Which mount a directory lies on.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The kernel's number for the mount of a directory; also two mounts of one file system differ.
pub(crate) fn mount_of(directory: &Path) -> io::Result<u64> {
    let found = rustix::fs::statx(CWD, directory, AtFlags::empty(), StatxFlags::MNT_ID)?;
    Ok(found.stx_mnt_id)
}

/// True when clients could reach `state` through the export: it lies below it, and no mount lies
/// between, which they cannot pass.
pub(crate) fn is_inside(state: &Path, directory: &Path) -> io::Result<bool> {
    let mut at = state;
    while at.starts_with(directory) {
        if at == directory {
            return Ok(true);
        }
        let above = at.parent().unwrap_or(directory);
        if mount_of(at)? != mount_of(above)? {
            return Ok(false);
        }
        at = above;
    }
    Ok(false)
}
