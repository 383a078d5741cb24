//! LOOKUP and READLINK (RFC 1813 sections 3.3.3, 3.3.5).

use std::mem::MaybeUninit;

use flatpath_rpc::CallOutcome;
use flatpath_rpc::xdr::Reader;
use rustix::fs::FileType;

use crate::attributes::{POST_OP_BYTES, write_after};
use crate::limits::PATH_BYTES_MAX;
use crate::names::{check_name, open_name};
use crate::node::Node;
use crate::request::{Made, Outcome, Request, in_directory, read_handle, read_name};
use crate::status::Status;

pub(super) fn lookup(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let name = read_name(reader)?;
    let directory = match request.resolve_directory(handle) {
        Ok(directory) => directory,
        Err(status) => return Ok(request.fail(status, None)),
    };
    let found = request.find(&directory, name);
    let after = directory.attributes().ok();
    let system = request.system();
    Ok(match found {
        Ok((attributes, handle)) => request.answer(|writer| {
            writer.u32(0);
            writer.opaque(handle.as_slice());
            write_after(writer, Some(&attributes), system);
            write_after(writer, after.as_ref(), system);
        }),
        Err(status) => request.fail(in_directory(status, after.as_ref()), after.as_ref()),
    })
}

impl Request<'_> {
    /// What `name` is in a directory, if the caller may look.
    pub(super) fn find(&self, directory: &Node, name: &[u8]) -> Result<Made, Status> {
        let export = &self.state.export;
        let file = match check_name(name)? {
            b"." => {
                self.act(|| {
                    Ok(rustix::fs::accessat(
                        &directory.path,
                        c".",
                        rustix::fs::Access::EXISTS,
                        rustix::fs::AtFlags::EACCESS,
                    )?)
                })?;
                return Ok((directory.attributes()?, directory.handle));
            }
            // The server goes up: it must see where that leads before the caller does.
            b".." => export.parent(directory)?,
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
    let node = match request.resolve(handle) {
        Ok(node) => node,
        Err(status) => return Ok(request.fail(status, None)),
    };
    let mut room = [MaybeUninit::uninit(); PATH_BYTES_MAX];
    let target = if node.kind == FileType::Symlink {
        let read = rustix::fs::readlinkat_raw(&node.path, c"", &mut room[..]);
        read.map(|(target, _)| &*target).map_err(Status::from)
    } else {
        Err(Status::Invalid)
    };
    let after = node.attributes().ok();
    let system = request.system();
    let target = match target {
        Ok(target) => target,
        Err(status) => return Ok(request.fail(status, after.as_ref())),
    };
    let bytes_max = 4 + POST_OP_BYTES + 4 + target.len() + 3;
    let written = request.reply.write(bytes_max, request.pool, |writer| {
        writer.u32(0);
        write_after(writer, after.as_ref(), system);
        writer.opaque(target);
    });
    Ok(match written {
        Ok(()) => CallOutcome::Results,
        Err(_) => request.fail(Status::Later, after.as_ref()),
    })
}
