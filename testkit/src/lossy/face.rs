//! The side of a lossy file system that the kernel sees: requests of FUSE, done on its disk.

use std::ffi::OsStr;
use std::io;
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

/// Answers the kernel.
pub(super) struct Face(pub(super) Arc<Shared>);

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
