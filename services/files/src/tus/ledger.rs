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
//! - L3: `of_address` has the sum of each address that has bytes, and their sum is `total`.
//!
//! Bytes are those of the address that began the upload, whoever sends them: its record has it, so
//! a server that starts anew counts as before. Uploads without an address (of a Unix socket, of a
//! record of an older server) are together those of one. A byte that was taken is not given up for
//! a newcomer, as a client may be about to go on: so an address *leaves* a part
//! (`flatpath::address_limit`):
//!
//! | an address may have                      | while                                   |
//! |------------------------------------------|-----------------------------------------|
//! | all but twice what others have, or half  | others have some                        |
//! | all but an [`OTHERS_PART`], in any case  | more is that of others                  |
//! | an [`OTHERS_PART`]                       | of all bytes no more than such are left |
//!
//! All `Files` of one directory share a ledger. Cost: one short lock for each piece of a body.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use flatpath::address_limit;
use flatpath::limits::OTHERS_PART;
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
    of_address: HashMap<Option<IpAddr>, u64>, // OURS: as many as uploads may be unfinished.
    total: u64,
}

/// Whether an upload may have as many bytes as it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// All together would have too many, or what is left is for addresses that have little.
    Full {
        total: u64,
    },
    /// Those of its address would have more than its share, which leaves some to others.
    AddressFull {
        own: u64,
    },
}

/// The bytes that those of one address may have, whatever others have.
pub(super) fn of_one_max(bytes_max: u64) -> u64 {
    bytes_max - bytes_max / u64::from(OTHERS_PART)
}

fn share(bytes_max: u64, others: u64) -> u64 {
    let few = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let share = address_limit::share(few(bytes_max), few(others));
    (share as u64).min(of_one_max(bytes_max))
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
        let (before, from) = (size.bytes, size.from);
        size.bytes = bytes;
        self.count(from, before, bytes);
    }

    fn leave(&mut self, id: &Id) {
        let size = self.of.remove(id).unwrap_or_default();
        self.count(size.from, size.bytes, 0);
    }

    fn is_from(&mut self, id: &Id, from: Option<IpAddr>) {
        if let Some(size) = self.of.get_mut(id) {
            let (bytes, before) = (size.bytes, size.from);
            size.from = from;
            self.count(before, bytes, 0);
            self.count(from, 0, bytes);
        }
    }

    /// L3: one of an address had `before` bytes, and has `after`.
    fn count(&mut self, from: Option<IpAddr>, before: u64, after: u64) {
        self.total = self.total - before + after;
        let own = self.of_address(from) - before + after;
        match own {
            0 => self.of_address.remove(&from),
            own => self.of_address.insert(from, own),
        };
    }

    fn of_address(&self, from: Option<IpAddr>) -> u64 {
        self.of_address.get(&from).copied().unwrap_or_default()
    }

    /// Whether an upload of an address that has `before` bytes may have `after`.
    fn room(&self, from: Option<IpAddr>, (before, after): (u64, u64), bytes_max: u64) -> Room {
        let own = self.of_address(from);
        let others = self.total - own;
        let own_after = (own - before).saturating_add(after);
        let total_after = others.saturating_add(own_after);
        let most = of_one_max(bytes_max);
        if own_after > share(bytes_max, others) {
            return Room::AddressFull { own };
        }
        let is_little = own_after <= bytes_max - most;
        match total_after > bytes_max || total_after > most && !is_little {
            true => Room::Full { total: self.total },
            false => Room::Enough,
        }
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

    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.sizes().total
    }

    /// Whether a new upload of an address may have so many bytes.
    pub(super) fn room(&self, from: Option<IpAddr>, bytes: u64, bytes_max: u64) -> Room {
        self.sizes().room(from, (0, bytes), bytes_max)
    }

    pub(super) fn enter(&self, id: &Id, bytes: u64) {
        self.sizes().enter(id, bytes);
    }

    /// The upload is about to have `bytes`, which are entered if there is room (L1).
    pub(super) fn grow(&self, id: &Id, bytes: u64, bytes_max: u64) -> Room {
        let mut sizes = self.sizes();
        let Size {
            bytes: before,
            from,
        } = sizes.of.get(id).copied().unwrap_or_default();
        let room = sizes.room(from, (before, bytes), bytes_max);
        if room == Room::Enough {
            sizes.enter(id, bytes);
        }
        room
    }

    /// Which address began an upload that is entered.
    pub(super) fn is_from(&self, id: &Id, from: Option<IpAddr>) {
        self.sizes().is_from(id, from);
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
