//! A file system in memory that forgets what was not synced, and fails on request (FUSE).
//!
//! It keeps what was written apart from what was synced: [`Lossy::lasting`] gives what a power
//! failure at this moment would leave of a file, and [`Lossy::crash`] is one. A test injects errors
//! of single operations ([`Lossy::fail`]) or loses what was written and not synced
//! ([`Lossy::lose`]), of which the next sync of each descriptor is told once, as the kernel does
//! for local disks (`errseq_t`). It counts operations ([`Lossy::count`]) and can be slow
//! ([`Lossy::delay`]).
//!
//! [`Cache::Through`]: each write comes here before it returns, so what is lost is exact.
//! [`Cache::Back`]: the kernel writes later, so an error of [`Operation::Write`] is one of
//! write-back, and the report the kernel's own.
//!
//! A stable write (`RWF_DSYNC`, `RWF_SYNC`) reaches FUSE as a write and a sync
//! (`generic_write_sync`). Files without a name (`O_TMPFILE`) are refused, as older kernels do.
//! Needs root and `/dev/fuse`.

mod disk;
mod face;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::{UnmountFlags, unmount};

pub use self::disk::Attributes;
use self::disk::Disk;
use self::face::Face;
use crate::{deadline, tools};

/// Requests that may wait at the same time.
const THREADS: usize = 8;

/// What comes to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Data of a file, to the kernel's cache.
    Read,
    /// Data of a file.
    Write,
    /// `fsync` and `fdatasync` of a file, and what stable writes make of them.
    Sync,
    /// The same of a directory.
    SyncDirectory,
    /// `close`: its error is what `close` returns.
    Flush,
    /// A new length of a file.
    Resize,
    /// A new owner or group, as a quota refuses it.
    SetOwner,
    /// Another mode, or other times.
    SetAttributes,
}

/// What the kernel does with written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Every write is passed on at once.
    Through,
    /// Data is kept, and written when it is synced, or closed, or after a while.
    Back,
}

#[derive(Default)]
struct Rules {
    counts: HashMap<Operation, u64>,
    failing: HashMap<Operation, Failing>,
    delays: HashMap<Operation, Duration>,
}

/// After how many operations how many fail, and with what.
struct Failing {
    after: u64,
    count: u64,
    errno: i32,
}

struct Shared {
    disk: Mutex<Disk>,
    rules: Mutex<Rules>,
    cache: Cache,
}

/// A mounted file system; unmounted when dropped, for which nothing of it may be in use.
pub struct Lossy {
    at: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

impl Failing {
    fn next(&mut self) -> Option<i32> {
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.count = self.count.checked_sub(1)?;
        Some(self.errno)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

impl Lossy {
    /// Mounts at an empty directory, which is made. `None` after saying that it cannot be done;
    /// with `CI=true` that fails the test.
    pub fn try_mount(at: &Path, cache: Cache) -> Option<Lossy> {
        match Lossy::mount(at, cache) {
            Ok(lossy) => Some(lossy),
            Err(cause) => tools::refused(&format!("a FUSE mount (/dev/fuse, root): {cause}")),
        }
    }

    fn mount(at: &Path, cache: Cache) -> io::Result<Lossy> {
        std::fs::create_dir_all(at)?;
        let shared = Arc::new(Shared {
            disk: Mutex::new(Disk::new()),
            rules: Mutex::default(),
            cache,
        });
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        config.mount_options = vec![
            MountOption::FSName("flatpath-lossy".into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
        ];
        let session = fuser::spawn_mount(Face(Arc::clone(&shared)), at, &config)?;
        Ok(Lossy {
            at: at.to_path_buf(),
            shared,
            session: Some(session),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// What a crash at this moment would leave of a file, by its path in here; `None` when it
    /// would have no name.
    pub fn lasting(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        locked(&self.shared.disk).lasting(path.as_ref())
    }

    /// The same of a file's attributes.
    pub fn lasting_attributes(&self, path: impl AsRef<Path>) -> Option<Attributes> {
        locked(&self.shared.disk).lasting_attributes(path.as_ref())
    }

    /// A power failure: all that was not synced is forgotten, and every operation fails with `EIO`
    /// until [`Lossy::restart`].
    pub fn crash(&self) {
        locked(&self.shared.disk).crash();
    }

    /// The machine is up again.
    pub fn restart(&self) {
        locked(&self.shared.disk).restart();
    }

    /// Whether data of a file is not synced.
    pub fn is_unsynced(&self, path: impl AsRef<Path>) -> bool {
        let mut disk = locked(&self.shared.disk);
        let number = disk.at(path.as_ref()).expect("it is there");
        disk.is_unsynced(number)
    }

    /// Write-back of a file fails: what was written and not synced will not last.
    pub fn lose(&self, path: impl AsRef<Path>) {
        let mut disk = locked(&self.shared.disk);
        let number = disk.at(path.as_ref()).expect("it is there");
        disk.lose(number);
    }

    /// The same of every file.
    pub fn lose_all(&self) {
        locked(&self.shared.disk).lose_all();
    }

    /// Lets the next `count` operations of a kind fail with the kernel's number `errno`.
    pub fn fail(&self, operation: Operation, count: u64, errno: i32) {
        self.fail_after(operation, 0, count, errno);
    }

    /// The same, once `after` more have succeeded.
    pub fn fail_after(&self, operation: Operation, after: u64, count: u64, errno: i32) {
        let failing = Failing {
            after,
            count,
            errno,
        };
        locked(&self.shared.rules)
            .failing
            .insert(operation, failing);
    }

    /// No operation fails any more.
    pub fn heal(&self) {
        locked(&self.shared.rules).failing.clear();
    }

    /// Every operation of a kind takes this long from now on.
    pub fn delay(&self, operation: Operation, time: Duration) {
        locked(&self.shared.rules).delays.insert(operation, time);
    }

    /// How many operations of a kind came, those that failed included.
    pub fn count(&self, operation: Operation) -> u64 {
        let rules = locked(&self.shared.rules);
        rules.counts.get(&operation).copied().unwrap_or_default()
    }

    /// How many files are open, of all programs.
    pub fn open_files(&self) -> usize {
        locked(&self.shared.disk).open_files()
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        // Where a test has failed, something may be open for ever.
        if !std::thread::panicking() {
            // What another test starts has copies of this one's descriptors until it runs.
            deadline::until_true("nothing uses the file system any more", || {
                unmount(&self.at, UnmountFlags::empty()).is_ok()
            });
            // A read of what was unmounted fails in one of two ways.
            match session.join() {
                Err(cause) if cause.kind() != io::ErrorKind::ConnectionAborted => {
                    panic!("it ends: {cause}")
                }
                _ => {}
            }
        }
    }
}
