//! Calls of NFSv3 (RFC 1813) as records of ONC RPC (RFC 5531), and a connection that makes them.
//!
//! Records are bytes, so that a test can do everything wrong with them, and a bench can send them
//! as it likes. What begins with `try_` reports what went wrong, for benches; the others panic.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::patience;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const MNT: u32 = 1;
const GETATTR: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
pub const ACCESS: u32 = 4;
pub const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RENAME: u32 = 14;
const COMMIT: u32 = 21;
const READDIRPLUS: u32 = 17;
/// Bytes of a file's attributes.
pub const ATTRIBUTES: usize = 84;
/// The bit of a record mark that says that its fragment is the last.
pub const LAST_FRAGMENT: u32 = 1 << 31;
/// Longest reply that is read, in bytes.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// The credential that asks for TLS, and an empty verifier (RFC 9289 section 4.1).
pub const AUTH_TLS: [u32; 4] = [7, 0, 0, 0];
/// A reply without its number: TLS begins behind it.
pub const STARTTLS: &[u8] = b"\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x08STARTTLS\0\0\0\0";
/// The same of replies that refuse a call: its credential is no good, or not enough.
pub const BAD_CREDENTIAL: &[u8] = b"\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01";
pub const TOO_WEAK: &[u8] = b"\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x05";
/// The user of the machine who calls, unless another one is named.
const USER: u32 = 1000;

/// Arguments or a message, one item after the other.
#[derive(Clone, Default)]
pub struct Words(pub Vec<u8>);

impl Words {
    pub fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub fn long(mut self, word: u64) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub fn opaque(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("short");
        let mut words = self.word(length);
        words.pad(bytes);
        words
    }

    fn pad(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// A call that has no number yet.
#[derive(Clone)]
pub struct Call {
    program: u32,
    version: u32,
    /// Of the program; a test that sends many knows by it which one was answered.
    pub procedure: u32,
    arguments: Words,
}

impl Call {
    /// A call of NFS for which there is no function here.
    pub fn nfs(procedure: u32, arguments: Words) -> Self {
        Self::of(NFS, 3, procedure, arguments)
    }

    /// A call of any program.
    pub fn of(program: u32, version: u32, procedure: u32, arguments: Words) -> Self {
        Self {
            program,
            version,
            procedure,
            arguments,
        }
    }

    /// In one datagram, without a credential.
    pub fn datagram(&self, xid: u32) -> Vec<u8> {
        self.record_with(&[0; 4], xid).split_off(4)
    }

    /// In one record, by user 1000.
    pub fn record(&self, xid: u32) -> Vec<u8> {
        self.record_by(USER, xid)
    }

    /// The same by another user.
    pub fn record_by(&self, user: u32, xid: u32) -> Vec<u8> {
        self.record_before(0, user, xid)
    }

    /// The beginning of a record: `bytes` more of its arguments follow.
    pub fn record_before(&self, bytes: usize, user: u32, xid: u32) -> Vec<u8> {
        // AUTH_SYS: stamp, an empty machine name, user, group, no further groups.
        self.begin(bytes, &[1, 20, 0, 0, user, user, 0, 0, 0], xid)
    }

    /// In one record, with another credential and its verifier.
    pub fn record_with(&self, credential: &[u32], xid: u32) -> Vec<u8> {
        self.begin(0, credential, xid)
    }

    fn begin(&self, bytes: usize, credential: &[u32], xid: u32) -> Vec<u8> {
        let head = [xid, 0, 2, self.program, self.version, self.procedure];
        let arguments = &self.arguments.0;
        let length = 4 * (head.len() + credential.len()) + arguments.len() + bytes;
        let mark = LAST_FRAGMENT | u32::try_from(length).expect("short");
        let mut record = Vec::with_capacity(4 + length - bytes);
        let words = [mark].into_iter().chain(head);
        let words = words.chain(credential.iter().copied());
        words.for_each(|word| record.extend(word.to_be_bytes()));
        record.extend_from_slice(arguments);
        record
    }
}

fn file(handle: &[u8]) -> Words {
    Words::default().opaque(handle)
}

fn entry(directory: &[u8], name: &str) -> Words {
    file(directory).opaque(name.as_bytes())
}

/// MNT of an export.
pub fn mount(path: &str) -> Call {
    Call::of(MOUNT, 3, MNT, Words::default().opaque(path.as_bytes()))
}

pub fn null() -> Call {
    Call::nfs(0, Words::default())
}

/// NULL of MOUNT.
pub fn mount_null() -> Call {
    Call {
        program: MOUNT,
        ..null()
    }
}

pub fn getattr(handle: &[u8]) -> Call {
    Call::nfs(GETATTR, file(handle))
}

/// SETATTR of a file's length alone.
pub fn set_length(handle: &[u8], length: u64) -> Call {
    let before = [0, 0, 0, 1].into_iter().fold(file(handle), Words::word);
    let after = [0, 0, 0].into_iter().fold(before.long(length), Words::word);
    Call::nfs(SETATTR, after)
}

pub fn lookup(directory: &[u8], name: &str) -> Call {
    Call::nfs(LOOKUP, entry(directory, name))
}

pub fn access(handle: &[u8], rights: u32) -> Call {
    Call::nfs(ACCESS, file(handle).word(rights))
}

pub fn read(handle: &[u8], offset: u64, count: u32) -> Call {
    Call::nfs(READ, file(handle).long(offset).word(count))
}

pub fn write(handle: &[u8], offset: u64, data: &[u8], stable: u32) -> Call {
    let count = u32::try_from(data.len()).expect("short");
    let mut call = write_before(handle, offset, count, stable);
    call.arguments.pad(data);
    call
}

/// WRITE without its data: `count` bytes, and padding to a whole word.
pub fn write_before(handle: &[u8], offset: u64, count: u32, stable: u32) -> Call {
    let words = file(handle).long(offset).word(count).word(stable);
    Call::nfs(WRITE, words.word(count))
}

/// READDIRPLUS from a cookie and its verifier on, with a reply of at most `bytes`.
pub fn readdirplus(directory: &[u8], from: (u64, u64), bytes: u32) -> Call {
    let words = file(directory).long(from.0).long(from.1);
    // `dircount` as well: attributes and handles are what is to fill the reply.
    Call::nfs(READDIRPLUS, words.word(bytes).word(bytes))
}

/// CREATE, unchecked, with mode 666.
pub fn create(directory: &[u8], name: &str) -> Call {
    Call::nfs(CREATE, with_mode(entry(directory, name).word(0), 0o666))
}

/// MKDIR with mode 755.
pub fn mkdir(directory: &[u8], name: &str) -> Call {
    Call::nfs(MKDIR, with_mode(entry(directory, name), 0o755))
}

/// A `sattr3` that sets the mode and nothing else (RFC 1813).
fn with_mode(words: Words, mode: u32) -> Words {
    let attributes = [1, mode, 0, 0, 0, 0, 0];
    attributes.into_iter().fold(words, Words::word)
}

pub fn remove(directory: &[u8], name: &str) -> Call {
    Call::nfs(REMOVE, entry(directory, name))
}

pub fn rename(directory: &[u8], from: &str, to: &str) -> Call {
    let words = entry(directory, from).opaque(directory);
    Call::nfs(RENAME, words.opaque(to.as_bytes()))
}

/// COMMIT of a whole file.
pub fn commit(handle: &[u8]) -> Call {
    Call::nfs(COMMIT, file(handle).long(0).word(0))
}

/// A reply that was accepted and succeeded: its number and its results.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub xid: u32,
    pub results: Vec<u8>,
}

impl Reply {
    pub fn word(&self, at: usize) -> u32 {
        let bytes = self.results[at..at + 4].try_into().expect("four bytes");
        u32::from_be_bytes(bytes)
    }

