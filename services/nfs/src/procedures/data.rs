//! READ, WRITE, COMMIT (RFC 1813 sections 3.3.6, 3.3.7, 3.3.21).
//!
//! READ moves data from the page cache into the buffers the reply is sent from, and a longer one
//! sends the pages of the cache themselves; WRITE moves it from the pages it was received in.
//! Nothing copies it in between.

use std::io::{IoSlice, IoSliceMut};

use flatpath::memory::Piped;
use flatpath_rpc::xdr::{Reader, Writer};
use flatpath_rpc::{Arguments, CallOutcome, Data};
use rustix::fd::BorrowedFd;
use rustix::fs::Access as Allowed;
use rustix::io::{Errno, ReadWriteFlags};

use crate::attributes::{Attributes, POST_OP_BYTES, write_after};
use crate::limits::{DATA_BYTES_MAX, PIPED_BYTES_MIN};
use crate::node::{Node, Seen};
use crate::request::{Failure, Outcome, Request, read_handle};
use crate::status::Status;
use crate::verifier::{Lost, Work, WriteVerifier};

/// Results of READ before the data: status, attributes, count, end, length.
const READ_HEAD_BYTES: usize = 4 + POST_OP_BYTES + 4 + 4 + 4;

/// Permission bits that a write by any user but root takes away.
const SET_ID_BITS: u32 = 0o6000;

/// `stable_how`, which is also what a reply says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stable {
    Unstable = 0,
    Data = 1,
    File = 2,
}

pub(super) fn read(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let offset = reader.u64()?;
    let count = (reader.u32()? as usize).min(DATA_BYTES_MAX);
    let node = request.resolve(handle)?;
    let result = if request.is_prompt() {
        read_at_hand(request, &node, offset, count)
    } else {
        read_waiting(request, &node, offset, count)
    };
    let (came, attributes) =
        result.map_err(|status| Failure::Status(status, request.after(&node)))?;
    let bytes = came.bytes();
    let end = offset.saturating_add(bytes as u64) >= attributes.size;
    let length = u32::try_from(bytes).expect("at most DATA_BYTES_MAX");
    let system = request.system();
    let head = |writer: &mut Writer<'_>| {
        writer.u32(0);
        write_after(writer, Some(&attributes), system);
        writer.u32(length);
        writer.boolean(end);
        writer.u32(length);
    };
    let reply = &mut *request.reply;
    match came {
        Came::Copied(bytes) => reply.commit(READ_HEAD_BYTES, bytes, head),
        Came::Piped(piped) => reply
            .commit_piped(READ_HEAD_BYTES, piped, request.pool, head)
            .map_err(|_| Failure::Status(Status::Later, Some(attributes)))?,
    }
    Ok(CallOutcome::Results)
}

enum Came {
    /// In the reply's buffers; the number of bytes.
    Copied(usize),
    /// In a pipe.
    Piped(Piped),
}

impl Came {
    fn bytes(&self) -> usize {
        match self {
            Came::Copied(bytes) => *bytes,
            Came::Piped(piped) => piped.len(),
        }
    }
}

/// Reads what is cached; anything else is for a worker.
///
/// The attributes are those from before, which have to be known here for the time of access
/// ([`FileSystem::read_cached_of`](flatpath::prompt::FileSystem::read_cached_of)). After a write in
/// between, the client has newer data under older attributes, and drops it when it sees newer ones.
fn read_at_hand(
    request: &mut Request<'_>,
    node: &Node,
    offset: u64,
    count: usize,
) -> Result<(Came, Attributes), Status> {
    let found = check_before(request, node)?;
    let count = bytes_available(found.size, offset, count);
    let file = request.reader(node)?;
    let mut room = request
        .reply
        .data(READ_HEAD_BYTES, count, request.pool)
        .map_err(|_| Status::Later)?;
    let files = &request.state.export.files;
    let read = match count {
        0 => Some(0),
        _ => files.read_cached_of(file, found.times(), &mut room, offset)?,
    };
    if read == Some(count) {
        return Ok((Came::Copied(count), found));
    }
    // The rest is not cached, or the file has become shorter.
    Err(request.may_wait().err().unwrap_or(Status::Later))
}

