//! Proof that a place keeps the promise of a try, before the first one.
//!
//! A program may be asked to permit each open and read of a file (permission events of
//! fanotify(7)), and may hang; then no flag of a call keeps the call from waiting. Which programs
//! those are, `/proc/PID/fdinfo` tells of the processes of one's own user alone. So a thread of its
//! own opens and reads a file first, when a request would be tried for the first time, and again
//! after each loss of the right. Until it is done, workers answer. A program that begins to hang
//! later is not noticed by that: see `prompt.rs`.
//!
//! | may run beside | begin | verdict |
//! |----------------|-------|---------|
//! | each of them   | yes   | yes     |
//!
//! Invariant: a verdict is that of the look that began last; what an earlier one finds is dropped.
//!
//! Ordering: relaxed. The verdict is one word and guards nothing.
//!
//! Cost: a thread for each look, and what the look calls; nothing for a request.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flatpath_structures::lock::Lock;
use rustix::fs::{CWD, Dir, DirEntry, FileType, Mode, OFlags, openat};

/// Entries of a directory among which a file is looked for.
const LOOK_ENTRIES_MAX: usize = 64;

/// What is done before the first try. It may block.
type Look = dyn Fn() -> io::Result<()> + Send + Sync;

pub(super) struct Proof {
    look: Arc<Look>,
    /// How long the last look took, in nanoseconds and one more; 0: it is under way.
    took: Lock<Arc<AtomicU64>>,
}

impl Proof {
    pub(super) fn by(look: Arc<Look>) -> Proof {
        Proof {
            look,
            took: Lock::default(),
        }
    }

    /// The same for another right.
    pub(super) fn again(&self) -> Proof {
        Proof::by(Arc::clone(&self.look))
    }

    /// Has a thread look. Where none can be started, or the look fails, it counts as endless.
    pub(super) fn begin(&self) {
        let (look, took) = (Arc::clone(&self.look), Arc::<AtomicU64>::default());
        *self.took.lock() = Arc::clone(&took);
        let run = move || {
            let began = Instant::now();
            let looked = look();
            let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let ns = looked.map_or(u64::MAX, |()| ns.saturating_add(1));
            // ORDER: Relaxed: it guards nothing else.
            took.store(ns, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("flatpath-look".into());
        if thread.spawn(run).is_err() {
            self.took.lock().store(u64::MAX, Ordering::Relaxed); // ORDER: Relaxed: as above.
        }
    }

    /// How long the look took, in nanoseconds, once it is over; asked by one thread alone it
    /// answers once.
    pub(super) fn verdict(&self) -> Option<u64> {
        // ORDER: Relaxed: as in `begin`.
        self.took.lock().swap(0, Ordering::Relaxed).checked_sub(1)
    }
}

#[cfg(test)]
impl Proof {
    /// Waits for the end of the look, and says how long it is to have taken.
    pub(super) fn ends_after(&self, took_ns: u64) {
        let deadline = Instant::now() + flatpath_testkit::patience();
        while self.took.lock().load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "no look ended");
            std::thread::yield_now();
        }
        self.took
            .lock()
            .store(took_ns.saturating_add(1), Ordering::Relaxed);
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Proof")
            .field(&*self.took.lock())
            .finish()
    }
}

/// What looks at a directory, by its name, so that it does not keep it: opens a regular file in it
/// and reads a byte, if there is one among the first 64 entries. Some ten system calls. It is no
/// user's read: where this process may, it leaves the time of access as it was.
pub fn look_into(directory: &Path) -> impl Fn() -> io::Result<()> + Send + Sync + use<> {
    let directory = directory.to_owned();
    move || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &directory, flags, Mode::empty())?;
        let entries = Dir::read_from(&opened)?.take(LOOK_ENTRIES_MAX).flatten();
        let is_file = |entry: &DirEntry| entry.file_type() == FileType::RegularFile;
        for entry in entries.filter(is_file) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let open = |flags| openat(&opened, entry.file_name(), flags, Mode::empty());
            // One that this process may not read says nothing.
            if let Ok(file) = open(flags | OFlags::NOATIME).or_else(|_| open(flags)) {
                rustix::io::pread(&file, &mut [0], 0)?;
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// NFS knows a new file by its times.
    #[test]
    fn a_look_leaves_the_time_of_access_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut file = File::create(directory.path().join("file")).expect("a new name");
        file.write_all(b"x").expect("room");
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        file.set_times(FileTimes::new().set_accessed(before))
            .expect("ours");
        look_into(directory.path())().expect("a look");
        let found = file.metadata().expect("there");
        assert_eq!(found.accessed().expect("known"), before);
    }
}
