//! LOOKUP and READLINK (RFC 1813 sections 3.3.3, 3.3.5).

use std::mem::MaybeUninit;

use flatpath_rpc::xdr::Reader;
use rustix::fs::FileType;

use crate::attributes::{POST_OP_BYTES, write_after};
use crate::limits::PATH_BYTES_MAX;
use crate::names::{check_name, open_cached_name, open_name};
use crate::node::Node;
use crate::request::{Failure, Made, Outcome, Request, read_entry, read_handle};
use crate::status::Status;

pub(super) fn lookup(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let (handle, name) = read_entry(reader)?;
    let directory = request.resolve_directory(handle)?;
    let found = request.find(&directory, name);
    let after = request.after(&directory);
    let (attributes, handle) = found.map_err(|status| Failure::in_directory(status, after))?;
    request.answer(|writer, system| {
        writer.u32(0);
        writer.opaque(handle.as_slice());
        write_after(writer, Some(&attributes), system);
        write_after(writer, after.as_ref(), system);
    })
}

impl Request<'_> {
    /// The file that `name` is in a directory, if the caller may look.
    pub(super) fn find(&self, directory: &Node, name: &[u8]) -> Result<Made, Status> {
        let export = &self.state.export;
        let file = match check_name(name)? {
            b"." => {
                if !directory.is_asked() {
                    self.may_wait()?;
                }
                self.act(|| {
                    Ok(rustix::fs::accessat(
                        &directory.path,
                        c".",
                        rustix::fs::Access::EXISTS,
                        rustix::fs::AtFlags::EACCESS,
                    )?)
                })?;
                directory.set_asked();
                return Ok((directory.attributes()?, directory.handle));
            }
            // The server goes up: it must see where that leads before the caller does.
            b".." => {
                self.may_wait()?;
                export.parent(directory)?
            }
            name if self.is_prompt() => {
                let opened = self.act(|| open_cached_name(&directory.path, name))?;
                match opened {
                    Some(file) => file,
                    None => return Err(self.may_wait().err().unwrap_or(Status::Later)),
                }
            }
            name => self.act(|| open_name(&directory.path, name))?,
        };
        let (attributes, handle) = export.describe(&file)?;
        if name != b".." {
            export.saw_in(attributes.key, directory, name);
        }
        Ok((attributes, handle))
    }
}

pub(super) fn read_link(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let node = request.resolve(handle)?;
    let mut room = [MaybeUninit::uninit(); PATH_BYTES_MAX];
    let target = match (node.target(), node.kind) {
        (Some(target), _) => Ok(target),
        (None, FileType::Symlink) => read_target(request, &node, &mut room),
        (None, _) => Err(Status::Invalid),
    };
    let after = request.after(&node);
    let target = target.map_err(|status| Failure::Status(status, after))?;
    let bytes_max = 4 + POST_OP_BYTES + 4 + target.len() + 3;
    let answered = request.answer_within(bytes_max, |writer, system| {
        writer.u32(0);
        write_after(writer, after.as_ref(), system);
        writer.opaque(target);
    });
    answered.map_err(|_| Failure::Status(Status::Later, after))
}

/// Asks the kernel for the target of a link. It may read it from the disk, and does not say so.
fn read_target<'a>(
    request: &Request<'_>,
    node: &Node,
    room: &'a mut [MaybeUninit<u8>; PATH_BYTES_MAX],
) -> Result<&'a [u8], Status> {
    if !request.state.export.files.is_in_memory() {
        request.may_wait()?;
    }
    let (target, _) = rustix::fs::readlinkat_raw(&node.path, c"", &mut room[..])?;
    node.remember_target(target);
    Ok(target)
}
