//! Close with its result (`close(2)`).
//!
//! Dropping an `OwnedFd` or a `File` closes it and ignores what the kernel says. Some file systems
//! (NFS, FUSE) report only then that data which was written is lost.
//!
//! Cost: the one system call; [`flush`] takes two.

use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};

/// Closes a descriptor.
///
/// # Errors
/// The kernel's error about the file. The descriptor is closed all the same: Linux releases it
/// before anything that may fail, so an interrupted close is none to repeat.
pub fn close(file: OwnedFd) -> io::Result<()> {
    let number = file.into_raw_fd();
    // SAFETY: the descriptor was owned by `file`, which has given it up, so nothing else closes it.
    match unsafe { libc::close(number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the file system say what a close would say, and keeps the file open: the kernel flushes a
/// file with each descriptor that is closed (`filp_flush` in `fs/open.c`), so with a duplicate.
/// On NFS that writes data to the server; local file systems have nothing to flush.
///
/// # Errors
/// The kernel's error about the file, or no descriptor is left (`EMFILE`), and nothing was asked.
pub fn flush(file: BorrowedFd<'_>) -> io::Result<()> {
    close(file.try_clone_to_owned()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    #[test]
    fn the_other_end_of_a_pipe_sees_the_close() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        close(writer.into()).expect("a pipe has nothing to lose");
        assert_eq!(reader.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn what_is_flushed_stays_open() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        flush(writer.as_fd()).expect("a pipe has nothing to lose");
        (&writer).write_all(b"x").expect("it is open");
        drop(writer);
        assert_eq!(reader.read(&mut [0; 2]).expect("a byte"), 1);
    }
}
