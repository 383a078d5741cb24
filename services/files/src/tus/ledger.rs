//! How many bytes all unfinished uploads of a directory have on the disk, and their bound.
//!
//! What counts is on the disk (T1): the ledger is read from there at its first use, so a server
//! that was killed counts what it left. From then on each upload is entered anew whenever it is
//! looked at under its lock, so what another process of the same directory wrote is known by the
//! next sweep.
//!
//! Invariants
//! - L1: within this process an upload grows only by bytes that were entered before, so all of them
//!   together never exceed the bound.
//! - L2: an upload leaves the ledger when it is published, removed or found gone.
//!
//! All `Files` of one directory share a ledger. Cost: one short lock for each piece of a body.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::fs::AtFlags;

use crate::conditional::EntityTags;
use crate::limits::UNFINISHED_DISK_PART;
use crate::root::Root;
use crate::target::Hidden;
use crate::writing::{WriteOptions, directory_at};

use super::store::{Id, Store};

/// Device and inode of a directory.
type Directory = (u64, u64);

static LEDGERS: LazyLock<Mutex<HashMap<Directory, Weak<Ledger>>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sizes: Mutex<Sizes>,
    read: OnceLock<()>,
    /// The bound where none is set.
    usual_max: OnceLock<u64>,
}

/// The uploads of a directory: where they go, and what they may take.
#[derive(Clone)]
pub(crate) struct Uploads {
    pub(crate) root: Arc<Root>,
    pub(crate) hidden: Hidden,
    pub(crate) options: WriteOptions,
    pub(crate) tags: EntityTags,
    pub(crate) ledger: Arc<Ledger>,
}

#[derive(Debug, Default)]
struct Sizes {
    of: HashMap<Id, u64>,
    total: u64,
}

impl Uploads {
    /// Bytes that unfinished uploads may have.
    pub(super) fn bytes_max(&self) -> u64 {
        self.options.unfinished_bytes_max.unwrap_or_else(|| {
            let disk = || rustix::fs::fstatvfs(self.root.directory()).ok();
            *self.ledger.usual_max.get_or_init(|| {
                disk().map_or(u64::MAX, |disk| {
                    disk.f_blocks.saturating_mul(disk.f_frsize) / UNFINISHED_DISK_PART
                })
            })
        })
    }
}

impl Sizes {
    fn enter(&mut self, id: &Id, bytes: u64) {
        self.leave(id);
        self.of.insert(id.clone(), bytes);
        self.total += bytes;
    }

    fn leave(&mut self, id: &Id) {
        self.total -= self.of.remove(id).unwrap_or_default();
    }
}

impl Ledger {
    pub(crate) fn of(directory: impl AsFd) -> Arc<Ledger> {
        let Ok(stat) = rustix::fs::fstat(directory) else {
            return Arc::default();
        };
        let mut ledgers = LEDGERS.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        let known = ledgers.entry((stat.st_dev, stat.st_ino)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let ledger = Arc::default();
            *known = Arc::downgrade(&ledger);
            ledger
        })
    }

    fn sizes(&self) -> MutexGuard<'_, Sizes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters what is on the disk, once.
    pub(super) fn read(&self, root: &Root, store: &Store) {
        self.read.get_or_init(|| {
            let listed = store.list().map(|listed| listed.uploads);
            for id in listed.unwrap_or_default() {
                let bytes = bytes_of(root, store, &id);
                self.sizes().enter(&id, bytes.unwrap_or_default());
            }
        });
    }

    pub(super) fn total(&self) -> u64 {
        self.sizes().total
    }

    pub(super) fn enter(&self, id: &Id, bytes: u64) {
        self.sizes().enter(id, bytes);
    }

    /// The upload is about to have `bytes`; false if all would have too many together (L1).
    pub(super) fn grow(&self, id: &Id, bytes: u64, bytes_max: u64) -> bool {
        let mut sizes = self.sizes();
        let others = sizes.total - sizes.of.get(id).copied().unwrap_or_default();
        let fits = others.saturating_add(bytes) <= bytes_max;
        if fits {
            sizes.enter(id, bytes);
        }
        fits
    }

    pub(super) fn leave(&self, id: &Id) {
        self.sizes().leave(id);
    }

    pub(super) fn entered(&self) -> Vec<Id> {
        self.sizes().of.keys().cloned().collect()
    }
}

fn bytes_of(root: &Root, store: &Store, id: &Id) -> Option<u64> {
    let record = store.read(id).ok()??;
    let directory = directory_at(root, &record.directory).ok()?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statat(&directory, &id.data_name()[..], flags).ok()?;
    u64::try_from(stat.st_size).ok()
}