fn read_waiting(
    request: &mut Request<'_>,
    node: &Node,
    offset: u64,
    count: usize,
) -> Result<(Came, Attributes), Status> {
    if let Some(read) = read_once(request, node, offset, count)? {
        return Ok(read);
    }
    let found = check_before(request, node)?;
    read_into(request, node, found.size, offset, count)
}

/// The attributes of a file that the caller may read.
fn check_before(request: &Request<'_>, node: &Node) -> Result<Attributes, Status> {
    let found = node.attributes()?;
    request.check_data(node, &found, Allowed::READ_OK)?;
    node.saw(Seen::of(&found));
    Ok(found)
}

/// How much of `count` bytes a file of `size` has at `offset`: no more room than it can fill. One
/// byte more would find what was added since.
fn bytes_available(size: u64, offset: u64, count: usize) -> usize {
    let available = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    count.min(available)
}

/// Reads without asking for the attributes before, when they were seen at an earlier call and the
/// caller might read the file then. `None`, with nothing in the reply: that was not enough.
///
/// The right holds for this read when the caller owns the file, or when the file has not changed in
/// any way from when the right was checked until after the read.
fn read_once(
    request: &mut Request<'_>,
    node: &Node,
    offset: u64,
    count: usize,
) -> Result<Option<(Came, Attributes)>, Status> {
    let Some(seen) = node.seen_by(&request.who) else {
        return Ok(None);
    };
    let (came, after) = read_into(request, node, seen.size, offset, count)?;
    let allowed = after.user == request.who.user || after.changed == seen.changed;
    // Room was made for the size that was seen: there may be more to read now.
    let complete = came.bytes() == count || after.size <= seen.size;
    if allowed && complete {
        node.saw(Seen::of(&after));
        return Ok(Some((came, after)));
    }
    request.reply.restart(flatpath_rpc::Accepted::Success);
    Ok(None)
}

/// Reads a file that had `size` bytes; what came, and the attributes after it.
fn read_into(
    request: &mut Request<'_>,
    node: &Node,
    size: u64,
    offset: u64,
    count: usize,
) -> Result<(Came, Attributes), Status> {
    if i64::try_from(offset).is_err() {
        // Beyond any file: nothing is there.
        return Ok((Came::Copied(0), node.attributes()?));
    }
    let count = bytes_available(size, offset, count);
    let file = request.reader(node)?;
    if count >= PIPED_BYTES_MIN
        && let Some(piped) = request.state.pipes.splice_file(
            file,
            offset,
            count,
            usize::from(!count.is_multiple_of(4)),
        )?
        && piped.len() == count
    {
        return Ok((Came::Piped(piped), node.attributes()?));
    }
    let mut room = request
        .reply
        .data(READ_HEAD_BYTES, count, request.pool)
        .map_err(|_| Status::Later)?;
    let bytes = match count {
        0 => 0,
        _ => wait_for_data(file, &mut room, offset)?,
    };
    // After the read: the right and the end of the file are judged by it.
    Ok((Came::Copied(bytes), node.attributes()?))
}

fn wait_for_data(
    file: BorrowedFd<'_>,
    room: &mut [IoSliceMut<'_>],
    offset: u64,
) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::preadv(file, room, offset) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn write(request: &mut Request<'_>, mut arguments: Arguments<'_>) -> Outcome {
    let reader = &mut arguments.reader;
    let handle = read_handle(reader)?;
    let offset = reader.u64()?;
    let count = reader.u32()? as usize;
    let stable = match reader.u32()? {
        0 => Stable::Unstable,
        1 => Stable::Data,
        2 => Stable::File,
        _ => return Err(Failure::Garbage),
    };
    let data = arguments.data(DATA_BYTES_MAX)?;
    let act = |request: &Request<'_>, node: &Node| {
        if count != data.bytes() {
            return Err(Status::Invalid);
        }
        // Read before: with a verifier from after the data was lost no client would write it again.
        let verifier = request.state.export.nodes.verifier().read();
        Ok((write_from(request, node, offset, data, stable)?, verifier))
    };
    request.answer_data(handle, act, |writer, (bytes, verifier)| {
        writer.u32(u32::try_from(bytes).expect("at most DATA_BYTES_MAX"));
        writer.u32(stable as u32);
        writer.u64(verifier);
    })
}

