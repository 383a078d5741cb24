//! A fixed number of requests, so that what two servers used for them can be compared exactly.
//!
//! One thread sends on every connection and then reads every reply, round after round. It checks
//! the length and the first bytes of replies against the first one, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flatpath_rpc::xdr::{Reader, Writer};

use crate::bench::PAGES;

/// How long a single reply may take: callgrind slows a server down fifty-fold.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of an HTTP reply its status, of an RPC reply all but the transaction number.
const LOOKED_AT: std::ops::Range<usize> = 8..12;
const REPLY_BYTES_MAX: usize = 64 << 10;
const CALL_BYTES_MAX: usize = 256;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const READ_BYTES: u32 = 4096;

/// What every connection does.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    /// Where.
    pub(crate) address: SocketAddr,
    /// The bytes of one request.
    pub(crate) request: Vec<u8>,
    /// Connections in each round.
    pub(crate) connections: u32,
    /// Requests in a row on each connection.
    pub(crate) outstanding: u32,
    /// Whether a connection ends with its first reply.
    pub(crate) closes: bool,
}

impl Rounds {
    /// Sends this many requests, rounded up to whole rounds, and returns how many they were.
    ///
    /// # Errors
    /// What a socket reports, or `InvalidData` for a reply that differs from the first one.
    pub(crate) fn run(&self, requests: u64) -> io::Result<u64> {
        let expected = self.probe()?;
        let burst = self.request.repeat(self.outstanding as usize);
        let mut replies = vec![0; expected.len() * self.outstanding as usize];
        let mut connections = Vec::new();
        let a_round = u64::from(self.connections) * u64::from(self.outstanding);
        let rounds = requests.div_ceil(a_round);
        for _ in 0..rounds {
            while connections.len() < self.connections as usize {
                connections.push(connect(self.address)?);
                if let (true, Some(socket)) = (self.closes, connections.last_mut()) {
                    socket.write_all(&burst)?;
                }
            }
            if !self.closes {
                for socket in &mut connections {
                    socket.write_all(&burst)?;
                }
            }
            for socket in &mut connections {
                socket.read_exact(&mut replies)?;
                for reply in replies.chunks_exact(expected.len()) {
                    if reply[LOOKED_AT] != expected[LOOKED_AT] {
                        return Err(invalid("a reply differs from the first one"));
                    }
                }
            }
            if self.closes {
                for mut socket in connections.drain(..) {
                    if socket.read(&mut [0])? != 0 {
                        return Err(invalid("a reply is longer than the first one"));
                    }
                }
            }
        }
        Ok(rounds * a_round)
    }

    /// The reply to one request: all that comes within a moment.
    fn probe(&self) -> io::Result<Vec<u8>> {
        let mut socket = connect(self.address)?;
        socket.write_all(&self.request)?;
        let mut reply = vec![0; REPLY_BYTES_MAX];
        let mut received = socket.read(&mut reply)?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        while let Ok(more @ 1..) = socket.read(&mut reply[received..]) {
            received += more;
        }
        if received < LOOKED_AT.end {
            return Err(invalid("the first reply is too short"));
        }
        reply.truncate(received);
        Ok(reply)
    }
}

/// An NFS READ of 4 KiB: mounts the export and looks the file up first.
///
/// # Errors
/// What the socket reports, or `InvalidData` if the server refuses.
pub(crate) fn nfs_read(server: SocketAddr) -> io::Result<Vec<u8>> {
    let root = handle(server, &call(MOUNT, 1, |writer| writer.opaque(b"/"))?)?;
    let looked_up = call(NFS, 3, |writer| {
        writer.opaque(&root);
        writer.opaque(PAGES.as_bytes());
    })?;
    let file = handle(server, &looked_up)?;
    call(NFS, 6, |writer| {
        writer.opaque(&file);
        writer.u64(0);
        writer.u32(READ_BYTES);
    })
}

fn call(
    program: u32,
    procedure: u32,
    arguments: impl FnOnce(&mut Writer<'_>),
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; CALL_BYTES_MAX];
    let mut writer = Writer::new(&mut bytes);
    for word in [0, 1, 0, 2, program, 3, procedure] {
        writer.u32(word);
    }
    // AUTH_SYS: stamp, machine, user 0, group 0, no more groups; no verifier.
    for word in [1, 20, 0, 0, 0, 0, 0, 0, 0] {
        writer.u32(word);
    }
    arguments(&mut writer);
    if writer.overflowed() {
        return Err(invalid("a call longer than its bound"));
    }
    let written = writer.written();
    bytes.truncate(written);
    let marker = u32::try_from(written - 4).map_err(io::Error::other)? | (1 << 31);
    bytes[..4].copy_from_slice(&marker.to_be_bytes());
    Ok(bytes)
}

/// The handle at the beginning of the results of MNT and LOOKUP.
fn handle(server: SocketAddr, call: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = connect(server)?;
    socket.write_all(call)?;
    let mut marker = [0; 4];
    socket.read_exact(&mut marker)?;
    let mut reply = vec![0; (u32::from_be_bytes(marker) & 0x7fff_ffff) as usize];
    socket.read_exact(&mut reply)?;
    let mut reader = Reader::new(&reply);
    let found = (|| {
        let head = [reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?];
        let _flavor = reader.u32().ok()?;
        reader.opaque(400).ok()?;
        let status = [reader.u32().ok()?, reader.u32().ok()?];
        let accepted = head[1..] == [1, 0] && status == [0, 0];
        accepted.then(|| reader.opaque(64).ok().map(<[u8]>::to_vec))?
    })();
    found.ok_or_else(|| invalid("the server gave no handle"))
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
