//! NFS calls, and a client that can do everything wrong: it sends them as bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const MNT: u32 = 1;
const GETATTR: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
pub(crate) const ACCESS: u32 = 4;
pub(crate) const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RENAME: u32 = 14;
const COMMIT: u32 = 21;
/// Bytes of a file's attributes.
const ATTRIBUTES: usize = 84;

/// Arguments or a message, one item after the other.
#[derive(Clone, Default)]
pub(crate) struct Words(pub(crate) Vec<u8>);

impl Words {
    pub(crate) fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, word: u64) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub(crate) fn opaque(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("short");
        let mut words = self.word(length);
        words.0.extend_from_slice(bytes);
        words.0.resize(words.0.len().next_multiple_of(4), 0);
        words
    }
}

/// A call that has no number yet.
#[derive(Clone)]
pub(crate) struct Call {
    program: u32,
    /// Of the program; a test that sends many knows by it which one was answered.
    pub(crate) procedure: u32,
    arguments: Words,
}

impl Call {
    /// A call of NFS for which there is no function here.
    pub(crate) fn nfs(procedure: u32, arguments: Words) -> Self {
        Self {
            program: NFS,
            procedure,
            arguments,
        }
    }

    /// In one record, by user 1000.
    pub(crate) fn record(&self, xid: u32) -> Vec<u8> {
        self.record_by(1000, xid)
    }

    /// The same by another user.
    pub(crate) fn record_by(&self, user: u32, xid: u32) -> Vec<u8> {
        let credential = Words::default()
            .word(0)
            .opaque(b"test")
            .word(user)
            .word(user)
            .word(0);
        let mut message = Words::default()
            .word(xid)
            .word(0)
            .word(2)
            .word(self.program)
            .word(3)
            .word(self.procedure)
            .word(1)
            .opaque(&credential.0)
            .word(0)
            .word(0);
        message.0.extend_from_slice(&self.arguments.0);
        let length = u32::try_from(message.0.len()).expect("short");
        let mut record = (length | 1 << 31).to_be_bytes().to_vec();
        record.append(&mut message.0);
        record
    }
}

fn file(handle: &[u8]) -> Words {
    Words::default().opaque(handle)
}

fn entry(directory: &[u8], name: &str) -> Words {
    file(directory).opaque(name.as_bytes())
}

pub(crate) fn null() -> Call {
    Call::nfs(0, Words::default())
}

pub(crate) fn getattr(handle: &[u8]) -> Call {
    Call::nfs(GETATTR, file(handle))
}

/// SETATTR of a file's length alone.
pub(crate) fn set_length(handle: &[u8], length: u64) -> Call {
    let before = [0, 0, 0, 1].into_iter().fold(file(handle), Words::word);
    let after = [0, 0, 0].into_iter().fold(before.long(length), Words::word);
    Call::nfs(SETATTR, after)
}

pub(crate) fn lookup(directory: &[u8], name: &str) -> Call {
    Call::nfs(LOOKUP, entry(directory, name))
}

pub(crate) fn access(handle: &[u8], rights: u32) -> Call {
    Call::nfs(ACCESS, file(handle).word(rights))
}

pub(crate) fn read(handle: &[u8], offset: u64, count: u32) -> Call {
    Call::nfs(READ, file(handle).long(offset).word(count))
}

pub(crate) fn write(handle: &[u8], offset: u64, data: &[u8], stable: u32) -> Call {
    let count = u32::try_from(data.len()).expect("short");
    let words = file(handle).long(offset).word(count).word(stable);
    Call::nfs(WRITE, words.opaque(data))
}

/// CREATE, unchecked, with mode 644.
pub(crate) fn create(directory: &[u8], name: &str) -> Call {
    let words = entry(directory, name).word(0);
    Call::nfs(
        CREATE,
        [1, 0o644, 0, 0, 0, 0, 0]
            .into_iter()
            .fold(words, Words::word),
    )
}

/// MKDIR with mode 755.
pub(crate) fn mkdir(directory: &[u8], name: &str) -> Call {
    let words = entry(directory, name);
    Call::nfs(
        MKDIR,
        [1, 0o755, 0, 0, 0, 0, 0]
            .into_iter()
            .fold(words, Words::word),
    )
}

