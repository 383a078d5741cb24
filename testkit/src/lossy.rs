//! A file system in memory that forgets what was not synced, and fails on request (FUSE).
//!
//! It keeps what was written apart from what was synced: [`Lossy::lasting`] gives what a power
//! failure at this moment would leave of a file. A test injects errors of single operations
//! ([`Lossy::fail`]) or loses what was written and not synced ([`Lossy::lose`]), of which the next
//! sync of each descriptor is told once, as the kernel does for local disks (`errseq_t`). It counts
//! operations ([`Lossy::count`]) and can be slow ([`Lossy::delay`]).
//!
//! [`Cache::Through`]: each write comes here before it returns, so what is lost is exact.
//! [`Cache::Back`]: the kernel writes later, so an error of [`Operation::Write`] is one of
//! write-back, and the report the kernel's own.
//!
//! A stable write (`RWF_DSYNC`, `RWF_SYNC`) reaches FUSE as a write and a sync
//! (`generic_write_sync`). Files without a name (`O_TMPFILE`) are refused, as older kernels do.
//! Needs root and `/dev/fuse`.

mod disk;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, SessionACL, TimeOrNow, WriteFlags,
};

use rustix::mount::{UnmountFlags, unmount};

use self::disk::{Disk, Inode};
use crate::{deadline, tools};

/// The kernel keeps neither names nor attributes.
const VALID: Duration = Duration::ZERO;
/// Requests that may wait at the same time.
const THREADS: usize = 8;

/// The longest write in bytes: a longer one of a program comes in parts, and may fail in between.
const WRITE_BYTES_MAX: u32 = 64 << 10;

/// What comes to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
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
            session.join().expect("it ends");
        }
    }
}

/// The side that the kernel sees.
struct Face(Arc<Shared>);

