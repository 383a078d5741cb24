//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16, 3.3.17).
//!
//! A cookie is the file system's own position after an entry, so it stays right when entries come
//! and go, and after a restart. The verifier belongs to the directory and never changes: with a
//! verifier that changed with the directory, a client that removes what it lists could not go on.
//!
//! Entries are collected first, because they are looked up as the caller while the reply's buffer
//! is borrowed; one that does not fit is listed again from the cookie before it.

use flatpath_rpc::CallOutcome;
use flatpath_rpc::xdr::{Reader, Writer};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, RawDir, RawDirEntry, SeekFrom};

use crate::attributes::{Attributes, POST_OP_BYTES, write_after};
use crate::limits::{DIRECTORY_BYTES_MAX, ENTRIES_BYTES};
use crate::names::open_name;
use crate::node::Node;
use crate::request::{Made, Outcome, Request, in_directory, read_handle};
use crate::status::Status;

/// Results around the entries: attributes, verifier, end of list, end of directory.
const AROUND_BYTES: usize = POST_OP_BYTES + 8 + 4 + 4;

/// What is asked for.
struct Asked<'a> {
    handle: &'a [u8],
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
        handle,
        cookie,
        verifier,
        names_max,
        results_max: count.min(DIRECTORY_BYTES_MAX),
        plus,
    };
    Ok(serve(request, &asked))
}

fn serve(request: &mut Request<'_>, asked: &Asked<'_>) -> CallOutcome {
    let directory = match request.resolve_directory(asked.handle) {
        Ok(directory) => directory,
        Err(status) => return request.fail(status, None),
    };
    let opened = open_at(request, &directory, asked);
    let after = directory.attributes().ok();
    let list = match opened {
        Ok(list) => list,
        Err(status) => return request.fail(in_directory(status, after.as_ref()), after.as_ref()),
    };
    let system = request.system();
    let verifier = request.state.export.cookie_verifier(directory.key);
    let lister = Lister {
        request,
        directory: &directory,
        asked,
        system,
    };
    let entries = match lister.list(&list) {
        Ok(entries) => entries,
        Err(status) => return request.fail(in_directory(status, after.as_ref()), after.as_ref()),
    };
    let (pool, bytes_max) = (request.pool, 4 + asked.results_max);
    let written = request.reply.write(bytes_max, pool, |writer| {
        writer.u32(0);
        write_after(writer, after.as_ref(), system);
        writer.u64(verifier);
        writer.raw(&entries.bytes);
        writer.boolean(false);
        writer.boolean(entries.ended);
    });
    match written {
        Ok(()) => CallOutcome::Results,
        Err(_) => request.fail(Status::Later, after.as_ref()),
    }
}

/// Opens a directory as the caller and goes to where the client stopped.
fn open_at(request: &Request<'_>, directory: &Node, asked: &Asked<'_>) -> Result<OwnedFd, Status> {
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
    asked: &'a Asked<'a>,
    system: u64,
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
        let found = self.find(name, self.asked.plus);
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
            write_after(writer, found.as_ref().map(|found| &found.0), self.system);
            writer.boolean(found.is_some());
            if let Some((_, handle)) = &found {
                writer.opaque(handle.as_slice());
            }
        }
        Ok(names_bytes)
    }

    /// Attributes and handle of an entry, as far as the caller may know them.
    fn find(&self, name: &[u8], wanted: bool) -> Option<Made> {
        if !wanted {
            return None;
        }
        if matches!(name, b"." | b"..") {
            return self.request.find(self.directory, name).ok();
        }
        let export = &self.request.state.export;
        let file = self
            .request
            .act(|| open_name(&self.directory.path, name))
            .ok()?;
        let (attributes, handle) = export.describe(&file).ok()?;
        export.saw_in(attributes.key, self.directory, name);
        Some((attributes, handle))
    }

    fn inode_above(&self) -> Result<u64, Status> {
        let above = self.request.state.export.parent(self.directory)?;
        Ok(Attributes::of(&above)?.key.inode)
    }
}
