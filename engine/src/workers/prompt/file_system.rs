//! Which file systems keep the promise of a try (`prompt.rs`), and for what.
//!
//! | file system                         | names and attributes | data                          |
//! |-------------------------------------|----------------------|-------------------------------|
//! | in memory (tmpfs, ramfs)            | yes                  | yes: it waits for swap alone   |
//! | on a disk of this machine           | what is cached       | what is cached, if it can tell |
//! | an overlay of such alone            | what is cached       | what is cached, if it can tell |
//! | any other (NFS, SMB, FUSE, 9p, ...) | no                   | no                            |
//!
//! Only those that are known are local: one that is not may ask another machine, or a process that
//! hangs, for as little as a file's size. An overlay is looked through (`layers.rs`).
//! What is cached is for the kernel to say, by failing where
//! it would wait: `RWF_NOWAIT` (preadv2(2)) for data, `RESOLVE_CACHED` (openat2(2)) for names.
//! Overlayfs, among others, refuses the one with `EOPNOTSUPP` whatever is cached; that is tried and
//! not assumed, once, and from then on [`FileSystem::tells_data`] spares the tries that need data.
//! Asking in another way does not pay there: `cachestat(2)` knows no page of an overlay, and a
//! mapping for `mincore(2)` costs up to 20 us, as much as the worker that it would save.
//!
//! For data that the kernel moves by itself ([`FileSystem::has_at_hand`]) no call fails where it
//! would wait. So it is asked before: the last byte by `RWF_NOWAIT`, as a page that
//! is on its way from the disk counts as cached for `cachestat(2)`, and the pages by that. Where
//! that is missing, or may not be asked (since 6.14 it tells of files that the caller could write),
//! a byte of each 128 KiB is read, in as much as the kernel reads ahead by default.
//!
//! `RWF_NOWAIT` does not cover the time of access, which a read sets first on most mounts: on a
//! disk that may wait for the journal. So data is read here only where none would be set, by the
//! rule of the kernel (`atime_needs_update` in fs/inode.c); a worker's read then sets it.
//! The mount's options are read once: after a remount a
//! [`PromptRight`](crate::workers::prompt::PromptRight) is what bounds a wait.
//!
//! Does not: keep an eye on the promise, which is what a
//! [`PromptRight`](crate::workers::prompt::PromptRight) is for.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use flatpath_sys::page_cache::cached_pages;
use rustix::io::{Errno, ReadWriteFlags};

use super::layers::layers_of;

/// The numbers that fstatfs(2) has for file systems in memory.
const IN_MEMORY: &[u32] = &[
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
];

/// And for those on a disk of this machine.
const ON_DISK: &[u32] = &[
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // zfs
    0xe0f5_e1e2, // erofs
    0x7371_7368, // squashfs
];

/// Local only if each of its layers is.
const OVERLAY: u32 = 0x794c_7630;

/// Overlays of overlays: as many as the kernel allows (`FILESYSTEM_MAX_STACK_DEPTH` is 2).
const OVERLAY_DEPTH_MAX: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InMemory,
    OnDisk,
    Elsewhere,
}

/// When a read sets the time of access (mount(8): `noatime`, `relatime`, `strictatime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessTime {
    Never,
    Relative,
    Always,
}

/// One byte of this number is asked for where the kernel does not say which pages are cached.
const SAMPLE_BYTES: u64 = 128 * 1024;

/// Seconds after which `relatime` sets it in any case.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;

impl AccessTime {
    fn of(file: BorrowedFd<'_>) -> AccessTime {
        // The numbers of statfs(2), which are not all those of mount(2).
        const READ_ONLY: u64 = 0x0001;
        const NO_ATIME: u64 = 0x0400;
        const RELATIME: u64 = 0x1000;
        let flags = rustix::fs::fstatvfs(file).map_or(0, |found| found.f_flag.bits());
        match flags {
            _ if flags & (READ_ONLY | NO_ATIME) != 0 => AccessTime::Never,
            _ if flags & RELATIME != 0 => AccessTime::Relative,
            _ => AccessTime::Always,
        }
    }

    /// Whether a read of a file with these times would set it.
    fn is_due(self, times: FileTimes) -> bool {
        match self {
            AccessTime::Never => false,
            AccessTime::Always => true,
            AccessTime::Relative => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
                times.are_due_at(now.tv_sec)
            }
        }
    }
}

