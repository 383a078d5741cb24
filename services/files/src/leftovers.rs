//! Hidden files that a server left which was killed while a PUT got its name: removed at the start
//! of the next one.
//!
//! `.flatpath-put-*` is the name of a file that is being written, where its file system has no
//! files without a name, and for a moment of one that replaces another. Its server holds a lock
//! (`flock`) for as long as it has the name. The kernel gives the lock up with the process, so a
//! file whose lock can be taken has no server: not this one, nor another of the same directory, nor
//! the one that hands over to this one. A new file that loses its lock to the look is made again
//! ([`hold`]).
//!
//! The first server of a directory in this process looks through it once, after the first sweep of
//! uploads and on its thread: on the mount of the directory, and as far as
//! [`LEFTOVER_NAMES_MAX`] names. What it removes is logged, and so is a look that ended early.
//!
//! Decisions
//! - Where a lock may not reach other machines (a file system over a network, or FUSE), it decides
//!   for files of this kernel alone, since it was started: their names have the beginning of its
//!   boot id. Others have to be a day old in addition.
//! - Where a file system has no locks, nothing is removed.
//! - Files of uploads that can be resumed (`.flatpath-upload-*`) have records, by which they
//!   expire.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::identity::{Identity, Stamp};
use crate::limits::{LEFTOVER_AGE_REMOTE, LEFTOVER_NAMES_MAX};
use crate::root::{Kind, Reach, Root};
use crate::stat::Locality;
use crate::target::joined;

/// How the name of a file begins that is being written.
const WRITTEN: &[u8] = b".flatpath-put-";

/// The same of files of this kernel since it was started, whose locks every process here sees.
static WRITTEN_HERE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = match boot.get(..BOOT_BYTES) {
        Some(boot) => String::from_utf8_lossy(boot).into_owned(),
        // Of this process alone.
        None => format!("{:08x}", random() >> 32),
    };
    [WRITTEN, boot.as_bytes(), b"-"].concat()
});

/// How much of the boot id is in a name: its first group.
const BOOT_BYTES: usize = 8;

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::thread::current().id())
}

/// A hidden name that no other file has.
pub(crate) fn fresh_name() -> Vec<u8> {
    [&WRITTEN_HERE[..], format!("{:016x}", random()).as_bytes()].concat()
}

/// Takes the lock of a new file, for as long as it is open. False: another server has just taken it
/// for one that was left behind, and removes its name.
pub(crate) fn hold(file: &File) -> Result<bool, Errno> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Ok(false),
        // Without locks nothing is removed.
        Err(_) => Ok(true),
        Ok(()) => Ok(rustix::fs::fstat(file)?.st_nlink > 0),
    }
}