pub(crate) fn remove(directory: &[u8], name: &str) -> Call {
    Call::nfs(REMOVE, entry(directory, name))
}

pub(crate) fn rename(directory: &[u8], from: &str, to: &str) -> Call {
    let words = entry(directory, from).opaque(directory);
    Call::nfs(RENAME, words.opaque(to.as_bytes()))
}

/// COMMIT of a whole file.
pub(crate) fn commit(handle: &[u8]) -> Call {
    Call::nfs(COMMIT, file(handle).long(0).word(0))
}

/// A reply that was accepted and succeeded: its number and its results.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) xid: u32,
    pub(crate) results: Vec<u8>,
}

impl Reply {
    pub(crate) fn word(&self, at: usize) -> u32 {
        let bytes = self.results[at..at + 4].try_into().expect("four bytes");
        u32::from_be_bytes(bytes)
    }

    /// The status of NFS or MOUNT.
    pub(crate) fn status(&self) -> u32 {
        self.word(0)
    }

    /// The handle in a successful reply to LOOKUP or MNT.
    pub(crate) fn handle(&self) -> Vec<u8> {
        assert_eq!(self.status(), 0);
        self.opaque(4)
    }

    /// The data in a successful reply to READ.
    pub(crate) fn data(&self) -> Vec<u8> {
        assert_eq!(self.status(), 0);
        self.opaque(4 + 4 + ATTRIBUTES + 4 + 4)
    }

    /// The write verifier at the end of a reply to WRITE or COMMIT.
    pub(crate) fn verifier(&self) -> u64 {
        u64::from_be_bytes(*self.results.last_chunk().expect("a verifier"))
    }

    fn opaque(&self, at: usize) -> Vec<u8> {
        let length = self.word(at) as usize;
        self.results[at + 4..at + 4 + length].to_vec()
    }
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    xid: u32,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("the server listens")
    }

    /// The same where the server may be between its end and its start.
    pub(crate) fn try_open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, xid: 0 })
    }

    /// A second hand on the same connection.
    pub(crate) fn another(&self) -> Self {
        let stream = self.stream.try_clone().expect("the same connection");
        Self { stream, xid: 0 }
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a TCP socket has the option");
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply, which is one fragment, whole.
    pub(crate) fn message(&mut self) -> std::io::Result<Vec<u8>> {
        let mut marker = [0; 4];
        self.stream.read_exact(&mut marker)?;
        let marker = u32::from_be_bytes(marker);
        assert_ne!(marker >> 31, 0, "a reply is one last fragment");
        let mut message = vec![0; (marker & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut message)?;
        Ok(message)
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let message = self.message().expect("a reply comes");
        let word =
            |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(
            (word(4), word(8), word(20)),
            (1, 0, 0),
            "accepted, and success"
        );
        Reply {
            xid: word(0),
            results: message[24..].to_vec(),
        }
    }

    /// Calls and takes the reply.
    pub(crate) fn call(&mut self, call: &Call) -> Reply {
        self.xid += 1;
        self.send(&call.record(self.xid));
        let reply = self.reply();
        assert_eq!(reply.xid, self.xid);
        reply
    }

    /// Calls and takes the status.
    pub(crate) fn status(&mut self, call: &Call) -> u32 {
        self.call(call).status()
    }

    pub(crate) fn root(&mut self) -> Vec<u8> {
        let mount = Call {
            program: MOUNT,
            procedure: MNT,
            arguments: Words::default().opaque(b"/"),
        };
        self.call(&mount).handle()
    }

    /// The handle of an entry.
    pub(crate) fn lookup(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        self.call(&lookup(directory, name)).handle()
    }

    /// Makes a file; its handle.
    pub(crate) fn create(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        let reply = self.call(&create(directory, name));
        assert_eq!((reply.status(), reply.word(4)), (0, 1));
        reply.opaque(8)
    }

    /// The first bytes of a file.
    pub(crate) fn read(&mut self, handle: &[u8], count: u32) -> Vec<u8> {
        self.call(&read(handle, 0, count)).data()
    }
}
