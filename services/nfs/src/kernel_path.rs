//! What the kernel calls an open file now: the target of its link in `/proc/self/fd`
//! (`proc_pid_fd(5)`).
//!
//! Cost: one system call for each question.

use std::mem::MaybeUninit;

use rustix::fd::BorrowedFd;
use rustix::path::DecInt;

/// The kernel tells paths of at most a page.
pub(crate) const KERNEL_PATH_BYTES_MAX: usize = 4096;

/// Room for such a path. Requests ask for one each: to clear a page first would take longer than
/// the rest of what is done with it.
pub(crate) type PathRoom = [MaybeUninit<u8>; KERNEL_PATH_BYTES_MAX];
pub(crate) const PATH_ROOM: PathRoom = [MaybeUninit::uninit(); KERNEL_PATH_BYTES_MAX];

/// The kernel's suffix of a name that is gone.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// The path of `file`; `descriptors` is `/proc/self/fd`.
///
/// # Errors
/// Of readlinkat(2): `ENAMETOOLONG` where the path is longer than a page.
pub(crate) fn kernel_path<'a>(
    descriptors: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    room: &'a mut PathRoom,
) -> rustix::io::Result<&'a [u8]> {
    let (path, _) = rustix::fs::readlinkat_raw(descriptors, DecInt::from_fd(file), room)?;
    Ok(path)
}
