//! Which mounts lie at and below the served directory, and how many workers may wait for each.
//!
//! A path is looked up and a file's state read on a network thread only where the kernel answers
//! from memory or a local disk. A network or user-space file system (NFS, FUSE, autofs) may take
//! for ever, and a path that crosses into one takes its time with it. So a network thread looks
//! only at files on the mount of the directory itself ([`crate::root::Locality`]), and only while
//! the version of its home ([`Versions::home`]) is the one under which a worker found
//! them. It changes when a mount appears, goes or is replaced, too.
//!
//! Workers may block, but not all of them for one mount: a request enters the [`BlockingLimit`] of
//! the mount that its path leads to, before anything is asked there. A mount that only a link leads
//! to is not known by the path; [`crate::root::Reach`] finds out without walking into it.
//!
//! The kernel marks `/proc/self/mountinfo` readable with priority when the table changes. The
//! housekeeper waits for that; network threads read one atomic. Where the table cannot be watched,
//! no file counts as local.
//!
//! Does not: notice a mount before the kernel has reported it. In the moments between, a walk to a
//! cached file that the new mount covers crosses into it.
//!
//! | may run beside | limit_of | watcher |
//! |----------------|----------|---------|
//! | limit_of       | yes      | yes     |
//!
//! Cost: `limit_of` is one short lock and one comparison per mount below the directory.

use std::fs;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use flatpath::blocking::{BlockingLimit, WaitLimits};
use flatpath::housekeeper::{Cause, Next, Task};
use flatpath::lock::{Guard, Lock};
use flatpath_sys::mount_table::unescape;
use rustix::event::PollFlags;

use crate::limits::MOUNTS_MAX;
use crate::root::{Locality, Root};
use crate::stat::mount_of;
use crate::versions::Versions;

/// The kernel's table of mounts, as this process sees it (proc(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// One mount below the served directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Where it is, relative to the directory.
    point: Vec<u8>,
    /// The kernel's number for it.
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Mounts(Arc<Known>);

#[derive(Debug)]
pub(crate) struct Known {
    versions: Arc<Versions>,
    below: Lock<Vec<(Mount, BlockingLimit)>>,
    /// Of the directory's own mount, where that may block.
    own: Option<BlockingLimit>,
    /// Of all mounts that a link led to.
    linked: BlockingLimit,
}

impl Mounts {
    /// Reads the table and begins to watch it, until the task is dropped. Without one no change
    /// will be noticed.
    pub(crate) fn watch(directory: BorrowedFd<'_>, known: Known) -> (Self, Option<Task>) {
        let known = Arc::new(known);
        let watcher = Watcher::start(directory, &known).inspect_err(|cause| {
            log::warn!("{TABLE} cannot be watched ({cause}): cached files are checked by workers");
        });
        (Self(known), watcher.ok())
    }

    /// The limit for what this path leads to by its text; links are not followed.
    /// `None`: it stays on the mount of the directory itself, and that does not block.
    pub(crate) fn limit_of(&self, path: &[u8]) -> Option<BlockingLimit> {
        let below = self.0.below();
        let holds = |(mount, _): &&(Mount, BlockingLimit)| {
            let rest = path.strip_prefix(&mount.point[..]);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let innermost = below.iter().filter(holds);
        let innermost = innermost.max_by_key(|(mount, _)| mount.point.len());
        innermost
            .map(|(_, limit)| limit)
            .or(self.0.own.as_ref())
            .cloned()
    }

    /// Whether any path has a limit: on a local directory without mounts below it none has.
    pub(crate) fn has_limits(&self) -> bool {
        self.0.has_limits()
    }

    /// Whether any mount is below the directory.
    pub(crate) fn are_below(&self) -> bool {
        !self.0.below().is_empty()
    }

    /// The limit for what a link leads to on another mount, whichever that is.
    pub(crate) fn limit_of_links(&self) -> BlockingLimit {
        self.0.linked.clone()
    }

    /// The limits of the mounts at and below the directory.
    pub(crate) fn limits(&self) -> Vec<BlockingLimit> {
        self.0.limits()
    }
}

impl Known {
    /// Of this root; `linked` is the limit of all mounts that links lead to.
    pub(crate) fn new(root: &Root, versions: &Arc<Versions>, linked: &BlockingLimit) -> Self {
        let own = || {
            const NAME: &str = "the served directory";
            let number = mount_of(root.directory());
            number.map_or_else(
                || BlockingLimit::new(NAME, WaitLimits::MOUNT),
                |number| BlockingLimit::of_mount(number, NAME),
            )
        };
        Self {
            versions: Arc::clone(versions),
            below: Lock::default(),
            own: (root.locality() == Locality::Remote).then(own),
            linked: linked.clone(),
        }
    }

    fn below(&self) -> Guard<'_, Vec<(Mount, BlockingLimit)>> {
        // Only assigned to under the lock.
        self.below.lock()
    }

    fn update(&self, below: Vec<Mount>) {
        let mut known = self.below();
        if known.iter().map(|(mount, _)| mount).eq(&below) {
            return;
        }
        let shared = below.into_iter().map(|mount| {
            // Jobs inside of a mount that stays are still inside.
            let same = known.iter().find(|(known, _)| *known == mount);
            let limit = same.map(|(_, limit)| limit.clone());
            let name = || format!("mount {}", String::from_utf8_lossy(&mount.point));
            let limit = limit.unwrap_or_else(|| BlockingLimit::of_mount(mount.number, name()));
            (mount, limit)
        });
        *known = shared.collect();
        self.versions.home_has_changed();
    }