/// The same of a file without a name, before it gets one: no other process has it.
pub(crate) fn hold_unnamed(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes what was left behind below the directory.
pub(crate) fn remove(root: &Root) {
    let look = Look::through(root, LEFTOVER_NAMES_MAX, SystemTime::now());
    match look.removed {
        0 => {}
        1 => log::info!("a temporary file of a server that was killed is removed"),
        many => log::info!("{many} temporary files of servers that were killed are removed"),
    }
    if look.is_cut {
        log::warn!(
            "temporary files of servers that were killed may be left: the first \
             {LEFTOVER_NAMES_MAX} names of the directory were looked at"
        );
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    names: usize,
    removed: usize,
    /// There are more names than it may look at.
    is_cut: bool,
}

impl Look {
    fn through(root: &Root, names_max: usize, now: SystemTime) -> Self {
        let mut look = Self::default();
        // Bounded as the names are.
        let mut waiting = vec![Vec::new()];
        while let Some(path) = waiting.pop() {
            let directory = match root.find_within(&path, Reach::OwnMount) {
                Ok(found) if found.kind == Kind::Directory => found,
                // It is gone, or another mount, or not for this process.
                Ok(_) | Err(_) => continue,
            };
            let Ok(entries) = Dir::read_from(directory.file.as_fd()) else {
                continue;
            };
            for entry in entries {
                let Ok(entry) = entry else { break };
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if look.names == names_max {
                    look.is_cut = true;
                    return look;
                }
                look.names += 1;
                let at = directory.file.as_fd();
                match entry.file_type() {
                    FileType::Directory => waiting.push(joined(&path, name)),
                    FileType::Unknown if is_directory(at, name) => {
                        waiting.push(joined(&path, name));
                    }
                    _ if name.starts_with(WRITTEN) => {
                        let is_left = is_removed(at, name, directory.locality, now);
                        look.removed += usize::from(is_left);
                    }
                    _ => {}
                }
            }
        }
        look
    }
}

fn is_directory(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Removes a file if no server has it.
fn is_removed(directory: BorrowedFd<'_>, name: &[u8], locality: Locality, now: SystemTime) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
        return false;
    };
    // Until the name is gone: whoever makes the file sees that it lost.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    let (Ok(open), Ok(named)) = (
        rustix::fs::fstat(&file),
        rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW),
    ) else {
        return false;
    };
    let is_file = FileType::from_raw_mode(open.st_mode) == FileType::RegularFile;
    let is_same = (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino);
    let is_old = || {
        let state = Identity::from_stat(&open);
        let age = |stamp: Stamp| now.duration_since(stamp.to_system_time()?).ok();
        let ages = (age(state.modified), age(state.changed));
        matches!(ages, (Some(one), Some(other)) if one.min(other) > LEFTOVER_AGE_REMOTE)
    };
    let is_seen = locality == Locality::Local || name.starts_with(&WRITTEN_HERE);
    let is_left = is_file && is_same && (is_seen || is_old());
    is_left && rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    fn left(folder: &Path, name: &str) -> std::path::PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(&path, "half").expect("write");
        path
    }

    fn look(folder: &Path, names_max: usize) -> Look {
        let root = Root::open(folder).expect("open");
        Look::through(&root, names_max, SystemTime::now())
    }

    #[test]
    fn what_no_server_has_is_removed_wherever_it_lies() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path();
        let names = [
            ".flatpath-put-0",
            "a/.flatpath-put-1",
            "a/.b/c/.flatpath-put-2",
        ];
        let gone = names.map(|name| left(path, name));
        let stays = [
            left(path, "flatpath-put-0"),
            left(path, "a/.flatpath-upload-0"),
            left(path, "a/file"),
        ];
        symlink("../a/file", path.join("a/.flatpath-put-link")).expect("symlink");
        fs::create_dir(path.join(".flatpath-put-directory")).expect("mkdir");
        symlink("..", path.join("a/circle")).expect("symlink");
        assert_eq!(look(path, 100).removed, 3);
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.exists()));
        assert!(path.join("a/.flatpath-put-link").is_symlink());
        assert_eq!(look(path, 100).removed, 0);
    }

    #[test]
    fn a_file_that_a_server_has_stays_until_it_is_closed() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = left(folder.path(), ".flatpath-put-0");
        let file = File::open(&path).expect("open");
        assert_eq!(hold(&file), Ok(true));
        assert_eq!(look(folder.path(), 100).removed, 0);
        drop(file);
        assert_eq!(look(folder.path(), 100).removed, 1);
    }

    #[test]
    fn a_new_file_that_was_taken_for_an_old_one_is_known_to_be_lost() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = left(folder.path(), ".flatpath-put-0");
        // Made, and not yet locked, when the look came.
        let (new, other) = (File::open(&path), File::open(&path));
        let (new, other) = (new.expect("open"), other.expect("open"));
        assert_eq!(hold(&other), Ok(true));
        assert_eq!(hold(&new), Ok(false), "the look has its lock");
        fs::remove_file(&path).expect("remove");
        drop(other);
        assert_eq!(hold(&new), Ok(false), "its name is gone");
    }

    #[test]
    fn where_locks_may_not_reach_a_file_has_to_be_old() {
        let folder = tempfile::tempdir().expect("tempdir");
        left(folder.path(), ".flatpath-put-0");
        let here = fresh_name();
        let here = left(folder.path(), std::str::from_utf8(&here).expect("ASCII"));
        let root = Root::open(folder.path()).expect("open").remote();
        let now = SystemTime::now();
        let file = File::open(&here).expect("open");
        assert_eq!(hold(&file), Ok(true));
        assert_eq!(Look::through(&root, 100, now).removed, 0);
        drop(file);
        assert_eq!(Look::through(&root, 100, now).removed, 1, "of this kernel");
        assert!(!here.exists());
        let later = now + LEFTOVER_AGE_REMOTE + Duration::from_secs(60);
        assert_eq!(Look::through(&root, 100, later).removed, 1);
    }

    #[test]
    fn a_look_ends_at_its_bound_and_knows_it() {
        let folder = tempfile::tempdir().expect("tempdir");
        for number in 0..3 {
            left(folder.path(), &format!("{number}"));
        }
        assert!(!look(folder.path(), 3).is_cut);
        let cut = look(folder.path(), 2);
        assert!(cut.is_cut && cut.names == 2);
    }
}
