//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).
//!
//! The kernel makes the file as the caller, so it belongs to the caller and the directory's rules
//! hold. What its attributes come to is decided before (`setting.rs`); where the kernel alone can
//! refuse a part, or cannot make it last, the object is removed again. An exclusive create keeps
//! the client's verifier in the times of the new file until the client sets them, so that a
//! repeated one is known even after a restart. The file has its name last (`O_TMPFILE`, linkat):
//! whatever ends this process, a name that is there has its verifier. On a file system without
//! nameless files the name is first, and a server that is killed before the next call leaves a file
//! that a repeated create finds as another client's (`NFS3ERR_EXIST`).

use flatpath_rpc::xdr::Reader;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::attributes::{Attributes, Change, SetAttributes, SetTime, Time, write_after};
use crate::limits::PATH_BYTES_MAX;
use crate::names::{RESOLVE, new_name, open_name};
use crate::node::{Data, Node};
use crate::request::{Failure, Made, Outcome, Request, read_entry, write_status};
use crate::setting::{Plan, Subject};
use crate::status::Status;
use crate::syncing::{Changed, ObjectState};

/// What is to be under a name.
enum Wanted<'a> {
    /// A file; where one is there, only the size is set (RFC 1813 section 3.3.8).
    Unchecked(SetAttributes),
    /// A file that is not there.
    Guarded(SetAttributes),
    /// A file that is not there, or was made with this verifier.
    Exclusive([u8; 8]),
    Directory(SetAttributes),
    /// A symbolic link to this.
    Link(SetAttributes, &'a [u8]),
    /// What is neither; with major and minor number of a device.
    Special(FileType, SetAttributes, (u32, u32)),
    /// A kind that is made by other procedures, or by none.
    Other,
}

/// An object under its name.
struct Object {
    node: Node,
    state: ObjectState,
    attributes: Attributes,
}

pub(super) fn create(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let wanted = match reader.u32()? {
        0 => Wanted::Unchecked(SetAttributes::read(reader)?),
        1 => Wanted::Guarded(SetAttributes::read(reader)?),
        2 => Wanted::Exclusive(reader.fixed::<8>()?),
        _ => return Err(Failure::Garbage),
    };
    make(request, entry, &wanted)
}

pub(super) fn make_directory(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let wanted = Wanted::Directory(SetAttributes::read(reader)?);
    make(request, entry, &wanted)
}

pub(super) fn make_link(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let attributes = SetAttributes::read(reader)?;
    let wanted = Wanted::Link(attributes, reader.opaque(PATH_BYTES_MAX + 1)?);
    make(request, entry, &wanted)
}

pub(super) fn make_node(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let kind = match reader.u32()? {
        3 => FileType::BlockDevice,
        4 => FileType::CharacterDevice,
        6 => FileType::Socket,
        7 => FileType::Fifo,
        // Its arguments end here.
        _ => return make(request, entry, &Wanted::Other),
    };
    let attributes = SetAttributes::read(reader)?;
    let device = match kind {
        FileType::BlockDevice | FileType::CharacterDevice => (reader.u32()?, reader.u32()?),
        _ => (0, 0),
    };
    make(request, entry, &Wanted::Special(kind, attributes, device))
}

/// Makes an entry of a directory: status, handle, attributes and the change of the directory.
fn make(
    request: &mut Request<'_>,
    (directory, name): (&[u8], &[u8]),
    wanted: &Wanted<'_>,
) -> Outcome {
    let directory = request.directory_to_change(directory);
    let (result, change) = match &directory {
        Ok(directory) => request.make_lasting(directory, name, wanted),
        Err(status) => (Err(*status), Change::default()),
    };
    request.answer(|writer, system| {
        write_status(writer, &result);
        if let Ok((attributes, handle)) = &result {
            writer.boolean(true);
            writer.opaque(handle.as_slice());
            write_after(writer, Some(attributes), system);
        }
        change.write(writer, system);
    })
}

/// The verifier as two times in seconds. The top bits are left out: not every file system keeps
/// them.
fn verifier_times(verifier: [u8; 8]) -> (Time, Time) {
    let verifier = u64::from_be_bytes(verifier);
    let time = |seconds: u32| Time {
        seconds: seconds & 0x7fff_ffff,
        nanoseconds: 0,
    };
    (time((verifier >> 32) as u32), time(verifier as u32))
}

/// The attributes that a file made with this verifier has.
fn attributes_with(verifier: [u8; 8]) -> SetAttributes {
    let (accessed, modified) = verifier_times(verifier);
    SetAttributes {
        accessed: SetTime::To(accessed),
        modified: SetTime::To(modified),
        ..SetAttributes::default()
    }
}