/// The times of a file, in seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTimes {
    /// Last read, as far as the mount keeps it.
    pub accessed: (i64, u32),
    /// Last written.
    pub modified: (i64, u32),
    /// Last changed in any way.
    pub changed: (i64, u32),
}

impl FileTimes {
    /// For a mount whose rule does not ask for them.
    const UNREAD: FileTimes = FileTimes {
        accessed: (0, 0),
        modified: (0, 0),
        changed: (0, 0),
    };

    fn of(file: impl AsFd) -> rustix::io::Result<FileTimes> {
        let found = rustix::fs::fstat(file)?;
        let time = |seconds, nanoseconds: u64| (seconds, nanoseconds as u32);
        Ok(FileTimes {
            accessed: time(found.st_atime, found.st_atime_nsec),
            modified: time(found.st_mtime, found.st_mtime_nsec),
            changed: time(found.st_ctime, found.st_ctime_nsec),
        })
    }

    /// `relatime_need_update` of fs/inode.c: accessed not after the last change, or long ago.
    fn are_due_at(self, now: i64) -> bool {
        self.modified >= self.accessed
            || self.changed >= self.accessed
            || now.saturating_sub(self.accessed.0) >= RELATIME_SECONDS
    }
}

/// A file system, and what may be tried on it.
#[derive(Debug)]
pub struct FileSystem {
    kind: Kind,
    access_time: AccessTime,
    /// It refused to say what data is cached.
    refuses: AtomicBool,
}

impl FileSystem {
    /// The one that an open file or directory is on. One that the kernel does not name is not
    /// local, nor is an overlay of which a layer is not. One system call, or some for each layer of
    /// an overlay; they wait as the file system does.
    pub fn of(file: impl AsFd) -> FileSystem {
        FileSystem {
            kind: FileSystem::kind_within(file.as_fd(), OVERLAY_DEPTH_MAX),
            access_time: AccessTime::of(file.as_fd()),
            refuses: AtomicBool::new(false),
        }
    }

    fn kind_within(file: BorrowedFd<'_>, depth: usize) -> Kind {
        // The numbers have 32 bits; the field's type differs between machines.
        let Ok(number) = rustix::fs::fstatfs(file).map(|found| found.f_type as u32) else {
            return Kind::Elsewhere;
        };
        if number != OVERLAY {
            return FileSystem::kind_of(number);
        }
        let layers = (depth > 0).then(|| layers_of(file)).flatten();
        let is_local =
            |layer: &OwnedFd| FileSystem::kind_within(layer.as_fd(), depth - 1) != Kind::Elsewhere;
        match layers {
            Some(layers) if layers.iter().all(is_local) => Kind::OnDisk,
            _ => Kind::Elsewhere,
        }
    }

    fn kind_of(number: u32) -> Kind {
        if IN_MEMORY.contains(&number) {
            Kind::InMemory
        } else if ON_DISK.contains(&number) {
            Kind::OnDisk
        } else {
            Kind::Elsewhere
        }
    }

    /// Whether it answers from memory or a disk of this machine: the attributes of an open file are
    /// at hand there, and a name can be tried.
    pub fn is_local(&self) -> bool {
        self.kind != Kind::Elsewhere
    }

