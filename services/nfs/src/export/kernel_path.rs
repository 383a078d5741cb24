//! What the kernel calls an open file now: the target of its link in `/proc/self/fd`
//! (`proc_pid_fd(5)`).
//!
//! Cost: one system call for each question.

use std::mem::MaybeUninit;

use rustix::fd::BorrowedFd;
use rustix::path::DecInt;

use super::Export;

/// The kernel tells paths of at most a page.
pub(super) const KERNEL_PATH_BYTES_MAX: usize = 4096;

/// Room for such a path. It is not cleared: each request has its own, and the kernel fills it.
pub(super) const PATH_ROOM: PathRoom = [MaybeUninit::uninit(); KERNEL_PATH_BYTES_MAX];
type PathRoom = [MaybeUninit<u8>; KERNEL_PATH_BYTES_MAX];

/// The kernel's suffix of a name that is gone.
pub(super) const DELETED: &[u8] = b" (deleted)";

impl Export {
    pub(super) fn kernel_path<'a>(
        &self,
        file: BorrowedFd<'_>,
        room: &'a mut PathRoom,
    ) -> rustix::io::Result<&'a [u8]> {
        let name = DecInt::from_fd(file);
        let (path, _) = rustix::fs::readlinkat_raw(&self.descriptors, name, room)?;
        Ok(path)
    }
}
