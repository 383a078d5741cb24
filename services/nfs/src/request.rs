//! A call on its worker: its caller, where the reply goes, and what procedures have in common.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

use flatpath::memory::PoolHandle;
use flatpath_rpc::xdr::{Malformed, Reader, Writer};
use flatpath_rpc::{Accepted, CallOutcome, Found, NoRoom, Reply};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access as Allowed, AtFlags, FileType, Mode, OFlags};
use rustix::path::DecInt;

use crate::attributes::{Attributes, Change, write_after};
use crate::handle::WireHandle;
use crate::identity::Who;
use crate::limits::{HANDLE_BYTES_MAX, NAME_BYTES_READ_MAX};
use crate::node::{Data, Node};
use crate::rights::{Access, Rights};
use crate::state::State;
use crate::status::Status;
use crate::syncing::Changed;

/// Room for the results of any procedure without data, in bytes: status 4, handle 4 + 68,
/// attributes 88, two changes 2 * 116 come to less than 512; the path of an export 4 + 1024 and 3
/// words.
const RESULT_BYTES_MAX: usize = 1536;

/// The result of a try: the call's file was open, and inside.
const RESOLVED: Found = Found(1);

/// Where a call is answered.
pub(crate) enum Scope {
    /// On a worker: everything may wait.
    Worker,
    /// On a worker, after a try that found the file open and inside.
    Tried,
    /// On a worker, where no more may wait for the export: it is not asked.
    Busy,
    /// On the network thread: whatever would wait gives up.
    Prompt(Attempt),
    /// Anywhere, for a client that is not served: whatever is named has this status.
    Denied(Status),
}

/// A call that is tried on the network thread.
#[derive(Default)]
pub(crate) struct Attempt {
    gave_up: Cell<bool>,
    /// The call's file was open, and inside.
    resolved: Cell<bool>,
    /// The call's file. Dropping the last reference may sync it, so that is not done here.
    node: RefCell<Option<Arc<Node>>>,
}

pub(crate) struct Request<'a> {
    pub(crate) scope: Scope,
    pub(crate) state: &'a State,
    /// Of the client in this export.
    pub(crate) rights: Rights,
    pub(crate) who: Who,
    pub(crate) reply: &'a mut Reply,
    pub(crate) pool: PoolHandle<'a>,
}

/// How a procedure ends: with results, or because it could not come to any.
pub(crate) type Outcome = Result<CallOutcome, Failure>;

/// Why a procedure has no results of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Its arguments cannot be read.
    Garbage,
    /// There is no memory for results.
    NoRoom,
    /// A status, and the attributes of the file it is about, as far as they are known.
    Status(Status, Option<Attributes>),
}

impl Failure {
    /// A failure in a directory that has these attributes after it.
    pub(crate) fn in_directory(status: Status, after: Option<Attributes>) -> Failure {
        Failure::Status(in_directory(status, after.as_ref()), after)
    }
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Failure {
        Failure::Garbage
    }
}

impl From<NoRoom> for Failure {
    fn from(NoRoom: NoRoom) -> Failure {
        Failure::NoRoom
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(status, None)
    }
}

/// The result of a procedure that makes a file.
pub(crate) type Made = (Attributes, WireHandle);

pub(crate) fn read_handle<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    reader.opaque(HANDLE_BYTES_MAX)
}

/// Reads `diropargs3`: the handle of a directory and a name in it.
pub(crate) fn read_entry<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    Ok((read_handle(reader)?, reader.opaque(NAME_BYTES_READ_MAX)?))
}

/// Writes `nfsstat3`.
pub(crate) fn write_status<T>(writer: &mut Writer<'_>, result: &Result<T, Status>) {
    writer.u32(result.as_ref().err().map_or(0, |status| *status as u32));
}

