//! A scan of the whole tree for inodes: the last way to find a file after a restart.
//!
//! Slow, so it is bounded: one walk at a time, a bound on entries, and what was not found is
//! remembered for a while. Directories tell inode numbers with their names, so nothing but
//! directories is opened.
//!
//! A caller that comes while a walk is on its way waits for it, and for one more: that one looks
//! for everything that was asked for in that time. Few wait, and not for long, because each of them
//! holds a worker; the others are sent away ([`Status::Later`]).
//!
//! | may run beside | find                                     |
//! |----------------|------------------------------------------|
//! | find           | yes; one of them walks, the others wait  |
//!
//! Invariants
//! - S1: `walking` is set exactly while one caller walks, also when it panics.
//! - S2: a key is called absent only after a whole walk has not met it.

use std::time::Instant;

use flatpath::lock::{Condition, Lock};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::attributes::Attributes;
use crate::handle::{FileKey, FileMap};
use crate::limits::{
    ABSENT_MAX, ABSENT_SHARE, ABSENT_TIME_MIN, ENTRIES_BYTES, PATH_BYTES_MAX, SCAN_ENTRIES_MAX,
    SCAN_TIME_MAX, SCAN_WAITERS_MAX,
};
use crate::names::{RESOLVE, open_name};
use crate::path_hints::PathHints;
use crate::status::Status;

#[derive(Default)]
pub(crate) struct TreeScan {
    state: Lock<State>,
    walked: Condition,
}

#[derive(Default)]
struct State {
    walking: bool,
    waiting: usize,
    /// The files that they look for, for the next walk.
    wanted: Vec<FileKey>,
    /// Until when a fruitless scan is remembered.
    absent: FileMap<Instant>,
}

pub(crate) enum Found {
    Here(OwnedFd, Attributes),
    /// Another caller's walk has met the file: there is a hint now.
    Hinted,
}

/// The right to walk, given back whatever happens (S1).
struct Walking<'a> {
    scan: &'a TreeScan,
    wanted: Vec<FileKey>,
    began: Instant,
}

impl TreeScan {
    #[cfg(test)]
    pub(crate) fn in_progress(&self) -> impl Drop + '_ {
        self.state.lock().walking = true;
        Walking {
            scan: self,
            wanted: Vec::new(),
            began: Instant::now(),
        }
    }

    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().waiting
    }

    /// Finds `wanted` below `root`, and leaves hints for the directories it passed.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is not there, [`Status::Later`] when others scan for longer than
    /// this caller may wait.
    pub(crate) fn find(
        &self,
        root: BorrowedFd<'_>,
        wanted: FileKey,
        hints: &PathHints,
    ) -> Result<Found, Status> {
        let Some(walking) = self.begin(wanted, hints)? else {
            return Ok(Found::Hinted);
        };
        let mut left = walking.wanted.clone();
        let mut found = None;
        walk(root, &mut left, hints, |file, attributes| {
            if attributes.key == wanted {
                found = Some((file, attributes));
            }
        })?;
        walking.end(&left);
        let (file, attributes) = found.ok_or(Status::Stale)?;
        Ok(Found::Here(file, attributes))
    }

    /// Waits for its turn to walk. `None`: that is not needed any more.
    fn begin(&self, wanted: FileKey, hints: &PathHints) -> Result<Option<Walking<'_>>, Status> {
        let began = Instant::now();
        let mut state = self.state.lock();
        let mut waited = false;
        loop {
            let now = Instant::now();
            if state.absent.get(&wanted).is_some_and(|until| now < *until) {
                return Err(Status::Stale);
            }
            if waited && hints.contains(wanted) {
                return Ok(None);
            }
            if !state.walking {
                break;
            }
            let left = SCAN_TIME_MAX.saturating_sub(now - began);
            if left.is_zero() || state.waiting >= SCAN_WAITERS_MAX {
                return Err(Status::Later);
            }
            if !waited && !state.wanted.contains(&wanted) {
                state.wanted.push(wanted);
            }
            waited = true;
            state.waiting += 1;
            state = self.walked.wait_for(state, left);
            state.waiting -= 1;
        }
        state.walking = true;
        let mut all = std::mem::take(&mut state.wanted);
        if !all.contains(&wanted) {
            all.push(wanted);
        }
        Ok(Some(Walking {
            scan: self,
            wanted: all,
            began: Instant::now(),
        }))
    }
}

impl Walking<'_> {
    /// The walk is done and has not met these (S2).
    fn end(self, missed: &[FileKey]) {
        let now = Instant::now();
        let until = now + (self.began.elapsed() * ABSENT_SHARE).max(ABSENT_TIME_MIN);
        let mut state = self.scan.state.lock();
        for key in &self.wanted {
            state.absent.remove(key);
        }
        if state.absent.len() + missed.len() > ABSENT_MAX {
            state.absent.retain(|_, until| now < *until);
        }
        for key in missed {
            if state.absent.len() < ABSENT_MAX {
                state.absent.insert(*key, until);
            }
        }
    }
}

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        self.scan.state.lock().walking = false;
        self.scan.walked.notify_all();
    }
}

/// Opens a directory by names from the root, however many they are: the kernel takes a page of them
/// at once.
fn open_below(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Status> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let here = at.as_ref().map_or(root, AsFd::as_fd);
        if rest.len() <= PATH_BYTES_MAX {
            return Ok(rustix::fs::openat2(
                here,
                rest,
                flags,
                Mode::empty(),
                RESOLVE,
            )?);
        }
        let cut = rest[..PATH_BYTES_MAX]
            .iter()
            .rposition(|byte| *byte == b'/');
        let cut = cut.ok_or(Status::NameTooLong)?;
        at = Some(open_name(here, &rest[..cut])?);
        rest = &rest[cut + 1..];
    }
}

/// Calls `found` for each of `wanted` and takes it off the list; ends when none is left.
fn walk(
    root: BorrowedFd<'_>,
    wanted: &mut Vec<FileKey>,
    hints: &PathHints,
    mut found: impl FnMut(OwnedFd, Attributes),
) -> Result<(), Status> {
    let system = Attributes::of(root)?.system;
    let mut entries_left = SCAN_ENTRIES_MAX;
    let mut buffer = Vec::with_capacity(ENTRIES_BYTES);
    // Names from the root, so that the width of the tree is held and no descriptors are.
    let mut waiting: Vec<Vec<u8>> = vec![b".".to_vec()];
    while let Some(path) = waiting.pop() {
        let Ok(directory) = open_below(root, &path) else {
            continue;
        };
        let Ok(parent) = Attributes::of(&directory) else {
            continue;
        };
        // Files of other file systems may have the same keys.
        if parent.system != system {
            continue;
        }
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(Ok(entry)) = entries.next() {
            entries_left = entries_left.checked_sub(1).ok_or(Status::Later)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let likely = wanted.iter().any(|key| key.inode == entry.ino());
            let way_down = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if !likely && !way_down {
                continue;
            }
            if way_down {
                waiting.push([&path[..], b"/", name].concat());
            }
            let Ok(file) = open_name(&directory, name) else {
                continue;
            };
            let Ok(attributes) = Attributes::of(&file) else {
                continue;
            };
            let met = wanted.iter().position(|key| *key == attributes.key);
            if met.is_some() || way_down {
                hints.insert(attributes.key, parent.key, name, None);
            }
            if let Some(at) = met {
                wanted.swap_remove(at);
                found(file, attributes);
                if wanted.is_empty() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