impl Wanted<'_> {
    /// What a new object gets.
    fn plan(&self, request: &Request<'_>) -> Result<Plan, Status> {
        let decide = |kind, device, wanted: &SetAttributes| {
            request.decide(&Subject::New { kind, device }, wanted)
        };
        match self {
            Wanted::Unchecked(wanted) | Wanted::Guarded(wanted) => {
                decide(FileType::RegularFile, (0, 0), wanted)
            }
            Wanted::Exclusive(verifier) => {
                decide(FileType::RegularFile, (0, 0), &attributes_with(*verifier))
            }
            Wanted::Directory(wanted) => decide(FileType::Directory, (0, 0), wanted),
            Wanted::Link(_, target) if target.len() > PATH_BYTES_MAX => Err(Status::NameTooLong),
            Wanted::Link(_, target) if target.is_empty() || target.contains(&0) => {
                Err(Status::Invalid)
            }
            Wanted::Link(wanted, _) => decide(FileType::Symlink, (0, 0), wanted),
            Wanted::Special(kind, wanted, device) => decide(*kind, *device, wanted),
            Wanted::Other => Err(Status::BadType),
        }
    }

    /// Makes it under a name that is free, as the calling thread; the kernel says whether it is.
    /// Gives a file open for writing, and nothing for anything else.
    fn make(&self, directory: &Node, name: &[u8], mode: u32) -> Result<Option<OwnedFd>, Status> {
        const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY);
        let (at, mode) = (&directory.path, Mode::from_raw_mode(mode));
        match self {
            Wanted::Unchecked(_) | Wanted::Guarded(_) | Wanted::Exclusive(_) => {
                let flags = NEW | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat2(at, name, flags, mode, RESOLVE)?;
                return Ok(Some(file));
            }
            Wanted::Directory(_) => rustix::fs::mkdirat(at, name, mode)?,
            Wanted::Link(_, target) => rustix::fs::symlinkat(*target, at, name)?,
            Wanted::Special(kind, _, (major, minor)) => {
                rustix::fs::mknodat(at, name, *kind, mode, makedev(*major, *minor))?;
            }
            Wanted::Other => return Err(Status::BadType),
        }
        Ok(None)
    }

    fn is_link_or_special(&self) -> bool {
        matches!(self, Wanted::Link(..) | Wanted::Special(..))
    }
}

