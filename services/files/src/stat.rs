//! Facts about an open descriptor: its kind, its state and its mount.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

use crate::identity::Identity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    /// On the mount of the root, whose file system is in memory or on a disk of this machine.
    Local,
    /// Anywhere else, or the kernel cannot tell: a call may block for as long as it likes.
    Remote,
}

impl Locality {
    pub(crate) fn beside(self, other: Self) -> Self {
        match (self, other) {
            (Self::Local, Self::Local) => Self::Local,
            _ => Self::Remote,
        }
    }
}

pub(crate) struct FileStat {
    pub(crate) file_type: FileType,
    pub(crate) identity: Identity,
    /// The number of its mount, where the kernel has one.
    pub(crate) mount: Option<u64>,
}

pub(crate) fn stat_of(descriptor: BorrowedFd<'_>) -> Result<FileStat, Errno> {
    stat_by(descriptor, AtFlags::EMPTY_PATH)
}

/// The same of what the kernel has of it without asking another machine or process.
pub(crate) fn stat_cached(descriptor: BorrowedFd<'_>) -> Result<FileStat, Errno> {
    stat_by(descriptor, AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)
}

fn stat_by(descriptor: BorrowedFd<'_>, flags: AtFlags) -> Result<FileStat, Errno> {
    let mask = Identity::MASK | StatxFlags::MNT_ID;
    match rustix::fs::statx(descriptor, c"", flags, mask) {
        Ok(statx) => Ok(FileStat {
            file_type: FileType::from_raw_mode(u32::from(statx.stx_mode)),
            identity: Identity::from_statx(&statx),
            mount: (statx.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(statx.stx_mnt_id),
        }),
        // Forbidden by a filter of system calls.
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = rustix::fs::fstat(descriptor)?;
            Ok(FileStat {
                file_type: FileType::from_raw_mode(stat.st_mode),
                identity: Identity::from_stat(&stat),
                mount: None,
            })
        }
        Err(errno) => Err(errno),
    }
}

/// The number of the mount of a directory, where the kernel has one.
pub(crate) fn mount_of(directory: BorrowedFd<'_>) -> Option<u64> {
    stat_of(directory).ok()?.mount
}
