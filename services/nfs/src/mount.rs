//! MOUNT version 3 (RFC 1813 appendix I): from a path to the first handle.
//!
//! An export has the directory's own path on the server, and directories below it can be mounted,
//! too. The clients that have mounted are not listed: the protocol cannot know them. EXPORT lists
//! all exports to everybody, as mountd does.

use flatpath_rpc::{Arguments, CallOutcome};
use rustix::fd::OwnedFd;

use crate::attributes::Attributes;
use crate::exports::Table;
use crate::limits::MOUNT_PATH_BYTES_MAX;
use crate::names::{components, open_name};
use crate::programs::{EXPORT, MNT};
use crate::request::{Outcome, Request};
use crate::status::Status;

const AUTH_SYS: u32 = 1;

/// `skipped` components of a path name the export, and not what lies below it.
pub(crate) fn serve(
    procedure: u32,
    request: &mut Request<'_>,
    mut arguments: Arguments<'_>,
    (table, skipped): (&Table, usize),
) -> Outcome {
    match procedure {
        MNT => {
            let path = arguments.reader.opaque(MOUNT_PATH_BYTES_MAX)?;
            let result = open(request, path, skipped).and_then(|directory| {
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
        EXPORT => {
            let list = table.list();
            request.answer_within(list.len(), |writer, _| writer.raw(list))
        }
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
        // The directory of the export was removed.
        Status::Stale => Status::NoEntry as u32,
        _ => Status::ServerFault as u32,
    }
}

/// Opens a directory of the export as the caller, which must be allowed to pass the ones above it.
fn open(request: &Request<'_>, path: &[u8], skipped: usize) -> Result<OwnedFd, Status> {
    request.may_wait()?;
    let export = &request.state.export;
    let mut at = export.parent(&*export.root()?)?;
    for name in components(path).skip(skipped) {
        if name == b".." || name.contains(&0) {
            return Err(Status::Access);
        }
        let above = Attributes::of(&at)?.key;
        at = request.act(|| open_name(&at, name))?;
        export.saw(Attributes::of(&at)?.key, above, name);
    }
    Ok(at)
}