/// Writes all of the data, or as much as the kernel takes before it refuses.
fn write_from(
    request: &Request<'_>,
    node: &Node,
    offset: u64,
    data: Data<'_>,
    stable: Stable,
) -> Result<usize, Status> {
    let found = node.attributes()?;
    request.check_data(node, &found, Allowed::WRITE_OK)?;
    let end = offset.checked_add(data.bytes() as u64);
    if end.and_then(|end| i64::try_from(end).ok()).is_none() {
        return Err(Status::FileTooBig);
    }
    let file = request.writer(node)?;
    let verifier = request.state.export.nodes.verifier();
    let flags = match stable {
        Stable::Unstable => ReadWriteFlags::empty(),
        Stable::Data => ReadWriteFlags::DSYNC,
        Stable::File => ReadWriteFlags::SYNC,
    };
    let mut slices: Vec<IoSlice<'_>> = data.slices().map(IoSlice::new).collect();
    let mut operation = || {
        let mut written = 0;
        let mut rest = &mut slices[..];
        while written < data.bytes() {
            let at = offset + written as u64;
            // Repeated when interrupted: that is no error of the file.
            let write = || rustix::io::pwritev2(file, &*rest, at, flags);
            let write = || rustix::io::retry_on_intr(write);
            let result = refused_each_time(verifier, node, write(), write);
            match verifier.report(node.key, Work::Write, result) {
                Ok(0) => break,
                Ok(bytes) => {
                    written += bytes;
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                // The bytes that were written count; the client sends the rest again, and gets the
                // error then.
                Err(_) if written > 0 && stable == Stable::Unstable => break,
                Err(errno) => return Err(Status::from(errno)),
            }
        }
        Ok(written)
    };
    let write = || match found.mode & SET_ID_BITS {
        0 => operation(),
        // The kernel takes the bits away when the caller itself writes.
        _ => request.act(operation),
    };
    if stable == Stable::Unstable {
        return node.write_unsynced(write);
    }
    let syncing = verifier.enter(node.key);
    let written = write()?;
    // A report that a concurrent call got may have been about this data.
    syncing.end().map_err(|Lost| Status::Io)?;
    Ok(written)
}

/// The result of a write. That no file can be so long is said of the write itself, and so each
/// time; a file system may also say it once, of data that it took before (`nfs_file_write` in
/// `fs/nfs/file.c`). Then data is lost.
fn refused_each_time(
    verifier: &WriteVerifier,
    node: &Node,
    result: rustix::io::Result<usize>,
    again: impl FnOnce() -> rustix::io::Result<usize>,
) -> rustix::io::Result<usize> {
    let Err(Errno::FBIG) = result else {
        return result;
    };
    let again = again();
    if again != Err(Errno::FBIG) {
        let _ = verifier.report(node.key, Work::Sync, result);
    }
    again
}

pub(super) fn commit(request: &mut Request<'_>, reader: &mut Reader<'_>) -> Outcome {
    let handle = read_handle(reader)?;
    let _offset = reader.u64()?;
    let _count = reader.u32()?;
    request.answer_data(handle, commit_all, |writer, verifier| {
        writer.u64(verifier);
    })
}

/// Makes everything written so far last, under the verifier that is returned. The whole file: that
/// is never wrong.
fn commit_all(request: &Request<'_>, node: &Node) -> Result<u64, Status> {
    let verifier = request.state.export.nodes.verifier();
    request.check_data(node, &node.attributes()?, Allowed::WRITE_OK)?;
    // Any descriptor syncs a file. One that runs cannot be opened to write it (ETXTBSY).
    let file = request.writer(node).or_else(|_| request.reader(node))?;
    let syncing = verifier.enter(node.key);
    let synced = node.sync_by(|| rustix::fs::fsync(file));
    verifier.report(node.key, Work::Sync, synced)?;
    // A concurrent call may have got the report of the loss: then the verifier shows it.
    let _ = syncing.end();
    // Read afterwards: what was lost until now has turned it. What was written after the sync began
    // is no client's to believe, because its WRITE had no reply when COMMIT was sent.
    Ok(verifier.read())
}
