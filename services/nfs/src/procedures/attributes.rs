//! GETATTR, SETATTR, ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use flatpath_rpc::xdr::Reader;
use rustix::fd::AsFd;
use rustix::fs::{
    Access as Allowed, AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};

use crate::attributes::{Change, SetAttributes, SetTime, Time};
use crate::node::Node;
use crate::request::{Outcome, Request, read_handle};
use crate::state::Access;
use crate::status::Status;

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
    let system = request.system();
    Ok(request.answer(|writer| match result {
        Ok(attributes) => {
            writer.u32(0);
            attributes.write(writer, system);
        }
        Err(status) => writer.u32(status as u32),
    }))
}

pub(super) fn set(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let wanted = SetAttributes::read(reader)?;
    let guard = if reader.boolean()? {
        Some(Time {
            seconds: reader.u32()?,
            nanoseconds: reader.u32()?,
        })
    } else {
        None
    };
    let (result, change) = match request.may_change().and_then(|()| request.resolve(handle)) {
        Ok(node) => set_guarded(request, &node, &wanted, guard),
        Err(status) => (Err(status), Change::default()),
    };
    Ok(request.answer_changes(result, &[change]))
}

fn set_guarded(
    request: &Request<'_>,
    node: &Node,
    wanted: &SetAttributes,
    guard: Option<Time>,
) -> (Result<(), Status>, Change) {
    let lock = request.state.export.lock_change(node.key);
    let before = node.attributes().ok();
    let result = match (guard, before) {
        (Some(guard), Some(before)) if guard != before.changed => Err(Status::NotSynchronised),
        _ => request.set_attributes(node, wanted),
    };
    let after = node.attributes().ok();
    drop(lock);
    let result = result.and_then(|()| request.sync(node));
    (result, Change { before, after })
}

fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        SetTime::Now => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        SetTime::To(time) => Timespec {
            tv_sec: time.seconds.into(),
            tv_nsec: time.nanoseconds.into(),
        },
    }
}

impl Request<'_> {
    /// Applies `sattr3` as the caller. The size first: it may be refused, and it changes the times.
    pub(super) fn set_attributes(&self, node: &Node, wanted: &SetAttributes) -> Result<(), Status> {
        if let Some(size) = wanted.size {
            self.check_data(node, &node.attributes()?, Allowed::WRITE_OK)?;
            let file = self.writer(node)?;
            self.act(|| Ok(rustix::fs::ftruncate(file, size)?))?;
        }
        self.act(|| {
            if wanted.user.is_some() || wanted.group.is_some() {
                let user = wanted
                    .user
                    .filter(|user| *user != u32::MAX)
                    .map(Uid::from_raw);
                let group = wanted
                    .group
                    .filter(|group| *group != u32::MAX)
                    .map(Gid::from_raw);
                rustix::fs::chownat(&node.path, c"", user, group, AtFlags::EMPTY_PATH)?;
            }
            if let Some(mode) = wanted.mode {
                let mut number = [0; 12];
                let export = &self.state.export;
                let name = export.magic(node.path.as_fd(), &mut number);
                let mode = Mode::from_raw_mode(mode);
                rustix::fs::chmodat(export.descriptors(), name, mode, AtFlags::empty())?;
            }
            if wanted.accessed != SetTime::Keep || wanted.modified != SetTime::Keep {
                let times = Timestamps {
                    last_access: timespec(wanted.accessed),
                    last_modification: timespec(wanted.modified),
                };
                rustix::fs::utimensat(&node.path, c"", &times, AtFlags::EMPTY_PATH)?;
            }
            Ok(())
        })
    }

    /// Which of the asked rights the caller has.
    fn rights(&self, node: &Node, asked: u32) -> Result<u32, Status> {
        let directory = node.kind == rustix::fs::FileType::Directory;
        let on_write = if directory {
            MODIFY | EXTEND | DELETE
        } else {
            MODIFY | EXTEND
        };
        let on_execute = if directory { LOOKUP } else { EXECUTE };
        let writable = self.state.access == Access::ReadWrite;
        let mut given = 0;
        for (access, rights) in [
            (Allowed::READ_OK, READ),
            (Allowed::WRITE_OK, if writable { on_write } else { 0 }),
            (Allowed::EXEC_OK, on_execute),
        ] {
            if asked & rights != 0 && self.is_allowed(node, access)? {
                given |= asked & rights;
            }
        }
        Ok(given)
    }
}

pub(super) fn access(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let asked = reader.u32()?;
    Ok(request.answer_about(
        handle,
        |request, node| request.rights(node, asked),
        |writer, rights| {
            writer.u32(rights);
        },
    ))
}