    /// The status of NFS or MOUNT.
    pub fn status(&self) -> u32 {
        self.word(0)
    }

    /// The handle in a successful reply to LOOKUP or MNT.
    pub fn handle(&self) -> Vec<u8> {
        assert_eq!(self.status(), 0);
        self.opaque(4)
    }

    /// The data in a successful reply to READ.
    pub fn data(&self) -> Vec<u8> {
        assert_eq!(self.status(), 0);
        self.opaque(4 + 4 + ATTRIBUTES + 4 + 4)
    }

    /// The write verifier at the end of a reply to WRITE or COMMIT.
    pub fn verifier(&self) -> u64 {
        u64::from_be_bytes(*self.results.last_chunk().expect("a verifier"))
    }

    fn opaque(&self, at: usize) -> Vec<u8> {
        self.try_opaque(at).expect("it is whole")
    }

    fn try_opaque(&self, at: usize) -> io::Result<Vec<u8>> {
        let split = self
            .results
            .get(at..)
            .and_then(<[u8]>::split_first_chunk::<4>);
        let found = split.and_then(|(length, rest)| {
            let length = u32::from_be_bytes(*length);
            rest.get(..length as usize)
        });
        found
            .map(<[u8]>::to_vec)
            .ok_or_else(|| invalid("a result is cut off"))
    }
}

/// The results in a reply whose call was accepted.
///
/// # Errors
/// `InvalidData` for another reply.
pub fn accepted(reply: &[u8]) -> io::Result<&[u8]> {
    // REPLY, MSG_ACCEPTED, verifier (flavour, length 0), SUCCESS.
    const ACCEPTED: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    match reply.split_at_checked(4 + ACCEPTED.len()) {
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

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A socket that sends datagrams to a server.
pub struct Datagrams(UdpSocket);

impl Datagrams {
    pub fn open(address: SocketAddr) -> Self {
        let from = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = UdpSocket::bind(from).expect("a free port");
        socket.connect(address).expect("an address of this machine");
        let patience = Some(patience());
        socket.set_read_timeout(patience).expect("a time");
        Self(socket)
    }

    pub fn send(&self, bytes: &[u8]) {
        // A refusal of an earlier one is reported here.
        let sent = (0..2).find_map(|_| self.0.send(bytes).ok());
        assert_eq!(sent, Some(bytes.len()), "it is sent whole");
    }

    /// The next reply, whole.
    pub fn reply(&self) -> Vec<u8> {
        let mut room = vec![0; 64 * 1024];
        let length = self.0.recv(&mut room).expect("a reply");
        room.truncate(length);
        room
    }

    /// Sends bytes and takes the reply.
    pub fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        self.send(bytes);
        self.reply()
    }

    /// Calls, and takes the results of an accepted reply to it.
    pub fn call(&self, call: &Call) -> Vec<u8> {
        const XID: u32 = 77;
        let reply = self.exchange(&call.datagram(XID));
        assert_eq!(reply.first_chunk(), Some(&XID.to_be_bytes()));
        accepted(&reply).expect("it is accepted").to_vec()
    }
}

/// One connection: on a socket, or on what a test puts between that and the calls.
pub struct Connection<S = TcpStream> {
    pub stream: S,
    user: u32,
    xid: u32,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("the server listens")
    }

    /// The same where the server may be between its end and its start.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(patience()))?;
        stream.set_nodelay(true)?;
        Ok(Self::of(stream))
    }

