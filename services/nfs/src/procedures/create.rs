//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).
//!
//! The kernel makes the file as the caller, so it belongs to the caller and the directory's rules
//! hold. An exclusive create keeps the client's verifier in the times of the new file until the
//! client sets them, so that a repeated one is known even after a restart.

use flatpath_rpc::xdr::Reader;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Timestamps, makedev};

use crate::attributes::{Attributes, SetAttributes, SetTime, Time, write_after};
use crate::limits::PATH_BYTES_MAX;
use crate::names::{RESOLVE, new_name, open_name};
use crate::node::Node;
use crate::request::{Failure, Made, Outcome, Request, read_entry, write_status};
use crate::status::Status;

/// Permission bits of what a client makes without naming any.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

enum How {
    Unchecked(SetAttributes),
    Guarded(SetAttributes),
    Exclusive([u8; 8]),
}

fn mode_of(wanted: &SetAttributes, otherwise: u32) -> Mode {
    Mode::from_raw_mode(wanted.mode.unwrap_or(otherwise))
}

pub(super) fn create(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let how = match reader.u32()? {
        0 => How::Unchecked(SetAttributes::read(reader)?),
        1 => How::Guarded(SetAttributes::read(reader)?),
        2 => How::Exclusive(reader.fixed::<8>()?),
        _ => return Err(Failure::Garbage),
    };
    make(request, entry, |request, directory, name| match &how {
        How::Exclusive(verifier) => create_exclusive(request, directory, name, *verifier),
        How::Unchecked(wanted) => create_with(request, directory, name, wanted, false),
        How::Guarded(wanted) => create_with(request, directory, name, wanted, true),
    })
}

/// Makes an entry of a directory: status, handle, attributes and the change of the directory.
fn make(
    request: &mut Request<'_>,
    (directory, name): (&[u8], &[u8]),
    act: impl FnOnce(&Request<'_>, &Node, &[u8]) -> Result<Made, Status>,
) -> Outcome {
    let (result, change) = request.change_directory(directory, |directory| {
        act(request, directory, new_name(name)?)
    });
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

/// Makes a file that is not there; the kernel says whether it was.
fn create_new(
    request: &Request<'_>,
    directory: &Node,
    name: &[u8],
    mode: Mode,
) -> Result<OwnedFd, Status> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    request.act(|| {
        Ok(rustix::fs::openat2(
            &directory.path,
            name,
            flags,
            mode,
            RESOLVE,
        )?)
    })
}

fn create_with(
    request: &Request<'_>,
    directory: &Node,
    name: &[u8],
    wanted: &SetAttributes,
    guarded: bool,
) -> Result<Made, Status> {
    match create_new(request, directory, name, mode_of(wanted, FILE_MODE)) {
        Ok(file) => {
            // The mode is set already; a size of zero is what a new file has.
            let size = wanted.size.filter(|size| *size > 0);
            let rest = SetAttributes {
                mode: None,
                size,
                ..*wanted
            };
            request.finish(directory, name, file, &rest)
        }
        Err(Status::Exists) if !guarded => {
            let file = request.act(|| open_name(&directory.path, name))?;
            if Attributes::of(&file)?.kind != FileType::RegularFile {
                return Err(Status::Exists);
            }
            // Of a file that was there only the size is set (RFC 1813 section 3.3.8).
            let rest = SetAttributes {
                size: wanted.size,
                ..SetAttributes::default()
            };
            request.finish(directory, name, file, &rest)
        }
        Err(status) => Err(status),
    }
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

fn create_exclusive(
    request: &Request<'_>,
    directory: &Node,
    name: &[u8],
    verifier: [u8; 8],
) -> Result<Made, Status> {
    let (accessed, modified) = verifier_times(verifier);
    match create_new(request, directory, name, Mode::from_raw_mode(FILE_MODE)) {
        Ok(file) => {
            let times = Timestamps {
                last_access: SetTime::To(accessed).timespec(),
                last_modification: SetTime::To(modified).timespec(),
            };
            rustix::fs::futimens(&file, &times)?;
            // The verifier must outlive a crash, or the repeated call would fail.
            let key = Attributes::of(&file)?.key;
            let verifier = request.state.export.nodes.verifier();
            verifier.run(key, || rustix::fs::fsync(&file))?;
            request.finish(directory, name, file, &SetAttributes::default())
        }
        Err(Status::Exists) => {
            let file = request.act(|| open_name(&directory.path, name))?;
            let found = Attributes::of(&file)?;
            let same = found.is_file()
                && found.size == 0
                && (found.accessed, found.modified) == (accessed, modified);
            if !same {
                return Err(Status::Exists);
            }
            request.finish(directory, name, file, &SetAttributes::default())
        }
        Err(status) => Err(status),
    }
}

pub(super) fn make_directory(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let wanted = SetAttributes::read(reader)?;
    make(request, entry, |request, directory, name| {
        let mode = mode_of(&wanted, DIRECTORY_MODE);
        request.act(|| Ok(rustix::fs::mkdirat(&directory.path, name, mode)?))?;
        // The group bit comes from above and mkdir does not take the sticky bit: set both again.
        let sticky = wanted.mode.filter(|mode| mode & 0o7000 != 0);
        let rest = SetAttributes {
            mode: sticky,
            size: None,
            ..wanted
        };
        request.finish_name(directory, name, &rest)
    })
}

pub(super) fn make_link(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let wanted = SetAttributes::read(reader)?;
    let target = reader.opaque(PATH_BYTES_MAX + 1)?;
    make(request, entry, |request, directory, name| {
        if target.len() > PATH_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Status::Invalid);
        }
        request.act(|| Ok(rustix::fs::symlinkat(target, &directory.path, name)?))?;
        // A link has no mode and no size of its own to set.
        let rest = SetAttributes {
            mode: None,
            size: None,
            ..wanted
        };
        request.finish_name(directory, name, &rest)
    })
}

