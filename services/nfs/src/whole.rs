//! Whether a directory is the root of a whole file system, so that no file of it lies elsewhere.
//!
//! Where a file of such an export lies need not be asked: it is inside as long as it has a name.
//! That it has one is what its count of links says, on file systems that keep it exactly (overlays
//! do not, for directories). Part of a file system, as a mount of a subdirectory also is, is not
//! whole: a file may be moved out of it.

use flatpath::prompt::FileSystem;
use rustix::fd::AsFd;

use crate::mounts::{Mount, mount_at};

/// File systems whose files have no links once their last name is gone.
const EXACT: &[&str] = &["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"];

/// See the module. What the kernel does not tell is not whole.
pub(crate) fn is_whole(directory: impl AsFd, files: &FileSystem) -> bool {
    let is_whole =
        |mount: Mount| mount.is_its_root && mount.of_root && EXACT.contains(&mount.kind.as_str());
    files.is_local() && mount_at(directory).is_some_and(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_below_a_mount_is_not_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = std::fs::File::open(directory.path()).expect("open");
        assert!(!is_whole(&opened, &FileSystem::of(&opened)));
    }
}
