//! Looks through the whole tree for an inode: the last way to find a file after a restart.
//!
//! Slow, so it is bounded: one search at a time, a bound on entries, and what was not found is
//! remembered for a while. Directories tell inode numbers with their names, so nothing but
//! directories is opened.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::attributes::Attributes;
use crate::export::{RESOLVE, open_name};
use crate::handle::FileKey;
use crate::limits::{ABSENT_MAX, ABSENT_SECONDS, ENTRIES_BYTES, SEARCH_ENTRIES_MAX};
use crate::places::Places;
use crate::status::Status;

/// See the module. The map remembers fruitless searches.
#[derive(Default)]
pub(crate) struct Search(Mutex<HashMap<FileKey, Instant>>);

impl Search {
    /// Finds `wanted` below `root`, and leaves the places of the directories it passed.
    pub(crate) fn find(
        &self,
        root: BorrowedFd<'_>,
        wanted: FileKey,
        places: &Places,
    ) -> Result<(OwnedFd, Attributes), Status> {
        let mut absent = match self.0.try_lock() {
            Ok(absent) => absent,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Err(Status::Later),
        };
        let fresh = Duration::from_secs(ABSENT_SECONDS);
        if absent
            .get(&wanted)
            .is_some_and(|when| when.elapsed() < fresh)
        {
            return Err(Status::Stale);
        }
        if let Some(found) = walk(root, wanted, places)? {
            absent.remove(&wanted);
            return Ok(found);
        }
        if absent.len() >= ABSENT_MAX {
            absent.retain(|_, when| when.elapsed() < fresh);
        }
        if absent.len() < ABSENT_MAX {
            absent.insert(wanted, Instant::now());
        }
        Err(Status::Stale)
    }
}

type Found = Option<(OwnedFd, Attributes)>;

fn walk(root: BorrowedFd<'_>, wanted: FileKey, places: &Places) -> Result<Found, Status> {
    let mut entries_left = SEARCH_ENTRIES_MAX;
    let mut buffer = Vec::with_capacity(ENTRIES_BYTES);
    // Names from the root, so that the width of the tree is held and no descriptors are.
    let mut waiting: Vec<Vec<u8>> = vec![b".".to_vec()];
    while let Some(path) = waiting.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::openat2(root, &path[..], flags, Mode::empty(), RESOLVE)
        else {
            continue;
        };
        let Ok(parent) = Attributes::of(&directory) else {
            continue;
        };
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(Ok(entry)) = entries.next() {
            entries_left = entries_left.checked_sub(1).ok_or(Status::Later)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entry.ino() == wanted.inode
                && let Ok(file) = open_name(&directory, name)
                && let Ok(attributes) = Attributes::of(&file)
                && attributes.key == wanted
            {
                places.remember(wanted, parent.key, name);
                return Ok(Some((file, attributes)));
            }
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                let below = [&path[..], b"/", name].concat();
                if let Ok(file) = open_name(root, &below)
                    && let Ok(attributes) = Attributes::of(&file)
                {
                    places.remember(attributes.key, parent.key, name);
                }
                waiting.push(below);
            }
        }
    }
    Ok(None)
}