pub(super) fn make_node(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let entry = read_entry(reader)?;
    let number = reader.u32()?;
    let kind = match number {
        3 => Some(FileType::BlockDevice),
        4 => Some(FileType::CharacterDevice),
        6 => Some(FileType::Socket),
        7 => Some(FileType::Fifo),
        // Others are made by other procedures, or by none: their arguments end here.
        _ => None,
    };
    let wanted = match kind {
        Some(_) => SetAttributes::read(reader)?,
        None => SetAttributes::default(),
    };
    let device = match number {
        3 | 4 => makedev(reader.u32()?, reader.u32()?),
        _ => 0,
    };
    make(request, entry, |request, directory, name| {
        let kind = kind.ok_or(Status::BadType)?;
        let mode = mode_of(&wanted, FILE_MODE);
        request.act(|| {
            Ok(rustix::fs::mknodat(
                &directory.path,
                name,
                kind,
                mode,
                device,
            )?)
        })?;
        let rest = SetAttributes {
            mode: None,
            size: None,
            ..wanted
        };
        request.finish_name(directory, name, &rest)
    })
}

impl Request<'_> {
    /// The file that was just made under `name`, opened; then as [`Request::finish`].
    fn finish_name(
        &self,
        directory: &Node,
        name: &[u8],
        rest: &SetAttributes,
    ) -> Result<Made, Status> {
        let file = open_name(&directory.path, name)?;
        self.finish(directory, name, file, rest)
    }

    /// Sets what could not be set while making a file, and describes it. A size is on the disk
    /// before the reply, as one that SETATTR sets.
    fn finish(
        &self,
        directory: &Node,
        name: &[u8],
        file: OwnedFd,
        rest: &SetAttributes,
    ) -> Result<Made, Status> {
        let export = &self.state.export;
        let (attributes, handle) = export.describe(&file)?;
        export.saw_in(attributes.key, directory, name);
        // Clients name the owner they are anyway; only root may name another.
        let user = rest
            .user
            .filter(|user| *user != attributes.user && self.who.user == 0);
        let group = rest.group.filter(|group| *group != attributes.group);
        let rest = SetAttributes {
            user,
            group,
            ..*rest
        };
        if rest == SetAttributes::default() {
            return Ok((attributes, handle));
        }
        let mut node = Node::new(file, &attributes, handle);
        node.report_to(export.nodes.verifier());
        self.set_attributes(&node, &rest)?;
        if rest.size.is_some() {
            self.sync(&node)?;
        }
        let attributes = node.attributes()?;
        Ok((attributes, handle))
    }
}
