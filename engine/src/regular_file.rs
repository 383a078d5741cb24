//! Files that a user names: opened without waiting, and nothing but regular ones.
//!
//! Opening a FIFO waits for a writer, and opening a device for the device, perhaps without end. So
//! a file of settings, certificates or passwords is opened by [`open`]. A disk or another machine
//! that does not answer can still keep it waiting: no call bounds that.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading.
///
/// # Errors
/// It cannot be opened, or is none: a directory, a FIFO, a socket, a device.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    // The bits are those of open(2).
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let fifo = folder.path().join("fifo");
        let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).expect("made");
        let directory = folder.path();
        for path in [&*fifo, directory, Path::new("/dev/null")] {
            let why = open(path).expect_err("it is no file").to_string();
            assert_eq!(why, "it is not a regular file", "{}", path.display());
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "content").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("file", &link).expect("linked");
        for path in [&file, &link] {
            let read = open(path).map(io::read_to_string);
            assert_eq!(read.expect("opened").expect("read"), "content");
        }
    }
}