    /// A second hand on the same connection.
    pub fn another(&self) -> Self {
        Self::of(self.stream.try_clone().expect("the same connection")).by(self.user)
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket has the option");
    }
}

impl<S: Read + Write> Connection<S> {
    /// A connection that is there.
    pub fn of(stream: S) -> Self {
        let (user, xid) = (USER, 0);
        Self { stream, user, xid }
    }

    /// Its calls are of this user of the machine from now on.
    pub fn by(self, user: u32) -> Self {
        Self { user, ..self }
    }

    /// Asks for TLS. What follows in case of [`STARTTLS`] is the handshake.
    ///
    /// # Errors
    /// The connection's.
    pub fn probe(&mut self) -> io::Result<Vec<u8>> {
        self.xid = self.xid.wrapping_add(1);
        self.try_send(&null().record_with(&AUTH_TLS, self.xid))?;
        Ok(self.message()?[4..].to_vec())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply, whole: of one fragment or, from other servers, of several.
    pub fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let (begin, length) = (message.len(), (mark & !LAST_FRAGMENT) as usize);
            if begin + length > REPLY_BYTES_MAX {
                return Err(invalid("a reply that is too long"));
            }
            message.resize(begin + length, 0);
            self.stream.read_exact(&mut message[begin..])?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(message);
            }
        }
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply()
            .expect("a reply to a call that was accepted")
    }

    fn try_reply(&mut self) -> io::Result<Reply> {
        let message = self.message()?;
        let results = accepted(&message)?.to_vec();
        let xid = u32::from_be_bytes(*message.first_chunk().expect("it has a head"));
        Ok(Reply { xid, results })
    }

    /// Calls and takes the reply.
    pub fn call(&mut self, call: &Call) -> Reply {
        self.try_call(call).expect("a reply to it")
    }

    /// Calls and takes the reply.
    ///
    /// # Errors
    /// The connection's, and `InvalidData` for a reply that is not an accepted one, or not to this
    /// call.
    pub fn try_call(&mut self, call: &Call) -> io::Result<Reply> {
        self.xid = self.xid.wrapping_add(1);
        self.try_send(&call.record_by(self.user, self.xid))?;
        match self.try_reply()? {
            reply if reply.xid == self.xid => Ok(reply),
            _ => Err(invalid("a reply to another call")),
        }
    }

    /// Calls MNT or LOOKUP; the handle.
    ///
    /// # Errors
    /// As [`try_call`](Self::try_call), or the status is an error.
    pub fn try_handle(&mut self, call: &Call) -> io::Result<Vec<u8>> {
        let reply = self.try_call(call)?;
        good(&reply.results)?;
        reply.try_opaque(4)
    }

    /// Calls and takes the status.
    pub fn status(&mut self, call: &Call) -> u32 {
        self.call(call).status()
    }

    /// The handle of the export's root.
    pub fn root(&mut self) -> Vec<u8> {
        self.try_handle(&mount("/")).expect("it is exported")
    }

    /// The handle of an entry.
    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        self.try_handle(&lookup(directory, name))
            .expect("it is there")
    }

    /// Makes a file; its handle.
    pub fn create(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        self.try_create(directory, name).expect("it is made")
    }

    /// Makes a file, unless it is there; its handle.
    ///
    /// # Errors
    /// As [`try_handle`](Self::try_handle), or the server gave no handle.
    pub fn try_create(&mut self, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
        let reply = self.try_call(&create(directory, name))?;
        match good(&reply.results)?.first_chunk() {
            Some([0, 0, 0, 1]) => reply.try_opaque(8),
            _ => Err(invalid("no handle for a new file")),
        }
    }

    /// The first bytes of a file.
    pub fn read(&mut self, handle: &[u8], count: u32) -> Vec<u8> {
        self.call(&read(handle, 0, count)).data()
    }
}
