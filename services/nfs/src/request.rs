//! A call on its worker: who asks, where the reply goes, and what procedures do alike.

use std::sync::Arc;

use flatpath::memory::PoolHandle;
use flatpath_rpc::xdr::{Malformed, Reader, Writer};
use flatpath_rpc::{CallOutcome, Reply};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access as Allowed, AtFlags, FileType, Mode, OFlags};

use crate::attributes::{Attributes, Change, write_after};
use crate::handle::WireHandle;
use crate::identity::Who;
use crate::limits::{HANDLE_BYTES_MAX, NAME_BYTES_READ_MAX};
use crate::node::{Data, Node};
use crate::state::{Access, State};
use crate::status::Status;

/// Room for the results of any procedure without data, in bytes: status 4, handle 4 + 68,
/// attributes 88, two changes 2 * 116 come to less than 512; the path of an export 4 + 1024 and 3
/// words.
const RESULT_BYTES_MAX: usize = 1536;

/// A call on its worker.
pub(crate) struct Request<'a> {
    pub(crate) state: &'a State,
    pub(crate) who: Who,
    pub(crate) reply: &'a mut Reply,
    pub(crate) pool: PoolHandle<'a>,
}

/// How a procedure ends: with results, or because its arguments cannot be read.
pub(crate) type Outcome = Result<CallOutcome, Malformed>;

/// What a procedure that makes something returns on success.
pub(crate) type Made = (Attributes, WireHandle);

pub(crate) fn read_handle<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    reader.opaque(HANDLE_BYTES_MAX)
}

pub(crate) fn read_name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    reader.opaque(NAME_BYTES_READ_MAX)
}

/// Writes `nfsstat3`.
pub(crate) fn write_status<T>(writer: &mut Writer<'_>, result: &Result<T, Status>) {
    writer.u32(result.as_ref().err().map_or(0, |status| *status as u32));
}

/// What a failure in a directory is to the client: in one that was removed nothing is found, and it
/// is the directory's handle that is stale.
pub(crate) fn in_directory(status: Status, directory: Option<&Attributes>) -> Status {
    match directory {
        Some(directory) if status == Status::NoEntry && directory.links == 0 => Status::Stale,
        _ => status,
    }
}

