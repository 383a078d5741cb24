//! The side of a lossy file system that the kernel sees: requests of FUSE, done on its disk.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::disk::{self, Disk, Inode};
use super::{Cache, Failing, Operation, Shared, locked};

/// The kernel keeps neither names nor attributes.
const VALID: Duration = Duration::ZERO;

/// The longest write in bytes: a longer one of a program comes in parts, and may fail in between.
const WRITE_BYTES_MAX: u32 = 64 << 10;

/// The longest file, in bytes.
const SIZE_MAX: usize = 1 << 30;

/// Answers the kernel.
pub(super) struct Face(pub(super) Arc<Shared>);

impl Face {
    /// The disk; after a crash there is none, until it is up again.
    fn disk(&self) -> Result<MutexGuard<'_, Disk>, Errno> {
        let disk = locked(&self.0.disk);
        match disk.is_crashed() {
            true => Err(Errno::EIO),
            false => Ok(disk),
        }
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
        let mut disk = self.disk()?;
        let inode = disk.inode(number).ok_or(Errno::ENOENT)?;
        Ok(attributes_of(number, inode))
    }

    fn entry(&self, found: Result<Option<u64>, Errno>, reply: ReplyEntry) {
        let number = found.and_then(|found| found.ok_or(Errno::ENOENT));
        match number.and_then(|number| self.attributes(number)) {
            Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    /// Makes what is no regular file; `complete` gives it what is its own.
    fn make(
        &self,
        request: &Request,
        at: (u64, &OsStr),
        kind: FileType,
        mode: u32,
        reply: ReplyEntry,
        complete: impl FnOnce(&mut Inode),
    ) {
        let owner = (request.uid(), request.gid());
        let made = self.disk().map(|mut disk| {
            let made = disk.make(at, kind, mode_of(mode), owner);
            if let Some(inode) = made.and_then(|number| disk.inode(number)) {
                complete(inode);
            }
            made
        });
        self.entry(made, reply);
    }

    fn resize(&self, number: u64, size: u64) -> Result<(), Errno> {
        self.begin(Operation::Resize)?;
        // As a file system that has a longest file.
        let fits = usize::try_from(size).ok().filter(|size| *size <= SIZE_MAX);
        let size = fits.ok_or(Errno::EFBIG)?;
        let mut disk = self.disk()?;
        disk.inode(number).ok_or(Errno::ENOENT)?.resize(size);
        Ok(())
    }

    fn sync(&self, operation: Operation, number: INodeNo, handle: FileHandle) -> Result<(), Errno> {
        self.begin(operation)?;
        match self.disk()?.sync(number.0, handle.0) || operation == Operation::SyncDirectory {
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
        atime: inode.attributes.accessed,
        mtime: inode.attributes.modified,
        ctime: inode.changed,
        crtime: SystemTime::UNIX_EPOCH,
        kind: inode.kind,
        perm: inode.attributes.mode,
        nlink: inode.links,
        uid: inode.attributes.user,
        gid: inode.attributes.group,
        rdev: inode.device,
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

/// What mknod(2) makes: `S_IFMT` of `include/uapi/linux/stat.h`.
fn kind_of(mode: u32) -> FileType {
    match mode & 0o170_000 {
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o060_000 => FileType::BlockDevice,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
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
        let found = self.disk().map(|mut disk| disk.find(parent.0, name));
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
        let is_owner = user.is_some() || group.is_some();
        let is_set = is_owner || mode.is_some() || accessed.is_some() || modified.is_some();
        let begun = match size {
            Some(size) => self.resize(number.0, size),
            None if is_owner => self.begin(Operation::SetOwner),
            None if is_set => self.begin(Operation::SetAttributes),
            None => Ok(()),
        };
        let mut disk = match begun.and_then(|()| self.disk()) {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
        if let Some(inode) = disk.inode(number.0) {
            let attributes = &mut inode.attributes;
            attributes.mode = mode.map_or(attributes.mode, mode_of);
            attributes.user = user.unwrap_or(attributes.user);
            attributes.group = group.unwrap_or(attributes.group);
            attributes.accessed = accessed.map_or(attributes.accessed, time_of);
            attributes.modified = modified.map_or(attributes.modified, time_of);
            inode.changed = SystemTime::now();
        }
        drop(disk);
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
        let mode = mode & !umask;
        self.make(
            request,
            (parent.0, name),
            FileType::Directory,
            mode,
            reply,
            |_| {},
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = kind_of(mode);
        self.make(
            request,
            (parent.0, name),
            kind,
            mode & !umask,
            reply,
            |inode| {
                inode.device = device;
            },
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.make(
            request,
            (parent.0, name),
            FileType::Symlink,
            0o777,
            reply,
            |inode| {
                inode.point_to(target.as_os_str().as_bytes());
            },
        );
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.disk().and_then(|mut disk| {
            let inode = disk.inode(number.0).ok_or(Errno::ENOENT)?;
            Ok(inode.bytes.clone())
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.disk().and_then(|mut disk| {
            let removed = disk.remove(parent.0, name);
            removed.map(drop).ok_or(Errno::ENOENT)
        });
        answer(reply, removed);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut disk = match self.disk() {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
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
        let mut disk = match self.disk() {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
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
        let linked = self.disk().map(|mut disk| {
            let linked = disk.link(number.0, parent.0, name);
            linked.map(|()| number.0)
        });
        self.entry(linked, reply);
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        const TRUNCATE: i32 = 0o1000;
        if flags.0 & TRUNCATE != 0
            && let Err(errno) = self.resize(number.0, 0)
        {
            reply.error(errno);
            return;
        }
        match self.disk().map(|mut disk| disk.open(number.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
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
        let made = self.disk().and_then(|mut disk| {
            let made = disk.make(at, FileType::RegularFile, mode, owner);
            let number = made.ok_or(Errno::ENOENT)?;
            Ok((number, disk.open(number)))
        });
        match made.and_then(|(number, handle)| Ok((handle, self.attributes(number)?))) {
            Ok((handle, attributes)) => {
                let handle = FileHandle(handle);
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
        let mut disk = match self.begin(Operation::Read).and_then(|()| self.disk()) {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
        let Some(inode) = disk.inode(number.0) else {
            return reply.error(Errno::ENOENT);
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
        let mut disk = match self.begin(Operation::Write).and_then(|()| self.disk()) {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
        let at = usize::try_from(offset).unwrap_or(usize::MAX / 2);
        match disk.inode(number.0) {
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
        locked(&self.0.disk).close(handle.0);
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
        let mut disk = match self.disk() {
            Ok(disk) => disk,
            Err(errno) => return reply.error(errno),
        };
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
