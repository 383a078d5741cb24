//! Which mount a directory lies on, and what is mounted there.

use std::path::Path;
use std::{fs, io};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The kernel's table of mounts, as this process sees it (proc(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// What is mounted where a directory lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The kernel's name for the kind of file system.
    pub(crate) kind: String,
    /// All of the file system is mounted, and not a directory of it.
    pub(crate) of_root: bool,
    /// The directory is what was mounted, and not one below.
    pub(crate) is_its_root: bool,
}

/// The mount of an open directory. `None`: the kernel does not tell.
pub(crate) fn mount_at(directory: impl AsFd) -> Option<Mount> {
    let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    // STATX_ATTR_MOUNT_ROOT
    const MOUNT_ROOT: u64 = 0x2000;
    let is_its_root = found.stx_attributes.bits() & MOUNT_ROOT != 0;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let table = fs::read(TABLE).ok().filter(|_| is_known)?;
    let (kind, of_root) = entry_of(&table, found.stx_mnt_id)?;
    Some(Mount {
        kind,
        of_root,
        is_its_root,
    })
}

/// What the table says of the mount with this number: the kind, and whether it is a whole file
/// system.
fn entry_of(table: &[u8], number: u64) -> Option<(String, bool)> {
    // Paths may be any bytes; what is looked at is ASCII.
    let table = String::from_utf8_lossy(table);
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (id, root) = (fields.next(), fields.nth(2));
        let kind = fields.skip_while(|field| *field != "-").nth(1)?;
        let is_it = id.and_then(|id| id.parse().ok()) == Some(number);
        is_it.then(|| (kind.to_owned(), root == Some("/")))
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number_with_its_kind_and_whether_it_is_whole() {
        let table = b"21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            22 21 254:0 /srv/part /mnt rw - ext4 /dev/vda rw\n\
            23 21 0:40 / /var/x\\040y rw master:2 shared:3 - xfs /dev/vdb rw\n\
            24 21 0:41 / /merged rw - overlay overlay rw\n";
        let found = |number| entry_of(table, number);
        assert_eq!(found(21), Some(("ext4".to_owned(), true)));
        assert_eq!(found(22), Some(("ext4".to_owned(), false)));
        assert_eq!(found(23), Some(("xfs".to_owned(), true)));
        assert_eq!(found(24), Some(("overlay".to_owned(), true)));
        assert_eq!(found(2), None);
    }
}
