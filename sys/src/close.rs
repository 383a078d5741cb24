//! Close with its result (`close(2)`).
//!
//! Dropping an `OwnedFd` or a `File` closes it and ignores what the kernel says. Some file systems
//! (NFS, FUSE) report only then that data which was written is lost.
//!
//! Cost: the one system call.

use std::io;
use std::os::fd::{IntoRawFd as _, OwnedFd};

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_other_end_of_a_pipe_sees_the_close() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        close(writer.into()).expect("a pipe has nothing to lose");
        assert_eq!(reader.read(&mut [0]).expect("the end"), 0);
    }
}
