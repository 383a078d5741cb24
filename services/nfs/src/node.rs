//! An open file.
//!
//! A node holds an `O_PATH` descriptor, which follows its file through every rename, and
//! descriptors for reading and writing once a caller read or wrote. What a caller may do is the
//! kernel's verdict per caller, remembered until the file changes.
//!
//! Invariants
//! - N3: each descriptor of a node in the table counts in the server's budget until it is closed.
//! - N4: what was written and not committed is on disk before its descriptor is closed, whatever
//!   thread drops the node last: once no descriptor is open, the kernel may forget that writing
//!   failed. Whatever sync or close says of lost data goes to the write verifier, so that clients
//!   write it again. When the server ends nothing is synced, because the next server has another
//!   verifier.
//! - N5: data counts as unsynced from before it is written until a sync that began after it was
//!   written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use flatpath::descriptors::DescriptorHold;
use flatpath::lock::Lock;
use flatpath_sys::close::close;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, FileType};
use rustix::io::Errno;

use crate::attributes::{Attributes, Time};
use crate::handle::{FileKey, WireHandle};
use crate::identity::Who;
use crate::limits::{GRANT_AGE_MIN, GRANTS_MAX, SWEEPS_IDLE, TARGET_BYTES_MAX};
use crate::verifier::{Work, WriteVerifier};

/// A verdict of the kernel: this caller may do this, as long as the file has not changed.
struct Grant {
    who: Who,
    access: Access,
    changed: Time,
}

/// The state that a reader looked at last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    pub(crate) user: u32,
    pub(crate) changed: Time,
}

impl Seen {
    pub(crate) fn of(attributes: &Attributes) -> Seen {
        Seen {
            size: attributes.size,
            user: attributes.user,
            changed: attributes.changed,
        }
    }
}

#[derive(Default)]
struct Known {
    grants: VecDeque<Grant>,
    seen: Option<Seen>,
}

pub(crate) struct Node {
    /// Opened with `O_PATH`.
    pub(crate) path: OwnedFd,
    pub(crate) key: FileKey,
    pub(crate) handle: WireHandle,
    /// The kind of file, which never changes.
    pub(crate) kind: FileType,
    pub(crate) reader: OnceLock<Data>,
    pub(crate) writer: OnceLock<Data>,
    /// Of a symbolic link: where it points to, which never changes.
    target: OnceLock<Box<[u8]>>,
    known: Lock<Known>,
    /// [`USED`] and [`TOUCHED`], both set by every use.
    used: AtomicU8,
    /// Looks of the sweep since the last use.
    idle: AtomicU8,
    /// A worker has asked the kernel for the permissions.
    asked: AtomicBool,
    /// Data was written that was not made to last since.
    unsynced: AtomicBool,
    /// A directory that was so deep once that the kernel had no path for files in it.
    deep: AtomicBool,
    /// Of the export, as long as it is served (N4).
    verifier: Weak<WriteVerifier>,
    /// For `path`, and so dropped after it (N3).
    counted: Option<DescriptorHold>,
}

pub(crate) struct Data {
    file: OwnedFd,
    /// Dropped after it (N3).
    _counted: Option<DescriptorHold>,
}

impl Data {
    pub(crate) fn new(file: OwnedFd, counted: Option<DescriptorHold>) -> Data {
        Data {
            file,
            _counted: counted,
        }
    }
}

impl AsFd for Data {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Used since the table last looked for the node to drop.
const USED: u8 = 1;
/// Used since the sweep last looked.
const TOUCHED: u8 = 2;

impl Node {
    pub(crate) fn new(path: OwnedFd, attributes: &Attributes, handle: WireHandle) -> Node {
        Node {
            path,
            key: attributes.key,
            handle,
            kind: attributes.kind,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            target: OnceLock::new(),
            known: Lock::default(),
            used: AtomicU8::new(USED | TOUCHED),
            idle: AtomicU8::new(0),
            asked: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            verifier: Weak::new(),
            counted: None,
        }
    }

    /// The same file with nothing but the path open. What was known goes along.
    pub(crate) fn renewed(&self, counted: Option<DescriptorHold>) -> rustix::io::Result<Node> {
        Ok(Node {
            path: rustix::io::fcntl_dupfd_cloexec(&self.path, 0)?,
            key: self.key,
            handle: self.handle,
            kind: self.kind,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            target: OnceLock::new(),
            known: Lock::new(std::mem::take(&mut self.known.lock())),
            used: AtomicU8::new(0),
            idle: AtomicU8::new(self.idle.load(Ordering::Relaxed)),
            asked: AtomicBool::new(self.is_asked()),
            unsynced: AtomicBool::new(false),
            deep: AtomicBool::new(self.is_deep()),
            verifier: Weak::clone(&self.verifier),
            counted,
        })
    }

    /// From now on it is in a table.
    pub(crate) fn enter_table(
        &mut self,
        counted: Option<DescriptorHold>,
        verifier: &Arc<WriteVerifier>,
    ) {
        self.counted = counted;
        self.report_to(verifier);
    }

