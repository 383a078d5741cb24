//! As much of ONC RPC (RFC 5531) and NFSv3 (RFC 1813) as the clients of benches need.

use std::io::{self, Read, Write};
use std::net::TcpStream;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const MNT: u32 = 1;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
/// The bit of a record mark that says that its fragment is the last.
pub const LAST_FRAGMENT: u32 = 1 << 31;
/// The bytes of a reply's head: xid, REPLY, MSG_ACCEPTED, verifier (flavour, length 0), SUCCESS.
pub const HEAD_BYTES: usize = 24;
/// Longest reply that is read whole, in bytes.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// A call as a record of one fragment, with AUTH_SYS as user 0; `data_bytes` more of it follow.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8], data_bytes: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(64 + arguments.len());
    let mut word = |value: u32| body.extend(value.to_be_bytes());
    for value in [xid, 0, 2, program, 3, procedure] {
        word(value);
    }
    // AUTH_SYS: stamp, an empty machine name, user 0, group 0, no further groups.
    for value in [1, 20, 0, 0, 0, 0, 0, 0, 0] {
        word(value);
    }
    body.extend(arguments);
    let length = u32::try_from(body.len()).unwrap_or(LAST_FRAGMENT - 1) + data_bytes;
    let mut record = (LAST_FRAGMENT | length).to_be_bytes().to_vec();
    record.extend(body);
    record
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    let mut coded = length.to_be_bytes().to_vec();
    coded.extend(bytes);
    coded.resize(coded.len().next_multiple_of(4), 0);
    coded
}

pub fn getattr(xid: u32, file: &[u8]) -> Vec<u8> {
    call(xid, NFS, GETATTR, &opaque(file), 0)
}

pub fn read(xid: u32, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let mut arguments = opaque(file);
    arguments.extend(offset.to_be_bytes());
    arguments.extend(count.to_be_bytes());
    call(xid, NFS, READ, &arguments, 0)
}

/// WRITE to a file, unstable.
pub fn write(xid: u32, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap_or(0);
    let mut record = write_head(xid, file, offset, count);
    record.extend(&opaque(data)[4..]);
    record
}

/// The same without the data, `count` bytes and padding to a whole word, which follow.
pub fn write_head(xid: u32, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let mut arguments = opaque(file);
    arguments.extend(offset.to_be_bytes());
    for word in [count, 0, count] {
        arguments.extend(word.to_be_bytes());
    }
    call(xid, NFS, WRITE, &arguments, count.next_multiple_of(4))
}

/// Sends a call and reads its reply: the results after an accepted status.
///
/// # Errors
/// The connection's, and `InvalidData` for a reply that is not an accepted one.
pub fn ask(stream: &mut TcpStream, record: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(record)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize;
    if length > REPLY_BYTES_MAX {
        return Err(invalid("a reply that is too long"));
    }
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply)?;
    accepted(&reply).map(<[u8]>::to_vec)
}

/// The results in a reply whose call was accepted.
///
/// # Errors
/// `InvalidData` for another reply.
pub fn accepted(reply: &[u8]) -> io::Result<&[u8]> {
    const ACCEPTED: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    match reply.split_at_checked(HEAD_BYTES) {
        Some((head, results)) if head[4..] == ACCEPTED => Ok(results),
        _ => Err(invalid("a call was not accepted")),
    }
}

/// The results of a procedure whose status is NFS3_OK, without that status.
///
/// # Errors
/// `InvalidData` for another status.
pub fn good(results: &[u8]) -> io::Result<&[u8]> {
    match results.split_first_chunk::<4>() {
        Some(([0, 0, 0, 0], rest)) => Ok(rest),
        _ => Err(invalid("a procedure failed")),
    }
}

/// A file handle at the front of results.
fn handle(results: &[u8]) -> io::Result<Vec<u8>> {
    let split = results.split_first_chunk::<4>();
    let found = split.and_then(|(length, rest)| rest.get(..u32::from_be_bytes(*length) as usize));
    found
        .map(<[u8]>::to_vec)
        .ok_or_else(|| invalid("no file handle"))
}

/// The handle of an export's root.
pub fn mount(stream: &mut TcpStream, path: &str) -> io::Result<Vec<u8>> {
    let results = ask(stream, &call(1, MOUNT, MNT, &opaque(path.as_bytes()), 0))?;
    handle(good(&results)?)
}

/// The handle of a file in a directory.
pub fn lookup(stream: &mut TcpStream, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
    let arguments = [opaque(directory), opaque(name.as_bytes())].concat();
    let results = ask(stream, &call(2, NFS, LOOKUP, &arguments, 0))?;
    handle(good(&results)?)
}

/// Makes a file that all may write, unless it is there; its handle.
pub fn create(stream: &mut TcpStream, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
    let mut arguments = [opaque(directory), opaque(name.as_bytes())].concat();
    // Unchecked; mode 666, nothing else.
    for word in [0_u32, 1, 0o666, 0, 0, 0, 0, 0] {
        arguments.extend(word.to_be_bytes());
    }
    let results = ask(stream, &call(3, NFS, CREATE, &arguments, 0))?;
    match good(&results)?.split_first_chunk::<4>() {
        Some(([0, 0, 0, 1], rest)) => handle(rest),
        _ => Err(invalid("the server gave no handle for a new file")),
    }
}

/// Whether the attributes of a file come back.
pub fn check(stream: &mut TcpStream, xid: u32, file: &[u8]) -> io::Result<()> {
    let results = ask(stream, &getattr(xid, file))?;
    good(&results).map(|_| ())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
