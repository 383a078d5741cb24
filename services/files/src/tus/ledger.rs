//! How many bytes all unfinished uploads of a directory have on the disk, and their bound; and
//! which addresses began them.
//!
//! The truth is on the disk (T1): the ledger is read from there at its first use, so a server
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
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use flatpath::address_limit;
use flatpath::lock::{Guard, Lock};
use http::StatusCode;
use rustix::fs::AtFlags;

use crate::asker::{Asker, Finder};
use crate::conditional::EntityTags;
use crate::limits::{UNFINISHED_DISK_PART, UPLOAD_EMPTY_EXPIRES};
use crate::responses::Result;
use crate::root::{Reach, Root};
use crate::rules::RootFiles;
use crate::target::Hidden;
use crate::writing::{WriteOptions, directory_at};

use super::store::{Id, Store};

/// Device and inode of a directory.
type Directory = (u64, u64);

static LEDGERS: LazyLock<Lock<HashMap<Directory, Weak<Ledger>>>> = LazyLock::new(Lock::default);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sizes: Lock<Sizes>,
    read: OnceLock<()>,
    begun: OnceLock<()>,
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
    pub(crate) rule_files: RootFiles,
    /// In whose name files are written.
    pub(crate) asker: Asker,
}

#[derive(Debug, Default)]
struct Sizes {
    of: HashMap<Id, Size>,
    total: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    from: Option<IpAddr>,
}

impl Uploads {
    /// What looks for the places of files that a request is to write.
    pub(crate) fn finder(&self) -> Finder<'_> {
        Finder {
            root: &self.root,
            reach: Reach::Everywhere,
            asker: &self.asker,
        }
    }

    /// 403 for a file that has rules: who may write files does not set headers and redirects.
    pub(crate) fn allow_path(&self, path: &[u8]) -> Result<()> {
        match self.rule_files.keeps_back(path) {
            true => Err(StatusCode::FORBIDDEN.into()),
            false => Ok(()),
        }
    }

    /// How long an unfinished upload with so many bytes is kept after something was written.
    pub(super) fn kept(&self, bytes: u64) -> Duration {
        match bytes {
            0 => self.options.expires.min(UPLOAD_EMPTY_EXPIRES),
            _ => self.options.expires,
        }
    }

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
        let size = self.of.entry(id.clone()).or_default();
        self.total = self.total - size.bytes + bytes;
        size.bytes = bytes;
    }

    fn leave(&mut self, id: &Id) {
        self.total -= self.of.remove(id).unwrap_or_default().bytes;
    }
}

impl Ledger {
    pub(crate) fn of(directory: impl AsFd) -> Arc<Ledger> {
        let Ok(stat) = rustix::fs::fstat(directory) else {
            return Arc::default();
        };
        let mut ledgers = LEDGERS.lock();
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        let known = ledgers.entry((stat.st_dev, stat.st_ino)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let ledger = Arc::default();
            *known = Arc::downgrade(&ledger);
            ledger
        })
    }

    /// Runs this once for the directory, whatever service has it.
    pub(super) fn once_begun(&self, run: impl FnOnce()) {
        self.begun.get_or_init(run);
    }

    fn sizes(&self) -> Guard<'_, Sizes> {
        self.sizes.lock()
    }

    /// Enters what is on the disk, once.
    pub(super) fn read(&self, root: &Root, store: &Store) {
        self.read.get_or_init(|| {
            let listed = store.list().map(|listed| listed.uploads);
            for id in listed.unwrap_or_default() {
                let bytes = bytes_of(root, store, &id);
                self.sizes().enter(&id, bytes.unwrap_or_default());
                let from = store
                    .read(&id)
                    .ok()
                    .flatten()
                    .and_then(|record| record.from);
                self.is_from(&id, from);
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
        let others = sizes.total - sizes.of.get(id).copied().unwrap_or_default().bytes;
        let fits = others.saturating_add(bytes) <= bytes_max;
        if fits {
            sizes.enter(id, bytes);
        }
        fits
    }

    /// Which address began an upload that is entered.
    pub(super) fn is_from(&self, id: &Id, from: Option<IpAddr>) {
        if let Some(size) = self.sizes().of.get_mut(id) {
            size.from = from;
        }
    }

    /// Unfinished uploads of an address, and of others.
    pub(super) fn count(&self, from: IpAddr) -> (usize, usize) {
        let sizes = self.sizes();
        let own = sizes.of.values().filter(|size| size.from == Some(from));
        let own = own.count();
        (own, sizes.of.len() - own)
    }

    /// Uploads of addresses that have more than their share of `uploads_max` when there is one more
    /// of another address, and whether they have any bytes.
    pub(super) fn of_excess(&self, uploads_max: usize) -> Vec<(Id, bool)> {
        let sizes = self.sizes();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for from in sizes.of.values().filter_map(|size| size.from) {
            *counts.entry(from).or_default() += 1;
        }
        counts.retain(|_, own| {
            let others = sizes.of.len() - *own + 1;
            *own > address_limit::share(uploads_max, others)
        });
        let of = sizes
            .of
            .iter()
            .filter(|(_, size)| size.from.is_some_and(|from| counts.contains_key(&from)));
        of.map(|(id, size)| (id.clone(), size.bytes > 0)).collect()
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
