//! The procedures of NFSv3, one file per group.
//!
//! | file           | procedures                                     |
//! |----------------|------------------------------------------------|
//! | attributes.rs  | GETATTR, SETATTR, ACCESS                       |
//! | lookup.rs      | LOOKUP, READLINK                               |
//! | data.rs        | READ, WRITE, COMMIT                            |
//! | create.rs      | CREATE, MKDIR, SYMLINK, MKNOD                  |
//! | remove.rs      | REMOVE, RMDIR, RENAME, LINK                    |
//! | directory.rs   | READDIR, READDIRPLUS                           |
//! | information.rs | FSSTAT, FSINFO, PATHCONF                       |
//!
//! Every procedure reads all its arguments first; then whatever happens is a status of NFSv3.

mod attributes;
mod lookup;
mod data;
mod create;
mod remove;
mod directory;
mod information;

use flatpath_rpc::limits::REPLY_BYTES_MIN;
use flatpath_rpc::xdr::{Malformed, Reader};
use flatpath_rpc::{Arguments, CallOutcome};
use rustix::fs::AtFlags;

use crate::limits::{DATA_BYTES_MAX, DIRECTORY_BYTES_MAX, NAME_BYTES_READ_MAX};
use crate::request::{Outcome, Request, read_handle};

/// True for procedures that must not be executed twice.
pub(crate) fn changes(procedure: u32) -> bool {
    // SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK
    matches!(procedure, 2 | 7..=15)
}

/// True for procedures whose answer is usually cached: they change nothing, and what they ask of
/// a file that is in use is in the kernel's memory.
pub(crate) fn is_prompt(procedure: u32) -> bool {
    // GETATTR, LOOKUP, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF
    reads(procedure) || matches!(procedure, 1 | 3..=5 | 18..=20)
}

/// True for READ.
pub(crate) fn reads(procedure: u32) -> bool {
    procedure == 6
}

/// The second handle of a call that has two, RENAME and LINK; `reader` is behind the first one.
pub(crate) fn second_handle<'a>(procedure: u32, mut reader: Reader<'a>) -> Option<&'a [u8]> {
    match procedure {
        14 => drop(reader.opaque(NAME_BYTES_READ_MAX).ok()?),
        15 => {}
        _ => return None,
    }
    read_handle(&mut reader).ok()
}

/// How long the reply to a call may become, in bytes.
pub(crate) fn reply_bytes_max(procedure: u32, mut arguments: Arguments<'_>) -> usize {
    let data_bytes = match procedure {
        6 => read_count(&mut arguments.reader).unwrap_or_default(),
        16 | 17 => DIRECTORY_BYTES_MAX,
        _ => 0,
    };
    REPLY_BYTES_MIN + data_bytes
}

/// The count of a READ.
fn read_count(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    read_handle(reader)?;
    reader.u64()?;
    Ok((reader.u32()? as usize).min(DATA_BYTES_MAX))
}

pub(crate) fn serve(
    procedure: u32,
    request: &mut Request<'_>,
    arguments: Arguments<'_>,
) -> Outcome {
    let mut arguments = arguments;
    let reader = &mut arguments.reader;
    match procedure {
        1 => attributes::get(request, reader),
        2 => attributes::set(request, reader),
        3 => lookup::lookup(request, reader),
        4 => attributes::access(request, reader),
        5 => lookup::read_link(request, reader),
        6 => data::read(request, reader),
        7 => data::write(request, arguments),
        8 => create::create(request, reader),
        9 => create::make_directory(request, reader),
        10 => create::make_link(request, reader),
        11 => create::make_node(request, reader),
        12 => remove::remove(request, reader, AtFlags::empty()),
        13 => remove::remove(request, reader, AtFlags::REMOVEDIR),
        14 => remove::rename(request, reader),
        15 => remove::link(request, reader),
        16 => directory::read(request, reader, false),
        17 => directory::read(request, reader, true),
        18 => information::system(request, reader),
        19 => information::fixed(request, reader),
        20 => information::path(request, reader),
        21 => data::commit(request, reader),
        _ => Ok(CallOutcome::SystemError),
    }
}
