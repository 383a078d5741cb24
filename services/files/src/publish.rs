//! Gives a complete file its name, so that readers see the old file or the new one.
//!
//! A file without a name gets one by `linkat` where nothing had it, else by a hidden name and a
//! `rename` over the old file. A file with a hidden name is renamed. `RENAME_NOREPLACE` keeps a
//! name that another process made meanwhile; file systems that know no flags of `renameat2` (FUSE
//! through libfuse 2, NFS) get `linkat` and `unlinkat` instead, and those without hard links a
//! plain `rename`, which may then replace what another process made in that moment.
//!
//! Invariants
//! - One publication at a time per directory of this process, so that conditions hold for the file
//!   that is replaced. No lock is shared by two directories: one on a file system that hangs stops
//!   no other.
//! - A file that the kernel reports a loss of gets no name.
//! - With [`Durability::Disk`] the data is on the disk before the name is given, and the name is
//!   before the answer (`fsync` of the file, then of its directory).
//! - The mode of a replaced file is kept; a new file has what the umask leaves.
//!
//! Only a process that is killed between `linkat` and `rename` leaves a hidden `.flatpath-put-*`,
//! which the next start removes (`leftovers`).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use flatpath_http::Response;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use crate::conditional::{EntityTags, Validators};
use crate::identity::{Identity, clock_of_files};
use crate::keyed::KeyedLock;
use crate::leftovers::{fresh_name, hold_unnamed};
use crate::limits::STABLE_AFTER;
use crate::responses::{Refusal, Result, bare, with};
use crate::writing::{Durability, Existing, allow, existing_at};

pub(crate) struct Publication<'a> {
    pub(crate) directory: &'a File,
    pub(crate) name: &'a [u8],
    /// Conditions on the file that is replaced.
    pub(crate) conditions: &'a HeaderMap,
    pub(crate) tags: EntityTags,
    pub(crate) file: &'a File,
    /// Its present name in the same directory, if it has one.
    pub(crate) hidden: Option<&'a [u8]>,
    pub(crate) durability: Durability,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    Created,
    Replaced,
}

/// Directories in which a file is getting its name now, by device and inode.
static NAMING: LazyLock<KeyedLock<(u64, u64)>> = LazyLock::new(KeyedLock::new);

impl Publication<'_> {
    /// Gives the file its name. After an error it has the name that it had before, or none.
    pub(crate) fn publish(&self) -> Result<Published> {
        // Settled before the lock is taken, because that may last; the mode belongs to it.
        let mut mode_set = None;
        if let Existing::File { mode, .. } = existing_at(self.directory, self.name)? {
            rustix::fs::fchmod(self.file, mode)?;
            mode_set = Some(mode);
        }
        self.durability.settle(self.file)?;
        let stat = rustix::fs::fstat(self.directory)?;
        let naming = NAMING.lock(&(stat.st_dev, stat.st_ino));
        let existing = existing_at(self.directory, self.name)?;
        allow(&existing, self.conditions, self.tags)?;
        let published = match existing {
            Existing::File { mode, .. } => {
                if mode_set != Some(mode) {
                    rustix::fs::fchmod(self.file, mode)?;
                }
                Published::Replaced
            }
            Existing::Nothing => Published::Created,
        };
        self.give_name(published)?;
        drop(naming);
        sync_directory(self.directory, self.durability)?;
        Ok(published)
    }

    /// Under the lock: only other processes can come between.
    fn give_name(&self, published: Published) -> Result<(), Errno> {
        if let Some(hidden) = self.hidden {
            return match published {
                Published::Created => self.rename_new(hidden),
                Published::Replaced => self.rename(hidden),
            };
        }
        let link = |to: &[u8]| {
            let from = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, from, self.directory, to, AtFlags::SYMLINK_FOLLOW)
        };
        if published == Published::Created {
            return link(self.name);
        }
        let hidden = fresh_name();
        hold_unnamed(self.file);
        link(&hidden)?;
        let renamed = self.rename(&hidden);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(self.directory, &hidden[..], AtFlags::empty());
        }
        renamed
    }

    fn rename(&self, hidden: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat(self.directory, hidden, self.directory, self.name)
    }

    /// To a name that nothing has.
    fn rename_new(&self, hidden: &[u8]) -> Result<(), Errno> {
        let (directory, flags) = (self.directory, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(directory, hidden, directory, self.name, flags) {
            // The file system, or a kernel before 3.15, knows no flags.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            other => return other,
        }
        match rustix::fs::linkat(directory, hidden, directory, self.name, AtFlags::empty()) {
            // The name is given: a hidden one that is not removed takes nothing back.
            Ok(()) => {
                if let Err(errno) = rustix::fs::unlinkat(directory, hidden, AtFlags::empty()) {
                    log::warn!("a temporary name stays behind: {errno}");
                }
                Ok(())
            }
            // Nor does it know hard links.
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::MLINK) => {
                self.rename(hidden)
            }
            Err(errno) => Err(errno),
        }
    }

    /// 201 or 204 for a file that has its name.
    ///
    /// A client that sent a condition is about to send the next one, so its answer waits a moment
    /// ([`STABLE_AFTER`]) until the entity tag can be trusted; others get none and need not wait.
    pub(crate) fn answer(&self, published: Published) -> Response {
        let response = bare(match published {
            Published::Created => StatusCode::CREATED,
            Published::Replaced => StatusCode::NO_CONTENT,
        });
        let is_wanted = !self.conditions.is_empty();
        match is_wanted.then(|| self.tag_when_stable()).flatten() {
            Some(tag) => with(response, header::ETAG, tag),
            None => response,
        }
    }

    fn tag_when_stable(&self) -> Option<HeaderValue> {
        if self.tags == EntityTags::Portable {
            // Not before the second of the modification is over.
            return None;
        }
        let identity = || Some(Identity::from_stat(&rustix::fs::fstat(self.file).ok()?));
        let stored = identity()?;
        let mut now = clock_of_files();
        // Whole seconds would take two seconds to become stable.
        if !stored.last_change(now).is_certain() && stored.changed.nanoseconds != 0 {
            std::thread::sleep(STABLE_AFTER);
            now = clock_of_files();
        }
        // If it was changed or replaced, it is no longer what this request stored.
        let same = identity()? == stored;
        same.then(|| Validators::of(&stored, now, self.tags).tag)?
    }
}

/// Brings the names in a directory to the disk, where they are to be there.
pub(crate) fn sync_directory(directory: &File, durability: Durability) -> Result<()> {
    if durability == Durability::Kernel {
        return Ok(());
    }
    match rustix::fs::fsync(directory) {
        // A file system that cannot sync directories need not.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Refuses what carries part of a file (RFC 9110, 14.5: "an origin server that allows PUT SHOULD
/// respond with 400 if it receives Content-Range on a target that does not support it").
pub(crate) fn refuse_part() -> Refusal {
    Refusal::because(
        StatusCode::BAD_REQUEST,
        "PUT takes no Content-Range here: send the whole file, or a resumable upload by tus 1.0.0 \
         (POST, then PATCH)",
    )
}
