//! Calls as bytes: a client that can do everything wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;

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

/// A whole call in one record, by user 1000.
pub(crate) fn call(xid: u32, program: u32, procedure: u32, arguments: &Words) -> Vec<u8> {
    call_as(1000, xid, (program, procedure), arguments)
}

/// A call of NFS by another user.
pub(crate) fn call_by(user: u32, xid: u32, procedure: u32, arguments: &Words) -> Vec<u8> {
    call_as(user, xid, (NFS, procedure), arguments)
}

fn call_as(user: u32, xid: u32, (program, procedure): (u32, u32), arguments: &Words) -> Vec<u8> {
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
        .word(program)
        .word(3)
        .word(procedure)
        .word(1)
        .opaque(&credential.0)
        .word(0)
        .word(0);
    message.0.extend_from_slice(&arguments.0);
    let length = u32::try_from(message.0.len()).expect("short");
    let mut record = (length | 1 << 31).to_be_bytes().to_vec();
    record.append(&mut message.0);
    record
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

    pub(crate) fn opaque(&self, at: usize) -> Vec<u8> {
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

    pub(crate) fn call(&mut self, program: u32, procedure: u32, arguments: &Words) -> Reply {
        self.xid += 1;
        let record = call(self.xid, program, procedure, arguments);
        self.send(&record);
        let reply = self.reply();
        assert_eq!(reply.xid, self.xid);
        reply
    }

    pub(crate) fn nfs(&mut self, procedure: u32, arguments: &Words) -> Reply {
        self.call(NFS, procedure, arguments)
    }

    pub(crate) fn root(&mut self) -> Vec<u8> {
        let reply = self.call(MOUNT, 1, &Words::default().opaque(b"/"));
        assert_eq!(reply.status(), 0);
        reply.opaque(4)
    }

    /// CREATE, unchecked, with mode 644.
    pub(crate) fn create(&mut self, directory: &[u8], name: &str) -> Vec<u8> {
        let words = Words::default()
            .opaque(directory)
            .opaque(name.as_bytes())
            .word(0);
        let words = [1, 0o644, 0, 0, 0, 0, 0]
            .into_iter()
            .fold(words, Words::word);
        let reply = self.nfs(8, &words);
        assert_eq!((reply.status(), reply.word(4)), (0, 1));
        reply.opaque(8)
    }
}

/// Arguments of WRITE.
pub(crate) fn write(file: &[u8], offset: u64, data: &[u8], stable: u32) -> Words {
    let count = u32::try_from(data.len()).expect("short");
    Words::default()
        .opaque(file)
        .long(offset)
        .word(count)
        .word(stable)
        .opaque(data)
}

/// Arguments of READ.
pub(crate) fn read(file: &[u8], offset: u64, count: u32) -> Words {
    Words::default().opaque(file).long(offset).word(count)
}

/// The data in the reply to READ.
pub(crate) fn data(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.status(), 0);
    reply.opaque(4 + 4 + 84 + 4 + 4)
}
