//! Resolving a path beneath a directory without `openat2`, name by name.
//!
//! Each directory on the way is held open while the walk is below it, and `..` (which only a link
//! can bring in) goes back to the one held rather than asking the file system. So the walk never
//! stands anywhere but in the root or in a directory that it entered downwards from there, whatever
//! is renamed meanwhile. The outcome is that of `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`: absolute
//! links and `..` out of the root lead to [`Errno::XDEV`].
//!
//! A walk can be traced: then it notes the directories that it came down through, so that the place
//! of what it found, and of each link on the way, is known whatever the path was. A traced walk may
//! use `openat2` for each name, which keeps it on one mount, or to what the kernel has cached.
//!
//! Cost: one `openat` per name, and a `readlinkat` per link; descriptors as deep as the path.
//! Traced, one `fstat` per directory more.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat};
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
    Walk::new(root, path, None).descend()
}

/// Device and inode of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryId(u64, u64);

impl From<&Stat> for DirectoryId {
    fn from(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// A name on the way to a file, and the directory that has it, if one has.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: Vec<u8>,
    pub(crate) directory: Option<DirectoryId>,
}

/// A walk that noted where it came through.
pub(crate) struct Traced {
    pub(crate) opened: Result<OwnedFd, Errno>,
    /// The place of what was found, or of where the walk ended, and those of the links on the way:
    /// each the steps down from the root.
    pub(crate) places: Vec<Vec<Step>>,
    pub(crate) followed_links: bool,
}

/// The same, traced. `how` restricts the lookup of each name; `None` where there is no `openat2`.
pub(crate) fn trace(root: BorrowedFd<'_>, path: &[u8], how: Option<ResolveFlags>) -> Traced {
    let trace = Trace {
        how,
        links: Vec::new(),
        last: None,
    };
    let mut walk = Walk::new(root, path, Some(trace));
    let opened = walk.descend();
    let mut end = walk.steps();
    let trace = walk.trace.take();
    let (mut places, last) = trace.map_or_else(Default::default, |it| (it.links, it.last));
    let last = last.or_else(|| Some(Step::missing(walk.names.pop_front()?)));
    end.extend(last);
    places.push(end);
    Traced {
        opened,
        places,
        followed_links: walk.links > 0,
    }
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The directories entered, outermost first.
    held: Vec<Held>,
    /// The rest of the path. Links put their own names in front.
    names: VecDeque<Vec<u8>>,
    links: usize,
    trace: Option<Trace>,
}

/// A directory that a walk is in or below.
struct Held {
    directory: OwnedFd,
    /// Where the walk is traced.
    step: Option<Step>,
}

#[derive(Default)]
struct Trace {
    how: Option<ResolveFlags>,
    /// The places of links that were followed.
    links: Vec<Vec<Step>>,
    /// The last name of the path, if it was reached.
    last: Option<Step>,
}

impl Step {
    fn missing(name: Vec<u8>) -> Self {
        let directory = None;
        Self { name, directory }
    }

    /// To what is open.
    fn to(name: &[u8], opened: &OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(opened)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Self {
            name: name.to_vec(),
            directory: is_directory.then(|| (&stat).into()),
        })
    }
}

impl<'a> Walk<'a> {
    fn new(root: BorrowedFd<'a>, path: &[u8], trace: Option<Trace>) -> Self {
        Self {
            root,
            held: Vec::new(),
            names: names_of(path).collect(),
            links: 0,
            trace,
        }
    }

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
                    match self.open(&name, flags) {
                        Ok(opened) => {
                            let traced = self.trace.as_ref();
                            let step = traced.map(|_| Step::to(&name, &opened)).transpose()?;
                            if !is_last {
                                let directory = opened;
                                self.held.push(Held { directory, step });
                                continue;
                            }
                            if let Some(trace) = &mut self.trace {
                                trace.last = step;
                            }
                            return Ok(opened);
                        }
                        // LOOP: a link, opened as a file. NOTDIR: a link, or no directory.
                        Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => self.follow(&name, errno)?,
                        Err(errno) => {
                            self.names.push_front(name);
                            return Err(errno);
                        }
                    }
                }
            }
        }
        // The path ended in `.` or `..`, so it is the directory that was reached.
        openat(self.here(), ".", READ | OFlags::DIRECTORY, Mode::empty())
    }

    fn open(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.trace.as_ref().and_then(|trace| trace.how) {
            Some(how) => openat2(self.here(), name, flags, Mode::empty(), how),
            None => openat(self.here(), name, flags, Mode::empty()),
        }
    }

    fn here(&self) -> BorrowedFd<'_> {
        let innermost = self.held.last();
        innermost.map_or(self.root, |held| held.directory.as_fd())
    }

    /// The steps down to where the walk is.
    fn steps(&self) -> Vec<Step> {
        let steps = self.held.iter().filter_map(|held| held.step.clone());
        steps.collect()
    }

    /// Puts the names of a link's target in front. `otherwise` is the answer if it is no link.
    fn follow(&mut self, name: &[u8], otherwise: Errno) -> Result<(), Errno> {
        let how = self.trace.as_ref().and_then(|trace| trace.how);
        if how.is_some_and(|how| how.contains(ResolveFlags::CACHED)) {
            // To read a link may wait.
            return Err(Errno::AGAIN);
        }
        let steps = self.steps();
        if let Some(trace) = &mut self.trace {
            let link = Step::missing(name.to_vec());
            let place = steps.into_iter().chain([link]);
            trace.links.push(place.collect());
        }
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
