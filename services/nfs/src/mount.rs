//! MOUNT version 3 (RFC 1813 appendix I): from a path to the first handle.
//!
//! The export has the directory's own path on the server; `/` works too, and so do directories
//! below either. The clients that have mounted are not listed: the protocol cannot know them.

use std::os::unix::ffi::OsStrExt;

use flatpath_rpc::{Arguments, CallOutcome};
use rustix::fd::OwnedFd;

use crate::attributes::Attributes;
use crate::limits::MOUNT_PATH_BYTES_MAX;
use crate::names::open_name;
use crate::request::{Outcome, Request};
use crate::status::Status;

const AUTH_SYS: u32 = 1;

pub(crate) fn serve(
    procedure: u32,
    request: &mut Request<'_>,
    mut arguments: Arguments<'_>,
) -> Outcome {
    let own = request.state.directory.as_os_str().as_bytes();
    match procedure {
        1 => {
            let path = arguments.reader.opaque(MOUNT_PATH_BYTES_MAX)?;
            let result = open(request, path).and_then(|directory| {
                let (attributes, handle) = request.state.export.describe(&directory)?;
                let way_up = attributes.is_directory().then_some(handle);
                way_up.ok_or(Status::NotDirectory)
            });
            request.answer(|writer, _| match result {
                Ok(handle) => {
                    writer.u32(0);
                    writer.opaque(handle.as_slice());
                    writer.u32(1);
                    writer.u32(AUTH_SYS);
                }
                Err(status) => writer.u32(mount_status(status)),
            })
        }
        // UMNT, UMNTALL
        3 => {
            arguments.reader.opaque(MOUNT_PATH_BYTES_MAX)?;
            Ok(CallOutcome::Results)
        }
        4 => Ok(CallOutcome::Results),
        // EXPORT: one, for every client that the server admits, under its own path.
        5 => request.answer(|writer, _| {
            writer.boolean(true);
            writer.opaque(own);
            writer.boolean(false);
            writer.boolean(false);
        }),
        // DUMP: none
        _ => request.answer(|writer, _| writer.boolean(false)),
    }
}

/// `mountstat3` has fewer words.
fn mount_status(status: Status) -> u32 {
    match status {
        Status::NotOwner
        | Status::NoEntry
        | Status::Io
        | Status::Access
        | Status::NotDirectory
        | Status::Invalid
        | Status::NameTooLong
        | Status::NotSupported => status as u32,
        _ => Status::ServerFault as u32,
    }
}

/// Opens a directory of the export as the caller, which must be allowed to pass the ones above it.
fn open(request: &Request<'_>, path: &[u8]) -> Result<OwnedFd, Status> {
    request.may_wait()?;
    let export = &request.state.export;
    let own = request.state.directory.as_os_str().as_bytes();
    let inside = match path.strip_prefix(own) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' || own == b"/" => rest,
        _ => path,
    };
    let mut at = export.parent(&*export.root()?)?;
    for name in inside.split(|byte| *byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        if name == b".." || name.contains(&0) {
            return Err(Status::Access);
        }
        let above = Attributes::of(&at)?.key;
        at = request.act(|| open_name(&at, name))?;
        export.saw(Attributes::of(&at)?.key, above, name);
    }
    Ok(at)
}
