//! Names of directory entries: which are valid, and how one is opened.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::limits::NAME_BYTES_MAX;
use crate::status::Status;

/// How a name is opened: what it is, not what it points to, and here, not elsewhere.
pub(crate) const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

pub(crate) const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens one name in a directory; the kernel checks whether the calling thread may.
pub(crate) fn open_name(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Status> {
    let opened = rustix::fs::openat2(directory, name, PATH_ONLY, Mode::empty(), RESOLVE);
    Ok(opened?)
}

/// The same, if the kernel has the name and its file in memory. `None`: it would have to look.
pub(crate) fn open_cached_name(
    directory: impl AsFd,
    name: &[u8],
) -> Result<Option<OwnedFd>, Status> {
    let how = RESOLVE.union(ResolveFlags::CACHED);
    match rustix::fs::openat2(directory, name, PATH_ONLY, Mode::empty(), how) {
        // Before Linux 5.12 the kernel does not know the flag.
        Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

/// The names in a path, without those that lead nowhere else.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".")
}

/// A name for a new entry: the names that stand for directories are taken already.
pub(crate) fn new_name(name: &[u8]) -> Result<&[u8], Status> {
    match check_name(name)? {
        b"." | b".." => Err(Status::Exists),
        name => Ok(name),
    }
}

/// A name that may stand for an entry of a directory: not empty, no slash, no NUL, not too long.
pub(crate) fn check_name(name: &[u8]) -> Result<&[u8], Status> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::Invalid);
    }
    Ok(name)
}
