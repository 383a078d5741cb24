//! Files that a running server reads again: whole ones, and not what another program is still
//! writing.
//!
//! A program that writes a file in place empties it first, and the signal may come before its last
//! line. Half of a configuration may be a configuration, too, without the rules that were at its
//! end. So a file is taken if it has not changed for a moment, is not empty, and ends with a line
//! end, as every editor writes it; else the one before stays in force. A file that is renamed into
//! its place is always whole.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::bounded_file;

/// A file that has not changed for this long is not being written.
const SETTLED: Duration = Duration::from_millis(100);

/// How often one that is being written is waited for.
const WAITS_MAX: u32 = 20;

/// The content of a file that nothing writes.
///
/// # Errors
/// As [`bounded_file::read`]; it is still written, is empty, or has no line end at its end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_with(path, std::thread::sleep)
}

fn read_with(path: &Path, mut pause: impl FnMut(Duration)) -> io::Result<Vec<u8>> {
    let _reading = bounded_file::begin(path.display().to_string());
    for _ in 0..WAITS_MAX {
        let before = fs::metadata(path)?;
        if is_fresh(&before) {
            pause(SETTLED);
        }
        let content = bounded_file::read(path)?;
        if stamp(&fs::metadata(path)?) != stamp(&before) {
            continue;
        }
        return match content.last() {
            Some(b'\n') => Ok(content),
            Some(_) => Err(io::Error::other(
                "its last line has no end: it may be half written (write it whole, and rename it \
                 into its place)",
            )),
            None => Err(io::Error::other("it is empty")),
        };
    }
    Err(io::Error::other("it changes all the time"))
}

/// Whether it was changed a moment ago, or the clock was set back since.
fn is_fresh(file: &Metadata) -> bool {
    let seconds = u64::try_from(file.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(file.ctime_nsec()).unwrap_or_default();
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    let age = SystemTime::now().duration_since(changed);
    age.is_ok_and(|age| age < SETTLED)
}

fn stamp(file: &Metadata) -> [i64; 5] {
    let [device, inode] = [file.dev(), file.ino()].map(u64::cast_signed);
    let size = file.size().cast_signed();
    [device, inode, size, file.ctime(), file.ctime_nsec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_half_written_is_not_taken() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let write = |text: &str| fs::write(&path, text).expect("written");
        let read = || read(&path).map_err(|cause| cause.to_string());
        write("a = 1\nb = 2\n");
        assert_eq!(read().as_deref(), Ok(&b"a = 1\nb = 2\n"[..]));
        write("a = 1\nb = ");
        assert!(read().expect_err("cut").contains("half written"));
        write("");
        assert_eq!(read(), Err("it is empty".into()));
        fs::remove_file(&path).expect("removed");
        read().expect_err("gone");
    }

    #[test]
    fn what_is_being_written_is_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let write = |text: &str| fs::write(&path, text).expect("written");
        write("a = 1\n");
        let mut parts = ["a = 1\nb = 2\n", "a = 1\nb = 2\nc = 3\n"].into_iter();
        let whole = read_with(&path, |pause| {
            std::thread::sleep(pause);
            if let Some(part) = parts.next() {
                write(part);
            }
        });
        assert_eq!(whole.expect("whole"), b"a = 1\nb = 2\nc = 3\n");
        write("a = 0\n");
        let mut count = 0;
        let never = read_with(&path, |_| {
            count += 1;
            write(&format!("a = {count}\n"));
        });
        assert!(never.expect_err("never").to_string().contains("changes"));
    }
}
