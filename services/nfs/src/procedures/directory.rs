//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16, 3.3.17).
//!
//! A cookie is the file system's own position after an entry, so it stays right when entries come
//! and go, and after a restart. The verifier belongs to the directory and never changes: with a
//! verifier that changed with the directory, a client could not list on after
//! it has removed what it listed.
//!
//! Entries are collected first, because they are looked up as the caller while the reply's buffer
//! is borrowed; one that does not fit is listed again from the cookie before it.

use flatpath_rpc::xdr::{Reader, Writer};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, RawDir, RawDirEntry, SeekFrom};

use crate::attributes::{Attributes, POST_OP_BYTES, write_after};
use crate::limits::{DIRECTORY_BYTES_MAX, ENTRIES_BYTES};
use crate::node::Node;
use crate::request::{Failure, Outcome, Request, read_handle};
use crate::status::Status;

/// Results around the entries: attributes, verifier, end of list, end of directory.
const AROUND_BYTES: usize = POST_OP_BYTES + 8 + 4 + 4;

struct Asked {
    cookie: u64,
    verifier: u64,
    /// Names, numbers and cookies together, in bytes.
    names_max: usize,
    /// The results together, in bytes.
    results_max: usize,
    /// Attributes and handles too.
    plus: bool,
}

/// READDIRPLUS with `plus`, else READDIR.
pub(super) fn read(request: &mut Request<'_>, reader: &mut Reader<'_>, plus: bool) -> Outcome {
    let handle = read_handle(reader)?;
    let (cookie, verifier) = (reader.u64()?, reader.u64()?);
    let names_max = if plus {
        reader.u32()? as usize
    } else {
        usize::MAX
    };
    let count = reader.u32()? as usize;
    let asked = Asked {
        cookie,
        verifier,
        names_max,
        results_max: count.min(DIRECTORY_BYTES_MAX),
        plus,
    };
    let directory = request.resolve_directory(handle)?;
    let opened = open_at(request, &directory, &asked);
    let after = directory.attributes().ok();
    let lister = Lister {
        request,
        directory: &directory,
        asked: &asked,
    };
    let entries = opened
        .and_then(|list| lister.list(&list))
        .map_err(|status| Failure::in_directory(status, after))?;
    let verifier = request.state.export.cookie_verifier(directory.key);
    let answered = request.answer_within(4 + asked.results_max, |writer, system| {
        writer.u32(0);
        write_after(writer, after.as_ref(), system);
        writer.u64(verifier);
        writer.raw(&entries.bytes);
        writer.boolean(false);
        writer.boolean(entries.ended);
    });
    answered.map_err(|_| Failure::Status(Status::Later, after))
}

/// Opens a directory as the caller and goes to where the client stopped.
fn open_at(request: &Request<'_>, directory: &Node, asked: &Asked) -> Result<OwnedFd, Status> {
    // Through the descriptor: listing needs no right to pass.
    let list = request.act(|| request.reopen(directory, OFlags::RDONLY | OFlags::DIRECTORY))?;
    if asked.cookie != 0 {
        if asked.verifier != request.state.export.cookie_verifier(directory.key)
            || i64::try_from(asked.cookie).is_err()
        {
            return Err(Status::BadCookie);
        }
        rustix::fs::seek(&list, SeekFrom::Start(asked.cookie)).map_err(|_| Status::BadCookie)?;
    }
    Ok(list)
}

/// Entries as they go into the reply.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    names_bytes: usize,
    ended: bool,
}

struct Lister<'a, 'b> {
    request: &'a Request<'b>,
    directory: &'a Node,
    asked: &'a Asked,
}

impl Lister<'_, '_> {
    fn list(&self, list: &OwnedFd) -> Result<Entries, Status> {
        let room = self
            .asked
            .results_max
            .checked_sub(AROUND_BYTES)
            .ok_or(Status::TooSmall)?;
        let mut entries = Entries {
            bytes: vec![0; room],
            ..Entries::default()
        };
        let mut buffer = Vec::with_capacity(ENTRIES_BYTES);
        let mut kernel = RawDir::new(list, buffer.spare_capacity_mut());
        let mut written = 0;
        entries.ended = loop {
            let Some(entry) = kernel.next() else {
                break true;
            };
            let entry = entry?;
            let mut writer = Writer::new(&mut entries.bytes[written..]);
            let names_bytes = self.write(&mut writer, &entry)?;
            entries.names_bytes += names_bytes;
            if writer.overflowed() || entries.names_bytes > self.asked.names_max {
                break false;
            }
            written += writer.written();
        };
        if written == 0 && !entries.ended {
            return Err(Status::TooSmall);
        }
        entries.bytes.truncate(written);
        Ok(entries)
    }

    /// Writes an entry; returns the bytes of its number, name and cookie.
    fn write(&self, writer: &mut Writer<'_>, entry: &RawDirEntry<'_>) -> Result<usize, Status> {
        let name = entry.file_name().to_bytes();
        // As far as the caller may know them.
        let found = match self.asked.plus {
            true => self.request.find(self.directory, name).ok(),
            false => None,
        };
        writer.boolean(true);
        let inode = match (&found, name) {
            // What a mount covers, and what lies above the root, is not for the client.
            (_, b"..") => self.inode_above()?,
            (Some((attributes, _)), _) => attributes.key.inode,
            (None, _) => entry.ino(),
        };
        writer.u64(inode);
        writer.opaque(name);
        writer.u64(entry.next_entry_cookie());
        let names_bytes = writer.written();
        if self.asked.plus {
            let system = self.request.system();
            write_after(writer, found.as_ref().map(|found| &found.0), system);
            writer.boolean(found.is_some());
            if let Some((_, handle)) = &found {
                writer.opaque(handle.as_slice());
            }
        }
        Ok(names_bytes)
    }

    fn inode_above(&self) -> Result<u64, Status> {
        let above = self.request.state.export.parent(self.directory)?;
        Ok(Attributes::of(&above)?.key.inode)
    }
}
