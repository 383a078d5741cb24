//! Resolving a path beneath a directory without `openat2`, name by name.
//!
//! Each directory on the way is held open while the walk is below it, and `..` (which only a link
//! can bring in) goes back to the one held rather than asking the file system. So the walk never
//! stands anywhere but in the root or in a directory that it entered downwards from there, whatever
//! is renamed meanwhile. The outcome is that of `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`: absolute
//! links and `..` out of the root lead to [`Errno::XDEV`].
//!
//! Cost: one `openat` per name, and a `readlinkat` per link; descriptors as deep as the path.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use crate::limits::{LINKS_MAX, PATH_BYTES_MAX};

/// How a file that is to be read is opened.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// A directory on the way is only passed through: it needs to be searchable, not readable.
const PASS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens `path` beneath `root` for reading.
pub(crate) fn resolve(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut walk = Walk {
        root,
        held: Vec::new(),
        names: VecDeque::new(),
        links: 0,
    };
    walk.names.extend(names_of(path));
    walk.descend()
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The directories entered, outermost first.
    held: Vec<OwnedFd>,
    /// The rest of the path. Links put their own names in front.
    names: VecDeque<Vec<u8>>,
    links: usize,
}

impl Walk<'_> {
    /// Bounded: every round takes a name away, and only `LINKS_MAX` rounds put any in.
    fn descend(&mut self) -> Result<OwnedFd, Errno> {
        while let Some(name) = self.names.pop_front() {
            let is_last = self.names.is_empty();
            match name.as_slice() {
                b"." => {}
                b".." => {
                    self.held.pop().ok_or(Errno::XDEV)?;
                }
                _ => {
                    let flags = if is_last {
                        READ | OFlags::NOFOLLOW
                    } else {
                        PASS
                    };
                    match openat(self.here(), name.as_slice(), flags, Mode::empty()) {
                        Ok(opened) if is_last => return Ok(opened),
                        Ok(opened) => self.held.push(opened),
                        // LOOP: a link, opened as a file. NOTDIR: a link, or no directory.
                        Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => self.follow(&name, errno)?,
                        Err(errno) => return Err(errno),
                    }
                }
            }
        }
        // The path ended in `.` or `..`, so it is the directory that was reached.
        openat(self.here(), ".", READ | OFlags::DIRECTORY, Mode::empty())
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.held.last().map_or(self.root, AsFd::as_fd)
    }

    /// Puts the names of a link's target in front. `otherwise` is the answer if it is no link.
    fn follow(&mut self, name: &[u8], otherwise: Errno) -> Result<(), Errno> {
        let target = match readlinkat(self.here(), name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(Errno::INVAL) => return Err(otherwise),
            Err(errno) => return Err(errno),
        };
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        if target.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        if target.is_empty() || target.len() > PATH_BYTES_MAX {
            return Err(Errno::NOENT);
        }
        for name in names_of(&target).rev() {
            self.names.push_front(name);
        }
        Ok(())
    }
}

/// The names of a path. A slash at the end is a `.`: only a directory will do.
fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let tail = path.ends_with(b"/").then(|| b".".to_vec());
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).chain(tail)
}