impl Request<'_> {
    /// An object under a name, on disk as its reply says; or none, and the reason.
    fn make_lasting(
        &self,
        directory: &Node,
        name: &[u8],
        wanted: &Wanted<'_>,
    ) -> (Result<Made, Status>, Change) {
        let make = || self.make_object(directory, new_name(name)?, wanted);
        let (made, change) = self.change_unsynced(directory, |_| make());
        let object = match made {
            Ok(object) => object,
            Err(status) => return (Err(status), change),
        };
        let changed = Changed::Named {
            object: &object.node,
            state: object.state,
            directory,
        };
        let Err(status) = self.make_last(changed) else {
            return (Ok((object.attributes, object.node.handle)), change);
        };
        if !object.state.is_new() {
            return (Err(status), change);
        }
        // Other changes may have come between.
        let (_, change) = self.change_unsynced(directory, |_| {
            self.remove_made(directory, name, Some(&object.attributes));
            Ok(())
        });
        let _ = self.make_last(Changed::Removed { directory });
        let before = None;
        (Err(status), Change { before, ..change })
    }

    /// An object as it is wanted, or nothing has changed; alone in its directory.
    fn make_object(
        &self,
        directory: &Node,
        name: &[u8],
        wanted: &Wanted<'_>,
    ) -> Result<Object, Status> {
        let plan = wanted.plan(self)?;
        if let Wanted::Exclusive(_) = wanted
            && let Ok(object) = self.make_with_name_last(directory, name, plan)
        {
            let key = object.attributes.key;
            self.state.export.saw_in(key, directory, name);
            return Ok(object);
        }
        let locks = &self.state.export.locks;
        let is_early = wanted.is_link_or_special() && plan.has_steps();
        let early = is_early.then(|| locks.name_is_early(directory.key));
        let file = match self.act(|| wanted.make(directory, name, plan.made_with)) {
            Err(Status::Exists) => return self.find_made(directory, name, wanted),
            made => made?,
        };
        let completed = self.complete(directory, name, file, plan);
        drop(early);
        if let Ok(object) = &completed {
            let key = object.attributes.key;
            self.state.export.saw_in(key, directory, name);
        }
        completed
    }

    /// A file that has all that is wanted of it before its name.
    ///
    /// # Errors
    /// Nothing has changed. To make it by its name tells why, or works: where the file system has
    /// no nameless files, and for a name that is taken in a directory that the caller may not
    /// write in.
    fn make_with_name_last(
        &self,
        directory: &Node,
        name: &[u8],
        plan: Plan,
    ) -> Result<Object, Status> {
        const NAMELESS: OFlags = OFlags::TMPFILE.union(OFlags::WRONLY).union(OFlags::CLOEXEC);
        let (at, mode) = (&directory.path, Mode::from_raw_mode(plan.made_with));
        let make = || Ok(rustix::fs::openat2(at, c".", NAMELESS, mode, RESOLVE)?);
        let (node, made) = self.open_made(directory, name, Some(self.act(make)?))?;
        self.carry_out(&node, &plan.without_owner(made.user, made.group))?;
        let (files, number) = (self.state.export.descriptors(), DecInt::from_fd(&node.path));
        let follow = AtFlags::SYMLINK_FOLLOW;
        self.act(|| Ok(rustix::fs::linkat(files, number, at, name, follow)?))?;
        let attributes = node.attributes()?;
        Ok(Object {
            node,
            state: ObjectState::MadeAndChanged,
            attributes,
        })
    }

    /// Gives a new object what it could not be made with. Where that fails, removes it again.
    fn complete(
        &self,
        directory: &Node,
        name: &[u8],
        file: Option<OwnedFd>,
        plan: Plan,
    ) -> Result<Object, Status> {
        let opened = self.open_made(directory, name, file);
        let made = opened.as_ref().ok().map(|(_, attributes)| *attributes);
        let completed = opened.and_then(|(node, attributes)| {
            let plan = plan.without_owner(attributes.user, attributes.group);
            self.carry_out(&node, &plan)?;
            let (state, attributes) = match plan.has_steps() {
                true => (ObjectState::MadeAndChanged, node.attributes()?),
                false => (ObjectState::Made, attributes),
            };
            Ok(Object {
                node,
                state,
                attributes,
            })
        });
        if completed.is_err() {
            self.remove_made(directory, name, made.as_ref());
        }
        completed
    }

    /// A new object, open.
    fn open_made(
        &self,
        directory: &Node,
        name: &[u8],
        file: Option<OwnedFd>,
    ) -> Result<(Node, Attributes), Status> {
        // As the server: the caller has made it.
        let (path, writer) = match file {
            Some(file) => (rustix::io::fcntl_dupfd_cloexec(&file, 0)?, Some(file)),
            None => (open_name(&directory.path, name)?, None),
        };
        let (node, attributes) = self.node_of(path)?;
        if let Some(file) = writer {
            node.writer.get_or_init(|| Data::new(file, None));
        }
        Ok((node, attributes))
    }

    /// A file for this call alone.
    fn node_of(&self, path: OwnedFd) -> Result<(Node, Attributes), Status> {
        let export = &self.state.export;
        let (attributes, handle) = export.describe(&path)?;
        let mut node = Node::new(path, &attributes, handle);
        node.report_to(export.nodes.verifier());
        Ok((node, attributes))
    }

    /// What is there under the name of an object that was to be made, if it will do.
    fn find_made(
        &self,
        directory: &Node,
        name: &[u8],
        wanted: &Wanted<'_>,
    ) -> Result<Object, Status> {
        if !matches!(wanted, Wanted::Unchecked(_) | Wanted::Exclusive(_)) {
            return Err(Status::Exists);
        }
        let path = self.act(|| open_name(&directory.path, name))?;
        let (node, found) = self.node_of(path)?;
        let state = match wanted {
            Wanted::Unchecked(wanted) if found.is_file() => {
                let size = SetAttributes {
                    size: wanted.size,
                    ..SetAttributes::default()
                };
                let plan = self.set_attributes(&node, &found, &size)?;
                match plan.has_steps() {
                    true => ObjectState::Changed,
                    false => ObjectState::Found,
                }
            }
            Wanted::Exclusive(verifier)
                if found.is_file()
                    && found.size == 0
                    && (found.accessed, found.modified) == verifier_times(*verifier) =>
            {
                ObjectState::Changed
            }
            _ => return Err(Status::Exists),
        };
        self.state.export.saw_in(found.key, directory, name);
        let attributes = node.attributes()?;
        Ok(Object {
            node,
            state,
            attributes,
        })
    }

    /// Removes an object that this call made and that a part of it was refused for, unless the name
    /// has another by now. As the server, so that no rule of the directory keeps it.
    fn remove_made(&self, directory: &Node, name: &[u8], made: Option<&Attributes>) {
        let export = &self.state.export;
        let lost = export.before_loss(directory, name);
        let found = lost.as_ref().and_then(|file| Attributes::of(file).ok());
        let is_other = made
            .zip(found.as_ref())
            .is_some_and(|(made, found)| made.key != found.key);
        if is_other {
            return;
        }
        let removed = rustix::fs::unlinkat(&directory.path, name, AtFlags::empty());
        let removed = match removed {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&directory.path, name, AtFlags::REMOVEDIR),
            other => other,
        };
        match removed {
            Ok(()) => export.after_loss(lost),
            Err(errno) => log::warn!("what a client was refused stays in its directory: {errno}"),
        }
    }
}