    /// Whether all of it is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.kind == Kind::InMemory
    }

    /// Whether to try what needs data: it is in memory, or the file system says what it has cached.
    pub fn tells_data(&self) -> bool {
        match self.kind {
            Kind::InMemory => true,
            // ORDER: a hint; another thread's refusal guards nothing.
            Kind::OnDisk => {
                self.access_time != AccessTime::Always && !self.refuses.load(Ordering::Relaxed)
            }
            Kind::Elsewhere => false,
        }
    }

    /// Reads what is there without a wait. Fewer bytes than asked for: the file ends, or the next
    /// ones are not cached. `None`: it would have waited, or does not tell; nothing was read. One
    /// system call, and another one where a read may set the time of access.
    ///
    /// # Errors
    /// What preadv2(2) says; interrupted calls are made again.
    pub fn read_cached(
        &self,
        file: impl AsFd,
        room: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        let times = match (self.kind, self.access_time) {
            (Kind::OnDisk, AccessTime::Relative) => FileTimes::of(&file)?,
            _ => FileTimes::UNREAD,
        };
        self.read_cached_of(file, times, room, offset)
    }

    /// As [`FileSystem::read_cached`], for a caller that has just read the file's times: one system
    /// call.
    ///
    /// # Errors
    /// As there.
    pub fn read_cached_of(
        &self,
        file: impl AsFd,
        times: FileTimes,
        room: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        let flags = match self.kind {
            _ if !self.tells_data() => return Ok(None),
            Kind::InMemory => ReadWriteFlags::empty(),
            Kind::OnDisk | Kind::Elsewhere if self.access_time.is_due(times) => return Ok(None),
            Kind::OnDisk | Kind::Elsewhere => ReadWriteFlags::NOWAIT,
        };
        loop {
            match rustix::io::preadv2(&file, room, offset, flags) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !flags.is_empty() => {
                    // ORDER: as in `tells_data`.
                    self.refuses.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Whether all these bytes, as far as the file has them, can be sent without a wait. Three
    /// system calls, one for each 128 KiB more where `cachestat(2)` does not tell, none for what is
    /// in memory.
    pub fn has_at_hand(&self, file: BorrowedFd<'_>, bytes: Range<u64>) -> bool {
        match self.kind {
            Kind::InMemory => return true,
            Kind::Elsewhere => return false,
            Kind::OnDisk => {}
        }
        let Some(last) = bytes.end.checked_sub(1).filter(|last| *last >= bytes.start) else {
            return true;
        };
        let is_there = |offset: u64, times: FileTimes| {
            let mut room = [0];
            let read = self.read_cached_of(file, times, &mut [IoSliceMut::new(&mut room)], offset);
            // What fails is for the send to report.
            !matches!(read, Ok(None))
        };
        let times = match self.access_time {
            AccessTime::Relative => FileTimes::of(file),
            AccessTime::Never | AccessTime::Always => Ok(FileTimes::UNREAD),
        };
        let Ok(times) = times else {
            return false;
        };
        if !is_there(last, times) {
            return false;
        }
        let page = rustix::param::page_size() as u64;
        let pages = last / page - bytes.start / page + 1;
        if pages == 1 {
            return true;
        }
        match cached_pages(file, bytes.clone()) {
            Ok(cached) => cached >= pages,
            Err(_) => is_sampled(bytes, |offset| is_there(offset, FileTimes::UNREAD)),
        }
    }
}

/// Whether each of some of these bytes is there: the first, and one in [`SAMPLE_BYTES`].
fn is_sampled(bytes: Range<u64>, is_there: impl FnMut(u64) -> bool) -> bool {
    bytes.step_by(SAMPLE_BYTES as usize).all(is_there)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use flatpath_testkit::fuse::{self, Content};
    use flatpath_testkit::mount::Mounted;

    use super::*;

    fn read(system: &FileSystem, file: &File, bytes: usize, offset: u64) -> Option<Vec<u8>> {
        let mut room = vec![0; bytes];
        let read = system.read_cached(file, &mut [IoSliceMut::new(&mut room)], offset);
        let read = read.expect("readable")?;
        room.truncate(read);
        Some(room)
    }

    #[test]
    fn a_file_in_memory_is_read_whatever_flags_it_refuses() {
        let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else {
            return;
        };
        file.write_all(b"hello").expect("written");
        let system = FileSystem::of(&file);
        assert!(system.is_local() && system.is_in_memory());
        assert_eq!(read(&system, &file, 9, 1).as_deref(), Some(&b"ello"[..]));
        assert_eq!(read(&system, &file, 9, 5).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn what_is_not_cached_is_not_read() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 8192]).expect("written");
        file.sync_all().expect("on disk");
        let system = FileSystem::of(&file);
        if system.kind != Kind::OnDisk {
            return;
        }
        // A fast disk may have brought it before the answer, so it is tried a few times.
        let forgotten = (0..200).find(|_| {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
            read(&system, &file, 8192, 0).is_none()
        });
        assert!(forgotten.is_some());
        let mut all = [0; 8192];
        file.read_exact_at(&mut all, 0).expect("by waiting");
        if system.tells_data() {
            // The clock of files ticks a few times before the time of access is a later one.
            let found = (0..200).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                file.read_exact_at(&mut all, 0).expect("by waiting");
                read(&system, &file, 8192, 0)
            });
            assert_eq!(found, Some(vec![7; 8192]), "now");
        }
    }

    #[test]
    fn a_read_that_would_set_the_time_of_access_is_not_tried() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 64]).expect("written");
        let system = FileSystem::of(&file);
        if system.kind != Kind::OnDisk || system.access_time != AccessTime::Relative {
            return;
        }
        assert_eq!(
            read(&system, &file, 64, 0),
            None,
            "it was written after the last read"
        );
        assert!(system.tells_data(), "another time it may be tried");
        let read_at = |accessed| {
            let times = FileTimes {
                accessed,
                ..FileTimes::of(&file).expect("fstat")
            };
            let mut room = [0; 64];
            let room = &mut [IoSliceMut::new(&mut room)];
            system.read_cached_of(&file, times, room, 0).expect("read")
        };
        assert_eq!(read_at((0, 0)), None, "by the times that are given");
        if system.tells_data() {
            assert_eq!(read_at((i64::MAX, 0)), Some(64), "not read again");
        }
    }

    #[test]
    fn the_time_of_access_is_due_by_the_kernel_s_rule() {
        const DAY: i64 = RELATIME_SECONDS;
        let cases = [
            // now, accessed, modified, changed
            (100, (50, 0), (40, 0), (40, 0), false),
            (100, (50, 0), (50, 0), (40, 0), true),
            (100, (50, 1), (50, 0), (50, 0), false),
            (100, (50, 0), (40, 0), (50, 1), true),
            (100, (50, 0), (60, 0), (40, 0), true),
            (50 + DAY, (50, 0), (40, 0), (40, 0), true),
            (49 + DAY, (50, 0), (40, 0), (40, 0), false),
            (10, (50, 0), (40, 0), (40, 0), false),
            (i64::MAX, (i64::MIN, 0), (i64::MIN, 0), (i64::MIN, 0), true),
        ];
        for (now, accessed, modified, changed, is_due) in cases {
            let times = FileTimes {
                accessed,
                modified,
                changed,
            };
            assert_eq!(times.are_due_at(now), is_due, "{now} {times:?}");
        }
    }

    #[test]
    fn a_file_system_that_refuses_is_asked_once() {
        // What refuses is a file system that is taken for another: a pipe has no places to read at.
        let (reader, _writer) = io::pipe().expect("a pipe");
        let system = FileSystem::of(&reader);
        assert!(!system.is_local(), "it is not known");
        let mut room = [0];
        let mut attempt =
            |system: &FileSystem| system.read_cached(&reader, &mut [IoSliceMut::new(&mut room)], 0);
        assert!(matches!(attempt(&system), Ok(None)), "it is not even asked");
        let taken = FileSystem {
            kind: Kind::OnDisk,
            access_time: AccessTime::Never,
            refuses: AtomicBool::new(false),
        };
        let cause = attempt(&taken).expect_err("it was asked");
        assert_eq!(cause.raw_os_error(), Some(Errno::SPIPE.raw_os_error()));
        assert!(taken.tells_data() && !system.tells_data());
        taken.refuses.store(true, Ordering::Relaxed);
        assert!(!taken.tells_data());
        assert!(matches!(attempt(&taken), Ok(None)));
    }

    #[test]
    fn only_known_file_systems_are_local() {
        assert_eq!(FileSystem::kind_of(0xef53), Kind::OnDisk);
        // NFS, SMB, FUSE, 9p, autofs, proc.
        for number in [
            0x6969,
            0xff53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x0187,
            0x9fa0,
        ] {
            assert_eq!(FileSystem::kind_of(number), Kind::Elsewhere);
        }
        // Its layers are.
        assert_eq!(FileSystem::kind_of(OVERLAY), Kind::Elsewhere);
        let procfs = File::open("/proc/self/stat").expect("readable");
        assert!(!FileSystem::of(&procfs).is_local());
    }

    #[test]
    fn an_overlay_is_as_local_as_the_least_local_of_its_layers() {
        let local = tempfile::tempdir().expect("a directory");
        let is_local = |directory: &Path| {
            let mounted = Mounted::overlay(directory)?;
            let opened = File::open(mounted.path()).expect("open");
            Some(FileSystem::of(&opened).is_local())
        };
        // Where the directory for temporary files is no local one, no overlay of it is either.
        let expected = FileSystem::of(File::open(local.path()).expect("open")).is_local();
        let Some(found) = is_local(local.path()) else {
            return;
        };
        assert_eq!(found, expected);
        let files = vec![Content::new("file", "remote")];
        if let Some(_fuse) = fuse::try_mount(local.path(), files) {
            assert_eq!(is_local(local.path()), Some(false));
        }
    }
}