impl Face {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        locked(&self.0.disk)
    }

    /// Counts an operation, lets it take its time, and says how it is to fail.
    fn begin(&self, operation: Operation) -> Result<(), Errno> {
        let mut rules = locked(&self.0.rules);
        *rules.counts.entry(operation).or_default() += 1;
        let delay = rules.delays.get(&operation).copied();
        let failing = rules.failing.get_mut(&operation);
        let errno = failing.and_then(Failing::next);
        drop(rules);
        if let Some(delay) = delay {
            std::thread::sleep(delay);
        }
        errno.map_or(Ok(()), |errno| Err(Errno::from_i32(errno)))
    }

    fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let mut disk = self.disk();
        let inode = disk.inode(number).ok_or(Errno::ENOENT)?;
        Ok(attributes_of(number, inode))
    }

    fn entry(&self, found: Option<u64>, reply: ReplyEntry) {
        let attributes = found.ok_or(Errno::ENOENT);
        match attributes.and_then(|number| self.attributes(number)) {
            Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn resize(&self, number: u64, size: u64) -> Result<(), Errno> {
        self.begin(Operation::Resize)?;
        let size = usize::try_from(size).map_err(|_| Errno::EFBIG)?;
        let mut disk = self.disk();
        disk.inode(number).ok_or(Errno::ENOENT)?.resize(size);
        Ok(())
    }

    fn sync(&self, operation: Operation, number: INodeNo, handle: FileHandle) -> Result<(), Errno> {
        self.begin(operation)?;
        match self.disk().sync(number.0, handle.0) || operation == Operation::SyncDirectory {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }
}

fn attributes_of(number: u64, inode: &Inode) -> FileAttr {
    let size = inode.bytes.len() as u64;
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: size.div_ceil(512),
        atime: inode.accessed,
        mtime: inode.modified,
        ctime: inode.changed,
        crtime: SystemTime::UNIX_EPOCH,
        kind: inode.kind,
        perm: inode.mode,
        nlink: inode.links,
        uid: inode.user,
        gid: inode.group,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn time_of(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn mode_of(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Face {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_EXPORT_SUPPORT;
        if self.0.cache == Cache::Back {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        let short = config.set_max_write(WRITE_BYTES_MAX);
        short.map_err(|nearest| io::Error::other(format!("writes of {nearest} bytes at least")))?;
        let absent = config.add_capabilities(wanted);
        absent.map_err(|absent| io::Error::other(format!("the kernel has no {absent:?}")))
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.disk().find(parent.0, name);
        self.entry(found, reply);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number.0) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_here: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size
            && let Err(errno) = self.resize(number.0, size)
        {
            reply.error(errno);
            return;
        }
        if let Some(inode) = self.disk().inode(number.0) {
            inode.mode = mode.map_or(inode.mode, mode_of);
            inode.user = user.unwrap_or(inode.user);
            inode.group = group.unwrap_or(inode.group);
            inode.accessed = accessed.map_or(inode.accessed, time_of);
            inode.modified = modified.map_or(inode.modified, time_of);
            inode.changed = SystemTime::now();
        }
        match self.attributes(number.0) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (request.uid(), request.gid());
        let (at, mode) = ((parent.0, name), mode_of(mode & !umask));
        let made = self.disk().make(at, FileType::Directory, mode, owner);
        self.entry(made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.disk().remove(parent.0, name);
        answer(reply, removed.map(drop).ok_or(Errno::ENOENT));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut disk = self.disk();
        let found = disk.find(parent.0, name);
        let is_empty = found
            .and_then(|number| disk.inode(number))
            .map(|inode| inode.names.is_empty());
        let done = match is_empty {
            None => Err(Errno::ENOENT),
            Some(false) => Err(Errno::ENOTEMPTY),
            Some(true) => {
                disk.remove(parent.0, name);
                Ok(())
            }
        };
        drop(disk);
        answer(reply, done);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut disk = self.disk();
        let is_taken = disk.find(new_parent.0, new_name).is_some();
        let done = if flags.contains(RenameFlags::RENAME_NOREPLACE) && is_taken {
            Err(Errno::EEXIST)
        } else {
            disk.rename((parent.0, name), (new_parent.0, new_name))
                .ok_or(Errno::ENOENT)
        };
        drop(disk);
        answer(reply, done);
    }

    fn link(
        &self,
        _request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.disk().link(number.0, parent.0, name);
        self.entry(linked.map(|()| number.0), reply);
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        const TRUNCATE: i32 = 0o1000;
        if flags.0 & TRUNCATE != 0
            && let Err(errno) = self.resize(number.0, 0)
        {
            reply.error(errno);
            return;
        }
        let handle = self.disk().open(number.0);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = (request.uid(), request.gid());
        let (at, mode) = ((parent.0, name), mode_of(mode & !umask));
        let made = self.disk().make(at, FileType::RegularFile, mode, owner);
        let made = made.ok_or(Errno::ENOENT);
        match made.and_then(|number| Ok((number, self.attributes(number)?))) {
            Ok((number, attributes)) => {
                let handle = FileHandle(self.disk().open(number));
                reply.created(
                    &VALID,
                    &attributes,
                    Generation(0),
                    handle,
                    FopenFlags::empty(),
                );
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut disk = self.disk();
        let Some(inode) = disk.inode(number.0) else {
            reply.error(Errno::ENOENT);
            return;
        };
        let length = inode.bytes.len();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let to = from.saturating_add(size as usize).min(length);
        reply.data(&inode.bytes[from..to]);
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Err(errno) = self.begin(Operation::Write) {
            reply.error(errno);
            return;
        }
        let at = usize::try_from(offset).unwrap_or(usize::MAX / 2);
        match self.disk().inode(number.0) {
            Some(inode) => inode.write(at, data),
            None => return reply.error(Errno::ENOENT),
        }
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer(reply, self.begin(Operation::Flush));
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.disk().close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.sync(Operation::Sync, number, handle));
    }

    fn fsyncdir(&self, _: &Request, at: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.sync(Operation::SyncDirectory, at, handle));
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut disk = self.disk();
        let names = disk.inode(number.0).map(|inode| inode.names.clone());
        let names = names.unwrap_or_default();
        let own = [(".".into(), number.0), ("..".into(), disk::ROOT)];
        let all = own.into_iter().chain(names).enumerate();
        for (place, (name, entry)) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let kind = disk
                .inode(entry)
                .map_or(FileType::RegularFile, |inode| inode.kind);
            if reply.add(INodeNo(entry), place as u64 + 1, kind, name) {
                break;
            }
        }
        drop(disk);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: fuser::ReplyStatfs) {
        const BLOCKS: u64 = 1 << 20;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4096, 255, 4096);
    }
}