impl Request<'_> {
    /// Writes short results.
    pub(crate) fn answer(&mut self, encode: impl FnOnce(&mut Writer<'_>)) -> CallOutcome {
        match self.reply.write(RESULT_BYTES_MAX, self.pool, encode) {
            Ok(()) => CallOutcome::Results,
            Err(_) => CallOutcome::SystemError,
        }
    }

    /// Status and the changes of what the procedure was to change.
    pub(crate) fn answer_changes(
        &mut self,
        result: Result<(), Status>,
        changes: &[Change],
    ) -> CallOutcome {
        let system = self.system();
        self.answer(|writer| {
            write_status(writer, &result);
            for change in changes {
                change.write(writer, system);
            }
        })
    }

    /// Answers about a file: its attributes, and what `ask` finds.
    pub(crate) fn answer_about<T>(
        &mut self,
        handle: &[u8],
        ask: impl FnOnce(&Request<'_>, &Node) -> Result<T, Status>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) -> CallOutcome {
        let node = match self.resolve(handle) {
            Ok(node) => node,
            Err(status) => return self.fail(status, None),
        };
        let found = ask(self, &node);
        let after = node.attributes().ok();
        let system = self.system();
        match found {
            Ok(found) => self.answer(|writer| {
                writer.u32(0);
                write_after(writer, after.as_ref(), system);
                write(writer, found);
            }),
            Err(status) => self.fail(status, after.as_ref()),
        }
    }

    /// Status and `post_op_attr` of a failure.
    pub(crate) fn fail(&mut self, status: Status, after: Option<&Attributes>) -> CallOutcome {
        let system = self.system();
        self.answer(|writer| {
            writer.u32(status as u32);
            write_after(writer, after, system);
        })
    }

    /// The number of the file system as clients see it.
    pub(crate) fn system(&self) -> u64 {
        u64::from(self.state.export.number)
    }

    pub(crate) fn resolve(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        self.state.export.resolve(handle)
    }

    /// The same for a directory.
    pub(crate) fn resolve_directory(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        let node = self.resolve(handle)?;
        if node.kind == FileType::Directory {
            Ok(node)
        } else {
            Err(Status::NotDirectory)
        }
    }

    pub(crate) fn may_change(&self) -> Result<(), Status> {
        match self.state.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Status::ReadOnly),
        }
    }

    /// Runs an operation as the caller: the kernel decides.
    pub(crate) fn act<T>(
        &self,
        operation: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.state.server.act(&self.who, operation)
    }

    /// Whether the kernel lets the caller do `access` to a file.
    pub(crate) fn is_allowed(&self, node: &Node, access: Allowed) -> Result<bool, Status> {
        let mut number = [0; 12];
        let export = &self.state.export;
        let name = export.magic(node.path.as_fd(), &mut number);
        let checked = self.act(|| {
            let (files, flags) = (export.descriptors(), AtFlags::EACCESS);
            Ok(rustix::fs::accessat(files, name, access, flags)?)
        });
        match checked {
            Ok(()) => Ok(true),
            Err(Status::Access | Status::NotOwner | Status::ReadOnly) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The caller may move data of this file. Its owner always may: the right was checked when the
    /// file was opened at the client, and the mode may have been changed since. Who may execute a
    /// file may read it: the client has to, in order to run it.
    pub(crate) fn check_data(
        &self,
        node: &Node,
        attributes: &Attributes,
        access: Allowed,
    ) -> Result<(), Status> {
        match node.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Status::IsDirectory),
            _ => return Err(Status::Invalid),
        }
        if attributes.user == self.who.user
            || node.is_granted(&self.who, access, attributes.changed)
        {
            return Ok(());
        }
        let allowed = self.is_allowed(node, access)?
            || (access == Allowed::READ_OK && self.is_allowed(node, Allowed::EXEC_OK)?);
        if !allowed {
            return Err(Status::Access);
        }
        node.grant(self.who, access, attributes.changed);
        Ok(())
    }

    /// Opens a file again through the descriptor we have, as the server.
    pub(crate) fn reopen(&self, node: &Node, flags: OFlags) -> Result<OwnedFd, Status> {
        let mut number = [0; 12];
        let export = &self.state.export;
        let name = export.magic(node.path.as_fd(), &mut number);
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(
            export.descriptors(),
            name,
            flags,
            Mode::empty(),
        )?)
    }

    /// A descriptor for reading, opened once.
    pub(crate) fn reader<'a>(&self, node: &'a Node) -> Result<BorrowedFd<'a>, Status> {
        if let Some(file) = node.reader.get() {
            return Ok(file.as_fd());
        }
        let counted = self.state.export.nodes.counted();
        let file = Data::new(self.reopen(node, OFlags::RDONLY)?, counted);
        // Another worker may have been faster; one of the two descriptors is dropped.
        Ok(node.reader.get_or_init(|| file).as_fd())
    }

    /// A descriptor for writing, opened once.
    pub(crate) fn writer<'a>(&self, node: &'a Node) -> Result<BorrowedFd<'a>, Status> {
        if let Some(file) = node.writer.get() {
            return Ok(file.as_fd());
        }
        let counted = self.state.export.nodes.counted();
        let file = Data::new(self.reopen(node, OFlags::WRONLY)?, counted);
        Ok(node.writer.get_or_init(|| file).as_fd())
    }

    /// Writes a change of a directory or of attributes to disk, which precedes the reply.
    pub(crate) fn sync(&self, node: &Node) -> Result<(), Status> {
        if !matches!(node.kind, FileType::Directory | FileType::RegularFile) {
            return Ok(());
        }
        match rustix::fs::fsync(self.reader(node)?) {
            // A file system that has nothing to make last.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::ROFS) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Changes a directory with what it was before and after; other changes wait meanwhile.
    pub(crate) fn change<T>(
        &self,
        directory: &[u8],
        operation: impl FnOnce(&Node) -> Result<T, Status>,
    ) -> (Result<T, Status>, Change) {
        let node = match self
            .may_change()
            .and_then(|()| self.resolve_directory(directory))
        {
            Ok(node) => node,
            Err(status) => return (Err(status), Change::default()),
        };
        let guard = self.state.export.lock_change(node.key);
        let before = node.attributes().ok();
        let result = operation(&node);
        let after = node.attributes().ok();
        drop(guard);
        let result = result.and_then(|made| self.sync(&node).map(|()| made));
        let result = result.map_err(|status| in_directory(status, after.as_ref()));
        (result, Change { before, after })
    }
}