    /// From now on errors of its data turn this verifier.
    pub(crate) fn report_to(&mut self, verifier: &Arc<WriteVerifier>) {
        self.verifier = Arc::downgrade(verifier);
    }

    pub(crate) fn mark_used(&self) {
        self.used.store(USED | TOUCHED, Ordering::Relaxed);
    }

    /// Whether it was used since the table last asked.
    pub(crate) fn take_used(&self) -> bool {
        self.used.fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }

    /// Whether it was used since the sweep last looked.
    pub(crate) fn is_touched(&self) -> bool {
        self.used.load(Ordering::Relaxed) & TOUCHED != 0
    }

    /// The target of a symbolic link, if it was read before and is short.
    pub(crate) fn target(&self) -> Option<&[u8]> {
        self.target.get().map(|target| &**target)
    }

    /// Remembers the target of a symbolic link.
    pub(crate) fn remember_target(&self, target: &[u8]) {
        if target.len() <= TARGET_BYTES_MAX {
            self.target.get_or_init(|| target.into());
        }
    }

    /// The kernel has been asked for the permissions of this file, so it has read what that takes.
    pub(crate) fn set_asked(&self) {
        if !self.is_asked() {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_deep(&self) {
        self.deep.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_deep(&self) -> bool {
        self.deep.load(Ordering::Relaxed)
    }

    /// Runs a write of data that a COMMIT has to make last (N5). Said again afterwards, because a
    /// sync may have begun in between and does not cover what came after it.
    pub(crate) fn write_unsynced<T>(&self, write: impl FnOnce() -> T) -> T {
        self.unsynced.store(true, Ordering::Relaxed);
        let written = write();
        self.unsynced.store(true, Ordering::Relaxed);
        written
    }

    /// Runs a sync of all data (N5). What is written once it has begun is not covered by it, so the
    /// note is made before.
    pub(crate) fn sync_by<T>(&self, sync: impl FnOnce() -> T) -> T {
        self.unsynced.store(false, Ordering::Relaxed);
        sync()
    }

    /// Looks of the sweep since the last use, with this one; for the sweep alone.
    pub(crate) fn count_idle(&self) -> u8 {
        let touched = self.used.fetch_and(!TOUCHED, Ordering::Relaxed) & TOUCHED != 0;
        let before = self.idle.load(Ordering::Relaxed);
        let idle = if touched {
            0
        } else {
            before.checked_add(1).unwrap_or(SWEEPS_IDLE)
        };
        self.idle.store(idle, Ordering::Relaxed);
        idle
    }

    pub(crate) fn descriptors(&self) -> usize {
        1 + usize::from(self.reader.get().is_some()) + usize::from(self.writer.get().is_some())
    }

    /// Open for more than its path.
    pub(crate) fn has_data_open(&self) -> bool {
        self.reader.get().is_some() || self.writer.get().is_some()
    }

    /// The descriptor whose data would be lost unseen if an error came once it is closed.
    fn unsynced_writer(&self) -> Option<&Data> {
        let unsynced = self.unsynced.load(Ordering::Relaxed);
        self.writer.get().filter(|_| unsynced)
    }

    /// True when closing it has to wait until data is on disk.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced_writer().is_some()
    }

    /// Writes to disk what was written and not committed (N4).
    pub(crate) fn sync_writer(&self) {
        let Some(writer) = self.unsynced_writer() else {
            return;
        };
        self.sync_by(|| {
            let Some(verifier) = self.verifier.upgrade() else {
                return;
            };
            if self.attributes().is_ok_and(|found| found.links == 0) {
                // Removed: its data cannot be read again, and its space is wanted back.
                return;
            }
            // The clients learn of an error from the verifier.
            let _ = verifier.run(self.key, Work::Sync, || rustix::fs::fdatasync(writer));
        });
    }

    /// Closes what is open for data, and reports what the kernel says of it.
    fn close_data(&mut self) {
        let Some(verifier) = self.verifier.upgrade() else {
            return;
        };
        for data in [self.reader.take(), self.writer.take()] {
            let Some(Data { file, _counted }) = data else {
                continue;
            };
            let close = || close(file).map_err(|error| errno_of(&error));
            let _ = verifier.run(self.key, Work::Close, close);
        }
    }

    pub(crate) fn attributes(&self) -> Result<Attributes, crate::status::Status> {
        Attributes::of(&self.path)
    }

    /// True when the kernel granted this before and the file has not changed since.
    pub(crate) fn is_granted(&self, who: &Who, access: Access, changed: Time) -> bool {
        self.known.lock().is_granted(who, access, changed)
    }

    /// Remembers a verdict, unless the file was changed so recently that the next change could
    /// leave the same time.
    pub(crate) fn grant(&self, who: Who, access: Access, changed: Time) {
        if changed.is_recent(GRANT_AGE_MIN) {
            return;
        }
        let grants = &mut self.known.lock().grants;
        grants.retain(|grant| {
            grant.changed == changed && (&grant.who, grant.access) != (&who, access)
        });
        grants.truncate(GRANTS_MAX - 1);
        grants.push_front(Grant {
            who,
            access,
            changed,
        });
    }

    /// Remembers what a reader that may read found.
    pub(crate) fn saw(&self, seen: Seen) {
        self.known.lock().seen = Some(seen);
    }

    /// The state that was seen last, if `who` might read the data of the file as it was then.
    pub(crate) fn seen_by(&self, who: &Who) -> Option<Seen> {
        let known = self.known.lock();
        known.seen.filter(|seen| {
            seen.user == who.user || known.is_granted(who, Access::READ_OK, seen.changed)
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.sync_writer();
        self.close_data();
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    let number = error.raw_os_error();
    number.map_or(Errno::IO, Errno::from_raw_os_error)
}

impl Known {
    fn is_granted(&self, who: &Who, access: Access, changed: Time) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.who == *who && grant.access == access && grant.changed == changed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::handle::{HandleKey, seal};

    /// A node of the file `/`, as if it had this inode.
    pub(crate) fn node(inode: u64) -> Node {
        let file = std::fs::File::open("/").expect("open");
        let mut attributes = Attributes::of(&file).expect("stat");
        attributes.key = FileKey { inode, birth_ns: 1 };
        let handle = seal(&HandleKey([1; 16]), 1, attributes.key, None);
        Node::new(file.into(), &attributes, handle)
    }

    /// N5. A data file that is a pipe's end: whether it is synced is not asked here.
    #[test]
    fn a_sync_during_a_write_leaves_the_write_unsynced() {
        let node = node(7);
        let (_, writer) = std::io::pipe().expect("a pipe");
        assert!(node.writer.set(Data::new(writer.into(), None)).is_ok());
        node.write_unsynced(|| {
            assert!(node.is_unsynced(), "before the write");
            node.sync_by(|| ());
        });
        assert!(node.is_unsynced(), "the write came after the sync began");
        node.sync_by(|| ());
        assert!(!node.is_unsynced());
    }

    /// N5: what is written once a sync has begun is not covered by it.
    #[test]
    fn a_write_during_a_sync_leaves_the_write_unsynced() {
        let node = node(7);
        let (_, writer) = std::io::pipe().expect("a pipe");
        assert!(node.writer.set(Data::new(writer.into(), None)).is_ok());
        node.write_unsynced(|| ());
        node.sync_by(|| {
            assert!(!node.is_unsynced(), "it is noted before");
            node.write_unsynced(|| ());
        });
        assert!(node.is_unsynced(), "the write came while the sync ran");
    }

    #[test]
    fn a_verdict_holds_for_its_caller_until_the_file_changes() {
        let node = node(7);
        let who = |user| Who {
            user,
            group: 1,
            groups: crate::identity::GroupList::default(),
        };
        let (then, now) = (
            Time {
                seconds: 1,
                nanoseconds: 0,
            },
            Time {
                seconds: 2,
                nanoseconds: 0,
            },
        );
        node.grant(who(5), Access::READ_OK, then);
        assert!(node.is_granted(&who(5), Access::READ_OK, then));
        assert!(!node.is_granted(&who(6), Access::READ_OK, then));
        assert!(!node.is_granted(&who(5), Access::WRITE_OK, then));
        assert!(!node.is_granted(&who(5), Access::READ_OK, now));
        for user in 10..40 {
            node.grant(who(user), Access::READ_OK, now);
        }
        assert!(node.known.lock().grants.len() <= GRANTS_MAX);
    }

    #[test]
    fn a_verdict_on_a_file_that_was_just_changed_is_not_kept() {
        let node = node(7);
        let who = Who {
            user: 5,
            group: 1,
            groups: crate::identity::GroupList::default(),
        };
        let now = Time::now();
        node.grant(who.clone(), Access::READ_OK, now);
        assert!(!node.is_granted(&who, Access::READ_OK, now));
    }

    #[test]
    fn what_was_seen_is_for_those_who_might_read_it() {
        let node = node(7);
        let who = |user| Who {
            user,
            group: 1,
            groups: crate::identity::GroupList::default(),
        };
        let changed = Time {
            seconds: 1,
            nanoseconds: 0,
        };
        let seen = Seen {
            size: 9,
            user: 5,
            changed,
        };
        assert!(node.seen_by(&who(5)).is_none(), "nothing was seen");
        node.saw(seen);
        assert!(node.seen_by(&who(5)) == Some(seen), "the owner");
        assert!(node.seen_by(&who(6)).is_none(), "no verdict lets it");
        node.grant(who(6), Access::READ_OK, changed);
        assert!(node.seen_by(&who(6)) == Some(seen));
        let changed = Time {
            seconds: 2,
            nanoseconds: 0,
        };
        node.saw(Seen { changed, ..seen });
        assert!(node.seen_by(&who(6)).is_none(), "that was before");
    }
}
