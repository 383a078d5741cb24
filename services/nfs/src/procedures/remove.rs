//! REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.12 to 3.3.15).

use flatpath_rpc::xdr::Reader;
use rustix::fs::{AtFlags, FileType};
use rustix::path::DecInt;

use crate::attributes::{Attributes, Change, write_after};
use crate::names::{check_name, new_name, open_name};
use crate::node::Node;
use crate::request::{Outcome, Request, in_directory, read_entry, read_handle, write_status};
use crate::status::Status;
use crate::syncing::Changed;

/// An entry that can be taken away: the names of the directory itself and of its parent cannot.
fn own_name(name: &[u8]) -> Result<&[u8], Status> {
    match check_name(name)? {
        b"." | b".." => Err(Status::Invalid),
        name => Ok(name),
    }
}

pub(super) fn remove(
    request: &mut Request<'_>,
    reader: &mut Reader<'_>,
    flags: AtFlags,
) -> Outcome {
    let (directory, name) = read_entry(reader)?;
    let directory = request.directory_to_change(directory);
    let act = |directory: &Node| {
        let name = match name {
            b".." if flags.contains(AtFlags::REMOVEDIR) => return Err(Status::Exists),
            name => own_name(name)?,
        };
        let export = &request.state.export;
        let lost = export.before_loss(directory, name);
        request.act(|| Ok(rustix::fs::unlinkat(&directory.path, name, flags)?))?;
        export.after_loss(lost);
        Ok(())
    };
    let (result, change) = match &directory {
        Ok(directory) => {
            let changed = Changed::Removed { directory };
            request.change(directory, changed, |_| act(directory))
        }
        Err(status) => (Err(*status), Change::default()),
    };
    request.answer_changes(result, &[change], |_, ()| {})
}

pub(super) fn rename(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let (from, to) = (read_entry(reader)?, read_entry(reader)?);
    let mut changes = [Change::default(); 2];
    let result = rename_between(request, from, to, &mut changes);
    request.answer_changes(result, &changes, |_, ()| {})
}

fn rename_between(
    request: &Request<'_>,
    (from, from_name): (&[u8], &[u8]),
    (to, to_name): (&[u8], &[u8]),
    changes: &mut [Change; 2],
) -> Result<(), Status> {
    request.may_change()?;
    let from = request.resolve_directory(from)?;
    let to = request.resolve_directory(to)?;
    let (from_name, to_name) = (own_name(from_name)?, own_name(to_name)?);
    let export = &request.state.export;
    let guards = export.locks.changes(from.key, to.key);
    changes[0].before = from.attributes().ok();
    changes[1].before = to.attributes().ok();
    let lost = export.before_loss(&to, to_name);
    let mut result = request.act(|| {
        Ok(rustix::fs::renameat(
            &from.path, from_name, &to.path, to_name,
        )?)
    });
    changes[0].after = from.attributes().ok();
    changes[1].after = to.attributes().ok();
    drop(guards);
    for change in &*changes {
        result = result.map_err(|status| in_directory(status, change.after.as_ref()));
    }
    result?;
    export.after_loss(lost);
    if let Ok(moved) = open_name(&to.path, to_name).and_then(Attributes::of) {
        export.saw_in(moved.key, &to, to_name);
    }
    request.make_last(Changed::Moved {
        from: &from,
        to: &to,
    })
}

pub(super) fn link(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let file = read_handle(reader)?;
    let (directory, name) = read_entry(reader)?;
    let node = request.resolve_to_change(file);
    let directory = request.directory_to_change(directory);
    let (result, change) = match (&node, &directory) {
        (Ok(file), Ok(directory)) => {
            let changed = Changed::Linked { file, directory };
            request.change(directory, changed, |_| {
                link_as(request, file, directory, name)
            })
        }
        (Err(status), _) | (_, Err(status)) => (Err(*status), Change::default()),
    };
    let after = node.ok().and_then(|node| node.attributes().ok());
    request.answer(|writer, system| {
        write_status(writer, &result);
        write_after(writer, after.as_ref(), system);
        change.write(writer, system);
    })
}

fn link_as(
    request: &Request<'_>,
    file: &Node,
    directory: &Node,
    name: &[u8],
) -> Result<(), Status> {
    let name = new_name(name)?;
    if file.kind == FileType::Directory {
        return Err(Status::IsDirectory);
    }
    let export = &request.state.export;
    // Through the descriptor, so that it is this file whatever its names are now.
    request.act(|| {
        let (files, source) = (export.descriptors(), DecInt::from_fd(&file.path));
        let (to, flags) = (&directory.path, AtFlags::SYMLINK_FOLLOW);
        Ok(rustix::fs::linkat(files, source, to, name, flags)?)
    })?;
    export.saw_in(file.key, directory, name);
    Ok(())
}
