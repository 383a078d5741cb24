//! GETATTR, SETATTR, ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use flatpath_rpc::xdr::Reader;
use rustix::fs::Access as Allowed;

use crate::attributes::{Change, SetAttributes, Time, optional};
use crate::node::Node;
use crate::request::{Outcome, Request, read_handle, write_status};
use crate::rights::Access;
use crate::status::Status;
use crate::syncing::Changed;

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

pub(super) fn get(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let result = request.resolve(handle).and_then(|node| {
        let found = node.attributes()?;
        let root = node.key == request.state.export.root_key;
        if root && found.links == 0 && request.state.export.root_is_removed() {
            return Err(Status::Stale);
        }
        Ok(found)
    });
    request.answer(|writer, system| {
        write_status(writer, &result);
        if let Ok(attributes) = result {
            attributes.write(writer, system);
        }
    })
}

pub(super) fn set(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let wanted = SetAttributes::read(reader)?;
    let guard = optional(reader, |reader| {
        let (seconds, nanoseconds) = (reader.u32()?, reader.u32()?);
        Ok(Time {
            seconds,
            nanoseconds,
        })
    })?;
    let (result, change) = match request.resolve_to_change(handle) {
        Ok(node) => {
            let (set, change) = request.change_unsynced(&node, |before| {
                let found = before.map_or_else(|| node.attributes(), Ok)?;
                match guard {
                    Some(guard) if guard != found.changed => Err(Status::NotSynchronised),
                    _ => request.set_attributes(&node, &found, &wanted),
                }
            });
            let lasts = set.and_then(|plan| match plan.has_steps() {
                true => request.make_last(Changed::Attributes(&node)),
                false => Ok(()),
            });
            (lasts, change)
        }
        Err(status) => (Err(status), Change::default()),
    };
    request.answer_changes(result, &[change], |_, ()| {})
}

impl Request<'_> {
    /// Which of the asked rights the caller has.
    fn rights(&self, node: &Node, asked: u32) -> Result<u32, Status> {
        let directory = node.kind == rustix::fs::FileType::Directory;
        let on_write = if directory {
            MODIFY | EXTEND | DELETE
        } else {
            MODIFY | EXTEND
        };
        let on_execute = if directory { LOOKUP } else { EXECUTE };
        let writable = self.rights.access == Access::ReadWrite;
        let by_access = [
            (Allowed::READ_OK, READ),
            (Allowed::WRITE_OK, if writable { on_write } else { 0 }),
            (Allowed::EXEC_OK, on_execute),
        ];
        let of_interest = by_access
            .iter()
            .filter(|(_, rights)| asked & rights != 0)
            .fold(Allowed::empty(), |all, (access, _)| all | *access);
        let granted = self.granted(node, of_interest)?;
        let given = by_access
            .iter()
            .filter(|(access, _)| granted.contains(*access))
            .fold(0, |all, (_, rights)| all | rights);
        Ok(given & asked)
    }
}

pub(super) fn access(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let asked = reader.u32()?;
    request.answer_about(
        handle,
        |request, node| request.rights(node, asked),
        |writer, rights| {
            writer.u32(rights);
        },
    )
}
