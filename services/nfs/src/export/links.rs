//! How many names one file may have, for PATHCONF: what the kernel's file systems enforce.
//!
//! Linux has no call for that; C libraries guess it from the file system's number, which ext2 and
//! ext4 share. An overlay takes what its upper layer takes, and does not say which that is.

use rustix::fd::AsFd;

use crate::mounts::mount_at;

/// The least that any Linux file system in use allows (`LINK_MAX` in
/// `include/uapi/linux/limits.h`).
const UNKNOWN: u32 = 127;

/// The bound of each file system by its name.
const BOUNDS: &[(&str, u32)] = &[
    // EXT2_LINK_MAX in fs/ext2/ext2.h; those of ext3 that a newer driver serves may have more.
    ("ext2", 32_000),
    ("ext3", 32_000),
    // EXT4_LINK_MAX in fs/ext4/ext4.h.
    ("ext4", 65_000),
    // XFS_MAXLINK in fs/xfs/libxfs/xfs_format.h.
    ("xfs", i32::MAX.cast_unsigned()),
    // BTRFS_LINK_MAX in fs/btrfs/ctree.h.
    ("btrfs", 65_535),
    // F2FS_LINK_MAX in fs/f2fs/f2fs.h.
    ("f2fs", u32::MAX),
    // None of its own (s_max_links is 0); the count is of 32 bits.
    ("tmpfs", u32::MAX),
];

/// For the file system of an open directory.
pub(super) fn max_of(directory: impl AsFd) -> u32 {
    let kind = mount_at(directory).map(|mount| mount.kind);
    kind.map_or(UNKNOWN, |kind| max_for(&kind))
}

fn max_for(kind: &str) -> u32 {
    let bound = BOUNDS.iter().find(|(name, _)| *name == kind);
    bound.map_or(UNKNOWN, |(_, bound)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_known_by_its_name_and_others_promise_little() {
        assert_eq!((max_for("ext4"), max_for("ext2")), (65_000, 32_000));
        assert_eq!(max_for("xfs"), 2_147_483_647);
        assert_eq!((max_for("overlay"), max_for("")), (127, 127));
    }
}
