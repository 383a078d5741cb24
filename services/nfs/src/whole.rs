//! Whether a directory is the root of a whole file system, so that no file of it lies elsewhere.
//!
//! Where a file of such an export lies need not be asked: it is inside as long as it has a name.
//! That it has one is what its count of links says, on file systems that keep it exactly (overlays
//! do not, for directories). Part of a file system, as a mount of a subdirectory also is, is not
//! whole: a file may be moved out of it.

use std::fs;

use flatpath::prompt::FileSystem;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags};

/// The kernel's table of mounts, as this process sees it (proc(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// File systems whose files have no links once their last name is gone.
const EXACT: &[&str] = &["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"];

/// See the module. What the kernel does not tell is not whole.
pub(crate) fn is_whole(directory: impl AsFd, files: &FileSystem) -> bool {
    let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let Ok(found) = found else {
        return false;
    };
    // STATX_ATTR_MOUNT_ROOT: the directory is what was mounted, and not one below.
    const MOUNT_ROOT: u64 = 0x2000;
    let is_root = found.stx_attributes.bits() & MOUNT_ROOT != 0;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if !files.is_local() || !is_root || !is_known {
        return false;
    }
    fs::read(TABLE).is_ok_and(|table| says_whole(&table, found.stx_mnt_id))
}

/// Whether the table has the mount with this number as one of a whole file system.
fn says_whole(table: &[u8], number: u64) -> bool {
    // Paths may be any bytes; what is looked at is ASCII.
    let table = String::from_utf8_lossy(table);
    table.lines().any(|line| {
        let mut fields = line.split(' ');
        let (id, root) = (fields.next(), fields.nth(2));
        let kind = fields.skip_while(|field| *field != "-").nth(1);
        id.and_then(|id| id.parse().ok()) == Some(number)
            && root == Some("/")
            && kind.is_some_and(|kind| EXACT.contains(&kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_root_of_a_file_system_that_counts_names_is_whole() {
        let table = b"21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            22 21 254:0 /srv/part /mnt rw - ext4 /dev/vda rw\n\
            23 21 0:40 / /var/x\\040y rw master:2 shared:3 - xfs /dev/vdb rw\n\
            24 21 0:41 / /merged rw - overlay overlay rw\n\
            25 21 0:42 / /remote rw - nfs4 host:/ rw\n";
        let whole: Vec<u64> = (20..27).filter(|id| says_whole(table, *id)).collect();
        assert_eq!(whole, [21, 23]);
    }

    #[test]
    fn a_directory_below_a_mount_is_not_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = fs::File::open(directory.path()).expect("open");
        assert!(!is_whole(&opened, &FileSystem::of(&opened)));
    }
}