    fn has_limits(&self) -> bool {
        self.own.is_some() || !self.below().is_empty()
    }

    fn limits(&self) -> Vec<BlockingLimit> {
        let below = self.below();
        let below = below.iter().map(|(_, limit)| limit);
        let all = below.chain(&self.own);
        all.cloned().collect()
    }
}

/// Reads the table when it has changed.
struct Watcher {
    table: fs::File,
    directory: OwnedFd,
    known: Arc<Known>,
}

impl Watcher {
    fn start(directory: BorrowedFd<'_>, known: &Arc<Known>) -> io::Result<Task> {
        let mut watcher = Self {
            table: fs::File::open(TABLE)?,
            directory: directory.try_clone_to_owned()?,
            known: Arc::clone(known),
        };
        watcher.read()?;
        let table = watcher.table.try_clone()?.into();
        let changed = PollFlags::PRI | PollFlags::ERR;
        Task::watching("mounts", table, changed, move |cause| watcher.run(cause))
    }

    fn run(&mut self, cause: Cause) -> Next {
        if cause == Cause::Descriptor
            && let Err(cause) = self.read()
        {
            log::warn!("{TABLE} cannot be read: {cause}");
        }
        Next::WhenWoken
    }

    fn read(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut text)?;
        // Read anew each time: the directory may have been renamed.
        let descriptor = self.directory.as_fd().as_raw_fd();
        let directory = fs::read_link(format!("/proc/self/fd/{descriptor}"))?;
        let directory = directory.into_os_string().into_vec();
        self.known.update(mounts_below(&directory, &text));
        Ok(())
    }
}

/// The mounts below `directory` in the text of a mountinfo file. Of several on one point the last
/// line is the one on top.
fn mounts_below(directory: &[u8], text: &[u8]) -> Vec<Mount> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let mut below: Vec<Mount> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
        let mut fields = line.split(|byte| *byte == b' ');
        let number = fields.next().and_then(|number| {
            let number = std::str::from_utf8(number).ok()?;
            number.parse::<u64>().ok()
        });
        let point = fields.nth(3).map(unescape);
        let (Some(number), Some(point)) = (number, point) else {
            continue;
        };
        let inside = point.strip_prefix(directory);
        let Some(point) = inside.and_then(|inside| inside.strip_prefix(b"/")) else {
            continue;
        };
        if point.is_empty() {
            continue;
        }
        below.retain(|mount| mount.point != point);
        if below.len() < MOUNTS_MAX {
            let point = point.to_vec();
            below.push(Mount { point, number });
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const TEXT: &[u8] = b"\
        22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        40 27 0:50 / /srv/www/data rw shared:1 - nfs4 host:/x rw\n\
        41 40 0:51 / /srv/www/data/in\\040ner rw - fuse.sshfs host: rw\n\
        42 27 0:52 / /srv/www2 rw - tmpfs tmpfs rw\n\
        43 27 0:53 / /srv/www/data rw - nfs4 other:/x rw\n";

    /// Of a directory that is taken for one of this machine.
    fn known(versions: &Arc<Versions>) -> Known {
        let root = Root::open(Path::new("/")).expect("open");
        let linked = BlockingLimit::new("links", WaitLimits::MOUNT);
        Known {
            own: None,
            ..Known::new(&root, versions, &linked)
        }
    }

    fn points(directory: &str) -> Vec<(String, u64)> {
        let point = |mount: Mount| {
            let point = String::from_utf8(mount.point).expect("text");
            (point, mount.number)
        };
        let below = mounts_below(directory.as_bytes(), TEXT);
        below.into_iter().map(point).collect()
    }

    #[test]
    fn mounts_below_the_directory_are_found_by_their_point() {
        let data = [("data/in ner".to_string(), 41), ("data".to_string(), 43)];
        assert_eq!(points("/srv/www"), data);
        assert_eq!(points("/srv/www/"), data);
        assert_eq!(points("/srv/www2"), []);
        assert_eq!(points("/srv/ww"), []);
        assert_eq!(points("/").len(), 4, "/ itself is not below");
    }

    #[test]
    fn a_path_belongs_to_the_innermost_mount() {
        let known = known(&Versions::new());
        known.update(mounts_below(b"/srv/www", TEXT));
        let mounts = Mounts(Arc::new(known));
        let name = |path: &str| {
            let limit = mounts.limit_of(path.as_bytes());
            limit.map(|limit| limit.name().to_string())
        };
        assert_eq!(name("data").as_deref(), Some("mount data"));
        assert_eq!(name("data/a").as_deref(), Some("mount data"));
        assert_eq!(
            name("data/in ner/a/b").as_deref(),
            Some("mount data/in ner")
        );
        assert_eq!(name("data2/a"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn the_version_changes_with_the_mounts_below_and_only_then() {
        let versions = Versions::new();
        let known = known(&versions);
        known.update(mounts_below(b"/srv/www", TEXT));
        let before = versions.home();
        let elsewhere = [TEXT, b"50 27 0:60 / /mnt rw - tmpfs tmpfs rw\n"].concat();
        known.update(mounts_below(b"/srv/www", &elsewhere));
        assert_eq!(versions.home(), before);
        let here = [TEXT, b"50 27 0:60 / /srv/www/m rw - tmpfs tmpfs rw\n"].concat();
        known.update(mounts_below(b"/srv/www", &here));
        assert_ne!(versions.home(), before);
    }
}
