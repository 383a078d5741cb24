//! REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.12 to 3.3.15).

use flatpath_rpc::xdr::Reader;
use rustix::fs::AtFlags;
use rustix::path::DecInt;

use crate::attributes::{Attributes, Change, write_after};
use crate::names::{check_name, new_name, open_name};
use crate::request::{Outcome, Request, in_directory, read_entry, read_handle, write_status};
use crate::status::Status;

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
    let (result, change) = request.change_directory(directory, |directory| {
        let name = match name {
            b".." if flags.contains(AtFlags::REMOVEDIR) => return Err(Status::Exists),
            name => own_name(name)?,
        };
        let export = &request.state.export;
        let lost = export.before_loss(directory, name);
        request.act(|| Ok(rustix::fs::unlinkat(&directory.path, name, flags)?))?;
        export.after_loss(lost);
        Ok(())
    });
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
    let guards = export.lock_changes(from.key, to.key);
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
    // The new name first: after a crash a file with two names is better than one with none.
    request.sync(&to)?;
    if from.key == to.key {
        Ok(())
    } else {
        request.sync(&from)
    }
}

pub(super) fn link(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let file = read_handle(reader)?;
    let (directory, name) = read_entry(reader)?;
    let node = request.resolve_to_change(file);
    let (result, change) = match &node {
        Ok(node) => request.change_directory(directory, |directory| {
            let name = new_name(name)?;
            if node.kind == rustix::fs::FileType::Directory {
                return Err(Status::IsDirectory);
            }
            let export = &request.state.export;
            // Through the descriptor, so that it is this file whatever its names are now.
            request.act(|| {
                let (files, source) = (export.descriptors(), DecInt::from_fd(&node.path));
                let flags = AtFlags::SYMLINK_FOLLOW;
                Ok(rustix::fs::linkat(
                    files,
                    source,
                    &directory.path,
                    name,
                    flags,
                )?)
            })?;
            export.saw_in(node.key, directory, name);
            Ok(())
        }),
        Err(status) => (Err(*status), Change::default()),
    };
    let after = node.ok().and_then(|node| node.attributes().ok());
    request.answer(|writer, system| {
        write_status(writer, &result);
        write_after(writer, after.as_ref(), system);
        change.write(writer, system);
    })
}
