//! As much of ONC RPC (RFC 5531) and NFSv3 (RFC 1813) as the clients here need.

use std::io::{self, Read, Write};
use std::net::TcpStream;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const MNT: u32 = 1;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
/// The bit of a record mark that says that its fragment is the last.
const LAST_FRAGMENT: u32 = 1 << 31;
/// Longest reply that is read whole, in bytes.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// A call as a record of one fragment, with AUTH_SYS as user 0.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
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
    let length = u32::try_from(body.len()).unwrap_or(LAST_FRAGMENT - 1);
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

/// GETATTR of a file.
pub(super) fn getattr(xid: u32, file: &[u8]) -> Vec<u8> {
    call(xid, NFS, GETATTR, &opaque(file))
}

/// READ of a file.
pub(super) fn read(xid: u32, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let mut arguments = opaque(file);
    arguments.extend(offset.to_be_bytes());
    arguments.extend(count.to_be_bytes());
    call(xid, NFS, READ, &arguments)
}

/// WRITE to a file, unstable.
pub(super) fn write(xid: u32, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap_or(0);
    let mut arguments = opaque(file);
    arguments.extend(offset.to_be_bytes());
    arguments.extend(count.to_be_bytes());
    arguments.extend(0_u32.to_be_bytes());
    arguments.extend(opaque(data));
    call(xid, NFS, WRITE, &arguments)
}

/// Sends a call and reads its reply: the results behind an accepted status.
///
/// # Errors
/// The connection's, and `InvalidData` for a reply that is not an accepted one.
pub(super) fn ask(stream: &mut TcpStream, record: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(record)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize;
    if length > REPLY_BYTES_MAX {
        return Err(invalid("a reply that is too long"));
    }
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply)?;
    // xid, REPLY, MSG_ACCEPTED, verifier (flavour, length 0), SUCCESS.
    let accepted = reply.len() >= 24
        && reply[4..24] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if !accepted {
        return Err(invalid("a call was not accepted"));
    }
    Ok(reply.split_off(24))
}

/// The results of a procedure whose status is NFS3_OK, without that status.
fn good(results: &[u8]) -> io::Result<&[u8]> {
    match results.split_first_chunk::<4>() {
        Some(([0, 0, 0, 0], rest)) => Ok(rest),
        _ => Err(invalid("a procedure failed")),
    }
}

/// A file handle at the front of results.
fn handle(results: &[u8]) -> io::Result<Vec<u8>> {
    let (length, rest) = results
        .split_first_chunk::<4>()
        .ok_or_else(|| invalid("no file handle"))?;
    let length = u32::from_be_bytes(*length) as usize;
    let handle = rest
        .get(..length)
        .ok_or_else(|| invalid("no file handle"))?;
    Ok(handle.to_vec())
}

/// The handle of the export's root.
///
/// # Errors
/// As [`ask`], and a refusal.
pub(super) fn mount(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let results = ask(stream, &call(1, MOUNT, MNT, &opaque(b"/")))?;
    handle(good(&results)?)
}

/// The handle of a file in a directory.
///
/// # Errors
/// As [`ask`], and a refusal.
pub(super) fn lookup(stream: &mut TcpStream, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
    let mut arguments = opaque(directory);
    arguments.extend(opaque(name.as_bytes()));
    let results = ask(stream, &call(2, NFS, LOOKUP, &arguments))?;
    handle(good(&results)?)
}

/// Whether the attributes of a file come back.
///
/// # Errors
/// As [`ask`], and a refusal.
pub(super) fn check(stream: &mut TcpStream, xid: u32, file: &[u8]) -> io::Result<()> {
    let results = ask(stream, &getattr(xid, file))?;
    good(&results).map(|_| ())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
