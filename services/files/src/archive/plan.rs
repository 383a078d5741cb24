//! The first pass: which entries an archive will have, and that all of them can be read.
//!
//! Memory: one string with all paths. Descriptors: one at a time.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::fs::{Dir, FileType};

use super::{ArchiveFormat, Refusal};
use crate::asker::Finder;
use crate::error::FilesError;
use crate::limits::ARCHIVE_DEPTH_MAX;
use crate::listing::Names;
use crate::root::{Kind, Opened};
use crate::target::joined;

/// How large an archive may become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    entries: usize,
    depth: usize,
    path_bytes: usize,
}

impl Bounds {
    pub(crate) fn of(format: ArchiveFormat) -> Self {
        let (entries, path_bytes) = format.entries_and_path_bytes_max();
        Self {
            entries,
            depth: ARCHIVE_DEPTH_MAX,
            path_bytes,
        }
    }
}

/// The entries of an archive, each directory before what is in it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Paths below the directory, each with a NUL after it; those of directories end in a slash.
    paths: Vec<u8>,
    /// How much of that was taken.
    taken: usize,
    entries: usize,
}

/// A tree that is walked.
pub(crate) struct Tree<'a> {
    pub(crate) finder: Finder<'a>,
    /// Where it lies beneath the root.
    pub(crate) path: &'a [u8],
    pub(crate) names: Names,
}

