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
const READDIRPLUS: u32 = 17;
/// Bytes of `fattr3`.
const ATTRIBUTES_BYTES: usize = 84;
/// The bit of a record mark that says that its fragment is the last.
pub const LAST_FRAGMENT: u32 = 1 << 31;
/// The bytes of a reply's head: xid, REPLY, MSG_ACCEPTED, verifier (flavour, length 0), SUCCESS.
pub const HEAD_BYTES: usize = 24;
/// Longest reply that is read whole, in bytes.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// A user of the machine, for calls that are not made as user 0.
const USER: u32 = 1000;

/// A call as a record of one fragment, with AUTH_SYS as user 0; `data_bytes` more of it follow.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8], data_bytes: u32) -> Vec<u8> {
    call_as(0, [xid, program, procedure], arguments, data_bytes)
}

fn call_as(
    user: u32,
    [xid, program, procedure]: [u32; 3],
    arguments: &[u8],
    data_bytes: u32,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(64 + arguments.len());
    let mut word = |value: u32| body.extend(value.to_be_bytes());
    for value in [xid, 0, 2, program, 3, procedure] {
        word(value);
    }
    // AUTH_SYS: stamp, an empty machine name, user, group, no further groups.
    for value in [1, 20, 0, 0, user, user, 0, 0, 0] {
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

/// READDIRPLUS from a cookie and verifier on, with a reply of at most `bytes`, as user 1000: so
/// the server has to ask the kernel in that user's name.
pub fn readdirplus(xid: u32, directory: &[u8], from: (u64, u64), bytes: u32) -> Vec<u8> {
    let mut arguments = opaque(directory);
    arguments.extend(from.0.to_be_bytes());
    arguments.extend(from.1.to_be_bytes());
    // `dircount` as well: attributes and handles are what is to fill the reply.
    for _ in 0..2 {
        arguments.extend(bytes.to_be_bytes());
    }
    call_as(USER, [xid, NFS, READDIRPLUS], &arguments, 0)
}

/// What one READDIRPLUS brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: u64,
    pub verifier: u64,
    pub end: PageEnd,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEnd {
    /// More comes after this cookie.
    More(u64),
    /// It was the last one.
    Directory,
}

/// Counts the entries in good results of READDIRPLUS.
///
/// # Errors
/// `InvalidData` for results that are cut off, for an entry without attributes or handle, and for a
/// page without entries that is not the last.
pub fn page_of_entries(results: &[u8]) -> io::Result<Page> {
    let rest = &mut &*results;
    if word(rest)? != 0 {
        skip(rest, ATTRIBUTES_BYTES)?;
    }
    let verifier = long(rest)?;
    let (mut entries, mut last) = (0, None);
    while word(rest)? != 0 {
        skip(rest, 8)?;
        skip_opaque(rest)?;
        last = Some(long(rest)?);
        if word(rest)? == 0 {
            return Err(invalid("an entry without attributes"));
        }
        skip(rest, ATTRIBUTES_BYTES)?;
        if word(rest)? == 0 {
            return Err(invalid("an entry without a handle"));
        }
        skip_opaque(rest)?;
        entries += 1;
    }
    let end = match (word(rest)?, last) {
        (0, Some(cookie)) => PageEnd::More(cookie),
        (0, None) => return Err(invalid("a page without entries")),
        _ => PageEnd::Directory,
    };
    Ok(Page {
        entries,
        verifier,
        end,
    })
}

fn skip(rest: &mut &[u8], bytes: usize) -> io::Result<()> {
    let left = rest.get(bytes..);
    *rest = left.ok_or_else(|| invalid("results are cut off"))?;
    Ok(())
}

fn word(rest: &mut &[u8]) -> io::Result<u32> {
    let word = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    skip(rest, 4)?;
    Ok(word.unwrap_or_default())
}

fn long(rest: &mut &[u8]) -> io::Result<u64> {
    Ok(u64::from(word(rest)?) << 32 | u64::from(word(rest)?))
}

fn skip_opaque(rest: &mut &[u8]) -> io::Result<()> {
    let length = word(rest)? as usize;
    skip(rest, length.next_multiple_of(4))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of READDIRPLUS: names, whether they have a handle, whether it is the end.
    fn results(names: &[&str], with_handles: bool, ended: bool) -> Vec<u8> {
        let mut bytes = 1_u32.to_be_bytes().to_vec();
        bytes.extend([0; ATTRIBUTES_BYTES]);
        bytes.extend(7_u64.to_be_bytes());
        for (cookie, name) in (1_u64..).zip(names) {
            bytes.extend(1_u32.to_be_bytes());
            bytes.extend(9_u64.to_be_bytes());
            bytes.extend(opaque(name.as_bytes()));
            bytes.extend(cookie.to_be_bytes());
            bytes.extend(1_u32.to_be_bytes());
            bytes.extend([0; ATTRIBUTES_BYTES]);
            bytes.extend(u32::from(with_handles).to_be_bytes());
            if with_handles {
                bytes.extend(opaque(b"handle"));
            }
        }
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(u32::from(ended).to_be_bytes());
        bytes
    }

    #[test]
    fn a_page_is_counted_and_says_where_the_next_begins() {
        let page = |end| Page {
            entries: 2,
            verifier: 7,
            end,
        };
        let read = page_of_entries(&results(&["a", "bcdef"], true, false));
        assert_eq!(read.expect("a page"), page(PageEnd::More(2)));
        let read = page_of_entries(&results(&["a", "bcdef"], true, true));
        assert_eq!(read.expect("a page"), page(PageEnd::Directory));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let good = results(&["a"], true, false);
        for length in 0..good.len() {
            assert!(page_of_entries(&good[..length]).is_err(), "{length}");
        }
        assert!(page_of_entries(&results(&["a"], false, true)).is_err());
        assert!(page_of_entries(&results(&[], true, false)).is_err());
    }
}