/// The client's status for a failure in a directory: in one that was removed nothing is found, and
/// it is the directory's handle that is stale.
pub(crate) fn in_directory(status: Status, directory: Option<&Attributes>) -> Status {
    match directory {
        Some(directory) if status == Status::NoEntry && directory.links == 0 => Status::Stale,
        _ => status,
    }
}

impl Scope {
    /// On a worker, for a call that was tried and found this, or was not tried.
    pub(crate) fn after(found: Found) -> Scope {
        match found {
            RESOLVED => Scope::Tried,
            _ => Scope::Worker,
        }
    }
}

impl Attempt {
    /// The call is for a worker, whatever is written from now on.
    fn give_up(&self) -> Status {
        self.gave_up.set(true);
        Status::Later
    }
}

impl Request<'_> {
    /// Writes short results; `encode` gets the number of the file system.
    pub(crate) fn answer(&mut self, encode: impl FnOnce(&mut Writer<'_>, u64)) -> Outcome {
        self.answer_within(RESULT_BYTES_MAX, encode)
    }

    /// The same for results of at most `bytes_max`.
    pub(crate) fn answer_within(
        &mut self,
        bytes_max: usize,
        encode: impl FnOnce(&mut Writer<'_>, u64),
    ) -> Outcome {
        let system = self.system();
        let encode = |writer: &mut Writer<'_>| encode(writer, system);
        self.reply.write(bytes_max, self.pool, encode)?;
        Ok(CallOutcome::Results)
    }

    /// Status and the changes of what the procedure was to change; then, on success, what `write`
    /// adds.
    pub(crate) fn answer_changes<T>(
        &mut self,
        result: Result<T, Status>,
        changes: &[Change],
        write: impl FnOnce(&mut Writer<'_>, T),
    ) -> Outcome {
        self.answer(|writer, system| {
            write_status(writer, &result);
            for change in changes {
                change.write(writer, system);
            }
            if let Ok(done) = result {
                write(writer, done);
            }
        })
    }

    /// Moves data of a file. Other calls may do so at the same time, so without attributes before
    /// it.
    pub(crate) fn answer_data<T>(
        &mut self,
        handle: &[u8],
        act: impl FnOnce(&Request<'_>, &Node) -> Result<T, Status>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) -> Outcome {
        let (result, after) = match self.resolve_to_change(handle) {
            Ok(node) => (act(self, &node), node.attributes().ok()),
            Err(status) => (Err(status), None),
        };
        let before = None;
        self.answer_changes(result, &[Change { before, after }], write)
    }

    /// Answers about a file: its attributes, and what `ask` finds.
    pub(crate) fn answer_about<T>(
        &mut self,
        handle: &[u8],
        ask: impl FnOnce(&Request<'_>, &Node) -> Result<T, Status>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) -> Outcome {
        let node = self.resolve(handle)?;
        let found = ask(self, &node);
        let after = self.after(&node);
        let found = found.map_err(|status| Failure::Status(status, after))?;
        self.answer(|writer, system| {
            writer.u32(0);
            write_after(writer, after.as_ref(), system);
            write(writer, found);
        })
    }

    /// The reply to a call whose procedure failed.
    pub(crate) fn fail(&mut self, failure: Failure) -> CallOutcome {
        match failure {
            Failure::Garbage => CallOutcome::GarbageArguments,
            Failure::NoRoom => CallOutcome::SystemError,
            Failure::Status(status, after) => {
                self.reply.restart(Accepted::Success);
                let answered = self.answer(|writer, system| {
                    writer.u32(status as u32);
                    write_after(writer, after.as_ref(), system);
                });
                answered.unwrap_or(CallOutcome::SystemError)
            }
        }
    }

    /// The number of the file system as clients see it.
    pub(crate) fn system(&self) -> u64 {
        u64::from(self.state.export.number)
    }

    pub(crate) fn resolve(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        let export = &self.state.export;
        match &self.scope {
            Scope::Worker => export.resolve(handle),
            Scope::Busy => Err(Status::Later),
            Scope::Denied(status) => Err(*status),
            Scope::Tried => export.resolve_again(handle),
            Scope::Prompt(attempt) => {
                let node = export.resolve_cached(handle)?;
                let node = node.ok_or_else(|| attempt.give_up())?;
                attempt.node.replace(Some(Arc::clone(&node)));
                attempt.resolved.set(true);
                Ok(node)
            }
        }
    }

    /// Before something that may wait.
    ///
    /// # Errors
    /// On the network thread: the call is for a worker. Where no more may wait: "later".
    pub(crate) fn may_wait(&self) -> Result<(), Status> {
        match &self.scope {
            Scope::Worker | Scope::Tried => Ok(()),
            Scope::Busy => Err(Status::Later),
            Scope::Denied(status) => Err(*status),
            Scope::Prompt(attempt) => Err(attempt.give_up()),
        }
    }

    pub(crate) fn is_prompt(&self) -> bool {
        matches!(self.scope, Scope::Prompt(_))
    }

    /// Ends a try; `served` if what is in the reply is the answer.
    ///
    /// # Errors
    /// The call is for a worker: in the scope that this names.
    pub(crate) fn end_attempt(&self, served: CallOutcome) -> Result<CallOutcome, Found> {
        let Scope::Prompt(attempt) = &self.scope else {
            return Ok(served);
        };
        if let Some(node) = attempt.node.take().and_then(Arc::into_inner) {
            self.state.export.nodes.leave(node);
        }
        match (attempt.gave_up.get(), attempt.resolved.get()) {
            (false, _) => Ok(served),
            (true, true) => Err(RESOLVED),
            (true, false) => Err(Found::default()),
        }
    }

    /// The attributes of a file for the reply, after what was done; none for a try that has given
    /// up, whose reply is dropped.
    pub(crate) fn after(&self, node: &Node) -> Option<Attributes> {
        match &self.scope {
            Scope::Prompt(attempt) if attempt.gave_up.get() => None,
            _ => node.attributes().ok(),
        }
    }

    pub(crate) fn resolve_directory(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        let node = self.resolve(handle)?;
        if node.kind == FileType::Directory {
            Ok(node)
        } else {
            Err(Status::NotDirectory)
        }
    }

    pub(crate) fn may_change(&self) -> Result<(), Status> {
        match (&self.scope, self.rights.access) {
            (Scope::Denied(status), _) => Err(*status),
            (_, Access::ReadWrite) => Ok(()),
            (_, Access::ReadOnly) => Err(Status::ReadOnly),
        }
    }

    /// The file of a handle, where clients may change files.
    pub(crate) fn resolve_to_change(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        self.may_change()?;
        self.resolve(handle)
    }

    /// Runs an operation as the caller: the kernel decides.
    pub(crate) fn act<T>(
        &self,
        operation: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        let acting = match self.state.server.act_as(&self.who) {
            Ok(acting) => acting,
            Err(refused) => {
                self.may_wait()?;
                return Err(refused.into());
            }
        };
        let done = operation();
        drop(acting);
        done
    }

    /// Whether the kernel lets the caller do `access` to a file.
    pub(crate) fn is_allowed(&self, node: &Node, access: Allowed) -> Result<bool, Status> {
        Ok(self.granted(node, access)? == access)
    }

    /// Which of several things the kernel lets the caller do to a file.
    pub(crate) fn granted(&self, node: &Node, asked: Allowed) -> Result<Allowed, Status> {
        if asked.is_empty() {
            return Ok(asked);
        }
        // The kernel has read all that it asks of once it was asked: access control lists, too.
        if !node.is_asked() {
            self.may_wait()?;
        }
        let (files, name) = (self.state.export.descriptors(), DecInt::from_fd(&node.path));
        let is_granted = |access| {
            let checked = rustix::fs::accessat(files, name.as_c_str(), access, AtFlags::EACCESS);
            match checked.map_err(Status::from) {
                Ok(()) => Ok(true),
                Err(Status::Access | Status::NotOwner | Status::ReadOnly) => Ok(false),
                Err(other) => Err(other),
            }
        };
        let granted = self.act(|| {
            let mut granted = Allowed::empty();
            for access in asked.iter() {
                if is_granted(access)? {
                    granted |= access;
                }
            }
            Ok(granted)
        })?;
        node.set_asked();
        Ok(granted)
    }

    /// The caller may move data of this file. Its owner always may: the right was checked when the
    /// file was opened at the client, and the mode may have been changed since. A caller that may
    /// execute a file may read it: its client has to, in order to run it.
    ///
    /// READ and WRITE of a directory are `NFS3ERR_ISDIR`: "The caller specified a directory in a
    /// non-directory operation" (RFC 1813 section 2.6). Sections 3.3.6 and 3.3.7 do not list it
    /// among their errors, but Linux's server answers so (`nfsd_mode_check` in
    /// `fs/nfsd/nfsfh.c`), and clients show it as EISDIR. Other kinds are `NFS3ERR_INVAL`, as
    /// there.
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
        node.grant(self.who.clone(), access, attributes.changed);
        Ok(())
    }

    /// Opens a file again through the descriptor we have, as the server.
    pub(crate) fn reopen(&self, node: &Node, flags: OFlags) -> Result<OwnedFd, Status> {
        let (files, name) = (self.state.export.descriptors(), DecInt::from_fd(&node.path));
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(files, name, flags, Mode::empty())?)
    }

    pub(crate) fn reader<'a>(&self, node: &'a Node) -> Result<BorrowedFd<'a>, Status> {
        self.opened_once(node, &node.reader, OFlags::RDONLY)
    }

    pub(crate) fn writer<'a>(&self, node: &'a Node) -> Result<BorrowedFd<'a>, Status> {
        self.opened_once(node, &node.writer, OFlags::WRONLY)
    }

    fn opened_once<'a>(
        &self,
        node: &Node,
        data: &'a OnceLock<Data>,
        flags: OFlags,
    ) -> Result<BorrowedFd<'a>, Status> {
        if let Some(file) = data.get() {
            return Ok(file.as_fd());
        }
        self.may_wait()?;
        let counted = self.state.export.nodes.counted();
        let file = Data::new(self.reopen(node, flags)?, counted);
        // Another worker may have been faster; one of the two descriptors is dropped.
        Ok(data.get_or_init(|| file).as_fd())
    }

    /// Changes a file or directory with what it was before and after, while other changes wait.
    /// What was `changed` is on disk then.
    pub(crate) fn change<T>(
        &self,
        node: &Node,
        changed: Changed<'_>,
        operation: impl FnOnce(Option<Attributes>) -> Result<T, Status>,
    ) -> (Result<T, Status>, Change) {
        let (result, change) = self.change_unsynced(node, operation);
        let result = result.and_then(|done| self.make_last(changed).map(|()| done));
        (result, change)
    }

    /// The same, and the caller makes it last.
    pub(crate) fn change_unsynced<T>(
        &self,
        node: &Node,
        operation: impl FnOnce(Option<Attributes>) -> Result<T, Status>,
    ) -> (Result<T, Status>, Change) {
        let guard = self.state.export.locks.change(node.key);
        let before = node.attributes().ok();
        let result = operation(before);
        let after = node.attributes().ok();
        drop(guard);
        let result = result.map_err(|status| match node.kind {
            FileType::Directory => in_directory(status, after.as_ref()),
            _ => status,
        });
        (result, Change { before, after })
    }

    /// The directory of a handle, where clients may change files.
    pub(crate) fn directory_to_change(&self, handle: &[u8]) -> Result<Arc<Node>, Status> {
        self.may_change()?;
        self.resolve_directory(handle)
    }
}
