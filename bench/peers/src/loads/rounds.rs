//! A fixed number of requests, so that what two servers used for them can be compared exactly.
//!
//! One thread sends on every connection and then reads every reply, round after round. It checks
//! the length and the first bytes of replies against the first one, and nothing else. Through a
//! relay a connection is a pair of clients: what one sends is the reply that the other reads.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flatpath_testkit::nfs::{self, Call, Connection};

use super::{relay, websocket};
use crate::ground::PAGES;

/// How long a single reply may take: callgrind slows a server down fifty-fold.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of an HTTP reply its status, of an RPC reply all but the transaction number.
const LOOKED_AT: std::ops::Range<usize> = 8..12;
const REPLY_BYTES_MAX: usize = 64 << 10;

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
    /// What a connection is.
    pub(crate) way: Way,
}

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It serves every round.
    Kept,
    /// It ends with its first reply.
    Closed,
    /// Two clients that a relay has matched: one sends, the other reads. It serves every round.
    Relayed,
    /// A WebSocket, which serves every round.
    Socket,
}

/// One connection, open.
struct Line {
    socket: TcpStream,
    /// The client that reads, of two that a relay has matched.
    other: Option<TcpStream>,
}

impl Line {
    fn reader(&mut self) -> &mut TcpStream {
        self.other.as_mut().unwrap_or(&mut self.socket)
    }
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
        let closes = self.way == Way::Closed;
        let a_round = u64::from(self.connections) * u64::from(self.outstanding);
        let rounds = requests.div_ceil(a_round);
        for _ in 0..rounds {
            while connections.len() < self.connections as usize {
                connections.push(self.open(connections.len())?);
                if let (true, Some(line)) = (closes, connections.last_mut()) {
                    line.socket.write_all(&burst)?;
                }
            }
            if !closes {
                for line in &mut connections {
                    line.socket.write_all(&burst)?;
                }
            }
            for line in &mut connections {
                line.reader().read_exact(&mut replies)?;
                for reply in replies.chunks_exact(expected.len()) {
                    if reply[LOOKED_AT] != expected[LOOKED_AT] {
                        return Err(invalid("a reply differs from the first one"));
                    }
                }
            }
            if closes {
                for mut line in connections.drain(..) {
                    if line.reader().read(&mut [0])? != 0 {
                        return Err(invalid("a reply is longer than the first one"));
                    }
                }
            }
        }
        Ok(rounds * a_round)
    }

    /// A connection; clients of a relay name a token that its number gives.
    fn open(&self, number: usize) -> io::Result<Line> {
        let mut socket = connect(self.address)?;
        if self.way == Way::Socket {
            websocket::shake_hands(&mut socket)?;
        }
        if self.way != Way::Relayed {
            return Ok(Line {
                socket,
                other: None,
            });
        }
        let mut pair = [socket, connect(self.address)?];
        relay::join(&mut pair, number)?;
        let [socket, other] = pair;
        Ok(Line {
            socket,
            other: Some(other),
        })
    }

    /// The reply to one request: all that comes within a moment.
    fn probe(&self) -> io::Result<Vec<u8>> {
        let mut line = self.open(0)?;
        line.socket.write_all(&self.request)?;
        let socket = line.reader();
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

/// A call about the root of the export, or about its file: mounts it and looks the file up first.
///
/// # Errors
/// What the socket reports, or `InvalidData` if the server refuses.
pub(crate) fn nfs_call(
    server: SocketAddr,
    call: impl FnOnce(&[u8], &[u8]) -> Call,
) -> io::Result<Vec<u8>> {
    let mut connection = Connection::try_open(server)?.by(0);
    let root = connection.try_handle(&nfs::mount("/"))?;
    let file = connection.try_handle(&nfs::lookup(&root, PAGES))?;
    Ok(call(&root, &file).record_by(0, 1))
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