impl Plan {
    /// Walks the directory at the tree's path, which is `directory`.
    ///
    /// # Errors
    /// [`FilesError::OtherMount`] when something lies beyond the reach.
    pub(crate) fn read(
        tree: &Tree<'_>,
        directory: &Opened,
        bounds: Bounds,
    ) -> Result<Self, Refusal> {
        let mut plan = Self::default();
        // Bounded as the entries are. Directories that wait, with their depth.
        let mut waiting = VecDeque::new();
        plan.read_one(tree, directory, b"", 1, bounds, &mut waiting)?;
        while let Some((path, depth)) = waiting.pop_front() {
            match tree.find(&path) {
                Ok(opened) if opened.kind == Kind::Directory => {
                    plan.read_one(tree, &opened, &path, depth, bounds, &mut waiting)?;
                }
                // It is gone, or something else has its name now.
                Ok(_) | Err(FilesError::NotFound | FilesError::Refused(_)) => {}
                Err(FilesError::Forbidden) => return Err(Refusal::Unreadable(path)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(plan)
    }

    /// Adds the entries of one directory, at `path` below that of the archive.
    fn read_one(
        &mut self,
        tree: &Tree<'_>,
        directory: &Opened,
        path: &[u8],
        depth: usize,
        bounds: Bounds,
        waiting: &mut VecDeque<(Vec<u8>, usize)>,
    ) -> Result<(), Refusal> {
        let mut names = names_of(tree, path, directory, bounds.entries - self.entries)?;
        names.sort_unstable();
        for (name, is_link) in names {
            let path = joined(path, &name);
            let kind = match tree.find(&path) {
                Ok(opened) if is_unlisted(&opened) => continue,
                Ok(opened) => opened.kind,
                // Not served, or gone, or not for this request.
                Err(FilesError::NotFound | FilesError::Refused(_)) => continue,
                Err(FilesError::Forbidden) => return Err(Refusal::Unreadable(path)),
                Err(error) => return Err(error.into()),
            };
            match kind {
                Kind::Directory if is_link => {}
                Kind::Directory if depth == bounds.depth => return Err(Refusal::TooDeep),
                Kind::Directory => {
                    self.push(&path, b"/", bounds)?;
                    waiting.push_back((path, depth + 1));
                }
                Kind::File => self.push(&path, b"", bounds)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, path: &[u8], slash: &[u8], bounds: Bounds) -> Result<(), Refusal> {
        if self.entries == bounds.entries {
            return Err(Refusal::TooManyEntries);
        }
        if self.paths.len() + path.len() + slash.len() + 1 > bounds.path_bytes {
            return Err(Refusal::NamesTooLong);
        }
        for part in [path, slash, b"\0"] {
            self.paths.extend_from_slice(part);
        }
        self.entries += 1;
        Ok(())
    }

    /// The next path; that of a directory ends in a slash.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.paths[self.taken..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        self.taken += end + 1;
        Some(&rest[..end])
    }
}

impl Tree<'_> {
    fn find(&self, path: &[u8]) -> Result<Opened, FilesError> {
        self.finder.find(&joined(self.path, path))
    }
}

/// Whether the service that a directory belongs to does not show what is in it.
fn is_unlisted(opened: &Opened) -> bool {
    let terms = opened.terms.filter(|_| opened.kind == Kind::Directory);
    terms.is_some_and(|terms| !terms.is_listed)
}

/// The names of a directory, at `path` below that of the tree, that may be served, and whether each
/// is a link. More than `left` are refused as soon as they are seen.
fn names_of(
    tree: &Tree<'_>,
    path: &[u8],
    directory: &Opened,
    left: usize,
) -> Result<Vec<(Vec<u8>, bool)>, Refusal> {
    let path = joined(tree.path, path);
    let mut names = Vec::new();
    for item in Dir::read_from(directory.file.as_fd()).map_err(FilesError::from)? {
        let item = item.map_err(FilesError::from)?;
        let name = item.file_name();
        if !tree.names.has(&path, name.to_bytes()) {
            continue;
        }
        let file_type = match item.file_type() {
            FileType::Unknown => type_of(directory, name),
            known => known,
        };
        let is_link = match file_type {
            FileType::Symlink => true,
            FileType::RegularFile | FileType::Directory => false,
            // What is no file is not even opened: that may do something to a device.
            _ => continue,
        };
        if names.len() == left {
            return Err(Refusal::TooManyEntries);
        }
        names.push((name.to_bytes().to_vec(), is_link));
    }
    Ok(names)
}

/// Where the file system does not say it with the name.
fn type_of(directory: &Opened, name: &std::ffi::CStr) -> FileType {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statat(&directory.file, name, flags);
    stat.map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use crate::asker::Asker;
    use crate::root::{Reach, Root};
    use crate::target::Hidden;

    const BOUNDS: Bounds = Bounds {
        entries: 6,
        depth: 3,
        path_bytes: 100,
    };

    fn plan_of(
        folder: &Path,
        path: &str,
        hidden: Hidden,
        bounds: Bounds,
    ) -> Result<String, Refusal> {
        let root = Root::open(folder).expect("open");
        let tree = Tree {
            finder: Finder {
                root: &root,
                reach: Reach::Everywhere,
                asker: &Asker::default(),
            },
            path: path.as_bytes(),
            names: hidden.into(),
        };
        let directory = root.find(path.as_bytes()).expect("find");
        let mut plan = Plan::read(&tree, &directory, bounds)?;
        let mut all = Vec::new();
        while let Some(path) = plan.next() {
            all.push(String::from_utf8_lossy(path).into_owned());
        }
        Ok(all.join(" "))
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_only_what_is_served_is_there() {
        let folder = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| folder.path().join("served").join(name);
        fs::create_dir_all(at("b/c")).expect("mkdir");
        fs::create_dir(at("empty")).expect("mkdir");
        fs::write(folder.path().join("secret"), "x").expect("write");
        for name in ["a", "b/x", "b/c/y", ".hidden", "b/.flatpath-upload"] {
            fs::write(at(name), "x").expect("write");
        }
        for (target, name) in [
            ("../../secret", "b/out"),
            ("/etc/passwd", "b/absolute"),
            ("nothing", "b/dangling"),
            ("x", "b/link"),
            ("..", "b/circle"),
            ("loop", "loop"),
        ] {
            symlink(target, at(name)).expect("symlink");
        }
        let _socket = std::os::unix::net::UnixListener::bind(at("socket"));
        let served = folder.path().join("served");
        let bounds = Bounds {
            entries: 100,
            ..BOUNDS
        };
        let plan = |path, hidden| plan_of(&served, path, hidden, bounds).expect("a plan");
        assert_eq!(
            plan("", Hidden::Refused),
            "a b/ empty/ b/c/ b/link b/x b/c/y"
        );
        assert_eq!(plan("b", Hidden::Refused), "c/ link x c/y");
        let all = ".hidden a b/ empty/ b/c/ b/link b/x b/c/y";
        assert_eq!(plan("", Hidden::Served), all);
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let folder = tempfile::tempdir().expect("tempdir");
        let write = |name: &str| fs::write(folder.path().join(name), "x").expect("write");
        fs::create_dir_all(folder.path().join("1/2")).expect("mkdir");
        for name in ["1/2/a", "1/2/b", "1/2/c", "d"] {
            write(name);
        }
        let plan = |bounds| plan_of(folder.path(), "", Hidden::Refused, bounds);
        assert_eq!(plan(BOUNDS).as_deref(), Ok("1/ d 1/2/ 1/2/a 1/2/b 1/2/c"));
        let entries = BOUNDS.entries - 1;
        assert_eq!(
            plan(Bounds { entries, ..BOUNDS }),
            Err(Refusal::TooManyEntries)
        );
        let depth = BOUNDS.depth - 1;
        assert_eq!(plan(Bounds { depth, ..BOUNDS }), Err(Refusal::TooDeep));
        // The paths, each with its end.
        let path_bytes = "1/ d 1/2/ 1/2/a 1/2/b 1/2/c ".len();
        assert!(
            plan(Bounds {
                path_bytes,
                ..BOUNDS
            })
            .is_ok()
        );
        let path_bytes = path_bytes - 1;
        assert_eq!(
            plan(Bounds {
                path_bytes,
                ..BOUNDS
            }),
            Err(Refusal::NamesTooLong)
        );
    }

    #[test]
    fn links_that_are_left_out_are_counted_as_they_are_looked_at() {
        let folder = tempfile::tempdir().expect("tempdir");
        for number in 0..BOUNDS.entries + 1 {
            symlink("nothing", folder.path().join(number.to_string())).expect("symlink");
        }
        let plan = plan_of(folder.path(), "", Hidden::Refused, BOUNDS);
        assert_eq!(plan, Err(Refusal::TooManyEntries));
    }
}
